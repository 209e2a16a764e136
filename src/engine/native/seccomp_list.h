/*
 * seccomp_list: the table itself, as data. seccomp.c compiles and documents it.
 */
#ifndef BELLJAR_ENGINE_NATIVE_SECCOMP_LIST_H
#define BELLJAR_ENGINE_NATIVE_SECCOMP_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A call is let through when every test of one row holds; a row without tests always holds. */
struct syscall_test {
    unsigned arg;
    uint64_t mask, value; /* (argument & mask) == value */
};

enum syscall_who {
    CALL_ALL,
    CALL_SETUP,   /* the spawner, the zygote, and their children until they are agent and guest */
    CALL_AGENT,   /* pid 1 too, but no guest */
    CALL_OWN_UID, /* not where agent and guest share one uid; there the CALL_SHARED_UID row */
    CALL_SHARED_UID,
};

struct syscall_rule {
    const char *name;
    enum syscall_who who;
    unsigned n_tests;
    struct syscall_test tests[2];
    const char *words; /* of the tests, for the manual */
};

struct syscall_group {
    const char *reason; /* why a guest needs these, and why that is safe */
    const struct syscall_rule *rules;
    size_t n_rules;
};

extern const struct syscall_group syscall_groups[];
extern const size_t n_syscall_groups;

/* Higher numbers are unknown to this list. The same on every architecture since number 424. */
enum { SYSCALL_HIGHEST_KNOWN = 450 };

#endif
