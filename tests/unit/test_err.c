#include "check.h"

#include "base/err.h"

#include <errno.h>

static void test_set_returns_the_negative_code_and_keeps_the_words(void **state)
{
    (void)state;
    struct err err = { 0 };
    assert_int_equal(err_set(&err, EINVAL, "port %d is taken", 80), -EINVAL);
    assert_int_equal(err.code, EINVAL);
    assert_string_equal(err.msg, "port 80 is taken");
}

static void test_sys_adds_what_errno_means(void **state)
{
    (void)state;
    struct err err = { 0 };
    assert_int_equal(err_sys(&err, ENOENT, "open %s", "x"), -ENOENT);
    assert_string_equal(err.msg, "open x: No such file or directory");
}

static void test_wrap_puts_context_before(void **state)
{
    (void)state;
    struct err err = { 0 };
    err_set(&err, EPERM, "mount /proc");
    assert_int_equal(err_wrap(&err, "start box %d", 7), -EPERM);
    assert_string_equal(err.msg, "start box 7: mount /proc");
}

static void test_without_an_err_the_result_is_still_an_error(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, EINVAL, "x"), -EINVAL);
    assert_int_equal(err_sys(NULL, ENOENT, "x"), -ENOENT);
    assert_true(err_wrap(NULL, "x") < 0);
}

static void test_a_long_message_is_cut_to_size(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct err err = { 0 };
    err_set(&err, EINVAL, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    err_wrap(&err, "context");
    assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
    assert_true(str_has_prefix(err.msg, "context: xxx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_returns_the_negative_code_and_keeps_the_words),
        cmocka_unit_test(test_sys_adds_what_errno_means),
        cmocka_unit_test(test_wrap_puts_context_before),
        cmocka_unit_test(test_without_an_err_the_result_is_still_an_error),
        cmocka_unit_test(test_a_long_message_is_cut_to_size),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
