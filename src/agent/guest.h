/*
 * guest: the way from the agent to a process that belongs to the guest. Everything here but
 * guest_fork() runs in the child, between fork and exec: no allocation, no return to the loop. The
 * zygote's library (src/zygote) is made of it too, for children that join a sandbox from outside.
 */
#ifndef BELLJAR_AGENT_GUEST_H
#define BELLJAR_AGENT_GUEST_H

#include "agent/config.h"

/* fork(), into the guest's cgroup where that is v2. Before the first the bounding set is emptied, which guests inherit.
 * The pid, 0 in the child, or -errno. */
pid_t guest_fork(const struct config *config);

/* What kept a child from becoming the guest's; crosses a pipe in one write. */
struct guest_failure {
    int code; /* errno */
    char step[60];
};

struct guest_program {
    const char *const *argv, *const *env; /* argv[0] is searched in env's PATH */
    const char *cwd;                      /* "" : the workspace; relative: below it */
};
struct guest_fds {
    int stdio[3];
    int channel_fd; /* becomes descriptor 3 of a kernel, whose orphans then stay below it; -1: none */
    int failure_fd; /* gets a struct guest_failure; closed by a successful exec */
};

/* Makes the caller a process of the guest's in everything but the program: in its cgroup, with these
 * descriptors and no other, undumpable, under the filter, in the workspace. 0; or -errno and where in
 * *ret_step. fds->failure_fd is where it has been put, in either case. */
int guest_prepare(const struct config *config, struct guest_fds *fds, const char **ret_step);
/* After that. Returns only when it fails, as above. */
int guest_execute(const struct guest_program *program, const char **ret_step);
/* For a process that cannot go on. */
_Noreturn void guest_fail(int failure_fd, int code, const char *step);
/* All three. Fails closed: a step that does not work is reported and the program does not run. */
_Noreturn void guest_exec(const struct config *config, struct guest_fds *fds,
                          const struct guest_program *program);

/* For work on files: keeps in_fd (may be -1) as 3, out_fd as 4, the workspace as 5, nothing else, and
 * becomes the guest, undumpable. 0 or -errno. */
enum { GUEST_IN = 3, GUEST_OUT = 4, GUEST_WORKSPACE = 5 };
int guest_enter(const struct config *config, int in_fd, int out_fd);

/* For a process from outside that has entered the sandbox's namespaces and cgroups, with every
 * capability there, and wants to be a kernel: makes it the guest's, in the workspace, undumpable, under the
 * filter. 0; or -errno and where in *ret_step: it must end then. */
int guest_join(const struct config *config, const char **ret_step);
/* The rest, before or after that: leads a session, and is its orphans' parent. Children do not inherit it. */
int guest_lead(const struct config *config, const char **ret_step);
/* Makes fds[i] descriptor first + i, in spite of overlaps, and closes all behind them. -1 entries
 * are left closed. */
enum { GUEST_PLACES_MAX = 7 };
int guest_place(const int *fds, int count, int first);

#endif
