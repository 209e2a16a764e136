/*
 * A hostile kernel, with the link at the other end of its channel and pipes: the input is all that it ever
 * does. The agent is an honest one that says how it ended. Beyond "does not crash": what kernel_promises.h has,
 * the end is told however it goes, and the stream to the agent never breaks for what a kernel does.
 *
 * Each step is one byte, what and how much of it (at most 31, so that inputs stay small), and bytes that follow.
 */
#include "agent/frame.h"
#include "agent/link.h"
#include "base/loop.h"
#include "kernel_promises.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum step {
    STEP_SAY,     /* bytes as they are */
    STEP_MESSAGE, /* a whole one, */
    STEP_LAST,    /* or the last word of a cell */
    STEP_OUT,
    STEP_ERR,
    STEP_MUCH, /* output, 40 times as much */
    STEP_REST, /* the server gets its turn */
    STEP_ODD,  /* what the amount says */
};
enum { ODD_CELL, ODD_CLOSE, ODD_CLOSE_OUT, ODD_CLOSE_ERR, ODD_SEND_FD, ODD_TALK, ODD_INTERRUPT };

static bool broken;

static void on_broken(const char *why, void *data)
{
    (void)why;
    (void)data;
    broken = true;
}

struct play {
    uv_loop_t *loop;
    struct link *link;
    int agent;
    struct link_pipes kernel;
    bool begun;
};

static void rest(struct play *play)
{
    uv_run(play->loop, UV_RUN_NOWAIT);
}

/* A pipe that is full stays so until the server reads: nobody waits here. */
static void put(int fd, const void *bytes, size_t len)
{
    struct pollfd room = { .fd = fd, .events = POLLOUT };
    if (fd >= 0 && len && poll(&room, 1, 0) == 1 && (room.revents & POLLOUT))
        (void)!write(fd, bytes, len);
}

static void message(struct play *play, const uint8_t *bytes, uint32_t len, uint32_t flag)
{
    char whole[4 + 31];
    const uint32_t head = len | flag;
    for (int i = 0; i < 4; i++)
        whole[i] = (char)(head >> (8 * i));
    if (len)
        memcpy(whole + 4, bytes, len);
    put(play->kernel.said, whole, 4 + len);
}

static void send_fd(int fd)
{
    char byte = 1;
    struct iovec piece = { &byte, 1 };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
                            .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS } };
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
    const struct msghdr message = { .msg_iov = &piece,
                                    .msg_iovlen = 1,
                                    .msg_control = &control,
                                    .msg_controllen = sizeof(control) };
    must(sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0);
}

static void odd(struct play *play, size_t which)
{
    switch (which) {
    case ODD_CELL:
        if (!play->begun && link_kernel_alive(play->link))
            kernel_promises_cell();
        play->begun = true;
        break;
    case ODD_CLOSE:
        fd_closep(&play->kernel.channel);
        fd_closep(&play->kernel.said);
        break;
    case ODD_CLOSE_OUT:
        fd_closep(&play->kernel.out);
        break;
    case ODD_CLOSE_ERR:
        fd_closep(&play->kernel.err);
        break;
    case ODD_SEND_FD:
        if (play->kernel.channel >= 0)
            send_fd(play->kernel.channel);
        break;
    case ODD_TALK:
        (void)link_kernel_send(play->link, "{}", 2, NULL);
        break;
    case ODD_INTERRUPT:
        link_kernel_interrupt(play->link);
        break;
    default:
        break;
    }
}

/* The number of bytes that it took. */
static size_t step(struct play *play, const uint8_t *data, size_t size)
{
    const size_t amount = data[0] >> 3, len = amount < size - 1 ? amount : size - 1;
    const uint8_t *bytes = data + 1;
    char much[40 * 31];
    switch ((enum step)(data[0] & 7)) {
    case STEP_SAY:
        put(play->kernel.said, bytes, len);
        return 1 + len;
    case STEP_MESSAGE:
        message(play, bytes, (uint32_t)len, 0);
        return 1 + len;
    case STEP_LAST:
        message(play, bytes, (uint32_t)len, FRAME_MESSAGE_LAST);
        return 1 + len;
    case STEP_OUT:
        put(play->kernel.out, bytes, len);
        return 1 + len;
    case STEP_ERR:
        put(play->kernel.err, bytes, len);
        return 1 + len;
    case STEP_MUCH:
        memset(much, 'x', sizeof(much));
        put(amount & 1 ? play->kernel.out : play->kernel.err, much, 40 * amount);
        return 1;
    case STEP_REST:
        rest(play);
        return 1;
    case STEP_ODD:
        odd(play, amount);
        return 1;
    }
    return 1;
}

/*** the agent ***/

static void say(struct play *play, uint8_t type, uint32_t number, const char *payload, size_t len)
{
    char frame[FRAME_HEADER + FRAME_EXIT_SIZE];
    frame_put_header(frame, type, number, len);
    memcpy(frame + FRAME_HEADER, payload, len);
    must(send(play->agent, frame, FRAME_HEADER + len, 0) == (ssize_t)(FRAME_HEADER + len));
}

static void begin(struct play *play)
{
    static const struct link_events events = { .on_broken = on_broken };
    struct link_pipes ours;
    struct err err;
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    play->link = link_new(play->loop, ends[0], &events, NULL);
    play->agent = ends[1];
    kernel_promises_begin(play->link);
    char hello[FRAME_HELLO_SIZE];
    frame_hello_put(hello, &(struct frame_hello){ FRAME_MAGIC, FRAME_VERSION });
    say(play, FRAME_READY, 0, hello, sizeof(hello));
    must(link_pipes_open(&ours, &play->kernel, &err) == 0);
    const struct link_kernel_spec spec = { .joined = &ours };
    must(link_kernel_start(play->link, &spec, &kernel_events, NULL, NULL) == 0);
    rest(play);
}

static void finish(struct play *play)
{
    char payload[FRAME_EXIT_SIZE];
    frame_exit_put(payload, &(struct frame_exit){ .signaled = true, .code = 9 });
    say(play, FRAME_EXIT, link_kernel_number(play->link), payload, sizeof(payload));
    while (!kernel_promises_ended() && !broken)
        uv_run(play->loop, UV_RUN_ONCE);
    must(!broken);
    link_free(play->link);
    link_pipes_close(&play->kernel);
    close(play->agent);
    while (uv_run(play->loop, UV_RUN_NOWAIT))
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uv_loop_t loop;
    static bool ready;
    if (!ready)
        must(uv_loop_init(&loop) == 0);
    ready = true;
    struct play play = { .loop = &loop };
    begin(&play);
    for (size_t at = 0; at < size;)
        at += step(&play, data + at, size - at);
    finish(&play);
    return 0;
}
