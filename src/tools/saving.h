/*
 * saving: what a run displayed, kept as files of its session: inline_<ms>.png, .jpeg or .svg, and
 * plotly_<ms>.png (or .html where no picture could be made).
 */
#ifndef BELLJAR_TOOLS_SAVING_H
#define BELLJAR_TOOLS_SAVING_H

#include "tools/toolbox.h"

struct saving_events {
    void (*on_saved)(const char *name, const char *mime_type, size_t size, bool plotly, void *data);
    /* Once, last; perhaps before saving_start() returns. What could not be written is left out. */
    void (*on_end)(void *data);
};

/* Takes from `run` what it needs. */
void saving_start(const struct toolbox *box, const char *owner, const struct run_result *run,
                  const struct saving_events *events, void *data);

#endif
