/*
 * conn: one connection from accept to close: which phase it is in, what each phase reads, how long
 * it may take, and the one request it is busy with.
 *
 *   HANDSHAKE → IDLE → HEAD → ANSWER ⇄ BODY → (SKIP →) FLUSH → IDLE, or → LINGER → CLOSED
 *
 *   ANSWER  the handler has the request. We go on reading, into a bounded buffer, only to see the
 *           client leave: end of file then means that nobody waits for the answer.
 *   BODY    the handler waits for the body.
 *   SKIP    the answer is complete, but the body it did not ask for is still arriving.
 *   FLUSH   the answer is complete but not all taken by the kernel. The next request waits, so
 *           that a client that does not read cannot make us pile up answers.
 *   LINGER  the last answer is out and our side is shut. To close a socket with unread bytes makes
 *           the kernel send a reset, which may destroy the answer before the client reads it; so
 *           we read and drop for a while.
 *   BROKEN  writing failed inside a call of the handler. It is told from the loop, soon.
 *
 * Callbacks of the handler run from conn_input() or from the loop, never from inside a function
 * the handler calls; what such a call leaves to do is put off with conn_defer().
 */
#ifndef BELLJAR_HTTP_CONN_H
#define BELLJAR_HTTP_CONN_H

#include "http/body.h"
#include "http/head.h"
#include "http/http.h"
#include "http/peers.h"
#include "http/wire.h"

#include <sys/queue.h>

enum phase {
    PHASE_HANDSHAKE,
    PHASE_IDLE,
    PHASE_HEAD,
    PHASE_ANSWER,
    PHASE_BODY,
    PHASE_SKIP,
    PHASE_FLUSH,
    PHASE_LINGER,
    PHASE_BROKEN,
    PHASE_CLOSED,
};

/* Memory of our own that a client can make grow beyond what limits and handlers allow. */
enum {
    READ_AHEAD_MAX = 16 * 1024,           /* of later requests, while one is being answered */
    BODY_FREE = 16 * 1024,                /* a body up to this does not count against max_bodies */
    SKIP_MAX = 64 * 1024,                 /* of a body nobody asked for, to save the connection */
    LINGER_BYTES_MAX = 128 * 1024 * 1024, /* dropped after the last answer: one large upload */
    LINGER_MS = 3000,
};

TAILQ_HEAD(conn_queue, conn);
LIST_HEAD(conn_list, conn);

/* What the connections of a server share. */
struct conns {
    uv_loop_t *loop;
    struct http_limits limits;
    struct tls_identity *identity; /* NULL: no TLS */
    http_handler_fn *handler;
    void *handler_data;
    void (*on_closed)(struct conns *conns); /* after one connection is gone for good */
    struct http_stats stats;
    size_t body_bytes; /* held for all requests: http_request.charged */
    bool draining;
    struct peers *peers;
    struct conn_list all;
    struct conn_queue deferred;
    uv_idle_t idle; /* active while `deferred` is not empty */
    struct wire_scratch *scratch;
    struct buf head; /* the response head being written */
    time_t date_time;
    char date[32]; /* for date_time */
};

struct conn {
    struct wire wire;
    struct conns *conns;
    LIST_ENTRY(conn) link;
    TAILQ_ENTRY(conn) deferred_link;
    struct peer *peer;
    char peer_text[PEER_TEXT_SIZE];

    enum phase phase;
    uint64_t deadline_ms;       /* loop time, or NO_DEADLINE */
    uint64_t write_deadline_ms; /* while something is unsent */
    uint64_t taken_seen;        /* wire_taken() when that was set */
    bool deferred;
    bool running;      /* conn_input() is on the stack */
    bool last;         /* close after the present answer */
    bool ended;        /* the client will send no more */
    uint64_t lingered; /* bytes dropped in LINGER */

    struct buf in; /* read and not yet used */
    struct head_scan scan;
    struct body body;
    struct http_request *req; /* from ANSWER or BODY to the end of the answer */
};

struct http_request {
    struct conn *conn;
    struct head head;
    struct buf content; /* the body */
    struct buf more;    /* fields added to the coming answer, as text */
    size_t charged;     /* of conns->body_bytes */
    size_t max_body;
    bool body_limited; /* max_body was applied */
    bool answer_begun;
    bool answer_chunked;
    bool answer_bodiless; /* HEAD, 204, 304: what is written is not sent */
    void (*on_body)(struct http_request *req, const char *body, size_t len, void *data);
    void *on_body_data;
    void (*on_gone)(void *data);
    void *on_gone_data;
    struct head_field fields[]; /* and behind them the text of the head */
};

/* --- all connections: conns.c ------------------------------------------------------------- */

/* `conns` is zero but for loop, limits, identity, handler, handler_data and on_closed. */
void conns_init(struct conns *conns);
/* The idle handle is the owner's to close first. No connection may be left. */
void conns_done(struct conns *conns);

/* Enforces time limits. Called a few times a second. */
void conns_sweep(struct conns *conns);

/* Calls conn_input() for this connection from the loop. May be repeated. */
void conn_defer(struct conn *conn);

/* The text of the Date field, now. */
const char *conns_date(struct conns *conns);

/* --- one connection: conn.c --------------------------------------------------------------- */

/* Takes over `fd` and `peer`. */
void conn_start(struct conns *conns, int fd, const struct sockaddr *address, struct peer *peer);

/* Goes as far as the bytes allow: those kept from before and `len` new ones. */
void conn_input(struct conn *conn, char *data, size_t len);

void conn_enter(struct conn *conn, enum phase phase);

/* One look at the clock. */
void conn_check_time(struct conn *conn, uint64_t now_ms);

/* No more requests after the present one; closes at once if there is none. */
void conn_drain(struct conn *conn);

/* Closes now; on_gone of a request that waits is called. */
void conn_abort(struct conn *conn);

/* --- answers: answer.c -------------------------------------------------------------------- */

/* Answers by ourselves with `fault` and makes it the connection's last answer. */
void conn_refuse(struct conn *conn, const struct fault *fault);

/* "100 Continue", if the client waits for it. */
void answer_continue(struct http_request *req);

void request_free(struct http_request *req);

#endif
