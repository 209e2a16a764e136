#include "check.h"

#include "base/json.h"
#include "base/loop.h"

#include <errno.h>
#include <stdlib.h>

static int read_text(const char *text, size_t len, const struct json_limits *limits, json_t **ret,
                     struct err *err)
{
    /* An exact copy on the heap: a read past the end is seen by the sanitizers. */
    auto_free char *copy = xmalloc(len);
    memcpy(copy, text, len);
    return json_read(copy, len, limits, ret, err);
}

static int read_default(const char *text, json_t **ret, struct err *err)
{
    struct json_limits limits = JSON_LIMITS_DEFAULT;
    return read_text(text, strlen(text), &limits, ret, err);
}

static void test_what_is_read_is_written_back_compactly(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "null", "null" },
        { " [ 1 , true , false , null ] ", "[1,true,false,null]" },
        { "{\"b\": 1, \"a\": {\"z\": [], \"y\": {}}}", "{\"b\":1,\"a\":{\"z\":[],\"y\":{}}}" },
        { "0", "0" },
        { "9007199254740993", "9007199254740993" }, /* 2^53 + 1 */
        { "9223372036854775807", "9223372036854775807" },
        { "-9223372036854775808", "-9223372036854775808" },
        { "1.0", "1.0" },
        { "-0.0", "-0.0" },
        { "0.1", "0.1" },
        { "1E2", "100.0" },
        { "1e-7", "1e-7" },
        { "1e300", "1e300" },
        { "\"a/b\"", "\"a/b\"" },
        { "\"\\/ \\\" \\\\ \\b\\f\\n\\r\\t\"", "\"/ \\\" \\\\ \\b\\f\\n\\r\\t\"" },
        { "\"\\u0000\\u001f\\u007f\"", "\"\\u0000\\u001f\\u007f\"" },
        { "\"\\u00e4\\ud83d\\udd14\"", "\"\xc3\xa4\xf0\x9f\x94\x94\"" },
        { "\"\xe2\x80\xa8\"", "\"\xe2\x80\xa8\"" },
        { "\"[{\\\"[{\"", "\"[{\\\"[{\"" }, /* brackets in strings are no nesting */
        { "{\"\": \"\"}", "{\"\":\"\"}" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *json = NULL;
        struct err err = { 0 };
        CHECK_INT(cases[i].in, read_default(cases[i].in, &json, &err), 0);
        auto_free char *text = json_text(json);
        CHECK_STR(cases[i].in, text, cases[i].out);
    }
}

static void test_text_that_is_no_json_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        int want;
        const char *msg; /* how it begins */
    } cases[] = {
        { "", -EBADMSG, "line 1 column 0: unexpected token near end of file" },
        { "  ", -EBADMSG, "line 1 column 2: " },
        { "{\"a\":1", -EBADMSG, "line 1 column 6: '}' expected near end of file" },
        { "[1,\n2,]", -EBADMSG, "line 2 column 3: unexpected token near ']'" },
        { "]", -EBADMSG, "byte 0: ']' closes nothing" },
        { "[}", -EBADMSG, "line 1 column 2: " },
        { "{\"a\":1}}", -EBADMSG, "byte 7: '}' closes nothing" },
        { "1 2", -EBADMSG, "line 1 column 3: end of file expected near '2'" },
        { "{\"a\":1,\"a\":2}", -EBADMSG, "line 1 column 10: duplicate object key near '\"a\"'" },
        { "{\"a\":1,\"\\u0061\":2}", -EBADMSG, "line 1 column 15: duplicate object key" },
        { "{\"a\\u0000\":1}", -EBADMSG, "line 1 column 10: NUL byte in object key" },
        { "\"\\ud800\"", -EBADMSG, "line 1 column 8: invalid Unicode '\\uD800'" },
        { "\"\\ud800\\u0041\"", -EBADMSG, "line 1 column 14: invalid Unicode" },
        { "\"\\udc00\"", -EBADMSG, "line 1 column 8: invalid Unicode" },
        { "\"a\nb\"", -EBADMSG, "line 1 column 2: unexpected newline near '\"a'" },
        { "\"\\x\"", -EBADMSG, "line 1 column 3: invalid escape" },
        { "\"\xff\"", -EBADMSG, "byte 1: not UTF-8" },
        { "\"\xed\xa0\x80\"", -EBADMSG, "byte 1: not UTF-8" },
        { "\xef\xbb\xbf{}", -EBADMSG, "line 1 column 1: " },
        { "NaN", -EBADMSG, "line 1 column 3: invalid token near 'NaN'" },
        { "01", -EBADMSG, "line 1 column 1: invalid token near '0'" },
        { "+1", -EBADMSG, "line 1 column 1: invalid token near '+'" },
        { "1.", -EBADMSG, "line 1 column 2: invalid token near '1.'" },
        { "'a'", -EBADMSG, "line 1 column 1: invalid token near '''" },
        { "{a:1}", -EBADMSG, "line 1 column 2: string or '}' expected near 'a'" },
        { "[\x01]", -EBADMSG, "line 1 column 2: invalid token near ' '" },
        { "[1] // x", -EBADMSG, "line 1 column 5: end of file expected near '/'" },
        { "9223372036854775808", -E2BIG, "line 1 column 19: a number is out of range" },
        { "-9223372036854775809", -E2BIG, "line 1 column 20: a number is out of range" },
        { "1e999", -E2BIG, "line 1 column 5: a number is out of range" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *json = NULL;
        struct err err = { 0 };
        CHECK_INT(cases[i].in, read_default(cases[i].in, &json, &err), cases[i].want);
        if (!str_has_prefix(err.msg, cases[i].msg))
            fail_msg("%s: expected \"%s\", got \"%s\"", cases[i].in, cases[i].msg, err.msg);
        assert_null(json);
    }
}

static void test_a_nul_byte_is_refused_wherever_it_is(void **state)
{
    (void)state;
    static const char text[] = "{\"key\": [1, \"text\"]}";
    struct json_limits limits = JSON_LIMITS_DEFAULT;
    for (size_t at = 0; at < strlen(text); at++) {
        char with[sizeof(text)];
        memcpy(with, text, sizeof(text));
        with[at] = '\0';
        json_t *json = NULL;
        struct err err = { 0 };
        assert_int_equal(read_text(with, strlen(text), &limits, &json, &err), -EBADMSG);
        assert_non_null(strstr(err.msg, "a NUL byte"));
    }
}

static void test_every_prefix_is_refused_and_every_limit_is_safe(void **state)
{
    (void)state;
    static const char *const samples[] = {
        "{\"a\": [1, -2.5e+10, \"x\\\"\\u00e4\\\\\", {\"b\": null}], \"c\": true}",
        "[[[[\"\\\"]\", {}], []], false], \"\xc3\xa4\xf0\x9f\x94\x94\"]",
        "\"only \\\\ a \\\" string\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
        size_t whole = strlen(samples[i]);
        for (size_t len = 0; len <= whole; len++) {
            for (size_t limit = 0; limit <= 12; limit++) {
                struct json_limits limits = { limit ? limit : 128, 100, limit ? limit : 100 };
                auto_json *json = NULL;
                struct err err = { 0 };
                int r = read_text(samples[i], len, &limits, &json, &err);
                if (!limit)
                    CHECK_INT(samples[i], r, len == whole ? 0 : -EBADMSG);
                CHECK(samples[i], r == 0 || (err.code == -r && err.msg[0]));
                CHECK(samples[i], (r == 0) == (json != NULL));
            }
        }
    }
}

static void test_limits_hold_at_their_edge(void **state)
{
    (void)state;
    static const struct {
        const char *name, *in;
        struct json_limits limits;
        int want;
        const char *msg;
    } cases[] = {
        { "depth reached", "[[{}]]", { 3, 9, 99 }, 0, "" },
        { "depth passed",
          "[[{}]]",
          { 2, 9, 99 },
          -E2BIG,
          "byte 2: nested too deeply (the limit is 2)" },
        { "siblings do not nest", "[[],[],[],{}]", { 2, 9, 99 }, 0, "" },
        { "number reached", "[-12.5e+3]", { 9, 8, 99 }, 0, "" },
        { "number passed",
          "[-12.5e+34]",
          { 9, 8, 99 },
          -E2BIG,
          "byte 1: a number is too long (the limit is 8)" },
        { "long strings are no numbers", "\"12345678901234567890\"", { 9, 8, 99 }, 0, "" },
        { "nodes reached", "{\"a\":[1,\"x\",null]}", { 9, 9, 6 }, 0, "" },
        { "nodes passed",
          "{\"a\":[1,\"x\",null]}",
          { 9, 9, 5 },
          -E2BIG,
          "byte 12: too many values and keys (the limit is 5)" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *json = NULL;
        struct err err = { 0 };
        int r = read_text(cases[i].in, strlen(cases[i].in), &cases[i].limits, &json, &err);
        CHECK_INT(cases[i].name, r, cases[i].want);
        CHECK_STR(cases[i].name, err.msg, cases[i].msg);
    }
}

static char *repeat(const char *piece, size_t count)
{
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < count; i++)
        (void)buf_add_str(&buf, piece);
    return buf_steal(&buf);
}

static void test_bombs_are_refused_fast(void **state)
{
    (void)state;
    static const struct {
        const char *piece;
        size_t count;
    } bombs[] = {
        { "[", 100000 },   { "{\"a\":", 100000 }, { "9", 1000000 },        { "[]", 1000000 },
        { "1,", 1000000 }, { "\"a\":", 1000001 }, { "-1e99999", 1000000 }, { "[}", 500001 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(bombs); i++) {
        auto_free char *body = repeat(bombs[i].piece, bombs[i].count);
        auto_free char *text = xasprintf("[%s", body);
        json_t *json = NULL;
        struct err err = { 0 };
        uint64_t start = clock_ms();
        CHECK(bombs[i].piece, read_default(text, &json, &err) < 0);
        CHECK(bombs[i].piece, clock_ms() - start < 5000); /* milliseconds, but for valgrind */
    }
}

static void test_a_real_that_is_whole_stays_a_real(void **state)
{
    (void)state;
    auto_json *json = NULL;
    assert_int_equal(read_default("[1.0, 1e15, 12345678901234567.0]", &json, NULL), 0);
    auto_free char *text = json_text(json);
    assert_string_equal(text, "[1.0,1e15,12345678901234568.0]");
    auto_json *again = NULL;
    assert_int_equal(read_default(text, &again, NULL), 0);
    assert_true(json_equal(json, again));
}

static void test_writing_stops_at_the_ceiling_and_leaves_what_was_there(void **state)
{
    (void)state;
    auto_json *json =
        json_literal("{\"a\": [1, 2.5, \"x\\ny\", {}, []], \"b\": null, \"c\": [true]}");
    auto_free char *whole = json_text(json);
    for (size_t max = 4; max <= strlen(whole) + 4; max++) {
        auto_buf buf = BUF_INIT(max);
        assert_int_equal(buf_add_str(&buf, "kept"), 0);
        int r = json_write(&buf, json);
        if (max < strlen(whole) + 4) {
            assert_int_equal(r, -EMSGSIZE);
            assert_string_equal(buf_str(&buf), "kept");
        } else {
            assert_int_equal(r, 0);
            assert_string_equal(buf_str(&buf) + 4, whole);
        }
    }
}

static void test_writing_refuses_bottomless_values(void **state)
{
    (void)state;
    auto_json *json = json_array();
    for (int i = 0; i < 5000; i++) {
        json_t *outer = json_array();
        json_push(outer, steal_ptr(&json));
        json = outer;
    }
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    assert_int_equal(json_write(&buf, json), -EMSGSIZE);
    assert_int_equal(buf.len, 0);
}

static void test_any_bytes_make_a_string_value(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *want;
    } cases[] = {
        { "", 0, "\"\"" },
        { "a\0b", 3, "\"a\\u0000b\"" },
        { "a\xff", 2, "\"a\xef\xbf\xbd\"" },
        { "\x1b[0m", 4, "\"\\u001b[0m\"" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *value = json_text_value(cases[i].bytes, cases[i].len);
        auto_free char *text = json_text(value);
        CHECK_STR(cases[i].want, text, cases[i].want);
    }
}

static void test_a_member_is_a_string_or_nothing(void **state)
{
    (void)state;
    auto_json *object = json_literal("{\"s\": \"x\", \"n\": 1, \"e\": \"\"}");
    json_put(object, "z", json_stringn("a\0b", 3));
    json_put_str(object, "bad", "\xff");
    assert_string_equal(json_str(object, "s"), "x");
    assert_string_equal(json_str(object, "e"), "");
    assert_string_equal(json_str(object, "bad"), "\xef\xbf\xbd");
    assert_null(json_str(object, "n"));
    assert_null(json_str(object, "z"));
    assert_null(json_str(object, "none"));
    assert_null(json_str(NULL, "s"));
}

static void test_members_keep_the_order_they_were_put_in(void **state)
{
    (void)state;
    auto_json *object = json_object();
    json_put(object, "z", json_integer(1));
    json_put(object, "a", json_array());
    json_push(json_object_get(object, "a"), json_true());
    json_put_str(object, "m", "x");
    json_put(object, "z", json_integer(2));
    auto_free char *text = json_text(object);
    assert_string_equal(text, "{\"z\":2,\"a\":[true],\"m\":\"x\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read_is_written_back_compactly),
        cmocka_unit_test(test_text_that_is_no_json_is_refused_with_its_place),
        cmocka_unit_test(test_a_nul_byte_is_refused_wherever_it_is),
        cmocka_unit_test(test_every_prefix_is_refused_and_every_limit_is_safe),
        cmocka_unit_test(test_limits_hold_at_their_edge),
        cmocka_unit_test(test_bombs_are_refused_fast),
        cmocka_unit_test(test_a_real_that_is_whole_stays_a_real),
        cmocka_unit_test(test_writing_stops_at_the_ceiling_and_leaves_what_was_there),
        cmocka_unit_test(test_writing_refuses_bottomless_values),
        cmocka_unit_test(test_any_bytes_make_a_string_value),
        cmocka_unit_test(test_a_member_is_a_string_or_nothing),
        cmocka_unit_test(test_members_keep_the_order_they_were_put_in),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
