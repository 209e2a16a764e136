/* What a run wrote: head, tail, what is between them, and the whole. */
#include "check.h"

#include "session/internal.h"

struct fixture {
    size_t total;
    struct output output;
    struct gather gather;
};

static void begin(struct fixture *fixture, size_t shown, size_t rest, size_t total_max)
{
    const struct gather_limits limits = { .shown = shown,
                                          .keeps = true,
                                          .rest = rest,
                                          .total = &fixture->total,
                                          .total_max = total_max };
    fixture->total = 0;
    output_init(&fixture->output, /* max_bytes= */ 1000, /* tidies= */ false);
    gather_init(&fixture->gather, &fixture->output, &limits);
}

static void add(struct fixture *fixture, enum link_stream stream, const char *text)
{
    gather_add(&fixture->gather, stream, text, strlen(text));
}

static void check_shown(struct fixture *fixture, const char *want)
{
    auto_buf got = BUF_INIT(BUF_NO_CEILING);
    gather_finish(&fixture->gather);
    gather_finish(&fixture->gather); /* no harm */
    for (size_t i = 0; i < fixture->output.count; i++)
        (void)buf_printf(&got, "%c%s", fixture->output.pieces[i].stream == LINK_STDOUT ? '1' : '2',
                         buf_str(&fixture->output.pieces[i].text));
    CHECK_STR("shown", buf_str(&got), want);
    gather_done(&fixture->gather);
    output_done(&fixture->output);
    CHECK_INT("all is given back", fixture->total, 0);
}

static void check_whole(struct fixture *fixture, enum link_stream stream, const char *want,
                        bool whole)
{
    auto_buf got = BUF_INIT(BUF_NO_CEILING);
    CHECK_INT("whole", gather_whole(&fixture->gather, stream, &got), whole);
    CHECK_STR("whole", buf_str(&got), want);
}

static void test_short_output_is_shown_as_it_came(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 100, 1000);
    add(&fixture, LINK_STDOUT, "a");
    add(&fixture, LINK_STDERR, "b");
    add(&fixture, LINK_STDOUT, "c");
    check_whole(&fixture, LINK_STDOUT, "ac", true);
    check_whole(&fixture, LINK_STDERR, "b", true);
    check_shown(&fixture, "1a2b1c");
}

static void test_output_at_the_limit_is_not_cut(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 100, 1000);
    add(&fixture, LINK_STDOUT, "01234567");
    check_shown(&fixture, "101234567");
    CHECK("not cut", !fixture.gather.cut && !fixture.output.truncated);
}

static void test_what_is_cut_out_is_in_the_whole(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 100, 1000);
    add(&fixture, LINK_STDOUT, "012345");
    add(&fixture, LINK_STDOUT, "6789");
    check_whole(&fixture, LINK_STDOUT, "0123456789", true);
    check_shown(&fixture, "10123\n[… 2 bytes left out …]\n6789");
}

static void test_a_gap_of_the_agent_is_in_both(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 100, 1000);
    add(&fixture, LINK_STDOUT, "0123456789");
    gather_add_gap(&fixture.gather, LINK_STDOUT, 50);
    add(&fixture, LINK_STDOUT, "abcdef");
    check_whole(&fixture, LINK_STDOUT, "0123456789\n[… 50 bytes left out …]\nabcdef", false);
    check_shown(&fixture, "10123\n[… 58 bytes left out …]\ncdef");
}

static void test_a_tail_never_reaches_over_a_gap(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 100, 1000);
    add(&fixture, LINK_STDOUT, "0123456789");
    gather_add_gap(&fixture.gather, LINK_STDOUT, 50);
    add(&fixture, LINK_STDOUT, "ab");
    check_shown(&fixture, "10123\n[… 56 bytes left out …]\nab");
}

static void test_a_gap_before_the_first_byte_stays_there(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 100, 1000);
    gather_add_gap(&fixture.gather, LINK_STDERR, 7);
    add(&fixture, LINK_STDERR, "x");
    check_shown(&fixture, "2\n[… 7 bytes left out …]\nx");
}

/* Numbers instead of text: what is there must be the beginning and the end. */
static void check_ends(struct fixture *fixture, size_t written)
{
    auto_buf got = BUF_INIT(BUF_NO_CEILING);
    CHECK("not whole", !gather_whole(&fixture->gather, LINK_STDOUT, &got));
    CHECK("head", str_has_prefix(buf_str(&got), "abcd\n[…"));
    CHECK("tail", str_eq(buf_str(&got) + got.len - 4, "wxyz"));
    CHECK("bounded", fixture->total <= 20 + 26);
    auto_free char *want = xasprintf("1abcd\n[… %zu bytes left out …]\nwxyz", written - 8);
    check_shown(fixture, want);
}

static void test_past_the_limit_only_the_tail_is_gathered(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 20, 1000);
    for (int i = 0; i < 10; i++)
        add(&fixture, LINK_STDOUT, "abcdefghijklmnopqrstuvwxyz");
    check_ends(&fixture, 260);
}

static void test_past_the_memory_of_all_only_the_tail_is_gathered(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 8, 1000, 20);
    for (int i = 0; i < 10; i++)
        add(&fixture, LINK_STDOUT, "abcdefghijklmnopqrstuvwxyz");
    check_ends(&fixture, 260);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_output_is_shown_as_it_came),
        cmocka_unit_test(test_output_at_the_limit_is_not_cut),
        cmocka_unit_test(test_what_is_cut_out_is_in_the_whole),
        cmocka_unit_test(test_a_gap_of_the_agent_is_in_both),
        cmocka_unit_test(test_a_tail_never_reaches_over_a_gap),
        cmocka_unit_test(test_a_gap_before_the_first_byte_stays_there),
        cmocka_unit_test(test_past_the_limit_only_the_tail_is_gathered),
        cmocka_unit_test(test_past_the_memory_of_all_only_the_tail_is_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
