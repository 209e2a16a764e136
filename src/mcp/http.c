/*
 * Streamable HTTP: which era a request belongs to, and what must hold before it is dispatched.
 *
 * The steps in on_body() are those of the protocol's classification and their order matters: the
 * first that fails decides the answer. The body is believed, headers are checked against it.
 */
#include "mcp/http_stream.h"

#include "mcp/header_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct mcp_http_options MCP_HTTP_OPTIONS_DEFAULT = {
    .max_sessions = 1000,
    .session_timeout_ms = 30 * 60 * 1000,
    .event_buffer_bytes = 1 << 20,
    .event_buffer_count = 1000,
    .keepalive_ms = 15000,
    .retry_ms = 1000,
    .high_water = 256 << 10,
};

enum { SWEEPS_PER_TIMEOUT = 8 };

/*** Plain answers ***/

static void refuse(struct http_request *req, int status, json_t *id, const struct rpc_error *error)
{
    static const struct http_field fields[] = { { "Content-Type", "application/json" }, { 0 } };
    auto_json *reply = rpc_error_reply(id, error);
    auto_free char *body = json_text(reply);
    http_respond(req, status, fields, body, strlen(body));
}

static void refusef(struct http_request *req, int status, json_t *id, int code, const char *text)
{
    struct rpc_error error = { 0 };
    rpc_error_set(&error, code, "%s", text);
    refuse(req, status, id, &error);
}

static void accepted(struct http_request *req)
{
    http_respond(req, 202, NULL, NULL, 0);
}

static void method_not_allowed(struct http_request *req, const char *allow)
{
    const struct http_field fields[] = { { "Content-Type", "application/json" },
                                         { "Allow", allow },
                                         { 0 } };
    struct rpc_error error = { 0 };
    rpc_error_set(&error, MCP_INVALID_REQUEST, "method not allowed; use %s", allow);
    auto_json *reply = rpc_error_reply(NULL, &error);
    auto_free char *body = json_text(reply);
    http_respond(req, 405, fields, body, strlen(body));
}

/*** Headers ***/

static struct mirrored lookup_header(const char *name, const void *data)
{
    const struct http_request *req = data;
    return (struct mirrored){ .value = http_request_header(req, name),
                              .count = http_request_header_count(req, name) };
}

static bool says_stateless(const struct http_request *req)
{
    const char *version = http_request_header(req, "MCP-Protocol-Version");
    return version && header_rules_is_stateless(version);
}

/*** One POST ***/

/* What is known of a POST while its body is read and after. */
struct post {
    struct mcp_http *http;
    char *subject; /* or NULL */
    bool json_ok, events_ok;
};

static void post_free(struct post *post)
{
    free(post->subject);
    free(post);
}

static void on_gone_before_body(void *data)
{
    post_free(data);
}

static struct stream *post_stream(const struct post *post, struct http_session *session,
                                  struct http_request *req)
{
    struct stream *stream = stream_new(post->http, session, req);
    stream->accepts_json = post->json_ok;
    stream->accepts_events = post->events_ok;
    return stream;
}

static void stream_let_go(struct stream *stream)
{
    stream_wait(stream);
    outlet_unref(&stream->outlet);
}

/*** Handshake era ***/

static void serve_handshake(const struct post *post, struct http_request *req,
                            const struct rpc_message *message)
{
    if (says_stateless(req)) {
        refusef(req, 400, message->id, MCP_HEADER_MISMATCH,
                "MCP-Protocol-Version names a revision that has no initialize");
        return;
    }
    if (message->kind != RPC_REQUEST) {
        refusef(req, 400, NULL, MCP_INVALID_REQUEST, "initialize must be a request");
        return;
    }
    struct http_session *session = http_session_new(post->http, post->subject);
    if (!session) {
        refusef(req, 503, message->id, MCP_INTERNAL_ERROR,
                "too many sessions (see http_max_sessions); try again later");
        return;
    }
    struct stream *stream = post_stream(post, session, req);
    stream->opens_session = true;
    struct call_request request = { .peer = &session->peer,
                                    .outlet = &stream->outlet,
                                    .message = message };
    dispatch_request(&request); /* answers at once */
    stream_let_go(stream);
    if (!session->peer.initialized)
        http_session_end(session);
}

/* The session of a request, or NULL when it has been refused. */
static struct http_session *require_session(struct mcp_http *http, struct http_request *req,
                                            const char *subject, json_t *message_id)
{
    const char *id = http_request_header(req, "Mcp-Session-Id");
    const char *version = http_request_header(req, "MCP-Protocol-Version");
    enum revision revision;
    if (!id || http_request_header_count(req, "Mcp-Session-Id") != 1) {
        refusef(req, 400, message_id, MCP_INVALID_REQUEST,
                "Mcp-Session-Id: required; begin with initialize");
        return NULL;
    }
    struct http_session *session = http_session_find(http, id, subject);
    if (!session) {
        refusef(req, 404, message_id, MCP_INVALID_REQUEST,
                "no such session; begin again with initialize");
        return NULL;
    }
    if (version && (!revision_parse(version, &revision) || revision_has(revision, IS_STATELESS))) {
        refusef(req, 400, message_id, MCP_INVALID_REQUEST,
                "MCP-Protocol-Version: not a revision that this server speaks");
        return NULL;
    }
    return session;
}

static void serve_in_session(const struct post *post, struct http_request *req,
                             const struct rpc_message *message)
{
    struct http_session *session = require_session(post->http, req, post->subject, message->id);
    if (!session)
        return;
    if (message->kind == RPC_REQUEST) {
        struct stream *stream = post_stream(post, session, req);
        struct call_request request = { .peer = &session->peer,
                                        .outlet = &stream->outlet,
                                        .message = message,
                                        .revision = session->peer.revision };
        dispatch_request(&request);
        stream_let_go(stream);
        return;
    }
    accepted(req);
    if (message->kind == RPC_RESPONSE)
        peer_take_response(&session->peer, message);
    else
        dispatch_notification(&session->peer, message);
}

static bool batch_has_claim(const json_t *array)
{
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item)
    {
        const json_t *meta = json_object_get(json_object_get(item, "params"), "_meta");
        if (json_object_get(meta, META_VERSION))
            return true;
    }
    return false;
}

static void serve_batch(const struct post *post, struct http_request *req, json_t *array)
{
    if (json_array_size(array) == 0 || batch_has_claim(array) || says_stateless(req)) {
        refusef(req, 400, NULL, MCP_INVALID_REQUEST,
                "a batch must not be empty, and exists only in revision 2025-03-26");
        return;
    }
    struct http_session *session = require_session(post->http, req, post->subject, NULL);
    if (!session)
        return;
    struct stream *stream = post_stream(post, session, req);
    if (!dispatch_batch(&session->peer, &stream->outlet, array))
        stream->outlet.ops->abandon(&stream->outlet); /* nothing to answer: 202 */
    stream_let_go(stream);
}

/*** Stateless era ***/

/* Steps 7 to 10 and 12: envelope, agreement, version, required headers, mirrored arguments. */
static int check_claim(const struct mcp_http *http, struct http_request *req,
                       const struct rpc_message *message, struct rpc_envelope *envelope,
                       struct rpc_error *error)
{
    int r = rpc_envelope(message, envelope, error);
    if (r == 0)
        r = header_rules_agree(message, envelope->version, lookup_header, req, error);
    if (r == 0)
        r = rpc_check_version(envelope->version, error);
    if (r < 0 || message->kind != RPC_REQUEST)
        return r;
    r = header_rules_required(message, lookup_header, req, error);
    if (r < 0 || !str_eq(message->method, "tools/call"))
        return r;
    const char *name = json_str(message->params, "name");
    const struct entry *tool =
        name ? registry_find(&http->server->registry, ENTRY_TOOL, name) : NULL;
    if (!tool)
        return 0; /* the dispatcher says so */
    return header_rules_params(json_object_get(tool->listing, "inputSchema"),
                               json_object_get(message->params, "arguments"), lookup_header, req,
                               error);
}

static void serve_stateless(const struct post *post, struct http_request *req,
                            const struct rpc_message *message)
{
    struct rpc_error error = { 0 };
    struct rpc_envelope envelope;
    if (check_claim(post->http, req, message, &envelope, &error) < 0) {
        refuse(req, 400, message->id, &error);
        rpc_error_done(&error);
        return;
    }
    if (message->kind != RPC_REQUEST) {
        /* Ids are the clients' choice: a cancellation by another exchange proves nothing. */
        accepted(req);
        return;
    }
    if (str_eq(message->method, "subscriptions/listen") && !post->events_ok) {
        refusef(req, 406, message->id, MCP_INVALID_REQUEST,
                "Accept: must allow text/event-stream for this method");
        return;
    }
    struct stream *stream = post_stream(post, NULL, req);
    stream->own_peer = xcalloc(1, sizeof(*stream->own_peer));
    peer_init(stream->own_peer, post->http->server,
              post->subject ? post->subject : MCP_OWNER_LOCAL);
    struct call_request request = { .peer = stream->own_peer,
                                    .outlet = &stream->outlet,
                                    .message = message,
                                    .envelope = &envelope };
    (void)revision_parse(envelope.version, &request.revision); /* checked above */
    dispatch_request(&request);
    stream_let_go(stream);
}

/*** Classification ***/

static void serve_message(const struct post *post, struct http_request *req, const json_t *root)
{
    struct rpc_error error = { 0 };
    struct rpc_message message;
    if (rpc_parse(root, &message, &error) < 0) {
        refuse(req, 400, message.kind == RPC_REQUEST ? message.id : NULL, &error);
        rpc_error_done(&error);
    } else if (message.kind != RPC_RESPONSE && dispatch_is_handshake(&message)) {
        serve_handshake(post, req, &message);
    } else if (message.kind != RPC_RESPONSE && rpc_has_claim(&message)) {
        serve_stateless(post, req, &message);
    } else if (!says_stateless(req)) {
        serve_in_session(post, req, &message);
    } else if (message.kind == RPC_REQUEST) {
        refusef(req, 400, message.id, MCP_INVALID_PARAMS,
                "params._meta: " META_VERSION " and " META_CAPABILITIES " are required");
    } else if (message.kind == RPC_NOTIFICATION) {
        accepted(req);
    } else {
        refusef(req, 400, NULL, MCP_INVALID_REQUEST, "this revision has no responses from clients");
    }
}

static void on_body(struct http_request *req, const char *body, size_t len, void *data)
{
    struct post *post = data;
    struct err err = { 0 };
    json_t *root = NULL;
    http_request_on_gone(req, NULL, NULL);
    if (json_read(body, len, &post->http->server->limits.json, &root, &err) < 0)
        refusef(req, 400, NULL, MCP_PARSE_ERROR, err.msg);
    else if (json_is_array(root))
        serve_batch(post, req, root);
    else
        serve_message(post, req, root);
    json_decref(root);
    memory_trim(len);
    post_free(post);
}

static void serve_post(struct mcp_http *http, struct http_request *req, const char *subject)
{
    const char *type = http_request_header(req, "Content-Type");
    const char *accept = http_request_header(req, "Accept");
    bool json_ok = header_rules_accepts(accept, "application/json");
    bool events_ok = header_rules_accepts(accept, "text/event-stream");
    if (!type || !header_rules_is_json(type)) {
        refusef(req, 415, NULL, MCP_INVALID_REQUEST, "Content-Type: must be application/json");
        return;
    }
    if (!json_ok && !events_ok) {
        refusef(req, 406, NULL, MCP_INVALID_REQUEST,
                "Accept: must allow application/json and text/event-stream");
        return;
    }
    struct post *post = xcalloc(1, sizeof(*post));
    *post = (struct post){ .http = http,
                           .subject = subject ? xstrdup(subject) : NULL,
                           .json_ok = json_ok,
                           .events_ok = events_ok };
    http_request_on_gone(req, on_gone_before_body, post);
    http_request_read_body(req, /* max= */ 0, on_body, post);
}

/*** GET and DELETE: sessions only ***/

/* "<stream>-<number>" */
static bool parse_event_id(const char *text, uint64_t *ret_stream, uint64_t *ret_number)
{
    char *end;
    if (strspn(text, "0123456789-") != strlen(text) || text[0] == '-' || strlen(text) > 40)
        return false;
    errno = 0;
    *ret_stream = strtoull(text, &end, 10);
    if (*end != '-' || end[1] == '-' || end[1] == '\0')
        return false;
    *ret_number = strtoull(end + 1, &end, 10);
    return *end == '\0' && errno == 0;
}

/* The stream, if it has more to say. One that has sent no event yet cannot be known by its id. */
static struct stream *find_stream(struct http_session *session, uint64_t id)
{
    list_each (struct stream, stream, &session->http->streams, link) {
        bool open = stream->state == STREAM_EVENTS || stream->standing;
        if (open && stream->session == session && stream->id == id)
            return stream;
    }
    return NULL;
}

static void serve_resume(struct http_session *session, struct http_request *req, const char *last)
{
    uint64_t id, number;
    if (!parse_event_id(last, &id, &number) || id >= session->next_stream) {
        refusef(req, 400, NULL, MCP_INVALID_REQUEST, "Last-Event-ID: not one of this session");
        return;
    }
    struct stream *stream = find_stream(session, id);
    if (stream)
        stream_resume(stream, req, number);
    else
        stream_replay(session, req, id, number);
}

static void serve_get(struct mcp_http *http, struct http_request *req, const char *subject)
{
    if (!header_rules_accepts(http_request_header(req, "Accept"), "text/event-stream")) {
        refusef(req, 406, NULL, MCP_INVALID_REQUEST, "Accept: must allow text/event-stream");
        return;
    }
    struct http_session *session = require_session(http, req, subject, NULL);
    if (!session)
        return;
    const char *last = http_request_header(req, "Last-Event-ID");
    if (last)
        serve_resume(session, req, last);
    else if (session->standing->req)
        refusef(req, 409, NULL, MCP_INVALID_REQUEST, "this session has a GET stream already");
    else
        stream_resume(session->standing, req, session->standing->next_number - 1);
}

static void serve_delete(struct mcp_http *http, struct http_request *req, const char *subject)
{
    struct http_session *session = require_session(http, req, subject, NULL);
    if (!session)
        return;
    http_session_end(session);
    http_respond(req, 204, NULL, NULL, 0);
}

/*** The endpoint ***/

struct mcp_http *mcp_http_start(struct mcp_server *server, const struct mcp_http_options *options)
{
    struct mcp_http *http = xcalloc(1, sizeof(*http));
    http->server = server;
    http->options = *options;
    list_init(&http->sessions);
    list_init(&http->streams);
    http->sweep = timer_new(server->loop, http_session_sweep, http);
    timer_repeat(http->sweep, options->session_timeout_ms / SWEEPS_PER_TIMEOUT + 1);
    return http;
}

bool mcp_owner_comes_back(const char *owner)
{
    return str_eq(owner, MCP_OWNER_TOKEN) || str_eq(owner, MCP_OWNER_LOCAL);
}

void mcp_http_handle(struct mcp_http *http, struct http_request *req, const char *subject)
{
    const char *method = http_request_method(req);
    if (str_eq(method, "POST"))
        serve_post(http, req, subject);
    else if (says_stateless(req))
        method_not_allowed(req, "POST");
    else if (str_eq(method, "GET"))
        serve_get(http, req, subject);
    else if (str_eq(method, "DELETE"))
        serve_delete(http, req, subject);
    else
        method_not_allowed(req, "GET, POST, DELETE");
}

void mcp_http_drain(struct mcp_http *http)
{
    list_each (struct stream, stream, &http->streams, link) {
        outlet_ref(&stream->outlet);
        if (stream->own_peer)
            notify_end_listens(stream->own_peer, false);
        else if (stream->standing && stream->req)
            stream->outlet.ops->hang_up(&stream->outlet, http->options.retry_ms);
        outlet_unref(&stream->outlet);
    }
}

void mcp_http_free(struct mcp_http *http)
{
    if (!http)
        return;
    while (!list_empty(&http->sessions))
        http_session_end(list_first(struct http_session, &http->sessions, link));
    while (!list_empty(&http->streams)) {
        struct stream *stream = list_first(struct stream, &http->streams, link);
        outlet_ref(&stream->outlet);
        stream_detach(stream);
        list_remove(&stream->link); /* a call may hold it a little longer */
        if (stream->own_peer) {
            peer_done(stream->own_peer);
            freep(&stream->own_peer);
            stream->own_peer = NULL;
        }
        outlet_unref(&stream->outlet);
    }
    timer_free(http->sweep);
    free(http);
}
