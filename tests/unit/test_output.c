/* What a run wrote, as its result tells it: tidied as a terminal would show it, or raw. */
#include "check.h"

#include "session/internal.h"

#include <stdio.h>

enum { MAX = 1 << 20 };

/* "o" and "e" before each piece say of which stream it is. */
static char *shown(struct output *output)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    output_end(output);
    for (size_t i = 0; i < output->count; i++) {
        const struct output_piece *piece = &output->pieces[i];
        (void)buf_add_str(&text, piece->stream == LINK_STDOUT ? "o:" : "e:");
        (void)buf_add(&text, piece->text.data, piece->text.len);
        (void)buf_add_str(&text, "|");
    }
    output_done(output);
    return buf_steal(&text);
}

static char *shown_in_parts(const char *text, size_t len, size_t part, bool tidies)
{
    struct output output;
    output_init(&output, MAX, tidies);
    for (size_t at = 0; at < len; at += part)
        output_add(&output, LINK_STDOUT, text + at, len - at < part ? len - at : part);
    return shown(&output);
}

static const struct {
    const char *name, *in, *out;
} lines[] = {
    { "nothing", "", "" },
    { "plain", "a\nb", "o:a\nb|" },
    { "an empty line", "\n\n", "o:\n\n|" },
    { "colours", "\x1b[1;31mred\x1b[0m \x1b[38;5;12mblue\x1b[m", "o:red blue|" },
    { "a cursor that moves", "a\x1b[2A\x1b[10;20Hb\x1b[?25l", "o:ab|" },
    { "intermediate bytes", "a\x1b[1 qb\x1b(Bc\x1b#8d", "o:abcd|" },
    { "two characters",
      "a\x1b"
      "7b\x1b"
      "8c\x1b=d\x1b"
      "Me",
      "o:abcde|" },
    { "a title, ended by a bell", "\x1b]0;title\x07text", "o:text|" },
    { "a title, ended by ST", "\x1b]0;title\x1b\\text", "o:text|" },
    { "a link", "\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\.", "o:here.|" },
    { "a string that ends with its line", "\x1b]0;no end\nnext", "o:\nnext|" },
    { "DCS, APC, PM, SOS", "a\x1bPq\x1b\\b\x1b_x\x1b\\c\x1b^y\x1b\\d\x1bXz\x1b\\e", "o:abcde|" },
    { "an escape within a sequence", "a\x1b[3\x1b[1mb", "o:ab|" },
    { "a newline within a sequence", "a\x1b[3\nb", "o:a\nb|" },
    { "UTF-8 within a sequence",
      "a\x1b[3\xc3\xa4"
      "b",
      "o:a\xc3\xa4"
      "b|" },
    { "an escape at the end", "a\x1b", "o:a|" },
    { "half a sequence at the end", "a\x1b[12;", "o:a|" },
    { "a bell",
      "a\x07"
      "b",
      "o:ab|" },
    { "CR LF", "one\r\ntwo\r\n", "o:one\ntwo\n|" },
    { "CR CR LF", "one\r\r\ntwo", "o:one\ntwo|" },
    { "CR at the end", "50%\r", "o:50%|" },
    { "a progress bar", "\r  0%|  |\r 50%|# |\r100%|##|\ndone\n", "o:100%|##|\ndone\n|" },
    { "a bar that gets shorter", "\rworking\rok     \nnext", "o:ok\nnext|" },
    { "a bar that is cleared", "\r100%\r    \rdone\n", "o:done\n|" },
    { "a bar that is cleared at the end", "a\n\r100%\r    \r", "o:a\n|" },
    { "spaces of a line that was not rewritten", "a  \nb  ", "o:a  \nb  |" },
    { "erasing the line", "abc\x1b[2Kd\n", "o:d\n|" },
    { "erasing to the end after a return", "abc\r\x1b[K\nd", "o:\nd|" },
    { "erasing to the end elsewhere", "abc\x1b[Kd", "o:abcd|" },
    { "erasing to the beginning", "abc\x1b[1Kd", "o:abcd|" },
    { "a spinner", "wait |\b/\b-\b\\\b done\n", "o:wait  done\n|" },
    { "a backspace at the end", "abc\b\b", "o:abc|" },
    { "too many backspaces", "a\nb\b\b\b\bc", "o:a\nc|" },
    { "a backspace over UTF-8", "a\xe2\x82\xac\b!", "o:a!|" },
    { "overstruck as in manuals", "N\bNA\bAM\bM", "o:NAM|" },
    { "return, then backspace", "ab\r\bc", "o:c|" },
    { "tabs and other control characters", "a\tb\vc\fd\x01", "o:a\tb\vc\fd\x01|" },
    { "no UTF-8", "\xff\xfe\x80", "o:\xff\xfe\x80|" },
};

static void test_lines_are_shown_as_a_terminal_would_in_the_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        auto_free char *got = shown_in_parts(lines[i].in, strlen(lines[i].in), MAX, true);
        CHECK_STR(lines[i].name, got, lines[i].out);
    }
}

static void test_where_chunks_end_does_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        for (size_t part = 1; part < 8; part++) {
            auto_free char *got = shown_in_parts(lines[i].in, strlen(lines[i].in), part, true);
            CHECK_STR(lines[i].name, got, lines[i].out);
        }
    }
}

static void test_raw_output_is_not_touched(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        auto_free char *want = lines[i].in[0] ? xasprintf("o:%s|", lines[i].in) : xstrdup("");
        auto_free char *got = shown_in_parts(lines[i].in, strlen(lines[i].in), 3, false);
        CHECK_STR(lines[i].name, got, want);
    }
}

static void test_a_line_goes_on_after_the_other_stream_has_written(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *in[8]; /* the first character is the stream */
        const char *out;
    } cases[] = {
        { "order is kept", { "oa", "eb", "oc" }, "o:a|e:b|o:c|" },
        { "a bar on stderr between lines on stdout",
          { "e\r10%", "oone\n", "e\r20%", "otwo\n", "e\r30%", "e\n" },
          "o:one\ntwo\n|e:30%\n|" },
        { "backspaces reach into earlier pieces", { "oab", "ex", "o\b\bz" }, "e:x|o:z|" },
        { "a return reaches back to the line's beginning",
          { "ofirst\nab", "ex\n", "ocd", "ey\n", "o\rz" },
          "o:first\n|e:x\ny\n|o:z|" },
        { "a sequence goes on in the next chunk of its stream",
          { "oa\x1b[3", "e4m", "o1mb" },
          "o:a|e:4m|o:b|" },
        { "padding in two pieces",
          { "o\rabc", "ex", "o\rz ", "ey", "o  \n" },
          "e:x|o:z|e:y|o:\n|" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct output output;
        output_init(&output, MAX, true);
        for (const char *const *in = cases[i].in; *in; in++)
            output_add(&output, **in == 'o' ? LINK_STDOUT : LINK_STDERR, *in + 1, strlen(*in + 1));
        auto_free char *got = shown(&output);
        CHECK_STR(cases[i].name, got, cases[i].out);
    }
}

static void test_a_gap_begins_a_line_that_cannot_be_taken_back(void **state)
{
    (void)state;
    struct output output;
    output_init(&output, MAX, true);
    output_add(&output, LINK_STDOUT, "abc\x1b[", 5);
    output_add_gap(&output, LINK_STDOUT, 7);
    output_add(&output, LINK_STDOUT, "\r\b\bm", 4);
    assert_true(output.truncated);
    auto_free char *got = shown(&output);
    assert_string_equal(got, "o:abc\n[… 7 bytes left out …]\nm|");
}

static void test_a_sequence_without_an_end_hides_a_bounded_part(void **state)
{
    (void)state;
    static const char *const begins[] = { "\x1b[", "\x1b]", "\x1bP", "\x1b(" };
    for (size_t i = 0; i < ARRAY_SIZE(begins); i++) {
        struct output output;
        output_init(&output, MAX, true);
        output_add(&output, LINK_STDOUT, begins[i], 2);
        for (int n = 0; n < 2 * TIDY_SEQUENCE_MAX; n++)
            output_add(&output, LINK_STDOUT, "1", 1);
        output_add(&output, LINK_STDOUT, "seen", 4);
        auto_free char *got = shown(&output);
        assert_non_null(strstr(got, "seen"));
        assert_true(strlen(got) >= TIDY_SEQUENCE_MAX);
    }
}

static void test_what_is_taken_back_makes_room(void **state)
{
    (void)state;
    struct output output;
    output_init(&output, 100, true);
    for (int i = 0; i < 1000; i++)
        output_add(&output, LINK_STDOUT, "\r[########]", 11);
    output_add(&output, LINK_STDOUT, "\nend\n", 5);
    assert_false(output.truncated);
    auto_free char *got = shown(&output);
    assert_string_equal(got, "o:[########]\nend\n|");
}

static void test_more_than_fits_is_cut(void **state)
{
    (void)state;
    for (int tidies = 0; tidies < 2; tidies++) {
        struct output output;
        output_init(&output, 5, tidies);
        output_add(&output, LINK_STDOUT, "abc", 3);
        output_add(&output, LINK_STDERR, "def", 3);
        assert_true(output.truncated);
        auto_free char *got = shown(&output);
        assert_string_equal(got, "o:abc|e:de|");
    }
}

/* Streams that alternate with every byte, each rewriting its line: pieces are bounded, and so is the
 * work. */
static void test_streams_that_alternate_and_rewrite_cost_little(void **state)
{
    (void)state;
    struct output output;
    output_init(&output, MAX, true);
    for (int i = 0; i < 200000; i++) {
        enum link_stream stream = i % 2 ? LINK_STDERR : LINK_STDOUT;
        output_add(&output, stream,
                   i % 8 < 6    ? "x"
                   : i % 8 == 6 ? "\ry"
                                : "\bz",
                   i % 8 < 6 ? 1 : 2);
    }
    assert_true(output.count <= 1000);
    auto_free char *got = shown(&output);
    assert_true(strlen(got) < MAX);
}

/* Any bytes at all: nothing is written where it may not be, which the sanitizers see. */
static void test_random_bytes_are_survived(void **state)
{
    (void)state;
    static const char alphabet[] = "\r\n\b\x1b[]mK2;0 a\x07\xc3\xa4\\P";
    uint32_t seed = 1;
    for (int round = 0; round < 200; round++) {
        struct output output;
        output_init(&output, 500, true);
        for (int i = 0; i < 500; i++) {
            seed = seed * 1664525u + 1013904223u;
            output_add(&output, seed >> 31 ? LINK_STDOUT : LINK_STDERR,
                       alphabet + (seed >> 16) % (sizeof(alphabet) - 1), 1);
            if (seed % 97 == 0)
                output_add_gap(&output, LINK_STDOUT, 1);
        }
        auto_free char *got = shown(&output);
        assert_null(strpbrk(got, "\x1b\r\b"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_shown_as_a_terminal_would_in_the_end),
        cmocka_unit_test(test_where_chunks_end_does_not_matter),
        cmocka_unit_test(test_raw_output_is_not_touched),
        cmocka_unit_test(test_a_line_goes_on_after_the_other_stream_has_written),
        cmocka_unit_test(test_a_gap_begins_a_line_that_cannot_be_taken_back),
        cmocka_unit_test(test_a_sequence_without_an_end_hides_a_bounded_part),
        cmocka_unit_test(test_what_is_taken_back_makes_room),
        cmocka_unit_test(test_more_than_fits_is_cut),
        cmocka_unit_test(test_streams_that_alternate_and_rewrite_cost_little),
        cmocka_unit_test(test_random_bytes_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
