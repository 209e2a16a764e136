/*
 * Lines from a client through the JSON-RPC dispatcher, both eras. Beyond "does not crash": every
 * message sent is one JSON object (or a batch), and no request is answered twice. A slow tool keeps
 * calls open across lines so that cancellation and the end of the client meet them.
 */
#include "base/log.h"
#include "base/loop.h"
#include "mcp/server.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*** A server with one of everything ***/

struct args {
    const char *text;
    int64_t number;
    struct str_list list;
};
static const struct field fields[] = {
    FIELD_STR(struct args, text, "Text.", .max_len = 32, .preset_str = "x"),
    FIELD_INT(struct args, number, "Number.", RANGE(-5, 5)),
    FIELD_STRS(struct args, list, "List.", .max_len = 4, .item_max_len = 8),
    FIELD_END,
};
static const struct shape shape = SHAPE(struct args, fields);

static struct mcp_call *kept[64];
static size_t n_kept;

static void echo(struct mcp_call *call, const void *args, void *extra)
{
    const struct args *a = args;
    (void)extra;
    mcp_call_progress(call, 1, 2, a->text);
    mcp_call_add(call, mcp_textf("%s %zu", a->text ? a->text : "", a->list.count));
    mcp_call_add(call, mcp_audio("audio/wav", "abc", 3));
    mcp_call_add(call, mcp_link("test://x", "x", NULL, 3));
    mcp_call_finish(call);
}

static void on_cancel(struct mcp_call *call, void *extra)
{
    (void)extra;
    for (size_t i = 0; i < n_kept; i++) {
        if (kept[i] == call)
            kept[i] = kept[--n_kept];
    }
    mcp_call_finish(call);
}

static void slow(struct mcp_call *call, const void *args, void *extra)
{
    (void)args;
    (void)extra;
    if (n_kept == ARRAY_SIZE(kept)) {
        mcp_call_fail(call, "busy");
        return;
    }
    kept[n_kept++] = call;
    mcp_call_defer(call, on_cancel, NULL);
}

static void asks(struct mcp_call *call, const void *args, void *extra)
{
    (void)args;
    (void)extra;
    if (!mcp_call_is_stateless(call) || mcp_call_input(call, "q"))
        mcp_call_finish(call);
    else if (mcp_call_need(call, "q", "roots/list", NULL))
        mcp_call_ask(call, json_pack("{s:i}", "n", 1));
    else
        mcp_call_missing_capability(call, "roots");
}

static void read_template(struct mcp_call *call, const char *uri, const char *const vars[],
                          void *extra)
{
    (void)extra;
    mcp_call_add_text(call, uri, "text/plain", vars[0], strlen(vars[0]));
    mcp_call_finish(call);
}

static void get_prompt(struct mcp_call *call, const json_t *args, void *extra)
{
    (void)args;
    (void)extra;
    mcp_call_add_message(call, "user", mcp_textf("hi"));
    mcp_call_finish(call);
}

static void complete(struct mcp_call *call, const char *name, const char *value,
                     const json_t *known, void *extra)
{
    (void)name;
    (void)known;
    (void)extra;
    mcp_call_add_completion(call, value);
    mcp_call_finish(call);
}

static const struct mcp_tool tools[] = {
    { .name = "echo", .description = "Echo.", .input = &shape, .call = echo },
    { .name = "slow", .description = "Slow.", .call = slow },
    { .name = "asks",
      .description = "Asks.",
      .input_schema = "{\"type\":\"object\"}",
      .call = asks },
};
static const struct mcp_template templ = {
    .uri_template = "test://{id}/{+rest}", .name = "t", .read = read_template, .complete = complete
};
static const struct mcp_prompt_arg prompt_args[] = { { .name = "a", .required = true }, { 0 } };
static const struct mcp_prompt prompt = {
    .name = "p", .description = "P.", .args = prompt_args, .get = get_prompt, .complete = complete
};

static struct mcp_server *make_server(uv_loop_t *loop)
{
    struct mcp_limits limits = MCP_LIMITS_DEFAULT;
    limits.page_size = 2;
    limits.max_requests = 8;
    limits.max_subscriptions = 4;
    struct mcp_server *server =
        mcp_server_new(loop, &(struct mcp_info){ .name = "fuzz", .version = "1" }, &limits,
                       MCP_LOGGING | MCP_SUBSCRIBE | MCP_TOOLS_CHANGE | MCP_RESOURCES_CHANGE);
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        mcp_server_add_tool(server, &tools[i], NULL);
    mcp_server_add_template(server, &templ, NULL);
    mcp_server_add_prompt(server, &prompt, NULL);
    return server;
}

/*** An outlet that checks ***/

static json_t *asked; /* ids that may still be answered, one entry a message that had it */

static void check_answer(json_t *message)
{
    json_t *id = json_object_get(message, "id");
    if (!json_is_object(message) || !str_eq(json_str(message, "jsonrpc"), "2.0"))
        abort();
    if (!id || json_object_get(message, "method"))
        return;
    for (size_t i = 0; i < json_array_size(asked); i++) {
        if (json_equal(json_array_get(asked, i), id)) {
            (void)json_array_remove(asked, i);
            return;
        }
    }
    abort(); /* a second answer to one request, or an answer to none */
}

static void sink_send(struct outlet *outlet, const char *text, size_t len, enum outlet_kind kind,
                      int status)
{
    (void)outlet;
    (void)kind;
    (void)status;
    auto_json *message = NULL;
    if (json_read(text, len, &JSON_LIMITS_DEFAULT, &message, NULL) < 0)
        abort();
    if (!json_is_array(message)) {
        check_answer(message);
        return;
    }
    size_t i;
    json_t *item;
    json_array_foreach(message, i, item) check_answer(item);
}

static void sink_abandon(struct outlet *outlet)
{
    (void)outlet;
}

static bool sink_can_push(const struct outlet *outlet)
{
    (void)outlet;
    return true;
}

static const struct outlet_ops sink_ops = {
    .send = sink_send, .abandon = sink_abandon, .can_push = sink_can_push, .free = sink_abandon
};

/*** One input ***/

static void note_id(const json_t *message)
{
    json_t *id = json_object_get(message, "id");
    if (id)
        json_push(asked, json_incref(id));
}

static void feed_line(struct peer *peer, struct outlet *outlet, const char *text, size_t len)
{
    auto_json *root = NULL;
    if (json_read(text, len, &JSON_LIMITS_DEFAULT, &root, NULL) < 0)
        return;
    size_t i;
    json_t *item;
    note_id(root);
    json_array_foreach(root, i, item) note_id(item);
    dispatch_line(peer, outlet, root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uv_loop_t loop;
    struct outlet outlet = { .ops = &sink_ops, .refs = 1 };
    struct peer peer;
    log_init(STDERR_FILENO, LOG_TEXT, LOG_ERROR);
    uv_loop_init(&loop);
    asked = json_array();
    n_kept = 0;
    struct mcp_server *server = make_server(&loop);
    peer_init(&peer, server, "fuzz");
    peer.standing = outlet_ref(&outlet);

    const char *at = (const char *)data, *end = at + size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((newline ? newline : end) - at);
        feed_line(&peer, &outlet, at, len);
        mcp_server_tools_changed(server);
        mcp_server_resource_updated(server, "test://a/b", NULL);
        at += len + 1;
    }
    if (n_kept > 1) /* one ends by itself, the others with their client */
        mcp_call_finish(kept[--n_kept]);
    notify_end_listens(&peer, true);
    peer_done(&peer);
    mcp_server_free(server);
    json_decref(asked);
    loop_finish(&loop);
    return 0;
}
