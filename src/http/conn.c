#include "http/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_DEADLINE UINT64_MAX

/* Bytes not yet used. */
struct span {
    char *at;
    size_t len;
};

static void use(struct span *in, size_t len)
{
    in->at += len;
    in->len -= len;
}

/*** Phases and their time ***/

static uint64_t phase_timeout(const struct http_limits *limits, enum phase phase)
{
    switch (phase) {
    case PHASE_HANDSHAKE:
    case PHASE_HEAD:
        return limits->header_timeout_ms;
    case PHASE_IDLE:
        return limits->idle_timeout_ms;
    case PHASE_BODY:
    case PHASE_SKIP:
        return limits->body_timeout_ms;
    case PHASE_LINGER:
        return LINGER_MS;
    case PHASE_ANSWER: /* as long as the handler likes; writing is watched by itself */
    case PHASE_FLUSH:
    case PHASE_BROKEN:
    case PHASE_CLOSED:
        break;
    }
    return 0;
}

void conn_enter(struct conn *conn, enum phase phase)
{
    uint64_t timeout = phase_timeout(&conn->conns->limits, phase);
    conn->phase = phase;
    conn->deadline_ms = timeout ? uv_now(conn->conns->loop) + timeout : NO_DEADLINE;
}

/*** The end ***/

static void close_now(struct conn *conn, bool reset)
{
    conn_enter(conn, PHASE_CLOSED);
    wire_close(&conn->wire, reset);
}

/* Closes and tells the handler that waits to answer, if there is one. */
static void gone(struct conn *conn, bool reset)
{
    struct http_request *req = conn->req;
    conn->req = NULL;
    close_now(conn, reset);
    if (!req)
        return;
    if (req->on_gone)
        req->on_gone(req->on_gone_data);
    request_free(req);
}

/* The request cannot be understood to its end. Answers for the handler, then tells it. */
static void fail_request(struct conn *conn, const struct fault *fault)
{
    struct http_request *req = conn->req;
    if (req->answer_begun) {
        gone(conn, /* reset= */ false);
        return;
    }
    conn->req = NULL;
    conn_refuse(conn, fault);
    if (req->on_gone)
        req->on_gone(req->on_gone_data);
    request_free(req);
}

void conn_abort(struct conn *conn)
{
    if (conn->phase != PHASE_CLOSED)
        gone(conn, /* reset= */ false);
}

void conn_drain(struct conn *conn)
{
    if (conn->phase == PHASE_IDLE || conn->phase == PHASE_HANDSHAKE)
        close_now(conn, /* reset= */ false);
}

/*** One step in each phase: false when it must wait ***/

static struct http_request *request_new(struct conn *conn, const char *text, size_t len,
                                        struct fault *ret_fault)
{
    size_t table = (conn->scan.lines - 1) * sizeof(struct head_field);
    struct http_request *req = xmalloc(sizeof(*req) + table + len + 1);
    *req = (struct http_request){ .conn = conn };
    char *copy = (char *)req->fields + table;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (head_parse(copy, req->fields, &req->head, ret_fault) < 0) {
        free(req);
        return NULL;
    }
    return req;
}

static bool step_head(struct conn *conn, struct span *in)
{
    struct conns *conns = conn->conns;
    const struct head_limits limits = { .bytes = conns->limits.max_header_bytes,
                                        .fields = conns->limits.max_headers };
    struct fault fault;
    ssize_t len = head_scan(&conn->scan, in->at, in->len, &limits, &fault);
    if (len == 0)
        return false;
    struct http_request *req = len > 0 ? request_new(conn, in->at, (size_t)len, &fault) : NULL;
    if (!req) {
        conn_refuse(conn, &fault);
        return true;
    }
    use(in, (size_t)len);
    conn->scan = (struct head_scan){ 0 };
    body_init(&conn->body, &req->head);
    conn->req = req;
    conns->stats.requests_total++;
    conn_enter(conn, PHASE_ANSWER);
    conns->handler(req, conns->handler_data); /* may answer, ask for the body, free the server */
    return true;
}

/* Each body is bounded, but there may be many at once: together they are bounded, too. */
static int charge_body(struct http_request *req, struct fault *ret_fault)
{
    struct conns *conns = req->conn->conns;
    const struct http_limits *limits = &conns->limits;
    size_t most = limits->max_bodies > limits->max_body ? limits->max_bodies : limits->max_body;
    size_t cost = req->content.cap > BODY_FREE ? req->content.cap : 0;
    conns->body_bytes += cost - req->charged;
    req->charged = cost;
    if (conns->body_bytes <= most || cost == 0 || conns->body_bytes == cost)
        return 0; /* the last: a buffer grows by doubling, but alone it always fits */
    return fault_set(ret_fault, 503, "too many large requests at once; try again later");
}

static bool step_body(struct conn *conn, struct span *in)
{
    struct http_request *req = conn->req;
    struct fault fault;
    if (!req->body_limited) {
        req->body_limited = true;
        req->content = BUF_INIT(req->max_body);
        if (body_set_max(&conn->body, req->max_body, &fault) < 0) {
            fail_request(conn, &fault);
            return true;
        }
        if (in->len == 0 && !body_done(&conn->body))
            answer_continue(req);
    }
    ssize_t used = body_feed(&conn->body, in->at, in->len, &req->content, &fault);
    if (used < 0 || charge_body(req, &fault) < 0) {
        fail_request(conn, &fault);
        return true;
    }
    use(in, (size_t)used);
    if (!body_done(&conn->body))
        return false;
    conn_enter(conn, PHASE_ANSWER);
    req->on_body(req, buf_str(&req->content), req->content.len, req->on_body_data);
    return true;
}

static bool step_skip(struct conn *conn, struct span *in)
{
    struct fault fault;
    ssize_t used = body_feed(&conn->body, in->at, in->len, /* out= */ NULL, &fault);
    if (used < 0) { /* too long or broken: the answer is out, so there is nothing to say */
        conn->last = true;
        conn_enter(conn, PHASE_FLUSH);
        return true;
    }
    use(in, (size_t)used);
    if (!body_done(&conn->body))
        return false;
    conn_enter(conn, PHASE_FLUSH);
    return true;
}

static bool drop(struct conn *conn, struct span *in)
{
    conn->lingered += in->len;
    use(in, in->len);
    if (conn->lingered > LINGER_BYTES_MAX)
        close_now(conn, /* reset= */ true);
    return false;
}

static bool step_flush(struct conn *conn, struct span *in)
{
    if (conn->conns->draining)
        conn->last = true;
    if (wire_unsent(&conn->wire) > 0)
        return conn->last ? drop(conn, in) : false;
    if (conn->last) {
        wire_end(&conn->wire);
        conn_enter(conn, PHASE_LINGER);
    } else {
        conn_enter(conn, PHASE_IDLE);
    }
    return true;
}

static bool step(struct conn *conn, struct span *in)
{
    switch (conn->phase) {
    case PHASE_IDLE:
        if (in->len > 0)
            conn_enter(conn, PHASE_HEAD);
        return in->len > 0;
    case PHASE_HEAD:
        return step_head(conn, in);
    case PHASE_BODY:
        return step_body(conn, in);
    case PHASE_SKIP:
        return step_skip(conn, in);
    case PHASE_FLUSH:
        return step_flush(conn, in);
    case PHASE_LINGER:
        return drop(conn, in);
    case PHASE_HANDSHAKE:
    case PHASE_ANSWER:
    case PHASE_BROKEN:
    case PHASE_CLOSED:
        break;
    }
    return false;
}

/*** Input ***/

static void run(struct conn *conn, struct span *in)
{
    conn->running = true;
    while (step(conn, in))
        ;
    conn->running = false;
}

/* Reads on, unless what was read waits for an answer and is as much as we are willing to keep. */
static void steer_reading(struct conn *conn)
{
    bool waits = conn->phase == PHASE_ANSWER || conn->phase == PHASE_FLUSH;
    if (waits && conn->in.len >= READ_AHEAD_MAX)
        wire_pause(&conn->wire);
    else
        wire_resume(&conn->wire);
}

/* New bytes are used where they lie; only what is left over is copied, and an idle connection
 * keeps no buffer. */
void conn_input(struct conn *conn, char *data, size_t len)
{
    char none[1];
    if (len == 0)
        data = none; /* NULL must not be counted from, not even by 0 */
    bool kept = conn->in.len > 0;
    if (kept)
        (void)buf_add(&conn->in, data, len); /* bounded by steer_reading() */
    struct span in =
        kept ? (struct span){ conn->in.data, conn->in.len } : (struct span){ data, len };
    run(conn, &in);

    if (kept)
        buf_drop(&conn->in, conn->in.len - in.len);
    else if (in.len > 0)
        (void)buf_add(&conn->in, in.at, in.len);
    if (conn->in.len == 0)
        buf_done(&conn->in);

    if (conn->phase == PHASE_CLOSED)
        return;
    if (conn->phase == PHASE_BROKEN || (conn->ended && conn->phase != PHASE_FLUSH)) {
        gone(conn, /* reset= */ conn->phase == PHASE_BROKEN);
        return;
    }
    if (conn->phase == PHASE_IDLE)
        wire_trim(&conn->wire);
    steer_reading(conn);
}

/*** What the wire reports ***/

static struct conn *conn_of(struct wire *wire)
{
    return container_of(wire, struct conn, wire);
}

static void on_bytes(struct wire *wire, char *data, size_t len)
{
    conn_input(conn_of(wire), data, len);
}

static void on_ready(struct wire *wire)
{
    conn_enter(conn_of(wire), PHASE_IDLE);
}

/* A client that shuts its sending side is treated as gone, unless all that it waits for is the
 * rest of an answer. */
static void on_end(struct wire *wire, int error)
{
    struct conn *conn = conn_of(wire);
    conn->ended = true;
    if (error)
        gone(conn, /* reset= */ false);
    else
        conn_input(conn, NULL, 0);
}

static void on_drained(struct wire *wire)
{
    struct conn *conn = conn_of(wire);
    if (conn->phase == PHASE_FLUSH)
        conn_input(conn, NULL, 0);
}

static void on_closed(struct wire *wire)
{
    struct conn *conn = conn_of(wire);
    struct conns *conns = conn->conns;
    assert(!conn->req);
    if (conn->deferred)
        TAILQ_REMOVE(&conns->deferred, conn, deferred_link);
    LIST_REMOVE(conn, link);
    peers_release(conns->peers, conn->peer);
    buf_done(&conn->in);
    free(conn);
    conns->stats.connections_open--;
    conns->on_closed(conns);
}

static const struct wire_owner wire_owner = {
    .on_bytes = on_bytes,
    .on_ready = on_ready,
    .on_end = on_end,
    .on_drained = on_drained,
    .on_closed = on_closed,
};

void conn_start(struct conns *conns, int fd, const struct sockaddr *address, struct peer *peer)
{
    struct conn *conn = xcalloc(1, sizeof(*conn));
    conn->conns = conns;
    conn->peer = peer;
    conn->in = BUF_INIT(BUF_NO_CEILING);
    conn->write_deadline_ms = NO_DEADLINE;
    peer_text(address, conn->peer_text);
    LIST_INSERT_HEAD(&conns->all, conn, link);
    conns->stats.connections_open++;
    conns->stats.connections_total++;

    int r = wire_init(&conn->wire, conns->loop, fd, conns->identity, &wire_owner, conns->scratch);
    conn_enter(conn, conns->identity ? PHASE_HANDSHAKE : PHASE_IDLE);
    if (r < 0)
        close_now(conn, /* reset= */ false);
    else
        wire_resume(&conn->wire);
}

/*** Time ***/

static bool write_stalled(struct conn *conn, uint64_t now_ms)
{
    uint64_t timeout = conn->conns->limits.write_timeout_ms;
    if (timeout == 0 || wire_unsent(&conn->wire) == 0) {
        conn->write_deadline_ms = NO_DEADLINE;
        return false;
    }
    uint64_t taken = wire_taken(&conn->wire);
    if (conn->write_deadline_ms == NO_DEADLINE || taken != conn->taken_seen) {
        conn->write_deadline_ms = now_ms + timeout;
        conn->taken_seen = taken;
    }
    return now_ms >= conn->write_deadline_ms;
}

static void timed_out(struct conn *conn)
{
    struct fault fault;
    if (conn->phase == PHASE_HEAD) {
        (void)fault_set(&fault, 408, "the request head took too long");
        conn_refuse(conn, &fault);
    } else if (conn->phase == PHASE_BODY) {
        (void)fault_set(&fault, 408, "the request body took too long");
        fail_request(conn, &fault);
    } else {
        close_now(conn, /* reset= */ false);
    }
}

void conn_check_time(struct conn *conn, uint64_t now_ms)
{
    if (conn->phase == PHASE_CLOSED)
        return;
    if (write_stalled(conn, now_ms))
        gone(conn, /* reset= */ true);
    else if (now_ms >= conn->deadline_ms)
        timed_out(conn);
}
