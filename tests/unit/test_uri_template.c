#include "check.h"

#include "base/buf.h"
#include "mcp/uri_template.h"

#include <errno.h>

static void test_templates_that_cannot_be_matched_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *templ, *want; /* NULL: it is fine */
    } cases[] = {
        { "kernel://{session_id}/{+path}", NULL },
        { "test://template/{id}/data", NULL },
        { "a:b", NULL },
        { "a:{x.1}-{y_2}.txt", NULL },
        { "a:%20{x}", NULL },
        { "a:{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}", NULL },
        { "", "URI template : it must begin with a scheme" },
        { "{scheme}:x", "URI template {scheme}:x: it must begin with a scheme" },
        { "1a:x", "URI template 1a:x: it must begin with a scheme" },
        { "a:{x", "URI template a:{x: only {name} and {+name} are known, at a:{x" },
        { "a:{}", "URI template a:{}: only {name} and {+name} are known, at a:{}" },
        { "a:{/x}", "URI template a:{/x}: only {name} and {+name} are known, at a:{/x}" },
        { "a:{x*}", "URI template a:{x*}: only {name} and {+name} are known, at a:{x*}" },
        { "a:{x,y}", "URI template a:{x,y}: only {name} and {+name} are known, at a:{x,y}" },
        { "a:{x}/}", "URI template a:{x}/}: only {name} and {+name} are known, at /}" },
        { "a:b c", "URI template a:b c: a character is not of URIs, at a:b c" },
        { "a:%2{x}", "URI template a:%2{x}: a character is not of URIs, at a:%2{x}" },
        { "a:%C3{x}", "URI template a:%C3{x}: a character is not of URIs, at a:%C3{x}" },
        { "a:%00{x}", "URI template a:%00{x}: a character is not of URIs, at a:%00{x}" },
        { "a:{x}{y}", "URI template a:{x}{y}: two variables touch" },
        { "a:{+x}/{y}", "URI template a:{+x}/{y}: {+name} must be the last variable" },
        { "a:{x}/{x}", "URI template a:{x}/{x}: x occurs twice" },
        { "a:{x}/{y}/{x}", "URI template a:{x}/{y}/{x}: x occurs twice" },
        { "a:{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}",
          "URI template a:{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}: more than 8 variables" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = { 0 };
        CHECK_INT(cases[i].templ, uri_template_check(cases[i].templ, &err),
                  cases[i].want ? -EINVAL : 0);
        if (cases[i].want)
            CHECK_STR(cases[i].templ, err.msg, cases[i].want);
    }
}

static void test_a_uri_is_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *templ, *uri, *want; /* values with '|' between; NULL: no match */
    } cases[] = {
        { "test://template/{id}/data", "test://template/123/data", "123" },
        { "test://template/{id}/data", "test://template//data", NULL },
        { "test://template/{id}/data", "test://template/1/2/data", NULL },
        { "test://template/{id}/data", "test://template/123/data/", NULL },
        { "test://template/{id}/data", "test://template/123/dat", NULL },
        { "test://template/{id}/data", "Test://template/123/data", NULL },
        { "kernel://{s}/{+path}", "kernel://abc/dir/plot.png", "abc|dir/plot.png" },
        { "kernel://{s}/{+path}", "kernel://abc/a?b#c", "abc|a?b#c" },
        { "kernel://{s}/{+path}", "kernel://abc/", NULL },
        { "kernel://{s}/{+path}", "kernel://abc", NULL },
        { "kernel://{s}/{+path}", "kernel:///x", NULL },
        { "a:{x}", "a:b", "b" },
        { "a:{x}", "a:b/c", NULL },
        { "a:{x}", "a:b?c", NULL },
        { "a:{x}", "a:b#c", NULL },
        { "a:{x}", "a:", NULL },
        { "a:b", "a:b", "" },
        { "a:b", "a:bc", NULL },
        { "a:b", "a:", NULL },
        /* the first place for text between variables, the last for text at the end */
        { "a:{x}-{y}", "a:1-2-3", "1|2-3" },
        { "a:{x}-{y}", "a:--2", "-|2" },
        { "a:{x}.txt", "a:b.txt.txt", "b.txt" },
        { "a:{x}-{y}/z", "a:1-2-3/z", "1|2-3" },
        { "a:{x}.{y}/{+z}.png", "a:1.2/3.png/4.png", "1|2|3.png/4" },
        { "a:{x}y/{z}", "a:yyy/1", "yy|1" },
        { "a:{+x}/end", "a:1/end/2/end", "1/end/2" },
        /* values arrive decoded */
        { "a:{x}", "a:b%20c%C3%A4", "b c\xc3\xa4" },
        { "a:{x}", "a:b%2Fc", "b/c" },
        { "a:{x}", "a:%7b%7D", "{}" },
        { "a:{x}", "a:b%00c", NULL },
        { "a:{x}", "a:%ff", NULL },
        { "a:{x}", "a:%C3", NULL },
        { "a:{x}", "a:b%2", NULL },
        { "a:{x}", "a:b%zz", NULL },
        { "a:{x}%41", "a:1%41", "1" },
        { "a:{x}C3/{y}", "a:1%C3/2", NULL }, /* an escape is not cut in two */
        { "a:{x}0{y}", "a:%200z", " |z" },
        { "a:{x}0", "a:%20", NULL },
        { "a:{x}%41", "a:%41%41", "A" },
        /* malformed templates match nothing */
        { "a:{x", "a:b", NULL },
        { "a:}", "a:}", NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct uri_match match;
        int r = uri_template_match(cases[i].templ, cases[i].uri, &match);
        CHECK_INT(cases[i].uri, r, cases[i].want ? 0 : -ENOENT);
        if (r < 0)
            continue;
        auto_buf got = BUF_INIT(BUF_NO_CEILING);
        for (size_t v = 0; v < match.count; v++)
            assert_int_equal(buf_printf(&got, "%s%s", v ? "|" : "", match.values[v]), 0);
        CHECK_STR(cases[i].uri, buf_str(&got), cases[i].want);
        uri_match_done(&match);
        CHECK_INT(cases[i].uri, match.count, 0);
    }
}

static void test_a_uri_over_the_limit_is_no_match(void **state)
{
    (void)state;
    char uri[URI_MAX + 2];
    memset(uri, 'x', sizeof(uri));
    uri[1] = ':';
    struct uri_match match;

    uri[URI_MAX] = '\0';
    assert_true(uri_valid(uri));
    assert_int_equal(uri_template_match("x:{a}", uri, &match), 0);
    assert_int_equal(strlen(match.values[0]), URI_MAX - 2);
    uri_match_done(&match);

    uri[URI_MAX] = 'x';
    uri[URI_MAX + 1] = '\0';
    assert_false(uri_valid(uri));
    assert_int_equal(uri_template_match("x:{a}", uri, &match), -ENOENT);
}

static void test_variables_are_found_by_name(void **state)
{
    (void)state;
    static const char templ[] = "kernel://{session_id}/{+path}";
    assert_true(uri_template_has_var(templ, "session_id"));
    assert_true(uri_template_has_var(templ, "path"));
    assert_false(uri_template_has_var(templ, "session"));
    assert_false(uri_template_has_var(templ, "+path"));
    assert_false(uri_template_has_var(templ, ""));
    assert_false(uri_template_has_var("a:b", "b"));
}

static void test_only_absolute_uris_of_rfc_3986_are_valid(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        bool want;
    } cases[] = {
        { "file:///a/b", true },
        { "kernel://id/plot.png", true },
        { "https://user@host:80/p;a=1?q=(x)#f", true },
        { "http://[::1]:8000/", true },
        { "urn:a:b", true },
        { "about:", true },
        { "a+b-c.d1:x", true },
        { "a:%20%c3%A4", true },
        { "a:b#c?d/e", true },
        { "", false },
        { ":", false },
        { "/path", false },
        { "relative", false },
        { "1a:b", false },
        { "a_b:c", false },
        { "a:b c", false },
        { "a:b\tc", false },
        { "a:b\"c", false },
        { "a:<b>", false },
        { "a:{b}", false },
        { "a:b\\c", false },
        { "a:b|c", false },
        { "a:b^c", false },
        { "a:b`c", false },
        { "a:\xc3\xa4", false },
        { "a:\x7f", false },
        { "a:%", false },
        { "a:%2", false },
        { "a:%2g", false },
        { "a:b#c#d", false },
        { "a:[b]", false },
        { "http://h/[b]", false },
        { "http://h?[b]", false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_INT(cases[i].uri, uri_valid(cases[i].uri), cases[i].want);
}

static void test_a_resource_lies_under_its_parents(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *parent;
        bool want;
    } cases[] = {
        { "a://b/c", "a://b/c", true },   { "a://b/c", "a://b", true },
        { "a://b/c", "a://b/", true },    { "a://b/c/d/e", "a://b/c", true },
        { "a://b/cd", "a://b/c", false }, { "a://b", "a://b/", false },
        { "a://b", "a://b/c", false },    { "a://B/c", "a://b", false },
        { "a://b/c", "", false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_INT(cases[i].parent, uri_is_under(cases[i].uri, cases[i].parent), cases[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates_that_cannot_be_matched_are_refused),
        cmocka_unit_test(test_a_uri_is_taken_apart),
        cmocka_unit_test(test_a_uri_over_the_limit_is_no_match),
        cmocka_unit_test(test_variables_are_found_by_name),
        cmocka_unit_test(test_only_absolute_uris_of_rfc_3986_are_valid),
        cmocka_unit_test(test_a_resource_lies_under_its_parents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
