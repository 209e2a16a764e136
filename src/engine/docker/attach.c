/*
 * The connection is made by libcurl, like all others. Over TLS it stays libcurl's, which then reads and
 * writes for us; otherwise its socket is taken from it and libcurl is gone.
 *
 *   server ══ socket pair ══ here ── [request, set-up, bytes] ──▶ engine ─▶ container's input
 *                             ▲────── [head, pieces] ◀──────────┘
 */
#include "engine/docker/attach.h"

#include "base/log.h"
#include "base/loop.h"
#include "base/text.h"
#include "engine/docker/hub.h"
#include "engine/docker/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CHUNK = 64 * 1024,
    QUEUE_MAX = 256 * 1024, /* one way */
    ROUNDS = 16,            /* in one turn of the loop */
    COMPLAINT_MAX = 300,
};

enum state {
    ATTACH_CONNECTING,
    ATTACH_ASKING, /* the head of the answer is still to come */
    ATTACH_OPEN,
    ATTACH_OVER,
};

struct docker_attach {
    uv_loop_t *loop;
    const struct docker_target *target;
    struct docker_attach_events events;
    void *data;
    enum state state;
    struct hub *hub; /* NULL: the socket is ours */
    struct hub_transfer transfer;
    char words[CURL_ERROR_SIZE];
    int engine_fd; /* -1: none yet */
    int fd;
    uv_poll_t *engine_poll, *poll; /* freed by their close callbacks */
    struct timer *patience;        /* until the head has come */
    struct timer *again;           /* there is more to do, but others have their turn */
    struct buf to_engine;          /* sent up to to_engine_at */
    size_t to_engine_at;
    struct buf to_socket;
    size_t to_socket_at;
    struct buf head;
    struct buf before;
    struct buf complaint; /* what came from its standard error */
    struct docker_demux demux;
    bool heard, told; /* some output has come; and on_first knows */
    CURLcode connected;
};

/*** The end ***/

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void stop_poll(uv_poll_t **poll)
{
    if (*poll)
        uv_close((uv_handle_t *)steal_ptr(poll), poll_closed);
}

static void drop_curl(struct docker_attach *attach)
{
    if (!attach->hub)
        return;
    hub_remove(attach->hub, &attach->transfer);
    curl_easy_cleanup(attach->transfer.easy);
    hub_free(steal_ptr(&attach->hub));
}

static void close_all(struct docker_attach *attach)
{
    attach->state = ATTACH_OVER;
    stop_poll(&attach->engine_poll);
    stop_poll(&attach->poll);
    if (attach->hub)
        attach->engine_fd = -1; /* libcurl's */
    drop_curl(attach);
    fd_closep(&attach->engine_fd);
    attach->engine_fd = -1;
    fd_closep(&attach->fd);
    attach->fd = -1;
    timer_stop(attach->patience);
    timer_stop(attach->again);
}

void docker_attach_free(struct docker_attach *attach)
{
    if (!attach)
        return;
    close_all(attach);
    timer_free(attach->patience);
    timer_free(attach->again);
    buf_done(&attach->to_engine);
    buf_done(&attach->to_socket);
    buf_done(&attach->head);
    buf_done(&attach->before);
    buf_done(&attach->complaint);
    free(attach);
}

/* The owner may free it in here. */
static void end(struct docker_attach *attach, struct err *err)
{
    if (attach->state == ATTACH_OVER)
        return;
    close_all(attach);
    if (attach->complaint.len) {
        auto_free char *shown = text_quote(buf_str(&attach->complaint), COMPLAINT_MAX);
        auto_free char *inner = xstrdup(err->msg);
        (void)err_set(err, err->code, "%s: %s", inner, shown);
    }
    attach->events.on_end(err, attach->data);
}

/*** Bytes to and from the engine: how many, 0: not now, -EPIPE: over, or -errno ***/

static ssize_t engine_read(struct docker_attach *attach, char *to, size_t len)
{
    size_t n = 0;
    if (!attach->hub) {
        ssize_t got = recv(attach->engine_fd, to, len, MSG_DONTWAIT);
        if (got < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        return got == 0 ? -EPIPE : got;
    }
    CURLcode code = curl_easy_recv(attach->transfer.easy, to, len, &n);
    if (code == CURLE_AGAIN)
        return 0;
    return code != CURLE_OK ? -EIO : n == 0 ? -EPIPE : (ssize_t)n;
}

static ssize_t engine_write(struct docker_attach *attach, const char *from, size_t len)
{
    size_t n = 0;
    if (!attach->hub) {
        ssize_t put = send(attach->engine_fd, from, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        return put >= 0 ? put : errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    CURLcode code = curl_easy_send(attach->transfer.easy, from, len, &n);
    return code == CURLE_AGAIN ? 0 : code != CURLE_OK ? -EIO : (ssize_t)n;
}

/*** What comes ***/

static void take_complaint(struct docker_attach *attach, const struct docker_piece *piece)
{
    size_t room = COMPLAINT_MAX - attach->complaint.len;
    (void)buf_add(&attach->complaint, piece->bytes, piece->len < room ? piece->len : room);
}

/* 0, or -EPROTO. The queue has room for CHUNK. */
static int take_pieces(struct docker_attach *attach, const char *bytes, size_t len)
{
    while (len) {
        struct docker_piece piece;
        int n = docker_demux_next(&attach->demux, bytes, len, &piece);
        if (n < 0)
            return n;
        if (piece.stream == DOCKER_STDERR)
            take_complaint(attach, &piece);
        else
            (void)buf_add(&attach->to_socket, piece.bytes, piece.len);
        attach->heard |= piece.stream == DOCKER_STDOUT && piece.len;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

static int refuse(struct docker_attach *attach, int status, size_t head_len, struct err *err)
{
    auto_free char *said = text_quote(buf_str(&attach->head) + head_len, COMPLAINT_MAX);
    return err_set(err, EPROTO, "attach to a container: the engine answered %d: %s", status, said);
}

static int take_head(struct docker_attach *attach, const char *bytes, size_t len, struct err *err)
{
    int status = 0;
    if (buf_add(&attach->head, bytes, len) < 0)
        return err_set(err, EMSGSIZE, "attach to a container: too long a head");
    int n = docker_head_parse(attach->head.data, attach->head.len, &status);
    if (n < 0)
        return err_set(err, EPROTO, "attach to a container: the engine does not speak HTTP");
    if (n == 0)
        return 0;
    if (status != 101 && status != 200)
        return refuse(attach, status, (size_t)n, err);
    attach->state = ATTACH_OPEN;
    timer_stop(attach->patience);
    (void)buf_add(&attach->to_engine, attach->before.data, attach->before.len);
    buf_done(&attach->before);
    int r = take_pieces(attach, attach->head.data + n, attach->head.len - (size_t)n);
    buf_done(&attach->head);
    return r < 0 ? err_set(err, EPROTO, "attach to a container: junk behind the head") : 0;
}

/* One chunk. 1: something came, 0: nothing now; negative and err: it is over. */
static int receive(struct docker_attach *attach, struct err *err)
{
    static char chunk[CHUNK];
    if (attach->to_socket.len - attach->to_socket_at > QUEUE_MAX - CHUNK)
        return 0;
    ssize_t n = engine_read(attach, chunk, sizeof(chunk));
    if (n == -EPIPE)
        return err_set(err, EPIPE, "the container has ended");
    if (n < 0)
        return err_sys(err, (int)-n, "the connection to the container");
    if (n == 0)
        return 0;
    if (attach->state == ATTACH_ASKING)
        return take_head(attach, chunk, (size_t)n, err) < 0 ? -err->code : 1;
    if (take_pieces(attach, chunk, (size_t)n) < 0)
        return err_set(err, EPROTO, "the container engine sent junk as a container's output");
    return 1;
}

/*** The two queues ***/

/* Forgets what has been sent. */
static void compact(struct buf *queue, size_t *at)
{
    if (*at == queue->len)
        buf_done(queue);
    else if (*at > CHUNK)
        buf_drop(queue, *at);
    else
        return;
    *at = 0;
}

static int send_to_engine(struct docker_attach *attach, struct err *err)
{
    struct buf *queue = &attach->to_engine;
    if (attach->to_engine_at == queue->len)
        return 0;
    ssize_t n =
        engine_write(attach, queue->data + attach->to_engine_at, queue->len - attach->to_engine_at);
    if (n < 0)
        return err_sys(err, (int)-n, "the connection to the container");
    attach->to_engine_at += (size_t)n;
    compact(queue, &attach->to_engine_at);
    return n > 0;
}

static int send_to_socket(struct docker_attach *attach)
{
    struct buf *queue = &attach->to_socket;
    if (attach->to_socket_at == queue->len)
        return 0;
    ssize_t n = send(attach->fd, queue->data + attach->to_socket_at,
                     queue->len - attach->to_socket_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        attach->to_socket_at = queue->len; /* nobody reads: the other direction tells */
    if (n > 0)
        attach->to_socket_at += (size_t)n;
    compact(queue, &attach->to_socket_at);
    return n > 0;
}

/* What the server says. Its end is not ours: it destroys the sandbox. */
static int read_socket(struct docker_attach *attach)
{
    char *room =
        attach->to_engine.len < QUEUE_MAX - CHUNK ? buf_room(&attach->to_engine, CHUNK) : NULL;
    if (attach->state != ATTACH_OPEN || !attach->poll || !room)
        return 0;
    ssize_t n = recv(attach->fd, room, CHUNK, MSG_DONTWAIT);
    if (n > 0)
        buf_added(&attach->to_engine, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        stop_poll(&attach->poll);
    return n > 0;
}

static void on_event(uv_poll_t *poll, int status, int events);

static void watch(struct docker_attach *attach)
{
    bool open = attach->state == ATTACH_OPEN;
    bool may_receive = attach->to_socket.len - attach->to_socket_at <= QUEUE_MAX - CHUNK;
    bool has_more = attach->to_engine_at < attach->to_engine.len;
    (void)uv_poll_start(attach->engine_poll,
                        (may_receive ? UV_READABLE : 0) | (has_more ? UV_WRITABLE : 0), on_event);
    bool may_read = open && attach->to_engine.len < QUEUE_MAX - CHUNK;
    bool may_write = attach->to_socket_at < attach->to_socket.len;
    int events = (may_read ? UV_READABLE : 0) | (may_write ? UV_WRITABLE : 0);
    if (attach->poll && events)
        (void)uv_poll_start(attach->poll, events, on_event);
    else if (attach->poll)
        (void)uv_poll_stop(attach->poll);
}

/* Moves what can be moved. Over TLS bytes may wait inside libcurl, of which no socket tells: so it goes
 * on until nothing moves. */
static void pump(struct docker_attach *attach)
{
    struct err err;
    bool was_open = attach->state == ATTACH_OPEN;
    int moved = 1;
    for (int i = 0; i < ROUNDS && moved; i++) {
        int received = receive(attach, &err);
        int sent = received < 0 ? received : send_to_engine(attach, &err);
        (void)send_to_socket(attach); /* also what came last */
        if (received < 0 || sent < 0) {
            end(attach, &err);
            return;
        }
        moved = received | sent | read_socket(attach);
    }
    bool opened = !was_open && attach->state == ATTACH_OPEN;
    bool first = attach->heard && !attach->told && !opened;
    if (moved || (opened && attach->heard)) /* output that came with the head is told of next */
        timer_start(attach->again, 0);
    watch(attach);
    attach->told |= first;
    if (opened)
        attach->events.on_open(attach->data);
    else if (first)
        attach->events.on_first(attach->data);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events; /* pump() finds out itself */
    pump(poll->data);
}

/*** The beginning ***/

static uv_poll_t *start_poll(struct docker_attach *attach, int fd)
{
    uv_poll_t *poll = xcalloc(1, sizeof(*poll));
    poll->data = attach;
    if (uv_poll_init(attach->loop, poll, fd) == 0)
        return poll;
    free(poll);
    return NULL;
}

/* The connection is there. Not from a callback of libcurl's, which may have to go. */
static void take_connection(struct docker_attach *attach)
{
    struct err err;
    curl_socket_t fd = CURL_SOCKET_BAD;
    CURL *easy = attach->transfer.easy;
    if (attach->connected != CURLE_OK) {
        (void)docker_target_explain(attach->target, easy, attach->connected, attach->words, &err);
        end(attach, &err);
        return;
    }
    (void)curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
    attach->engine_fd = attach->target->tls ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (!attach->target->tls)
        drop_curl(attach);
    attach->engine_poll = attach->engine_fd < 0 ? NULL : start_poll(attach, attach->engine_fd);
    attach->poll = start_poll(attach, attach->fd);
    if (!attach->engine_poll || !attach->poll) {
        (void)err_sys(&err, EMFILE, "watch the connection to a container");
        end(attach, &err);
        return;
    }
    attach->state = ATTACH_ASKING;
    pump(attach);
}

static void go_on(void *data)
{
    struct docker_attach *attach = data;
    if (attach->state == ATTACH_CONNECTING)
        take_connection(attach);
    else
        pump(attach);
}

static void on_connected(struct hub_transfer *transfer, CURLcode code)
{
    struct docker_attach *attach = container_of(transfer, struct docker_attach, transfer);
    attach->connected = code;
    timer_start(attach->again, 0);
}

static void lose_patience(void *data)
{
    struct docker_attach *attach = data;
    struct err err;
    (void)docker_target_explain(attach->target, NULL, CURLE_OPERATION_TIMEDOUT, "", &err);
    end(attach, &err);
}

static void connect_to_engine(struct docker_attach *attach)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        abort(); /* no memory */
    attach->hub = hub_new(attach->loop, /* max_connections= */ 1);
    attach->transfer = (struct hub_transfer){ easy, on_connected };
    docker_target_apply(attach->target, easy);
    (void)curl_easy_setopt(easy, CURLOPT_URL, attach->target->url);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, attach->words);
    hub_add(attach->hub, &attach->transfer);
}

struct docker_attach *docker_attach_new(uv_loop_t *loop, const struct docker_api *api,
                                        const char *path, const char *body,
                                        const struct buf *before, int fd, uint64_t timeout_ms,
                                        const struct docker_attach_events *events, void *data)
{
    struct docker_attach *attach = xcalloc(1, sizeof(*attach));
    attach->loop = loop;
    attach->target = docker_api_target(api);
    attach->events = *events;
    attach->data = data;
    attach->engine_fd = -1;
    attach->fd = fd;
    attach->to_engine = attach->to_socket = BUF_INIT(BUF_NO_CEILING); /* bounded by receive() … */
    attach->head = BUF_INIT(DOCKER_HEAD_MAX + CHUNK);
    attach->before = attach->complaint = BUF_INIT(BUF_NO_CEILING); /* … and by their makers */
    (void)buf_add(&attach->before, before->data, before->len);
    (void)buf_printf(&attach->to_engine,
                     "POST %s%s HTTP/1.1\r\n"
                     "Host: docker\r\nUser-Agent: belljar/" BELLJAR_VERSION "\r\n"
                     "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     docker_api_prefix(api), path, strlen(body), body);
    attach->again = timer_new(loop, go_on, attach);
    attach->patience = timer_new(loop, lose_patience, attach);
    timer_start(attach->patience, timeout_ms);
    connect_to_engine(attach);
    return attach;
}
