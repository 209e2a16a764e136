/*
 * A hostile agent: the input is all that it ever says to a link that has a run (number 1), a kernel
 * inside a cell (number 2) and one piece of file work of each kind open. Beyond "does not crash": every
 * callback comes exactly once, output keeps within what was asked for, lists are clean and sorted, and the
 * kernel's promises hold (kernel_promises.h).
 *
 * The first byte cuts the rest in two, so that frames arrive in halves too.
 */
#include "agent/link.h"
#include "base/loop.h"
#include "kernel_promises.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 50, TAIL = 20, READ_MAX = 100, LIST_MAX = 3, INPUT = 70 * 1000, FILES = 9 };

static struct {
    unsigned broken, exits, answers, counts;
    uint64_t bytes[3], gaps[3];
} seen;

static void on_broken(const char *why, void *data)
{
    (void)data;
    must(*why && seen.exits == 1 && kernel_promises_ended() && seen.answers == FILES);
    seen.broken++;
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    (void)data;
    must(seen.exits == 0 && len > 0);
    must(bytes[0] + bytes[len - 1] < 1000); /* they are there */
    seen.bytes[stream] += len;
    must(seen.bytes[stream] <= HEAD + TAIL);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    (void)data;
    must(seen.exits == 0 && bytes > 0 && seen.bytes[stream] == HEAD && !seen.gaps[stream]);
    seen.gaps[stream] = bytes;
}

static void on_exit_frame(const struct link_exit *exit, void *data)
{
    (void)data;
    seen.exits++;
    if (!exit)
        return;
    must(exit->stdout_bytes == seen.bytes[LINK_STDOUT] + seen.gaps[LINK_STDOUT]);
    must(exit->stderr_bytes == seen.bytes[LINK_STDERR] + seen.gaps[LINK_STDERR]);
    must(strnlen(exit->failure, sizeof(exit->failure)) < sizeof(exit->failure));
    must(exit->code >= 0 && exit->code <= 255);
}

static void open_kernel(struct link *link, size_t len)
{
    static const char message[INPUT];
    const char *const argv[] = { "k", NULL };
    const struct link_kernel_spec spec = {
        .argv = argv, .cwd = "", .source = "s", .source_len = 1
    };
    must(link_kernel_start(link, &spec, &kernel_events, NULL, NULL) == 0);
    kernel_promises_cell();
    must(link_kernel_send(link, message, len, NULL) == 0);
}

/*** files ***/

static void on_done(int code, void *data)
{
    (void)data;
    must(code >= 0);
    seen.answers++;
}

static void on_data(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    (void)size;
    (void)data;
    must(code >= 0 && (!bytes || len <= READ_MAX));
    seen.answers++;
}

static void on_list(int code, const struct link_entry *entries, size_t count, bool more, void *data)
{
    (void)more;
    (void)data;
    must(code >= 0 && count <= LIST_MAX && (code == 0 || count == 0));
    for (size_t i = 0; i < count; i++) {
        must(entries[i].name[0] && entries[i].name[0] != '/' && !strstr(entries[i].name, "//"));
        must(strcmp(entries[i].name, "..") != 0 && !strstr(entries[i].name, "/../"));
        must(i == 0 || strcmp(entries[i - 1].name, entries[i].name) < 0);
    }
    seen.answers++;
}

static void on_counts(const struct link_counts *counts, void *data)
{
    (void)counts;
    (void)data;
    must(seen.counts++ == 0);
}

/* `len`: of input and content. More than one frame of it is slow, and rarely needed. */
static void open_work(struct link *link, size_t len)
{
    static const char input[INPUT];
    static const struct link_run_events events = { on_output, on_gap, on_exit_frame };
    const char *const argv[] = { "x", NULL };
    const struct link_run_spec spec = {
        .argv = argv,
        .cwd = "",
        .input = input,
        .input_len = len,
        .head_bytes = HEAD,
        .tail_bytes = TAIL,
        .flood_bytes = 1000,
    };
    must(link_run(link, &spec, &events, NULL, NULL) == 0);
    open_kernel(link, len);
    must(link_count(link, on_counts, NULL) == 0);
    /* The first four are with the agent, as 1 to 4; the others wait for an end. */
    must(link_file_read(link, "f", 0, READ_MAX, on_data, NULL, NULL) == 0);
    must(link_file_list(link, "", true, LIST_MAX, on_list, NULL, NULL) == 0);
    must(link_file_write(link, "f", input, len, on_done, NULL, NULL) == 0);
    must(link_file_stat(link, "f", on_list, NULL, NULL) == 0);
    must(link_file_space(link, on_data, NULL, NULL) == 0);
    must(link_file_list(link, "", false, LIST_MAX, on_list, NULL, NULL) == 0);
    must(link_file_delete(link, "f", true, on_done, NULL, NULL) == 0);
    must(link_file_pack(link, input, len, READ_MAX, on_data, NULL, NULL) == 0);
    must(link_file_unpack(link, input, len, on_done, NULL, NULL) == 0);
}

/* The link writes too; nobody reads that, and it must not matter. */
static void say(uv_loop_t *loop, int fd, const uint8_t *data, size_t len)
{
    while (len && !seen.broken) {
        ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
        uv_run(loop, UV_RUN_NOWAIT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uv_loop_t loop;
    static bool ready;
    if (!ready)
        must(uv_loop_init(&loop) == 0);
    ready = true;
    if (size < 1)
        return 0;
    memset(&seen, 0, sizeof(seen));

    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    static const struct link_events events = { .on_broken = on_broken };
    struct link *link = link_new(&loop, ends[0], &events, NULL);
    kernel_promises_begin(link);
    open_work(link, data[0] == 128 ? INPUT : 10);
    size_t cut = 1 + data[0] * (size - 1) / 256;
    say(&loop, ends[1], data + 1, cut - 1);
    say(&loop, ends[1], data + cut, size - cut);
    shutdown(ends[1], SHUT_WR);
    while (!seen.broken)
        uv_run(&loop, UV_RUN_ONCE);
    link_free(link);
    close(ends[1]);
    while (uv_run(&loop, UV_RUN_NOWAIT))
        ;
    must(seen.broken == 1 && seen.exits == 1 && kernel_promises_ended() && seen.answers == FILES);
    return 0;
}
