#include "check.h"

#include "base/num.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>

typedef int parse_fn(const char *text, int64_t min, int64_t max, int64_t *ret);

struct int_case {
    const char *text;
    int64_t min, max;
    int want;
    int64_t value;
};

static void check_ints(parse_fn *parse, const struct int_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct int_case *c = &cases[i];
        int64_t value = -12345;
        CHECK_INT(c->text, parse(c->text, c->min, c->max, &value), c->want);
        CHECK_INT(c->text, value, c->want == 0 ? c->value : -12345); /* written on success only */
    }
}

static void test_int_takes_whole_decimal_text_only(void **state)
{
    (void)state;
    static const struct int_case cases[] = {
        { "0", 0, 9, 0, 0 },
        { "007", 0, 9, 0, 7 },
        { "-1", -1, 1, 0, -1 },
        { "-0", 0, 0, 0, 0 },
        { "9223372036854775807", 0, INT64_MAX, 0, INT64_MAX },
        { "-9223372036854775808", INT64_MIN, 0, 0, INT64_MIN },
        { "9223372036854775808", INT64_MIN, INT64_MAX, -ERANGE, 0 },
        { "-9223372036854775809", INT64_MIN, INT64_MAX, -ERANGE, 0 },
        { "18446744073709551616", INT64_MIN, INT64_MAX, -ERANGE, 0 },
        { "99999999999999999999999999", INT64_MIN, INT64_MAX, -ERANGE, 0 },
        { "5", 5, 5, 0, 5 },
        { "4", 5, 9, -ERANGE, 0 },
        { "10", 5, 9, -ERANGE, 0 },
        { "", 0, 9, -EINVAL, 0 },
        { "-", 0, 9, -EINVAL, 0 },
        { "+1", 0, 9, -EINVAL, 0 },
        { "--1", -9, 9, -EINVAL, 0 },
        { " 1", 0, 9, -EINVAL, 0 },
        { "1 ", 0, 9, -EINVAL, 0 },
        { "1x", 0, 9, -EINVAL, 0 },
        { "0x1", 0, 9, -EINVAL, 0 },
        { "1.0", 0, 9, -EINVAL, 0 },
        { "99999999999999999999999999x", 0, 9, -EINVAL, 0 },
    };
    check_ints(num_parse_int, cases, ARRAY_SIZE(cases));
}

static void test_size_knows_powers_of_1024(void **state)
{
    (void)state;
    static const struct int_case cases[] = {
        { "0", 0, INT64_MAX, 0, 0 },
        { "512", 0, INT64_MAX, 0, 512 },
        { "16k", 0, INT64_MAX, 0, 16384 },
        { "16K", 0, INT64_MAX, 0, 16384 },
        { "1kb", 0, INT64_MAX, 0, 1024 },
        { "1KiB", 0, INT64_MAX, 0, 1024 },
        { "2m", 0, INT64_MAX, 0, 2 << 20 },
        { "2MB", 0, INT64_MAX, 0, 2 << 20 },
        { "1GiB", 0, INT64_MAX, 0, 1 << 30 },
        { "1t", 0, INT64_MAX, 0, INT64_C(1) << 40 },
        { "8388607t", 0, INT64_MAX, 0, INT64_C(8388607) << 40 },
        { "8388608t", 0, INT64_MAX, -ERANGE, 0 },
        { "18446744073709551616", 0, INT64_MAX, -ERANGE, 0 },
        { "1k", 1024, 1024, 0, 1024 },
        { "1k", 1025, 2000, -ERANGE, 0 },
        { "1k", 0, 1023, -ERANGE, 0 },
        { "", 0, 9, -EINVAL, 0 },
        { "k", 0, 9, -EINVAL, 0 },
        { "-1k", 0, 9, -EINVAL, 0 },
        { "1.5k", 0, INT64_MAX, -EINVAL, 0 },
        { "1 k", 0, INT64_MAX, -EINVAL, 0 },
        { "1kk", 0, INT64_MAX, -EINVAL, 0 },
        { "1ki", 0, INT64_MAX, -EINVAL, 0 },
        { "1p", 0, INT64_MAX, -EINVAL, 0 },
    };
    check_ints(num_parse_size, cases, ARRAY_SIZE(cases));
}

static void test_duration_is_exact_and_only_zero_is_zero(void **state)
{
    (void)state;
    static const struct int_case cases[] = {
        { "0", 0, INT64_MAX, 0, 0 },
        { "30", 0, INT64_MAX, 0, 30000 },
        { "0.5", 0, INT64_MAX, 0, 500 },
        { "0.29", 0, INT64_MAX, 0, 290 }, /* in binary a little less */
        { "250ms", 0, INT64_MAX, 0, 250 },
        { "75s", 0, INT64_MAX, 0, 75000 },
        { "1.5m", 0, INT64_MAX, 0, 90000 },
        { "2h", 0, INT64_MAX, 0, 7200000 },
        { "1d", 0, INT64_MAX, 0, 86400000 },
        { "1D", 0, INT64_MAX, 0, 86400000 },
        { "0.0001", 0, INT64_MAX, 0, 1 },
        { "0.5ms", 0, INT64_MAX, 0, 1 },
        { "0.00000000000000000001d", 0, INT64_MAX, 0, 1 },
        { "0.00000000000000000000d", 0, INT64_MAX, 0, 0 },
        { "0.999999999999999999", 0, INT64_MAX, 0, 1000 },
        { "9223372036854775807ms", 0, INT64_MAX, 0, INT64_MAX },
        { "9223372036854775807.5ms", 0, INT64_MAX, -ERANGE, 0 },
        { "9223372036854775808ms", 0, INT64_MAX, -ERANGE, 0 },
        { "9223372036854775807", 0, INT64_MAX, -ERANGE, 0 },
        { "1s", 1000, 1000, 0, 1000 },
        { "1001ms", 0, 1000, -ERANGE, 0 },
        { "999ms", 1000, 2000, -ERANGE, 0 },
        { "", 0, 9, -EINVAL, 0 },
        { "s", 0, 9, -EINVAL, 0 },
        { "-1", 0, 9, -EINVAL, 0 },
        { "1.", 0, 9, -EINVAL, 0 },
        { "1.s", 0, 9, -EINVAL, 0 },
        { ".5", 0, 9, -EINVAL, 0 },
        { "1.5.5", 0, 9, -EINVAL, 0 },
        { "1 s", 0, INT64_MAX, -EINVAL, 0 },
        { "1w", 0, INT64_MAX, -EINVAL, 0 },
        { "1e3", 0, INT64_MAX, -EINVAL, 0 },
    };
    check_ints(num_parse_duration, cases, ARRAY_SIZE(cases));
}

static void test_real_takes_finite_decimal_fractions_only(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double min, max;
        int want;
        double value;
    } cases[] = {
        { "0", 0, 1, 0, 0 },          { "1", 0, 1, 0, 1 },         { "0.5", 0, 1, 0, 0.5 },
        { "-0.25", -1, 1, 0, -0.25 }, { "1.0001", 0, 1, -ERANGE }, { "-0.1", 0, 1, -ERANGE },
        { "", 0, 1, -EINVAL },        { ".5", 0, 1, -EINVAL },     { "1.", 0, 1, -EINVAL },
        { "1e0", 0, 1, -EINVAL },     { "inf", 0, 1, -EINVAL },    { "nan", 0, 1, -EINVAL },
        { "0x1", 0, 1, -EINVAL },     { " 1", 0, 1, -EINVAL },     { "1 ", 0, 1, -EINVAL },
        { "+1", 0, 1, -EINVAL },      { "1,5", 0, 2, -EINVAL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        double value = -7;
        CHECK_INT(cases[i].text, num_parse_real(cases[i].text, cases[i].min, cases[i].max, &value),
                  cases[i].want);
        CHECK(cases[i].text, value == (cases[i].want == 0 ? cases[i].value : -7));
    }
    char huge[402];
    memset(huge, '9', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    double value;
    assert_int_equal(num_parse_real(huge, -DBL_MAX, DBL_MAX, &value), -ERANGE);
}

static void test_bool_takes_the_usual_words_in_any_case(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int want;
        bool value;
    } cases[] = {
        { "true", 0, true },     { "YES", 0, true },    { "On", 0, true },
        { "1", 0, true },        { "false", 0, false }, { "No", 0, false },
        { "OFF", 0, false },     { "0", 0, false },     { "", -EINVAL, 0 },
        { "maybe", -EINVAL, 0 }, { "2", -EINVAL, 0 },   { "true ", -EINVAL, 0 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool value = !cases[i].value;
        CHECK_INT(cases[i].text, num_parse_bool(cases[i].text, &value), cases[i].want);
        if (cases[i].want == 0)
            CHECK_INT(cases[i].text, value, cases[i].value);
    }
}

static void test_a_real_is_written_in_its_shortest_form(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *want;
    } cases[] = {
        { 0, "0" },
        { -0.0, "-0" },
        { 1, "1" },
        { 0.1, "0.1" },
        { 1.0 / 3, "0.3333333333333333" },
        { 0.1 + 0.2, "0.30000000000000004" },
        { 100000, "100000" },
        { 1e15, "1e15" },
        { 1e22, "1e22" },
        { 1e-7, "1e-7" },
        { -1.5e-300, "-1.5e-300" },
        { DBL_MAX, "1.7976931348623157e308" },
        { DBL_MIN, "2.2250738585072014e-308" },
        { 5e-324, "5e-324" },
        { 9007199254740993.0, "9007199254740992" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[NUM_REAL_MAX];
        num_format_real(cases[i].value, text);
        CHECK_STR(cases[i].want, text, cases[i].want);
    }
}

static void test_every_real_reads_back_as_itself(void **state)
{
    (void)state;
    uint64_t bits = UINT64_C(88172645463325252); /* xorshift64: the same numbers every time */
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (value != value || value - value != 0)
            continue; /* not finite */
        char text[NUM_REAL_MAX];
        num_format_real(value, text);
        CHECK(text, strtod(text, NULL) == value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int_takes_whole_decimal_text_only),
        cmocka_unit_test(test_size_knows_powers_of_1024),
        cmocka_unit_test(test_duration_is_exact_and_only_zero_is_zero),
        cmocka_unit_test(test_real_takes_finite_decimal_fractions_only),
        cmocka_unit_test(test_bool_takes_the_usual_words_in_any_case),
        cmocka_unit_test(test_a_real_is_written_in_its_shortest_form),
        cmocka_unit_test(test_every_real_reads_back_as_itself),
    };
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
