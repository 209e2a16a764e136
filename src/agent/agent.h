/*
 * agent: the program of pid 1, for those who start it: main.c as a program of its own, mould.c by cloning what
 * has been prepared once.
 */
#ifndef BELLJAR_AGENT_AGENT_H
#define BELLJAR_AGENT_AGENT_H

#include "agent/setup.h"
#include "agent/sys.h"

int agent_main(int argc, char **argv);

/* In the mould, once: signals, environment and filter, which all its agents have in common. The filter stays
 * where it is. 0 or -errno. */
int agent_cast(const struct sys_filter *filter, uint32_t n_filter);
/* In a clone, with descriptors as setup.h has them but without the set-up's: it is *setup. 0; or -errno and
 * what failed in *ret_step. */
int agent_begin(const struct agent_setup *setup, const char **ret_step);
_Noreturn void agent_serve(void);

#endif
