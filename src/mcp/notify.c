/*
 * Telling clients that something changed.
 *
 * Handshake era: a peer is told on its standing outlet, of lists always (the capability said so),
 * of resources when it subscribed to them. Stateless era: only through subscriptions/listen, a
 * request that stays open; everything on it carries the id of that request.
 */
#include "mcp/server.h"

#include "mcp/uri_template.h"

#include <stdlib.h>
#include <string.h>

/* The kinds of change a client can ask to hear of. */
enum change { CHANGE_TOOLS, CHANGE_PROMPTS, CHANGE_RESOURCES, CHANGE_LISTS };

static const struct {
    const char *method; /* of the notification */
    const char *filter; /* member of the listen request */
    unsigned capability;
} changes[CHANGE_LISTS] = {
    [CHANGE_TOOLS] = { "notifications/tools/list_changed", "toolsListChanged", MCP_TOOLS_CHANGE },
    [CHANGE_PROMPTS] = { "notifications/prompts/list_changed", "promptsListChanged",
                         MCP_PROMPTS_CHANGE },
    [CHANGE_RESOURCES] = { "notifications/resources/list_changed", "resourcesListChanged",
                           MCP_RESOURCES_CHANGE },
};

/* One open subscriptions/listen. */
struct listen {
    struct list link; /* peer->listens */
    struct peer *peer;
    struct mcp_call *call;
    bool lists[CHANGE_LISTS];
    json_t *uris; /* array of strings */
};

/*** Sending ***/

static void send_standing(struct peer *peer, json_t *message)
{
    auto_json *taken = message;
    auto_free char *text = json_text(taken);
    peer->standing->ops->send(peer->standing, text, strlen(text), OUTLET_NOTIFICATION, 200);
}

static void send_listen(struct listen *listen, const char *method, json_t *params)
{
    if (!params)
        params = json_object();
    json_t *meta = json_object();
    json_put(meta, META_SUBSCRIPTION, json_incref(listen->call->id));
    json_put(params, "_meta", meta);
    call_send(listen->call, rpc_notification(method, params), OUTLET_NOTIFICATION);
}

static bool is_for(const struct peer *peer, const char *owner)
{
    return !owner || str_eq(peer->owner, owner);
}

static void list_changed(struct mcp_server *server, enum change change, const char *owner)
{
    list_each (struct peer, peer, &server->peers, link) {
        if (!is_for(peer, owner))
            continue;
        if (peer->initialized && peer->standing)
            send_standing(peer, rpc_notification(changes[change].method, NULL));
        list_each (struct listen, listen, &peer->listens, link) {
            if (listen->lists[change])
                send_listen(listen, changes[change].method, NULL);
        }
    }
}

void mcp_server_tools_changed(struct mcp_server *server)
{
    list_changed(server, CHANGE_TOOLS, NULL);
}

void mcp_server_prompts_changed(struct mcp_server *server)
{
    list_changed(server, CHANGE_PROMPTS, NULL);
}

void mcp_server_resources_changed(struct mcp_server *server, const char *owner)
{
    list_changed(server, CHANGE_RESOURCES, owner);
}

static json_t *updated_params(const char *uri)
{
    json_t *params = json_object();
    json_put_str(params, "uri", uri);
    return params;
}

static bool subscribed_to(const struct peer *peer, const char *uri)
{
    const char *subscribed;
    json_t *value;
    json_object_foreach(peer->subscribed, subscribed, value)
    {
        if (uri_is_under(uri, subscribed))
            return true;
    }
    return false;
}

static bool listens_to(const struct listen *listen, const char *uri)
{
    size_t i;
    json_t *subscribed;
    json_array_foreach(listen->uris, i, subscribed)
    {
        if (uri_is_under(uri, json_string_value(subscribed)))
            return true;
    }
    return false;
}

bool mcp_server_resource_updated(struct mcp_server *server, const char *uri, const char *owner)
{
    const char *method = "notifications/resources/updated";
    bool told = false;
    list_each (struct peer, peer, &server->peers, link) {
        if (!is_for(peer, owner))
            continue;
        if (peer->initialized && peer->standing && subscribed_to(peer, uri)) {
            send_standing(peer, rpc_notification(method, updated_params(uri)));
            told = true;
        }
        list_each (struct listen, listen, &peer->listens, link) {
            if (listens_to(listen, uri)) {
                send_listen(listen, method, updated_params(uri));
                told = true;
            }
        }
    }
    return told;
}

void mcp_server_resources_updated(struct mcp_server *server, const char *uri, const char *owner)
{
    const char *method = "notifications/resources/updated", *subscribed;
    json_t *value;
    size_t i;
    list_each (struct peer, peer, &server->peers, link) {
        if (!is_for(peer, owner))
            continue;
        json_object_foreach(peer->subscribed, subscribed, value)
        {
            if (peer->initialized && peer->standing && uri_is_under(subscribed, uri))
                send_standing(peer, rpc_notification(method, updated_params(subscribed)));
        }
        list_each (struct listen, listen, &peer->listens, link) {
            json_array_foreach(listen->uris, i, value)
            {
                if (uri_is_under(json_string_value(value), uri))
                    send_listen(listen, method, updated_params(json_string_value(value)));
            }
        }
    }
}

/*** Who follows resources ***/

static bool peer_watches(const struct peer *peer)
{
    if (peer->initialized && (peer->listed || json_object_size(peer->subscribed)))
        return true;
    list_each (struct listen, listen, &peer->listens, link) {
        if (listen->lists[CHANGE_RESOURCES] || json_array_size(listen->uris))
            return true;
    }
    return false;
}

bool mcp_server_watched(const struct mcp_server *server, const char *owner)
{
    list_each (struct peer, peer, &server->peers, link) {
        if (is_for(peer, owner) && peer_watches(peer))
            return true;
    }
    return false;
}

void notify_watch_begins(const struct mcp_call *call)
{
    if (call->server->on_watch)
        call->server->on_watch(call->owner, call->server->watch_data);
}

/*** resources/subscribe, resources/unsubscribe ***/

static const char *subscription_uri(struct mcp_call *call)
{
    const char *uri = json_str(call->params, "uri");
    if (uri && uri_valid(uri))
        return uri;
    call_reply_errorf(call, MCP_INVALID_PARAMS, "uri: must be an absolute URI");
    return NULL;
}

void method_subscribe(struct mcp_call *call)
{
    const char *uri = subscription_uri(call);
    if (!uri)
        return;
    json_t *subscribed = call->peer->subscribed;
    if (json_object_size(subscribed) >= call->server->limits.max_subscriptions) {
        call_reply_errorf(call, MCP_INVALID_PARAMS,
                          "uri: %zu resources are subscribed already, the limit",
                          json_object_size(subscribed));
        return;
    }
    json_put(subscribed, uri, json_true());
    notify_watch_begins(call);
    call_reply(call, json_object());
}

void method_unsubscribe(struct mcp_call *call)
{
    const char *uri = subscription_uri(call);
    if (!uri)
        return;
    (void)json_object_del(call->peer->subscribed, uri); /* not subscribed is fine */
    call_reply(call, json_object());
}

/*** subscriptions/listen ***/

/* Reads the wanted notifications and keeps what this server offers. False: malformed, answered. */
static bool listen_read(struct listen *listen, struct mcp_call *call)
{
    unsigned offered = call->server->capabilities;
    const json_t *wanted = json_object_get(call->params, "notifications");
    if (!json_is_object(wanted)) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "notifications: must be an object");
        return false;
    }
    for (int i = 0; i < CHANGE_LISTS; i++) {
        const json_t *flag = json_object_get(wanted, changes[i].filter);
        if (flag && !json_is_boolean(flag)) {
            call_reply_errorf(call, MCP_INVALID_PARAMS, "notifications.%s: must be a boolean",
                              changes[i].filter);
            return false;
        }
        listen->lists[i] = json_is_true(flag) && (offered & changes[i].capability);
    }
    const json_t *uris = json_object_get(wanted, "resourceSubscriptions");
    if (!uris)
        return true;
    if (!json_is_array(uris) || json_array_size(uris) > call->server->limits.max_subscriptions) {
        call_reply_errorf(
            call, MCP_INVALID_PARAMS,
            "notifications.resourceSubscriptions: must be an array of at most %zu URIs",
            call->server->limits.max_subscriptions);
        return false;
    }
    size_t i;
    json_t *uri;
    json_array_foreach(uris, i, uri)
    {
        if (!json_is_string(uri) || !uri_valid(json_string_value(uri))) {
            call_reply_errorf(call, MCP_INVALID_PARAMS,
                              "notifications.resourceSubscriptions[%zu]: must be an absolute URI",
                              i);
            return false;
        }
        if (offered & MCP_SUBSCRIBE)
            json_push(listen->uris, json_incref(uri));
    }
    return true;
}

static bool listen_acknowledge(struct listen *listen)
{
    json_t *honoured = json_object();
    for (int i = 0; i < CHANGE_LISTS; i++) {
        if (listen->lists[i])
            json_put(honoured, changes[i].filter, json_true());
    }
    if (json_array_size(listen->uris))
        json_put(honoured, "resourceSubscriptions", json_incref(listen->uris));
    bool any = json_object_size(honoured) > 0;
    json_t *params = json_object();
    json_put(params, "notifications", honoured);
    send_listen(listen, "notifications/subscriptions/acknowledged", params);
    return any;
}

static void listen_free(struct listen *listen)
{
    list_remove(&listen->link);
    if (listen->peer) {
        listen->peer->n_listens--;
        listen->peer->server->stats.streams_open--;
    }
    json_decref(listen->uris);
    free(listen);
}

static void listen_finish(struct listen *listen)
{
    struct mcp_call *call = listen->call;
    json_t *meta = json_object();
    json_put(meta, META_SUBSCRIPTION, json_incref(call->id));
    json_t *result = json_object();
    json_put(result, "_meta", meta);
    listen_free(listen);
    call_reply(call, result);
}

static void listen_cancelled(struct mcp_call *call, void *data)
{
    listen_free(data);
    call_reply(call, json_object()); /* dropped: it is cancelled */
}

void method_listen(struct mcp_call *call)
{
    struct peer *peer = call->peer;
    if (peer->n_listens >= call->server->limits.max_subscriptions) {
        call_reply_errorf(call, MCP_INTERNAL_ERROR, "%zu subscriptions are open already, the limit",
                          peer->n_listens);
        return;
    }
    struct listen *listen = xcalloc(1, sizeof(*listen));
    listen->call = call;
    listen->uris = json_array();
    list_init(&listen->link);
    if (!listen_read(listen, call)) {
        listen_free(listen);
        return;
    }
    listen->peer = peer;
    list_add_tail(&peer->listens, &listen->link);
    peer->n_listens++;
    peer->server->stats.streams_open++;
    mcp_call_defer(call, listen_cancelled, listen);
    if (!listen_acknowledge(listen))
        listen_finish(listen); /* nothing would ever come */
    else
        notify_watch_begins(call);
}

void notify_end_listens(struct peer *peer, bool with_notification)
{
    while (!list_empty(&peer->listens)) {
        struct listen *listen = list_first(struct listen, &peer->listens, link);
        struct outlet *outlet = outlet_ref(listen->call->outlet);
        auto_json *id = json_incref(listen->call->id);
        listen_finish(listen);
        if (with_notification) {
            json_t *params = json_object();
            json_put(params, "requestId", json_incref(id));
            auto_json *message = rpc_notification("notifications/cancelled", params);
            auto_free char *text = json_text(message);
            outlet->ops->send(outlet, text, strlen(text), OUTLET_NOTIFICATION, 200);
        }
        outlet_unref(outlet);
    }
}
