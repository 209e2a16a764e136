/* The server's end against an agent that lies: the test is the agent. */
#include "check.h"

#include "agent/frame.h"
#include "agent/link.h"
#include "base/buf.h"
#include "base/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct peer {
    uv_loop_t loop;
    struct link *link;
    int fd;
    struct buf
        said; /* in order: r ready, o output, g gap, e exit, x exit NULL, number: file, b broken */
    char why[100];
    struct link_exit exit;
    bool free_in_exit;
};

static void note(struct peer *peer, const char *what)
{
    assert_int_equal(buf_add_str(&peer->said, what), 0);
}

static void on_ready(void *data)
{
    note(data, "r");
}

static void on_broken(const char *why, void *data)
{
    struct peer *peer = data;
    note(peer, "b");
    assert_true(strlen(why) < sizeof(peer->why));
    memcpy(peer->why, why, strlen(why) + 1);
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    (void)stream;
    (void)bytes;
    (void)len;
    note(data, "o");
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    (void)stream;
    (void)bytes;
    note(data, "g");
}

static void on_exit_frame(const struct link_exit *exit, void *data)
{
    struct peer *peer = data;
    note(peer, exit ? "e" : "x");
    if (exit)
        peer->exit = *exit;
    if (peer->free_in_exit) {
        link_free(peer->link);
        peer->link = NULL;
    }
}

static void note_code(struct peer *peer, int code)
{
    auto_free char *text = xasprintf("<%d>", code);
    note(peer, text);
}

static void on_done(int code, void *data)
{
    note_code(data, code);
}

static void on_data(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    (void)bytes;
    (void)len;
    (void)size;
    note_code(data, code);
}

static void on_list(int code, const struct link_entry *entries, size_t count, bool more, void *data)
{
    (void)entries;
    (void)count;
    (void)more;
    note_code(data, code);
}

static void open_peer_as(struct peer *peer, typeof(link_new) *open)
{
    *peer = (struct peer){ .said = BUF_INIT(1000) };
    int ends[2];
    assert_int_equal(uv_loop_init(&peer->loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    static const struct link_events events = { on_ready, on_broken };
    peer->link = open(&peer->loop, ends[0], &events, peer);
    peer->fd = ends[1];
}

static void open_peer(struct peer *peer)
{
    open_peer_as(peer, link_new);
}

static void close_peer(struct peer *peer)
{
    link_free(peer->link);
    loop_finish(&peer->loop);
    close(peer->fd);
    buf_done(&peer->said);
}

static void start_run(struct peer *peer)
{
    static const struct link_run_events events = { on_output, on_gap, on_exit_frame };
    const char *const argv[] = { "x", NULL };
    const struct link_run_spec spec = { .argv = argv,
                                        .head_bytes = 4,
                                        .tail_bytes = 2,
                                        .flood_bytes = 99,
                                        .input = "in",
                                        .input_len = 2 };
    assert_int_equal(link_run(peer->link, &spec, &events, peer, NULL), 0);
}

/* The run is number 1, and so are the first of the file work: 1 read, 2 list, 3 write, 4 stat. */
static void start_all(struct peer *peer)
{
    start_run(peer);
    assert_int_equal(link_file_read(peer->link, "f", 0, 4, on_data, peer, NULL), 0);
    assert_int_equal(link_file_list(peer->link, "", true, 2, on_list, peer, NULL), 0);
    assert_int_equal(link_file_write(peer->link, "f", "abc", 3, on_done, peer, NULL), 0);
    assert_int_equal(link_file_stat(peer->link, "f", on_list, peer, NULL), 0);
}

static void say(struct peer *peer, uint8_t type, uint32_t number, const char *payload, size_t len)
{
    char frame[FRAME_HEADER + 200];
    assert_true(len <= 200);
    frame_put_header(frame, type, number, len);
    if (len)
        memcpy(frame + FRAME_HEADER, payload, len);
    assert_int_equal(write(peer->fd, frame, FRAME_HEADER + len), FRAME_HEADER + len);
}

static void say_ready(struct peer *peer)
{
    char hello[FRAME_HELLO_SIZE];
    frame_hello_put(hello, &(struct frame_hello){ FRAME_MAGIC, FRAME_VERSION });
    say(peer, FRAME_READY, 0, hello, sizeof(hello));
}

static void say_exit(struct peer *peer, uint64_t stdout_bytes)
{
    char exit[FRAME_EXIT_SIZE];
    frame_exit_put(exit, &(struct frame_exit){ .code = 3,
                                               .wall_ns = UINT64_MAX,
                                               .cpu_ns = UINT64_MAX,
                                               .stdout_bytes = stdout_bytes });
    say(peer, FRAME_EXIT, 1, exit, sizeof(exit));
}

static void say_gap(struct peer *peer, uint64_t bytes)
{
    char gap[FRAME_GAP_SIZE];
    frame_gap_put(gap, &(struct frame_gap){ FRAME_IS_STDOUT, bytes });
    say(peer, FRAME_GAP, 1, gap, sizeof(gap));
}

static void say_entry(struct peer *peer, uint32_t number, const char *name)
{
    char entry[FRAME_ENTRY_SIZE + 100];
    frame_entry_put(entry, &(struct frame_entry){ .name = name, .name_len = strlen(name) });
    say(peer, FRAME_FILE_DATA, number, entry, FRAME_ENTRY_SIZE + strlen(name));
}

static void say_end(struct peer *peer, uint32_t number, uint32_t code, uint64_t size)
{
    char end[FRAME_FILE_END_SIZE];
    frame_file_end_put(end, &(struct frame_file_end){ .code = code, .size = size });
    say(peer, FRAME_FILE_END, number, end, sizeof(end));
}

static void hear(struct peer *peer)
{
    for (int i = 0; i < 5; i++)
        uv_run(&peer->loop, UV_RUN_NOWAIT);
}

/*** lies ***/

static void no_hello(struct peer *peer)
{
    say(peer, FRAME_STDOUT, 1, "x", 1);
}
static void other_version(struct peer *peer)
{
    say(peer, FRAME_READY, 0, "\x42\x4a\x41\x52\x01\x00\x00\x00", 8);
}
static void hello_twice(struct peer *peer)
{
    say_ready(peer);
    say_ready(peer);
}
static void unknown_frame(struct peer *peer)
{
    say_ready(peer);
    say(peer, 0x55, 0, "", 0);
}
static void too_long(struct peer *peer)
{
    say_ready(peer);
    assert_int_equal(write(peer->fd, "\xff\xff\xff\x7f", 4), 4);
}
static void other_run(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_STDOUT, 2, "x", 1);
}
static void empty_output(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_STDOUT, 1, "", 0);
}
static void too_much_output(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_STDOUT, 1, "123456", 6);
    say(peer, FRAME_STDOUT, 1, "7", 1);
}
static void early_gap(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_STDOUT, 1, "123", 3);
    say_gap(peer, 5);
}
static void two_gaps(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_STDOUT, 1, "1234", 4);
    say_gap(peer, 5);
    say_gap(peer, 5);
}
static void wrong_total(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_STDOUT, 1, "123", 3);
    say_exit(peer, 4);
}
static void asks_for_input(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_RUN_MORE, 1, "", 0);
}
static void after_the_exit(struct peer *peer)
{
    say_ready(peer);
    say_exit(peer, 0);
    say(peer, FRAME_STDERR, 1, "x", 1);
}
static void other_file(struct peer *peer)
{
    say_ready(peer);
    say_end(peer, 9, 0, 0);
}
static void too_much_file(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_FILE_DATA, 1, "12345", 5);
}
static void too_long_a_list(struct peer *peer)
{
    say_ready(peer);
    say_entry(peer, 2, "a");
    say_entry(peer, 2, "b");
    say_entry(peer, 2, "c");
}
static void list_with_dots(struct peer *peer)
{
    say_ready(peer);
    say_entry(peer, 2, "a/../../b");
}
static void list_with_root(struct peer *peer)
{
    say_ready(peer);
    say_entry(peer, 2, "/etc");
}
static void unsorted_list(struct peer *peer)
{
    say_ready(peer);
    say_entry(peer, 2, "b");
    say_entry(peer, 2, "a");
    say_end(peer, 2, 0, 2);
}
static void miscounted_list(struct peer *peer)
{
    say_ready(peer);
    say_entry(peer, 2, "a");
    say_end(peer, 2, 0, 2);
}
static void stat_of_nothing(struct peer *peer)
{
    say_ready(peer);
    say_end(peer, 4, 0, 0);
}
static void end_twice(struct peer *peer)
{
    say_ready(peer);
    say_end(peer, 3, 0, 0);
    say_end(peer, 3, 0, 0);
}
static void asks_for_content(struct peer *peer)
{
    say_ready(peer);
    say(peer, FRAME_FILE_MORE, 3, "", 0);
}
static void hangs_up(struct peer *peer)
{
    say_ready(peer);
    shutdown(peer->fd, SHUT_RDWR);
}

static void test_a_lie_ends_the_stream_and_all_that_is_open(void **state)
{
    (void)state;
#define ALL_ENDS "x<32><32><32><32>b"
    static const struct {
        const char *name;
        void (*lie)(struct peer *peer);
        const char *said, *why;
    } cases[] = {
        { "no hello", no_hello, ALL_ENDS, "the agent did not say hello first" },
        { "version", other_version, ALL_ENDS, "the agent speaks another version" },
        { "hello twice", hello_twice, "r" ALL_ENDS, "the agent's hello is not one" },
        { "frame", unknown_frame, "r" ALL_ENDS, "the agent sent a frame that does not exist" },
        { "length", too_long, "r" ALL_ENDS, "the agent sent a frame that is too long" },
        { "other run", other_run, "r" ALL_ENDS, "the agent spoke of a run that is not" },
        { "empty", empty_output, "r" ALL_ENDS, "the agent sent more output than it may" },
        { "output", too_much_output, "ro" ALL_ENDS, "the agent sent more output than it may" },
        { "gap", early_gap, "ro" ALL_ENDS, "the agent left out output where it may not" },
        { "gaps", two_gaps, "rog" ALL_ENDS, "the agent left out output where it may not" },
        { "total", wrong_total, "ro" ALL_ENDS, "the agent lost count of the output" },
        { "input", asks_for_input, "r" ALL_ENDS, "the agent asked for input that there is not" },
        { "late", after_the_exit, "re<32><32><32><32>b", "the agent spoke of a run that is not" },
        { "other file", other_file, "r" ALL_ENDS, "the agent spoke of file work that is not" },
        { "file", too_much_file, "r" ALL_ENDS, "the agent sent more of a file than asked for" },
        { "list", too_long_a_list, "r" ALL_ENDS, "the agent sent a longer list than asked for" },
        { "dots", list_with_dots, "r" ALL_ENDS, "the agent sent a list that is none" },
        { "root", list_with_root, "r" ALL_ENDS, "the agent sent a list that is none" },
        { "order", unsorted_list, "r" ALL_ENDS, "the agent sent a list that is none" },
        { "count", miscounted_list, "r" ALL_ENDS, "the agent sent a list that is none" },
        { "stat", stat_of_nothing, "r" ALL_ENDS, "the agent sent a list that is none" },
        { "twice", end_twice, "r<0>x<32><32><32>b", "the agent spoke of file work that is not" },
        { "content", asks_for_content, "r" ALL_ENDS,
          "the agent asked for content that there is not" },
        { "end", hangs_up, "r" ALL_ENDS, "the agent has closed the stream" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct peer peer;
        open_peer(&peer);
        start_all(&peer);
        cases[i].lie(&peer);
        hear(&peer);
        CHECK_STR(cases[i].name, buf_str(&peer.said), cases[i].said);
        CHECK_STR(cases[i].name, peer.why, cases[i].why);
        CHECK_INT("no more runs",
                  link_run(peer.link, &(struct link_run_spec){ 0 }, NULL, NULL, NULL), -EPIPE);
        CHECK_INT("no more files", link_file_space(peer.link, on_data, NULL, NULL), -EPIPE);
        close_peer(&peer);
    }
}

/*** the truth ***/

static void test_an_honest_agent_is_heard(void **state)
{
    (void)state;
    struct peer peer;
    open_peer(&peer);
    start_all(&peer);
    say_ready(&peer);
    say(&peer, FRAME_STDOUT, 1, "1234", 4);
    say_gap(&peer, 100);
    say(&peer, FRAME_STDOUT, 1, "56", 2);
    say_entry(&peer, 2, "a");
    say_entry(&peer, 2, "a/b");
    say_end(&peer, 2, 0, 2);
    say_exit(&peer, 106);
    say_end(&peer, 1, ENOENT, 0);
    hear(&peer);
    CHECK_STR("said", buf_str(&peer.said), "rogo<0>e<2>");
    CHECK_INT("status", peer.exit.code, 3);
    CHECK("no more time than has passed", peer.exit.wall_ns < 60000000000U);
    start_run(&peer); /* the next may start */
    close_peer(&peer);
}

static void test_what_has_come_is_heard_at_once(void **state)
{
    (void)state;
    struct peer peer;
    open_peer(&peer);
    link_hear(peer.link);
    CHECK_STR("nothing yet", buf_str(&peer.said), "");
    say_ready(&peer);
    link_hear(peer.link);
    CHECK_STR("ready", buf_str(&peer.said), "r");
    start_all(&peer);
    say(&peer, FRAME_STDOUT, 1, "12", 2);
    link_hear(peer.link);
    CHECK_STR("more", buf_str(&peer.said), "ro");
    say(&peer, 99, 1, "", 0);
    link_hear(peer.link);
    CHECK("a lie ends it as ever", strchr(buf_str(&peer.said), 'b'));
    link_hear(peer.link); /* there is nothing to hear any more */
    close_peer(&peer);
}

/*** an agent that has stayed ***/

static void say_idle(struct peer *peer, const struct frame_idle *idle)
{
    char payload[FRAME_IDLE_SIZE];
    frame_idle_put(payload, idle);
    say(peer, FRAME_IDLE, 0, payload, sizeof(payload));
}

static void test_numbers_and_kernel_go_on_with_another_server(void **state)
{
    (void)state;
    static const struct link_kernel_events events = { .on_output = on_output,
                                                      .on_exit = on_exit_frame };
    struct peer peer;
    uint64_t cells = 0;
    open_peer_as(&peer, link_resume);
    say_ready(&peer);
    hear(&peer);
    CHECK_STR("a hello is not enough", buf_str(&peer.said), "");
    say_idle(&peer, &(struct frame_idle){ .program = 41, .file = 7, .kernel = 30, .cells = 5 });
    hear(&peer);
    CHECK_STR("ready", buf_str(&peer.said), "r");
    CHECK_INT("the kernel", link_kernel_resume(peer.link, &events, &peer, &cells), 0);
    CHECK_INT("its cells", cells, 5);
    CHECK("alive", link_kernel_alive(peer.link));
    CHECK_INT("once", link_kernel_resume(peer.link, &events, &peer, &cells), -ENOENT);
    CHECK_INT("a cell", link_kernel_cell(peer.link, 10, 10, 100, NULL), 0);
    start_run(&peer);
    assert_int_equal(link_file_read(peer.link, "f", 0, 4, on_data, &peer, NULL), 0);
    say(&peer, FRAME_STDOUT, 30, "k", 1);
    say(&peer, FRAME_STDOUT, 42, "r", 1);
    say_end(&peer, 8, ENOENT, 0);
    hear(&peer);
    CHECK_STR("heard", buf_str(&peer.said), "roo<2>");
    close_peer(&peer);
}

static void test_a_kernel_that_is_gone_is_told_from_one_that_never_was(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct peer peer;
        uint64_t cells;
        open_peer_as(&peer, link_resume);
        say_ready(&peer);
        say_idle(&peer, &(struct frame_idle){ .program = 2, .lost = lost });
        hear(&peer);
        CHECK_INT("none",
                  link_kernel_resume(peer.link, &(struct link_kernel_events){ 0 }, &peer, &cells),
                  lost ? -ESRCH : -ENOENT);
        close_peer(&peer);
    }
}

static void test_a_lie_about_what_was_left_ends_the_stream(void **state)
{
    (void)state;
    static const struct frame_idle good = { .program = 2 },
                                   cannot_go_on = { .program = UINT32_MAX };
    static const struct {
        const char *name;
        typeof(link_new) *open;
        const struct frame_idle *first, *second;
        const char *why;
    } cases[] = {
        { "of a new agent", link_new, &good, NULL, "the agent says of itself what cannot be" },
        { "twice", link_resume, &good, &good, "the agent says of itself what cannot be" },
        { "all used up", link_resume, &cannot_go_on, NULL,
          "the agent says of itself what cannot be" },
        { "work before it", link_resume, NULL, NULL, "the agent spoke before it was asked" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct peer peer;
        open_peer_as(&peer, cases[i].open);
        say_ready(&peer);
        if (cases[i].first)
            say_idle(&peer, cases[i].first);
        else
            say(&peer, FRAME_STDOUT, 1, "x", 1);
        if (cases[i].second)
            say_idle(&peer, cases[i].second);
        hear(&peer);
        CHECK_STR(cases[i].name, peer.why, cases[i].why);
        close_peer(&peer);
    }
}

static void test_work_that_was_cut_off_is_asked_for_again(void **state)
{
    (void)state;
    struct peer peer;
    open_peer(&peer);
    say_ready(&peer);
    assert_int_equal(link_file_read(peer.link, "f", 0, 4, on_data, &peer, NULL), 0);
    assert_int_equal(link_file_delete(peer.link, "f", false, on_done, &peer, NULL), 0);
    say(&peer, FRAME_FILE_DATA, 1, "1234", 4);
    say_end(&peer, 1, EAGAIN, 0);
    say_end(&peer, 2, EAGAIN, 0); /* a delete may have happened */
    hear(&peer);
    CHECK_STR("said", buf_str(&peer.said), "r<11>");
    say(&peer, FRAME_FILE_DATA, 3, "1234", 4);
    say_end(&peer, 3, 0, 4);
    hear(&peer);
    CHECK_STR("said", buf_str(&peer.said), "r<11><0>");

    assert_int_equal(link_file_read(peer.link, "f", 0, 4, on_data, &peer, NULL), 0);
    for (uint32_t number = 4; number < 8; number++)
        say_end(&peer, number, EAGAIN, 0);
    hear(&peer);
    CHECK_STR("not for ever", buf_str(&peer.said), "r<11><0><11>");
    close_peer(&peer);
}

static void test_words_of_the_agent_are_shown_as_text(void **state)
{
    (void)state;
    struct peer peer;
    open_peer(&peer);
    start_run(&peer);
    say_ready(&peer);
    char exit[FRAME_EXIT_SIZE + 5];
    frame_exit_put(exit, &(struct frame_exit){ .failed = true, .code = 2 });
    memcpy(exit + FRAME_EXIT_SIZE, "a\033\xff\nb", 5);
    say(&peer, FRAME_EXIT, 1, exit, sizeof(exit));
    hear(&peer);
    CHECK_STR("failure", peer.exit.failure, "a\\u001b\\xff\\nb");
    CHECK_INT("status", peer.exit.code, 127);
    close_peer(&peer);
}

static void test_a_link_may_be_freed_at_any_time(void **state)
{
    (void)state;
    struct peer peer;
    open_peer(&peer);
    start_all(&peer);
    link_free(peer.link);
    peer.link = NULL;
    CHECK_STR("said", buf_str(&peer.said), "x<125><125><125><125>");
    close_peer(&peer);

    open_peer(&peer); /* in a callback */
    start_all(&peer);
    peer.free_in_exit = true;
    say_ready(&peer);
    say_exit(&peer, 0);
    say_end(&peer, 1, 0, 0);
    hear(&peer);
    CHECK_STR("said", buf_str(&peer.said), "re<125><125><125><125>");
    close_peer(&peer);

    open_peer(&peer); /* in a callback while it breaks */
    start_all(&peer);
    peer.free_in_exit = true;
    shutdown(peer.fd, SHUT_RDWR);
    hear(&peer);
    CHECK_STR("said", buf_str(&peer.said), "x<125><125><125><125>");
    close_peer(&peer);
}

static void nothing_open(struct peer *peer)
{
    say_ready(peer);
}
static void run_over(struct peer *peer)
{
    say_ready(peer);
    start_run(peer);
    say_exit(peer, 0);
}
static void no_hello_yet(struct peer *peer)
{
    (void)peer;
}
static void run_open(struct peer *peer)
{
    say_ready(peer);
    start_run(peer);
}
static void kernel_open(struct peer *peer)
{
    static const struct link_kernel_events events = { .on_exit = on_exit_frame };
    const char *const argv[] = { "x", NULL };
    const struct link_kernel_spec spec = { .argv = argv, .cwd = "" };
    say_ready(peer);
    assert_int_equal(link_kernel_start(peer->link, &spec, &events, peer, NULL), 0);
}
static void file_open(struct peer *peer)
{
    say_ready(peer);
    assert_int_equal(link_file_stat(peer->link, "f", on_list, peer, NULL), 0);
}
static void on_counts(const struct link_counts *counts, void *data)
{
    (void)counts;
    note(data, "c");
}
static void count_open(struct peer *peer)
{
    say_ready(peer);
    assert_int_equal(link_count(peer->link, on_counts, peer), 0);
}
static void stream_broken(struct peer *peer)
{
    say_ready(peer);
    say(peer, 0x55, 0, "", 0);
}

static void test_the_stream_of_an_agent_at_rest_comes_back(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*prepare)(struct peer *peer);
        bool at_rest;
    } cases[] = {
        { "nothing was asked for", nothing_open, true },
        { "a run is over", run_over, true },
        { "no hello yet", no_hello_yet, false },
        { "a run", run_open, false },
        { "a kernel", kernel_open, false },
        { "file work", file_open, false },
        { "counts", count_open, false },
        { "a broken stream", stream_broken, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct peer peer;
        open_peer(&peer);
        cases[i].prepare(&peer);
        hear(&peer);
        int fd = link_retire(peer.link);
        peer.link = NULL;
        hear(&peer); /* libuv closes what it has */
        CHECK_INT(cases[i].name, fd >= 0, cases[i].at_rest);
        char bytes[1000];
        ssize_t n = 1;
        while (n > 0) /* what the link had written */
            n = recv(peer.fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        CHECK_INT(cases[i].name, n < 0 && errno == EAGAIN, cases[i].at_rest); /* else its end */
        if (fd >= 0)
            close(fd);
        close_peer(&peer);
    }
    CHECK_INT("no link", link_retire(NULL), -1);
}

/* How many frames are there to read, in one piece; *ret_last: the type of the last. */
static int frames_sent(struct peer *peer, uint8_t *ret_last)
{
    static char bytes[4096];
    ssize_t left = recv(peer->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    int count = 0, n;
    struct frame frame;
    for (const char *at = bytes; left > 0; at += n, left -= n, count++) {
        n = frame_parse(at, (size_t)left, &frame);
        assert_true(n > 0);
        *ret_last = frame.type;
    }
    return count;
}

static void test_what_is_held_goes_out_in_one_piece(void **state)
{
    (void)state;
    struct peer peer;
    uint8_t last = 0;
    open_peer(&peer);
    CHECK_INT("a new agent is not woken up for a hello", frames_sent(&peer, &last), 0);
    say_ready(&peer);
    hear(&peer);
    CHECK_INT("but its own is answered", frames_sent(&peer, &last), 1);
    CHECK_INT("by that", last, FRAME_HELLO);
    link_hold(peer.link);
    start_run(&peer);
    link_interrupt(peer.link);
    CHECK_INT("nothing yet", frames_sent(&peer, &last), 0);
    link_release(peer.link);
    CHECK_INT("announced, described, started, interrupted, fed",
              frames_sent(&peer, &last) >= 4 && last == FRAME_INTERRUPT, 1);
    link_interrupt(peer.link);
    CHECK_INT("at once again", frames_sent(&peer, &last), 1);
    link_hold(peer.link);
    link_release(peer.link);
    CHECK_INT("nothing was held", frames_sent(&peer, &last), 0);
    link_hold(peer.link);
    link_interrupt(peer.link); /* and is freed with the link */
    close_peer(&peer);
}

static void test_what_cannot_be_asked_is_refused(void **state)
{
    (void)state;
    struct peer peer;
    open_peer(&peer);
    struct err err;
    const char *const none[] = { NULL };
    const char *const argv[] = { "x", NULL };
    const char *const env[] = { "NOVALUE", NULL };
    struct link_run_spec spec = { .argv = none };
    CHECK_INT("nothing", link_run(peer.link, &spec, NULL, NULL, &err), -EINVAL);
    spec = (struct link_run_spec){ .argv = argv, .env = env };
    CHECK_INT("variable", link_run(peer.link, &spec, NULL, NULL, &err), -EINVAL);
    spec = (struct link_run_spec){ .argv = argv, .code = "", .code_len = FRAME_CODE_MAX + 1 };
    CHECK_INT("code", link_run(peer.link, &spec, NULL, NULL, &err), -EFBIG);
    auto_free char *longest = xcalloc(1, FRAME_ARGS_MAX + 1);
    memset(longest, 'x', FRAME_ARGS_MAX);
    const char *const too_long_args[] = { longest, NULL };
    spec = (struct link_run_spec){ .argv = too_long_args };
    CHECK_INT("arguments", link_run(peer.link, &spec, NULL, NULL, &err), -E2BIG);
    longest[FRAME_PATH_MAX + 1] = '\0';
    CHECK_INT("path", link_file_stat(peer.link, longest, on_list, NULL, &err), -ENAMETOOLONG);
    int r = 0;
    size_t asked = 0;
    while (r == 0 && asked < 5000) {
        r = link_file_stat(peer.link, "f", on_list, &peer, &err);
        asked += r == 0;
        buf_clear(&peer.said);
    }
    CHECK_INT("too much work", r, -EBUSY);
    peer.said.max = 100000; /* each is told when the link goes */
    close_peer(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lie_ends_the_stream_and_all_that_is_open),
        cmocka_unit_test(test_an_honest_agent_is_heard),
        cmocka_unit_test(test_what_has_come_is_heard_at_once),
        cmocka_unit_test(test_numbers_and_kernel_go_on_with_another_server),
        cmocka_unit_test(test_a_kernel_that_is_gone_is_told_from_one_that_never_was),
        cmocka_unit_test(test_a_lie_about_what_was_left_ends_the_stream),
        cmocka_unit_test(test_work_that_was_cut_off_is_asked_for_again),
        cmocka_unit_test(test_words_of_the_agent_are_shown_as_text),
        cmocka_unit_test(test_a_link_may_be_freed_at_any_time),
        cmocka_unit_test(test_the_stream_of_an_agent_at_rest_comes_back),
        cmocka_unit_test(test_what_is_held_goes_out_in_one_piece),
        cmocka_unit_test(test_what_cannot_be_asked_is_refused),
    };
    (void)signal(SIGPIPE, SIG_IGN); /* as in the server */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
