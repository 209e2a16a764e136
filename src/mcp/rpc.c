#include "mcp/rpc.h"
#include "base/text.h"
#include "mcp/mcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*** errors ***/

void rpc_error_set(struct rpc_error *error, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(error->text, sizeof(error->text), fmt, args);
    va_end(args);
    error->code = code;
    error->data = NULL;
    /* A cut may have gone through the middle of a character. */
    if (len >= (int)sizeof(error->text))
        error->text[utf8_span(error->text, strlen(error->text))] = '\0';
}

void rpc_error_done(struct rpc_error *error)
{
    json_decref(error->data);
    error->data = NULL;
}

static int bad_request(struct rpc_error *error, const char *what)
{
    rpc_error_set(error, MCP_INVALID_REQUEST, "Invalid request: %s", what);
    return -EBADMSG;
}

/*** taking messages apart ***/

/* A string with a NUL in it is no name of anything here. */
static const char *plain_string(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

static bool is_id(const json_t *value)
{
    return json_is_string(value) || json_is_integer(value);
}

static int parse_call(struct rpc_message *ret, struct rpc_error *error)
{
    const json_t *root = ret->root;
    const json_t *id = json_object_get(root, "id");
    const json_t *params = json_object_get(root, "params");

    ret->kind = id ? RPC_REQUEST : RPC_NOTIFICATION;
    ret->method = plain_string(json_object_get(root, "method"));
    if (!ret->method)
        return bad_request(error, "\"method\" must be a string");
    if (id && !ret->id)
        return bad_request(error, "\"id\" must be a string or an integer");
    if (json_object_get(root, "result") || json_object_get(root, "error"))
        return bad_request(error, "\"method\" excludes \"result\" and \"error\"");
    if (params && !json_is_object(params))
        return bad_request(error, "\"params\" must be an object");
    ret->params = params;
    return 0;
}

static int parse_response(struct rpc_message *ret, struct rpc_error *error)
{
    const json_t *id = json_object_get(ret->root, "id");
    const json_t *result = json_object_get(ret->root, "result");
    const json_t *failure = json_object_get(ret->root, "error");

    ret->kind = RPC_RESPONSE;
    if (result && failure)
        return bad_request(error, "\"result\" and \"error\" exclude each other");
    if (result && !json_is_object(result))
        return bad_request(error, "\"result\" must be an object");
    if (failure && !(json_is_integer(json_object_get(failure, "code")) &&
                     json_is_string(json_object_get(failure, "message"))))
        return bad_request(error, "\"error\" must have a \"code\" and a \"message\"");
    /* Only an error may answer a request whose id its receiver could not read. */
    bool nameless = failure && (!id || json_is_null(id));
    if (!ret->id && !nameless)
        return bad_request(error, "\"id\" must be a string or an integer");
    ret->result = result;
    ret->error = failure;
    return 0;
}

int rpc_parse(const json_t *root, struct rpc_message *ret, struct rpc_error *error)
{
    *ret = (struct rpc_message){ .root = root };
    if (!json_is_object(root))
        return bad_request(error, "a message is a JSON object");

    json_t *id = json_object_get(root, "id");
    ret->id = is_id(id) ? id : NULL;
    bool is_call = json_object_get(root, "method");
    bool is_response =
        !is_call && (json_object_get(root, "result") || json_object_get(root, "error"));
    int r = 0;
    if (is_call)
        r = parse_call(ret, error);
    else if (is_response)
        r = parse_response(ret, error);
    if (r < 0)
        return r;
    if (!str_eq(json_str(root, "jsonrpc"), "2.0"))
        return bad_request(error, "\"jsonrpc\" must be \"2.0\"");
    if (!is_call && !is_response)
        return bad_request(error, "there is no \"method\", \"result\" or \"error\"");
    return 0;
}

/*** making messages ***/

static json_t *new_message(void)
{
    json_t *message = json_object();
    json_put_str(message, "jsonrpc", "2.0");
    return message;
}

json_t *rpc_result(json_t *id, json_t *result)
{
    json_t *message = new_message();
    json_put(message, "id", json_incref(id));
    json_put(message, "result", result);
    return message;
}

json_t *rpc_error_reply(json_t *id, const struct rpc_error *error)
{
    json_t *failure = json_object();
    json_put(failure, "code", json_integer(error->code));
    json_put_str(failure, "message", error->text);
    if (error->data)
        json_put(failure, "data", json_incref(error->data));

    json_t *message = new_message();
    if (id)
        json_put(message, "id", json_incref(id));
    json_put(message, "error", failure);
    return message;
}

json_t *rpc_notification(const char *method, json_t *params)
{
    json_t *message = new_message();
    json_put_str(message, "method", method);
    if (params)
        json_put(message, "params", params);
    return message;
}

json_t *rpc_request(json_t *id, const char *method, json_t *params)
{
    json_t *message = new_message();
    json_put(message, "id", id);
    json_put_str(message, "method", method);
    if (params)
        json_put(message, "params", params);
    return message;
}

/*** the envelope of the stateless era ***/

static const json_t *get_meta(const struct rpc_message *message)
{
    return json_object_get(message->params, "_meta");
}

bool rpc_has_claim(const struct rpc_message *message)
{
    return json_object_get(get_meta(message), META_VERSION);
}

static int bad_envelope(struct rpc_error *error, const char *key, const char *what)
{
    rpc_error_set(error, MCP_INVALID_PARAMS, "Invalid params: _meta[\"%s\"] %s", key, what);
    return -EBADMSG;
}

/* All required keys that are missing, in one sentence: the client mends them in one go. */
static int check_complete(const json_t *meta, struct rpc_error *error)
{
    static const char *const required[] = { META_VERSION, META_CAPABILITIES };
    auto_buf missing = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < ARRAY_SIZE(required); i++)
        if (!json_object_get(meta, required[i]))
            (void)buf_printf(&missing, "%s\"%s\"", missing.len ? " and " : "", required[i]);
    if (!missing.len)
        return 0;
    rpc_error_set(error, MCP_INVALID_PARAMS, "Invalid params: _meta lacks %s", buf_str(&missing));
    return -EBADMSG;
}

int rpc_envelope(const struct rpc_message *message, struct rpc_envelope *ret,
                 struct rpc_error *error)
{
    const json_t *meta = get_meta(message);
    if (meta && !json_is_object(meta)) {
        rpc_error_set(error, MCP_INVALID_PARAMS, "Invalid params: _meta must be an object");
        return -EBADMSG;
    }
    int r = check_complete(meta, error);
    if (r < 0)
        return r;

    const char *version = json_str(meta, META_VERSION);
    if (!version)
        return bad_envelope(error, META_VERSION, "must be a string");
    const json_t *capabilities = json_object_get(meta, META_CAPABILITIES);
    if (!json_is_object(capabilities))
        return bad_envelope(error, META_CAPABILITIES, "must be an object");
    const json_t *info = json_object_get(meta, META_CLIENT_INFO);
    if (info && !(json_str(info, "name") && json_str(info, "version")))
        return bad_envelope(error, META_CLIENT_INFO,
                            "must be an object with the strings \"name\" and \"version\"");
    const char *level = json_str(meta, META_LOG_LEVEL);
    if (json_object_get(meta, META_LOG_LEVEL) && rpc_log_level(level) < 0)
        return bad_envelope(error, META_LOG_LEVEL,
                            "must be one of debug, info, notice, warning, error, critical, alert, "
                            "emergency");

    *ret = (struct rpc_envelope){
        .version = version, .capabilities = capabilities, .client_info = info, .log_level = level
    };
    return 0;
}

int rpc_check_version(const char *version, struct rpc_error *error)
{
    enum revision revision;
    if (revision_parse(version, &revision) && revision_has(revision, IS_STATELESS))
        return 0;

    rpc_error_set(error, MCP_UNSUPPORTED_VERSION, "Unsupported protocol version: %.60s", version);
    json_t *supported = json_array();
    for (enum revision i = REVISION_COUNT; i-- > REVISION_FIRST_STATELESS;)
        json_push(supported, json_string(revision_name(i)));
    error->data = json_object();
    json_put(error->data, "supported", supported);
    json_put_str(error->data, "requested", version);
    return -EPROTONOSUPPORT;
}

/*** small parts of params ***/

json_t *rpc_progress_token(const struct rpc_message *message)
{
    json_t *token = json_object_get(get_meta(message), "progressToken");
    return is_id(token) ? token : NULL;
}

int rpc_log_level(const char *name)
{
    static const char *const levels[] = {
        "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
    };
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        if (str_eq(levels[i], name))
            return (int)i;
    return -1;
}
