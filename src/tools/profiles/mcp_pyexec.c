/*
 * mcp-pyexec: one tool, execute_python. Without a session_id each call has a fresh sandbox; with one,
 * variables and files stay. What the code left is a list of items (value, output, errors, images),
 * of which text and image content are made.
 */
#include "tools/execution.h"
#include "tools/report.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct pyexec_args {
    const char *code;
    const char *session_id;
};
static const struct field fields[] = {
    FIELD_STR(struct pyexec_args, code, "Python code to execute.", .required = true,
              .max_len = TOOLBOX_CODE_MAX),
    FIELD_STR(struct pyexec_args, session_id,
              "Name of a session: variables and files persist between calls that give the same "
              "one. Leave out for a fresh sandbox.",
              .max_len = SESSION_ID_MAX),
    FIELD_END,
};
static const struct shape input = SHAPE(struct pyexec_args, fields);

/*** The items ***/

static void add_item(json_t *items, const char *type, const char *data)
{
    if (!data || !*data)
        return;
    json_t *item = json_object();
    json_put_str(item, "type", type);
    json_put_str(item, "data", data);
    json_push(items, item);
}

static void add_image_item(const char *mime_type, const json_t *base64, void *items)
{
    (void)mime_type;
    add_item(items, "image", json_string_value(base64));
}

json_t *pyexec_items(const struct run_result *run, size_t max_answer)
{
    json_t *items = json_array();
    auto_free char *value = report_value(run, max_answer / 8, NULL);
    auto_free char *out = report_stream(run, LINK_STDOUT, max_answer / 4, NULL);
    auto_free char *errors = report_stream(run, LINK_STDERR, max_answer / 8, NULL);
    auto_free char *traceback = report_traceback_text(run);
    add_item(items, "text", value);
    add_item(items, "text", out);
    add_item(items, "error", errors);
    (void)report_images(run, max_answer, add_image_item, items);
    if (run->outcome == OUTCOME_ERROR)
        add_item(items, "error", *traceback ? traceback : run->error);
    return items;
}

/* The text items one after the other, each on its own line; NULL: there are none. */
static char *items_text(const json_t *items)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item)
    {
        bool error = str_eq(json_str(item, "type"), "error");
        if (!error && !str_eq(json_str(item, "type"), "text"))
            continue;
        if (text.len && text.data[text.len - 1] != '\n')
            (void)buf_add_char(&text, '\n');
        (void)buf_printf(&text, "%s%s%s", error ? "ERROR: " : "", json_str(item, "data"),
                         error ? "\n" : "");
    }
    return toolbox_strip(&text);
}

/*** The answer ***/

/* How it ended if the code did not run to its end by itself; NULL: it did. */
static char *verdict(const struct run_result *run, const struct toolbox *box)
{
    switch (run->outcome) {
    case OUTCOME_OK:
    case OUTCOME_ERROR:
        return run->truncated ? xstrdup("Error: Output size exceeds maximum limit") : NULL;
    case OUTCOME_OUTPUT_LIMIT:
        return xstrdup("Error: Output size exceeds maximum limit");
    case OUTCOME_TIMEOUT:
        return xasprintf("✗ Execution timed out after %g seconds",
                         (double)box->run_timeout_ms / 1000);
    case OUTCOME_INTERRUPTED:
    case OUTCOME_SANDBOX_FAILED:
        return xasprintf("✗ Error executing code: %s", run->error);
    default:
        return xasprintf("✗ Docker execution failed:\n\n```\n%s\n```", run->error);
    }
}

static void on_done(struct mcp_call *call, const struct run_result *run, const struct toolbox *box,
                    void *data)
{
    auto_json *items = pyexec_items(run, box->max_answer);
    auto_free char *text = items_text(items), *ended = verdict(run, box);
    (void)data;
    if (ended)
        mcp_call_add(call, mcp_textf("%s", ended));
    if (*text)
        mcp_call_add(call, mcp_text(text, strlen(text)));
    size_t images = report_images(run, box->max_answer, report_add_image, call);
    if (!ended && !*text && !images)
        mcp_call_add(call, mcp_textf("✓ Execution successful (no output)"));
    mcp_call_finish(call);
}

static void execute_python(struct mcp_call *call, const void *arguments, void *data)
{
    const struct pyexec_args *args = arguments;
    const struct toolbox *box = data;
    bool named = args->session_id && *args->session_id;
    const struct session_plan plan = { .id = named ? args->session_id : NULL };
    const struct run_spec spec = { .language = "python",
                                   .code = args->code,
                                   .code_len = strlen(args->code),
                                   .plan = &plan,
                                   .str_value = true,
                                   .transient = !named };
    struct err err = { 0 };
    if (args->code[strspn(args->code, " \t\r\n")] == '\0')
        mcp_call_say(call, "Error: No Python code provided");
    else if (execution_start(call, box, &spec, on_done, NULL, &err) < 0)
        mcp_call_say(call, "✗ Error: %s", err.msg);
}

static const struct mcp_tool tool_execute_python = {
    .name = "execute_python",
    .title = "Execute Python",
    .description =
        "Executes Python code in an isolated sandbox with resource limits and without network, and "
        "returns its output, errors and plots. numpy, pandas and matplotlib are there; plots come "
        "back as images.",
    .input = &input,
    .hints = MCP_DESTRUCTIVE,
    .call = execute_python,
};

static const struct mcp_tool *const tools[] = { &tool_execute_python, NULL };

const struct profile profile_mcp_pyexec = {
    .name = "mcp-pyexec",
    .info = { .name = "ipython-executor",
              .version = BELLJAR_VERSION,
              .instructions = "Runs Python in isolated sandboxes. Give the same session_id in "
                              "several calls to keep variables and files." },
    .tools = tools,
};
