/*
 * The server: listeners in front, connections behind, and the clock that bounds them.
 *
 * Its memory goes when everything on the loop that points to it has been closed: `pending` counts
 * those handles, and http_server_free() only starts the end.
 */
#include "http/conn.h"
#include "http/listener.h"
#include "http/response.h"

#include "base/log.h"
#include "base/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SWEEP_MS = 250, /* how late a time limit may be noticed */
    LISTENERS_MAX = 16,
};

const struct http_limits HTTP_LIMITS_DEFAULT = {
    .max_header_bytes = 16 * 1024,
    .max_headers = 100,
    .max_body = 16 * 1024 * 1024,
    .max_bodies = 32 * 1024 * 1024,
    .max_connections = 16 * 1024,
    .max_connections_per_address = 1024,
    .max_backlog = 8 * 1024 * 1024,
    .header_timeout_ms = 10 * 1000,
    .body_timeout_ms = 60 * 1000,
    .idle_timeout_ms = 120 * 1000,
    .write_timeout_ms = 30 * 1000,
};

struct http_server {
    struct conns conns;
    struct listener *listeners[LISTENERS_MAX];
    size_t n_listeners;
    struct timer *sweep;
    struct timer *drain; /* the end of the grace time, or the call of on_drained */
    void (*on_drained)(void *data);
    void *on_drained_data;
    bool freed;
    size_t pending; /* listeners, connections and the idle handle */
};

/*** Memory ***/

static void unref(struct http_server *server)
{
    if (--server->pending > 0)
        return;
    assert(server->freed);
    conns_done(&server->conns);
    free(server);
}

static void close_listeners(struct http_server *server)
{
    while (server->n_listeners > 0)
        listener_close(server->listeners[--server->n_listeners]);
}

static void abort_connections(struct http_server *server)
{
    struct conn *conn;
    LIST_FOREACH(conn, &server->conns.all, link)
    conn_abort(conn);
}

static void on_idle_closed(uv_handle_t *handle)
{
    unref(container_of((uv_idle_t *)handle, struct http_server, conns.idle));
}

void http_server_free(struct http_server *server)
{
    if (!server || server->freed)
        return;
    server->freed = true;
    timer_free(server->sweep);
    timer_free(server->drain);
    close_listeners(server);
    abort_connections(server);
    uv_close((uv_handle_t *)&server->conns.idle, on_idle_closed);
}

/*** Draining ***/

static void finish_drain(struct http_server *server)
{
    void (*on_drained)(void *data) = server->on_drained;
    server->on_drained = NULL;
    if (on_drained)
        on_drained(server->on_drained_data); /* may free the server */
}

static void on_drain_timer(void *data)
{
    struct http_server *server = data;
    if (server->conns.stats.connections_open == 0)
        finish_drain(server);
    else
        abort_connections(server);
}

void http_server_drain(struct http_server *server, uint64_t grace_ms, void (*on_drained)(void *),
                       void *data)
{
    server->conns.draining = true;
    server->on_drained = on_drained;
    server->on_drained_data = data;
    close_listeners(server);
    struct conn *conn;
    LIST_FOREACH(conn, &server->conns.all, link)
    conn_drain(conn);
    /* Without connections too the callback comes from the loop, not from in here. */
    timer_start(server->drain, server->conns.stats.connections_open ? grace_ms : 0);
}

/*** Connections ***/

static void on_conn_closed(struct conns *conns)
{
    struct http_server *server = container_of(conns, struct http_server, conns);
    if (!server->freed && conns->stats.connections_open == 0) {
        timer_stop(server->sweep);
        if (conns->draining)
            finish_drain(server);
    }
    unref(server);
}

/* Says why and leaves it at that: a client too many must not cost us more than this. What it has
 * sent is read first, or closing would reset the connection and take the answer back. */
static void turn_away(struct http_server *server, int fd)
{
    struct conns *conns = &server->conns;
    conns->stats.connections_refused++;
    if (conns->identity)
        return; /* there is no TLS yet to say it in */
    static const char why[] = "too many connections\n";
    static const struct http_field fields[] = { { "Content-Type", "text/plain; charset=utf-8" },
                                                { "Retry-After", "5" },
                                                { 0 } };
    const struct response response = {
        .status = 503,
        .minor = 1,
        .close = true,
        .framing = RESPONSE_LENGTH,
        .length = sizeof(why) - 1,
        .fields = fields,
        .date = conns_date(conns),
    };
    buf_clear(&conns->head);
    response_add_head(&conns->head, &response);
    (void)buf_add_str(&conns->head, why);
    /* All three fail only when the client is gone. */
    (void)!send(fd, conns->head.data, conns->head.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    (void)!recv(fd, conns->scratch->raw, sizeof(conns->scratch->raw), MSG_DONTWAIT);
}

static void on_refused(void *data, int fd)
{
    turn_away(data, fd);
}

static void on_connection(void *data, int fd, const struct sockaddr *address)
{
    struct http_server *server = data;
    struct conns *conns = &server->conns;
    const struct http_limits *limits = &conns->limits;
    struct peer *peer = NULL;
    if (conns->stats.connections_open < limits->max_connections)
        peer = peers_acquire(conns->peers, address, limits->max_connections_per_address);
    if (!peer) {
        turn_away(server, fd);
        (void)close(fd);
        return;
    }
    server->pending++;
    if (!timer_active(server->sweep))
        timer_repeat(server->sweep, SWEEP_MS);
    conn_start(conns, fd, address, peer);
}

static void on_listener_closed(void *data)
{
    unref(data);
}

static const struct listener_events listener_events = {
    .on_connection = on_connection,
    .on_refused = on_refused,
    .on_closed = on_listener_closed,
};

static void on_sweep(void *data)
{
    struct http_server *server = data;
    conns_sweep(&server->conns);
}

/*** Setting up ***/

int http_server_new(uv_loop_t *loop, const struct http_options *options, http_handler_fn *handler,
                    void *data, struct http_server **ret, struct err *err)
{
    struct tls_identity *identity = NULL;
    if (!options->tls_cert != !options->tls_key)
        return err_set(err, EINVAL, "TLS needs both a certificate and a key");
    if (options->tls_cert) {
        int r = tls_identity_new(options->tls_cert, options->tls_key, &identity, err);
        if (r < 0)
            return r;
    }

    struct http_server *server = xcalloc(1, sizeof(*server));
    server->pending = 1; /* the idle handle */
    server->conns = (struct conns){
        .loop = loop,
        .limits = options->limits,
        .identity = identity,
        .handler = handler,
        .handler_data = data,
        .on_closed = on_conn_closed,
    };
    conns_init(&server->conns);
    server->sweep = timer_new(loop, on_sweep, server);
    server->drain = timer_new(loop, on_drain_timer, server);
    *ret = server;
    return 0;
}

int http_server_listen(struct http_server *server, const char *address, char **ret_bound,
                       struct err *err)
{
    if (server->n_listeners == LISTENERS_MAX)
        return err_set(err, ENOBUFS, "more than %d listen addresses", LISTENERS_MAX);
    struct listener *listener;
    int r = listener_open(server->conns.loop, address, &listener_events, server, &listener, err);
    if (r < 0)
        return r;
    server->pending++;
    server->listeners[server->n_listeners++] = listener;
    if (ret_bound)
        *ret_bound = listener_address(listener);
    return 0;
}

void http_server_stats(const struct http_server *server, struct http_stats *ret)
{
    *ret = server->conns.stats;
}
