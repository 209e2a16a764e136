/*
 * The whole server: one client sends the input, cut in pieces, over a real connection, to a
 * handler that answers in every way there is. The first bytes choose how it is cut and whether the
 * client reads. Whatever comes, each request must end exactly once, and nothing must be left.
 */
#include "base/base.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            perror(#condition);                                                                    \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct target {
    uv_loop_t loop;
    struct http_server *server;
    struct sockaddr_in address;
    int client;
    struct http_request *kept;
    unsigned begun;
    unsigned ended;
};

static void on_gone(void *data)
{
    struct target *t = data;
    t->kept = NULL;
    t->ended++;
}

static void stream(struct target *t, struct http_request *req, const char *text, size_t len)
{
    http_stream_start(req, 200, NULL);
    (void)http_stream_write(req, text, len);
    (void)http_stream_write(req, text, len / 2);
    http_stream_end(req);
    t->ended++;
}

static void on_body(struct http_request *req, const char *body, size_t len, void *data)
{
    struct target *t = data;
    check(body[len] == '\0');
    if (strcmp(http_request_path(req), "/b") == 0) {
        stream(t, req, body, len);
        return;
    }
    http_respond(req, 200, NULL, body, len);
    t->ended++;
}

/* By path: /b and /c read the body, /d streams, /e waits for the test, others answer at once. */
static void on_request(struct http_request *req, void *data)
{
    struct target *t = data;
    const char *path = http_request_path(req);
    t->begun++;
    http_request_on_gone(req, on_gone, t);
    if (strcmp(path, "/b") == 0 || strcmp(path, "/c") == 0) {
        http_request_read_body(req, 0, on_body, t);
    } else if (strcmp(path, "/d") == 0) {
        stream(t, req, "some text", 9);
    } else if (strcmp(path, "/e") == 0) {
        t->kept = req;
    } else {
        http_respond(req, 404, NULL, "no\n", 3);
        t->ended++;
    }
}

static void answer_kept(struct target *t)
{
    if (!t->kept)
        return;
    struct http_request *req = t->kept;
    t->kept = NULL;
    http_respond(req, 200, NULL, "late\n", 5);
    t->ended++;
}

/* Once for all inputs: to start a server takes longer than to serve one. */
static void target_open(struct target *t)
{
    const struct http_options options = { .limits = { .max_header_bytes = 1024,
                                                      .max_headers = 16,
                                                      .max_body = 2048,
                                                      .max_connections = 2,
                                                      .max_connections_per_address = 2,
                                                      .max_backlog = 1024 } };
    (void)signal(SIGPIPE, SIG_IGN);
    check(uv_loop_init(&t->loop) == 0);
    check(http_server_new(&t->loop, &options, on_request, t, &t->server, NULL) == 0);
    auto_free char *bound = NULL;
    check(http_server_listen(t->server, "127.0.0.1:0", &bound, NULL) == 0);
    t->address = (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)strtoul(strrchr(bound, ':') + 1, NULL, 10)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

/* False: every port is in use, or remembers a connection that was closed from our side. */
static bool dial(struct target *t)
{
    t->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(t->client >= 0);
    /* Closing resets, so that millions of runs do not use up the ports. */
    const struct linger linger = { .l_onoff = 1 };
    check(setsockopt(t->client, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
    if (connect(t->client, (const struct sockaddr *)&t->address, sizeof(t->address)) == 0)
        return true;
    check(errno == EADDRNOTAVAIL);
    (void)close(t->client);
    (void)usleep(10000);
    return false;
}

static void turn(struct target *t, bool reads)
{
    char sink[4096];
    (void)uv_run(&t->loop, UV_RUN_NOWAIT);
    while (reads && recv(t->client, sink, sizeof(sink), MSG_DONTWAIT) > 0)
        ;
}

static bool is_empty(const struct target *t)
{
    struct http_stats stats;
    http_server_stats(t->server, &stats);
    return stats.connections_open == 0;
}

static void hang_up(struct target *t)
{
    (void)close(t->client);
    answer_kept(t);
    /* The reset reaches the server when the kernel comes to it: at once, or later on a busy machine. */
    for (int i = 0; i < 10000 && !is_empty(t); i++) {
        (void)uv_run(&t->loop, UV_RUN_NOWAIT);
        if (i >= 100)
            (void)usleep(1000);
    }
    check(is_empty(t) && !t->kept);
    check(t->begun == t->ended);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct target t;
    if (size < 2)
        return 0;
    if (!t.server)
        target_open(&t);
    size_t step = 1u + data[0] * 8u;
    bool reads = data[1] & 1, late = data[1] & 2, shuts = data[1] & 4;
    if (!dial(&t))
        return -1; /* not an input to keep */
    turn(&t, reads);
    for (size_t at = 2; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        if (send(t.client, data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            break; /* closed, or full, as may be */
        turn(&t, reads);
        if (late)
            answer_kept(&t);
    }
    if (shuts)
        (void)shutdown(t.client, SHUT_WR);
    turn(&t, reads);
    hang_up(&t);
    return 0;
}
