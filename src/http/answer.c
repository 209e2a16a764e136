/* The handler's side of a connection: reading the request, writing the answer. */
#include "http/conn.h"
#include "http/response.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*** The request ***/

const char *http_request_method(const struct http_request *req)
{
    return req->head.method;
}

const char *http_request_path(const struct http_request *req)
{
    return req->head.path;
}

const char *http_request_query(const struct http_request *req)
{
    return req->head.query;
}

const char *http_request_peer(const struct http_request *req)
{
    return req->conn->peer_text;
}

const char *http_request_header(const struct http_request *req, const char *name)
{
    size_t pos = 0;
    return head_find(&req->head, name, &pos);
}

size_t http_request_header_count(const struct http_request *req, const char *name)
{
    size_t pos = 0, count = 0;
    while (head_find(&req->head, name, &pos))
        count++;
    return count;
}

bool http_request_header_at(const struct http_request *req, size_t index, const char **ret_name,
                            const char **ret_value)
{
    if (index >= req->head.n_fields)
        return false;
    *ret_name = req->head.fields[index].name;
    *ret_value = req->head.fields[index].value;
    return true;
}

void http_request_on_gone(struct http_request *req, void (*on_gone)(void *data), void *data)
{
    req->on_gone = on_gone;
    req->on_gone_data = data;
}

void http_request_read_body(struct http_request *req, size_t max,
                            void (*on_body)(struct http_request *req, const char *body, size_t len,
                                            void *data),
                            void *data)
{
    struct conn *conn = req->conn;
    assert(!req->on_body);
    req->max_body = max ? max : conn->conns->limits.max_body;
    req->on_body = on_body;
    req->on_body_data = data;
    if (conn->phase != PHASE_ANSWER)
        return; /* broken: on_gone is on its way */
    conn_enter(conn, PHASE_BODY);
    if (!conn->running)
        conn_defer(conn);
}

void http_request_add_field(struct http_request *req, const char *name, const char *value)
{
    req->more.max = BUF_NO_CEILING; /* the caller's own words */
    response_add_field(&req->more, name, value);
}

void request_free(struct http_request *req)
{
    req->conn->conns->body_bytes -= req->charged;
    buf_done(&req->content);
    buf_done(&req->more);
    free(req);
}

/*** Sending ***/

static void conn_break(struct conn *conn)
{
    conn_enter(conn, PHASE_BROKEN);
    wire_pause(&conn->wire);
    conn_defer(conn);
}

static void conn_send(struct conn *conn, const uv_buf_t *bufs, unsigned n_bufs)
{
    if (wire_send(&conn->wire, bufs, n_bufs) < 0)
        conn_break(conn);
}

static uv_buf_t piece(const void *data, size_t len)
{
    return uv_buf_init((char *)data, (unsigned)len); /* libuv only reads it */
}

/* The head, and as much of the body as is there already, in one system call. */
static void send_head(struct conn *conn, const struct response *response, const void *body,
                      size_t len)
{
    struct buf *head = &conn->conns->head;
    buf_clear(head);
    response_add_head(head, response);
    const uv_buf_t bufs[] = { piece(head->data, head->len), piece(body, len) };
    conn_send(conn, bufs, len > 0 ? 2 : 1);
}

void conn_refuse(struct conn *conn, const struct fault *fault)
{
    static const struct http_field fields[] = { { "Content-Type", "text/plain; charset=utf-8" },
                                                { 0 } };
    conn->conns->stats.bad_requests_total++;
    conn->last = true;
    conn_enter(conn, PHASE_FLUSH);

    char *text = xasprintf("%s\n", fault->why);
    const struct response response = {
        .status = fault->status,
        .minor = 1,
        .close = true,
        .framing = RESPONSE_LENGTH,
        .length = strlen(text),
        .fields = fields,
        .date = conns_date(conn->conns),
    };
    send_head(conn, &response, text, response.length);
    free(text);
    if (!conn->running)
        conn_defer(conn);
}

void answer_continue(struct http_request *req)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!req->head.expect_continue || req->answer_begun)
        return;
    req->head.expect_continue = false;
    const uv_buf_t buf = piece(text, sizeof(text) - 1);
    conn_send(req->conn, &buf, 1);
}

/*** The answer ***/

/* What is left of the body would be taken for the next request. It is read and dropped if that is
 * cheap; else, or if the client may not even send it, the connection ends with this answer. */
static bool rest_is_costly(const struct http_request *req)
{
    const struct body *body = &req->conn->body;
    if (body_done(body))
        return false;
    return req->head.expect_continue || (!body->chunked && body->left > SKIP_MAX);
}

static enum response_framing stream_framing(const struct http_request *req, int status)
{
    if (response_bodiless(status))
        return RESPONSE_NO_BODY;
    return req->head.minor == 0 ? RESPONSE_TO_END : RESPONSE_CHUNKED;
}

static void begin_answer(struct http_request *req, int status, const struct http_field *fields,
                         enum response_framing framing, const void *body, size_t len)
{
    struct conn *conn = req->conn;
    assert(!req->answer_begun);
    assert(status >= 200);
    req->answer_begun = true;
    req->answer_chunked = framing == RESPONSE_CHUNKED;
    req->answer_bodiless = response_bodiless(status) || strcmp(req->head.method, "HEAD") == 0;
    if (!req->head.keep_alive || conn->conns->draining || framing == RESPONSE_TO_END ||
        rest_is_costly(req))
        conn->last = true;
    if (conn->phase == PHASE_BROKEN)
        return;

    const struct response response = {
        .status = status,
        .minor = req->head.minor,
        .close = conn->last,
        .framing = framing,
        .length = len,
        .fields = fields,
        .more = req->more.data,
        .date = conns_date(conn->conns),
    };
    send_head(conn, &response, body, req->answer_bodiless ? 0 : len);
}

/* The request is over for the handler; the connection goes on from conn_input(). */
static void complete_answer(struct http_request *req)
{
    struct conn *conn = req->conn;
    conn->req = NULL;
    request_free(req);
    if (conn->phase != PHASE_BROKEN) {
        bool skip = !conn->last && !body_done(&conn->body);
        struct fault fault;
        if (skip)
            (void)body_set_max(&conn->body, conn->body.total + SKIP_MAX,
                               &fault); /* looked at before */
        conn_enter(conn, skip ? PHASE_SKIP : PHASE_FLUSH);
    }
    if (!conn->running)
        conn_defer(conn);
}

void http_respond(struct http_request *req, int status, const struct http_field *fields,
                  const void *body, size_t len)
{
    enum response_framing framing = response_bodiless(status) ? RESPONSE_NO_BODY : RESPONSE_LENGTH;
    begin_answer(req, status, fields, framing, body, len);
    complete_answer(req);
}

void http_stream_start(struct http_request *req, int status, const struct http_field *fields)
{
    begin_answer(req, status, fields, stream_framing(req, status), NULL, 0);
}

bool http_stream_write(struct http_request *req, const void *data, size_t len)
{
    struct conn *conn = req->conn;
    assert(req->answer_begun);
    if (conn->phase == PHASE_BROKEN)
        return false;
    if (len == 0 || req->answer_bodiless)
        return true; /* an empty chunk would end the stream */

    char start[CHUNK_START_MAX];
    if (req->answer_chunked) {
        const uv_buf_t bufs[] = { piece(start, response_chunk_start(start, len)), piece(data, len),
                                  piece("\r\n", 2) };
        conn_send(conn, bufs, ARRAY_SIZE(bufs));
    } else {
        const uv_buf_t buf = piece(data, len);
        conn_send(conn, &buf, 1);
    }
    if (wire_unsent(&conn->wire) > conn->conns->limits.max_backlog)
        conn_break(conn);
    return conn->phase != PHASE_BROKEN;
}

void http_stream_end(struct http_request *req)
{
    struct conn *conn = req->conn;
    assert(req->answer_begun);
    if (conn->phase != PHASE_BROKEN && req->answer_chunked && !req->answer_bodiless) {
        const uv_buf_t buf = piece(RESPONSE_CHUNKS_END, sizeof(RESPONSE_CHUNKS_END) - 1);
        conn_send(conn, &buf, 1);
    }
    complete_answer(req);
}

size_t http_stream_backlog(const struct http_request *req)
{
    return wire_unsent(&req->conn->wire);
}
