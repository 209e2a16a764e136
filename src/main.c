#include "base/buf.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &command_serve, &command_run,      &command_doctor, &command_config,  &command_client_config,
    &command_image, &command_sessions, &command_help,   &command_version, NULL,
};

/* One sentence for a mistake of the user; what failed later is an event for the log. */
static int report(int r, bool usage, const struct err *err)
{
    if (r >= 0)
        return r;
    if (!usage) {
        log_error("%s", err->msg);
        return CLI_FAILED;
    }
    (void)fprintf(stderr, "belljar: %s\n", err->msg); /* nobody to tell if this fails */
    return CLI_USAGE;
}

static void start_log(const struct config *config)
{
    log_init(STDERR_FILENO, config->log_format, config->log_level);
    for (size_t i = 0; i < config->warnings.count; i++)
        log_warning("%s", config->warnings.items[i]);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    auto_cli_args args = { 0 };
    int r = cli_parse(&args, commands, argc, argv, &err);
    if (r == 0)
        r = cli_load_config(&args, &err);
    if (r < 0)
        return report(r, /* usage= */ true, &err);

    if (args.command->configured && !args.help)
        start_log(&args.config);
    r = args.help ? cli_show_help(&args, &err) : args.command->run(&args, &err);
    return report(r, /* usage= */ r == -EINVAL, &err);
}
