/*
 * kernel: one process that stays while runs come and go, and what is said with it.
 *
 *   NONE → TAKING     announced; arguments and code arrive
 *        → GOING      forked, or awaited at the door, and then without a pid until it has come
 *        → ENDING     its process has ended, or must. The loop (agent.c) kills what it has started, and
 *                     says when that is done
 *        → FLUSHING   what is left in channel and pipes, then the exit frame
 *        → NONE
 *
 * What a kernel says and prints is the relay's business (relay.h), and what it is told goes in one chunk at a
 * time: the agent holds no more than that, whatever the kernel does. That there is room for another chunk is
 * told with something else, unless the server seems to wait for it: a wake-up costs as much as a short cell.
 *
 * A kernel that joins (door.h) has the server at the other end of its channel and pipes. Of that one the
 * agent only knows who it is, and how it ends.
 */
#ifndef BELLJAR_AGENT_KERNEL_H
#define BELLJAR_AGENT_KERNEL_H

#include "agent/feed.h"
#include "agent/order.h"
#include "agent/relay.h"

#include <sys/resource.h>

enum kernel_state { KERNEL_NONE, KERNEL_TAKING, KERNEL_GOING, KERNEL_ENDING, KERNEL_FLUSHING };

/* What is large comes last: an idle sandbox is as small as the pages that are touched. */
struct kernel {
    struct wire *wire;

    enum kernel_state state;
    uint32_t number; /* of this kernel, or of the last */
    bool kill_early; /* asked to die before it was started */

    uint64_t join_ns; /* until when somebody must have come to the door; 0: nobody is awaited */
    short door_ready;
    bool door_shut;
    struct visitor early; /* has come before its frames have */
    pid_t stand_in;       /* waits to have the first kernel as its child; 0: nobody does */
    bool interrupt_later; /* as soon as it has come */

    pid_t pid;     /* 0: none yet, none, or reaped */
    pid_t session; /* its first pid, also when it is dead: what it started may still be in it */
    int status;    /* as wait() says it */
    uint64_t start_ns, wall_ns, cpu_ns;

    bool ask_soon;   /* the server waits to say something */
    uint64_t ask_ns; /* when to ask for it at the latest, while talk.ask */
    struct relay relay;
    struct order order;
    struct feed talk;
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

/* Before anything of the guest's is started but a kernel that joins: no stand-in is left when it returns. */
void kernel_dismiss_stand_in(struct kernel *kernel);
/* A dead child that nobody knows: true when it is to be kept until frames tell that it is the kernel. */
bool kernel_may_know(struct kernel *kernel, pid_t pid);
/* True when the process was the kernel. */
bool kernel_reaped(struct kernel *kernel, pid_t pid, int status, const struct rusage *usage);
/* While ENDING: it and what it started are dead. */
void kernel_alone(struct kernel *kernel);

void kernel_poll(struct kernel *kernel, struct pollset *set);
void kernel_step(struct kernel *kernel);

#endif
