/*
 * The list methods with their pages, and completion.
 */
#include "mcp/server.h"

#include "base/num.h"
#include "base/text.h"
#include "mcp/uri_template.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/*** Pages ***/

static const struct {
    const char *member; /* of the result */
    bool shared;        /* the same for every caller: caches may share it */
} list_rules[ENTRY_KINDS] = {
    [ENTRY_TOOL] = { "tools", true },
    [ENTRY_RESOURCE] = { "resources", false },
    [ENTRY_TEMPLATE] = { "resourceTemplates", true },
    [ENTRY_PROMPT] = { "prompts", true },
};

/* A cursor is the list's name and the index of the next entry, wrapped so that nobody counts. */
static char *cursor_make(enum entry_kind kind, size_t next)
{
    auto_free char *plain = xasprintf("%s:%zu", list_rules[kind].member, next);
    return base64_encode(plain, strlen(plain));
}

/* False: not a cursor that this list could have given. */
static bool cursor_read(const json_t *cursor, enum entry_kind kind, size_t count, size_t *ret)
{
    auto_buf plain = BUF_INIT(256);
    const char *member = list_rules[kind].member;
    int64_t next;
    if (!json_is_string(cursor) ||
        base64_decode(json_string_value(cursor), json_string_length(cursor), &plain) < 0)
        return false;
    const char *colon = strchr(buf_str(&plain), ':');
    if (!colon || strlen(member) != (size_t)(colon - plain.data) ||
        !str_has_prefix(plain.data, member) || strlen(plain.data) != plain.len)
        return false;
    if (num_parse_int(colon + 1, 1, (int64_t)count, &next) < 0)
        return false;
    *ret = (size_t)next;
    return true;
}

/* The result for the entries from `at` on; a new reference. */
static json_t *page_result(const struct mcp_call *call, enum entry_kind kind, const json_t *all,
                           size_t at)
{
    size_t count = json_array_size(all), page_size = call->server->limits.page_size;
    size_t end = count - at > page_size ? at + page_size : count;
    json_t *page = json_array();
    for (; at < end; at++)
        json_push(page, json_incref(json_array_get(all, at)));
    json_t *result = json_object();
    json_put(result, list_rules[kind].member, page);
    if (end < count) {
        auto_free char *next = cursor_make(kind, end);
        json_put_str(result, "nextCursor", next);
    }
    if (mcp_call_is_stateless(call)) {
        bool shared = list_rules[kind].shared;
        json_put(result, "ttlMs",
                 json_integer(shared ? (json_int_t)call->server->limits.list_ttl_ms : 0));
        json_put_str(result, "cacheScope", shared ? "public" : "private");
    }
    return result;
}

void method_list(struct mcp_call *call, enum entry_kind kind)
{
    struct mcp_server *server = call->server;
    const json_t *all = registry_list(&server->registry, kind, call->revision);
    const json_t *cursor = json_object_get(call->params, "cursor");
    char **whole = &server->registry.tables[kind].whole[call->revision];
    size_t at = 0;
    if (cursor && !cursor_read(cursor, kind, json_array_size(all), &at)) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "cursor: not one that this list gave");
        return;
    }
    if (!cursor && *whole) {
        call_reply_text(call, *whole);
        return;
    }
    json_t *result = page_result(call, kind, all, at);
    if (!json_object_get(result, "nextCursor") && !cursor) {
        call_complete_result(call, result);
        char *text = json_text(result);
        if (strlen(text) < server->limits.max_answer / 2) /* so that it fits with any id */
            *whole = text;
        else
            free(text);
    }
    call_reply(call, result);
}

/*** Resources that come and go ***/

/* A cursor of these is the list's name and the last URI that was given. */
static const char FOLLOWING[] = "resources>";

/* The entry's bytes in the answer, at the most: a name may need escaping. */
static size_t listing_bytes(const struct mcp_listing *listing)
{
    size_t text = strlen(listing->name) + (listing->title ? strlen(listing->title) : 0);
    return strlen(listing->uri) + 6 * text + 256;
}

static json_t *listing_json(const struct mcp_listing *listing)
{
    json_t *json = json_object();
    json_put_str(json, "uri", listing->uri);
    json_put(json, "name", json_text_value(listing->name, strlen(listing->name)));
    if (listing->title)
        json_put_str(json, "title", listing->title);
    if (listing->mime_type)
        json_put_str(json, "mimeType", listing->mime_type);
    if (listing->size >= 0)
        json_put(json, "size", json_integer(listing->size));
    return json;
}

bool mcp_call_add_listing(struct mcp_call *call, const struct mcp_listing *listing)
{
    assert(call->kind == CALL_LIST);
    const struct mcp_limits *limits = &call->server->limits;
    size_t bytes = listing_bytes(listing);
    call->list_full = call->list_full || json_array_size(call->blocks) >= limits->page_size ||
                      (call->last_listed && call->listed_bytes + bytes > limits->max_answer / 2);
    if (call->list_full)
        return false;
    call->listed_bytes += bytes;
    auto_json *json = listing_json(listing);
    json_push(call->blocks, revision_fit_resource(call->revision, json));
    free(call->last_listed);
    call->last_listed = xstrdup(listing->uri);
    return true;
}

void finish_list(struct mcp_call *call)
{
    json_t *result = json_object();
    json_put(result, "resources", steal_ptr(&call->blocks));
    if (call->list_full) {
        auto_free char *plain =
            xasprintf("%s%s", FOLLOWING, call->last_listed ? call->last_listed : "");
        auto_free char *next = base64_encode(plain, strlen(plain));
        json_put_str(result, "nextCursor", next);
    }
    if (mcp_call_is_stateless(call)) {
        json_put(result, "ttlMs", json_integer(0));
        json_put_str(result, "cacheScope", "private");
    }
    call_reply(call, result);
}

/* The URI to begin behind, "" for the first; NULL: not a cursor that this list could have given. */
static char *following_read(const json_t *cursor)
{
    auto_buf plain = BUF_INIT(sizeof(FOLLOWING) + URI_MAX);
    if (!json_is_string(cursor) ||
        base64_decode(json_string_value(cursor), json_string_length(cursor), &plain) < 0 ||
        !str_has_prefix(buf_str(&plain), FOLLOWING) || strlen(plain.data) != plain.len)
        return NULL;
    const char *uri = plain.data + strlen(FOLLOWING);
    return !*uri || uri_valid(uri) ? xstrdup(uri) : NULL;
}

void method_list_resources(struct mcp_call *call)
{
    struct mcp_server *server = call->server;
    const json_t *cursor = json_object_get(call->params, "cursor");
    if (!mcp_call_is_stateless(call)) {
        call->peer->listed = true;
        notify_watch_begins(call);
    }
    if (!server->list_resources) {
        method_list(call, ENTRY_RESOURCE);
        return;
    }
    auto_free char *after = cursor ? following_read(cursor) : NULL;
    if (cursor && !after) {
        call_reply_errorf(call, MCP_INVALID_PARAMS, "cursor: not one that this list gave");
        return;
    }
    call->kind = CALL_LIST;
    call->blocks =
        cursor
            ? json_array()
            : json_copy((json_t *)registry_list(&server->registry, ENTRY_RESOURCE, call->revision));
    server->list_resources(call, after && *after ? after : NULL, server->list_data);
}

/*** Completion ***/

typedef void complete_fn(struct mcp_call *call, const char *name, const char *value,
                         const json_t *known, void *data);

static bool prompt_has_arg(const struct mcp_prompt *prompt, const char *name)
{
    for (const struct mcp_prompt_arg *arg = prompt->args; arg && arg->name; arg++) {
        if (str_eq(arg->name, name))
            return true;
    }
    return false;
}

/* The entry that `ref` names and the function that completes its arguments. False: no such
 * reference or no such argument, and the call has been answered. */
static bool find_completer(struct mcp_call *call, const json_t *ref, const char *argument,
                           complete_fn **ret)
{
    const struct registry *registry = &call->server->registry;
    const char *type = json_str(ref, "type");
    const char *name = json_str(ref, "name"), *uri = json_str(ref, "uri");
    bool known = false;
    if (str_eq(type, "ref/prompt") && name) {
        call->entry = registry_find(registry, ENTRY_PROMPT, name);
        known = call->entry && prompt_has_arg(call->entry->prompt, argument);
        *ret = call->entry ? call->entry->prompt->complete : NULL;
    } else if (str_eq(type, "ref/resource") && uri) {
        call->entry = registry_find(registry, ENTRY_TEMPLATE, uri);
        known = call->entry && uri_template_has_var(call->entry->templ->uri_template, argument);
        *ret = call->entry ? call->entry->templ->complete : NULL;
    }
    if (!known)
        call_reply_errorf(call, MCP_INVALID_PARAMS,
                          "ref: must name a prompt (ref/prompt, name) or a resource template "
                          "(ref/resource, uri) of this server that has the argument");
    return known;
}

void method_complete(struct mcp_call *call)
{
    const json_t *argument = json_object_get(call->params, "argument");
    const char *name = json_str(argument, "name"), *value = json_str(argument, "value");
    complete_fn *complete = NULL;
    if (!name || !value) {
        call_reply_errorf(call, MCP_INVALID_PARAMS,
                          "argument: must be an object with the strings name and value");
        return;
    }
    if (!find_completer(call, json_object_get(call->params, "ref"), name, &complete))
        return;
    call->kind = CALL_COMPLETION;
    if (!complete) {
        mcp_call_finish(call);
        return;
    }
    const json_t *context = json_object_get(call->params, "context");
    complete(call, name, value, json_object_get(context, "arguments"), call->entry->data);
}
