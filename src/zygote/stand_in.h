/*
 * stand_in: a process that has become the guest of a sandbox, and has the sandbox's kernel as its child when it is
 * told to. It shares the zygote's memory, so that the child is a copy of the zygote; all else is its own, and the
 * child inherits that: cgroup, namespaces, limits, user, filter. So what is left to do while somebody waits is a
 * message, a wake-up and a fork.
 *
 *   zygote ─ clone3(VM) ─▶ stand-in ─ becomes the guest, note at the door ─ waits for its word ─ fork ─▶ kernel
 *     └─ waits until it waits                                                 └─ answers, exits: the kernel is a
 *                                                                                child of the sandbox's pid 1
 *
 * That it shares the zygote's memory nobody may make use of. It is there only before any code of the guest's runs: the
 * agent sees to it (agent/door.h). It is undumpable, runs nothing but what is here, and touches nothing but its own
 * stack; the memory that a guest gets is a copy, made by fork, after which it exits. Were it ever killed for
 * a full cgroup, the zygote would be, too, and replaced.
 *
 * It is the zygote's child, which ignores SIGCHLD, so it leaves nothing; if the zygote ends first, it ends, too, and is
 * the spawner's to bury.
 */
#ifndef BELLJAR_ZYGOTE_STAND_IN_H
#define BELLJAR_ZYGOTE_STAND_IN_H

#include "zygote/zygote.h"

#include <setjmp.h>

/* Descriptors that one has, behind 0 to 2. */
enum { STAND_IN_LANE = 3, STAND_IN_DOOR = 4, STAND_IN_LIFE = 5, STAND_IN_FDS };

/* Where their kernels go on, with descriptors 0 to 4 in their places, the door and the lane behind them: _setjmp() returns
 * 1, and stand_in_number() its number. */
struct stand_in_kernels {
    struct __jmp_buf_tag *begin;
    void *stack; /* the end of some memory of whoever has called _setjmp(), for the way there */
    int *tid_address; /* where the C library keeps its thread id */
};
/* Room for stand-ins. `life` can be read from once the zygote has ended. Without it there are none: -errno. */
int stand_ins_open(const struct stand_in_kernels *kernels, int *ret_life);

struct stand_in_plan {
    int cgroup; /* of version 2, to be born in; -1: none */
    /* In it, while the zygote waits: makes it the guest, with these descriptors. 0 or -errno. */
    int (*prepare)(void *data);
    void *data;
};
/* 0 when it waits; or -errno, and there is none. */
int stand_in_make(const struct stand_in_plan *plan);
uint32_t stand_in_number(void);

#endif
