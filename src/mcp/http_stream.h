/*
 * http_stream: what the files of the HTTP transport share. Private to http*.c.
 *
 * A stream is the outlet of one POST, or the standing outlet of a session (GET). It decides between
 * a JSON answer and an event stream as late as possible: JSON, unless something has to be said
 * before the answer or the answer takes so long that the connection needs a sign of life.
 *
 *     WAITING ──(answer)──────────────────────────▶ ENDED     one JSON body
 *        └──(notification, keep-alive, hang-up)──▶ EVENTS ──(answer)──▶ ENDED
 *
 * In a session of the handshake era events have ids ("<stream>-<number>") and are kept for a while,
 * so a client whose connection broke can come back for them; the stream then has no request
 * attached but goes on. In the stateless era a broken connection is the end.
 */
#ifndef BELLJAR_MCP_HTTP_STREAM_H
#define BELLJAR_MCP_HTTP_STREAM_H

#include "http/http.h"
#include "mcp/server.h"

struct mcp_http {
    struct mcp_server *server;
    struct mcp_http_options options;
    struct list sessions; /* struct http_session, the longest unused first */
    size_t n_sessions;
    struct list streams; /* every stream that lives */
    struct timer *sweep; /* ends idle sessions */
};

/*** Sessions (http_session.c) ***/

/* A message kept for resumption. */
struct event {
    struct list link; /* session->events, oldest first */
    uint64_t stream, number;
    size_t len;
    char text[];
};

struct http_session {
    struct mcp_http *http;
    struct list link; /* http->sessions */
    char id[32];
    char *subject; /* or NULL */
    struct peer peer;
    struct list events;
    size_t n_events, event_bytes;
    uint64_t next_stream;
    struct stream *standing; /* borrowed: peer.standing holds it */
    uint64_t last_used_ms;
};

/* NULL when there are too many and none is idle. */
struct http_session *http_session_new(struct mcp_http *http, const char *subject);
/* Ends its streams, cancels its calls, forgets it. */
void http_session_end(struct http_session *session);
/* The session with this id, if it belongs to `subject`. Counts as use. */
struct http_session *http_session_find(struct mcp_http *http, const char *id, const char *subject);
/* Keeps an event within the bounds of the buffer; the oldest go first. */
void http_session_keep(struct http_session *session, uint64_t stream, uint64_t number,
                       const char *text, size_t len);
void http_session_sweep(void *http);

/*** Streams (http_stream.c) ***/

enum stream_state { STREAM_WAITING, STREAM_EVENTS, STREAM_ENDED };

struct stream {
    struct outlet outlet;
    struct mcp_http *http;
    struct list link;             /* http->streams */
    struct http_session *session; /* NULL in the stateless era, or when the session has ended */
    uint64_t id, next_number;
    struct http_request *req; /* NULL: no connection at the moment */
    enum stream_state state;
    enum revision revision;
    bool accepts_json, accepts_events;
    bool standing;      /* carries no answer and never ends by itself */
    bool opens_session; /* the answer tells the session id */
    struct timer *keepalive;
    struct peer *own_peer; /* stateless era: the client for this one exchange */
};

/* For one POST; session NULL in the stateless era. Watches req for the client going away. The
 * caller holds the first reference. */
struct stream *stream_new(struct mcp_http *http, struct http_session *session,
                          struct http_request *req);
/* The standing stream of a session, without a connection yet. */
struct stream *stream_new_standing(struct http_session *session);

/* Nothing has been said yet and the caller returns to the loop: keep the connection alive. */
void stream_wait(struct stream *stream);

/* Gives a stream without connection a new one, after the events that the client has missed. */
void stream_resume(struct stream *stream, struct http_request *req, uint64_t after);
/* Only the kept events of a stream that is over. */
void stream_replay(struct http_session *session, struct http_request *req, uint64_t stream,
                   uint64_t after);

/* Ends the connection, if any, and lets go of the session. */
void stream_detach(struct stream *stream);

#endif
