#include "base/buf.h"
#include "cli/cli.h"

#include <errno.h>

static int run(const struct cli_args *args, struct err *err)
{
    bool json = cli_given(args, "--json"), markdown = cli_given(args, "--markdown");
    bool man = cli_given(args, "--man");
    if (json + markdown + man > 1)
        return err_set(err, EINVAL, "--json, --markdown and --man exclude each other");
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    if (markdown)
        config_markdown(&text);
    else if (man)
        cli_man(&text, args->commands);
    else if (json)
        config_print_json(&text, &args->config);
    else
        config_print(&text, &args->config);
    return cli_print(&text, err);
}

const struct command command_config = {
    .name = "config",
    .summary = "Print the options in force and where each came from",
    .configured = true,
    .switches = {
        { "--json", "Print JSON." },
        { "--markdown", "Print the manual of all options (docs/configuration.md)." },
        { "--man", "Print the manual page (docs/belljar.1)." },
    },
    .run = run,
};
