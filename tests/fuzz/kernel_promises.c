#include "kernel_promises.h"

#include <stdlib.h>
#include <string.h>

/* What it may have kept from outside of cells comes on top of what a cell may write. */
enum { KEPT = 64 * 1024 };

static struct {
    struct link *link;
    unsigned exits;
    bool begun, cell_ends;
    uint64_t bytes[3], gaps[3]; /* since the last end of a cell */
} seen;

void must(bool promise)
{
    if (!promise)
        abort();
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    (void)data;
    must(seen.exits == 0 && len > 0);
    must(bytes[0] + bytes[len - 1] < 1000); /* they are there */
    seen.bytes[stream] += len;
    must(seen.bytes[stream] <= KEPT + KERNEL_HEAD + KERNEL_TAIL);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    (void)data;
    must(seen.exits == 0 && bytes > 0);
    seen.gaps[stream] += bytes;
}

static void must_have_counted(const struct link_exit *totals)
{
    uint64_t out = seen.bytes[LINK_STDOUT] + seen.gaps[LINK_STDOUT];
    uint64_t err = seen.bytes[LINK_STDERR] + seen.gaps[LINK_STDERR];
    /* One that broke the rules may have ended its cell itself, of which nobody was told. */
    must(totals->failure[0] ? totals->stdout_bytes <= out : totals->stdout_bytes == out);
    must(totals->failure[0] ? totals->stderr_bytes <= err : totals->stderr_bytes == err);
}

static void on_cell_end(const struct link_exit *totals, void *data)
{
    (void)data;
    must(seen.cell_ends && seen.exits == 0);
    must(!totals->signaled && !totals->flooded && totals->code == 0 && !totals->failure[0]);
    must_have_counted(totals);
    memset(seen.bytes, 0, sizeof(seen.bytes));
    memset(seen.gaps, 0, sizeof(seen.gaps));
    seen.cell_ends = false;
    kernel_promises_cell();
}

static void on_message(const char *json, size_t len, void *data)
{
    (void)data;
    must(seen.exits == 0 && len > 0 && len <= LINK_KERNEL_MESSAGE_MAX && json[len] == '\0');
    if (json[0] != 'e' || !seen.begun)
        return;
    must((link_kernel_cell_end(seen.link, on_cell_end, NULL, NULL) == 0) == !seen.cell_ends);
    seen.cell_ends = true;
}

static void on_exit_frame(const struct link_exit *exit, void *data)
{
    (void)data;
    must(++seen.exits == 1);
    if (!exit)
        return;
    must_have_counted(exit);
    must(strnlen(exit->failure, sizeof(exit->failure)) < sizeof(exit->failure));
    must(exit->code >= 0 && exit->code <= 255);
}

const struct link_kernel_events kernel_events = { on_message, on_output, on_gap, on_exit_frame };

void kernel_promises_begin(struct link *link)
{
    memset(&seen, 0, sizeof(seen));
    seen.link = link;
}

void kernel_promises_cell(void)
{
    seen.begun = true;
    must(link_kernel_cell(seen.link, KERNEL_HEAD, KERNEL_TAIL, KERNEL_FLOOD, NULL) == 0);
}

bool kernel_promises_ended(void)
{
    return seen.exits == 1;
}
