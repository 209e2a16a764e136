#include "mcp/http_stream.h"

#include <stdlib.h>
#include <string.h>

/*** Writing events ***/

static void start_events(struct http_request *req, const char *session_id)
{
    const struct http_field fields[] = {
        { "Content-Type", "text/event-stream" },
        { "Cache-Control", "no-cache, no-transform" },
        { "X-Accel-Buffering", "no" },
        { session_id ? "Mcp-Session-Id" : NULL, session_id },
        { 0 },
    };
    http_stream_start(req, 200, fields);
}

/* `number` 0 stands for "no id". */
static void write_event(struct http_request *req, uint64_t stream, uint64_t number,
                        const char *text, size_t len)
{
    auto_buf event = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&event, "event: message\n");
    if (number)
        (void)buf_printf(&event, "id: %llu-%llu\n", (unsigned long long)stream,
                         (unsigned long long)number);
    (void)buf_add_str(&event, "data: ");
    (void)buf_add(&event, text, len);
    (void)buf_add_str(&event, "\n\n");
    (void)http_stream_write(req, event.data, event.len); /* a lost client is reported by on_gone */
}

static void write_text(struct http_request *req, const char *text)
{
    (void)http_stream_write(req, text, strlen(text));
}

/* An id before anything else, so that even an early break can be resumed: that of the last event
 * the client has, or it would be given those once more. Older clients would try to parse the empty
 * data. */
static void write_priming(struct stream *stream, uint64_t after)
{
    if (!stream->session || !revision_has(stream->revision, HAS_PRIMING))
        return;
    auto_free char *event =
        xasprintf("id: %llu-%llu\nretry: %llu\ndata: \n\n", (unsigned long long)stream->id,
                  (unsigned long long)after, (unsigned long long)stream->http->options.retry_ms);
    write_text(stream->req, event);
}

static void on_keepalive(void *data);

static void stream_arm(struct stream *stream)
{
    if (!stream->keepalive)
        stream->keepalive = timer_new(stream->http->server->loop, on_keepalive, stream);
    timer_repeat(stream->keepalive, stream->http->options.keepalive_ms);
}

static void stream_begin(struct stream *stream, uint64_t after)
{
    stream->state = STREAM_EVENTS;
    if (!stream->req)
        return;
    start_events(stream->req,
                 stream->opens_session && stream->session ? stream->session->id : NULL);
    write_priming(stream, after);
    stream_arm(stream);
}

static void on_keepalive(void *data)
{
    struct stream *stream = data;
    if (!stream->req)
        timer_stop(stream->keepalive);
    else if (stream->state == STREAM_EVENTS)
        write_text(stream->req, ": keepalive\n\n");
    else if (stream->state == STREAM_WAITING && stream->accepts_events)
        stream_begin(stream, /* after= */ 0);
}

void stream_wait(struct stream *stream)
{
    if (stream->state == STREAM_WAITING && stream->req)
        stream_arm(stream);
}

/*** The outlet ***/

static void stream_release_request(struct stream *stream)
{
    struct http_request *req = steal_ptr(&stream->req);
    if (req)
        http_stream_end(req);
}

static void stream_answer_json(struct stream *stream, const char *text, size_t len, int status)
{
    struct http_request *req = steal_ptr(&stream->req);
    const char *session_id = stream->opens_session && stream->session ? stream->session->id : NULL;
    const struct http_field fields[] = { { "Content-Type", "application/json" },
                                         { session_id ? "Mcp-Session-Id" : NULL, session_id },
                                         { 0 } };
    if (req)
        http_respond(req, status, fields, text, len);
}

static void stream_push(struct stream *stream, const char *text, size_t len)
{
    uint64_t number = stream->session ? stream->next_number++ : 0;
    if (number)
        http_session_keep(stream->session, stream->id, number, text, len);
    if (stream->req)
        write_event(stream->req, stream->id, number, text, len);
}

static void stream_send(struct outlet *outlet, const char *text, size_t len, enum outlet_kind kind,
                        int status)
{
    struct stream *stream = container_of(outlet, struct stream, outlet);
    bool answer = kind == OUTLET_RESPONSE;
    if (stream->state == STREAM_ENDED)
        return;
    if (stream->state == STREAM_WAITING) {
        if (answer && (stream->accepts_json || status != 200)) {
            stream->state = STREAM_ENDED;
            stream_answer_json(stream, text, len, status);
            return;
        }
        /* Without a connection nobody knows this stream's id; without leave for events they are
         * dropped, and the answer will come as JSON. */
        if (!stream->standing && (!stream->req || !stream->accepts_events))
            return;
        stream_begin(stream, /* after= */ 0);
    }
    if (kind == OUTLET_HINT && stream->req &&
        http_stream_backlog(stream->req) > stream->http->options.high_water)
        return;
    stream_push(stream, text, len);
    if (answer) {
        stream->state = STREAM_ENDED;
        stream_release_request(stream);
    }
}

static void stream_abandon(struct outlet *outlet)
{
    struct stream *stream = container_of(outlet, struct stream, outlet);
    bool waiting = stream->state == STREAM_WAITING;
    if (stream->state == STREAM_ENDED)
        return;
    stream->state = STREAM_ENDED;
    if (!waiting) {
        stream_release_request(stream);
        return;
    }
    struct http_request *req = steal_ptr(&stream->req);
    if (req)
        http_respond(req, 202, NULL, NULL, 0);
}

static bool stream_can_push(const struct outlet *outlet)
{
    const struct stream *stream = container_of(outlet, struct stream, outlet);
    return stream->accepts_events && stream->state != STREAM_ENDED;
}

static void stream_hang_up(struct outlet *outlet, uint64_t retry_ms)
{
    struct stream *stream = container_of(outlet, struct stream, outlet);
    if (!stream->session || !stream->req || !stream->accepts_events ||
        stream->state == STREAM_ENDED)
        return;
    if (stream->state == STREAM_WAITING)
        stream_begin(stream, /* after= */ 0);
    if (revision_has(stream->revision, HAS_PRIMING)) {
        auto_free char *retry = xasprintf("retry: %llu\n\n", (unsigned long long)retry_ms);
        write_text(stream->req, retry);
    }
    stream_release_request(stream);
}

static void stream_free(struct outlet *outlet)
{
    struct stream *stream = container_of(outlet, struct stream, outlet);
    if (stream->own_peer) {
        peer_done(stream->own_peer);
        free(stream->own_peer);
    }
    stream_detach(stream);
    list_remove(&stream->link);
    timer_free(stream->keepalive);
    free(stream);
}

static const struct outlet_ops stream_ops = {
    .send = stream_send,
    .abandon = stream_abandon,
    .can_push = stream_can_push,
    .hang_up = stream_hang_up,
    .free = stream_free,
};

/*** Connections come and go ***/

static void on_gone(void *data)
{
    struct stream *stream = data;
    stream->req = NULL;
    if (!stream->own_peer)
        return; /* a session: the client may come back */
    outlet_ref(&stream->outlet);
    list_each (struct mcp_call, call, &stream->own_peer->calls, link)
        call_cancel(call);
    outlet_unref(&stream->outlet);
}

static void stream_attach(struct stream *stream, struct http_request *req)
{
    stream->req = req;
    http_request_on_gone(req, on_gone, stream);
}

static struct stream *stream_make(struct mcp_http *http, struct http_session *session)
{
    struct stream *stream = xcalloc(1, sizeof(*stream));
    stream->outlet = (struct outlet){ .ops = &stream_ops, .refs = 1 };
    stream->http = http;
    stream->session = session;
    stream->next_number = 1;
    stream->revision = REVISION_FIRST_STATELESS;
    if (session) {
        stream->id = session->next_stream++;
        stream->revision = session->peer.revision;
    }
    list_add_tail(&http->streams, &stream->link);
    return stream;
}

struct stream *stream_new(struct mcp_http *http, struct http_session *session,
                          struct http_request *req)
{
    struct stream *stream = stream_make(http, session);
    stream_attach(stream, req);
    return stream;
}

struct stream *stream_new_standing(struct http_session *session)
{
    struct stream *stream = stream_make(session->http, session);
    stream->standing = true;
    stream->accepts_events = true;
    return stream;
}

static void write_kept(struct http_session *session, struct http_request *req, uint64_t id,
                       uint64_t after)
{
    list_each (struct event, event, &session->events, link) {
        if (event->stream == id && event->number > after)
            write_event(req, id, event->number, event->text, event->len);
    }
}

void stream_resume(struct stream *stream, struct http_request *req, uint64_t after)
{
    stream_release_request(stream); /* the client knows best that it is dead */
    stream->state = STREAM_WAITING;
    stream->revision = stream->session->peer.revision;
    stream_attach(stream, req);
    stream_begin(stream, after);
    write_kept(stream->session, req, stream->id, after);
}

void stream_replay(struct http_session *session, struct http_request *req, uint64_t stream,
                   uint64_t after)
{
    start_events(req, NULL);
    write_kept(session, req, stream, after);
    http_stream_end(req);
}

void stream_detach(struct stream *stream)
{
    struct http_request *req = steal_ptr(&stream->req);
    bool waiting = stream->state == STREAM_WAITING;
    static const char text[] = "the server ended this exchange\n";
    stream->session = NULL;
    stream->state = STREAM_ENDED;
    if (!req)
        return;
    if (waiting)
        http_respond(req, 503, NULL, text, sizeof(text) - 1);
    else
        http_stream_end(req);
}
