/*
 * http: a strict HTTP/1.1 server on libuv. It frames requests and responses, keeps every phase of
 * a connection within a limit, and knows nothing of what is served.
 *
 *   1. http_server_new()      options, limits, one handler
 *   2. http_server_listen()   any number of addresses
 *   3. the handler is called once per request, as soon as the head is in and the body has not
 *      been read; it either answers, or asks for the body with http_request_read_body()
 *   4. http_respond(), or http_stream_start() / http_stream_write() / http_stream_end()
 *   5. http_server_drain()    stop accepting, let answers finish, then close
 *
 * Life of a request: the pointer is valid from the handler's call until the answer is complete
 * (http_respond() or http_stream_end() return) or on_gone is called, whichever is first. After
 * either, it must not be used again. A request that is neither answered nor gone waits: answers
 * may come from a later turn of the loop. Requests on one connection are handled one after the
 * other; a pipelined one waits, unread, for the answer to the one before it.
 *
 * What is refused here, before the handler sees anything: bytes that are not exactly HTTP/1.1
 * framing (bare LF, obsolete folding, space before the colon, control characters, a version other
 * than 1.0 or 1.1, no or several Host fields, Content-Length twice or with Transfer-Encoding, any
 * coding but a single "chunked", chunk extensions, trailers) → 400 or 501 and close; head too
 * large → 431; another expectation than 100-continue → 417; too many connections → 503; phases
 * over time → 408 and close. The answer says in a line of text what was wrong.
 */
#ifndef BELLJAR_HTTP_H
#define BELLJAR_HTTP_H

#include "base/err.h"

#include <uv.h>

struct http_server;
struct http_request;

struct http_limits {
    size_t max_header_bytes; /* request line and fields, to the blank line: 431 */
    size_t max_headers;      /* number of fields: 431 */
    size_t max_body;         /* default for http_request_read_body(): 413 before reading */
    size_t max_bodies;       /* all bodies together, save small ones (one always fits): 503 */
    size_t max_connections;  /* 503 and close */
    size_t max_connections_per_address; /* IPv6: of one /64 */
    size_t max_backlog;                 /* unsent bytes of one stream before it is cut off */
    /* 0: no limit. All are noticed up to a quarter of a second late. */
    uint64_t header_timeout_ms; /* first byte to blank line: 408; and the TLS handshake */
    uint64_t body_timeout_ms;   /* http_request_read_body() to last body byte: 408 */
    uint64_t idle_timeout_ms;   /* keep-alive between requests, and connect to first byte */
    uint64_t write_timeout_ms;  /* a response that makes no progress: close */
};
extern const struct http_limits HTTP_LIMITS_DEFAULT;

struct http_options {
    struct http_limits limits;
    const char *tls_cert; /* PEM files, both or neither */
    const char *tls_key;
};

/* Called once per request; see "Life of a request". */
typedef void http_handler_fn(struct http_request *req, void *data);

/* Copies what it needs from *options. Fails when certificate or key cannot be used. */
int http_server_new(uv_loop_t *loop, const struct http_options *options, http_handler_fn *handler,
                    void *data, struct http_server **ret, struct err *err);

/* `address` is "127.0.0.1:8000", "[::1]:8000" or "name:port"; port 0 picks a free one. "localhost"
 * is both loopback addresses, as far as this machine has them. ret_bound (may be NULL) receives
 * the first "address:port" as bound, owned by the caller. Looking up another name blocks. */
int http_server_listen(struct http_server *server, const char *address, char **ret_bound,
                       struct err *err);

/* Stops accepting, closes idle connections at once, lets running answers end (they say
 * "Connection: close"), and closes what is left after grace_ms. on_drained is called once, when
 * the last connection is gone; the server may be freed from it. */
void http_server_drain(struct http_server *server, uint64_t grace_ms, void (*on_drained)(void *),
                       void *data);

/* Closes everything now; on_gone is called, before this returns, for open requests. What is left of
 * the memory goes with the next turn of the loop. May be called from any callback. NULL is fine. */
void http_server_free(struct http_server *server);

struct http_stats {
    uint64_t connections_open;
    uint64_t connections_total;
    uint64_t connections_refused;
    uint64_t requests_total;
    uint64_t bad_requests_total; /* refused by this module */
};
void http_server_stats(const struct http_server *server, struct http_stats *ret);

/* --- the request ------------------------------------------------------------------------- */

const char *http_request_method(const struct http_request *req); /* as sent: "POST" */
const char *http_request_path(const struct http_request *req);   /* before '?', not decoded */
const char *http_request_query(const struct http_request *req);  /* after '?', or NULL */
const char *http_request_peer(const struct http_request *req);   /* "127.0.0.1:51324" */

/* First field of that name (any case), value trimmed of surrounding blanks; NULL when absent. */
const char *http_request_header(const struct http_request *req, const char *name);
/* How many fields of that name there are. */
size_t http_request_header_count(const struct http_request *req, const char *name);
/* Field by position, for scans; false past the end. */
bool http_request_header_at(const struct http_request *req, size_t index, const char **ret_name,
                            const char **ret_value);

/* A field that the coming answer will carry, whoever gives it. */
void http_request_add_field(struct http_request *req, const char *name, const char *value);

/* Whom to tell when the client goes away before the answer is complete (reset, end of file, also
 * of its sending side only, time limits, server freed). Never called after the answer is complete,
 * nor from inside a call the handler makes. */
void http_request_on_gone(struct http_request *req, void (*on_gone)(void *data), void *data);

/* Reads the body (at most `max` bytes, 0: the limit of the server) and then calls on_body once,
 * with bytes that stay valid until the request ends. A longer or broken body is answered here
 * (413, 400, 408) and reported by on_gone. Answers "Expect: 100-continue". */
void http_request_read_body(struct http_request *req, size_t max,
                            void (*on_body)(struct http_request *req, const char *body, size_t len,
                                            void *data),
                            void *data);

/* --- the answer -------------------------------------------------------------------------- */

/* Extra fields, terminated by a row with name NULL; Content-Length, Connection, Date and framing
 * are set here. A value with control characters is a bug of the caller (asserted). */
struct http_field {
    const char *name;
    const char *value;
};

/* The whole answer. An unread body is skipped or the connection is closed after it. HEAD gets the
 * head only. */
void http_respond(struct http_request *req, int status, const struct http_field *fields,
                  const void *body, size_t len);

/* An answer in pieces, chunked (closed by connection end for HTTP/1.0). */
void http_stream_start(struct http_request *req, int status, const struct http_field *fields);
/* Copies the bytes. When the client reads too slowly for limits.max_backlog the connection is cut
 * and on_gone follows from the loop; the return value is false from then on. */
bool http_stream_write(struct http_request *req, const void *data, size_t len);
void http_stream_end(struct http_request *req);
/* Bytes written but not yet taken by the kernel: callers drop what may be dropped above a mark. */
size_t http_stream_backlog(const struct http_request *req);

/* The reason phrase for a status. */
const char *http_status_text(int status);

#endif
