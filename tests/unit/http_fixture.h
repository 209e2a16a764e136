/*
 * http_fixture: a server on a loop and blocking-looking clients on real sockets, in one thread.
 * Whenever a client waits, the loop turns.
 *
 * What the handler does is in the path:
 *   /hello   answers at once               /echo    answers with the body
 *   /refuse  answers 401 at once, whatever the body
 *   /keep    keeps the request in fixture.kept, for the test to answer
 */
#ifndef BELLJAR_TESTS_HTTP_FIXTURE_H
#define BELLJAR_TESTS_HTTP_FIXTURE_H

#include "check.h"

#include "base/buf.h"
#include "base/loop.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, TEXT_MAX = 64 << 20 };

struct fixture {
    uv_loop_t loop;
    struct http_server *server;
    uint16_t port;
    struct http_request *kept; /* the last one for /keep */
    unsigned handled;          /* calls of the handler */
    unsigned gone;             /* calls of on_gone */
    unsigned drained;
    bool in_call; /* the test is inside a call that must not call back */
};

static inline void fixture_gone(void *data)
{
    struct fixture *f = data;
    assert_false(f->in_call);
    f->gone++;
    f->kept = NULL;
}

static inline void fixture_body(struct http_request *req, const char *body, size_t len, void *data)
{
    (void)data;
    http_respond(req, 200, NULL, body, len);
}

static inline void fixture_handler(struct http_request *req, void *data)
{
    struct fixture *f = data;
    const char *path = http_request_path(req);
    f->handled++;
    http_request_on_gone(req, fixture_gone, f);
    if (str_eq(path, "/echo")) {
        http_request_read_body(req, 0, fixture_body, f);
    } else if (str_eq(path, "/refuse")) {
        http_respond(req, 401, NULL, "no\n", 3);
    } else if (str_eq(path, "/keep")) {
        f->kept = req;
    } else {
        http_respond(req, 200, NULL, "hello\n", 6);
    }
}

/* Where time runs slower, and where a limit on descriptors is only played. */
static inline bool under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
}

/* Short limits, so that tests of limits are short too. */
static inline struct http_options fixture_options(void)
{
    return (struct http_options){
        .limits = {
            .max_header_bytes = 1024,
            .max_headers = 10,
            .max_body = 1000,
            .max_connections = 100,
            .max_connections_per_address = 100,
            .max_backlog = 1 << 20,
            .header_timeout_ms = 60000,
            .body_timeout_ms = 60000,
            .idle_timeout_ms = 60000,
            .write_timeout_ms = 60000,
        },
    };
}

static inline void fixture_init(struct fixture *f, const struct http_options *options)
{
    *f = (struct fixture){ 0 };
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    struct err err = { 0 };
    if (http_server_new(&f->loop, options, fixture_handler, f, &f->server, &err) < 0)
        fail_msg("%s", err.msg);
    auto_free char *bound = NULL;
    if (http_server_listen(f->server, "127.0.0.1:0", &bound, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(str_has_prefix(bound, "127.0.0.1:"));
    f->port = (uint16_t)atoi(bound + strlen("127.0.0.1:"));
}

static inline void fixture_done(struct fixture *f)
{
    http_server_free(f->server);
    loop_finish(&f->loop);
}

/* One turn of the loop, and a moment for the kernel. */
static inline void turn(struct fixture *f)
{
    (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    (void)usleep(200);
}

/* Turns the loop until `condition`, which must become true. */
#define WAIT_FOR(f, condition)                                                                     \
    do {                                                                                           \
        uint64_t until_ = clock_ms() + PATIENCE_MS;                                                \
        while (!(condition)) {                                                                     \
            if (clock_ms() > until_)                                                               \
                fail_msg("waited in vain for %s", #condition);                                     \
            turn(f);                                                                               \
        }                                                                                          \
    } while (0)

static inline void turn_for(struct fixture *f, uint64_t ms)
{
    for (uint64_t until = clock_ms() + ms; clock_ms() < until;)
        turn(f);
}

static inline struct http_stats stats(const struct fixture *f)
{
    struct http_stats stats;
    http_server_stats(f->server, &stats);
    return stats;
}

/*** Clients ***/

static inline int client_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

static inline void client_connect(struct fixture *f, int fd)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(f->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
}

static inline int dial(struct fixture *f)
{
    int fd = client_socket();
    client_connect(f, fd);
    return fd;
}

/* Sends all of it, or as much as the server takes before it closes. */
static inline void put(struct fixture *f, int fd, const char *data, size_t len)
{
    uint64_t until = clock_ms() + PATIENCE_MS;
    while (len > 0 && clock_ms() < until) {
        ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        if (len > 0)
            turn(f);
    }
}

static inline void say(struct fixture *f, int fd, const char *text)
{
    put(f, fd, text, strlen(text));
}

/* Appends what comes to `text`, until it ends with `suffix` (NULL: to the end of the connection).
 * Fails the test when it waits in vain. Returns false when the connection was reset. */
static inline bool hear(struct fixture *f, int fd, const char *suffix, struct buf *text)
{
    size_t want = suffix ? strlen(suffix) : 0;
    uint64_t until = clock_ms() + PATIENCE_MS;
    while (!suffix || text->len < want ||
           memcmp(text->data + text->len - want, suffix, want) != 0) {
        char *room = buf_room(text, 65536);
        assert_non_null(room);
        ssize_t n = recv(fd, room, 65536, MSG_DONTWAIT);
        if (n > 0)
            buf_added(text, (size_t)n);
        else if (n == 0)
            return true;
        else if (errno != EAGAIN)
            return false;
        else
            turn(f);
        if (clock_ms() > until)
            fail_msg("waited in vain for \"%s\", got \"%s\"", suffix ? suffix : "(end)",
                     buf_str(text));
    }
    return true;
}

/* Everything up to the end of the connection, as one string, owned by the caller. */
static inline char *hear_all(struct fixture *f, int fd)
{
    struct buf text = BUF_INIT(TEXT_MAX);
    if (!hear(f, fd, NULL, &text))
        fail_msg("connection reset after \"%s\"", buf_str(&text));
    return buf_steal(&text);
}

#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        if (!strstr((text), (part)))                                                               \
            fail_msg("expected \"%s\" in \"%s\"", (part), (text));                                 \
    } while (0)

#define CHECK_LACKS(text, part)                                                                    \
    do {                                                                                           \
        if (strstr((text), (part)))                                                                \
            fail_msg("expected no \"%s\" in \"%s\"", (part), (text));                              \
    } while (0)

/* Sends `request` on a connection of its own, and returns all that comes back. */
static inline char *ask(struct fixture *f, const char *request)
{
    auto_fd fd = dial(f);
    say(f, fd, request);
    return hear_all(f, fd);
}

/* The connection still serves: one more request gets its answer, and nothing else comes first. */
static inline void check_alive(struct fixture *f, int fd)
{
    auto_buf text = BUF_INIT(TEXT_MAX);
    say(f, fd, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_true(hear(f, fd, "\r\n\r\nhello\n", &text));
    assert_true(str_has_prefix(buf_str(&text), "HTTP/1.1 200 OK\r\n"));
}

static inline size_t occurrences(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

#endif
