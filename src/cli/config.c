#include "base/buf.h"
#include "cli/cli.h"

#include <errno.h>

static int run(const struct cli_args *args, struct err *err)
{
    bool json = cli_given(args, "--json"), markdown = cli_given(args, "--markdown");
    if (json && markdown)
        return err_set(err, EINVAL, "--json and --markdown exclude each other");
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    if (markdown)
        config_markdown(&text);
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
    },
    .run = run,
};
