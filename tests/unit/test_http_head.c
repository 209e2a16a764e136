#include "check.h"

#include "base/buf.h"
#include "http/head.h"

#include <errno.h>
#include <stdlib.h>

enum { FIELDS_MAX = 8 };
static const struct head_limits limits = { .bytes = 512, .fields = FIELDS_MAX };

/* One head and what it was cut into; `text` is exactly as long as what was consumed. */
struct parsed {
    char *text;
    struct head_field fields[FIELDS_MAX];
    struct head head;
    struct fault fault;
};

/* The bytes alone on the heap, so that a sanitizer or valgrind sees one byte too far. */
static char *exact_copy(const char *text, size_t len)
{
    char *copy = xmalloc(len);
    memcpy(copy, text, len);
    return copy;
}

/* What head_scan() says of `len` bytes seen at once. */
static ssize_t scan(const char *text, size_t len, struct head_scan *state, struct fault *fault)
{
    *state = (struct head_scan){ 0 };
    auto_free char *copy = exact_copy(text, len);
    return head_scan(state, copy, len, &limits, fault);
}

/* Returns the bytes consumed, 0, or minus the status of the refusal. */
static long parse(struct parsed *p, const char *text, size_t len)
{
    struct head_scan state;
    *p = (struct parsed){ 0 };
    ssize_t n = scan(text, len, &state, &p->fault);
    if (n > 0) {
        p->text = exact_copy(text, (size_t)n);
        if (head_parse(p->text, p->fields, &p->head, &p->fault) < 0)
            n = -1;
    }
    return n < 0 ? -p->fault.status : n;
}

static void parsed_done(struct parsed *p)
{
    free(p->text);
}

#define BYTES(text) text, sizeof(text) - 1

/*** What is accepted ***/

static const struct good {
    const char *name;
    const char *text;
    size_t len;
    const char *method;
    const char *path;
    const char *query;
    int minor;
    size_t n_fields;
    bool keep_alive;
    bool expect;
    bool chunked;
    uint64_t length;
} good[] = {
    { "plain", BYTES("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "GET", "/", NULL, 1, 1, true },
    { "query", BYTES("GET /a/b?c=d?e HTTP/1.1\r\nHost: a.b:80\r\n\r\n"), "GET", "/a/b", "c=d?e", 1,
      1, true },
    { "empty query", BYTES("GET /? HTTP/1.1\r\nHost: a\r\n\r\n"), "GET", "/", "", 1, 1, true },
    { "one empty line first", BYTES("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), "GET", "/", NULL, 1,
      1, true },
    { "1.0 without host", BYTES("GET / HTTP/1.0\r\n\r\n"), "GET", "/", NULL, 0, 0, false },
    { "1.0 keep-alive", BYTES("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), "GET", "/", NULL,
      0, 1, true },
    { "1.0 ignores expect", BYTES("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n"), "GET", "/",
      NULL, 0, 1, false },
    { "close", BYTES("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n"), "GET", "/",
      NULL, 1, 2, false },
    { "close in the second field",
      BYTES("GET / HTTP/1.1\r\nHost: a\r\nConnection: te\r\nConnection: ,close\r\n\r\n"), "GET",
      "/", NULL, 1, 3, false },
    { "close beats keep-alive", BYTES("GET / HTTP/1.0\r\nConnection: keep-alive\tclose\r\n\r\n"),
      "GET", "/", NULL, 0, 1, false },
    { "closed is not close", BYTES("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n"),
      "GET", "/", NULL, 1, 2, true },
    { "length", BYTES("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n"), "POST", "/",
      NULL, 1, 2, true, false, false, 12 },
    { "largest length",
      BYTES("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n"), "POST",
      "/", NULL, 1, 2, true, false, false, UINT64_MAX },
    { "zeros before the length",
      BYTES("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0000000000000000000000007\r\n\r\n"),
      "POST", "/", NULL, 1, 2, true, false, false, 7 },
    { "chunked", BYTES("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked \r\n\r\n"), "POST",
      "/", NULL, 1, 2, true, false, true },
    { "expect", BYTES("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n"), "PUT", "/",
      NULL, 1, 2, true, true },
    { "asterisk", BYTES("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), "OPTIONS", "*", NULL, 1, 1,
      true },
    { "odd method", BYTES("m!#$%&'*+-.^_`|~1 / HTTP/1.1\r\nHost: a\r\n\r\n"), "m!#$%&'*+-.^_`|~1",
      "/", NULL, 1, 1, true },
    { "IPv6 host", BYTES("GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n"), "GET", "/", NULL, 1, 1,
      true },
    { "IPv6 host without port", BYTES("GET / HTTP/1.1\r\nHost:[fe80::1.2.3.4]\r\n\r\n"), "GET", "/",
      NULL, 1, 1, true },
    { "values with tab, blank, obs-text, or empty",
      BYTES("GET / HTTP/1.1\r\nHost: a\r\nX: \t b\tc d\xff\x80 \t \r\nY:\r\nZ: \r\n\r\n"), "GET",
      "/", NULL, 1, 4, true },
    { "bytes after the head are left alone", BYTES("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "GET", "/",
      NULL, 1, 1, true },
};

static void check_good(const struct good *want, const struct parsed *p)
{
    const struct head *head = &p->head;
    CHECK_STR(want->name, head->method, want->method);
    CHECK_STR(want->name, head->path, want->path);
    CHECK(want->name, !want->query == !head->query);
    if (want->query)
        CHECK_STR(want->name, head->query, want->query);
    CHECK_INT(want->name, head->minor, want->minor);
    CHECK_INT(want->name, head->n_fields, want->n_fields);
    CHECK_INT(want->name, head->keep_alive, want->keep_alive);
    CHECK_INT(want->name, head->expect_continue, want->expect);
    CHECK_INT(want->name, head->chunked, want->chunked);
    CHECK(want->name, head->content_length == want->length);
}

static void test_good_heads_are_cut_into_strings(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct parsed p;
        CHECK_INT(good[i].name, parse(&p, good[i].text, good[i].len), good[i].len);
        check_good(&good[i], &p);
        parsed_done(&p);
    }
}

static void test_what_follows_the_head_is_not_consumed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        char text[1024];
        memcpy(text, good[i].text, good[i].len);
        memcpy(text + good[i].len, "\n\0\rX", 4);
        struct parsed p;
        CHECK_INT(good[i].name, parse(&p, text, good[i].len + 4), good[i].len);
        parsed_done(&p);
    }
}

static void test_every_prefix_needs_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct head_scan resumed = { 0 };
        for (size_t len = 0; len < good[i].len; len++) {
            struct head_scan fresh;
            struct fault fault;
            CHECK_INT(good[i].name, scan(good[i].text, len, &fresh, &fault), 0);
            auto_free char *copy = exact_copy(good[i].text, len);
            CHECK_INT(good[i].name, head_scan(&resumed, copy, len, &limits, &fault), 0);
            CHECK_INT(good[i].name, resumed.pos, fresh.pos);
            CHECK_INT(good[i].name, resumed.lines, fresh.lines);
        }
    }
}

static void test_fields_are_found_in_any_case_and_trimmed(void **state)
{
    (void)state;
    static const char text[] =
        "GET / HTTP/1.1\r\nHost: a\r\nX-A:  one \t\r\nB: \r\nx-a: two\r\n\r\n";
    struct parsed p;
    size_t pos = 0;
    assert_int_equal(parse(&p, text, sizeof(text) - 1), sizeof(text) - 1);
    CHECK_STR("first", head_find(&p.head, "x-A", &pos), "one");
    CHECK_STR("second", head_find(&p.head, "x-A", &pos), "two");
    assert_null(head_find(&p.head, "x-A", &pos));
    pos = 0;
    CHECK_STR("empty", head_find(&p.head, "b", &pos), "");
    CHECK_STR("name as sent", p.head.fields[3].name, "x-a");
    parsed_done(&p);
}

/*** What is refused ***/

/* A whole request around the one thing that is wrong. */
#define LINE(line) line "\r\nHost: a\r\n\r\n"
#define FIELD(field) "POST / HTTP/1.1\r\nHost: a\r\n" field "\r\n\r\n"
#define HOST(host) "GET / HTTP/1.1\r\n" host "\r\n"

static const struct bad {
    const char *name;
    const char *text;
    size_t len;
    int status;
} bad[] = {
    { "two empty lines first", BYTES("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400 },
    { "bare LF first", BYTES("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400 },
    { "bare LF ends the request line", BYTES("GET / HTTP/1.1\nHost: a\r\n\r\n"), 400 },
    { "bare LF everywhere", BYTES("GET / HTTP/1.1\nHost: a\n\n"), 400 },
    { "bare LF ends a field", BYTES("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"), 400 },
    { "bare LF as blank line", BYTES("GET / HTTP/1.1\r\nHost: a\r\n\n"), 400 },
    { "bare CR in the request line", BYTES(LINE("GET /\r HTTP/1.1")), 400 },
    { "bare CR in a value", BYTES(FIELD("X: a\rb")), 400 },
    { "bare CR before CRLF", BYTES(FIELD("X: a\r")), 400 },
    { "CR CR LF", BYTES("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n"), 400 },
    { "NUL in the target", BYTES(LINE("GET /\0 HTTP/1.1")), 400 },
    { "NUL in a value", BYTES(FIELD("X: a\0b")), 400 },
    { "NUL in a name", BYTES(FIELD("X\0: a")), 400 },
    { "vertical tab in a value", BYTES(FIELD("X: a\vb")), 400 },
    { "escape in a value", BYTES(FIELD("X: \x1b[2J")), 400 },
    { "DEL in a value", BYTES(FIELD("X: a\x7f")), 400 },
    { "TLS on a plain port", BYTES("\x16\x03\x01\x02\x00\x01\x00"), 400 },

    { "no method", BYTES(LINE(" / HTTP/1.1")), 400 },
    { "method is no token", BYTES(LINE("GE(T / HTTP/1.1")), 400 },
    { "method with a colon", BYTES(LINE("GET: / HTTP/1.1")), 400 },
    { "method with obs-text", BYTES(LINE("G\xc3\x89T / HTTP/1.1")), 400 },
    { "no target", BYTES(LINE("GET HTTP/1.1")), 400 },
    { "empty target", BYTES(LINE("GET  HTTP/1.1")), 400 },
    { "two blanks after the method", BYTES(LINE("GET  / HTTP/1.1")), 400 },
    { "two blanks before the version", BYTES(LINE("GET /  HTTP/1.1")), 400 },
    { "tab after the method", BYTES(LINE("GET\t/ HTTP/1.1")), 400 },
    { "tab before the version", BYTES(LINE("GET /\tHTTP/1.1")), 400 },
    { "blank first", BYTES(LINE(" GET / HTTP/1.1")), 400 },
    { "blank last", BYTES(LINE("GET / HTTP/1.1 ")), 400 },
    { "blank in the target", BYTES(LINE("GET /a b HTTP/1.1")), 400 },
    { "fragment", BYTES(LINE("GET /a#b HTTP/1.1")), 400 },
    { "obs-text in the target", BYTES(LINE("GET /\xc3\xa9 HTTP/1.1")), 400 },
    { "absolute target", BYTES(LINE("GET http://a/ HTTP/1.1")), 400 },
    { "authority target", BYTES(LINE("CONNECT a:80 HTTP/1.1")), 400 },
    { "relative target", BYTES(LINE("GET a/b HTTP/1.1")), 400 },
    { "asterisk with GET", BYTES(LINE("GET * HTTP/1.1")), 400 },
    { "asterisk and more", BYTES(LINE("OPTIONS *a HTTP/1.1")), 400 },
    { "query alone", BYTES(LINE("GET ?a HTTP/1.1")), 400 },
    { "no version", BYTES(LINE("GET /")), 400 },
    { "empty version", BYTES(LINE("GET / ")), 400 },
    { "HTTP/0.9", BYTES(LINE("GET / HTTP/0.9")), 400 },
    { "HTTP/1.2", BYTES(LINE("GET / HTTP/1.2")), 400 },
    { "HTTP/2.0", BYTES(LINE("GET / HTTP/2.0")), 400 },
    { "HTTP/2 preface", BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 400 },
    { "HTTP/1.10", BYTES(LINE("GET / HTTP/1.10")), 400 },
    { "HTTP/01.1", BYTES(LINE("GET / HTTP/01.1")), 400 },
    { "HTTP/1", BYTES(LINE("GET / HTTP/1")), 400 },
    { "lower case version", BYTES(LINE("GET / http/1.1")), 400 },
    { "no slash in the version", BYTES(LINE("GET / HTTP1.1")), 400 },
    { "other protocol", BYTES(LINE("GET / ICAP/1.1")), 400 },

    { "folded value", BYTES(FIELD("X: a\r\n b")), 400 },
    { "folded with a tab", BYTES(FIELD("X: a\r\n\tb")), 400 },
    { "fold after the request line", BYTES("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400 },
    { "blank before the colon", BYTES(FIELD("X : a")), 400 },
    { "tab before the colon", BYTES(FIELD("X\t: a")), 400 },
    { "no colon", BYTES(FIELD("X")), 400 },
    { "no name", BYTES(FIELD(": a")), 400 },
    { "blank in the name", BYTES(FIELD("X Y: a")), 400 },
    { "bracket in the name", BYTES(FIELD("X[]: a")), 400 },
    { "obs-text in the name", BYTES(FIELD("X\xc3\xa9: a")), 400 },

    { "no host", BYTES("GET / HTTP/1.1\r\n\r\n"), 400 },
    { "two hosts", BYTES(HOST("Host: a\r\nHost: a\r\n")), 400 },
    { "two hosts in 1.0", BYTES("GET / HTTP/1.0\r\nHost: a\r\nhost: a\r\n\r\n"), 400 },
    { "empty host", BYTES(HOST("Host:\r\n")), 400 },
    { "host with a path", BYTES(HOST("Host: a/b\r\n")), 400 },
    { "host with a user", BYTES(HOST("Host: u@a\r\n")), 400 },
    { "host with a list", BYTES(HOST("Host: a, b\r\n")), 400 },
    { "host with a blank", BYTES(HOST("Host: a b\r\n")), 400 },
    { "host with percent", BYTES(HOST("Host: a%00\r\n")), 400 },
    { "host with obs-text", BYTES(HOST("Host: \xc3\xa9\r\n")), 400 },
    { "host is a port", BYTES(HOST("Host: :80\r\n")), 400 },
    { "empty port", BYTES(HOST("Host: a:\r\n")), 400 },
    { "port in letters", BYTES(HOST("Host: a:http\r\n")), 400 },
    { "port too large", BYTES(HOST("Host: a:65536\r\n")), 400 },
    { "port too long", BYTES(HOST("Host: a:0000080\r\n")), 400 },
    { "two ports", BYTES(HOST("Host: a:1:2\r\n")), 400 },
    { "naked IPv6", BYTES(HOST("Host: ::1\r\n")), 400 },
    { "empty brackets", BYTES(HOST("Host: []\r\n")), 400 },
    { "open bracket", BYTES(HOST("Host: [::1\r\n")), 400 },
    { "text after the bracket", BYTES(HOST("Host: [::1]a\r\n")), 400 },
    { "zone in the bracket", BYTES(HOST("Host: [fe80::1%25lo]\r\n")), 400 },

    { "two lengths", BYTES(FIELD("Content-Length: 3\r\nContent-Length: 3")), 400 },
    { "two lengths that differ", BYTES(FIELD("Content-Length: 3\r\ncontent-length: 4")), 400 },
    { "list of lengths", BYTES(FIELD("Content-Length: 3, 3")), 400 },
    { "empty length", BYTES(FIELD("Content-Length:")), 400 },
    { "negative length", BYTES(FIELD("Content-Length: -1")), 400 },
    { "length with a plus", BYTES(FIELD("Content-Length: +1")), 400 },
    { "hexadecimal length", BYTES(FIELD("Content-Length: 0x10")), 400 },
    { "length with a fraction", BYTES(FIELD("Content-Length: 1.0")), 400 },
    { "length with a blank", BYTES(FIELD("Content-Length: 1 0")), 400 },
    { "length of 2^64", BYTES(FIELD("Content-Length: 18446744073709551616")), 400 },
    { "length overflows in the product", BYTES(FIELD("Content-Length: 99999999999999999999")),
      400 },
    { "length in quotes", BYTES(FIELD("Content-Length: \"1\"")), 400 },

    { "length, then coding", BYTES(FIELD("Content-Length: 3\r\nTransfer-Encoding: chunked")), 400 },
    { "coding, then length", BYTES(FIELD("Transfer-Encoding: chunked\r\nContent-Length: 3")), 400 },
    { "two codings", BYTES(FIELD("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked")),
      400 },
    { "chunked, then identity",
      BYTES(FIELD("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity")), 400 },
    { "empty coding", BYTES(FIELD("Transfer-Encoding:")), 400 },
    { "coding in 1.0", BYTES("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400 },
    { "blank before the colon of the coding", BYTES(FIELD("Transfer-Encoding : chunked")), 400 },
    { "vertical tab before chunked", BYTES(FIELD("Transfer-Encoding: \vchunked")), 400 },
    { "folded chunked", BYTES(FIELD("Transfer-Encoding:\r\n chunked")), 400 },
    { "gzip, chunked", BYTES(FIELD("Transfer-Encoding: gzip, chunked")), 501 },
    { "chunked twice in one field", BYTES(FIELD("Transfer-Encoding: chunked, chunked")), 501 },
    { "chunked with a comma", BYTES(FIELD("Transfer-Encoding: chunked,")), 501 },
    { "chunked with a parameter", BYTES(FIELD("Transfer-Encoding: chunked;a=b")), 501 },
    { "chunked in quotes", BYTES(FIELD("Transfer-Encoding: \"chunked\"")), 501 },
    { "xchunked", BYTES(FIELD("Transfer-Encoding: xchunked")), 501 },
    { "identity", BYTES(FIELD("Transfer-Encoding: identity")), 501 },

    { "other expectation", BYTES(FIELD("Expect: 200-ok")), 417 },
    { "two expectations", BYTES(FIELD("Expect: 100-continue\r\nExpect: 100-continue")), 417 },
    { "empty expectation", BYTES(FIELD("Expect:")), 417 },
};

static void test_bad_heads_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct parsed p;
        CHECK_INT(bad[i].name, parse(&p, bad[i].text, bad[i].len), -bad[i].status);
        CHECK(bad[i].name, p.fault.why && *p.fault.why);
        parsed_done(&p);
    }
}

/*** Limits ***/

/* A head of exactly `len` bytes, by a long value. */
static char *head_of(size_t len)
{
    static const char start[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    char *text = xmalloc(len);
    memset(text, 'x', len);
    memcpy(text, start, sizeof(start) - 1);
    memcpy(text + len - 4, "\r\n\r\n", 4);
    return text;
}

static void test_a_head_may_be_as_long_as_the_limit(void **state)
{
    (void)state;
    struct parsed p;
    auto_free char *fits = head_of(limits.bytes);
    assert_int_equal(parse(&p, fits, limits.bytes), limits.bytes);
    parsed_done(&p);
    auto_free char *over = head_of(limits.bytes + 1);
    assert_int_equal(parse(&p, over, limits.bytes + 1), -431);
    parsed_done(&p);
}

static void test_a_head_is_refused_as_soon_as_it_must_be_too_long(void **state)
{
    (void)state;
    struct head_scan scan_state;
    struct fault fault;
    auto_free char *over = head_of(limits.bytes + 1);
    assert_int_equal(scan(over, limits.bytes - 1, &scan_state, &fault), 0);
    assert_int_equal(scan(over, limits.bytes, &scan_state, &fault), -EBADMSG);
    assert_int_equal(fault.status, 431);
}

static long parse_with_fields(size_t n)
{
    auto_buf text = BUF_INIT(limits.bytes);
    assert_int_equal(buf_add_str(&text, "GET / HTTP/1.1\r\nHost: a\r\n"), 0);
    for (size_t i = 1; i < n; i++)
        assert_int_equal(buf_add_str(&text, "X: y\r\n"), 0);
    assert_int_equal(buf_add_str(&text, "\r\n"), 0);
    struct parsed p;
    long r = parse(&p, text.data, text.len);
    if (r > 0)
        assert_int_equal(p.head.n_fields, n);
    parsed_done(&p);
    return r;
}

static void test_there_may_be_as_many_fields_as_the_limit(void **state)
{
    (void)state;
    assert_true(parse_with_fields(FIELDS_MAX) > 0);
    assert_int_equal(parse_with_fields(FIELDS_MAX + 1), -431);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_heads_are_cut_into_strings),
        cmocka_unit_test(test_what_follows_the_head_is_not_consumed),
        cmocka_unit_test(test_every_prefix_needs_more),
        cmocka_unit_test(test_fields_are_found_in_any_case_and_trimmed),
        cmocka_unit_test(test_bad_heads_are_refused),
        cmocka_unit_test(test_a_head_may_be_as_long_as_the_limit),
        cmocka_unit_test(test_a_head_is_refused_as_soon_as_it_must_be_too_long),
        cmocka_unit_test(test_there_may_be_as_many_fields_as_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
