/*
 * The manual page, docs/belljar.1, from the table of commands and the table of options.
 */
#include "base/buf.h"
#include "cli/cli.h"

/* All buffers here are without a ceiling, so appending cannot fail. */
#define add(...) ((void)buf_printf(__VA_ARGS__))

static const char head[] =
    ".\\\" Made by `belljar config --man` from the tables of commands and options; edit those.\n"
    ".TH BELLJAR 1 \"\" \"belljar " BELLJAR_VERSION "\" \"User Commands\"\n"
    ".SH NAME\n"
    "belljar \\- run code that MCP clients send, in sandboxes\n"
    ".SH SYNOPSIS\n"
    ".B belljar\n"
    "[\\fICOMMAND\\fR] [\\fIFLAG\\fR]...\n"
    ".SH DESCRIPTION\n"
    "belljar is a server of the Model Context Protocol. A client sends code; belljar runs it in a\n"
    "sandbox made with the Linux kernel's own means and answers with what the code printed and\n"
    "returned, the plots it drew and the files it made. It serves one client on standard input "
    "and\n"
    "output, or many over HTTP.\n"
    ".PP\n"
    "Without a command it serves. Flags come before other arguments.\n";

static const char tail[] =
    ".SH EXIT STATUS\n"
    ".TP\n"
    ".B 0\n"
    "Done.\n"
    ".TP\n"
    ".B 1\n"
    "It was asked for correctly, and could not be done.\n"
    ".TP\n"
    ".B 2\n"
    "A mistake in the command line or in the configuration; one sentence says which.\n"
    ".PP\n"
    "\\fBbelljar run\\fR ends with the status of the code that it ran.\n"
    ".SH FILES\n"
    ".TP\n"
    ".I /etc/belljar/config.yaml\n"
    "Configuration of the host.\n"
    ".TP\n"
    ".I ~/.config/belljar/config.yaml\n"
    "Configuration of the user, which is stronger.\n"
    ".SH EXAMPLES\n"
    ".TP\n"
    ".B belljar doctor\n"
    "Say what works on this host.\n"
    ".TP\n"
    ".B echo 'print(6 * 7)' | belljar run \\-\n"
    "Run Python code in a fresh sandbox.\n"
    ".TP\n"
    ".B belljar serve \\-\\-http 127.0.0.1:8000\n"
    "Serve over HTTP; the endpoint is http://127.0.0.1:8000/mcp.\n"
    ".TP\n"
    ".B belljar client\\-config claude\n"
    "Print what makes Claude start this program.\n";

static void add_switch(struct buf *buf, const struct cli_switch *one)
{
    add(buf, ".RS\n.TP\n.B ");
    config_man_text(buf, one->name);
    if (one->value)
        add(buf, " \\fI%s\\fR", one->value);
    add(buf, "\n");
    config_man_text(buf, one->help);
    add(buf, "\n.RE\n");
}

static void add_command(struct buf *buf, const struct command *command)
{
    add(buf, ".TP\n.B belljar ");
    config_man_text(buf, command->name);
    if (command->operands)
        add(buf, " \\fR%s", command->operands);
    add(buf, "\n");
    config_man_text(buf, command->summary);
    add(buf, ".\n");
    for (size_t i = 0; i < CLI_SWITCHES_MAX && command->switches[i].name; i++)
        add_switch(buf, &command->switches[i]);
}

void cli_man(struct buf *buf, const struct command *const *commands)
{
    add(buf, "%s.SH COMMANDS\n", head);
    for (; *commands; commands++)
        add_command(buf, *commands);
    add(buf, ".SH OPTIONS\n"
             "Each option is a flag of the commands serve, run, doctor and config, a key of\n"
             "config.yaml (\\-\\-log\\-level: log_level) and an environment variable "
             "(BELLJAR_LOG_LEVEL).\n"
             "Flags are stronger than the environment, that than files, those than defaults.\n"
             ".B belljar config\n"
             "prints the values in force and where each came from.\n"
             ".TP\n"
             "\\fB\\-\\-config\\fR \\fIFILE\\fR\n"
             "Read this file instead of those under FILES.\n");
    config_man(buf);
    add(buf, "%s", tail);
}
