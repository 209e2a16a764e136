#include "http_fixture.h"

static int setup(void **state)
{
    struct fixture *f = xmalloc(sizeof(*f));
    const struct http_options options = fixture_options();
    fixture_init(f, &options);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    fixture_done(f);
    free(f);
    return 0;
}

/*** Requests in a row ***/

static void test_a_connection_serves_many_requests(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    for (int i = 0; i < 5; i++)
        check_alive(f, fd);
    assert_int_equal(f->handled, 5);
    assert_int_equal(stats(f).requests_total, 5);
    assert_int_equal(stats(f).connections_total, 1);
    assert_int_equal(stats(f).bad_requests_total, 0);
}

static void test_a_request_may_come_byte_by_byte(void **state)
{
    struct fixture *f = *state;
    static const char text[] =
        "\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
    auto_fd fd = dial(f);
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        put(f, fd, text + i, 1);
        turn(f);
    }
    auto_buf answer = BUF_INIT(TEXT_MAX);
    assert_true(hear(f, fd, "\r\n\r\nabcd", &answer));
    check_alive(f, fd);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    struct fixture *f = *state;
    auto_free char *text =
        ask(f, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
               "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none"
               "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
               "3\r\ntwo\r\n0\r\n\r\n"
               "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
               "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    const char *one = strstr(text, "\r\n\r\none"), *two = strstr(text, "\r\n\r\ntwo");
    assert_true(one && two && one < two);
    assert_int_equal(occurrences(text, "HTTP/1.1 200 OK"), 4);
    assert_int_equal(occurrences(text, "Connection: close"), 1);
    assert_int_equal(f->handled, 4);
}

static void test_a_pipelined_request_waits_for_the_answer_before_it(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    WAIT_FOR(f, f->kept);
    turn_for(f, 20);
    assert_int_equal(f->handled, 1);
    http_respond(f->kept, 200, NULL, "kept\n", 5);
    assert_int_equal(f->handled, 1); /* not from inside the call */
    auto_buf text = BUF_INIT(TEXT_MAX);
    assert_true(hear(f, fd, "hello\n", &text));
    CHECK_HAS(buf_str(&text), "\r\n\r\nkept\nHTTP/1.1 200 OK\r\n");
}

static void test_a_flood_of_pipelined_requests_is_held_back(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    WAIT_FOR(f, f->kept);
    size_t sent = 0;
    for (int i = 0; i < 2000; i++) { /* far more than we keep; the rest stays in the kernel */
        static const char junk[4096] = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
        ssize_t n = send(fd, junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        turn(f);
    }
    assert_true(sent < 2000 * 4096);
    assert_int_equal(f->handled, 1);
    http_respond(f->kept, 200, NULL, "", 0);
}

static void test_answers_pile_up_in_the_client_not_in_us(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    static char big[1 << 20];
    for (int i = 0; i < 64; i++)
        say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 0; i < 64 && (i == 0 || f->kept); i++) {
        WAIT_FOR(f, f->kept);
        struct http_request *req = f->kept;
        f->kept = NULL;
        http_respond(req, 200, NULL, big, sizeof(big));
        turn_for(f, 5);
    }
    assert_true(f->handled < 64); /* the next waits until the client has read */
}

/*** Framing of answers ***/

static void test_head_gets_the_head_only(void **state)
{
    struct fixture *f = *state;
    auto_free char *text = ask(f, "HEAD /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    CHECK_HAS(text, "\r\nContent-Length: 6\r\n");
    CHECK_LACKS(text, "hello");
}

static void test_a_204_has_neither_length_nor_body(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    WAIT_FOR(f, f->kept);
    http_respond(f->kept, 204, NULL, "x", 1);
    auto_free char *text = hear_all(f, fd);
    CHECK_HAS(text, "HTTP/1.1 204 No Content\r\n");
    CHECK_LACKS(text, "Content-Length");
    CHECK_LACKS(text, "\r\n\r\nx");
}

static void test_fields_of_the_handler_are_sent(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "GET /keep?q HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nx-one: 2\r\n\r\n");
    WAIT_FOR(f, f->kept);
    struct http_request *req = f->kept;
    const char *name, *value;
    CHECK_STR("method", http_request_method(req), "GET");
    CHECK_STR("query", http_request_query(req), "q");
    CHECK_STR("header", http_request_header(req, "X-ONE"), "1");
    CHECK_INT("count", http_request_header_count(req, "X-ONE"), 2);
    CHECK("at", http_request_header_at(req, 2, &name, &value));
    CHECK_STR("at", name, "x-one");
    CHECK_STR("at", value, "2");
    CHECK("past the end", !http_request_header_at(req, 3, &name, &value));
    CHECK("absent", !http_request_header(req, "X-Two"));
    CHECK("peer", str_has_prefix(http_request_peer(req), "127.0.0.1:"));
    const struct http_field fields[] = { { "X-A", "b c" }, { 0 } };
    http_respond(req, 404, fields, NULL, 0);
    auto_buf text = BUF_INIT(TEXT_MAX);
    assert_true(hear(f, fd, "\r\n\r\n", &text));
    CHECK_HAS(buf_str(&text), "HTTP/1.1 404 Not Found\r\nX-A: b c\r\nContent-Length: 0\r\nDate: ");
}

static void test_http_1_0_closes_unless_asked(void **state)
{
    struct fixture *f = *state;
    auto_free char *text = ask(f, "GET /hello HTTP/1.0\r\n\r\n");
    CHECK_HAS(text, "Connection: close\r\n");
    auto_fd fd = dial(f);
    auto_buf answer = BUF_INIT(TEXT_MAX);
    say(f, fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_true(hear(f, fd, "hello\n", &answer));
    CHECK_HAS(buf_str(&answer), "Connection: keep-alive\r\n");
    check_alive(f, fd);
}

static void test_a_stream_is_chunked(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    WAIT_FOR(f, f->kept);
    http_stream_start(f->kept, 200, NULL);
    assert_true(http_stream_write(f->kept, "one", 3));
    assert_true(http_stream_write(f->kept, "", 0)); /* must not end it */
    auto_buf text = BUF_INIT(TEXT_MAX);
    assert_true(hear(f, fd, "\r\n\r\n3\r\none\r\n", &text));
    assert_true(http_stream_write(f->kept, "0123456789abcdef", 16));
    assert_int_equal(http_stream_backlog(f->kept), 0);
    http_stream_end(f->kept);
    assert_true(hear(f, fd, "10\r\n0123456789abcdef\r\n0\r\n\r\n", &text));
    CHECK_HAS(buf_str(&text), "Transfer-Encoding: chunked\r\n");
    CHECK_LACKS(buf_str(&text), "Content-Length");
    check_alive(f, fd);
    assert_int_equal(f->gone, 0);
}

static void test_a_stream_to_http_1_0_ends_with_the_connection(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "GET /keep HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    WAIT_FOR(f, f->kept);
    http_stream_start(f->kept, 200, NULL);
    assert_true(http_stream_write(f->kept, "one", 3));
    http_stream_end(f->kept);
    auto_free char *text = hear_all(f, fd);
    CHECK_HAS(text, "Connection: close\r\n");
    CHECK_LACKS(text, "chunked");
    CHECK_HAS(text, "\r\n\r\none");
}

static void test_a_stream_for_head_has_no_chunks(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "HEAD /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    WAIT_FOR(f, f->kept);
    http_stream_start(f->kept, 200, NULL);
    assert_true(http_stream_write(f->kept, "one", 3));
    http_stream_end(f->kept);
    check_alive(f, fd); /* its answer would not be the next text otherwise */
}

static void test_a_large_answer_arrives_whole(void **state)
{
    struct fixture *f = *state;
    enum { SIZE = 20 << 20 };
    auto_free char *big = xmalloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        big[i] = (char)(i * 7 + i / 4096);
    auto_fd fd = dial(f);
    say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    WAIT_FOR(f, f->kept);
    http_respond(f->kept, 200, NULL, big, SIZE);
    auto_buf text = BUF_INIT(TEXT_MAX);
    assert_true(hear(f, fd, NULL, &text));
    assert_true(text.len > SIZE);
    assert_memory_equal(text.data + text.len - SIZE, big, SIZE);
}

/*** Bodies ***/

static void test_expect_is_answered_when_the_body_is_wanted(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    auto_buf text = BUF_INIT(TEXT_MAX);
    say(f, fd,
        "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_true(hear(f, fd, "\r\n\r\n", &text));
    CHECK_STR("interim", buf_str(&text), "HTTP/1.1 100 Continue\r\n\r\n");
    say(f, fd, "abc");
    assert_true(hear(f, fd, "\r\n\r\nabc", &text));
    check_alive(f, fd);
}

static void test_expect_is_not_answered_when_the_body_is_not_wanted(void **state)
{
    struct fixture *f = *state;
    auto_free char *text = ask(f, "POST /refuse HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                                  "Content-Length: 3\r\n\r\n");
    CHECK_LACKS(text, "100 Continue");
    CHECK_HAS(text, "HTTP/1.1 401 Unauthorized\r\n");
    CHECK_HAS(text, "Connection: close\r\n"); /* nobody knows whether the body will come */
}

static void test_a_body_that_nobody_reads_is_skipped(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    auto_buf text = BUF_INIT(TEXT_MAX);
    say(f, fd, "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n");
    assert_true(hear(f, fd, "\r\n\r\nno\n", &text));
    buf_clear(&text);
    say(f, fd, "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    say(f, fd, "POST /refuse HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_true(hear(f, fd, "no\n", &text));
    say(f, fd, "3\r\nabc\r\n0\r\n\r\n");
    check_alive(f, fd);
    assert_int_equal(f->handled, 3);
}

static void test_a_large_body_that_nobody_reads_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
    auto_free char *body = xcalloc(1, 10000000);
    put(f, fd, body, 10000000); /* all of it: we must be able to read the answer afterwards */
    auto_free char *text = hear_all(f, fd);
    CHECK_HAS(text, "HTTP/1.1 401 Unauthorized\r\n");
    CHECK_HAS(text, "Connection: close\r\n");
}

static void test_a_chunked_body_too_long_to_skip_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    say(f, fd, "POST /refuse HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n");
    auto_free char *text = hear_all(f, fd);
    CHECK_HAS(text, "\r\n\r\nno\n");
    assert_int_equal(occurrences(text, "HTTP/1.1"), 1);
}

static void keep_body(struct http_request *req, const char *body, size_t len, void *data)
{
    (void)req;
    struct buf *text = data;
    assert_int_equal(buf_add(text, body, len), 0);
}

static void test_the_body_may_be_asked_for_later(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    auto_buf body = BUF_INIT(TEXT_MAX);
    say(f, fd, "POST /keep HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    WAIT_FOR(f, f->kept);
    turn_for(f, 10);
    http_request_read_body(f->kept, 0, keep_body, &body);
    assert_int_equal(body.len, 0); /* not from inside the call */
    WAIT_FOR(f, body.len == 3);
    http_respond(f->kept, 200, NULL, body.data, body.len);
    check_alive(f, fd);
}

static void test_the_body_limit_holds_at_its_edge(void **state)
{
    struct fixture *f = *state;
    char body[1001];
    memset(body, 'x', sizeof(body));
    auto_fd fd = dial(f);
    auto_buf text = BUF_INIT(TEXT_MAX);
    say(f, fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    put(f, fd, body, 999);
    put(f, fd, "y", 1);
    assert_true(hear(f, fd, "xy", &text));

    auto_free char *over = ask(f, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    CHECK_HAS(over, "HTTP/1.1 413 Content Too Large\r\n");
    CHECK_HAS(over, "Connection: close\r\n");
    assert_int_equal(f->gone, 1);

    auto_free char *sum =
        ask(f, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
               "1\r\nx\r\n3e8\r\n");
    CHECK_HAS(sum, "HTTP/1.1 413 Content Too Large\r\n");
    assert_int_equal(f->gone, 2);
    assert_int_equal(stats(f).bad_requests_total, 2);
}

static void test_a_broken_body_is_refused_and_reported(void **state)
{
    struct fixture *f = *state;
    auto_free char *text =
        ask(f, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
               "1\r\nxGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK_HAS(text, "HTTP/1.1 400 Bad Request\r\n");
    assert_int_equal(occurrences(text, "HTTP/1.1"), 1);
    assert_int_equal(f->handled, 1);
    assert_int_equal(f->gone, 1);
}

/*** Refusals ***/

static void test_nonsense_is_refused_and_says_why(void **state)
{
    struct fixture *f = *state;
    auto_free char *text = ask(f, "GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK_HAS(text, "HTTP/1.1 400 Bad Request\r\n");
    CHECK_HAS(text, "Content-Type: text/plain");
    CHECK_HAS(text, "Connection: close\r\n");
    CHECK_HAS(text, "\r\n\r\nline feed without carriage return");
    assert_int_equal(occurrences(text, "HTTP/1.1"), 1);
    assert_int_equal(f->handled, 0);
    assert_int_equal(stats(f).bad_requests_total, 1);
}

static void test_a_refusal_survives_what_the_client_goes_on_to_send(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    auto_free char *junk = xmalloc(8 << 20);
    memset(junk, 'x', 8 << 20);
    put(f, fd, junk, 8 << 20);
    auto_free char *text = hear_all(f, fd);
    CHECK_HAS(text, "HTTP/1.1 431 Request Header Fields Too Large\r\n");
}

static void test_a_good_request_before_a_bad_one_is_answered(void **state)
{
    struct fixture *f = *state;
    auto_free char *text = ask(f, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/9\r\n\r\n");
    assert_true(str_has_prefix(text, "HTTP/1.1 200 OK\r\n"));
    CHECK_HAS(text, "hello\nHTTP/1.1 400 Bad Request\r\n");
}

/*** Addresses ***/

static void test_localhost_is_every_loopback_there_is(void **state)
{
    struct fixture *f = *state;
    auto_free char *bound = NULL;
    struct err err = { 0 };
    assert_int_equal(http_server_listen(f->server, "localhost:0", &bound, &err), 0);
    assert_true(str_has_prefix(bound, "127.0.0.1:"));
    const struct sockaddr_in6 address = {
        .sin6_family = AF_INET6,
        .sin6_port = htons((uint16_t)atoi(bound + strlen("127.0.0.1:"))),
        .sin6_addr = IN6ADDR_LOOPBACK_INIT,
    };
    auto_fd fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 &&
                   errno == EADDRNOTAVAIL))
        skip();
    say(f, fd, "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    WAIT_FOR(f, f->kept);
    assert_true(str_has_prefix(http_request_peer(f->kept), "[::1]:"));
    http_respond(f->kept, 200, NULL, "", 0);
}

static void test_addresses_that_cannot_be_are_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const addresses[] = {
        "",    "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1",
        ":80", "::1:80",    "[::1:80",    "[]:80",       "192.0.2.1:0",
    };
    for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
        struct err err = { 0 };
        CHECK(addresses[i], http_server_listen(f->server, addresses[i], NULL, &err) < 0);
        CHECK(addresses[i], err.code && err.msg[0]);
    }
}

static void test_a_port_in_use_is_an_error(void **state)
{
    struct fixture *f = *state;
    auto_free char *address = xasprintf("127.0.0.1:%d", f->port);
    struct err err = { 0 };
    assert_int_equal(http_server_listen(f->server, address, NULL, &err), -EADDRINUSE);
    CHECK_HAS(err.msg, address);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_connection_serves_many_requests),
        TEST(test_a_request_may_come_byte_by_byte),
        TEST(test_pipelined_requests_are_answered_in_order),
        TEST(test_a_pipelined_request_waits_for_the_answer_before_it),
        TEST(test_a_flood_of_pipelined_requests_is_held_back),
        TEST(test_answers_pile_up_in_the_client_not_in_us),
        TEST(test_head_gets_the_head_only),
        TEST(test_a_204_has_neither_length_nor_body),
        TEST(test_fields_of_the_handler_are_sent),
        TEST(test_http_1_0_closes_unless_asked),
        TEST(test_a_stream_is_chunked),
        TEST(test_a_stream_to_http_1_0_ends_with_the_connection),
        TEST(test_a_stream_for_head_has_no_chunks),
        TEST(test_a_large_answer_arrives_whole),
        TEST(test_expect_is_answered_when_the_body_is_wanted),
        TEST(test_expect_is_not_answered_when_the_body_is_not_wanted),
        TEST(test_a_body_that_nobody_reads_is_skipped),
        TEST(test_a_large_body_that_nobody_reads_ends_the_connection),
        TEST(test_a_chunked_body_too_long_to_skip_ends_the_connection),
        TEST(test_the_body_may_be_asked_for_later),
        TEST(test_the_body_limit_holds_at_its_edge),
        TEST(test_a_broken_body_is_refused_and_reported),
        TEST(test_nonsense_is_refused_and_says_why),
        TEST(test_a_refusal_survives_what_the_client_goes_on_to_send),
        TEST(test_a_good_request_before_a_bad_one_is_answered),
        TEST(test_localhost_is_every_loopback_there_is),
        TEST(test_addresses_that_cannot_be_are_refused),
        TEST(test_a_port_in_use_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
