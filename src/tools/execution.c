#include "tools/execution.h"

#include "tools/progress.h"

#include <stdlib.h>

struct execution {
    struct mcp_call *call;
    const struct toolbox *box;
    struct run *run;
    struct progress *progress;
    execution_done_fn *on_done;
    void *data;
};

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    const struct execution *execution = data;
    progress_add(execution->progress, stream, bytes, len);
}

static void on_done(const struct run_result *run, void *data)
{
    struct execution execution = *(struct execution *)data;
    progress_free(execution.progress);
    free(data);
    mcp_call_defer(execution.call, NULL, NULL); /* there is nothing left to cancel */
    execution.on_done(execution.call, run, execution.box, execution.data);
}

static void on_cancel(struct mcp_call *call, void *data)
{
    const struct execution *execution = data;
    (void)call;
    run_cancel(execution->run); /* on_done finishes the call */
}

int execution_start(struct mcp_call *call, const struct toolbox *box, const struct run_spec *spec,
                    execution_done_fn *done, void *data, struct err *err)
{
    static const struct run_events events = { .on_output = on_output, .on_done = on_done };
    struct run_spec owned = *spec;
    owned.owner = mcp_call_owner(call);
    struct execution *execution = xcalloc(1, sizeof(*execution));
    *execution = (struct execution){
        .call = call, .box = box, .progress = progress_new(box, call), .on_done = done, .data = data
    };
    mcp_call_defer(call, on_cancel, execution);
    int r = session_run(box->sessions, &owned, &events, execution, &execution->run, err);
    if (r < 0) {
        progress_free(execution->progress);
        free(execution);
    }
    return r;
}
