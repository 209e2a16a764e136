/*
 * listener: listening sockets. Accepts by itself rather than through uv_listen(), so that a
 * process without free descriptors can still refuse politely, and so that a refused client costs
 * no memory.
 */
#ifndef BELLJAR_HTTP_LISTENER_H
#define BELLJAR_HTTP_LISTENER_H

#include "base/err.h"

#include <sys/socket.h>
#include <uv.h>

struct listener;

/* A new connection; takes over `fd`, which is non-blocking. */
typedef void listener_fn(void *data, int fd, const struct sockaddr *address);
/* A connection there is no descriptor for. `fd` stays the listener's and is closed at once. */
typedef void listener_refuse_fn(void *data, int fd);

struct listener_events {
    listener_fn *on_connection;
    listener_refuse_fn *on_refused;
    void (*on_closed)(void *data); /* after listener_close(): all its memory is gone */
};

/* `address` as for http_server_listen(). The name "localhost" is bound on each loopback address
 * that exists. Another name is looked up here and now, which blocks. */
int listener_open(uv_loop_t *loop, const char *address, const struct listener_events *events,
                  void *data, struct listener **ret, struct err *err);

/* "127.0.0.1:8000", the first address bound; owned by the caller. */
char *listener_address(const struct listener *listener);

void listener_close(struct listener *listener);

#endif
