/*
 * The kernel, as the server sees it: its messages are put together here, and nothing that agent or
 * kernel say is believed. An agent that breaks the rules ends the stream; a kernel that does is killed,
 * and the sandbox stays.
 */
#include "agent/link_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = FRAME_MESSAGE_HEAD };

/*** asking ***/

static int start(struct link *link, const struct link_kernel_spec *spec,
                 const struct link_kernel_events *events, void *data, struct err *err)
{
    if (!link->stream)
        return err_set(err, EPIPE, "the sandbox is gone");
    if (link->kernel.active)
        return err_set(err, EBUSY, "there is a kernel already");
    if (spec->source && spec->source_len > LINK_KERNEL_SOURCE_MAX)
        return err_set(err, EFBIG, "source: more than %d bytes", LINK_KERNEL_SOURCE_MAX);
    struct frame_run frame = {
        .tail_bytes = LINK_KERNEL_KEPT,
        .flood_bytes = LINK_KERNEL_FLOOD,
        .code_len = spec->source ? spec->source_len : 0,
        .has_code = spec->source != NULL,
        .joined = spec->joined != NULL,
    };
    auto_buf args = BUF_INIT(FRAME_ARGS_MAX);
    int r =
        spec->joined ? 0 : link_collect_args(spec->argv, spec->env, spec->cwd, &args, &frame, err);
    if (r < 0)
        return r;

    link->kernel = (struct link_kernel_state){
        .active = true,
        .number = ++link->program_number,
        .events = *events,
        .data = data,
        .start_ns = uv_hrtime(),
        .talk = BUF_INIT(LINK_KERNEL_QUEUE),
        .talk_asked = true,
        .said = BUF_INIT(LENGTH + LINK_KERNEL_MESSAGE_MAX),
        .kept_bytes = LINK_KERNEL_KEPT,
    };
    if (spec->joined) {
        const struct link_pipes ours = *spec->joined;
        *spec->joined = (struct link_pipes)LINK_PIPES_NONE;
        r = link_direct_begin(link, &ours, err);
        link->kernel.active = r == 0;
    }
    if (r < 0)
        return r;
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    link_add_program(&out, FRAME_KERNEL, link->kernel.number, &frame, &args, spec->source);
    link_write(link, &out);
    return 0;
}

int link_kernel_start(struct link *link, const struct link_kernel_spec *spec,
                      const struct link_kernel_events *events, void *data, struct err *err)
{
    int r = start(link, spec, events, data, err);
    if (spec->joined)
        link_pipes_close(spec->joined); /* unless they have been taken */
    return r;
}
_Static_assert((int)LINK_KERNEL_SOURCE_MAX == (int)FRAME_SOURCE_MAX, "the agent takes as much");

static void say(struct link *link, uint8_t type, const void *payload, size_t len)
{
    if (!link->kernel.active)
        return;
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    link_add_frame(&out, type, link->kernel.number, payload, len);
    link_write(link, &out);
}

void link_kernel_sent(struct link *link)
{
    struct link_kernel_state *kernel = &link->kernel;
    buf_done(&kernel->talk);
    kernel->talk = BUF_INIT(LINK_KERNEL_QUEUE);
    kernel->talk_at = 0;
}

/* One chunk at a time, when the agent has passed on the last. */
static void send_talk(struct link *link)
{
    struct link_kernel_state *kernel = &link->kernel;
    size_t left = kernel->talk.len - kernel->talk_at;
    if (kernel->direct) {
        link_direct_send(link);
        return;
    }
    if (!kernel->talk_asked || !left)
        return;
    size_t len = left < FRAME_PAYLOAD_MAX ? left : FRAME_PAYLOAD_MAX;
    say(link, FRAME_TALK, kernel->talk.data + kernel->talk_at, len);
    kernel->talk_asked = false;
    kernel->talk_at += len;
    if (kernel->talk_at == kernel->talk.len)
        link_kernel_sent(link);
}

int link_kernel_send(struct link *link, const char *json, size_t len, struct err *err)
{
    struct link_kernel_state *kernel = &link->kernel;
    if (!kernel->active)
        return err_set(err, ENOENT, "there is no kernel");
    if (len == 0 || len > LINK_KERNEL_MESSAGE_MAX)
        return err_set(err, EMSGSIZE, "a message of %zu bytes", len);
    buf_drop(&kernel->talk, kernel->talk_at);
    kernel->talk_at = 0;
    char *to = buf_room(&kernel->talk, LENGTH + len);
    if (!to)
        return err_set(err, ENOBUFS, "the kernel does not read what it was sent");
    for (int i = 0; i < LENGTH; i++)
        to[i] = (char)(len >> (8 * i));
    memcpy(to + LENGTH, json, len);
    buf_added(&kernel->talk, LENGTH + len);
    send_talk(link);
    return 0;
}

int link_kernel_cell(struct link *link, uint64_t head_bytes, uint64_t tail_bytes,
                     uint64_t flood_bytes, struct err *err)
{
    struct link_kernel_state *kernel = &link->kernel;
    if (!kernel->active)
        return err_set(err, ENOENT, "there is no kernel");
    if (kernel->in_cell)
        return err_set(err, EBUSY, "another cell is going on");
    link_fit_tail(&head_bytes, &tail_bytes);
    if (head_bytes > INT64_MAX)
        head_bytes = INT64_MAX; /* so that sums are what they seem */
    kernel->in_cell = true;
    kernel->said_last = false;
    kernel->cell_start_ns = uv_hrtime();
    kernel->head_bytes = head_bytes;
    kernel->tail_bytes = tail_bytes;
    const struct frame_cell cell = { .head_bytes = head_bytes,
                                     .tail_bytes = tail_bytes,
                                     .flood_bytes = flood_bytes };
    if (kernel->direct) {
        link_direct_cell(link, &cell);
        return 0;
    }
    char payload[FRAME_CELL_SIZE];
    frame_cell_put(payload, &cell);
    say(link, FRAME_CELL, payload, sizeof(payload));
    return 0;
}

int link_kernel_cell_end(struct link *link, link_cell_fn *on_cell_end, void *data, struct err *err)
{
    struct link_kernel_state *kernel = &link->kernel;
    if (!kernel->active)
        return err_set(err, ENOENT, "there is no kernel");
    if (!kernel->in_cell || kernel->cell_ends)
        return err_set(err, EINVAL, "there is no cell to end");
    kernel->cell_ends = true;
    kernel->on_cell_end = on_cell_end;
    kernel->cell_data = data;
    if (!kernel->said_last && kernel->direct)
        link_direct_cell_end(link);
    else if (!kernel->said_last) /* else the agent knows */
        say(link, FRAME_CELL_END, NULL, 0);
    return 0;
}

void link_kernel_interrupt(struct link *link)
{
    say(link, FRAME_INTERRUPT, NULL, 0);
}

void link_kernel_kill(struct link *link)
{
    if (link->kernel.direct)
        link_direct_stop(link);
    say(link, FRAME_KILL, NULL, 0);
}

void link_kernel_comes(struct link *link)
{
    if (link->kernel.direct)
        link_direct_comes(link);
}

void link_kernel_absent(struct link *link)
{
    if (link->kernel.direct && !link_direct_take_back(link))
        return;
    link->kernel.given_up = link->kernel.active;
    link_kernel_kill(link);
}

uint32_t link_kernel_number(const struct link *link)
{
    return link->kernel.number;
}

bool link_kernel_alive(const struct link *link)
{
    return link->kernel.active;
}

/*** output ***/

static struct link_kernel_output *output_of(struct link *link, enum link_stream stream)
{
    return stream == LINK_STDOUT ? &link->kernel.out : &link->kernel.err;
}

/* What was kept, then that of the cell; each may have a gap. Which is which does not matter, how much
 * does. */
static const char *take_output(struct link *link, enum link_stream stream,
                               const struct frame *frame)
{
    struct link_kernel_state *kernel = &link->kernel;
    struct link_kernel_output *output = output_of(link, stream);
    uint64_t most = kernel->kept_bytes + kernel->head_bytes + kernel->tail_bytes;
    if (!frame->len || frame->len > most - output->bytes)
        return "the agent sent more output than it may";
    output->bytes += frame->len;
    kernel->spoke = true;
    if (kernel->events.on_output)
        kernel->events.on_output(stream, frame->payload, frame->len, kernel->data);
    return NULL;
}

static const char *take_gap(struct link *link, const struct frame *frame)
{
    struct link_kernel_state *kernel = &link->kernel;
    struct frame_gap gap;
    if (frame_gap_get(frame, &gap) < 0)
        return "the agent sent a gap that is none";
    struct link_kernel_output *output = output_of(link, (enum link_stream)gap.stream);
    if (output->gaps++ == 2 || gap.bytes > INT64_MAX / 4)
        return "the agent left out output where it may not";
    output->dropped += gap.bytes;
    if (kernel->events.on_gap)
        kernel->events.on_gap((enum link_stream)gap.stream, gap.bytes, kernel->data);
    return NULL;
}

static bool counts_agree(const struct link_kernel_state *kernel, const struct frame_exit *said)
{
    return said->stdout_bytes == kernel->out.bytes + kernel->out.dropped &&
           said->stderr_bytes == kernel->err.bytes + kernel->err.dropped;
}

/*** messages ***/

void link_kernel_break(struct link *link, const char *how)
{
    struct link_kernel_state *kernel = &link->kernel;
    if (kernel->broken[0])
        return; /* the first counts */
    (void)snprintf(kernel->broken, sizeof(kernel->broken), "%s", how);
    buf_done(&kernel->said);
    link_kernel_kill(link);
}

static uint32_t head_of(const struct buf *said)
{
    uint32_t head = 0;
    for (int i = 0; i < LENGTH; i++)
        head |= (uint32_t)(unsigned char)said->data[i] << (8 * i);
    return head;
}

static uint32_t length_of(const struct buf *said)
{
    return head_of(said) & ~FRAME_MESSAGE_LAST;
}

/* Outside of cells nobody waits for anything long: what is not whole would be held for as long as it likes. */
static void shorten(struct link_kernel_state *kernel)
{
    struct buf *said = &kernel->said;
    if (kernel->in_cell || said->len < LENGTH || length_of(said) <= LINK_KERNEL_IDLE_MAX)
        return;
    kernel->unheard = LENGTH + length_of(said) - said->len;
    buf_done(said);
    *said = BUF_INIT(LENGTH + LINK_KERNEL_MESSAGE_MAX);
}

/* As much as belongs to the message that is being read; how much that was. */
static size_t add_said(struct link *link, const char *bytes, size_t len)
{
    struct buf *said = &link->kernel.said;
    if (link->kernel.unheard) {
        size_t dropped = len < link->kernel.unheard ? len : link->kernel.unheard;
        link->kernel.unheard -= dropped;
        return dropped;
    }
    size_t whole = said->len < LENGTH ? LENGTH : LENGTH + (size_t)length_of(said);
    size_t part = len < whole - said->len ? len : whole - said->len;
    (void)buf_add(said, bytes, part); /* the ceiling is that of the longest message */
    if (said->len == LENGTH) {
        uint32_t length = length_of(said);
        if (length == 0 || length > LINK_KERNEL_MESSAGE_MAX) {
            char how[64];
            (void)snprintf(how, sizeof(how), "the kernel sent a message of %lu bytes",
                           (unsigned long)length);
            link_kernel_break(link, how);
        }
        shorten(&link->kernel);
    }
    return part;
}

static const char *take_said(struct link *link, const struct frame *frame)
{
    struct link_kernel_state *kernel = &link->kernel;
    uint32_t number = kernel->number;
    if (!frame->len)
        return "the agent passed on nothing";
    kernel->spoke = true;
    /* A callback may free the link, whose frame this is then no more. */
    for (size_t at = 0;
         at < frame->len && kernel->active && kernel->number == number && !kernel->broken[0];) {
        at += add_said(link, frame->payload + at, frame->len - at);
        if (kernel->said.len <= LENGTH || kernel->said.len < LENGTH + length_of(&kernel->said))
            continue;
        auto_buf message = kernel->said;
        kernel->said = BUF_INIT(LENGTH + LINK_KERNEL_MESSAGE_MAX);
        kernel->said_last = head_of(&message) & FRAME_MESSAGE_LAST;
        if (kernel->events.on_message)
            kernel->events.on_message(message.data + LENGTH, message.len - LENGTH, kernel->data);
    }
    return NULL;
}

static const char *take_more(struct link *link, const struct frame *frame)
{
    struct link_kernel_state *kernel = &link->kernel;
    if (frame->len || kernel->talk_asked)
        return "the agent asked for messages twice";
    kernel->talk_asked = true;
    send_talk(link);
    return NULL;
}

/*** ends ***/

static const char *take_cell_done(struct link *link, const struct frame *frame)
{
    struct link_kernel_state *kernel = &link->kernel;
    struct frame_exit said;
    bool asked = kernel->cell_ends;
    if (!kernel->in_cell || frame_exit_get(frame, &said) < 0 || said.failed || said.signaled ||
        said.flooded || said.code)
        return "the agent ended a cell that is none";
    if (!counts_agree(kernel, &said))
        return "the agent lost count of the output";
    struct link_exit totals;
    link_read_exit(&said, kernel->cell_start_ns, &totals);
    kernel->in_cell = kernel->cell_ends = false;
    kernel->kept_bytes = kernel->tail_bytes;
    kernel->head_bytes = kernel->tail_bytes = 0;
    kernel->out = kernel->err = (struct link_kernel_output){ 0 };
    shorten(kernel);
    if (!asked && !kernel->broken[0]) /* what it called its last word was none to us */
        link_kernel_break(link, "the kernel ended a cell without a result");
    else if (asked && kernel->on_cell_end)
        kernel->on_cell_end(&totals, kernel->cell_data); /* may begin the next, or free the link */
    return NULL;
}

static void end_kernel(struct link *link, const struct link_exit *exit)
{
    struct link_kernel_state *kernel = &link->kernel;
    kernel->active = false;
    link_direct_free(link);
    buf_done(&kernel->talk);
    buf_done(&kernel->said);
    if (kernel->events.on_exit)
        kernel->events.on_exit(exit, kernel->data); /* may start the next, or free the link */
}

void link_kernel_broken(struct link *link)
{
    if (link->kernel.active)
        end_kernel(link, NULL);
}

static const char *take_exit(struct link *link, const struct frame *frame)
{
    struct link_kernel_state *kernel = &link->kernel;
    struct frame_exit said;
    if (frame_exit_get(frame, &said) < 0)
        return "the agent sent an exit that is none";
    if (kernel->direct && (said.stdout_bytes || said.stderr_bytes || said.flooded))
        return "the agent counted what it cannot see";
    if (kernel->direct && !link_direct_finish(link, &said))
        return NULL;
    if (!counts_agree(kernel, &said))
        return "the agent lost count of the output";
    struct link_exit exit;
    link_read_exit(&said, kernel->start_ns, &exit);
    /* Of one that has been somebody the agent knows how long; the other ends were closed before. */
    bool nobody = kernel->direct && kernel->broken[0] && !said.wall_ns;
    exit.absent |= kernel->given_up || nobody;
    exit.absent &= !kernel->spoke; /* whatever the agent has seen, it has begun to work */
    if (kernel->broken[0])
        (void)snprintf(exit.failure, sizeof(exit.failure), "%s", kernel->broken);
    end_kernel(link, &exit);
    return NULL;
}

/* From the agent, or from link_direct.c in its stead. */
const char *link_kernel_take(struct link *link, const struct frame *frame)
{
    switch (frame->type) {
    case FRAME_STDOUT:
        return take_output(link, LINK_STDOUT, frame);
    case FRAME_STDERR:
        return take_output(link, LINK_STDERR, frame);
    case FRAME_GAP:
        return take_gap(link, frame);
    case FRAME_SAID:
        return take_said(link, frame);
    case FRAME_TALK_MORE:
        return take_more(link, frame);
    case FRAME_CELL_DONE:
        return take_cell_done(link, frame);
    case FRAME_EXIT:
        return take_exit(link, frame);
    default:
        return "the agent spoke of a kernel as of a run";
    }
}
