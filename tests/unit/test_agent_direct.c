/*
 * A kernel that joins, with the link at the other end of its channel and pipes. The kernel is played by the
 * test, and so is the agent, which says how it ends.
 */
#include "agent/frame.h"
#include "agent/link.h"
#include "base/buf.h"
#include "base/loop.h"
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 1000, TAIL = 500, FLOOD = 200000, PATIENCE_MS = 5000 };

struct play {
    uv_loop_t loop;
    struct link *link;
    int agent;                /* the agent's end of the stream */
    struct link_pipes kernel; /* the kernel's ends */
    struct buf
        seen; /* what came, in order: o: and e: output, g: gaps, m: messages, d: the end of a cell */
    struct buf told; /* frames to the agent, their types */
    struct link_exit totals, exit;
    bool exited, no_exit, freed;
    bool ends_cells; /* when a message says "done" */
    bool frees;      /* the link, in the next message */
};

static void put(struct play *play, const char *what, const char *bytes, size_t len)
{
    (void)buf_add_str(&play->seen, what);
    (void)buf_add(&play->seen, bytes, len);
    (void)buf_add_str(&play->seen, ";");
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    put(data, stream == LINK_STDOUT ? "o:" : "e:", bytes, len);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    struct play *play = data;
    (void)buf_printf(&play->seen, "%s:%llu;", stream == LINK_STDOUT ? "go" : "ge",
                     (unsigned long long)bytes);
}

static void on_cell_end(const struct link_exit *totals, void *data)
{
    struct play *play = data;
    play->totals = *totals;
    put(play, "d", "", 0);
}

static void on_message(const char *json, size_t len, void *data)
{
    struct play *play = data;
    put(play, "m:", json, len < 20 ? len : 20);
    if (play->ends_cells && str_eq(json, "done"))
        CHECK_INT("end", link_kernel_cell_end(play->link, on_cell_end, play, NULL), 0);
    if (play->frees) {
        link_free(play->link);
        play->link = NULL;
    }
}

static void on_kernel_exit(const struct link_exit *exit, void *data)
{
    struct play *play = data;
    play->exited = true;
    play->no_exit = !exit;
    if (exit)
        play->exit = *exit;
    put(play, "x", "", 0);
}

static const struct link_kernel_events events = { on_message, on_output, on_gap, on_kernel_exit };

static void say(struct play *play, uint8_t type, uint32_t number, const char *payload, size_t len)
{
    char frame[FRAME_HEADER + 200];
    assert_true(len <= 200);
    frame_put_header(frame, type, number, len);
    if (len)
        memcpy(frame + FRAME_HEADER, payload, len);
    CHECK_INT("said", write(play->agent, frame, FRAME_HEADER + len), FRAME_HEADER + len);
}

static void say_exit(struct play *play, const struct frame_exit *exit)
{
    char payload[FRAME_EXIT_SIZE + 1];
    frame_exit_put(payload, exit);
    payload[FRAME_EXIT_SIZE] = '?'; /* words of a failure */
    say(play, FRAME_EXIT, 1, payload, FRAME_EXIT_SIZE + exit->failed);
}

/* The types of all frames that have come. */
static const char *told(struct play *play)
{
    auto_buf bytes = BUF_INIT(BUF_NO_CEILING);
    for (ssize_t n = 1; n > 0;) {
        char *room = buf_room(&bytes, 70000);
        n = recv(play->agent, room, 70000, MSG_DONTWAIT);
        buf_added(&bytes, n > 0 ? (size_t)n : 0);
    }
    struct frame frame;
    for (size_t at = 0, n; (n = (size_t)frame_parse(bytes.data + at, bytes.len - at, &frame)) > 0;
         at += n)
        (void)buf_printf(&play->told, "%02x ", frame.type);
    return buf_str(&play->told);
}

static void hear(struct play *play)
{
    for (int i = 0; i < 5; i++)
        uv_run(&play->loop, UV_RUN_NOWAIT);
}

static void until(struct play *play, const char *sign)
{
    for (uint64_t start = clock_ms(); clock_ms() - start < PATIENCE_MS;) {
        uv_run(&play->loop, UV_RUN_NOWAIT);
        if (strstr(buf_str(&play->seen), sign))
            return;
        uv_sleep(1);
    }
    FAIL("waited for %s, have %.200s", sign, buf_str(&play->seen));
}

static void start(struct play *play)
{
    int ends[2];
    struct err err;
    *play = (struct play){ .ends_cells = true };
    play->seen = play->told = (struct buf)BUF_INIT(BUF_NO_CEILING);
    assert_int_equal(uv_loop_init(&play->loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    static const struct link_events none = { 0 };
    play->link = link_new(&play->loop, ends[0], &none, play);
    play->agent = ends[1];
    char hello[FRAME_HELLO_SIZE];
    frame_hello_put(hello, &(struct frame_hello){ FRAME_MAGIC, FRAME_VERSION });
    say(play, FRAME_READY, 0, hello, sizeof(hello));
    struct link_pipes ours;
    CHECK_INT("pipes", link_pipes_open(&ours, &play->kernel, &err), 0);
    const struct link_kernel_spec spec = { .joined = &ours };
    CHECK_INT("start", link_kernel_start(play->link, &spec, &events, play, &err), 0);
    CHECK_INT("taken", ours.channel, -1);
    CHECK_INT("number", link_kernel_number(play->link), 1);
    hear(play);
}

static void begin_cell(struct play *play)
{
    CHECK_INT("cell", link_kernel_cell(play->link, HEAD, TAIL, FLOOD, NULL), 0);
}

static void finish(struct play *play)
{
    link_free(play->link);
    loop_finish(&play->loop);
    link_pipes_close(&play->kernel);
    close(play->agent);
    buf_done(&play->seen);
    buf_done(&play->told);
}

/*** the kernel's part ***/

static void print(int fd, const char *text)
{
    CHECK_INT("printed", write(fd, text, strlen(text)), strlen(text));
}

static void print_much(int fd, char byte, size_t len)
{
    char *bytes = xmalloc(len);
    memset(bytes, byte, len);
    CHECK_INT("printed", write(fd, bytes, len), len);
    free(bytes);
}

static void message_head(struct play *play, uint32_t head)
{
    const char bytes[4] = { (char)head, (char)(head >> 8), (char)(head >> 16), (char)(head >> 24) };
    CHECK_INT("head", write(play->kernel.said, bytes, 4), 4);
}

static void message(struct play *play, const char *text, bool last)
{
    message_head(play, (uint32_t)strlen(text) | (last ? FRAME_MESSAGE_LAST : 0));
    print(play->kernel.said, text);
}

static void end_cell(struct play *play)
{
    message(play, "done", /* last= */ true);
    until(play, "d;");
}

static void expect(struct play *play, const char *want)
{
    CHECK_STR("what came", buf_str(&play->seen), want);
    buf_clear(&play->seen);
}

/*** tests ***/

static void test_no_byte_of_a_cell_goes_through_the_agent(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    CHECK_STR("the agent knows of it", told(&play), "01 18 13 ");
    link_hold(play.link);
    begin_cell(&play);
    CHECK_INT("send", link_kernel_send(play.link, "do", 2, NULL), 0);
    CHECK_INT("and", link_kernel_send(play.link, "it", 2, NULL), 0);
    char request[20];
    CHECK_INT("held", recv(play.kernel.channel, request, sizeof(request), MSG_DONTWAIT), -1);
    link_release(play.link);
    CHECK_INT("got", read(play.kernel.channel, request, sizeof(request)), 12);
    CHECK("as it is", memcmp(request, "\2\0\0\0do\2\0\0\0it", 12) == 0);
    print(play.kernel.out, "1");
    end_cell(&play);
    expect(&play, "o:1;m:done;d;");
    CHECK_INT("bytes", play.totals.stdout_bytes, 1);
    link_kernel_interrupt(play.link);
    CHECK_STR("but an interrupt does", told(&play), "01 18 13 15 ");
    finish(&play);
}

static void test_what_is_printed_first_comes_first(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    print(play.kernel.err, "a");
    print(play.kernel.out, "b");
    message(&play, "one", false);
    print(play.kernel.out, "c");
    end_cell(&play);
    /* All of it was there when the channel was looked at. */
    expect(&play, "o:bc;e:a;m:one;m:done;d;");
    begin_cell(&play);
    print(play.kernel.out, "a");
    message(&play, "one", false);
    until(&play, "m:one;");
    print(play.kernel.out, "b");
    until(&play, "o:b;"); /* without a message */
    end_cell(&play);
    expect(&play, "o:a;m:one;o:b;m:done;d;");
    finish(&play);
}

static void test_limits_are_those_of_the_cell(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    print_much(play.kernel.out, 'x', HEAD + 2 * TAIL);
    end_cell(&play);
    char want[HEAD + TAIL + 50];
    memset(want, 'x', sizeof(want));
    memcpy(want, "o:", 2);
    (void)snprintf(want + 2 + HEAD, sizeof(want) - 2 - HEAD, ";m:done;go:500;o:");
    size_t at = strlen(want);
    memset(want + at, 'x', TAIL);
    (void)snprintf(want + at + TAIL, sizeof(want) - at - TAIL, ";d;");
    expect(&play, want);
    CHECK_INT("bytes", play.totals.stdout_bytes, HEAD + 2 * TAIL);
    begin_cell(&play);
    print(play.kernel.out, "y");
    end_cell(&play);
    expect(&play, "o:y;m:done;d;");
    finish(&play);
}

static void test_output_between_cells_begins_the_next(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    print(play.kernel.out, "early");
    hear(&play);
    begin_cell(&play);
    print(play.kernel.out, "in");
    end_cell(&play);
    expect(&play, "o:early;o:in;m:done;d;");
    CHECK_INT("bytes", play.totals.stdout_bytes, 7);
    print_much(play.kernel.err, 'z', TAIL + 3);
    uint64_t begin = clock_ms();
    while (clock_ms() - begin < 60) /* so that it is read meanwhile */
        uv_run(&play.loop, UV_RUN_NOWAIT);
    begin_cell(&play);
    until(&play, "e:z"); /* though nothing else happens */
    CHECK("what is missing is told first", str_has_prefix(buf_str(&play.seen), "ge:3;e:zzz"));
    end_cell(&play);
    finish(&play);
}

static void test_a_flood_between_cells_waits_and_nobody_dies(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    end_cell(&play);
    (void)fcntl(play.kernel.out, F_SETFL, O_NONBLOCK);
    static char bytes[4096];
    memset(bytes, 'x', sizeof(bytes));
    size_t total = 0;
    for (uint64_t begin = clock_ms(); clock_ms() - begin < 300;) {
        ssize_t n = write(play.kernel.out, bytes, sizeof(bytes));
        total += n > 0 ? (size_t)n : 0;
        uv_run(&play.loop, UV_RUN_NOWAIT);
    }
    CHECK("more than a pipe", total > FLOOD);
    CHECK("and not for ever", total < FLOOD + 200000);
    CHECK("alive", link_kernel_alive(play.link) && !strstr(told(&play), "16"));
    finish(&play);
}

static void test_a_flood_ends_the_kernel(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    (void)fcntl(play.kernel.out, F_SETFL, O_NONBLOCK);
    static char bytes[4096];
    memset(bytes, 'x', sizeof(bytes));
    for (uint64_t begin = clock_ms(); !strstr(told(&play), "16 ");
         uv_run(&play.loop, UV_RUN_NOWAIT)) {
        (void)!write(play.kernel.out, bytes, sizeof(bytes));
        CHECK("in time", clock_ms() - begin < PATIENCE_MS);
    }
    say_exit(&play, &(struct frame_exit){ .signaled = true, .code = 9, .wall_ns = 1 });
    until(&play, "x;");
    CHECK("flooded", play.exit.flooded && play.exit.signaled);
    CHECK("bytes", play.exit.stdout_bytes > FLOOD);
    finish(&play);
}

static void test_a_kernel_that_breaks_the_rules_is_killed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t head;
        const char *words;
    } cases[] = {
        { "too long", LINK_KERNEL_MESSAGE_MAX + 1, "the kernel sent a message of 33554433 bytes" },
        { "empty", 0, "the kernel sent a message of 0 bytes" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct play play;
        start(&play);
        begin_cell(&play);
        message_head(&play, cases[i].head);
        while (!strstr(told(&play), "16 "))
            uv_run(&play.loop, UV_RUN_NOWAIT);
        print(play.kernel.said, "more"); /* which nobody reads */
        say_exit(&play, &(struct frame_exit){ .signaled = true, .code = 9, .wall_ns = 1 });
        until(&play, "x;");
        CHECK_STR(cases[i].name, play.exit.failure, cases[i].words);
        CHECK("it was somebody", !play.exit.absent);
        finish(&play);
    }
    struct play play;
    start(&play);
    begin_cell(&play);
    message(&play, "gone", /* last= */ true);
    while (!strstr(told(&play), "16 "))
        uv_run(&play.loop, UV_RUN_NOWAIT);
    say_exit(&play, &(struct frame_exit){ .signaled = true, .code = 9, .wall_ns = 1 });
    until(&play, "x;");
    CHECK_STR("no result", play.exit.failure, "the kernel ended a cell without a result");
    finish(&play);
}

static void test_half_a_message_is_none(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    message_head(&play, 4 | FRAME_MESSAGE_LAST);
    print(play.kernel.said, "do");
    hear(&play);
    expect(&play, "");
    print(play.kernel.said, "ne");
    until(&play, "d;");
    expect(&play, "m:done;d;");
    begin_cell(&play);
    message_head(&play, 100);
    print(play.kernel.said, "half");
    hear(&play);
    say_exit(&play, &(struct frame_exit){ .code = 3, .wall_ns = 1 });
    until(&play, "x;");
    expect(&play, "x;");
    CHECK_INT("status", play.exit.code, 3);
    finish(&play);
}

/* Whatever a kernel begins to say, it does not hold our memory for it while nobody has asked. */
static void test_long_messages_outside_of_cells_are_not_heard(void **state)
{
    (void)state;
    static const uint32_t lengths[] = { LINK_KERNEL_IDLE_MAX, LINK_KERNEL_IDLE_MAX + 1 };
    static char text[LINK_KERNEL_IDLE_MAX + 2];
    memset(text, 'x', sizeof(text) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        struct play play;
        start(&play);
        message_head(&play, lengths[i]);
        const char *rest = text + sizeof(text) - 1 - lengths[i];
        for (size_t left = lengths[i], part; left > 0; left -= part, rest += part) {
            part = left < 30000 ? left : 30000;
            CHECK_INT("a part", write(play.kernel.said, rest, part), (long)part);
            hear(&play);
        }
        message(&play, "after", false);
        until(&play, "m:after;");
        CHECK("only what is short", (strstr(buf_str(&play.seen), "m:x") != NULL) == (i == 0));
        finish(&play);
    }

    /* Begun in a cell, and not ended in it. */
    struct play play;
    start(&play);
    begin_cell(&play);
    message(&play, "done", true);
    message_head(&play, 1000000);
    until(&play, "d;");
    for (int i = 0; i < 25; i++) {
        CHECK_INT("a part", write(play.kernel.said, text, 40000), 40000);
        hear(&play);
    }
    message(&play, "after", false);
    until(&play, "m:after;");
    finish(&play);
}

static void test_all_that_was_written_before_the_end_comes_before_it(void **state)
{
    (void)state;
    for (int eof_first = 0; eof_first < 2; eof_first++) {
        struct play play;
        start(&play);
        begin_cell(&play);
        print(play.kernel.out, "last ");
        message(&play, "note", false);
        print(play.kernel.err, "words");
        struct link_pipes held = play.kernel; /* what a child that lives on would have */
        if (eof_first) {
            link_pipes_close(&play.kernel);
            hear(&play);
        } else {
            play.kernel = (struct link_pipes)LINK_PIPES_NONE;
        }
        say_exit(&play,
                 &(struct frame_exit){ .signaled = true, .code = 11, .wall_ns = 5, .cpu_ns = 7 });
        until(&play, "x;");
        expect(&play, "o:last ;e:words;m:note;x;");
        CHECK("how", play.exit.signaled && play.exit.code == 11 && play.exit.cpu_ns == 7);
        CHECK_INT("bytes", play.exit.stderr_bytes, 5);
        CHECK("no kernel", !link_kernel_alive(play.link));
        if (!eof_first)
            link_pipes_close(&held);
        finish(&play);
    }
}

static void test_a_closed_channel_costs_the_kernel_its_life(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    fd_closep(&play.kernel.said);
    play.kernel.said = -1;
    for (uint64_t begin = clock_ms(); !strstr(told(&play), "16 "); uv_run(&play.loop, UV_RUN_ONCE))
        CHECK("in time", clock_ms() - begin < PATIENCE_MS);
    say_exit(&play, &(struct frame_exit){ .signaled = true, .code = 9, .wall_ns = 1 });
    until(&play, "x;");
    CHECK_STR("why", play.exit.failure, "the kernel has closed its channel: Broken pipe");
    CHECK("it was somebody", !play.exit.absent);
    finish(&play);

    /* It never came: the process that was to be it died on its way. */
    start(&play);
    begin_cell(&play);
    CHECK_INT("to nobody", link_kernel_send(play.link, "x", 1, NULL), 0);
    link_pipes_close(&play.kernel);
    for (uint64_t begin = clock_ms(); !strstr(told(&play), "16 "); uv_run(&play.loop, UV_RUN_ONCE))
        CHECK("in time", clock_ms() - begin < PATIENCE_MS);
    say_exit(&play, &(struct frame_exit){ 0 });
    until(&play, "x;");
    CHECK("absent", play.exit.absent);
    finish(&play);
}

static void test_nobody_to_come_is_told(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    link_kernel_absent(play.link);
    CHECK("killed", strstr(told(&play), "16 "));
    say_exit(&play, &(struct frame_exit){ 0 });
    until(&play, "x;");
    CHECK("absent", play.exit.absent);
    finish(&play);

    start(&play); /* but who has spoken was there, and is not to do its work twice */
    begin_cell(&play);
    print(play.kernel.out, "x");
    message(&play, "one", false);
    until(&play, "m:one;");
    say_exit(&play, &(struct frame_exit){ .failed = true, .absent = true, .code = ESRCH });
    until(&play, "x;");
    CHECK("not absent", !play.no_exit && !play.exit.absent);
    finish(&play);
}

/* The process that forks it may die before it has told of it. */
static void test_whoever_has_read_its_work_has_come(void **state)
{
    (void)state;
    char got[20];
    for (int i = 0; i < 2; i++) {
        bool read_first = i > 0;
        struct play play;
        start(&play);
        begin_cell(&play);
        CHECK_INT("sent", link_kernel_send(play.link, "do", 2, NULL), 0);
        if (read_first)
            CHECK_INT("read", read(play.kernel.channel, got, sizeof(got)), 6);
        link_kernel_absent(play.link);
        if (!read_first)
            CHECK_INT("not there any more",
                      recv(play.kernel.channel, got, sizeof(got), MSG_DONTWAIT), -1);
        CHECK("killed", (strstr(told(&play), "16 ") == NULL) == read_first);
        if (read_first)
            end_cell(&play);
        say_exit(&play, &(struct frame_exit){ .wall_ns = 1 });
        until(&play, "x;");
        CHECK("absent", play.exit.absent == !read_first);
        finish(&play);
    }

    struct play play;
    start(&play); /* a part is not enough to begin with */
    size_t len = LINK_KERNEL_MESSAGE_MAX;
    char *text = xcalloc(1, len);
    CHECK_INT("sent", link_kernel_send(play.link, text, len, NULL), 0);
    for (ssize_t n = 1; n > 0;)
        n = recv(play.kernel.channel, text, len, MSG_DONTWAIT);
    link_kernel_absent(play.link);
    CHECK("killed", strstr(told(&play), "16 "));
    free(text);
    finish(&play);

    start(&play); /* who is known to come keeps it */
    CHECK_INT("sent", link_kernel_send(play.link, "do", 2, NULL), 0);
    link_kernel_comes(play.link);
    CHECK_INT("read", read(play.kernel.channel, got, sizeof(got)), 6);
    finish(&play);
}

static void test_a_kernel_that_does_not_read_is_not_fed_for_ever(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    size_t len = LINK_KERNEL_MESSAGE_MAX;
    char *text = xmalloc(len);
    memset(text, 'x', len);
    CHECK_INT("one", link_kernel_send(play.link, text, len, NULL), 0);
    CHECK_INT("two", link_kernel_send(play.link, text, len, NULL), 0);
    CHECK_INT("three", link_kernel_send(play.link, text, len, NULL), -ENOBUFS);
    hear(&play);
    size_t got = 0;
    for (uint64_t begin = clock_ms(); got < 2 * (4 + len);) {
        /* In pieces: valgrind looks at all of the room each time. */
        ssize_t n = recv(play.kernel.channel, text, 1 << 18, MSG_DONTWAIT);
        got += n > 0 ? (size_t)n : 0;
        begin = n > 0 ? clock_ms() : begin;
        uv_run(&play.loop, UV_RUN_NOWAIT);
        CHECK("in time", clock_ms() - begin < 4 * PATIENCE_MS);
    }
    begin_cell(&play);
    end_cell(&play);
    free(text);
    finish(&play);
}

static int open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Of eight, errors are the seventh; a quarter of 200 is left. */
static void test_descriptors_that_are_scarce_are_left_to_others(void **state)
{
    (void)state;
    static const struct {
        int first, want;
    } cases[] = { { 143, 0 }, { 144, -EMFILE }, { 196, -EMFILE } };
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = { .rlim_cur = 200, .rlim_max = before.rlim_max };
    int count = open_files();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct link_pipes ours, theirs;
        struct err err;
        bool filled[200] = { false };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        for (int fd = 0; fd < cases[i].first; fd++)
            filled[fd] = fcntl(fd, F_GETFD) < 0 && dup2(0, fd) == fd;
        int r = link_pipes_open(&ours, &theirs, &err);
        for (int fd = 0; fd < cases[i].first; fd++)
            if (filled[fd])
                close(fd);
        link_pipes_close(&ours);
        link_pipes_close(&theirs);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        CHECK_INT("opened", r, cases[i].want);
    }
    CHECK_INT("nothing stays open", open_files(), count);
}

/* The number of descriptors that a set takes up. */
static int take_one(struct link_stock *stock)
{
    struct link_pipes ours, theirs;
    struct err err = { 0 };
    int before = open_files();
    CHECK_INT("pipes", link_stock_take(stock, &ours, &theirs, &err), 0);
    int made = open_files() - before;
    assert_int_equal(write(theirs.out, "x", 1), 1);
    char byte;
    assert_int_equal(read(ours.out, &byte, 1), 1);
    link_pipes_close(&ours);
    link_pipes_close(&theirs);
    return made;
}

static void test_pipes_are_made_ahead_once_somebody_has_taken_some(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct err err = { 0 };
    assert_int_equal(loop_begin(&loop, &err), 0);
    int count = open_files();
    struct link_stock *stock = link_stock_new(&loop);
    CHECK_INT("nothing before", open_files(), count);
    int each = take_one(stock);
    CHECK_INT("made when they were taken", each, 9);
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* the timer's one callback */
    int ahead = open_files() - count;
    assert_true(ahead >= each && ahead % each == 0);
    for (int left = ahead; left > 0; left -= each)
        CHECK_INT("made before", take_one(stock), 0);
    CHECK_INT("as many as there were", open_files(), count);
    CHECK_INT("and one more", take_one(stock), each);
    link_stock_free(stock);
    loop_finish(&loop);
}

static void test_a_stock_closes_what_nobody_took(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct err err = { 0 };
    int count = open_files();
    assert_int_equal(loop_begin(&loop, &err), 0);
    struct link_stock *stock = link_stock_new(&loop);
    (void)take_one(stock);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    link_stock_free(stock);
    loop_finish(&loop);
    link_stock_free(NULL);
    CHECK_INT("nothing stays open", open_files(), count);
}

/* Whoever drops a socket of theirs waits as long as they like. */
static void test_a_guest_can_send_no_descriptors(void **state)
{
    (void)state;
    struct play play;
    start(&play);
    begin_cell(&play);
    hear(&play);
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    char small[] = { 1, 0, 0, 0, 'x' };
    struct iovec part = { small, sizeof(small) };
    struct msghdr letter = { .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control.space) };
    struct cmsghdr *header = CMSG_FIRSTHDR(&letter);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &play.kernel.out, sizeof(int));
    const int all[] = { play.kernel.channel, play.kernel.said, play.kernel.out, play.kernel.err };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        CHECK_INT("sent", sendmsg(all[i], &letter, MSG_NOSIGNAL), -1);
        CHECK_INT("why", errno, i == 0 ? EPIPE : ENOTSOCK);
    }
    message(&play, "after", false);
    until(&play, "m:after;");
    finish(&play);
}

static void test_the_link_can_go_at_any_time(void **state)
{
    (void)state;
    int before = open_files();
    struct play play;
    start(&play);
    begin_cell(&play);
    play.frees = true;
    print(play.kernel.out, "x");
    message(&play, "one", false);
    message(&play, "two", false);
    until(&play, "m:one;");
    hear(&play);
    expect(&play, "o:x;m:one;x;");
    CHECK("no exit", play.no_exit);
    finish(&play);

    start(&play); /* in the last look */
    begin_cell(&play);
    play.frees = true;
    message(&play, "one", false);
    message(&play, "two", false);
    say_exit(&play, &(struct frame_exit){ .wall_ns = 1 });
    until(&play, "x;");
    expect(&play, "m:one;x;");
    finish(&play);

    start(&play); /* with everything under way */
    begin_cell(&play);
    print(play.kernel.out, "x");
    finish(&play);
    CHECK_INT("nothing stays open", open_files(), before);
}

static void test_an_agent_that_speaks_for_it_is_not_believed(void **state)
{
    (void)state;
    static const uint8_t types[] = { FRAME_STDOUT, FRAME_SAID, FRAME_CELL_DONE, FRAME_TALK_MORE };
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        struct play play;
        start(&play);
        begin_cell(&play);
        say(&play, types[i], 1, "x", 1);
        until(&play, "x;");
        CHECK("the stream has ended", play.no_exit);
        finish(&play);
    }
    struct play play;
    start(&play);
    say_exit(&play, &(struct frame_exit){ .stdout_bytes = 1 });
    until(&play, "x;");
    CHECK("nor one that counts", play.no_exit);
    finish(&play);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_byte_of_a_cell_goes_through_the_agent),
        cmocka_unit_test(test_what_is_printed_first_comes_first),
        cmocka_unit_test(test_limits_are_those_of_the_cell),
        cmocka_unit_test(test_output_between_cells_begins_the_next),
        cmocka_unit_test(test_a_flood_between_cells_waits_and_nobody_dies),
        cmocka_unit_test(test_a_flood_ends_the_kernel),
        cmocka_unit_test(test_a_kernel_that_breaks_the_rules_is_killed),
        cmocka_unit_test(test_half_a_message_is_none),
        cmocka_unit_test(test_long_messages_outside_of_cells_are_not_heard),
        cmocka_unit_test(test_all_that_was_written_before_the_end_comes_before_it),
        cmocka_unit_test(test_a_closed_channel_costs_the_kernel_its_life),
        cmocka_unit_test(test_nobody_to_come_is_told),
        cmocka_unit_test(test_whoever_has_read_its_work_has_come),
        cmocka_unit_test(test_a_kernel_that_does_not_read_is_not_fed_for_ever),
        cmocka_unit_test(test_descriptors_that_are_scarce_are_left_to_others),
        cmocka_unit_test(test_pipes_are_made_ahead_once_somebody_has_taken_some),
        cmocka_unit_test(test_a_stock_closes_what_nobody_took),
        cmocka_unit_test(test_a_guest_can_send_no_descriptors),
        cmocka_unit_test(test_the_link_can_go_at_any_time),
        cmocka_unit_test(test_an_agent_that_speaks_for_it_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
