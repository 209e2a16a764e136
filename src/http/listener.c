#include "http/listener.h"

#include "base/loop.h"
#include "base/num.h"
#include "http/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SOCKETS_MAX = 8,
    ACCEPTS_MAX = 64, /* in one turn of the loop: others want their turn too */
    BACKLOG = 1024,   /* the kernel cuts it to net.core.somaxconn */
    REST_MS = 100,    /* when even refusing is impossible */
    PORT_TRIES = 16,  /* to find a port that is free on every address */
};

struct socket {
    uv_poll_t poll;
    struct listener *listener;
    int fd;
    bool resting; /* no descriptor left: polling would spin */
};

struct listener {
    const struct listener_events *events;
    void *data;
    struct timer *retry;
    int spare; /* given up to accept, and so to refuse, when there is no other descriptor */
    size_t n_sockets;
    size_t n_open; /* poll handles whose close callback has not run */
    struct socket sockets[SOCKETS_MAX];
};

/*** Accepting ***/

static int open_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int accept_one(int fd, struct sockaddr_storage *ret_address)
{
    socklen_t len = sizeof(*ret_address);
    int client = accept4(fd, (struct sockaddr *)ret_address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return client < 0 ? -errno : client;
}

/* No descriptor is left. The client would wait in the queue, and the loop spin on it, so one is
 * freed to take the client out and send it away. False when not even that works. */
static bool refuse_one(struct listener *listener, int fd)
{
    if (listener->spare < 0)
        return false;
    (void)close(listener->spare);
    struct sockaddr_storage address;
    int client = accept_one(fd, &address);
    if (client >= 0) {
        listener->events->on_refused(listener->data, client);
        (void)close(client);
    }
    listener->spare = open_spare();
    return client >= 0;
}

static void rest(struct socket *sock)
{
    sock->resting = true;
    (void)uv_poll_stop(&sock->poll); /* fails when closing only */
    timer_start(sock->listener->retry, REST_MS);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct socket *sock = container_of(poll, struct socket, poll);
    struct listener *listener = sock->listener;
    for (int i = 0; i < ACCEPTS_MAX && !uv_is_closing((uv_handle_t *)poll); i++) {
        struct sockaddr_storage address;
        int fd = accept_one(sock->fd, &address);
        if (fd >= 0) {
            listener->events->on_connection(listener->data, fd, (struct sockaddr *)&address);
        } else if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS) {
            if (!refuse_one(listener, sock->fd)) {
                rest(sock);
                return;
            }
        } else if (fd == -EAGAIN) {
            return;
        } /* else that client is gone already; the next one may not be */
    }
}

/* Puts every socket that rests back to work. */
static void start(void *data)
{
    struct listener *listener = data;
    if (listener->spare < 0)
        listener->spare = open_spare();
    for (size_t i = 0; i < listener->n_sockets; i++) {
        struct socket *sock = &listener->sockets[i];
        if (sock->resting)
            sock->resting = uv_poll_start(&sock->poll, UV_READABLE, on_readable) < 0;
    }
}

/*** Addresses ***/

/* "[::1]:8000" → "::1" and "8000". */
static int split_address(const char *address, char **ret_host, char **ret_port, struct err *err)
{
    const char *colon = strrchr(address, ':');
    int64_t port;
    if (!colon || num_parse_int(colon + 1, 0, 65535, &port) < 0)
        return err_set(err, EINVAL, "listen address \"%s\" must end in \":\" and a port", address);
    const char *host = address;
    size_t len = (size_t)(colon - address);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    } else if (memchr(host, ':', len)) {
        return err_set(err, EINVAL, "listen address \"%s\": write IPv6 as [address]:port", address);
    }
    if (len == 0)
        return err_set(err, EINVAL, "listen address \"%s\" has no host", address);
    *ret_host = xstrndup(host, len);
    *ret_port = xasprintf("%d", (int)port);
    return 0;
}

static int look_up(const char *host, const char *port, struct addrinfo **ret, struct err *err)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
    };
    int r = getaddrinfo(host, port, &hints, ret);
    return r ? err_set(err, EADDRNOTAVAIL, "look up %s: %s", host, gai_strerror(r)) : 0;
}

static void set_port(struct sockaddr *address, in_port_t port)
{
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = port;
    else
        ((struct sockaddr_in *)address)->sin_port = port;
}

static in_port_t get_port(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                          : ((const struct sockaddr_in *)address)->sin_port;
}

/* The port as bound, in network order. */
static in_port_t bound_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = { .v6 = { 0 } };
    socklen_t len = sizeof(address);
    if (getsockname(fd, &address.any, &len) < 0)
        return 0;
    return address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port;
}

/*** Opening ***/

static int bind_socket(const struct addrinfo *info, struct err *err)
{
    static const int on = 1;
    char text[PEER_TEXT_SIZE];
    peer_text(info->ai_addr, text);
    auto_fd fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "socket for %s", text);
    /* Accepted sockets inherit TCP_NODELAY on Linux. None of the three is worth failing for. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (info->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, info->ai_addr, info->ai_addrlen) < 0)
        return err_sys(err, errno, "bind %s", text);
    if (listen(fd, BACKLOG) < 0)
        return err_sys(err, errno, "listen on %s", text);
    return steal_fd(&fd);
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)close(fds[i]);
}

/* Binds every address of the list that this host has, all on one port. Returns how many. */
static int bind_list(struct addrinfo *list, int fds[static SOCKETS_MAX], struct err *err)
{
    size_t n = 0;
    in_port_t port = get_port(list->ai_addr);
    struct err first = { 0 };
    for (struct addrinfo *info = list; info && n < SOCKETS_MAX; info = info->ai_next) {
        struct err why = { 0 };
        set_port(info->ai_addr, port);
        int fd = bind_socket(info, &why);
        if (fd >= 0) {
            fds[n++] = fd;
            port = bound_port(fd);
            continue;
        }
        if (!first.code)
            first = why;
        /* A machine without IPv6 has no ::1; a port that someone else holds is another matter. */
        if (fd != -EADDRNOTAVAIL && fd != -EAFNOSUPPORT) {
            close_all(fds, n);
            return err_set(err, why.code, "%s", why.msg);
        }
    }
    return n ? (int)n : err_set(err, first.code, "%s", first.msg);
}

/* A port the kernel picked for the first address may be taken on the second: then pick again. */
static int bind_name(const char *host, const char *port, int fds[static SOCKETS_MAX],
                     struct err *err)
{
    bool localhost = strcasecmp(host, "localhost") == 0;
    struct addrinfo *list, *more = NULL;
    int r = look_up(localhost ? "127.0.0.1" : host, port, &list, err);
    if (r < 0)
        return r;
    if (localhost && look_up("::1", port, &more, NULL) == 0)
        list->ai_next = more;

    in_port_t wanted = get_port(list->ai_addr);
    for (int i = 0; i < PORT_TRIES; i++) {
        set_port(list->ai_addr, wanted);
        r = bind_list(list, fds, err);
        if (r != -EADDRINUSE || wanted != 0)
            break;
    }
    if (more) {
        list->ai_next = NULL; /* two lists, each freed by itself */
        freeaddrinfo(more);
    }
    freeaddrinfo(list);
    return r;
}

static void watch(struct listener *listener, uv_loop_t *loop, int fd)
{
    struct socket *sock = &listener->sockets[listener->n_sockets++];
    *sock = (struct socket){ .listener = listener, .fd = fd, .resting = true };
    (void)uv_poll_init(loop, &sock->poll, fd); /* a fresh socket that epoll knows how to watch */
    listener->n_open++;
}

int listener_open(uv_loop_t *loop, const char *address, const struct listener_events *events,
                  void *data, struct listener **ret, struct err *err)
{
    auto_free char *host = NULL;
    auto_free char *port = NULL;
    int r = split_address(address, &host, &port, err);
    if (r < 0)
        return r;
    int fds[SOCKETS_MAX];
    int n = bind_name(host, port, fds, err);
    if (n < 0)
        return n;

    struct listener *listener = xcalloc(1, sizeof(*listener));
    *listener = (struct listener){ .events = events, .data = data, .spare = open_spare() };
    for (int i = 0; i < n; i++)
        watch(listener, loop, fds[i]);
    listener->retry = timer_new(loop, start, listener);
    start(listener);
    *ret = listener;
    return 0;
}

char *listener_address(const struct listener *listener)
{
    char text[PEER_TEXT_SIZE];
    struct sockaddr_storage address = { 0 };
    socklen_t len = sizeof(address);
    (void)getsockname(listener->sockets[0].fd, (struct sockaddr *)&address, &len);
    peer_text((struct sockaddr *)&address, text);
    return xstrdup(text);
}

/*** Closing ***/

static void on_close(uv_handle_t *handle)
{
    struct listener *listener = container_of((uv_poll_t *)handle, struct socket, poll)->listener;
    if (--listener->n_open > 0)
        return;
    const struct listener_events *events = listener->events;
    void *data = listener->data;
    if (listener->spare >= 0)
        (void)close(listener->spare);
    free(listener);
    events->on_closed(data);
}

void listener_close(struct listener *listener)
{
    timer_free(listener->retry);
    for (size_t i = 0; i < listener->n_sockets; i++) {
        struct socket *sock = &listener->sockets[i];
        uv_close((uv_handle_t *)&sock->poll, on_close);
        (void)close(sock->fd); /* after uv_close(), which takes it out of epoll */
    }
}
