/*
 * A kernel beside runs, through the real agent; how that is started: agent_box.h. The kernel here is a
 * stand-in of a few lines that does what messages tell it. Then the server's end against an agent that
 * lies.
 */
#include "agent_box.h"
#include "check.h"

#include "agent/door.h"
#include "agent/frame.h"
#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A message is a line of Python that is executed; say() answers, and "done" is said at the end. */
static const char stand_in[] = "import os, signal, struct, subprocess, sys, time\n"
                               "MARK = os.environ['MARK']\n"
                               "def read(n):\n"
                               "    data = b''\n"
                               "    while len(data) < n:\n"
                               "        part = os.read(3, min(n - len(data), 1 << 20))\n"
                               "        if not part: sys.exit(0)\n"
                               "        data += part\n"
                               "    return data\n"
                               "def raw(data):\n"
                               "    while data: data = data[os.write(3, data):]\n"
                               "def say(text):\n"
                               "    data = text if isinstance(text, bytes) else text.encode()\n"
                               "    raw(struct.pack('<I', len(data)) + data)\n"
                               "WAIT = ['cat', MARK + 'kernel']\n"
                               "os.mkfifo(WAIT[1]) if not os.path.exists(WAIT[1]) else None\n"
                               "def daemon():\n"
                               "    if os.fork() == 0:\n"
                               "        os.setsid()\n"
                               "        if os.fork() == 0: os.execvp('cat', WAIT)\n"
                               "        os._exit(0)\n"
                               "    os.wait()\n"
                               "os.set_inheritable(3, False)\n"
                               "print('started', flush=True)\n"
                               "state = {}\n"
                               "while True:\n"
                               "    try:\n"
                               "        signal.pthread_sigmask(signal.SIG_UNBLOCK, [2])\n"
                               "        code = read(struct.unpack('<I', read(4))[0])\n"
                               "        exec(code, globals())\n"
                               "        say('done')\n"
                               "    except KeyboardInterrupt:\n"
                               "        say('interrupted')\n";

/*** processes ***/

/* Processes come and go in their own time: waits for them, for 10 s at most. */
static void expect_processes(struct box *box, const char *text, int want)
{
    int n = count_processes(text);
    for (int i = 0; i < 500 && n != want; i++) {
        box_sleep(box, 20);
        n = count_processes(text);
    }
    CHECK_INT(text, n, want); /* not counted again: who forks may be between two looks */
}

/* Those that wait for ever, with "$MARKrun" or "$MARKkernel" as their argument. */
static char *marked(const struct box *box, const char *suffix)
{
    return xasprintf("%s%s", strchr(box->mark, '=') + 1, suffix);
}

static int count_marked(const struct box *box, const char *suffix)
{
    auto_free char *text = marked(box, suffix);
    return count_processes(text);
}

static void expect_marked(struct box *box, const char *suffix, int want)
{
    auto_free char *text = marked(box, suffix);
    expect_processes(box, text, want);
}

/*** the kernel ***/

/* What has come since the cell began. Not on a stack: a test that fails leaves its kernel behind. */
static struct {
    bool exited, no_exit, cell_ended, done; /* done: it said so */
    struct link_exit exit, totals;
    struct buf out, err;
    size_t lines; /* in both */
    uint64_t gap[3];
    size_t gaps;
    struct buf message, first; /* the last, and what keep_first() has kept */
    size_t messages;
    void (*on_message)(struct box *box); /* beside the rest */
} seen = {
    .out = BUF_INIT(BUF_NO_CEILING),
    .err = BUF_INIT(BUF_NO_CEILING),
    .message = BUF_INIT(BUF_NO_CEILING),
    .first = BUF_INIT(BUF_NO_CEILING),
};

static const char *source_path(const struct box *box)
{
    static char path[200];
    (void)snprintf(path, sizeof(path), "%s/run/kernel.py", box->dir);
    return path;
}

static void on_message(const char *json, size_t len, void *data)
{
    struct box *box = data;
    CHECK_INT("a NUL is behind it", json[len], 0);
    buf_clear(&seen.message);
    (void)buf_add(&seen.message, json, len);
    seen.messages++;
    if (str_eq(buf_str(&seen.message), "done") || str_eq(buf_str(&seen.message), "interrupted"))
        seen.done = true;
    if (seen.on_message)
        seen.on_message(box);
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    (void)data;
    (void)buf_add(stream == LINK_STDOUT ? &seen.out : &seen.err, bytes, len);
    for (size_t i = 0; i < len; i++)
        seen.lines += bytes[i] == '\n';
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    (void)data;
    seen.gap[stream] += bytes;
    seen.gaps++;
}

static void on_kernel_exit(const struct link_exit *exit, void *data)
{
    (void)data;
    CHECK_INT("told once", seen.exited, false);
    seen.exited = true;
    seen.no_exit = !exit;
    if (exit)
        seen.exit = *exit;
}

static const struct link_kernel_events kernel_events = { on_message, on_output, on_gap,
                                                         on_kernel_exit };

static void forget(void)
{
    buf_clear(&seen.out);
    buf_clear(&seen.err);
    buf_clear(&seen.message);
    memset(seen.gap, 0, sizeof(seen.gap));
    seen.messages = seen.gaps = seen.lines = 0;
    seen.done = seen.cell_ended = seen.exited = seen.no_exit = false;
}

static void start_with(struct box *box, const char *const *argv, const char *source)
{
    if (link_kernel_alive(box->link))
        FAIL("the last test has left its kernel behind");
    seen.on_message = NULL;
    struct link_kernel_spec spec = {
        .argv = argv,
        .env = (const char *const[]){ box->mark, NULL },
        .cwd = "",
        .source = source,
        .source_len = source ? strlen(source) : 0,
    };
    struct err err;
    forget();
    if (link_kernel_start(box->link, &spec, &kernel_events, box, &err) < 0)
        FAIL("link_kernel_start: %s", err.msg);
}

static void start(struct box *box)
{
    start_with(box, (const char *const[]){ "python3", "-S", "-E", source_path(box), NULL },
               stand_in);
}

static void tell(struct box *box, const char *code)
{
    struct err err;
    seen.done = false;
    if (link_kernel_send(box->link, code, strlen(code), &err) < 0)
        FAIL("link_kernel_send: %s", err.msg);
}

static void begin_cell(struct box *box, uint64_t head, uint64_t tail, uint64_t flood)
{
    struct err err;
    forget();
    if (link_kernel_cell(box->link, head, tail, flood, &err) < 0)
        FAIL("link_kernel_cell: %s", err.msg);
}

static void on_cell_end(const struct link_exit *totals, void *data)
{
    (void)data;
    seen.cell_ended = true;
    seen.totals = *totals;
}

static void end_cell(struct box *box)
{
    struct err err;
    if (link_kernel_cell_end(box->link, on_cell_end, box, &err) < 0)
        FAIL("link_kernel_cell_end: %s", err.msg);
    box_wait(box, &seen.cell_ended);
}

enum { HEAD = 1 << 20, TAIL = 1 << 16, FLOOD = 1 << 30 };

/* One whole cell with generous limits. */
static void cell(struct box *box, const char *code)
{
    begin_cell(box, HEAD, TAIL, FLOOD);
    tell(box, code);
    box_wait(box, &seen.done);
    end_cell(box);
}

static void kill_kernel(struct box *box)
{
    link_kernel_kill(box->link);
    box_wait(box, &seen.exited);
}

/* In a session of its own and without a parent. */
#define DAEMON "[ -p ${MARK}run ] || mkfifo ${MARK}run; (setsid cat ${MARK}run &)\n"

/*** messages ***/

static void test_messages_go_there_and_back(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "say('hello ' + str(6 * 7)); print('printed', flush=True)");
    CHECK_INT("messages", seen.messages, 2);
    CHECK_STR("stdout", buf_str(&seen.out), "started\nprinted\n");
    CHECK_STR("stderr", buf_str(&seen.err), "");
    CHECK_INT("code", seen.totals.code, 0);
    CHECK_INT("bytes", seen.totals.stdout_bytes, 16);
    CHECK("it is alive", link_kernel_alive(box->link));
    cell(box, "state['x'] = 5");
    cell(box, "say(str(state['x'] + 1))\nwhile True: time.sleep(0.001); break");
    CHECK_STR("last", buf_str(&seen.message), "done");
    CHECK_STR("a new cell has its own output", buf_str(&seen.out), "");
    CHECK_INT("and counts", seen.totals.stdout_bytes, 0);
    kill_kernel(box);
    CHECK("it is dead", !link_kernel_alive(box->link));
}

static void keep_first(struct box *box)
{
    (void)box;
    if (seen.messages == 1)
        (void)buf_add(&seen.first, seen.message.data, seen.message.len);
}

/* Eight MiB and a bit, in both directions: many frames, and none of them whole. */
static void test_long_messages_arrive_whole(void **state)
{
    struct box *box = *state;
    start(box);
    size_t len = 8 * 1024 * 1024 + 77;
    auto_buf code = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&code, "say(code[::-1])#");
    while (code.len < len)
        (void)buf_add_char(&code, (char)('a' + code.len * 7 % 26));
    seen.on_message = keep_first;
    cell(box, code.data);
    CHECK_INT("length", seen.first.len, len);
    for (size_t i = 0; i < len; i++)
        if (seen.first.data[i] != code.data[len - 1 - i])
            FAIL("byte %zu differs", i);
    cell(box, "for i in range(20000): say(str(i))");
    CHECK_INT("many short ones", seen.messages, 20001);
    kill_kernel(box);
}

static void test_a_kernel_that_does_not_read_is_not_fed_for_ever(void **state)
{
    struct box *box = *state;
    start(box);
    auto_free char *much = xmalloc(LINK_KERNEL_MESSAGE_MAX + 1);
    memset(much, '#', LINK_KERNEL_MESSAGE_MAX + 1);
    CHECK_INT("too long", link_kernel_send(box->link, much, LINK_KERNEL_MESSAGE_MAX + 1, NULL),
              -EMSGSIZE);
    CHECK_INT("empty", link_kernel_send(box->link, much, 0, NULL), -EMSGSIZE);
    tell(box, "time.sleep(1000)");
    box_sleep(box, 300);
    CHECK_INT("first", link_kernel_send(box->link, much, LINK_KERNEL_MESSAGE_MAX, NULL), 0);
    box_sleep(box, 300);
    CHECK_INT("second", link_kernel_send(box->link, much, LINK_KERNEL_MESSAGE_MAX, NULL), 0);
    box_sleep(box, 300);
    CHECK_INT("third", link_kernel_send(box->link, much, LINK_KERNEL_MESSAGE_MAX, NULL), -ENOBUFS);
    kill_kernel(box);
    CHECK_INT("signal", seen.exit.code, SIGKILL);
}

static void expect_as_many_lines(struct box *box)
{
    (void)box;
    if (!seen.done && seen.lines < 2 * seen.messages)
        FAIL("message %zu came after %zu lines", seen.messages, seen.lines);
}

static void test_what_is_printed_first_comes_first(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "pass");
    seen.on_message = expect_as_many_lines;
    begin_cell(box, 4 * HEAD, TAIL, FLOOD);
    tell(box, "for i in range(2000):\n"
              "    os.write(1, b'out\\n' if i % 50 else b'o' * 70000 + b'\\n')\n"
              "    os.write(2, b'err\\n')\n"
              "    say(str(i))\n");
    box_wait(box, &seen.done);
    end_cell(box);
    CHECK_INT("messages", seen.messages, 2001);
    CHECK_INT("stderr", seen.err.len, 8000);
    CHECK_INT("nothing is missing", seen.gaps, 0);
    kill_kernel(box);
}

/*** cells ***/

static void test_limits_are_those_of_the_cell(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "pass");
    for (int i = 0; i < 3; i++) {
        begin_cell(box, 10, 5, FLOOD);
        tell(box, "os.write(1, b'0123456789' * 10); os.write(2, b'abc')");
        box_wait(box, &seen.done);
        CHECK_STR("head at once", buf_str(&seen.out), "0123456789");
        end_cell(box);
        CHECK_STR("head and tail", buf_str(&seen.out), "012345678956789");
        CHECK_INT("gap", seen.gap[LINK_STDOUT], 85);
        CHECK_INT("all of it", seen.totals.stdout_bytes, 100);
        CHECK_STR("stderr", buf_str(&seen.err), "abc");
        CHECK_INT("its gap", seen.gap[LINK_STDERR], 0);
    }
    begin_cell(box, 0, 0, FLOOD);
    tell(box, "os.write(1, b'0123456789' * 10)");
    box_wait(box, &seen.done);
    end_cell(box);
    CHECK_INT("nothing is kept", seen.out.len, 0);
    CHECK_INT("but counted", seen.gap[LINK_STDOUT], 100);
    cell(box, "os.write(1, b'x' * 500000)");
    CHECK_INT("and then all", seen.out.len, 500000);
    CHECK_INT("without a gap", seen.gaps, 0);
    kill_kernel(box);
}

/* What a thread of the kernel does between cells: when told, and not before it is over do we go on. */
#define LATER(name, what)                                                                          \
    "import threading\n"                                                                           \
    "def later():\n"                                                                               \
    "    while not os.path.exists('" name "'): time.sleep(0.01)\n"                                 \
    "    " what "\n"                                                                               \
    "    open('" name "-over', 'w').close()\n"                                                     \
    "t = threading.Thread(target=later); t.start()\n"

static void let_it(struct box *box, const char *name)
{
    auto_free char *over = xasprintf("%s/%s-over", box->workspace, name);
    CHECK_INT(name, box_write(box, name, "", 0), 0);
    for (int i = 0; i < 500 && access(over, F_OK) < 0; i++)
        box_sleep(box, 20);
    CHECK("it did", access(over, F_OK) == 0);
}

static void test_output_between_cells_begins_the_next(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, LATER("once", "os.write(1, b'later')"));
    let_it(box, "once");
    CHECK_STR("it waits", buf_str(&seen.out), "started\n");
    begin_cell(box, 20, 10, FLOOD);
    tell(box, "print('now', flush=True)\n" LATER("often", "os.write(1, b'later' * 1000)"));
    box_wait(box, &seen.done);
    CHECK_STR("first what was kept", buf_str(&seen.out), "laternow\n");
    end_cell(box);
    CHECK_INT("counted here", seen.totals.stdout_bytes, 9);
    let_it(box, "often");
    cell(box, "print('again', flush=True)");
    CHECK_STR("as much as the last tail", buf_str(&seen.out), "laterlateragain\n");
    CHECK_INT("after a gap", seen.gap[LINK_STDOUT], 4990);
    CHECK_INT("all of it", seen.totals.stdout_bytes, 5006);
    kill_kernel(box);
}

static void test_a_flood_between_cells_waits(void **state)
{
    struct box *box = *state;
    start(box);
    begin_cell(box, 1000, 1000, 100000);
    tell(box, LATER("flood",
                    "open('flood-over', 'w'); [os.write(1, b'x' * 10000) for i in range(1000)]"));
    box_wait(box, &seen.done);
    end_cell(box);
    let_it(box, "flood");
    box_sleep(box, 200);
    cell(box, "t.join(); say('over')");
    CHECK_INT("all has been written", seen.totals.stdout_bytes, 10 * 1000 * 1000);
    kill_kernel(box);
}

static void test_cells_have_an_order(void **state)
{
    struct box *box = *state;
    if (!box->ready)
        skip();
    CHECK_INT("send", link_kernel_send(box->link, "x", 1, NULL), -ENOENT);
    CHECK_INT("cell", link_kernel_cell(box->link, 1, 1, 1, NULL), -ENOENT);
    CHECK_INT("cell end", link_kernel_cell_end(box->link, on_cell_end, box, NULL), -ENOENT);
    link_kernel_interrupt(box->link);
    link_kernel_kill(box->link);
    start(box);
    struct link_kernel_spec spec = { .argv = (const char *const[]){ "true", NULL } };
    CHECK_INT("two kernels", link_kernel_start(box->link, &spec, &kernel_events, box, NULL),
              -EBUSY);
    CHECK_INT("end before begin", link_kernel_cell_end(box->link, on_cell_end, box, NULL), -EINVAL);
    begin_cell(box, HEAD, TAIL, FLOOD);
    CHECK_INT("two cells", link_kernel_cell(box->link, 1, 1, 1, NULL), -EBUSY);
    CHECK_INT("end", link_kernel_cell_end(box->link, on_cell_end, box, NULL), 0);
    CHECK_INT("two ends", link_kernel_cell_end(box->link, on_cell_end, box, NULL), -EINVAL);
    box_wait(box, &seen.cell_ended);
    CHECK_INT("dull but well", seen.totals.code, 0);
    cell(box, "x = [i * i for i in range(2000000)]");
    CHECK("time of the cell", seen.totals.cpu_ns > 10000000 && seen.totals.wall_ns > 10000000);
    kill_kernel(box);
}

/* Its bytes come one by one, behind a message that is not the last. */
#define LAST_WORD                                                                                  \
    "print('before', flush=True); say('early')\n"                                                  \
    "for byte in struct.pack('<I', 6 | 1 << 31) + b'result': raw(bytes([byte]))\n"

static void end_at_result(struct box *box)
{
    if (!str_eq(buf_str(&seen.message), "result"))
        return;
    CHECK("no sooner", !seen.cell_ended);
    CHECK_INT("end", link_kernel_cell_end(box->link, on_cell_end, box, NULL), 0);
}

static void test_a_last_word_ends_the_cell(void **state)
{
    struct box *box = *state;
    start(box);
    for (int i = 0; i < 3; i++) {
        begin_cell(box, HEAD, TAIL, FLOOD);
        seen.on_message = end_at_result;
        tell(box, LAST_WORD);
        box_wait(box, &seen.cell_ended);
        CHECK_STR("output", buf_str(&seen.out), i ? "before\n" : "started\nbefore\n");
        box_wait(box, &seen.done);
        seen.on_message = NULL;
    }
    cell(box, "print('as ever', flush=True)");
    CHECK_STR("output", buf_str(&seen.out), "as ever\n");
    tell(box, LAST_WORD "print('outside', flush=True)\n"); /* of no cell */
    box_wait(box, &seen.done);
    cell(box, "pass");
    CHECK_STR("output", buf_str(&seen.out), "before\noutside\n");

    begin_cell(box, HEAD, TAIL, FLOOD);
    tell(box, LAST_WORD); /* which nobody takes for one */
    box_wait(box, &seen.exited);
    CHECK_STR("why", seen.exit.failure, "the kernel ended a cell without a result");
}

/*** ends ***/

/* At any time between the order to start it and its own readiness. */
static void test_an_early_interrupt_waits_for_the_kernel(void **state)
{
    struct box *box = *state;
    for (int delay_ms = 0; delay_ms < 20; delay_ms += 4) {
        start(box);
        box_sleep(box, (unsigned)delay_ms);
        link_kernel_interrupt(box->link);
        box_wait(box, &seen.done);
        CHECK_STR("it came", buf_str(&seen.message), "interrupted");
        seen.on_message = NULL;
        cell(box, "print('alive', flush=True)");
        kill_kernel(box);
    }
}

static void test_an_interrupt_keeps_the_state(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "state['x'] = 1; p = subprocess.Popen(['sleep', '1000'])");
    begin_cell(box, HEAD, TAIL, FLOOD);
    tell(box, "print('before', flush=True); say('going'); time.sleep(1000)");
    while (!seen.messages)
        box_sleep(box, 5);
    link_kernel_interrupt(box->link);
    box_wait(box, &seen.done);
    CHECK_STR("it says so", buf_str(&seen.message), "interrupted");
    end_cell(box);
    CHECK_STR("what it wrote", buf_str(&seen.out), "before\n");
    seen.on_message = NULL;
    cell(box, "print(state['x'], p.poll(), flush=True)");
    CHECK_STR("state is there, its child too", buf_str(&seen.out), "1 None\n");
    kill_kernel(box);
}

static void test_ends_are_told_apart(void **state)
{
    struct box *box = *state;
    start(box);
    begin_cell(box, HEAD, TAIL, FLOOD);
    tell(box, "print('last words', flush=True); say('bye'); os._exit(7)");
    box_wait(box, &seen.exited);
    CHECK_INT("status", seen.exit.code, 7);
    CHECK_INT("by signal", seen.exit.signaled, false);
    CHECK_STR("failure", seen.exit.failure, "");
    CHECK_STR("output", buf_str(&seen.out), "started\nlast words\n");
    CHECK_STR("message", buf_str(&seen.message), "bye");
    CHECK_INT("bytes", seen.exit.stdout_bytes, seen.out.len);
    CHECK("its code is gone", access(source_path(box), F_OK) < 0);

    start(box);
    tell(box, "os.kill(os.getpid(), signal.SIGSEGV)");
    box_wait(box, &seen.exited);
    CHECK_INT("signal", seen.exit.code, SIGSEGV);
    CHECK_INT("by signal", seen.exit.signaled, true);

    start(box);
    kill_kernel(box);
    CHECK_INT("killed", seen.exit.code, SIGKILL);

    start(box);
    cell(box, "pass");
    begin_cell(box, HEAD, TAIL, FLOOD);
    tell(box, "while True: os.write(1, b'x' * 65536)");
    CHECK_INT("the end of a cell that floods",
              link_kernel_cell_end(box->link, on_cell_end, box, NULL), 0);
    box_wait(box, &seen.cell_ended);
    kill_kernel(box);
}

static void test_what_cannot_start_says_why(void **state)
{
    struct box *box = *state;
    start_with(box, (const char *const[]){ "no-such-program", NULL }, "x");
    box_wait(box, &seen.exited);
    CHECK_STR("why", seen.exit.failure, "no-such-program: No such file or directory");
    CHECK_INT("status", seen.exit.code, 127);

    start_with(box, (const char *const[]){ "python3", source_path(box), NULL },
               "import nothing_at_all");
    box_wait(box, &seen.exited);
    CHECK_INT("status", seen.exit.code, 1);
    CHECK("the traceback came", strstr(buf_str(&seen.err), "nothing_at_all"));
    CHECK_INT("bytes", seen.exit.stderr_bytes, seen.err.len);

    auto_free char *much = xcalloc(1, LINK_KERNEL_SOURCE_MAX + 1);
    struct link_kernel_spec spec = {
        .argv = (const char *const[]){ "true", NULL },
        .source = much,
        .source_len = LINK_KERNEL_SOURCE_MAX + 1,
    };
    CHECK_INT("source too long", link_kernel_start(box->link, &spec, &kernel_events, box, NULL),
              -EFBIG);
    spec.argv = (const char *const[]){ "sh", "-c", "wc -c < \"$0\"", source_path(box), NULL };
    spec.source_len = LINK_KERNEL_SOURCE_MAX;
    forget();
    CHECK_INT("just so", link_kernel_start(box->link, &spec, &kernel_events, box, NULL), 0);
    box_wait(box, &seen.exited);
    CHECK_STR("it is there", buf_str(&seen.out), "1048576\n");
}

static void test_the_kernel_has_nothing_open_but_what_it_needs(void **state)
{
    struct box *box = *state;
    static const char source[] = "import os, stat\n"
                                 "print(sorted(f for f in os.listdir('/proc/self/fd') "
                                 "if os.path.exists('/proc/self/fd/' + f)))\n"
                                 "print(os.readlink('/proc/self/fd/0'))\n"
                                 "print(stat.S_ISSOCK(os.fstat(3).st_mode))\n"
                                 "print(os.getcwd())\n"
                                 "print(oct(os.stat(__file__).st_mode & 0o777))\n";
    start_with(box, (const char *const[]){ "python3", "-S", "-E", source_path(box), NULL }, source);
    box_wait(box, &seen.exited);
    auto_free char *want =
        xasprintf("['0', '1', '2', '3']\n/dev/null\nTrue\n%s\n0o444\n", box->workspace);
    CHECK_STR("what it sees", buf_str(&seen.out), want);
}

static void test_a_flood_ends_the_kernel(void **state)
{
    struct box *box = *state;
    start(box);
    begin_cell(box, 100, 100, 1000 * 1000);
    tell(box, "while True: os.write(2, b'x' * 10000)");
    box_wait(box, &seen.exited);
    CHECK_INT("flooded", seen.exit.flooded, true);
    CHECK_INT("by signal", seen.exit.signaled, true);
    CHECK_INT("bounded", seen.err.len, 200);
    start(box);
    cell(box, "say('x')");
    CHECK_INT("the next is well", seen.messages, 2);
    kill_kernel(box);
}

/*** bad kernels ***/

static void expect_broken(struct box *box, const char *code, const char *why)
{
    start(box);
    tell(box, code);
    box_wait(box, &seen.exited);
    CHECK_STR("why", seen.exit.failure, why);
    CHECK("the sandbox is there", !box->broken);
    auto_result next = { 0 };
    box_run(box, &SH("echo fine"), &next);
    CHECK_STR("and usable", buf_str(&next.out), "fine\n");
}

static void test_a_kernel_that_breaks_the_rules_is_killed(void **state)
{
    struct box *box = *state;
    expect_broken(box, "raw(b'\\xff\\xff\\xff\\xff' * 100000)",
                  "the kernel sent a message of 2147483647 bytes");
    expect_broken(box, "raw(b'\\x01\\x00\\x00\\x02'); time.sleep(1000)",
                  "the kernel sent a message of 33554433 bytes");
    expect_broken(box, "say(b'')\nwhile True: say(b'x' * 1000)",
                  "the kernel sent a message of 0 bytes");
    expect_broken(box, "os.close(3); time.sleep(1000)",
                  "the kernel has closed its channel: Broken pipe");
}

static void test_half_a_message_is_none(void **state)
{
    struct box *box = *state;
    start(box);
    tell(box, "raw(b'\\x05\\x00\\x00\\x00hell'); os._exit(0)");
    box_wait(box, &seen.exited);
    CHECK_INT("messages", seen.messages, 0);
    CHECK_INT("status", seen.exit.code, 0);
}

/*** beside runs ***/

static void test_a_run_leaves_the_kernel_alone_and_nothing_else(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "daemon(); daemon(); p = subprocess.Popen(['sleep', '1000']); state['x'] = 3");
    expect_marked(box, "kernel", 2);
    for (int i = 0; i < 3; i++) {
        auto_result beside = { 0 };
        box_run(box,
                &SH(DAEMON DAEMON DAEMON
                    "cat ${MARK}run & echo ran; "
                    "while [ $(pgrep -fc \"^cat ${MARK}run\") -lt 4 ]; do :; done"),
                &beside);
        CHECK_STR("it ran", buf_str(&beside.out), "ran\n");
        CHECK_INT("its status", beside.exit.code, 0);
        CHECK_INT("the run's daemons", count_marked(box, "run"), 0);
        CHECK_INT("the kernel's", count_marked(box, "kernel"), 2);
    }
    cell(box, "print(state['x'], p.poll(), flush=True)");
    CHECK_STR("the kernel", buf_str(&seen.out), "3 None\n");
    kill_kernel(box);
    CHECK_INT("its daemons go with it", count_marked(box, "kernel"), 0);
}

static void test_daemons_end_with_a_kernel_that_ends(void **state)
{
    struct box *box = *state;
    start(box);
    tell(box, "daemon(); daemon(); say('there'); os._exit(3)");
    box_wait(box, &seen.exited);
    CHECK_INT("status", seen.exit.code, 3);
    CHECK_INT("daemons", count_marked(box, "kernel"), 0);
}

static void test_a_kernel_that_is_killed_leaves_the_run_alone(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "daemon(); daemon(); subprocess.Popen(WAIT)");
    expect_marked(box, "kernel", 3);
    auto_result beside = { 0 };
    box_start(box, &SH(DAEMON "while ! [ -e go ]; do sleep 0.01; done; echo ran"), &beside);
    expect_marked(box, "run", 1);
    kill_kernel(box);
    CHECK_INT("signal", seen.exit.code, SIGKILL);
    CHECK_INT("the kernel's", count_marked(box, "kernel"), 0);
    CHECK_INT("the run's", count_marked(box, "run"), 1);
    CHECK("the run goes on", !beside.done);

    /* And a new one may come meanwhile. */
    start(box);
    cell(box, "open('go', 'w'); daemon()");
    box_wait(box, &beside.done);
    CHECK_STR("the run's output", buf_str(&beside.out), "ran\n");
    CHECK_INT("the run's", count_marked(box, "run"), 0);
    cell(box, "say('alive')");
    expect_marked(box, "kernel", 1);
    kill_kernel(box);
}

static void test_a_kernel_that_ends_leaves_the_run_alone(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "subprocess.Popen(WAIT); daemon()");
    expect_marked(box, "kernel", 2);
    auto_result beside = { 0 };
    box_start(box, &SH("while ! [ -e go2 ]; do sleep 0.01; done; echo ran"), &beside);
    tell(box, "os._exit(0)");
    box_wait(box, &seen.exited);
    CHECK_INT("without what was in its session", count_marked(box, "kernel"), 1);
    start(box);
    cell(box, "open('go2', 'w')");
    box_wait(box, &beside.done);
    CHECK_STR("the run's output", buf_str(&beside.out), "ran\n");
    CHECK_INT("all of the old kernel's", count_marked(box, "kernel"), 0);
    cell(box, "say('alive')");
    kill_kernel(box);
}

/* Processes that are gone before one can look at them twice, each a session of its own. */
static void test_a_run_that_keeps_forking_ends(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "daemon()");
    expect_marked(box, "kernel", 1);
    auto_result beside = { 0 };
    box_run(box,
            &SH("exec python3 -S -c '\n"
                "import os, time\n"
                "for i in range(4):\n"
                "    if os.fork() == 0:\n"
                "        while True:\n"
                "            os.setsid() if os.getsid(0) != os.getpid() else None\n"
                "            if os.fork(): os._exit(0)\n"
                "time.sleep(0.2)\n"
                "print(\"ran\")' ${MARK}run"),
            &beside);
    CHECK_STR("it ran", buf_str(&beside.out), "ran\n");
    box_sleep(box, 100);
    CHECK_INT("it is gone", count_marked(box, "run"), 0);
    CHECK("the kernel lives", !seen.exited);
    cell(box, "say('alive')");
    kill_kernel(box);
}

static void test_runs_and_files_go_on_beside_a_busy_kernel(void **state)
{
    struct box *box = *state;
    start(box);
    begin_cell(box, 1 << 10, 1 << 10, UINT64_C(1) << 40);
    tell(box, "end = time.time() + 1.5\n"
              "while time.time() < end: os.write(1, b'x' * 60000); say('x' * 60000)");
    for (int i = 0; i < 10; i++) {
        auto_result beside = { 0 };
        box_run(box, &SH("head -c 300000 /dev/zero | tr '\\0' y"), &beside);
        CHECK_INT("all of it", beside.out.len, 300000);
    }
    box_wait(box, &seen.done);
    end_cell(box);
    kill_kernel(box);
}

/*** the server ***/

static void free_link(struct box *box)
{
    link_free(box->link);
    box->link = NULL;
}

/* The last: there is no agent afterwards. */
static void test_all_die_with_a_server_that_goes_in_a_message(void **state)
{
    struct box *box = *state;
    start(box);
    cell(box, "daemon(); daemon()");
    auto_result beside = { 0 };
    box_start(box, &SH(DAEMON "sleep 1000"), &beside);
    expect_marked(box, "run", 1);
    forget();
    seen.on_message = free_link;
    tell(box, "[say('x' * 10) for i in range(100)]; time.sleep(1000)");
    box_wait(box, &seen.exited);
    CHECK_INT("no exit", seen.no_exit, true);
    CHECK_INT("messages", seen.messages, 1);
    CHECK("the run's end is told too", beside.done && beside.failed);
    expect_marked(box, "", 0);
    expect_processes(box, source_path(box), 0);
}

/*** an agent that lies ***/

static void put_frame(struct buf *out, uint8_t type, uint32_t number, const char *payload,
                      size_t len)
{
    char header[FRAME_HEADER];
    frame_put_header(header, type, number, len);
    (void)buf_add(out, header, sizeof(header));
    (void)buf_add(out, payload, len);
}

static void put_exit(struct buf *out, uint8_t type, uint32_t code, uint64_t stdout_bytes)
{
    char payload[FRAME_EXIT_SIZE];
    frame_exit_put(payload, &(struct frame_exit){ .code = code, .stdout_bytes = stdout_bytes });
    put_frame(out, type, 1, payload, sizeof(payload));
}

static void put_gap(struct buf *out, uint64_t bytes)
{
    char payload[FRAME_GAP_SIZE];
    frame_gap_put(payload, &(struct frame_gap){ .stream = FRAME_IS_STDOUT, .bytes = bytes });
    put_frame(out, FRAME_GAP, 1, payload, sizeof(payload));
}

static void broken(const char *why, void *data)
{
    (void)buf_add_str(data, why);
}

/* What the link makes of an agent that says this of kernel 1, in a cell whose end has been asked for or
 * not. */
static void expect_judgement(const char *name, struct buf *lie, bool in_cell, const char *want)
{
    uv_loop_t loop;
    int ends[2];
    auto_buf why = BUF_INIT(BUF_NO_CEILING);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    static const struct link_events events = { .on_broken = broken };
    struct link *link = link_new(&loop, ends[0], &events, &why);
    struct link_kernel_spec spec = { .argv = (const char *const[]){ "x", NULL }, .cwd = "" };
    static const struct link_kernel_events nothing = { .on_exit = on_kernel_exit };
    forget();
    CHECK_INT(name, link_kernel_start(link, &spec, &nothing, NULL, NULL), 0);
    if (in_cell) {
        CHECK_INT(name, link_kernel_cell(link, 10, 10, 100, NULL), 0);
        CHECK_INT(name, link_kernel_cell_end(link, on_cell_end, NULL, NULL), 0);
    }
    char hello[FRAME_HELLO_SIZE];
    frame_hello_put(hello, &(struct frame_hello){ .magic = FRAME_MAGIC, .version = FRAME_VERSION });
    auto_buf all = BUF_INIT(BUF_NO_CEILING);
    put_frame(&all, FRAME_READY, 0, hello, sizeof(hello));
    (void)buf_add(&all, lie->data, lie->len);
    CHECK_INT(name, send(ends[1], all.data, all.len, MSG_NOSIGNAL), all.len);
    (void)shutdown(ends[1], SHUT_WR);
    while (!why.len)
        uv_run(&loop, UV_RUN_ONCE);
    CHECK_STR(name, buf_str(&why), want);
    CHECK("its end is told", seen.exited);
    link_free(link);
    loop_finish(&loop);
    close(ends[1]);
    buf_done(lie);
}

static void test_an_agent_that_lies_is_not_believed(void **state)
{
    (void)state;
    static const char bytes[FRAME_PAYLOAD_MAX];
    struct buf lie = BUF_INIT(BUF_NO_CEILING);
    put_frame(&lie, FRAME_STDOUT, 1, bytes, 5);
    put_exit(&lie, FRAME_EXIT, 3, 5);
    expect_judgement("the truth", &lie, false, "the agent has closed the stream");
    CHECK_INT("and its exit", seen.exit.code, 3);

    put_frame(&lie, FRAME_STDOUT, 1, bytes, FRAME_PAYLOAD_MAX);
    put_frame(&lie, FRAME_STDOUT, 1, bytes, 1);
    expect_judgement("more than is kept", &lie, false, "the agent sent more output than it may");
    put_frame(&lie, FRAME_STDOUT, 1, bytes, FRAME_PAYLOAD_MAX);
    put_frame(&lie, FRAME_STDOUT, 1, bytes, 21);
    expect_judgement("more than a cell may", &lie, true, "the agent sent more output than it may");
    put_frame(&lie, FRAME_STDERR, 1, bytes, 0);
    expect_judgement("nothing", &lie, false, "the agent sent more output than it may");
    put_gap(&lie, 1);
    put_gap(&lie, 1);
    put_gap(&lie, 1);
    expect_judgement("gaps", &lie, true, "the agent left out output where it may not");
    put_gap(&lie, UINT64_MAX);
    expect_judgement("a huge gap", &lie, true, "the agent left out output where it may not");
    put_exit(&lie, FRAME_EXIT, 0, 1);
    expect_judgement("totals", &lie, false, "the agent lost count of the output");
    put_exit(&lie, FRAME_CELL_DONE, 0, 1);
    expect_judgement("totals of a cell", &lie, true, "the agent lost count of the output");
    put_exit(&lie, FRAME_CELL_DONE, 0, 0);
    expect_judgement("no cell", &lie, false, "the agent ended a cell that is none");
    put_exit(&lie, FRAME_CELL_DONE, 1, 0);
    expect_judgement("a cell with a status", &lie, true, "the agent ended a cell that is none");
    put_exit(&lie, FRAME_CELL_DONE, 0, 0);
    put_exit(&lie, FRAME_CELL_DONE, 0, 0);
    expect_judgement("twice", &lie, true, "the agent ended a cell that is none");
    put_frame(&lie, FRAME_TALK_MORE, 1, NULL, 0);
    expect_judgement("not asked", &lie, false, "the agent asked for messages twice");
    put_frame(&lie, FRAME_SAID, 1, NULL, 0);
    expect_judgement("silence", &lie, false, "the agent passed on nothing");
    put_frame(&lie, FRAME_RUN_MORE, 1, NULL, 0);
    expect_judgement("input", &lie, false, "the agent spoke of a kernel as of a run");
    put_frame(&lie, FRAME_SAID, 2, "x", 1);
    expect_judgement("somebody else's", &lie, false, "the agent spoke of a run that is not");
    put_exit(&lie, FRAME_EXIT, 0, 0);
    put_frame(&lie, FRAME_SAID, 1, "x", 1);
    expect_judgement("from the grave", &lie, false, "the agent spoke of a run that is not");
}

/*** the door ***/

/* Nobody has the other ends but us. */
static void start_joined(struct box *box)
{
    static struct link_pipes theirs = LINK_PIPES_NONE;
    struct link_pipes ours;
    const struct link_kernel_spec spec = { .joined = &ours };
    struct err err;
    forget();
    link_pipes_close(&theirs); /* of the last */
    if (link_pipes_open(&ours, &theirs, &err) < 0)
        FAIL("link_pipes_open: %s", err.msg);
    if (link_kernel_start(box->link, &spec, &kernel_events, box, &err) < 0)
        FAIL("link_kernel_start: %s", err.msg);
}

/* What comes meanwhile waits, and is not held against anybody. */
static void expect_absent(struct box *box, const char *words)
{
    struct err err;
    CHECK_INT("cell", link_kernel_cell(box->link, HEAD, TAIL, FLOOD, &err), 0);
    CHECK_INT("talk", link_kernel_send(box->link, "x", 1, &err), 0);
    link_kernel_interrupt(box->link);
    box_wait(box, &seen.exited);
    CHECK("absent", seen.exit.absent);
    seen.exit.failure[strcspn(seen.exit.failure, ":")] =
        '\0'; /* C libraries word errors differently */
    CHECK_STR("why", seen.exit.failure, words);
    CHECK_INT("nothing of it stays", box_count(box), 0);
}

static void leave_note(struct box *box, uint32_t number, int code, const char *step)
{
    struct door_note note = { .magic = DOOR_MAGIC, .number = number, .code = code };
    (void)snprintf(note.step, sizeof(note.step), "%s", step);
    CHECK_INT("note", send(box->door, &note, sizeof(note), 0), sizeof(note));
}

static void test_nobody_at_the_door_is_told_and_a_kernel_can_be_started(void **state)
{
    struct box *box = *state;
    start_joined(box);
    expect_absent(box, box_mode("guest") ? "wait at the door" : "open the door");
    start(box);
    cell(box, "say('here')");
    CHECK_INT("messages", seen.messages, 2);
    kill_kernel(box);
    CHECK("not absent", !seen.exit.absent);
}

static void test_whoever_is_at_the_door_is_not_believed(void **state)
{
    struct box *box = *state;
    start_joined(box);
    leave_note(box, link_kernel_number(box->link), 0, "");
    expect_absent(box, "join as a stranger"); /* we are no child of the agent's */

    start_joined(box);
    uint32_t number = link_kernel_number(box->link);
    leave_note(box, number - 1, 0, "to an order that was given up");
    leave_note(box, number, ENOSPC, "limits");
    expect_absent(box, "limits");

    start_joined(box);
    CHECK_INT("nonsense", send(box->door, "x", 1, 0), 1);
    expect_absent(box, "hear from the door");

    /* Before its frames have come. */
    leave_note(box, number + 2, ENOSPC, "early");
    box_sleep(box, 50);
    start_joined(box);
    expect_absent(box, "early");
}

/* A child of the agent's, as the zygote makes them, that comes to the door. Then it ends with this status, or
 * -1: with 5 when it is interrupted. */
static void visit(struct box *box, uint32_t number, int status)
{
    pid_t between = fork();
    if (between == 0) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid_for_children", (int)box->pid);
        int ns = open(path, O_RDONLY | O_CLOEXEC);
        if (ns < 0 || setns(ns, CLONE_NEWPID) < 0)
            _exit(1);
        pid_t parent = fork();
        if (parent > 0)
            _exit(waitpid(parent, NULL, 0) == parent ? 0 : 1);
        if (fork() > 0)
            _exit(0);
        while (getppid() != 1)
            usleep(1000);
        sigset_t interrupt;
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        sigprocmask(SIG_BLOCK, &interrupt, NULL);
        struct door_note note = { .magic = DOOR_MAGIC, .number = number };
        int signal = send(box->door, &note, sizeof(note), 0) == (ssize_t)sizeof(note) ? 0 : -1;
        if (signal == 0 && status < 0)
            (void)sigwait(&interrupt, &signal);
        _exit(status < 0 ? 5 : status);
    }
    int how;
    CHECK_INT("visitor", waitpid(between, &how, 0), between);
    CHECK_INT("came", how, 0);
}

static void test_whoever_joins_is_the_kernel(void **state)
{
    struct box *box = *state;
    start_joined(box);
    link_kernel_interrupt(box->link); /* waits for somebody */
    visit(box, link_kernel_number(box->link), -1);
    box_wait(box, &seen.exited);
    CHECK_STR("no failure", seen.exit.failure, "");
    CHECK_INT("status", seen.exit.code, 5);

    start_joined(box);
    visit(box, link_kernel_number(box->link), -1);
    box_sleep(box, 300); /* it comes when its parent has gone */
    kill_kernel(box);
    CHECK("by a signal", seen.exit.signaled && seen.exit.code == SIGKILL);
}

/* Its end is not to be taken for that of an orphan. */
static void test_one_that_comes_and_dies_before_its_frames_is_the_kernel(void **state)
{
    struct box *box = *state;
    for (int i = 0; i < 10; i++) {
        visit(box, link_kernel_number(box->link) + 1, 7);
        if (i % 2)
            box_sleep(box, 20);
        start_joined(box);
        box_wait(box, &seen.exited);
        CHECK_STR("no failure", seen.exit.failure, "");
        CHECK_INT("status", seen.exit.code, 7);
    }
}

/* Of the agent's children, which is a child of the process that we have started. */
static int children(const struct box *box)
{
    char path[64], text[4096] = "";
    int count = 0;
    for (long pid = box->pid, depth = 0; depth < 2; depth++, pid = strtol(text, NULL, 10)) {
        (void)snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", pid, pid);
        auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        CHECK("read", n >= 0);
        text[n] = '\0';
        count = 0;
        for (const char *at = text; (at = strchr(at, ' ')); at++)
            count++;
    }
    return count;
}

static void test_whoever_comes_too_late_is_turned_away(void **state)
{
    struct box *box = *state;
    start_joined(box);
    link_kernel_absent(box->link);
    box_wait(box, &seen.exited);
    int before = children(box);
    visit(box, link_kernel_number(box->link), -1);
    for (int i = 0; i < 200 && children(box) > before; i++)
        box_sleep(box, 10);
    CHECK_INT("gone", children(box), before);
}

static void test_an_order_for_somebody_who_joins_can_be_given_up(void **state)
{
    struct box *box = *state;
    start_joined(box);
    kill_kernel(box);
    CHECK("killed, not absent", !seen.exit.absent);
    CHECK_STR("no failure", seen.exit.failure, "");

    start_joined(box);
    link_kernel_absent(box->link);
    box_wait(box, &seen.exited);
    CHECK("absent", seen.exit.absent);

    leave_note(box, link_kernel_number(box->link), 0, ""); /* too late, and nobody's child */
    start(box);
    cell(box, "say('here')");
    kill_kernel(box);
}

/*** frames ***/

static void test_cells_are_judged_as_they_come(void **state)
{
    (void)state;
    char wire[FRAME_CELL_SIZE + 1] = "";
    struct frame_cell cell = { .head_bytes = 1, .tail_bytes = FRAME_TAIL_MAX, .flood_bytes = 3 },
                      got;
    frame_cell_put(wire, &cell);
    struct frame frame = { .payload = wire, .len = FRAME_CELL_SIZE };
    CHECK_INT("as it went", frame_cell_get(&frame, &got), FRAME_CELL_SIZE);
    CHECK_INT("head", got.head_bytes, 1);
    CHECK_INT("tail", got.tail_bytes, FRAME_TAIL_MAX);
    CHECK_INT("flood", got.flood_bytes, 3);
    frame.len++;
    CHECK_INT("too long", frame_cell_get(&frame, &got), -EPROTO);
    frame.len -= 2;
    CHECK_INT("too short", frame_cell_get(&frame, &got), -EPROTO);
    cell.tail_bytes++;
    frame_cell_put(wire, &cell);
    frame.len = FRAME_CELL_SIZE;
    CHECK_INT("too much", frame_cell_get(&frame, &got), -EPROTO);
}

int main(void)
{
    static const struct box_test tests[] = {
        BOX_TEST(test_messages_go_there_and_back),
        BOX_TEST(test_long_messages_arrive_whole),
        BOX_TEST(test_a_kernel_that_does_not_read_is_not_fed_for_ever),
        BOX_TEST(test_what_is_printed_first_comes_first),
        BOX_TEST(test_limits_are_those_of_the_cell),
        BOX_TEST(test_output_between_cells_begins_the_next),
        BOX_TEST(test_a_flood_between_cells_waits),
        BOX_TEST(test_cells_have_an_order),
        BOX_TEST(test_a_last_word_ends_the_cell),
        BOX_TEST(test_an_early_interrupt_waits_for_the_kernel),
        BOX_TEST(test_an_interrupt_keeps_the_state),
        BOX_TEST(test_ends_are_told_apart),
        BOX_TEST(test_what_cannot_start_says_why),
        BOX_TEST(test_the_kernel_has_nothing_open_but_what_it_needs),
        BOX_TEST(test_a_flood_ends_the_kernel),
        BOX_TEST(test_a_kernel_that_breaks_the_rules_is_killed),
        BOX_TEST(test_half_a_message_is_none),
        BOX_TEST(test_a_run_leaves_the_kernel_alone_and_nothing_else),
        BOX_TEST(test_daemons_end_with_a_kernel_that_ends),
        BOX_TEST(test_a_kernel_that_is_killed_leaves_the_run_alone),
        BOX_TEST(test_a_kernel_that_ends_leaves_the_run_alone),
        BOX_TEST(test_a_run_that_keeps_forking_ends,
                 .modes = "init guest"), /* the rest of us forks too */
        BOX_TEST(test_runs_and_files_go_on_beside_a_busy_kernel),
        BOX_TEST(test_nobody_at_the_door_is_told_and_a_kernel_can_be_started),
        BOX_TEST(test_whoever_is_at_the_door_is_not_believed, .modes = "guest"),
        BOX_TEST(test_whoever_joins_is_the_kernel, .modes = "guest"),
        BOX_TEST(test_one_that_comes_and_dies_before_its_frames_is_the_kernel, .modes = "guest"),
        BOX_TEST(test_whoever_comes_too_late_is_turned_away, .modes = "guest"),
        BOX_TEST(test_an_order_for_somebody_who_joins_can_be_given_up, .modes = "guest"),
        BOX_TEST(test_an_agent_that_lies_is_not_believed),
        BOX_TEST(test_cells_are_judged_as_they_come),
        BOX_TEST(test_all_die_with_a_server_that_goes_in_a_message), /* the last */
    };
    int failed = box_main(tests, ARRAY_SIZE(tests));
    buf_done(&seen.out);
    buf_done(&seen.err);
    buf_done(&seen.message);
    buf_done(&seen.first);
    return failed;
}
