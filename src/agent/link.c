#include "agent/link.h"
#include "agent/link_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct link_stream_handle {
    uv_pipe_t pipe;
    struct link *link; /* NULL: the link has let go */
};

void link_enter(struct link *link)
{
    link->depth++;
}

void link_leave(struct link *link)
{
    if (--link->depth == 0 && link->freed)
        free(link);
}

/*** closing ***/

static void stream_closed(uv_handle_t *handle)
{
    free(container_of((uv_pipe_t *)handle, struct link_stream_handle, pipe));
}

static void close_stream(struct link *link)
{
    if (!link->stream)
        return;
    link->stream->link = NULL;
    if (!uv_is_closing((uv_handle_t *)&link->stream->pipe))
        uv_close((uv_handle_t *)&link->stream->pipe, stream_closed);
    link->stream = NULL;
    buf_done(&link->in);
    buf_done(&link->held);
    timer_free(link->patience);
    link->patience = NULL;
}

void link_break(struct link *link, const char *why)
{
    if (!link->stream)
        return;
    close_stream(link);
    link_run_broken(link);
    if (!link->freed)
        link_kernel_broken(link);
    if (!link->freed)
        link_file_broken(link, EPIPE);
    if (!link->freed && link->events.on_broken)
        link->events.on_broken(why, link->data);
}

void link_free(struct link *link)
{
    if (!link || link->freed)
        return;
    link_enter(link);
    link->freed = true;
    close_stream(link);
    link_run_broken(link);
    link_kernel_broken(link);
    link_file_broken(link, ECANCELED);
    link_leave(link);
}

bool link_is_calm(const struct link *link)
{
    return link->stream && link->ready && !link->on_counts && !link->run.active &&
           !link->kernel.in_cell && !link->n_files && !link->n_waiting;
}

static bool at_rest(const struct link *link)
{
    return link_is_calm(link) && !link->kernel.active;
}

int link_retire(struct link *link)
{
    uv_os_fd_t socket;
    int fd = -1;
    if (link && at_rest(link) && uv_fileno((uv_handle_t *)&link->stream->pipe, &socket) == 0)
        fd = fcntl(socket, F_DUPFD_CLOEXEC, 0); /* libuv closes its own; -1: as if not at rest */
    link_free(link);
    return fd;
}

/*** writing ***/

struct outgoing {
    uv_write_t request;
    char *bytes;
};

static void written(uv_write_t *request, int status)
{
    struct outgoing *outgoing = container_of(request, struct outgoing, request);
    struct link_stream_handle *stream =
        container_of((uv_pipe_t *)request->handle, struct link_stream_handle, pipe);
    free(outgoing->bytes);
    free(outgoing);
    struct link *link = stream->link;
    if (status == 0 || status == UV_ECANCELED || !link)
        return;
    link_enter(link);
    link_break(link, "the agent does not read any more");
    link_leave(link);
}

void link_add_frame(struct buf *out, uint8_t type, uint32_t number, const void *payload, size_t len)
{
    assert(len <= FRAME_PAYLOAD_MAX);
    char header[FRAME_HEADER];
    frame_put_header(header, type, number, len);
    (void)buf_add(out, header, sizeof(header)); /* these have no ceiling that we could reach */
    (void)buf_add(out, payload, len);
}

void link_add_frames(struct buf *out, uint8_t type, uint32_t number, const char *bytes, size_t len)
{
    while (len) {
        size_t chunk = len < FRAME_PAYLOAD_MAX ? len : FRAME_PAYLOAD_MAX;
        link_add_frame(out, type, number, bytes, chunk);
        bytes += chunk;
        len -= chunk;
    }
}

void link_write(struct link *link, struct buf *out)
{
    if (!link->stream) {
        buf_done(out);
        return;
    }
    if (link->holding) {
        (void)buf_add(&link->held, out->data, out->len);
        buf_done(out);
        return;
    }
    uv_buf_t bytes = uv_buf_init(out->data, (unsigned)out->len);
    /* Nearly always all of it, at once. Whatever keeps it from that is the other call's to tell. */
    int n = uv_try_write((uv_stream_t *)&link->stream->pipe, &bytes, 1);
    if (n == (int)out->len) {
        buf_done(out);
        return;
    }
    buf_drop(out, n > 0 ? (size_t)n : 0);
    bytes = uv_buf_init(out->data, (unsigned)out->len);
    struct outgoing *outgoing = xcalloc(1, sizeof(*outgoing));
    outgoing->bytes = buf_steal(out);
    /* A refusal at once is a stream that is closing already; reading tells the rest. */
    if (uv_write(&outgoing->request, (uv_stream_t *)&link->stream->pipe, &bytes, 1, written) < 0) {
        free(outgoing->bytes);
        free(outgoing);
    }
}

void link_hold(struct link *link)
{
    link->holding = true;
}

void link_release(struct link *link)
{
    struct buf held = link->held;
    link->held = BUF_INIT(BUF_NO_CEILING);
    link->holding = false;
    if (held.len)
        link_write(link, &held);
    else
        buf_done(&held);
    if (link->kernel.direct)
        link_direct_send(link);
}

void link_keep(struct link *link, uint64_t keep_ms, uint64_t grace_ms)
{
    char payload[FRAME_KEEP_SIZE];
    const struct frame_keep keep = {
        .keep_ms = keep_ms < FRAME_KEEP_MAX_MS ? keep_ms : FRAME_KEEP_MAX_MS,
        .grace_ms = grace_ms < FRAME_KEEP_MAX_MS ? grace_ms : FRAME_KEEP_MAX_MS,
    };
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    frame_keep_put(payload, &keep);
    link_add_frame(&out, FRAME_KEEP, 0, payload, sizeof(payload));
    link_write(link, &out);
}

int link_kernel_resume(struct link *link, const struct link_kernel_events *events, void *data,
                       uint64_t *ret_cells)
{
    if (!link->found.kernel || link->kernel.active)
        return link->found.lost ? -ESRCH : -ENOENT;
    link->kernel = (struct link_kernel_state){
        .active = true,
        .number = link->found.kernel,
        .events = *events,
        .data = data,
        .start_ns = uv_hrtime(),
        .talk = BUF_INIT(LINK_KERNEL_QUEUE),
        .talk_asked = true,
        .said = BUF_INIT(FRAME_MESSAGE_HEAD + LINK_KERNEL_MESSAGE_MAX),
        .kept_bytes = FRAME_TAIL_MAX, /* as the last cell of another server had it, at most */
    };
    *ret_cells = link->found.cells;
    link->found.kernel = 0;
    return 0;
}

int link_count(struct link *link, link_counts_fn *on_counts, void *data)
{
    if (!link->stream)
        return -EPIPE;
    if (link->on_counts)
        return -EBUSY;
    link->on_counts = on_counts;
    link->counts_data = data;
    link->count_ms = clock_ms();
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    link_add_frame(&out, FRAME_COUNT, 0, "", 0);
    link_write(link, &out);
    return 0;
}

/*** reading ***/

/* With what on_ready says goes our hello, where it has waited for that. */
static void be_ready(struct link *link)
{
    link->ready = true;
    if (link->events.on_ready)
        link->events.on_ready(link->data);
    if (link->holding)
        link_release(link);
}

static const char *take_ready(struct link *link, const struct frame *frame)
{
    struct frame_hello hello;
    if (link->greeted || frame->number != 0 || frame_hello_get(frame, &hello) < 0 ||
        hello.magic != FRAME_MAGIC)
        return "the agent's hello is not one";
    if (hello.version != FRAME_VERSION)
        return "the agent speaks another version";
    link->greeted = true;
    if (!link->resumes)
        be_ready(link);
    return NULL;
}

/* Numbers go on behind those that were used; only a hostile agent has used nearly all. */
static const char *take_idle(struct link *link, const struct frame *frame)
{
    if (!link->resumes || link->ready || frame->number != 0 ||
        frame_idle_get(frame, &link->found) < 0 || link->found.program > INT32_MAX ||
        link->found.file > INT32_MAX)
        return "the agent says of itself what cannot be";
    link->program_number = link->found.program;
    link->file_number = link->found.file;
    be_ready(link);
    return NULL;
}

static const char *take_counts(struct link *link, const struct frame *frame)
{
    struct frame_counts said;
    if (!link->on_counts || frame->number != 0 || frame_counts_get(frame, &said) < 0)
        return "the agent told counts that nobody asked for, or that are none";
    link_counts_fn *on_counts = steal_ptr(&link->on_counts);
    const struct link_counts counts = { said.oom_kills, said.pids_denied };
    on_counts(said.known ? &counts : NULL, link->counts_data);
    return NULL;
}

static const char *take(struct link *link, const struct frame *frame)
{
    if (!link->greeted && frame->type != FRAME_READY)
        return "the agent did not say hello first";
    if (!link->ready && frame->type != FRAME_READY && frame->type != FRAME_IDLE)
        return "the agent spoke before it was asked";
    switch (frame->type) {
    case FRAME_READY:
        return take_ready(link, frame);
    case FRAME_IDLE:
        return take_idle(link, frame);
    case FRAME_COUNTS:
        return take_counts(link, frame);
    case FRAME_STDOUT:
    case FRAME_STDERR:
    case FRAME_GAP:
    case FRAME_RUN_MORE:
    case FRAME_EXIT:
    case FRAME_SAID:
    case FRAME_TALK_MORE:
    case FRAME_CELL_DONE:
        if (!link->kernel.active || frame->number != link->kernel.number)
            return link_run_take(link, frame);
        if (link->kernel.direct && frame->type != FRAME_EXIT)
            return "the agent spoke for a kernel that speaks for itself";
        return link_kernel_take(link, frame);
    case FRAME_FILE_DATA:
    case FRAME_FILE_MORE:
    case FRAME_FILE_END:
        return link_file_take(link, frame);
    default:
        return "the agent sent a frame that does not exist"; /* a pong too: we do not ping yet */
    }
}

static void take_frames(struct link *link)
{
    size_t at = 0;
    const char *why = NULL;
    while (link->stream && !why) {
        struct frame frame;
        int n = frame_parse(link->in.data + at, link->in.len - at, &frame);
        if (n == 0)
            break;
        why = n < 0 ? "the agent sent a frame that is too long" : take(link, &frame);
        at += n > 0 ? (size_t)n : 0;
    }
    if (why)
        link_break(link, why);
    if (link->stream && at == link->in.len)
        buf_done(&link->in); /* idle links hold no memory */
    else if (link->stream)
        buf_drop(&link->in, at);
}

/* One place for all links: what is read is looked at before anything else is read. */
static void lend_memory(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)handle;
    (void)suggested;
    static char memory[FRAME_PAYLOAD_MAX];
    *ret = uv_buf_init(memory, sizeof(memory));
}

static void received(uv_stream_t *handle, ssize_t len, const uv_buf_t *bytes)
{
    struct link *link = container_of((uv_pipe_t *)handle, struct link_stream_handle, pipe)->link;
    if (!link || len == 0)
        return;
    link_enter(link);
    if (len == UV_EOF)
        link_break(link, "the agent has closed the stream");
    else if (len < 0)
        link_break(link, "the stream to the agent cannot be read");
    else if (buf_add(&link->in, bytes->base, (size_t)len) < 0)
        assert(!"what was left over is less than one frame");
    else
        take_frames(link);
    link_leave(link);
}

static bool count_overdue(const struct link *link)
{
    return link->on_counts && clock_ms() - link->count_ms > LINK_PATIENCE_MS;
}

static void lose_patience(void *data)
{
    struct link *link = data;
    link_enter(link);
    if (!link->ready || count_overdue(link) || link_file_overdue(link))
        link_break(link, "the agent does not answer");
    link_leave(link);
}

/*** making ***/

static struct link *open_link(uv_loop_t *loop, int fd, const struct link_events *events, void *data)
{
    struct link *link = xcalloc(1, sizeof(*link));
    link->loop = loop;
    link->events = *events;
    link->data = data;
    link->in = BUF_INIT(LINK_IN_MAX);
    link->held = BUF_INIT(BUF_NO_CEILING);
    list_init(&link->files);
    list_init(&link->files_waiting);
    link->patience = timer_new(loop, lose_patience, link);
    timer_repeat(link->patience, LINK_PATIENCE_MS);

    link->stream = xcalloc(1, sizeof(*link->stream));
    link->stream->link = link;
    (void)uv_pipe_init(loop, &link->stream->pipe, /* ipc= */ 0); /* cannot fail */
    if (uv_pipe_open(&link->stream->pipe, fd) < 0) {
        /* Not a stream. Reading fails then, and is reported from the loop like any other end. */
        close(fd);
    }
    (void)uv_read_start((uv_stream_t *)&link->stream->pipe, lend_memory, received);
    return link;
}

static void say_hello(struct link *link)
{
    char hello[FRAME_HELLO_SIZE];
    frame_hello_put(hello, &(struct frame_hello){ .magic = FRAME_MAGIC, .version = FRAME_VERSION });
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    link_add_frame(&out, FRAME_HELLO, 0, hello, sizeof(hello));
    link_write(link, &out);
}

/* A new agent has said hello before it is spoken to, most often long before: it need not be woken up for ours. */
struct link *link_new(uv_loop_t *loop, int fd, const struct link_events *events, void *data)
{
    struct link *link = open_link(loop, fd, events, data);
    link_hold(link);
    say_hello(link);
    return link;
}

void link_hear(struct link *link)
{
    uv_buf_t room;
    uv_os_fd_t fd;
    if (!link->stream || uv_fileno((uv_handle_t *)&link->stream->pipe, &fd) < 0)
        return;
    lend_memory(NULL, 0, &room);
    ssize_t len = recv(fd, room.base, room.len, MSG_DONTWAIT);
    if (len > 0) /* an end, or that it is no socket, is seen from the loop */
        received((uv_stream_t *)&link->stream->pipe, len, &room);
}

struct link *link_resume(uv_loop_t *loop, int fd, const struct link_events *events, void *data)
{
    struct link *link = open_link(loop, fd, events, data);
    say_hello(link);
    link->resumes = true; /* nothing has been read yet */
    return link;
}
