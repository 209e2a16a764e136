/*
 * execution: a call that runs code. It is answered later, cancelled with its run, and tells progress
 * meanwhile; what the answer looks like is the tool's own business.
 */
#ifndef BELLJAR_TOOLS_EXECUTION_H
#define BELLJAR_TOOLS_EXECUTION_H

#include "tools/toolbox.h"

/* Shapes the answer and finishes the call. `run` is valid during the call. */
typedef void execution_done_fn(struct mcp_call *call, const struct run_result *run,
                               const struct toolbox *box, void *data);

/* Starts the run; on_done follows once. spec->owner is filled in. Negative and err as for
 * session_run(): the call is then the caller's to finish. */
int execution_start(struct mcp_call *call, const struct toolbox *box, const struct run_spec *spec,
                    execution_done_fn *on_done, void *data, struct err *err);

#endif
