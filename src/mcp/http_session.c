#include "mcp/http_stream.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/*** Events kept for resumption ***/

static void event_drop(struct http_session *session, struct event *event)
{
    list_remove(&event->link);
    session->n_events--;
    session->event_bytes -= event->len;
    free(event);
}

void http_session_keep(struct http_session *session, uint64_t stream, uint64_t number,
                       const char *text, size_t len)
{
    const struct mcp_http_options *options = &session->http->options;
    if (len > options->event_buffer_bytes || options->event_buffer_count == 0)
        return;
    while (session->n_events >= options->event_buffer_count ||
           session->event_bytes + len > options->event_buffer_bytes)
        event_drop(session, list_first(struct event, &session->events, link));
    struct event *event = xmalloc(sizeof(*event) + len);
    event->stream = stream;
    event->number = number;
    event->len = len;
    memcpy(event->text, text, len);
    list_add_tail(&session->events, &event->link);
    session->n_events++;
    session->event_bytes += len;
}

/*** Life ***/

static bool http_session_is_idle(const struct http_session *session)
{
    return list_empty(&session->peer.calls) && !session->standing->req;
}

/* Ends the session that has been idle longest; false when all are busy. */
static bool make_room(struct mcp_http *http)
{
    list_each (struct http_session, session, &http->sessions, link) {
        if (http_session_is_idle(session)) {
            http_session_end(session);
            return true;
        }
    }
    return false;
}

static void http_session_touch(struct http_session *session)
{
    list_remove(&session->link);
    list_add_tail(&session->http->sessions, &session->link);
    session->last_used_ms = clock_ms();
}

struct http_session *http_session_new(struct mcp_http *http, const char *subject)
{
    if (http->n_sessions >= http->options.max_sessions && !make_room(http))
        return NULL;
    struct http_session *session = xcalloc(1, sizeof(*session));
    session->http = http;
    random_id(session->id);
    session->subject = subject ? xstrdup(subject) : NULL;
    peer_init(&session->peer, http->server, subject ? subject : session->id);
    list_init(&session->events);
    list_init(&session->link);
    session->standing = stream_new_standing(session);
    session->peer.standing = &session->standing->outlet;
    http->n_sessions++;
    http->server->stats.sessions_open++;
    http_session_touch(session);
    return session;
}

void http_session_end(struct http_session *session)
{
    struct mcp_http *http = session->http;
    list_remove(&session->link);
    http->n_sessions--;
    http->server->stats.sessions_open--;
    list_each (struct stream, stream, &http->streams, link) {
        if (stream->session == session)
            stream_detach(stream);
    }
    peer_done(&session->peer);
    while (!list_empty(&session->events))
        event_drop(session, list_first(struct event, &session->events, link));
    free(session->subject);
    free(session);
}

struct http_session *http_session_find(struct mcp_http *http, const char *id, const char *subject)
{
    list_each (struct http_session, session, &http->sessions, link) {
        bool own = subject ? str_eq(session->subject, subject) : !session->subject;
        if (own && secret_eq(session->id, id)) {
            http_session_touch(session);
            return session;
        }
    }
    return NULL;
}

void http_session_sweep(void *data)
{
    struct mcp_http *http = data;
    uint64_t now = clock_ms();
    list_each (struct http_session, session, &http->sessions, link) {
        if (now - session->last_used_ms < http->options.session_timeout_ms)
            return; /* the rest has been used later */
        if (http_session_is_idle(session))
            http_session_end(session);
    }
}
