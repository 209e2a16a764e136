/*
 * The life of one request, from arrival to its single answer.
 *
 *   call_new ─▶ call_run(handler) ─┬─ finished inside: sent, freed when the handler returns
 *                                  ├─ deferred: lives on until its handler finishes it
 *                                  └─ neither: answered for with an internal error
 *
 * Cancelling sends nothing and frees nothing by itself: the handler is told, and still finishes
 * the call; what it says then is dropped here. A call whose peer is gone waits among the orphans.
 */
#include "mcp/server.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct mcp_call *call_new(const struct call_request *request)
{
    const struct rpc_message *message = request->message;
    struct peer *peer = request->peer;
    struct mcp_call *call = xcalloc(1, sizeof(*call));
    call->server = peer->server;
    call->peer = peer;
    call->outlet = outlet_ref(request->outlet);
    call->root = json_incref((json_t *)message->root);
    call->id = message->id;
    call->no_arguments = json_object();
    call->params = message->params ? message->params : call->no_arguments;
    call->arguments = call->no_arguments;
    call->revision = request->revision;
    call->owner = xstrdup(peer->owner);
    call->progress_token = rpc_progress_token(message);
    if (request->envelope) {
        call->client_capabilities = json_incref((json_t *)request->envelope->capabilities);
        const char *level = request->envelope->log_level;
        call->log_level = level ? rpc_log_level(level) : -1;
    } else {
        call->client_capabilities = json_incref(peer->client_capabilities);
        call->log_level = peer->log_level;
    }
    list_init(&call->asks);
    list_add_tail(&peer->calls, &call->link);
    peer->n_calls++;
    call->server->stats.requests_total++;
    call->server->stats.in_flight++;
    return call;
}

static void call_free(struct mcp_call *call)
{
    peer_forget_asks(call);
    list_remove(&call->link);
    if (call->peer)
        call->peer->n_calls--;
    call->server->stats.in_flight--;
    if (call->args) {
        shape_done(call->entry->tool->input, call->args);
        free(call->args);
    }
    json_decref(call->client_capabilities);
    json_decref(call->no_arguments);
    json_decref(call->blocks);
    json_decref(call->structured);
    json_decref(call->state);
    json_decref(call->needs);
    json_decref(call->root);
    free(call->last_listed);
    outlet_unref(call->outlet);
    free(call->owner);
    struct mcp_server *server = call->server;
    free(call);
    void (*on_first)(void *data) = steal_ptr(&server->on_first_answer);
    if (on_first)
        on_first(server->on_first_answer_data);
}

void call_hold(struct mcp_call *call)
{
    call->holds++;
}

void call_release(struct mcp_call *call)
{
    if (--call->holds == 0 && call->finished)
        call_free(call);
}

void call_run(struct mcp_call *call, void (*handler)(struct mcp_call *call))
{
    call_hold(call);
    handler(call);
    if (!call->finished && !call->deferred) {
        log_error("a handler returned without answering or deferring: %s",
                  json_str(call->root, "method"));
        call_reply_errorf(call, MCP_INTERNAL_ERROR, "the request was not handled");
    }
    call_release(call);
}

/*** Sending ***/

void call_send(struct mcp_call *call, json_t *message, enum outlet_kind kind)
{
    auto_json *taken = message;
    auto_buf text = BUF_INIT(call->server->limits.max_answer);
    if (call->cancelled || call->finished)
        return;
    if (json_write(&text, taken) < 0) {
        log_warning("dropping a message over max_answer (%zu bytes)", text.max);
        return;
    }
    call->outlet->ops->send(call->outlet, text.data, text.len, kind, 200);
}

/* Every way to finish ends here, once. */
static void call_end(struct mcp_call *call, const struct buf *text, int status)
{
    assert(!call->finished);
    call->finished = true;
    if (!call->cancelled)
        call->outlet->ops->send(call->outlet, text->data, text->len, OUTLET_RESPONSE, status);
    if (call->holds == 0)
        call_free(call);
}

/* Takes `reply`. */
static void call_end_json(struct mcp_call *call, json_t *reply, int status)
{
    auto_json *taken = reply;
    auto_buf text = BUF_INIT(call->server->limits.max_answer);
    if (!call->cancelled && json_write(&text, taken) < 0) {
        struct rpc_error error = { 0 };
        rpc_error_set(&error, MCP_INTERNAL_ERROR,
                      "the answer is longer than max_answer (%zu bytes)", text.max);
        auto_json *instead = rpc_error_reply(call->id, &error);
        text.max = BUF_NO_CEILING;
        (void)json_write(&text, instead);
        status = 200;
    }
    call_end(call, &text, status);
}

void call_complete_result(const struct mcp_call *call, json_t *result)
{
    if (!revision_has(call->revision, IS_STATELESS))
        return;
    if (!json_object_get(result, "resultType"))
        json_put_str(result, "resultType", "complete");
    json_t *meta = json_object_get(result, "_meta");
    if (!meta) {
        meta = json_object();
        json_put(result, "_meta", meta);
    }
    json_put(meta, META_SERVER_INFO, json_incref(call->server->implementation));
}

void call_reply(struct mcp_call *call, json_t *result)
{
    call_complete_result(call, result);
    call_end_json(call, rpc_result(call->id, result), 200);
}

void call_reply_text(struct mcp_call *call, const char *result)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING); /* the result is one of ours, and was measured */
    (void)buf_add_str(&text, "{\"jsonrpc\":\"2.0\",\"id\":");
    (void)json_write(&text, call->id);
    (void)buf_add_str(&text, ",\"result\":");
    (void)buf_add_str(&text, result);
    (void)buf_add_char(&text, '}');
    call_end(call, &text, 200);
}

void call_reply_error(struct mcp_call *call, struct rpc_error *error, int status)
{
    call->server->stats.errors_total++;
    call_end_json(call, rpc_error_reply(call->id, error), status);
    rpc_error_done(error);
}

void call_reply_errorf(struct mcp_call *call, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    auto_free char *text = xvasprintf(fmt, args);
    va_end(args);
    struct rpc_error error = { 0 };
    rpc_error_set(&error, code, "%s", text);
    call_reply_error(call, &error, 200);
}

/*** Cancelling ***/

void call_cancel(struct mcp_call *call)
{
    if (call->cancelled || call->finished)
        return;
    call->cancelled = true;
    call->server->stats.cancelled_total++;
    call_hold(call);
    call->outlet->ops->abandon(call->outlet);
    peer_end_asks(call, "the call was cancelled");
    if (!call->finished && call->on_cancel)
        call->on_cancel(call, call->cancel_data);
    call_release(call);
}

void mcp_call_defer(struct mcp_call *call, void (*on_cancel)(struct mcp_call *call, void *data),
                    void *data)
{
    call->deferred = true;
    call->on_cancel = on_cancel;
    call->cancel_data = data;
}

bool mcp_call_cancelled(const struct mcp_call *call)
{
    return call->cancelled;
}

/*** What the client said ***/

const json_t *mcp_call_arguments(const struct mcp_call *call)
{
    return call->arguments;
}

const char *mcp_call_owner(const struct mcp_call *call)
{
    return call->owner;
}

const char *mcp_call_revision(const struct mcp_call *call)
{
    return revision_name(call->revision);
}

bool mcp_call_is_stateless(const struct mcp_call *call)
{
    return revision_has(call->revision, IS_STATELESS);
}

bool mcp_call_client_can(const struct mcp_call *call, const char *capability)
{
    const json_t *at = call->client_capabilities;
    auto_free char *path = xstrdup(capability);
    char *rest = path;
    for (char *name; (name = strsep(&rest, "."));) {
        at = json_object_get(at, name);
        if (!json_is_object(at))
            return false;
    }
    return true;
}

bool mcp_call_wants_progress(const struct mcp_call *call)
{
    return call->progress_token != NULL;
}

/*** While it runs ***/

/* 50 rather than 50.0: easier on the eye, and the same number to every client. */
static json_t *number(double value)
{
    bool whole = value > -9e15 && value < 9e15 && value == (double)(json_int_t)value;
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

void mcp_call_progress(struct mcp_call *call, double progress, double total, const char *message)
{
    if (!call->progress_token || (call->sent_progress && progress <= call->last_progress))
        return;
    call->sent_progress = true;
    call->last_progress = progress;
    json_t *params = json_object();
    json_put(params, "progressToken", json_incref(call->progress_token));
    json_put(params, "progress", number(progress));
    if (total > 0)
        json_put(params, "total", number(total));
    if (message && revision_has(call->revision, HAS_PROGRESS_MESSAGE))
        json_put(params, "message", json_text_value(message, strlen(message)));
    call_send(call, rpc_notification("notifications/progress", params), OUTLET_HINT);
}

void mcp_call_log(struct mcp_call *call, const char *level, const char *logger, json_t *data)
{
    auto_json *taken = data;
    int rank = rpc_log_level(level);
    assert(rank >= 0);
    bool wanted = call->log_level >= 0 && rank >= call->log_level;
    if (!wanted || !(call->server->capabilities & MCP_LOGGING))
        return;
    json_t *params = json_object();
    json_put_str(params, "level", level);
    if (logger)
        json_put_str(params, "logger", logger);
    json_put(params, "data", steal_ptr(&taken));
    call_send(call, rpc_notification("notifications/message", params), OUTLET_HINT);
}

void mcp_call_hang_up(struct mcp_call *call, uint64_t retry_ms)
{
    if (call->outlet->ops->hang_up && revision_has(call->revision, HAS_PRIMING))
        call->outlet->ops->hang_up(call->outlet, retry_ms);
}

/*** Questions of the stateless era ***/

char *call_binding(const struct mcp_call *call)
{
    const char *name = json_str(call->params, "name");
    const char *uri = json_str(call->params, "uri");
    auto_free char *arguments = json_text(call->arguments);
    return xasprintf("%s\n%s\n%s\n%s", json_str(call->root, "method"),
                     name  ? name
                     : uri ? uri
                           : "",
                     call->owner, arguments);
}

const json_t *mcp_call_input(const struct mcp_call *call, const char *key)
{
    const json_t *input = json_object_get(call->inputs, key);
    return json_is_object(input) ? input : NULL;
}

const json_t *mcp_call_state(const struct mcp_call *call)
{
    return call->state;
}

/* May this client be asked this? An elicitation by URL needs its own word; {} means forms only. */
static bool can_ask(const struct mcp_call *call, const char *method, const json_t *params)
{
    if (str_eq(method, "sampling/createMessage"))
        return mcp_call_client_can(call, "sampling");
    if (str_eq(method, "roots/list"))
        return mcp_call_client_can(call, "roots");
    if (!str_eq(method, "elicitation/create") || !mcp_call_client_can(call, "elicitation"))
        return false;
    if (str_eq(json_str(params, "mode"), "url"))
        return mcp_call_client_can(call, "elicitation.url");
    const json_t *elicitation = json_object_get(call->client_capabilities, "elicitation");
    return json_object_size(elicitation) == 0 || json_object_get(elicitation, "form") != NULL;
}

bool mcp_call_need(struct mcp_call *call, const char *key, const char *method, json_t *params)
{
    auto_json *taken = params;
    if (!mcp_call_is_stateless(call) || !can_ask(call, method, taken))
        return false;
    if (!call->needs)
        call->needs = json_object();
    json_t *request = json_object();
    json_put_str(request, "method", method);
    if (taken)
        json_put(request, "params", steal_ptr(&taken));
    json_put(call->needs, key, request);
    return true;
}

static uint64_t wall_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail with this clock */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void mcp_call_ask(struct mcp_call *call, json_t *state)
{
    auto_json *taken = state;
    assert(mcp_call_is_stateless(call) && (call->needs || taken));
    json_t *result = json_object();
    json_put_str(result, "resultType", "input_required");
    if (call->needs)
        json_put(result, "inputRequests", steal_ptr(&call->needs));
    if (taken) {
        auto_free char *binding = call_binding(call);
        auto_free char *sealed = seal_make(call->server->seal_key, taken, binding,
                                           wall_ms() + call->server->limits.state_ttl_ms);
        json_put_str(result, "requestState", sealed);
    }
    call_reply(call, result);
}

int call_open_state(struct mcp_call *call, struct rpc_error *error)
{
    const json_t *inputs = json_object_get(call->params, "inputResponses");
    const json_t *sealed = json_object_get(call->params, "requestState");
    if (inputs && !json_is_object(inputs)) {
        rpc_error_set(error, MCP_INVALID_PARAMS, "inputResponses: must be an object");
        return -EINVAL;
    }
    call->inputs = inputs;
    if (!sealed)
        return 0;
    const char *text = json_str(call->params, "requestState");
    auto_free char *binding = call_binding(call);
    int r =
        text ? seal_open(call->server->seal_key, text, binding, wall_ms(), &call->state) : -EBADMSG;
    if (r < 0)
        rpc_error_set(error, MCP_INVALID_PARAMS,
                      r == -ETIME ? "requestState: expired; send the request anew without it"
                                  : "requestState: not one that this server gave for this request");
    return r;
}
