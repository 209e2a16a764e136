/*
 * Content blocks, and the results that the four kinds of handler-answered requests are made of.
 */
#include "mcp/server.h"

#include "base/text.h"

#include <assert.h>
#include <string.h>

enum { COMPLETIONS_MAX = 100 }; /* the protocol's own bound on one answer */

/*** Blocks ***/

static json_t *block_new(const char *type)
{
    json_t *block = json_object();
    json_put_str(block, "type", type);
    return block;
}

json_t *mcp_text(const char *text, size_t len)
{
    json_t *block = block_new("text");
    json_put(block, "text", json_text_value(text, len));
    return block;
}

json_t *mcp_textf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    auto_free char *text = xvasprintf(fmt, args);
    va_end(args);
    return mcp_text(text, strlen(text));
}

static void put_base64(json_t *object, const char *key, const void *data, size_t len)
{
    auto_free char *text = base64_encode(data, len);
    json_put_str(object, key, text);
}

static json_t *media_block(const char *type, const char *mime_type, const void *data, size_t len)
{
    json_t *block = block_new(type);
    put_base64(block, "data", data, len);
    json_put_str(block, "mimeType", mime_type);
    return block;
}

json_t *mcp_image(const char *mime_type, const void *data, size_t len)
{
    return media_block("image", mime_type, data, len);
}

json_t *mcp_audio(const char *mime_type, const void *data, size_t len)
{
    return media_block("audio", mime_type, data, len);
}

static json_t *contents_new(const char *uri, const char *mime_type)
{
    json_t *contents = json_object();
    json_put_str(contents, "uri", uri);
    if (mime_type)
        json_put_str(contents, "mimeType", mime_type);
    return contents;
}

static json_t *text_contents(const char *uri, const char *mime_type, const char *text, size_t len)
{
    json_t *contents = contents_new(uri, mime_type);
    json_put(contents, "text", json_text_value(text, len));
    return contents;
}

static json_t *blob_contents(const char *uri, const char *mime_type, const void *data, size_t len)
{
    json_t *contents = contents_new(uri, mime_type);
    put_base64(contents, "blob", data, len);
    return contents;
}

static json_t *embedded(json_t *contents)
{
    json_t *block = block_new("resource");
    json_put(block, "resource", contents);
    return block;
}

json_t *mcp_embedded_text(const char *uri, const char *mime_type, const char *text, size_t len)
{
    return embedded(text_contents(uri, mime_type, text, len));
}

json_t *mcp_embedded_blob(const char *uri, const char *mime_type, const void *data, size_t len)
{
    return embedded(blob_contents(uri, mime_type, data, len));
}

json_t *mcp_link(const char *uri, const char *name, const char *mime_type, int64_t size)
{
    json_t *block = block_new("resource_link");
    json_put_str(block, "uri", uri);
    json_put(block, "name", json_text_value(name, strlen(name)));
    if (mime_type)
        json_put_str(block, "mimeType", mime_type);
    if (size > 0)
        json_put(block, "size", json_integer(size));
    return block;
}

/*** Adding ***/

static void push_block(struct mcp_call *call, json_t *block)
{
    if (!call->blocks)
        call->blocks = json_array();
    json_push(call->blocks, block);
}

void mcp_call_add(struct mcp_call *call, json_t *block)
{
    assert(call->kind == CALL_TOOL);
    auto_json *taken = block;
    push_block(call, revision_fit_content(call->revision, taken));
}

void mcp_call_structured(struct mcp_call *call, const void *value)
{
    assert(call->kind == CALL_TOOL && call->entry->tool->output);
    json_decref(call->structured);
    call->structured = shape_encode(call->entry->tool->output, value);
}

void mcp_call_add_message(struct mcp_call *call, const char *role, json_t *block)
{
    assert(call->kind == CALL_PROMPT);
    auto_json *taken = block;
    json_t *message = json_object();
    json_put_str(message, "role", role);
    json_put(message, "content", revision_fit_content(call->revision, taken));
    push_block(call, message);
}

void mcp_call_add_text(struct mcp_call *call, const char *uri, const char *mime_type,
                       const char *text, size_t len)
{
    assert(call->kind == CALL_RESOURCE);
    push_block(call, text_contents(uri, mime_type, text, len));
}

void mcp_call_add_blob(struct mcp_call *call, const char *uri, const char *mime_type,
                       const void *data, size_t len)
{
    assert(call->kind == CALL_RESOURCE);
    push_block(call, blob_contents(uri, mime_type, data, len));
}

void mcp_call_add_completion(struct mcp_call *call, const char *value)
{
    assert(call->kind == CALL_COMPLETION);
    if (call->completions++ < COMPLETIONS_MAX)
        push_block(call, json_text_value(value, strlen(value)));
}

/*** Ending ***/

static json_t *take_blocks(struct mcp_call *call)
{
    return call->blocks ? steal_ptr(&call->blocks) : json_array();
}

static void finish_tool(struct mcp_call *call, bool failed)
{
    if (call->entry->tool->output && !call->structured && !failed) {
        call_reply_errorf(call, MCP_INTERNAL_ERROR, "%s gave no structured result",
                          call->entry->tool->name);
        return;
    }
    if (call->structured && !call->blocks) { /* clients that read only text must see it too */
        auto_free char *text = json_text(call->structured);
        push_block(call, mcp_text(text, strlen(text)));
    }
    json_t *result = json_object();
    json_put(result, "content", take_blocks(call));
    if (call->structured && revision_has(call->revision, HAS_STRUCTURED))
        json_put(result, "structuredContent", steal_ptr(&call->structured));
    if (failed)
        json_put(result, "isError", json_true());
    call_reply(call, result);
}

static void finish_resource(struct mcp_call *call)
{
    if (!call->blocks) { /* the protocol has no empty resource */
        mcp_call_not_found(call, json_str(call->params, "uri"));
        return;
    }
    json_t *result = json_object();
    json_put(result, "contents", take_blocks(call));
    if (mcp_call_is_stateless(call)) {
        json_put(result, "ttlMs", json_integer(0));
        json_put_str(result, "cacheScope", "private");
    }
    call_reply(call, result);
}

static void finish_prompt(struct mcp_call *call)
{
    json_t *result = json_object();
    json_put_str(result, "description", call->entry->prompt->description);
    json_put(result, "messages", take_blocks(call));
    call_reply(call, result);
}

static void finish_completion(struct mcp_call *call)
{
    json_t *completion = json_object();
    json_put(completion, "values", take_blocks(call));
    json_put(completion, "total", json_integer((json_int_t)call->completions));
    json_put(completion, "hasMore", json_boolean(call->completions > COMPLETIONS_MAX));
    json_t *result = json_object();
    json_put(result, "completion", completion);
    call_reply(call, result);
}

void mcp_call_finish(struct mcp_call *call)
{
    switch (call->kind) {
    case CALL_TOOL:
        finish_tool(call, false);
        return;
    case CALL_RESOURCE:
        finish_resource(call);
        return;
    case CALL_PROMPT:
        finish_prompt(call);
        return;
    case CALL_COMPLETION:
        finish_completion(call);
        return;
    case CALL_LIST:
        finish_list(call);
        return;
    case CALL_PLAIN:
        call_reply(call, json_object());
        return;
    }
}

void mcp_call_say(struct mcp_call *call, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    auto_free char *text = xvasprintf(fmt, args);
    va_end(args);
    mcp_call_add(call, mcp_text(text, strlen(text)));
    mcp_call_finish(call);
}

void mcp_call_fail(struct mcp_call *call, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    auto_free char *text = xvasprintf(fmt, args);
    va_end(args);
    if (call->kind != CALL_TOOL) {
        call_reply_errorf(call, MCP_INTERNAL_ERROR, "%s", text);
        return;
    }
    push_block(call, mcp_text(text, strlen(text)));
    finish_tool(call, true);
}

void mcp_call_error(struct mcp_call *call, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    auto_free char *text = xvasprintf(fmt, args);
    va_end(args);
    call_reply_errorf(call, code, "%s", text);
}

/* {"a":{"b":{}}} for "a.b". */
static json_t *capability_object(const char *path)
{
    const char *dot = strchr(path, '.');
    auto_free char *name = dot ? xstrndup(path, (size_t)(dot - path)) : xstrdup(path);
    json_t *object = json_object();
    json_put(object, name, dot ? capability_object(dot + 1) : json_object());
    return object;
}

void mcp_call_missing_capability(struct mcp_call *call, const char *capability)
{
    if (!mcp_call_is_stateless(call)) {
        mcp_call_fail(call, "this needs a client that offers %s", capability);
        return;
    }
    struct rpc_error error = { 0 };
    rpc_error_set(&error, MCP_MISSING_CAPABILITY, "the client must declare %s for this request",
                  capability);
    error.data = json_object();
    json_put(error.data, "requiredCapabilities", capability_object(capability));
    call_reply_error(call, &error, 400);
}

void mcp_call_not_found(struct mcp_call *call, const char *uri)
{
    mcp_call_not_found_as(call, uri, "resource not found");
}

void mcp_call_not_found_as(struct mcp_call *call, const char *uri, const char *words)
{
    struct rpc_error error = { 0 };
    rpc_error_set(&error, mcp_call_is_stateless(call) ? MCP_INVALID_PARAMS : MCP_RESOURCE_NOT_FOUND,
                  "%s", words);
    error.data = json_object();
    json_put_str(error.data, "uri", uri);
    call_reply_error(call, &error, 200);
}
