#include "base/buf.h"
#include "cli/cli.h"

static int run(const struct cli_args *args, struct err *err)
{
    (void)args;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&text, "belljar " BELLJAR_VERSION "\n"); /* no ceiling to reach */
    return cli_print(&text, err);
}

const struct command command_version = {
    .name = "version",
    .summary = "Print the version",
    .run = run,
};
