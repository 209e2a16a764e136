/*
 * The stdio transport: one message a line, in and out.
 *
 * The client may be a pipe, a socket, a terminal or (in scripts) a regular file; libuv has a
 * stream for the first three, a file is read in steps through its thread pool.
 *
 * Back pressure: while more than HIGH_WATER bytes wait for a client that does not read, progress
 * and log messages are dropped and no further line is read, so a flood of requests can fill one
 * pipe and no memory.
 */
#include "mcp/server.h"

#include "base/buf.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_STEP = 64 << 10, HIGH_WATER = 4 << 20, FLUSH_MS = 2000 };

struct mcp_stdio {
    struct mcp_server *server;
    struct outlet outlet;
    struct peer peer;
    void (*on_end)(void *data);
    void *data;

    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tty_t tty;
    } in, out;
    bool in_is_file, out_is_file;
    int in_fd, out_fd;
    uv_fs_t file_read;
    uv_timer_t soon; /* on_end comes from the loop, never from inside a send */

    char *step;      /* READ_STEP bytes */
    struct buf line; /* what has come of the current line */
    bool skipping;   /* the current line is over the limit: wait for its end */
    bool paused;     /* reading waits for the client to read */
    bool flushing;   /* the client closed its side; it may still read what waits */
    bool ended;      /* on_end is due or done */
    bool freed;
    unsigned handles; /* open; the struct goes with the last */
};

/*** The end ***/

static void stdio_closed(struct mcp_stdio *stdio)
{
    if (--stdio->handles > 0)
        return;
    buf_done(&stdio->line);
    free(stdio->step);
    free(stdio);
}

static void on_closed(uv_handle_t *handle)
{
    stdio_closed(handle->data);
}

static void on_soon(uv_timer_t *timer)
{
    struct mcp_stdio *stdio = timer->data;
    stdio->on_end(stdio->data);
}

static void stdio_end(struct mcp_stdio *stdio)
{
    if (stdio->ended || stdio->freed)
        return;
    stdio->ended = true;
    uv_timer_start(&stdio->soon, on_soon, 0, 0);
}

static void on_flush_over(uv_timer_t *timer)
{
    stdio_end(timer->data);
}

/*** Out ***/

struct line_write {
    uv_write_t request;
    uv_buf_t buf;
};

static void stdio_resume(struct mcp_stdio *stdio);

static size_t unsent(const struct mcp_stdio *stdio)
{
    return stdio->out_is_file ? 0 : uv_stream_get_write_queue_size(&stdio->out.stream);
}

static void on_written(uv_write_t *request, int status)
{
    struct line_write *write = container_of(request, struct line_write, request);
    struct mcp_stdio *stdio = request->handle->data;
    free(write->buf.base);
    free(write);
    if (stdio->freed)
        return;
    if (status < 0 || (stdio->flushing && unsent(stdio) == 0))
        stdio_end(stdio);
    else
        stdio_resume(stdio);
}

/* Files do not push back; whatever they refuse is final. */
static void write_to_file(struct mcp_stdio *stdio, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(stdio->out_fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            stdio_end(stdio);
            return;
        }
        text += n;
        len -= (size_t)n;
    }
}

static void stdio_send(struct outlet *outlet, const char *text, size_t len, enum outlet_kind kind,
                       int status)
{
    (void)status;
    struct mcp_stdio *stdio = container_of(outlet, struct mcp_stdio, outlet);
    if (kind == OUTLET_HINT && unsent(stdio) > HIGH_WATER)
        return;

    /* The text and its newline leave as one unit. */
    char *copy = xmalloc(len + 1);
    memcpy(copy, text, len);
    copy[len++] = '\n';
    if (stdio->out_is_file) {
        write_to_file(stdio, copy, len);
        free(copy);
        return;
    }
    size_t sent = 0;
    if (unsent(stdio) == 0) {
        uv_buf_t all = uv_buf_init(copy, (unsigned)len);
        int n = uv_try_write(&stdio->out.stream, &all, 1);
        sent = n > 0 ? (size_t)n : 0;
    }
    if (sent == len) {
        free(copy);
        return;
    }
    struct line_write *write = xcalloc(1, sizeof(*write));
    memmove(copy, copy + sent, len - sent);
    write->buf = uv_buf_init(copy, (unsigned)(len - sent));
    if (uv_write(&write->request, &stdio->out.stream, &write->buf, 1, on_written) < 0) {
        free(copy);
        free(write);
        stdio_end(stdio);
    }
}

static void stdio_abandon(struct outlet *outlet)
{
    (void)outlet; /* nothing waits for the answer on a shared channel */
}

static bool stdio_can_push(const struct outlet *outlet)
{
    (void)outlet;
    return true;
}

static void stdio_outlet_free(struct outlet *outlet)
{
    stdio_closed(container_of(outlet, struct mcp_stdio, outlet));
}

static const struct outlet_ops stdio_ops = {
    .send = stdio_send,
    .abandon = stdio_abandon,
    .can_push = stdio_can_push,
    .free = stdio_outlet_free,
};

/*** In ***/

static void refuse_line(struct mcp_stdio *stdio, int code, const char *text)
{
    struct rpc_error error = { 0 };
    rpc_error_set(&error, code, "%s", text);
    dispatch_refuse(&stdio->outlet, NULL, &error, 400);
}

static bool is_blank(const char *text, size_t len)
{
    return strspn(text, " \t\r") == len;
}

static void take_line(struct mcp_stdio *stdio)
{
    struct buf *line = &stdio->line;
    struct err err = { 0 };
    json_t *root = NULL;
    if (line->len && line->data[line->len - 1] == '\r')
        line->data[--line->len] = '\0';
    if (is_blank(buf_str(line), line->len))
        return;
    int r = json_read(line->data, line->len, &stdio->server->limits.json, &root, &err);
    if (r < 0) {
        refuse_line(stdio, MCP_PARSE_ERROR, err.msg);
        return;
    }
    dispatch_line(&stdio->peer, &stdio->outlet, root);
    json_decref(root);
    memory_trim(line->len);
}

static void add_to_line(struct mcp_stdio *stdio, const char *bytes, size_t len)
{
    if (stdio->skipping || buf_add(&stdio->line, bytes, len) == 0)
        return;
    stdio->skipping = true;
    auto_free char *text =
        xasprintf("the message is longer than max_message (%zu bytes)", stdio->line.max);
    refuse_line(stdio, MCP_INVALID_REQUEST, text);
}

static void end_line(struct mcp_stdio *stdio)
{
    if (!stdio->skipping)
        take_line(stdio);
    stdio->skipping = false;
    if (stdio->line.cap > READ_STEP)
        buf_done(&stdio->line); /* one large message must not cost memory for ever */
    else
        buf_clear(&stdio->line);
}

static void take_bytes(struct mcp_stdio *stdio, const char *bytes, size_t len)
{
    while (len > 0 && !stdio->ended) {
        const char *newline = memchr(bytes, '\n', len);
        size_t part = newline ? (size_t)(newline - bytes) : len;
        add_to_line(stdio, bytes, part);
        if (!newline)
            return;
        end_line(stdio);
        bytes += part + 1;
        len -= part + 1;
    }
}

static void take_end(struct mcp_stdio *stdio)
{
    end_line(stdio); /* a last line without its newline is still a line */
    if (unsent(stdio) == 0) {
        stdio_end(stdio);
        return;
    }
    stdio->flushing = true;
    uv_timer_start(&stdio->soon, on_flush_over, FLUSH_MS, 0);
}

static void stdio_pause_if_full(struct mcp_stdio *stdio)
{
    if (stdio->paused || stdio->in_is_file || unsent(stdio) <= HIGH_WATER)
        return;
    stdio->paused = true;
    uv_read_stop(&stdio->in.stream);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct mcp_stdio *stdio = handle->data;
    *ret = uv_buf_init(stdio->step, READ_STEP);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct mcp_stdio *stdio = stream->data;
    if (n < 0) {
        uv_read_stop(stream);
        take_end(stdio);
        return;
    }
    take_bytes(stdio, buf->base, (size_t)n);
    stdio_pause_if_full(stdio);
}

static void stdio_resume(struct mcp_stdio *stdio)
{
    if (!stdio->paused || unsent(stdio) > HIGH_WATER / 2)
        return;
    stdio->paused = false;
    if (uv_read_start(&stdio->in.stream, on_alloc, on_read) < 0)
        stdio_end(stdio);
}

static void read_file_step(struct mcp_stdio *stdio);

static void on_file_read(uv_fs_t *request)
{
    struct mcp_stdio *stdio = request->data;
    ssize_t n = request->result;
    uv_fs_req_cleanup(request);
    if (stdio->freed) {
        stdio_closed(stdio);
        return;
    }
    if (n > 0) {
        take_bytes(stdio, stdio->step, (size_t)n);
        read_file_step(stdio);
        return;
    }
    stdio->handles--; /* this request held the struct */
    take_end(stdio);
}

static void read_file_step(struct mcp_stdio *stdio)
{
    uv_buf_t room = uv_buf_init(stdio->step, READ_STEP);
    stdio->file_read.data = stdio;
    if (uv_fs_read(stdio->server->loop, &stdio->file_read, stdio->in_fd, &room, 1, -1,
                   on_file_read) < 0) {
        stdio->handles--;
        take_end(stdio);
    }
}

/*** The beginning ***/

/* Opens `fd` as the stream libuv has for it; true when it is a file (or nothing) instead. */
static bool open_stream(uv_loop_t *loop, uv_handle_t *handle, int fd)
{
    switch (uv_guess_handle(fd)) {
    case UV_TTY:
        return uv_tty_init(loop, (uv_tty_t *)handle, fd, 0) < 0;
    case UV_NAMED_PIPE:
    case UV_TCP: /* a connected socket is read and written the same way */
        if (uv_pipe_init(loop, (uv_pipe_t *)handle, 0) < 0)
            return true;
        if (uv_pipe_open((uv_pipe_t *)handle, fd) == 0)
            return false;
        uv_close(handle, NULL);
        return true;
    default:
        return true;
    }
}

struct mcp_stdio *mcp_stdio_start(struct mcp_server *server, int in_fd, int out_fd,
                                  void (*on_end)(void *data), void *data)
{
    struct mcp_stdio *stdio = xcalloc(1, sizeof(*stdio));
    stdio->server = server;
    stdio->outlet = (struct outlet){ .ops = &stdio_ops, .refs = 1 };
    stdio->on_end = on_end;
    stdio->data = data;
    stdio->in_fd = in_fd;
    stdio->out_fd = out_fd;
    stdio->step = xmalloc(READ_STEP);
    stdio->line = BUF_INIT(server->limits.max_message);
    peer_init(&stdio->peer, server, "stdio");
    stdio->peer.standing = outlet_ref(&stdio->outlet);

    stdio->handles = 2; /* the timer, and the outlet that calls refer to */
    uv_timer_init(server->loop, &stdio->soon);
    stdio->soon.data = stdio;
    stdio->in_is_file = open_stream(server->loop, &stdio->in.handle, in_fd);
    stdio->out_is_file = open_stream(server->loop, &stdio->out.handle, out_fd);
    stdio->handles += !stdio->in_is_file + !stdio->out_is_file;
    stdio->in.handle.data = stdio->out.handle.data = stdio;
    if (stdio->in_is_file) {
        stdio->handles++;
        read_file_step(stdio);
    } else if (uv_read_start(&stdio->in.stream, on_alloc, on_read) < 0) {
        stdio_end(stdio);
    }
    return stdio;
}

void mcp_stdio_free(struct mcp_stdio *stdio)
{
    if (!stdio)
        return;
    notify_end_listens(&stdio->peer, true);
    stdio->freed = true;
    peer_done(&stdio->peer);
    if (!stdio->in_is_file)
        uv_close(&stdio->in.handle, on_closed);
    if (!stdio->out_is_file)
        uv_close(&stdio->out.handle, on_closed);
    uv_close((uv_handle_t *)&stdio->soon, on_closed);
    outlet_unref(&stdio->outlet);
}
