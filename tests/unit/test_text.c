#include "check.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>

static void test_utf8_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        size_t valid; /* bytes, from the start */
    } cases[] = {
        { "nothing", "", 0 },
        { "ASCII", "plain text, longer than one word", 32 },
        { "two bytes", "\xc3\xa4", 2 },
        { "three bytes", "\xe2\x82\xac", 3 },
        { "four bytes", "\xf0\x9f\x94\x94", 4 },
        { "first and last of two", "\xc2\x80\xdf\xbf", 4 },
        { "first and last of three", "\xe0\xa0\x80\xef\xbf\xbf", 6 },
        { "first and last of four", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8 },
        { "around the surrogates", "\xed\x9f\xbf\xee\x80\x80", 6 },
        { "lone continuation", "a\x80", 1 },
        { "overlong slash", "\xc0\xaf", 0 },
        { "overlong of two", "\xc1\xbf", 0 },
        { "overlong of three", "\xe0\x9f\xbf", 0 },
        { "overlong of four", "\xf0\x8f\xbf\xbf", 0 },
        { "surrogate", "\xed\xa0\x80", 0 },
        { "over U+10FFFF", "\xf4\x90\x80\x80", 0 },
        { "five byte form", "\xf8\x88\x80\x80\x80", 0 },
        { "0xff", "abcdefgh\xff", 8 },
        { "cut after one of two", "a\xc3", 1 },
        { "cut after two of three", "a\xe2\x82", 1 },
        { "cut after three of four", "a\xf0\x9f\x94", 1 },
        { "bad third byte", "\xe2\x82x", 0 },
        { "bad fourth byte", "\xf0\x9f\x94x", 0 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t len = strlen(cases[i].text);
        CHECK_INT(cases[i].name, utf8_span(cases[i].text, len), cases[i].valid);
        CHECK_INT(cases[i].name, utf8_valid(cases[i].text, len), cases[i].valid == len);
    }
}

static void test_a_character_has_its_code_point(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t point;
        size_t len;
    } cases[] = {
        { "A", 'A', 1 },
        { "\xc3\xa4", 0xe4, 2 },
        { "\xe2\x82\xac", 0x20ac, 3 },
        { "\xf0\x9f\x94\x94", 0x1f514, 4 },
        { "\xf4\x8f\xbf\xbf", 0x10ffff, 4 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t point = 0;
        CHECK_INT(cases[i].text, utf8_char(cases[i].text, cases[i].len, &point), cases[i].len);
        CHECK_INT(cases[i].text, point, cases[i].point);
        CHECK_INT(cases[i].text, utf8_char(cases[i].text, cases[i].len - 1, NULL), 0);
    }
}

static void test_cleaning_replaces_each_bad_byte(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "", "" },
        { "good \xc3\xa4", "good \xc3\xa4" },
        { "\xff", "\xef\xbf\xbd" },
        { "a\xff\xfe"
          "b",
          "a\xef\xbf\xbd\xef\xbf\xbd"
          "b" },
        { "cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_buf buf = BUF_INIT(100);
        CHECK_INT(cases[i].want, utf8_add_clean(&buf, cases[i].text, strlen(cases[i].text)), 0);
        CHECK_STR(cases[i].want, buf_str(&buf), cases[i].want);
    }
    auto_buf small = BUF_INIT(4);
    assert_int_equal(buf_add_char(&small, 'x'), 0);
    assert_int_equal(utf8_add_clean(&small, "ab\xff", 3), -EMSGSIZE);
    assert_string_equal(buf_str(&small), "x");
}

static void test_a_quoted_text_is_visible_and_short(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t max;
        const char *want;
    } cases[] = {
        { "", 10, "\"\"" },
        { "plain", 5, "\"plain\"" },
        { "plain", 4, "\"plai...\"" },
        { "a\"b\\c", 10, "\"a\\\"b\\\\c\"" },
        { "\x1b[0m\n\t\x7f", 20, "\"\\u001b[0m\\n\\t\\u007f\"" },
        { "\xff\xc2\x9b\xe2\x80\xae", 20, "\"\\xff\\u009b\\u202e\"" },
        { "\xc3\xa4\xc3\xa4", 1, "\"\xc3\xa4...\"" }, /* never half a character */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *quoted = text_quote(cases[i].text, cases[i].max);
        CHECK_STR(cases[i].want, quoted, cases[i].want);
    }
}

static void test_a_mistyped_word_finds_the_nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = { "serve",         "config",          "version",
                                         "http_max_body", "http_max_header", "http_max_headers" };
    static const struct {
        const char *word, *want;
    } cases[] = {
        { "serve", "serve" },
        { "sevre", "serve" },  /* swapped */
        { "serv", "serve" },   /* left out */
        { "serrve", "serve" }, /* added */
        { "berve", "serve" },  /* changed */
        { "confg", "config" },
        { "http_max_boddy", "http_max_body" },
        { "httpmaxbody", "http_max_body" },
        { "http_max_headerz", "http_max_header" },
        { "x", NULL },
        { "", NULL },
        { "unrelated", NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *nearest = text_nearest(cases[i].word, names, ARRAY_SIZE(names));
        if (!cases[i].want)
            CHECK(cases[i].word, nearest == NULL);
        else
            CHECK_STR(cases[i].word, nearest, cases[i].want);
    }
    char longest[65], too_long[66];
    memset(longest, 'x', 64);
    longest[64] = '\0';
    memset(too_long, 'x', 65);
    too_long[65] = '\0';
    const char *const long_names[] = { too_long, longest };
    assert_ptr_equal(text_nearest(longest, long_names, 2), longest);
    assert_null(text_nearest(too_long, long_names, 2));
}

static void test_base64_goes_there_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *plain, *coded;
    } cases[] = {
        /* RFC 4648, section 10 */
        { "", "" },
        { "f", "Zg==" },
        { "fo", "Zm8=" },
        { "foo", "Zm9v" },
        { "foob", "Zm9vYg==" },
        { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" },
        { "\xfb\xff\xfe", "+//+" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *coded = base64_encode(cases[i].plain, strlen(cases[i].plain));
        CHECK_STR(cases[i].coded, coded, cases[i].coded);
        auto_buf plain = BUF_INIT(100);
        CHECK_INT(coded, base64_decode(coded, strlen(coded), &plain), 0);
        CHECK_STR(coded, buf_str(&plain), cases[i].plain);
    }
}

static void test_base64_of_every_byte_survives(void **state)
{
    (void)state;
    unsigned char bytes[256];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)i;
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        auto_buf coded = BUF_INIT(400), plain = BUF_INIT(sizeof(bytes));
        assert_int_equal(base64_add(&coded, bytes, len), 0);
        assert_int_equal(base64_decode(buf_str(&coded), coded.len, &plain), 0);
        assert_int_equal(plain.len, len);
        assert_memory_equal(buf_str(&plain), bytes, len);
    }
}

static void test_base64_that_is_not_canonical_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "Z",
        "Zg",
        "Zg=",
        "Zm8",
        "Zg==Zg==",
        "Z===",
        "====",
        "=Zg=",
        "Zg=a",
        "Zh==",
        "Zm9=",
        "Zm9v\n",
        "Zm 9",
        "Zm-9",
        "Zm_9",
        "Zm9v====",
        "\xc3\xa4\xc3\xa4",
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_buf buf = BUF_INIT(100);
        (void)buf_add_str(&buf, "kept");
        CHECK_INT(cases[i], base64_decode(cases[i], strlen(cases[i]), &buf), -EINVAL);
        CHECK_STR(cases[i], buf_str(&buf), "kept");
    }
}

static void test_base64_respects_the_ceiling(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(3);
    assert_int_equal(base64_add(&buf, "x", 1), -EMSGSIZE);
    assert_int_equal(base64_decode("Zm9vYg==", 8, &buf), -EMSGSIZE);
    assert_int_equal(base64_decode("Zm9v", 4, &buf), 0);
    assert_string_equal(buf_str(&buf), "foo");
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void test_random_ids_are_safe_in_urls_and_never_repeat(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    char(*ids)[RANDOM_ID_SIZE] = xcalloc(COUNT, sizeof(*ids));
    for (size_t i = 0; i < COUNT; i++) {
        random_id(ids[i]);
        assert_int_equal(strlen(ids[i]), RANDOM_ID_LEN);
        assert_int_equal(strspn(ids[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                        "0123456789-_"),
                         RANDOM_ID_LEN);
    }
    qsort(ids, COUNT, sizeof(*ids), compare_ids);
    for (size_t i = 1; i < COUNT; i++)
        assert_string_not_equal(ids[i - 1], ids[i]);
    free(ids);
}

static void test_every_place_of_a_random_id_varies(void **state)
{
    (void)state;
    uint64_t seen[RANDOM_ID_LEN] = { 0 }; /* by the character's low six bits: 64 if all occur */
    for (int i = 0; i < 4000; i++) {
        char id[RANDOM_ID_SIZE];
        random_id(id);
        for (size_t at = 0; at < RANDOM_ID_LEN; at++)
            seen[at] |= UINT64_C(1) << (id[at] & 63);
    }
    /* characters that share their low bits count once; 32 of them or more are left of 64 */
    for (size_t at = 0; at < RANDOM_ID_LEN; at++)
        assert_true(__builtin_popcountll(seen[at]) >= 32);
}

static void test_secrets_compare_whole(void **state)
{
    (void)state;
    assert_true(secret_eq("", ""));
    assert_true(secret_eq("abc", "abc"));
    assert_false(secret_eq("abc", "abd"));
    assert_false(secret_eq("abc", "Abc"));
    assert_false(secret_eq("abc", "ab"));
    assert_false(secret_eq("", "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_is_strict),
        cmocka_unit_test(test_a_character_has_its_code_point),
        cmocka_unit_test(test_cleaning_replaces_each_bad_byte),
        cmocka_unit_test(test_a_quoted_text_is_visible_and_short),
        cmocka_unit_test(test_a_mistyped_word_finds_the_nearest_name),
        cmocka_unit_test(test_base64_goes_there_and_back),
        cmocka_unit_test(test_base64_of_every_byte_survives),
        cmocka_unit_test(test_base64_that_is_not_canonical_is_refused),
        cmocka_unit_test(test_base64_respects_the_ceiling),
        cmocka_unit_test(test_random_ids_are_safe_in_urls_and_never_repeat),
        cmocka_unit_test(test_every_place_of_a_random_id_varies),
        cmocka_unit_test(test_secrets_compare_whole),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
