/*
 * kernel: one process that stays while runs come and go, and what is said with it.
 *
 *   NONE → TAKING     announced; arguments and code arrive
 *        → GOING      forked, or called in from the door (door.h), and then without a pid until it has
 *                     come; the channel is passed on in both directions, output is captured
 *        → ENDING     its process has ended, or must. The loop (agent.c) kills what it has started, and
 *                     says when that is done
 *        → FLUSHING   what is left in channel and pipes, then the exit frame
 *        → NONE
 *
 * Its output belongs to cells. Before bytes of the channel are passed on, everything is that was in the
 * pipes when those bytes were there: so what was printed before a message comes before it. That holds
 * within a cell; outside, output is kept in the captures' rings and begins the next cell.
 *
 *   OUTSIDE → LEADING   a cell has begun: what was written until then is sent, as far as it was kept
 *           → INSIDE    head and tail, as in a run
 *           → CLOSING   the kernel has said its last word, or the server wants the end: up to where the
 *                       pipes are now, the tails, the totals
 *           → OUTSIDE
 *
 * The channel is read only when the wire has room, and written one chunk at a time: the agent holds no
 * more than that, whatever the kernel does.
 *
 * Most cells are short, and each time somebody wakes up costs as much as what they do. So output of the
 * first moment of a cell is left in the pipes, to be sent with the kernel's last word; and that there is
 * room for another chunk is told with something else, unless the server seems to wait for it.
 */
#ifndef BELLJAR_AGENT_KERNEL_H
#define BELLJAR_AGENT_KERNEL_H

#include "agent/capture.h"
#include "agent/feed.h"
#include "agent/order.h"

#include <sys/resource.h>

enum kernel_state { KERNEL_NONE, KERNEL_TAKING, KERNEL_GOING, KERNEL_ENDING, KERNEL_FLUSHING };
enum kernel_cell { CELL_OUTSIDE, CELL_LEADING, CELL_INSIDE, CELL_CLOSING };

struct kernel {
    struct wire *wire;

    enum kernel_state state;
    uint32_t number; /* of this kernel, or of the last */
    struct order order;
    bool kill_early; /* asked to die before it was started */

    uint64_t join_ns; /* until when somebody must have come to the door; 0: nobody is awaited */
    short door_ready;
    bool interrupt_later; /* as soon as it has come */

    pid_t pid;     /* 0: none yet, none, or reaped */
    pid_t session; /* its first pid, also when it is dead: what it started may still be in it */
    int status;    /* as wait() says it */
    bool flooded;
    uint64_t start_ns, wall_ns, cpu_ns;

    enum kernel_cell cell;
    struct frame_cell limits; /* of this cell, or of the last */
    bool close_asked;         /* as soon as it is INSIDE */
    uint64_t cell_start_ns, cell_cpu_ns;
    uint64_t quiet_ns;           /* until when its output can wait */
    uint64_t kept_out, kept_err; /* bytes from outside that count in this cell */
    struct capture out, err;

    int channel_fd; /* to read; `talk` has its own for writing. -1: closed */
    short channel_ready;
    uint64_t closed_ns;       /* when the other end of the channel went away; 0: it has not */
    size_t said_left;         /* bytes in the channel that may be passed on */
    struct frame_follow said; /* the messages in them */
    bool last_look;           /* FLUSHING: no more than these */
    bool last_mark;           /* FLUSHING: and no more output than is marked */
    struct feed talk;
    bool ask_soon;   /* the server waits to say something */
    uint64_t ask_ns; /* when to ask for it at the latest, while talk.ask */
};

void kernel_init(struct kernel *kernel, const struct config *config, struct wire *wire);

/* Frames from the server. 0, or -EPROTO. */
int kernel_announce(struct kernel *kernel, uint32_t number, const struct frame_run *spec);
int kernel_args(struct kernel *kernel, const char *bytes, size_t len);
int kernel_code(struct kernel *kernel, const char *bytes, size_t len);
int kernel_start(struct kernel *kernel);
int kernel_talk(struct kernel *kernel, const char *bytes, size_t len);
int kernel_cell(struct kernel *kernel, const struct frame_cell *limits);
int kernel_cell_end(struct kernel *kernel);
void kernel_interrupt(struct kernel *kernel);
void kernel_kill(struct kernel *kernel);
/* It has to go for a reason that the exit frame tells. */
void kernel_give_up(struct kernel *kernel, int code, const char *why);

/* True when the process was the kernel. */
bool kernel_reaped(struct kernel *kernel, pid_t pid, int status, const struct rusage *usage);
/* While ENDING: it and what it started are dead. */
void kernel_alone(struct kernel *kernel);

void kernel_poll(struct kernel *kernel, struct pollset *set);
void kernel_step(struct kernel *kernel);

#endif
