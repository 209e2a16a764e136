/* signals: as a program should find them when it starts. */
#ifndef BELLJAR_AGENT_SIGNALS_H
#define BELLJAR_AGENT_SIGNALS_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* rt_sigaction(2) to SIG_DFL. Not by the C library, which keeps the first real-time signals to itself and
 * would leave them as whoever started us had them. */
static inline int signals_default(int number)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = { .handler = SIG_DFL };
    return syscall(SYS_rt_sigaction, number, &action, NULL, sizeof(action.mask)) < 0 ? -errno : 0;
}

#endif
