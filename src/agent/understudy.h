/*
 * understudy: a process that waits to become the first program of a sandbox. It has gone the whole way
 * of a guest (guest.h) but for the program itself, while nobody was waiting for that; what is left when
 * a run comes is a message, a wake-up and an exec.
 *
 * It is the guest's from then on, so nobody may be about who could make use of it. It holds what the
 * program will hold, and the socket by which it gets its order and says why it failed; it is undumpable
 * until exec, which closes the socket and drops its memory. And it is there only before any code of the
 * guest's has run: the first run takes it or sees it killed, and so does a kernel. A later run is started
 * by fork. There is none where a kernel is expected to be first (setup.h).
 */
#ifndef BELLJAR_AGENT_UNDERSTUDY_H
#define BELLJAR_AGENT_UNDERSTUDY_H

#include "agent/order.h"

/* With longer words a program is started by fork: the socket takes these at once. */
enum { UNDERSTUDY_ARGS_MAX = 64 * 1024 };

struct understudy {
    int order_fd;           /* -1: there is none */
    struct process process; /* pid 0: there is none */
};

void understudy_init(struct understudy *understudy);
/* There is none when that fails; it would fail again, with words, at the start of a program. `order` is
 * where the process puts what it hears, in its own copy of our memory. */
void understudy_make(struct understudy *understudy, struct order *order);
/* True: it goes to become the program of a complete order, and *ret is what order_launch() returns. False:
 * it cannot, and there is none any more. */
bool understudy_send(struct understudy *understudy, struct order *order, struct process *ret);
/* It is killed, and reaped with the others. */
void understudy_dismiss(struct understudy *understudy);
/* True: it was the one who waited. */
bool understudy_reaped(struct understudy *understudy, pid_t pid);

#endif
