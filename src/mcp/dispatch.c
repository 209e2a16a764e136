/*
 * Which method, in which revision, for which client. The table of methods is the inventory of the
 * protocol; what each does is in lists.c, notify.c, or here when it hands over to a handler.
 */
#include "mcp/server.h"

#include "mcp/header_rules.h"
#include "mcp/uri_template.h"

#include <assert.h>
#include <string.h>

enum { HANDSHAKE = 1, STATELESS = 2, BOTH = 3 };

/*** The opening ***/

static void put_instructions(const struct mcp_server *server, json_t *result)
{
    if (server->info.instructions)
        json_put_str(result, "instructions", server->info.instructions);
}

static void method_initialize(struct mcp_call *call)
{
    struct peer *peer = call->peer;
    const char *requested = json_str(call->params, "protocolVersion");
    json_t *capabilities = json_object_get(call->params, "capabilities");
    if (!requested) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "protocolVersion: must be a string");
        return;
    }
    if (capabilities && !json_is_object(capabilities)) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "capabilities: must be an object");
        return;
    }
    peer->initialized = true;
    peer->revision = revision_negotiate(requested);
    json_decref(peer->client_capabilities);
    peer->client_capabilities = json_incref(capabilities);

    json_t *result = json_object();
    json_put_str(result, "protocolVersion", revision_name(peer->revision));
    json_put(result, "capabilities", server_capabilities(call->server, peer->revision));
    json_put(result, "serverInfo",
             revision_fit_implementation(peer->revision, call->server->implementation));
    put_instructions(call->server, result);
    call_reply(call, result);
}

static void method_discover(struct mcp_call *call)
{
    json_t *versions = json_array();
    for (int i = REVISION_FIRST_STATELESS; i < REVISION_COUNT; i++)
        json_push(versions, json_string(revision_name((enum revision)i)));
    json_t *result = json_object();
    json_put(result, "supportedVersions", versions);
    json_put(result, "capabilities", server_capabilities(call->server, call->revision));
    put_instructions(call->server, result);
    json_put(result, "ttlMs", json_integer((json_int_t)call->server->limits.list_ttl_ms));
    json_put_str(result, "cacheScope", "public");
    call_reply(call, result);
}

static void method_ping(struct mcp_call *call)
{
    call_reply(call, json_object());
}

static void method_set_level(struct mcp_call *call)
{
    const char *name = json_str(call->params, "level");
    int level = name ? rpc_log_level(name) : -1;
    if (level < 0) {
        call_reply_errorf(call, MCP_INVALID_PARAMS,
                          "level: must be one of debug, info, notice, warning, error, critical, "
                          "alert, emergency");
        return;
    }
    call->peer->log_level = level;
    call_reply(call, json_object());
}

/*** Lists ***/

static void method_list_tools(struct mcp_call *call)
{
    method_list(call, ENTRY_TOOL);
}

static void method_list_templates(struct mcp_call *call)
{
    method_list(call, ENTRY_TEMPLATE);
}

static void method_list_prompts(struct mcp_call *call)
{
    method_list(call, ENTRY_PROMPT);
}

/*** Requests that a handler answers ***/

/* False: refused, and answered. */
static bool take_state(struct mcp_call *call)
{
    struct rpc_error error = { 0 };
    if (!mcp_call_is_stateless(call) || call_open_state(call, &error) == 0)
        return true;
    call_reply_error(call, &error, 200);
    return false;
}

/* params.arguments, an object or absent. False: refused, and answered. */
static bool take_arguments(struct mcp_call *call)
{
    const json_t *arguments = json_object_get(call->params, "arguments");
    if (arguments && !json_is_object(arguments)) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "arguments: must be an object");
        return false;
    }
    if (arguments)
        call->arguments = arguments;
    return true;
}

static void method_call_tool(struct mcp_call *call)
{
    const char *name = json_str(call->params, "name");
    const struct entry *entry =
        name ? registry_find(&call->server->registry, ENTRY_TOOL, name) : NULL;
    if (!entry) {
        if (name)
            call_reply_errorf(call, MCP_INVALID_PARAMS, "Unknown tool: %.64s", name);
        else
            call_reply_errorf(call, MCP_INVALID_PARAMS, "name: must be a string");
        return;
    }
    call->kind = CALL_TOOL;
    call->entry = entry;
    if (!take_arguments(call) || !take_state(call))
        return;

    const struct mcp_tool *tool = entry->tool;
    if (!tool->input_schema) {
        struct err err = { 0 };
        size_t size = tool->input ? tool->input->size : 0;
        void *args = size ? xcalloc(1, size) : NULL;
        if (shape_decode(tool->input, call->arguments, args, &err) < 0) {
            freep(&args);
            /* A tool result, not a protocol error: the model that wrote the arguments reads it. */
            if (tool->refuse)
                tool->refuse(call, tool->name, err.msg);
            else
                mcp_call_fail(call, "%s: %s", tool->name, err.msg);
            return;
        }
        call->args = args;
    }
    tool->call(call, call->args, entry->data);
}

static bool read_from_template(struct mcp_call *call, const char *uri)
{
    const struct entry_table *templates = &call->server->registry.tables[ENTRY_TEMPLATE];
    for (size_t i = 0; i < templates->count; i++) {
        const struct entry *entry = &templates->entries[i];
        struct uri_match match;
        if (uri_template_match(entry->templ->uri_template, uri, &match) < 0)
            continue;
        call->entry = entry;
        entry->templ->read(call, uri, (const char *const *)match.values, entry->data);
        uri_match_done(&match);
        return true;
    }
    return false;
}

static void method_read_resource(struct mcp_call *call)
{
    const char *uri = json_str(call->params, "uri");
    if (!uri || !uri_valid(uri)) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "uri: must be an absolute URI");
        return;
    }
    call->kind = CALL_RESOURCE;
    if (!take_state(call))
        return;
    const struct entry *entry = registry_find(&call->server->registry, ENTRY_RESOURCE, uri);
    if (entry) {
        call->entry = entry;
        entry->resource->read(call, uri, entry->data);
    } else if (!read_from_template(call, uri)) {
        mcp_call_not_found(call, uri);
    }
}

/* Required ones there, all strings, none unknown. False: refused, and answered. */
static bool check_prompt_args(struct mcp_call *call, const struct mcp_prompt *prompt)
{
    static const struct mcp_prompt_arg none = { 0 };
    const struct mcp_prompt_arg *args = prompt->args ? prompt->args : &none;
    for (const struct mcp_prompt_arg *arg = args; arg->name; arg++) {
        if (arg->required && !json_object_get(call->arguments, arg->name)) {
            call_reply_errorf(call, MCP_INVALID_PARAMS, "arguments.%s: required", arg->name);
            return false;
        }
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)call->arguments, key, value)
    {
        const struct mcp_prompt_arg *arg = args;
        while (arg->name && !str_eq(arg->name, key))
            arg++;
        if (!arg->name || !json_is_string(value)) {
            call_reply_errorf(call, MCP_INVALID_PARAMS, "arguments.%.64s: %s", key,
                              arg->name ? "must be a string" : "no such argument");
            return false;
        }
    }
    return true;
}

static void method_get_prompt(struct mcp_call *call)
{
    const char *name = json_str(call->params, "name");
    const struct entry *entry =
        name ? registry_find(&call->server->registry, ENTRY_PROMPT, name) : NULL;
    if (!entry) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "name: no such prompt");
        return;
    }
    call->kind = CALL_PROMPT;
    call->entry = entry;
    if (!take_arguments(call) || !check_prompt_args(call, entry->prompt) || !take_state(call))
        return;
    entry->prompt->get(call, call->arguments, entry->data);
}

/*** The inventory ***/

static bool offers_tools(const struct mcp_server *server)
{
    return server->registry.tables[ENTRY_TOOL].count > 0;
}

static bool offers_resources(const struct mcp_server *server)
{
    return (server->capabilities & MCP_RESOURCES) || server->list_resources ||
           server->registry.tables[ENTRY_RESOURCE].count > 0 ||
           server->registry.tables[ENTRY_TEMPLATE].count > 0;
}

static bool offers_prompts(const struct mcp_server *server)
{
    return (server->capabilities & MCP_PROMPTS) || server->registry.tables[ENTRY_PROMPT].count > 0;
}

static bool offers_subscribe(const struct mcp_server *server)
{
    return (server->capabilities & MCP_SUBSCRIBE) && offers_resources(server);
}

static bool offers_listen(const struct mcp_server *server)
{
    return server->capabilities &
           (MCP_SUBSCRIBE | MCP_TOOLS_CHANGE | MCP_PROMPTS_CHANGE | MCP_RESOURCES_CHANGE);
}

static bool offers_completion(const struct mcp_server *server)
{
    return registry_completes(&server->registry);
}

static bool offers_logging(const struct mcp_server *server)
{
    return server->capabilities & MCP_LOGGING;
}

static const struct method {
    const char *name;
    unsigned eras;
    bool (*offered)(const struct mcp_server *server); /* NULL: always */
    void (*run)(struct mcp_call *call);
} methods[] = {
    { "initialize", HANDSHAKE, NULL, method_initialize },
    { "ping", HANDSHAKE, NULL, method_ping },
    { "server/discover", STATELESS, NULL, method_discover },
    { "tools/list", BOTH, offers_tools, method_list_tools },
    { "tools/call", BOTH, offers_tools, method_call_tool },
    { "resources/list", BOTH, offers_resources, method_list_resources },
    { "resources/templates/list", BOTH, offers_resources, method_list_templates },
    { "resources/read", BOTH, offers_resources, method_read_resource },
    { "resources/subscribe", HANDSHAKE, offers_subscribe, method_subscribe },
    { "resources/unsubscribe", HANDSHAKE, offers_subscribe, method_unsubscribe },
    { "prompts/list", BOTH, offers_prompts, method_list_prompts },
    { "prompts/get", BOTH, offers_prompts, method_get_prompt },
    { "completion/complete", BOTH, offers_completion, method_complete },
    { "logging/setLevel", HANDSHAKE, offers_logging, method_set_level },
    { "subscriptions/listen", STATELESS, offers_listen, method_listen },
};

static const struct method *method_find(const struct mcp_server *server, const char *name,
                                        unsigned era)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        const struct method *method = &methods[i];
        if (strcmp(method->name, name) != 0)
            continue;
        bool known = (method->eras & era) && (!method->offered || method->offered(server));
        return known ? method : NULL;
    }
    return NULL;
}

/*** Messages ***/

void dispatch_refuse(struct outlet *outlet, json_t *id, const struct rpc_error *error, int status)
{
    auto_json *reply = rpc_error_reply(id, error);
    auto_free char *text = json_text(reply);
    outlet->ops->send(outlet, text, strlen(text), OUTLET_RESPONSE, status);
}

static void refuse(const struct call_request *request, int code, int status, const char *text)
{
    struct rpc_error error = { 0 };
    rpc_error_set(&error, code, "%s", text);
    request->peer->server->stats.errors_total++;
    dispatch_refuse(request->outlet, request->message->id, &error, status);
}

void dispatch_request(const struct call_request *request)
{
    struct peer *peer = request->peer;
    bool stateless = revision_has(request->revision, IS_STATELESS);
    const struct method *method =
        method_find(peer->server, request->message->method, stateless ? STATELESS : HANDSHAKE);
    if (!method) {
        refuse(request, MCP_METHOD_NOT_FOUND, stateless ? 404 : 200, "no such method");
        return;
    }
    if (peer_find_call(peer, request->message->id)) {
        refuse(request, MCP_INVALID_REQUEST, stateless ? 400 : 200,
               "id: a request with this id is still being answered");
        return;
    }
    if (peer->n_calls >= peer->server->limits.max_requests) {
        refuse(request, MCP_INTERNAL_ERROR, 200,
               "too many requests are waiting for an answer; send fewer at a time");
        return;
    }
    call_run(call_new(request), method->run);
}

void dispatch_notification(struct peer *peer, const struct rpc_message *message)
{
    if (strcmp(message->method, "notifications/cancelled") != 0)
        return; /* the others need nothing done, unknown ones are to be ignored */
    const json_t *id = json_object_get(message->params, "requestId");
    struct mcp_call *call = id ? peer_find_call(peer, id) : NULL;
    if (call)
        call_cancel(call);
}

/* A request of the stateless era, its envelope still unchecked. */
static void dispatch_claim(const struct call_request *request)
{
    struct rpc_error error = { 0 };
    struct rpc_envelope envelope;
    if (rpc_envelope(request->message, &envelope, &error) < 0 ||
        rpc_check_version(envelope.version, &error) < 0) {
        dispatch_refuse(request->outlet, request->message->id, &error, 400);
        rpc_error_done(&error);
        return;
    }
    struct call_request claimed = *request;
    claimed.envelope = &envelope;
    (void)revision_parse(envelope.version, &claimed.revision); /* checked just above */
    dispatch_request(&claimed);
}

bool dispatch_is_handshake(const struct rpc_message *message)
{
    struct rpc_error error = { 0 };
    struct rpc_envelope envelope;
    if (!str_eq(message->method, "initialize"))
        return false;
    if (!rpc_has_claim(message))
        return true;
    bool valid = rpc_envelope(message, &envelope, &error) == 0 &&
                 header_rules_is_stateless(envelope.version);
    rpc_error_done(&error);
    return !valid;
}

static void dispatch_single(struct peer *peer, struct outlet *outlet,
                            const struct rpc_message *message)
{
    struct call_request request = {
        .peer = peer, .outlet = outlet, .message = message, .revision = peer->revision
    };
    if (message->kind == RPC_RESPONSE)
        peer_take_response(peer, message);
    else if (message->kind == RPC_NOTIFICATION)
        dispatch_notification(peer, message);
    else if (rpc_has_claim(message) && !dispatch_is_handshake(message))
        dispatch_claim(&request);
    else if (peer->initialized || dispatch_is_handshake(message) || str_eq(message->method, "ping"))
        dispatch_request(&request);
    else
        refuse(&request, MCP_INVALID_PARAMS, 400,
               "params._meta: " META_VERSION " and " META_CAPABILITIES
               " are required (or begin with initialize)");
}

static void dispatch_value(struct peer *peer, struct outlet *outlet, json_t *value)
{
    struct rpc_error error = { 0 };
    struct rpc_message message;
    int r = rpc_parse(value, &message, &error);
    if (r == 0)
        dispatch_single(peer, outlet, &message);
    else if (message.kind == RPC_RESPONSE)
        peer_take_response(peer, &(struct rpc_message){ .id = message.id }); /* as a refusal */
    else if (message.kind == RPC_REQUEST)
        dispatch_refuse(outlet, message.id, &error, 400);
    rpc_error_done(&error);
}

void dispatch_line(struct peer *peer, struct outlet *outlet, json_t *root)
{
    if (json_is_array(root))
        (void)dispatch_batch(peer, outlet, root);
    else
        dispatch_value(peer, outlet, root);
}

/*** Batches (2025-03-26) ***/

/* NULL when the array may be served as a batch, else why not. */
static const char *batch_fault(const struct peer *peer, const json_t *array)
{
    if (!peer->initialized || !revision_has(peer->revision, HAS_BATCHES))
        return "batches exist only in revision 2025-03-26, after initialize";
    if (json_array_size(array) == 0)
        return "a batch must not be empty";
    if (json_array_size(array) > peer->server->limits.max_batch)
        return "the batch holds more messages than max_batch";
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item)
    {
        struct rpc_error ignored = { 0 };
        struct rpc_message message;
        int r = rpc_parse(item, &message, &ignored);
        rpc_error_done(&ignored);
        if (r == 0 && message.kind != RPC_RESPONSE &&
            (str_eq(message.method, "initialize") || rpc_has_claim(&message)))
            return "a batch must not hold initialize or messages of a later revision";
    }
    return NULL;
}

/* Messages that will be answered: requests, and what is nothing at all. */
static size_t batch_answers(const json_t *array)
{
    size_t i, answers = 0;
    json_t *item;
    json_array_foreach(array, i, item)
    {
        struct rpc_error ignored = { 0 };
        struct rpc_message message;
        (void)rpc_parse(item, &message, &ignored); /* the kind is set in any case */
        if (message.kind == RPC_REQUEST)
            answers++;
        rpc_error_done(&ignored);
    }
    return answers;
}

bool dispatch_batch(struct peer *peer, struct outlet *outlet, json_t *array)
{
    const char *fault = batch_fault(peer, array);
    if (fault) {
        struct rpc_error error = { 0 };
        rpc_error_set(&error, MCP_INVALID_REQUEST, "%s", fault);
        dispatch_refuse(outlet, NULL, &error, 400);
        return true;
    }
    size_t answers = batch_answers(array);
    struct outlet *gather = answers ? outlet_new_batch(outlet, answers) : outlet_ref(outlet);
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item) dispatch_value(peer, gather, item);
    outlet_unref(gather);
    return answers > 0;
}
