/*
 * run: one program at a time, from its announcement to its exit frame.
 *
 *   IDLE → TAKING     announced; arguments and code arrive
 *        → GOING      forked; output is captured, input fed
 *        → ENDING     the main process has ended, or everything must: nothing it started may
 *                     stay. The loop (agent.c) kills and reaps, and says when nobody is left
 *        → FLUSHING   what is still in the pipes, then the tails, then the exit frame
 *        → IDLE
 *
 * The end is that of the main process, not that of its pipes: a daemon may hold those for ever.
 */
#ifndef BELLJAR_AGENT_RUN_H
#define BELLJAR_AGENT_RUN_H

#include "agent/capture.h"
#include "agent/feed.h"
#include "agent/order.h"
#include "agent/understudy.h"

#include <sys/resource.h>

enum run_state { RUN_IDLE, RUN_TAKING, RUN_GOING, RUN_ENDING, RUN_FLUSHING };

struct run {
    struct wire *wire;

    enum run_state state;
    uint32_t number;              /* of this run, or of the last */
    struct understudy understudy; /* until the first run, or a kernel */
    bool kill_early;              /* asked to die before it was started */

    pid_t pid;  /* of the main process; 0: none, or reaped */
    int status; /* as wait() says it */
    bool flooded;
    uint64_t start_ns, wall_ns, cpu_ns;

    struct capture out, err;
    struct order order;
    struct feed input;
};

void run_init(struct run *run, const struct config *config, struct wire *wire);

/* Has a process ready for the first run; without one that is forked when it comes. */
void run_prepare(struct run *run);
/* Somebody else's code is about to come, which shall never live beside that process. */
void run_unprepare(struct run *run);

/* Frames from the server. 0, or -EPROTO. */
int run_announce(struct run *run, uint32_t number, const struct frame_run *spec);
int run_args(struct run *run, const char *bytes, size_t len);
int run_code(struct run *run, const char *bytes, size_t len);
int run_start(struct run *run);
int run_input(struct run *run, const char *bytes, size_t len);
void run_interrupt(struct run *run);
void run_kill(struct run *run);
/* Nobody will say the rest of it: one that has not been started never is. */
void run_abandon(struct run *run);

/* Somebody was reaped who is no worker of ours and no kernel: the main process, or an orphan. */
void run_reaped(struct run *run, pid_t pid, int status, const struct rusage *usage);
/* While ENDING: nobody is left. */
void run_alone(struct run *run);

void run_poll(struct run *run, struct pollset *set);
void run_step(struct run *run);

#endif
