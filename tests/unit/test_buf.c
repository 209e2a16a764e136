#include "check.h"

#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>

static void check_invariant(const struct buf *buf)
{
    assert_true(buf->len <= buf->max);
    if (!buf->data) {
        assert_int_equal(buf->len, 0);
        return;
    }
    assert_true(buf->len < buf->cap);
    assert_int_equal(buf->data[buf->len], '\0');
}

static void test_an_empty_buffer_prints_as_nothing(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(8);
    check_invariant(&buf);
    assert_string_equal(buf_str(&buf), "");
    buf_clear(&buf);
    buf_cut(&buf, 0);
    buf_drop(&buf, 0);
    check_invariant(&buf);
}

static void test_appends_join_up(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    assert_int_equal(buf_add(&buf, "ab", 2), 0);
    assert_int_equal(buf_add_str(&buf, "cd"), 0);
    assert_int_equal(buf_add_char(&buf, 'e'), 0);
    assert_int_equal(buf_printf(&buf, "%d%s", 12, "x"), 0);
    check_invariant(&buf);
    assert_string_equal(buf_str(&buf), "abcde12x");
}

static void test_the_ceiling_itself_may_be_reached(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(4);
    assert_int_equal(buf_add(&buf, "abcd", 4), 0);
    assert_int_equal(buf_add(&buf, "", 0), 0);
    check_invariant(&buf);
    assert_string_equal(buf_str(&buf), "abcd");
}

static void test_an_append_past_the_ceiling_changes_nothing(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(4);
    assert_int_equal(buf_add_str(&buf, "abc"), 0);
    assert_int_equal(buf_add(&buf, "de", 2), -EMSGSIZE);
    assert_int_equal(buf_printf(&buf, "%d", 10), -EMSGSIZE);
    assert_null(buf_room(&buf, 2));
    assert_null(buf_room(&buf, SIZE_MAX));
    check_invariant(&buf);
    assert_string_equal(buf_str(&buf), "abc");
    assert_int_equal(buf_add_char(&buf, 'd'), 0);
    assert_string_equal(buf_str(&buf), "abcd");
}

static void test_room_is_filled_in_place(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(1000);
    for (int i = 0; i < 100; i++) {
        char *room = buf_room(&buf, 10);
        assert_non_null(room);
        memset(room, 'a' + i % 26, 10);
        buf_added(&buf, 10);
        check_invariant(&buf);
    }
    assert_int_equal(buf.len, 1000);
    assert_int_equal(buf.data[999], 'a' + 99 % 26);
}

static void test_drop_takes_the_front_and_cut_the_end(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(16);
    assert_int_equal(buf_add_str(&buf, "abcdef"), 0);
    buf_drop(&buf, 2);
    assert_string_equal(buf_str(&buf), "cdef");
    buf_cut(&buf, 3);
    assert_string_equal(buf_str(&buf), "cde");
    buf_drop(&buf, 3);
    check_invariant(&buf);
    assert_string_equal(buf_str(&buf), "");
}

static void test_steal_hands_on_and_keeps_the_ceiling(void **state)
{
    (void)state;
    auto_buf buf = BUF_INIT(3);
    assert_int_equal(buf_add_str(&buf, "abc"), 0);
    auto_free char *text = buf_steal(&buf);
    assert_string_equal(text, "abc");
    check_invariant(&buf);
    auto_free char *nothing = buf_steal(&buf);
    assert_string_equal(nothing, "");
    assert_int_equal(buf_add_str(&buf, "abcd"), -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_buffer_prints_as_nothing),
        cmocka_unit_test(test_appends_join_up),
        cmocka_unit_test(test_the_ceiling_itself_may_be_reached),
        cmocka_unit_test(test_an_append_past_the_ceiling_changes_nothing),
        cmocka_unit_test(test_room_is_filled_in_place),
        cmocka_unit_test(test_drop_takes_the_front_and_cut_the_end),
        cmocka_unit_test(test_steal_hands_on_and_keeps_the_ceiling),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
