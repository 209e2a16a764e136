/*
 * seccomp: the system calls that a sandbox may make. One table (seccomp_list.c), default deny.
 *
 *   SECCOMP_SPAWNER   the whole table, compiled by libseccomp. The spawner loads it once, at its start,
 *                     and every sandbox inherits it; what is not in the table nobody ever gets.
 *   SECCOMP_AGENT     takes away what only the making of sandboxes needs; loaded right before exec
 *   SECCOMP_GUEST     takes away what only pid 1 needs; loaded by the agent in each guest
 *
 * The kernel obeys the strictest of the filters that a process has. The two later ones are short:
 * loading a filter means compiling it, and the table takes a tenth of a millisecond.
 *
 * Refused calls: EPERM; numbers that this list does not know: ENOSYS, as on an older kernel, so that
 * a C library newer than the list falls back; the 32-bit interface: the process is killed; x32:
 * ENOSYS. clone3 keeps its flags in memory where no filter can see them: ENOSYS for guests, so that
 * the C library falls back to clone, whose flags are checked.
 */
#ifndef BELLJAR_ENGINE_NATIVE_SECCOMP_H
#define BELLJAR_ENGINE_NATIVE_SECCOMP_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <linux/filter.h>

enum seccomp_role {
    SECCOMP_SPAWNER,
    SECCOMP_AGENT,
    SECCOMP_AGENT_NETWORK, /* in the host's network: and no socket that could reach its programs */
    SECCOMP_GUEST,
    SECCOMP_GUEST_SHARED, /* agent and guest have one uid: no call may name another process */
    SECCOMP_GUEST_WHOLE, /* the same, but the table itself: for guests of an agent that has none of ours */
    SECCOMP_GUEST_WHOLE_NETWORK, /* the same, and no socket that could reach programs of a host */
};

struct seccomp_program {
    struct sock_filter *code; /* owned */
    unsigned short len;
};

int seccomp_build(enum seccomp_role role, struct seccomp_program *ret, struct err *err);
void seccomp_program_done(struct seccomp_program *program);

/* What `role`, SECCOMP_AGENT or SECCOMP_AGENT_NETWORK, has of the table, as container engines take it: a profile
 * of seccomp(2) filters in JSON, for this machine's architecture. A new reference. */
json_t *seccomp_profile(enum seccomp_role role);

/* docs/syscalls.md, whole. */
void seccomp_document(struct buf *buf);

#endif
