/* What the server does with clients that are too many, too slow or gone, and when it ends. */
#include "http_fixture.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>

static struct rlimit descriptors; /* as they were */

static int setup(void **state)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
    *state = xcalloc(1, sizeof(struct fixture));
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    fixture_done(f);
    free(f);
    return setrlimit(RLIMIT_NOFILE, &descriptors);
}

static void allow_descriptors(rlim_t n)
{
    const struct rlimit limit = { .rlim_cur = n, .rlim_max = descriptors.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A client that is there and does nothing. */
#define HELD __attribute__((unused)) auto_fd

/* As fixture_init(), with one limit changed. */
#define START(f, member, value)                                                                    \
    do {                                                                                           \
        struct http_options options_ = fixture_options();                                          \
        options_.limits.member = (value);                                                          \
        fixture_init(f, &options_);                                                                \
    } while (0)

static void start(struct fixture *f)
{
    const struct http_options options = fixture_options();
    fixture_init(f, &options);
}

/* A client whose request the handler keeps. */
static int dial_kept(struct fixture *f)
{
    int fd = dial(f);
    say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    WAIT_FOR(f, f->kept);
    return fd;
}

/*** Sizes ***/

static void test_the_head_limits_hold_at_their_edge(void **state)
{
    struct fixture *f = *state;
    start(f);
    char text[1025];
    for (size_t len = 1024; len <= 1025; len++) {
        auto_fd fd = dial(f);
        static const char line[] = "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ";
        memset(text, 'x', len);
        memcpy(text, line, sizeof(line) - 1);
        memcpy(text + len - 4, "\r\n\r\n", 4);
        put(f, fd, text, len);
        auto_free char *answer = hear_all(f, fd);
        CHECK_HAS(answer, len == 1024 ? "HTTP/1.1 200" : "HTTP/1.1 431");
    }
    auto_free char *ten =
        ask(f, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\na:\r\na:\r\na:\r\n"
               "a:\r\na:\r\na:\r\na:\r\na:\r\n\r\n");
    CHECK_HAS(ten, "HTTP/1.1 200");
    auto_free char *eleven = ask(f, "GET / HTTP/1.1\r\nHost: a\r\na:\r\na:\r\na:\r\n"
                                    "a:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n");
    CHECK_HAS(eleven, "HTTP/1.1 431");
}

/* The server has had all that was sent, or has answered. */
static bool is_read(struct fixture *f, int fd)
{
    int unsent = 0;
    struct pollfd answer = { .fd = fd, .events = POLLIN };
    struct pollfd loop = { .fd = uv_backend_fd(&f->loop), .events = POLLIN };
    assert_int_equal(ioctl(fd, SIOCOUTQ, &unsent), 0);
    return poll(&answer, 1, 0) > 0 || (unsent == 0 && poll(&loop, 1, 0) == 0);
}

/* Sends all but the last byte of a body of `len` bytes. */
static int dial_with_body(struct fixture *f, size_t len)
{
    int fd = dial(f);
    auto_free char *head =
        xasprintf("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", len);
    auto_free char *body = xcalloc(1, len);
    say(f, fd, head);
    put(f, fd, body, len - 1);
    turn(f); /* what is watched is known to the kernel from here on */
    WAIT_FOR(f, is_read(f, fd));
    return fd;
}

static void test_bodies_are_bounded_together(void **state)
{
    struct fixture *f = *state;
    struct http_options options = fixture_options();
    options.limits.max_body = 300000;
    options.limits.max_bodies = 400000;
    fixture_init(f, &options);
    auto_fd one = dial_with_body(f, 300000); /* its buffer is larger than all may be */
    auto_fd two = dial_with_body(f, 300000);
    auto_free char *text = hear_all(f, two);
    CHECK_HAS(text, "HTTP/1.1 503 Service Unavailable\r\n");
    assert_int_equal(f->gone, 1);
    auto_fd small = dial(f);
    check_alive(f, small);

    auto_buf answer = BUF_INIT(TEXT_MAX);
    put(f, one, "x", 1);
    assert_true(hear(f, one, "x", &answer));
    assert_true(str_has_prefix(buf_str(&answer), "HTTP/1.1 200 OK\r\n"));
    auto_fd three = dial_with_body(f, 300000); /* room again */
    put(f, three, "y", 1);
    buf_clear(&answer);
    assert_true(hear(f, three, "y", &answer));
}

/*** Time ***/

static void test_a_slow_head_is_cut(void **state)
{
    struct fixture *f = *state;
    START(f, header_timeout_ms, 300);
    auto_fd fd = dial(f);
    uint64_t began = clock_ms();
    for (int i = 0; i < 100 && stats(f).bad_requests_total == 0; i++) { /* keeps sending */
        say(f, fd, i == 0 ? "GET / HTTP/1.1\r\nHost: a\r\nX: " : "y");
        turn_for(f, 20);
    }
    auto_free char *text = hear_all(f, fd);
    uint64_t took = clock_ms() - began;
    CHECK_HAS(text, "HTTP/1.1 408 Request Timeout\r\n");
    CHECK_HAS(text, "Connection: close\r\n");
    CHECK("not before its time", took >= 300);
    CHECK("soon after it", took < 2000);
    assert_int_equal(f->handled, 0);
}

static void test_many_slow_heads_are_cut_and_others_served(void **state)
{
    struct fixture *f = *state;
    struct http_options options = fixture_options();
    options.limits.header_timeout_ms = 500;
    options.limits.max_connections = options.limits.max_connections_per_address = 300;
    fixture_init(f, &options);
    enum { N = 200 };
    int fds[N];
    for (size_t i = 0; i < N; i++) {
        fds[i] = dial(f);
        say(f, fds[i], "G");
        turn(f);
    }
    WAIT_FOR(f, stats(f).connections_open == N);
    auto_fd fd = dial(f);
    check_alive(f, fd);
    WAIT_FOR(f, stats(f).bad_requests_total == N);
    for (size_t i = 0; i < N; i++)
        (void)close(fds[i]);
    WAIT_FOR(f, stats(f).connections_open == 1);
    check_alive(f, fd);
}

static void test_the_head_has_its_time_from_its_first_byte(void **state)
{
    struct fixture *f = *state;
    START(f, header_timeout_ms, 400);
    auto_fd fd = dial(f);
    turn_for(f, 700); /* idle, which is another limit */
    check_alive(f, fd);
    turn_for(f, 700);
    check_alive(f, fd);
}

static void test_a_slow_body_is_cut_and_reported(void **state)
{
    struct fixture *f = *state;
    START(f, body_timeout_ms, 300);
    auto_fd fd = dial(f);
    say(f, fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc");
    auto_free char *text = hear_all(f, fd);
    CHECK_HAS(text, "HTTP/1.1 408 Request Timeout\r\n");
    assert_int_equal(f->gone, 1);
}

static void test_an_idle_connection_is_closed_without_a_word(void **state)
{
    struct fixture *f = *state;
    START(f, idle_timeout_ms, 300);
    auto_fd fresh = dial(f), used = dial(f);
    check_alive(f, used);
    auto_free char *nothing = hear_all(f, fresh);
    CHECK_STR("fresh", nothing, "");
    auto_free char *no_more = hear_all(f, used);
    CHECK_STR("used", no_more, "");
    assert_int_equal(stats(f).bad_requests_total, 0);
}

static void test_a_pending_answer_has_no_time_limit(void **state)
{
    struct fixture *f = *state;
    struct http_options options = fixture_options();
    options.limits.header_timeout_ms = options.limits.body_timeout_ms = 100;
    options.limits.idle_timeout_ms = options.limits.write_timeout_ms = 100;
    fixture_init(f, &options);
    auto_fd fd = dial_kept(f);
    turn_for(f, 800);
    assert_int_equal(f->gone, 0);
    http_respond(f->kept, 200, NULL, "late\n", 5);
    auto_buf text = BUF_INIT(TEXT_MAX);
    assert_true(hear(f, fd, "late\n", &text));
}

static void test_an_answer_that_is_not_read_is_cut(void **state)
{
    struct fixture *f = *state;
    START(f, write_timeout_ms, 300);
    auto_free char *big = xcalloc(1, 32 << 20);
    HELD fd = dial_kept(f);
    http_respond(f->kept, 200, NULL, big, 32 << 20);
    WAIT_FOR(f, stats(f).connections_open == 0);
    assert_int_equal(f->gone, 0); /* it was answered */
}

static void test_an_answer_that_is_read_slowly_is_not_cut(void **state)
{
    struct fixture *f = *state;
    START(f, write_timeout_ms, 400);
    enum { SIZE = 8 << 20 };
    auto_free char *big = xcalloc(1, SIZE);
    auto_fd fd = dial_kept(f);
    http_respond(f->kept, 200, NULL, big, SIZE);
    size_t got = 0;
    for (uint64_t until = clock_ms() + 2000; clock_ms() < until;) {
        ssize_t n = recv(fd, big, 256 << 10, MSG_DONTWAIT);
        got += n > 0 ? (size_t)n : 0;
        turn_for(f, 50);
    }
    assert_int_equal(stats(f).connections_open, 1);
    auto_buf rest = BUF_INIT(TEXT_MAX);
    (void)shutdown(fd, SHUT_WR);
    assert_true(hear(f, fd, NULL, &rest));
    assert_true(got + rest.len > SIZE);
}

static void test_an_unread_stream_is_cut_and_reported(void **state)
{
    struct fixture *f = *state;
    struct http_options options = fixture_options();
    options.limits.write_timeout_ms = 300;
    options.limits.max_backlog = 64 << 20;
    fixture_init(f, &options);
    auto_free char *big = xcalloc(1, 32 << 20);
    HELD fd = dial_kept(f);
    http_stream_start(f->kept, 200, NULL);
    assert_true(http_stream_write(f->kept, big, 32 << 20));
    assert_true(http_stream_backlog(f->kept) > 1 << 20);
    WAIT_FOR(f, f->gone == 1);
}

/*** Clients that go ***/

static void test_a_client_that_closes_is_reported(void **state)
{
    struct fixture *f = *state;
    start(f);
    int fd = dial_kept(f);
    (void)close(fd);
    WAIT_FOR(f, f->gone == 1);
    WAIT_FOR(f, stats(f).connections_open == 0);
}

static void test_a_client_that_shuts_its_side_is_reported(void **state)
{
    struct fixture *f = *state;
    start(f);
    auto_fd fd = dial_kept(f);
    http_stream_start(f->kept, 200, NULL);
    assert_true(http_stream_write(f->kept, "x", 1));
    (void)shutdown(fd, SHUT_WR);
    WAIT_FOR(f, f->gone == 1);
}

static void test_a_client_that_resets_is_reported(void **state)
{
    struct fixture *f = *state;
    start(f);
    int fd = dial_kept(f);
    const struct linger linger = { .l_onoff = 1 };
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    (void)close(fd);
    WAIT_FOR(f, f->gone == 1);
}

static void test_a_client_that_goes_while_it_sends_is_reported_once(void **state)
{
    struct fixture *f = *state;
    start(f);
    int fd = dial(f);
    say(f, fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc");
    WAIT_FOR(f, f->handled == 1);
    (void)close(fd);
    WAIT_FOR(f, f->gone == 1);
    turn_for(f, 20);
    assert_int_equal(f->gone, 1);
}

static void test_a_client_that_shuts_its_side_still_gets_answers_that_are_complete(void **state)
{
    struct fixture *f = *state;
    start(f);
    auto_fd fd = dial(f);
    say(f, fd, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    (void)shutdown(fd, SHUT_WR);
    auto_free char *text = hear_all(f, fd);
    assert_int_equal(occurrences(text, "hello\n"), 2);
    assert_int_equal(f->gone, 0);
}

static void test_a_reader_too_slow_for_the_backlog_is_cut(void **state)
{
    struct fixture *f = *state;
    start(f);
    static char piece[64 << 10];
    HELD fd = dial_kept(f);
    http_stream_start(f->kept, 200, NULL);
    bool more = true;
    for (int i = 0; more && i < 1000; i++) {
        f->in_call = true;
        more = http_stream_write(f->kept, piece, sizeof(piece));
        f->in_call = false;
        if (more)
            assert_true(http_stream_backlog(f->kept) <= 1 << 20);
    }
    assert_false(more);
    assert_int_equal(f->gone, 0); /* from the loop only */
    assert_false(http_stream_write(f->kept, piece, 1));
    WAIT_FOR(f, f->gone == 1);
    WAIT_FOR(f, stats(f).connections_open == 0);
}

static void test_a_cut_stream_that_is_ended_is_not_reported(void **state)
{
    struct fixture *f = *state;
    START(f, max_backlog, 1000);
    auto_free char *big = xcalloc(1, 32 << 20);
    HELD fd = dial_kept(f);
    http_stream_start(f->kept, 200, NULL);
    assert_false(http_stream_write(f->kept, big, 32 << 20));
    http_stream_end(f->kept);
    WAIT_FOR(f, stats(f).connections_open == 0);
    assert_int_equal(f->gone, 0);
}

/*** Too many ***/

static void check_one_too_many(struct fixture *f)
{
    auto_fd one = dial(f), two = dial(f);
    check_alive(f, one);
    check_alive(f, two);
    auto_free char *text = ask(f, "");
    CHECK_HAS(text, "HTTP/1.1 503 Service Unavailable\r\n");
    CHECK_HAS(text, "Connection: close\r\n");
    assert_int_equal(stats(f).connections_refused, 1);
    assert_int_equal(stats(f).connections_open, 2);
    (void)close(steal_fd(&one));
    WAIT_FOR(f, stats(f).connections_open == 1);
    auto_fd three = dial(f);
    check_alive(f, three);
}

static void test_a_connection_too_many_is_refused(void **state)
{
    struct fixture *f = *state;
    START(f, max_connections, 2);
    check_one_too_many(f);
}

static void test_a_connection_too_many_of_one_address_is_refused(void **state)
{
    struct fixture *f = *state;
    START(f, max_connections_per_address, 2);
    check_one_too_many(f);
    auto_fd other = client_socket(); /* another address is another account */
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1) };
    assert_int_equal(bind(other, (const struct sockaddr *)&address, sizeof(address)), 0);
    HELD filler = dial(f);
    client_connect(f, other);
    check_alive(f, other);
}

static void test_without_descriptors_clients_are_refused_and_the_server_lives(void **state)
{
    struct fixture *f = *state;
    start(f);
    auto_fd one = client_socket(), two = client_socket();
    auto_fd alive = dial(f);
    check_alive(f, alive);

    allow_descriptors(3); /* below what is open: not even the spare one can be replaced */
    client_connect(f, one);
    turn_for(f, 50);
    client_connect(f, two);
    uint64_t cpu = (uint64_t)clock();
    turn_for(f, 300);
    cpu = ((uint64_t)clock() - cpu) * 1000 / CLOCKS_PER_SEC;
    check_alive(f, alive);
    allow_descriptors(descriptors.rlim_cur);
    CHECK("does not spin", cpu < 250);

    auto_fd three = dial(f);
    check_alive(f, three);
}

/* As when every descriptor but the spare one is in use. */
static void test_the_spare_descriptor_serves_to_refuse(void **state)
{
    struct fixture *f = *state;
    start(f);
    if (under_valgrind())
        skip(); /* it accepts first and closes what is over the limit */
    auto_fd one = client_socket(), two = client_socket();
    int taken[4096];
    size_t n = 0;
    allow_descriptors(256);
    while (n < ARRAY_SIZE(taken) && (taken[n] = dup(one)) >= 0)
        n++;
    client_connect(f, one);
    client_connect(f, two);
    auto_free char *text = hear_all(f, one);
    CHECK_HAS(text, "HTTP/1.1 503 Service Unavailable\r\n");
    auto_free char *again = hear_all(f, two);
    CHECK_HAS(again, "HTTP/1.1 503 Service Unavailable\r\n");
    while (n > 0)
        (void)close(taken[--n]);
    allow_descriptors(descriptors.rlim_cur);
    assert_int_equal(stats(f).connections_refused, 2);
    auto_fd three = dial(f);
    check_alive(f, three);
}

/*** The end ***/

static void on_drained(void *data)
{
    struct fixture *f = data;
    f->drained++;
    http_server_free(f->server);
    f->server = NULL;
}

static void test_draining_lets_a_running_answer_end(void **state)
{
    struct fixture *f = *state;
    start(f);
    auto_fd idle = dial(f);
    check_alive(f, idle);
    auto_fd busy = dial_kept(f);
    http_server_drain(f->server, 60000, on_drained, f);
    auto_free char *nothing = hear_all(f, idle);
    CHECK_STR("idle", nothing, "");
    turn_for(f, 20);
    assert_int_equal(f->drained, 0);
    http_respond(f->kept, 200, NULL, "done\n", 5);
    auto_free char *text = hear_all(f, busy);
    CHECK_HAS(text, "Connection: close\r\n");
    CHECK_HAS(text, "\r\n\r\ndone\n");
    (void)close(steal_fd(&busy));
    WAIT_FOR(f, f->drained == 1);
    assert_int_equal(f->gone, 0);
}

static void test_draining_ends_with_the_grace_time(void **state)
{
    struct fixture *f = *state;
    start(f);
    HELD busy = dial_kept(f);
    http_stream_start(f->kept, 200, NULL);
    http_server_drain(f->server, 100, on_drained, f);
    WAIT_FOR(f, f->drained == 1);
    assert_int_equal(f->gone, 1);
}

static void test_draining_a_server_without_clients(void **state)
{
    struct fixture *f = *state;
    start(f);
    http_server_drain(f->server, 60000, on_drained, f);
    assert_int_equal(f->drained, 0);
    WAIT_FOR(f, f->drained == 1);
}

static void test_freeing_the_server_reports_open_requests(void **state)
{
    struct fixture *f = *state;
    start(f);
    HELD busy = dial_kept(f);
    HELD idle = dial(f);
    auto_fd half = dial(f);
    say(f, half, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc");
    WAIT_FOR(f, f->handled == 2);
    http_server_free(f->server);
    f->server = NULL;
    assert_int_equal(f->gone, 2);
}

static void free_in_body(struct http_request *req, const char *body, size_t len, void *data)
{
    (void)req;
    (void)body;
    (void)len;
    struct fixture *f = data;
    http_server_free(f->server);
    f->server = NULL;
}

static void test_the_server_may_be_freed_from_a_callback(void **state)
{
    struct fixture *f = *state;
    start(f);
    auto_fd fd = dial(f);
    say(f, fd,
        "POST /keep HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxGET / HTTP/1.1\r\n\r\n");
    WAIT_FOR(f, f->kept);
    http_request_read_body(f->kept, 0, free_in_body, f);
    WAIT_FOR(f, f->gone == 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_head_limits_hold_at_their_edge),
        TEST(test_bodies_are_bounded_together),
        TEST(test_a_slow_head_is_cut),
        TEST(test_many_slow_heads_are_cut_and_others_served),
        TEST(test_the_head_has_its_time_from_its_first_byte),
        TEST(test_a_slow_body_is_cut_and_reported),
        TEST(test_an_idle_connection_is_closed_without_a_word),
        TEST(test_a_pending_answer_has_no_time_limit),
        TEST(test_an_answer_that_is_not_read_is_cut),
        TEST(test_an_answer_that_is_read_slowly_is_not_cut),
        TEST(test_an_unread_stream_is_cut_and_reported),
        TEST(test_a_client_that_closes_is_reported),
        TEST(test_a_client_that_shuts_its_side_is_reported),
        TEST(test_a_client_that_resets_is_reported),
        TEST(test_a_client_that_goes_while_it_sends_is_reported_once),
        TEST(test_a_client_that_shuts_its_side_still_gets_answers_that_are_complete),
        TEST(test_a_reader_too_slow_for_the_backlog_is_cut),
        TEST(test_a_cut_stream_that_is_ended_is_not_reported),
        TEST(test_a_connection_too_many_is_refused),
        TEST(test_a_connection_too_many_of_one_address_is_refused),
        TEST(test_without_descriptors_clients_are_refused_and_the_server_lives),
        TEST(test_the_spare_descriptor_serves_to_refuse),
        TEST(test_draining_lets_a_running_answer_end),
        TEST(test_draining_ends_with_the_grace_time),
        TEST(test_draining_a_server_without_clients),
        TEST(test_freeing_the_server_reports_open_requests),
        TEST(test_the_server_may_be_freed_from_a_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
