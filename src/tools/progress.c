#include "tools/progress.h"

#include "base/buf.h"
#include "base/loop.h"

#include <stdlib.h>

enum {
    FLUSH_MS = 100,         /* at most ten messages a second */
    HEARTBEAT_MS = 5000,    /* at least one */
    PENDING_MAX = 16 << 10, /* of text in one message; what is beyond is in the result anyway */
};

struct progress {
    struct mcp_call *call;
    struct timer *flush, *heartbeat;
    struct buf pending;
    uint64_t started_ms;
    double sent;
};

static void send_progress(struct progress *progress, const char *text)
{
    mcp_call_progress(progress->call, ++progress->sent, /* total= */ 0, text);
    timer_repeat(progress->heartbeat, HEARTBEAT_MS);
}

static void on_flush(void *data)
{
    struct progress *progress = data;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    if (progress->pending.len == 0)
        return;
    toolbox_add_text(&text, progress->pending.data, progress->pending.len);
    buf_clear(&progress->pending);
    send_progress(progress, text.data);
}

static void on_heartbeat(void *data)
{
    struct progress *progress = data;
    auto_free char *text = xasprintf(
        "running for %llu s", (unsigned long long)(clock_ms() - progress->started_ms) / 1000);
    send_progress(progress, text);
}

struct progress *progress_new(uv_loop_t *loop, struct mcp_call *call)
{
    if (!mcp_call_wants_progress(call))
        return NULL;
    struct progress *progress = xcalloc(1, sizeof(*progress));
    progress->call = call;
    progress->started_ms = clock_ms();
    progress->pending = BUF_INIT(PENDING_MAX);
    progress->flush = timer_new(loop, on_flush, progress);
    progress->heartbeat = timer_new(loop, on_heartbeat, progress);
    timer_repeat(progress->heartbeat, HEARTBEAT_MS);
    return progress;
}

void progress_add(struct progress *progress, const char *bytes, size_t len)
{
    if (!progress)
        return;
    size_t room = PENDING_MAX - progress->pending.len;
    (void)buf_add(&progress->pending, bytes, len < room ? len : room);
    if (!timer_active(progress->flush))
        timer_start(progress->flush, FLUSH_MS);
}

void progress_free(struct progress *progress)
{
    if (!progress)
        return;
    timer_free(progress->flush);
    timer_free(progress->heartbeat);
    buf_done(&progress->pending);
    free(progress);
}
