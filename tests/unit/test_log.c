#include "check.h"

#include "base/json.h"
#include "base/log.h"

#include <regex.h>
#include <stdlib.h>
#include <unistd.h>

/* What one call writes, with its newline. The pipe holds more than a line, so nothing blocks. */
static char *logged(enum log_format format, enum log_level level, const char *text)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    log_init(ends[1], format, LOG_INFO);
    log_line(level, "%s", text);
    close(ends[1]);
    char *line = xcalloc(1, 2 * LOG_LINE_MAX);
    ssize_t len = read(ends[0], line, 2 * LOG_LINE_MAX - 1);
    close(ends[0]);
    assert_true(len >= 0);
    log_init(STDERR_FILENO, LOG_TEXT, LOG_INFO);
    return line;
}

static void check_matches(const char *line, const char *pattern)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, line, 0, NULL, 0) != 0)
        fail_msg("expected %s, got %s", pattern, line);
    regfree(&regex);
}

static void test_a_line_has_time_level_and_message(void **state)
{
    (void)state;
    auto_free char *text = logged(LOG_TEXT, LOG_WARNING, "ignoring x");
    check_matches(text, "^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
                        "warning ignoring x\n$");
    auto_free char *json = logged(LOG_JSON, LOG_ERROR, "gave up");
    check_matches(json,
                  "^\\{\"ts\":\"20[^\"]{18,22}Z\",\"level\":\"error\",\"msg\":\"gave up\"\\}\n$");
}

static void test_lines_below_the_level_are_not_written(void **state)
{
    (void)state;
    auto_free char *debug = logged(LOG_TEXT, LOG_DEBUG, "x");
    assert_string_equal(debug, "");
    auto_free char *info = logged(LOG_TEXT, LOG_INFO, "x");
    assert_string_not_equal(info, "");
    log_init(STDERR_FILENO, LOG_TEXT, LOG_ERROR);
    assert_true(log_wants(LOG_ERROR));
    assert_false(log_wants(LOG_WARNING));
}

static void test_hostile_text_is_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *in, *text, *json;
    } cases[] = {
        { "a\nb\tc", "a\\nb\\tc", "a\\nb\\tc" },
        { "\x1b[31m", "\\u001b[31m", "\\u001b[31m" },
        { "\x7f", "\\u007f", "\\u007f" },
        { "\xc2\x9b", "\\u009b", "\\u009b" },
        { "\xe2\x80\xae", "\\u202e", "\\u202e" },
        { "\xe2\x80\xa8", "\\u2028", "\\u2028" },
        { "\xff\xc3", "\\xff\\xc3", "\\ufffd\\ufffd" },
        { "\"\\", "\"\\", "\\\"\\\\" },
        { "\xc3\xa4\xf0\x9f\x94\x94", "\xc3\xa4\xf0\x9f\x94\x94", "\xc3\xa4\xf0\x9f\x94\x94" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *text = logged(LOG_TEXT, LOG_INFO, cases[i].in);
        auto_free char *want = xasprintf(" info %s\n", cases[i].text);
        CHECK_STR(cases[i].text, strstr(text, " info "), want);
        auto_free char *json = logged(LOG_JSON, LOG_INFO, cases[i].in);
        auto_free char *want_json = xasprintf("\"msg\":\"%s\"}\n", cases[i].json);
        CHECK_STR(cases[i].json, strstr(json, "\"msg\""), want_json);
    }
}

static bool is_json(const char *line)
{
    auto_json *json = NULL;
    struct json_limits limits = JSON_LIMITS_DEFAULT;
    return json_read(line, strlen(line), &limits, &json, NULL) == 0;
}

static void check_whole_line(enum log_format format, const char *piece, size_t count)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    while (count--)
        (void)buf_add_str(&text, piece);
    auto_free char *line = logged(format, LOG_INFO, buf_str(&text));
    size_t len = strlen(line);
    CHECK(piece, len <= LOG_LINE_MAX && line[len - 1] == '\n');
    if (format == LOG_JSON)
        CHECK(piece, is_json(line));
}

static void test_a_line_is_whole_at_every_length_around_its_limit(void **state)
{
    (void)state;
    static const struct {
        const char *piece;
        size_t size[2]; /* as written, in text and in JSON */
    } pieces[] = {
        { "x", { 1, 1 } },    { "\n", { 2, 2 } },       { "\xff", { 4, 6 } },
        { "\x1b", { 6, 6 } }, { "\xc3\xa4", { 2, 2 } }, { "\"", { 1, 2 } },
    };
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
            size_t full = LOG_LINE_MAX / pieces[i].size[format];
            size_t head = 80 / pieces[i].size[format]; /* the rest of the line is shorter */
            for (size_t count = full - head; count < full + 8; count++)
                check_whole_line((enum log_format)format, pieces[i].piece, count);
        }
    }
}

static void test_a_cut_line_ends_with_dots(void **state)
{
    (void)state;
    char text[2 * LOG_LINE_MAX];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    auto_free char *line = logged(LOG_TEXT, LOG_INFO, text);
    assert_int_equal(strlen(line), LOG_LINE_MAX);
    assert_string_equal(line + LOG_LINE_MAX - 5, "x...\n");
    auto_free char *json = logged(LOG_JSON, LOG_INFO, text);
    assert_int_equal(strlen(json), LOG_LINE_MAX);
    assert_string_equal(json + LOG_LINE_MAX - 7, "x...\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_has_time_level_and_message),
        cmocka_unit_test(test_lines_below_the_level_are_not_written),
        cmocka_unit_test(test_hostile_text_is_escaped),
        cmocka_unit_test(test_a_line_is_whole_at_every_length_around_its_limit),
        cmocka_unit_test(test_a_cut_line_ends_with_dots),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
