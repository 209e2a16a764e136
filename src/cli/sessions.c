/*
 * belljar sessions: which sandboxes there are, and whether the server of each is alive. Each is a session's, or
 * waits for one. Ids of sessions are their owners' secrets, and are not told here.
 */
#include "cli/cli.h"
#include "cli/sandboxes.h"

#include "base/buf.h"
#include "base/json.h"

#include <time.h>

static void add_since(struct buf *text, const json_t *row)
{
    time_t made = (time_t)json_integer_value(json_object_get(row, "created"));
    char shown[32] = "-";
    struct tm parts;
    if (made > 0 && gmtime_r(&made, &parts))
        (void)strftime(shown, sizeof(shown), "%Y-%m-%dT%H:%M:%SZ", &parts);
    (void)buf_printf(text, "%-20s ", shown);
}

static const char *word(const json_t *row, const char *key)
{
    const char *found = json_str(row, key);
    return found && *found ? found : "-";
}

static void tell(const json_t *rows, struct buf *text)
{
    size_t i;
    const json_t *row;
    if (json_array_size(rows) > 0)
        (void)buf_printf(text, "%-8s %-20s %-10s %-24s %s\n", "SERVER", "MADE", "STATE", "IMAGE",
                         "SANDBOX");
    json_array_foreach(rows, i, row)
    {
        (void)buf_printf(text, "%-8s ", word(row, "server"));
        add_since(text, row);
        (void)buf_printf(text, "%-10s %-24.24s %s\n", word(row, "state"), word(row, "image"),
                         word(row, "sandbox"));
    }
}

static int run(const struct cli_args *args, struct err *err)
{
    const struct config *config = &args->config;
    auto_free char *state_dir = sandboxes_state_dir(config);
    auto_json *rows = json_array();
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    const struct engine_options options = { .state_dir = state_dir,
                                            .docker = docker_options(config) };
    int r = engine_list(config->engine, &options, rows, err);
    if (r < 0)
        return r;
    if (cli_given(args, "--json")) {
        (void)json_write(&text, rows);
        (void)buf_add_char(&text, '\n');
    } else {
        tell(rows, &text);
    }
    r = cli_print(&text, err);
    return r < 0 ? r : CLI_OK;
}

const struct command command_sessions = {
    .name = "sessions",
    .summary = "List the sandboxes there are, and whether their servers are alive",
    .configured = true,
    .switches = { { "--json", "Print a JSON array, one object for each sandbox." } },
    .run = run,
};
