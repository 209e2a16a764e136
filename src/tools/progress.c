#include "tools/progress.h"

#include "base/buf.h"
#include "base/loop.h"
#include "session/tidy.h"

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
    struct tidy tidies[2];   /* of stdout and stderr */
    enum link_stream stream; /* that wrote last */
    size_t line_start;       /* in pending: where its current line begins, as far as not sent */
    bool strip_ansi;
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
    progress->line_start = 0;
    send_progress(progress, text.data);
}

static void on_heartbeat(void *data)
{
    struct progress *progress = data;
    auto_free char *text = xasprintf(
        "running for %llu s", (unsigned long long)(clock_ms() - progress->started_ms) / 1000);
    send_progress(progress, text);
}

struct progress *progress_new(const struct toolbox *box, struct mcp_call *call)
{
    if (!mcp_call_wants_progress(call))
        return NULL;
    struct progress *progress = xcalloc(1, sizeof(*progress));
    progress->call = call;
    progress->strip_ansi = box->strip_ansi;
    progress->stream = LINK_STDOUT;
    progress->started_ms = clock_ms();
    progress->pending = BUF_INIT(PENDING_MAX);
    progress->flush = timer_new(box->loop, on_flush, progress);
    progress->heartbeat = timer_new(box->loop, on_heartbeat, progress);
    timer_repeat(progress->heartbeat, HEARTBEAT_MS);
    return progress;
}

/*** As in the result, but what was sent cannot be taken back ***/

static void add_text(const char *bytes, size_t len, void *data)
{
    struct progress *progress = data;
    size_t room = PENDING_MAX - progress->pending.len;
    (void)buf_add(&progress->pending, bytes, len < room ? len : room);
}

static void end_line(void *data)
{
    struct progress *progress = data;
    add_text("\n", 1, data);
    progress->line_start = progress->pending.len;
}

static void erase_line(void *data)
{
    struct progress *progress = data;
    buf_cut(&progress->pending, progress->line_start);
}

static void drop_chars(size_t count, void *data)
{
    struct buf *pending = &((struct progress *)data)->pending;
    size_t start = ((struct progress *)data)->line_start;
    if (pending->len > start)
        buf_cut(pending,
                pending->len - tidy_chars_len(pending->data + start, pending->len - start, &count));
}

static void drop_spaces(void *data)
{
    struct progress *progress = data;
    size_t len = progress->pending.len;
    while (len > progress->line_start && progress->pending.data[len - 1] == ' ')
        len--;
    buf_cut(&progress->pending, len);
}

static void add_tidied(struct progress *progress, enum link_stream stream, const char *bytes,
                       size_t len)
{
    static const struct tidy_sink sink = { .add = add_text,
                                           .line_end = end_line,
                                           .erase_line = erase_line,
                                           .drop_chars = drop_chars,
                                           .drop_spaces = drop_spaces };
    if (progress->stream != stream) /* the other's line is in the way */
        progress->line_start = progress->pending.len;
    progress->stream = stream;
    tidy_feed(&progress->tidies[stream == LINK_STDERR], bytes, len, &sink, progress);
}

void progress_add(struct progress *progress, enum link_stream stream, const char *bytes, size_t len)
{
    if (!progress)
        return;
    if (progress->strip_ansi)
        add_tidied(progress, stream, bytes, len);
    else
        add_text(bytes, len, progress);
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
