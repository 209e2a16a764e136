/*
 * progress: what a run prints, sent on as progress messages while it runs: a few a second at the
 * most, and one now and then while it is silent, so that clients and proxies do not give up on it.
 */
#ifndef BELLJAR_TOOLS_PROGRESS_H
#define BELLJAR_TOOLS_PROGRESS_H

#include "tools/toolbox.h"

struct progress;

/* NULL when the client did not ask for progress; the functions below then do nothing. */
struct progress *progress_new(const struct toolbox *box, struct mcp_call *call);
void progress_add(struct progress *progress, enum link_stream stream, const char *bytes,
                  size_t len);
void progress_free(struct progress *progress);

#endif
