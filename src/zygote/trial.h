/*
 * trial: a first kernel that nobody gets. It is forked as all of them are and answers one request, outside of any sandbox:
 * nothing but our own code runs in it. What it has written to when it has answered is what every kernel will have to
 * copy (pages.h).
 */
#ifndef BELLJAR_ZYGOTE_TRIAL_H
#define BELLJAR_ZYGOTE_TRIAL_H

#include "zygote/pages.h"

struct trial {
    const char *request; /* a message of the kernel's, with its length before it */
    size_t request_len;
    int *tid_address; /* where the C library keeps its thread id */
};

/* In the kernel: its channel, by which it is to answer. Else -1: it is over, and `ret` has what was learnt. */
int trial_fork(const struct trial *trial, struct pages_written *ret);

#endif
