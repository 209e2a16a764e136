#include "mcp/server.h"

#include <errno.h>
#include <stdlib.h>

void peer_init(struct peer *peer, struct mcp_server *server, const char *owner)
{
    *peer = (struct peer){ .server = server,
                           .owner = xstrdup(owner),
                           .log_level = rpc_log_level("info"),
                           .subscribed = json_object(),
                           .next_ask = 1 };
    list_init(&peer->calls);
    list_init(&peer->listens);
    list_add_tail(&server->peers, &peer->link);
}

void peer_done(struct peer *peer)
{
    list_remove(&peer->link); /* first: no more notifications */
    while (!list_empty(&peer->calls)) {
        struct mcp_call *call = list_first(struct mcp_call, &peer->calls, link);
        list_remove(&call->link);
        list_add_tail(&peer->server->orphans, &call->link);
        call->peer = NULL;
        call_cancel(call); /* may free it */
    }
    outlet_unref(peer->standing);
    json_decref(peer->client_capabilities);
    json_decref(peer->subscribed);
    free(peer->owner);
}

struct mcp_call *peer_find_call(const struct peer *peer, const json_t *id)
{
    list_each (struct mcp_call, call, &peer->calls, link) {
        if (!call->cancelled && json_equal(call->id, id))
            return call;
    }
    return NULL;
}

/*** Our own requests to the client ***/

struct ask {
    struct list link; /* mcp_call.asks */
    int64_t id;
    void (*on_answer)(struct mcp_call *call, const json_t *result, const char *error, void *data);
    void *data;
};

static void ask_end(struct ask *ask, struct mcp_call *call, const json_t *result, const char *error)
{
    list_remove(&ask->link);
    ask->on_answer(call, result, error, ask->data);
    free(ask);
}

void peer_take_response(struct peer *peer, const struct rpc_message *message)
{
    if (!json_is_integer(message->id))
        return;
    list_each (struct mcp_call, call, &peer->calls, link) {
        list_each (struct ask, ask, &call->asks, link) {
            if (ask->id != json_integer_value(message->id))
                continue;
            const char *why = message->error ? json_str(message->error, "message") : NULL;
            call_hold(call);
            ask_end(ask, call, message->result,
                    message->result ? NULL
                    : why           ? why
                                    : "the client refused");
            call_release(call);
            return;
        }
    }
}

void peer_end_asks(struct mcp_call *call, const char *error)
{
    while (!list_empty(&call->asks))
        ask_end(list_first(struct ask, &call->asks, link), call, NULL, error);
}

void peer_forget_asks(struct mcp_call *call)
{
    list_each (struct ask, ask, &call->asks, link) {
        list_remove(&ask->link);
        free(ask);
    }
}

/* The capability that a request to the client presupposes. */
static const char *capability_for(const char *method)
{
    static const struct {
        const char *method, *capability;
    } table[] = {
        { "sampling/createMessage", "sampling" },
        { "elicitation/create", "elicitation" },
        { "roots/list", "roots" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        if (str_eq(table[i].method, method))
            return table[i].capability;
    }
    return NULL;
}

int mcp_call_request(struct mcp_call *call, const char *method, json_t *params,
                     void (*on_answer)(struct mcp_call *call, const json_t *result,
                                       const char *error, void *data),
                     void *data, struct err *err)
{
    auto_json *taken = params;
    const char *capability = capability_for(method);
    if (call->cancelled || !call->peer)
        return err_set(err, EOPNOTSUPP, "the client is gone");
    if (mcp_call_is_stateless(call))
        return err_set(err, EOPNOTSUPP, "this revision has no requests to the client");
    if (!capability || !mcp_call_client_can(call, capability))
        return err_set(err, EOPNOTSUPP, "the client does not offer %s", method);
    if (!call->outlet->ops->can_push(call->outlet))
        return err_set(err, EOPNOTSUPP, "the client accepts no event stream");

    struct ask *ask = xcalloc(1, sizeof(*ask));
    ask->id = call->peer->next_ask++;
    ask->on_answer = on_answer;
    ask->data = data;
    list_add_tail(&call->asks, &ask->link);
    call_send(call, rpc_request(json_integer(ask->id), method, steal_ptr(&taken)), OUTLET_REQUEST);
    return 0;
}
