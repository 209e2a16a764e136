#include "check.h"

#include "http/body.h"

#include <errno.h>
#include <stdlib.h>

enum { BODY_MAX = 64 };

#define BYTES(text) text, sizeof(text) - 1

/* Feeds `len` bytes in pieces of at most `step`, each alone on the heap. Returns how many belong
 * to the body, or minus the status of the refusal. */
static long feed(struct body *body, const char *in, size_t len, size_t step, struct buf *out)
{
    struct fault fault;
    size_t used = 0;
    while (used < len && !body_done(body)) {
        size_t n = len - used < step ? len - used : step;
        auto_free char *piece = xmalloc(n);
        memcpy(piece, in + used, n);
        ssize_t r = body_feed(body, piece, n, out, &fault);
        if (r < 0)
            return -fault.status;
        used += (size_t)r;
    }
    return (long)used;
}

static void start(struct body *body, bool chunked, uint64_t length)
{
    const struct head head = { .chunked = chunked, .content_length = length };
    struct fault fault;
    body_init(body, &head);
    assert_int_equal(body_set_max(body, BODY_MAX, &fault), 0);
}

static const struct good {
    const char *name;
    const char *text;
    size_t len;
    const char *content;
} good[] = {
    { "nothing", BYTES("0\r\n\r\n"), "" },
    { "one chunk", BYTES("5\r\nhello\r\n0\r\n\r\n"), "hello" },
    { "two chunks", BYTES("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"), "hello!" },
    { "two digits", BYTES("10\r\n0123456789abcdef\r\n0\r\n\r\n"), "0123456789abcdef" },
    { "hexadecimal in both cases", BYTES("a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n"),
      "01234567890123456789a" },
    { "sixteen digits", BYTES("0000000000000001\r\nx\r\n0000000000000000\r\n\r\n"), "x" },
    { "data that looks like framing", BYTES("7\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n"), "0\r\n\r\n\r\n" },
};

static void test_chunks_are_joined_however_they_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        for (size_t step = 1; step <= good[i].len; step++) {
            struct body body;
            auto_buf out = BUF_INIT(BODY_MAX);
            start(&body, /* chunked= */ true, 0);
            CHECK_INT(good[i].name, feed(&body, good[i].text, good[i].len, step, &out),
                      good[i].len);
            CHECK(good[i].name, body_done(&body));
            CHECK_STR(good[i].name, buf_str(&out), good[i].content);
        }
    }
}

static void test_every_prefix_needs_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        for (size_t len = 0; len < good[i].len; len++) {
            struct body body;
            auto_buf out = BUF_INIT(BODY_MAX);
            start(&body, /* chunked= */ true, 0);
            CHECK_INT(good[i].name, feed(&body, good[i].text, len, BODY_MAX, &out), len);
            CHECK(good[i].name, !body_done(&body));
        }
    }
}

static void test_the_next_request_is_left_alone(void **state)
{
    (void)state;
    static const char text[] = "1\r\nx\r\n0\r\n\r\nGET /";
    struct body body;
    start(&body, /* chunked= */ true, 0);
    assert_int_equal(feed(&body, text, sizeof(text) - 1, sizeof(text), NULL), sizeof(text) - 6);
    assert_true(body_done(&body));
    start(&body, /* chunked= */ false, 3);
    assert_int_equal(feed(&body, "abcGET /", 8, 8, NULL), 3);
    assert_true(body_done(&body));
}

static void test_a_length_is_counted_down(void **state)
{
    (void)state;
    for (size_t step = 1; step <= 7; step++) {
        struct body body;
        auto_buf out = BUF_INIT(BODY_MAX);
        start(&body, /* chunked= */ false, 6);
        assert_int_equal(feed(&body,
                              "a\0\r\n\xff"
                              "f",
                              5, step, &out),
                         5);
        assert_false(body_done(&body));
        assert_int_equal(feed(&body, "f", 1, step, &out), 1);
        assert_true(body_done(&body));
        assert_int_equal(out.len, 6);
        assert_memory_equal(out.data,
                            "a\0\r\n\xff"
                            "f",
                            6);
    }
}

static void test_no_framing_means_no_body(void **state)
{
    (void)state;
    struct body body;
    start(&body, /* chunked= */ false, 0);
    assert_true(body_done(&body));
    assert_int_equal(feed(&body, "x", 1, 1, NULL), 0);
}

static const struct bad {
    const char *name;
    const char *text;
    size_t len;
    int status;
} bad[] = {
    { "no size", BYTES("\r\nhello\r\n"), 400 },
    { "no size after a chunk", BYTES("1\r\nx\r\n\r\n"), 400 },
    { "bare LF after the size", BYTES("5\nhello\r\n"), 400 },
    { "CR and something after the size", BYTES("5\rXhello\r\n"), 400 },
    { "CR CR LF after the size", BYTES("5\r\r\nhello\r\n"), 400 },
    { "blank before the size", BYTES(" 5\r\nhello\r\n"), 400 },
    { "blank after the size", BYTES("5 \r\nhello\r\n"), 400 },
    { "tab after the size", BYTES("5\t\r\nhello\r\n"), 400 },
    { "minus", BYTES("-5\r\nhello\r\n"), 400 },
    { "plus", BYTES("+5\r\nhello\r\n"), 400 },
    { "0x", BYTES("0x5\r\nhello\r\n"), 400 },
    { "not hexadecimal", BYTES("g\r\nhello\r\n"), 400 },
    { "underscore", BYTES("1_0\r\n"), 400 },
    { "fraction", BYTES("5.0\r\nhello\r\n"), 400 },
    { "quoted size", BYTES("\"5\"\r\nhello\r\n"), 400 },
    { "NUL in the size", BYTES("5\0\r\nhello\r\n"), 400 },
    { "fullwidth digit", BYTES("\xef\xbc\x95\r\nhello\r\n"), 400 },
    { "seventeen digits", BYTES("00000000000000001\r\nx\r\n"), 400 },
    { "size of 2^64", BYTES("10000000000000000\r\n"), 400 },
    { "size of 2^64 + 1 in zeros", BYTES("000000000000000000000000000000001\r\n"), 400 },
    { "extension", BYTES("5;a=b\r\nhello\r\n0\r\n\r\n"), 400 },
    { "extension without a value", BYTES("5;a\r\nhello\r\n0\r\n\r\n"), 400 },
    { "empty extension", BYTES("5;\r\nhello\r\n"), 400 },
    { "extension with a bare LF", BYTES("5;\nhello\r\n"), 400 },
    { "quoted extension with CRLF", BYTES("5;a=\"\r\n\"\r\nhello\r\n"), 400 },
    { "extension at the end", BYTES("0;a\r\n\r\n"), 400 },
    { "chunk longer than its size", BYTES("4\r\nhello\r\n0\r\n\r\n"), 400 },
    { "chunk shorter than its size", BYTES("6\r\nhello\r\n0\r\n\r\n"), 400 },
    { "no CRLF after a chunk", BYTES("5\r\nhello0\r\n\r\n"), 400 },
    { "bare LF after a chunk", BYTES("5\r\nhello\n0\r\n\r\n"), 400 },
    { "CR alone after a chunk", BYTES("5\r\nhello\r0\r\n\r\n"), 400 },
    { "LF CR after a chunk", BYTES("5\r\nhello\n\r0\r\n\r\n"), 400 },
    { "blank line after a chunk", BYTES("5\r\nhello\r\n\r\n0\r\n\r\n"), 400 },
    { "trailer", BYTES("0\r\nX: a\r\n\r\n"), 400 },
    { "trailer that smuggles a length", BYTES("0\r\nContent-Length: 5\r\n\r\n"), 400 },
    { "bare LF at the end", BYTES("0\r\n\n"), 400 },
    { "CR and something at the end", BYTES("0\r\n\rX"), 400 },
    { "next request without blank line", BYTES("0\r\nGET / HTTP/1.1\r\n\r\n"), 400 },
    { "largest size", BYTES("ffffffffffffffff\r\n"), 413 },
    { "largest size after a chunk", BYTES("1\r\nx\r\nffffffffffffffff\r\n"), 413 },
    { "one more than the limit", BYTES("41\r\n"), 413 },
    { "one more than the limit in the sum", BYTES("1\r\nx\r\n40\r\n"), 413 },
};

static void test_bad_chunks_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        for (size_t step = 1; step <= bad[i].len; step++) {
            struct body body;
            auto_buf out = BUF_INIT(BODY_MAX);
            start(&body, /* chunked= */ true, 0);
            CHECK_INT(bad[i].name, feed(&body, bad[i].text, bad[i].len, step, &out),
                      -bad[i].status);
        }
    }
}

static void test_a_length_over_the_limit_is_refused_before_any_byte(void **state)
{
    (void)state;
    struct head head = { .content_length = BODY_MAX };
    struct body body;
    struct fault fault;
    body_init(&body, &head);
    assert_int_equal(body_set_max(&body, BODY_MAX, &fault), 0);
    head.content_length++;
    body_init(&body, &head);
    assert_int_equal(body_set_max(&body, BODY_MAX, &fault), -EBADMSG);
    assert_int_equal(fault.status, 413);
}

static void test_chunks_may_sum_up_to_the_limit(void **state)
{
    (void)state;
    struct body body;
    auto_buf out = BUF_INIT(BODY_MAX);
    char text[BODY_MAX + 32] = "1\r\nx\r\n3f\r\n";
    size_t len = strlen(text);
    memset(text + len, 'y', 0x3f);
    memcpy(text + len + 0x3f, "\r\n0\r\n\r\n", 8);
    start(&body, /* chunked= */ true, 0);
    assert_int_equal(feed(&body, text, strlen(text), 7, &out), strlen(text));
    assert_true(body_done(&body));
    assert_int_equal(out.len, BODY_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_are_joined_however_they_arrive),
        cmocka_unit_test(test_every_prefix_needs_more),
        cmocka_unit_test(test_the_next_request_is_left_alone),
        cmocka_unit_test(test_a_length_is_counted_down),
        cmocka_unit_test(test_no_framing_means_no_body),
        cmocka_unit_test(test_bad_chunks_are_refused),
        cmocka_unit_test(test_a_length_over_the_limit_is_refused_before_any_byte),
        cmocka_unit_test(test_chunks_may_sum_up_to_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
