/*
 * procs: who is there and whose, as /proc tells it; and killing some while others live. For the one
 * case that kill(-1) does not fit: a kernel and a run in one sandbox, of which one ends.
 *
 * A process belongs to the kernel when its line of parents leads there. The kernel is a child subreaper,
 * so its orphans stay below it as long as it lives. All others are the run's, except the agent and its
 * workers. Nobody changes sides by double forks or setsid(). A picture of /proc is taken while things
 * move: a line that breaks off because a parent has just died decides nothing, and the next picture
 * does.
 */
#ifndef BELLJAR_AGENT_PROCS_H
#define BELLJAR_AGENT_PROCS_H

#include "agent/file.h"

struct proc {
    pid_t pid, parent, group, session;
    char state;
    unsigned threads;
    uint64_t child_cpu_ns; /* of children it has waited for */
};
/* False when there is none, or no /proc. */
bool proc_read(pid_t pid, struct proc *ret);

enum procs_target {
    PROCS_RUN,     /* all but the agent, its workers, the kernel and what is below it */
    PROCS_BELOW,   /* what is below the kernel, which has been stopped; not the kernel itself */
    PROCS_SESSION, /* the session that the kernel led, now that it is dead, and what is below */
};
/* Kills those, once. Returns how many there were, with those that could not be told; 0: none is left,
 * reaped by whoever has to; or -errno. */
int procs_kill(enum procs_target target, const struct config *config, pid_t kernel,
               const struct files *files);

#endif
