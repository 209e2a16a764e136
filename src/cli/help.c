#include "base/buf.h"
#include "cli/cli.h"

/* All buffers here are without a ceiling, so appending cannot fail. */
#define add(...) ((void)buf_printf(__VA_ARGS__))

static void add_commands(struct buf *buf, const struct command *const *commands)
{
    add(buf, "Usage: belljar [COMMAND] [FLAG]...\n"
             "\n"
             "belljar runs code that MCP clients send, in sandboxes. Without a command it serves.\n"
             "\n"
             "Commands:\n");
    for (; *commands; commands++)
        add(buf, "  %-14s %s\n", (*commands)->name, (*commands)->summary);
}

static void add_command(struct buf *buf, const struct command *command)
{
    add(buf, "Usage: belljar %s [FLAG]...%s%s\n\n%s.\n", command->name,
        command->operands ? " " : "", command->operands ? command->operands : "", command->summary);
    for (size_t i = 0; i < CLI_SWITCHES_MAX && command->switches[i].name; i++)
        add(buf, "%s  %s%s%s\n      %s\n", i ? "" : "\nFlags of this command:\n",
            command->switches[i].name, command->switches[i].value ? " " : "",
            command->switches[i].value ? command->switches[i].value : "",
            command->switches[i].help);
}

static void add_options(struct buf *buf)
{
    add(buf, "\n"
             "Every flag below is also an option of config.yaml (--log-level: log_level) and an\n"
             "environment variable (BELLJAR_LOG_LEVEL); see docs/configuration.md.\n"
             "\n"
             "  --config FILE\n"
             "      Read this file instead of /etc/belljar/config.yaml and\n"
             "      ~/.config/belljar/config.yaml.\n"
             "\n");
    config_help(buf);
}

void cli_help(struct buf *buf, const struct command *const *commands, const struct command *command)
{
    if (command)
        add_command(buf, command);
    else
        add_commands(buf, commands);
    if (!command || command->configured)
        add_options(buf);
    if (!command)
        add(buf,
            "\nExit status: 0 done, 1 failed, 2 a mistake in the command line or configuration.\n");
}

int cli_show_help(const struct cli_args *args, struct err *err)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    cli_help(&text, args->commands, args->command);
    return cli_print(&text, err);
}

static int run(const struct cli_args *args, struct err *err)
{
    const struct command *command = NULL;
    if (args->n_operands) {
        command = cli_find(args->commands, args->operands[0]);
        if (!command)
            return cli_no_command(args->commands, args->operands[0], err);
    }
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    cli_help(&text, args->commands, command);
    return cli_print(&text, err);
}

const struct command command_help = {
    .name = "help",
    .summary = "Explain a command, or list them",
    .operands = "[COMMAND]",
    .max_operands = 1,
    .run = run,
};
