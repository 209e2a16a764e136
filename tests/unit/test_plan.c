/* What may be asked for a session's guests: variables and modules, each refused by name. */
#include "check.h"

#include "session/session.h"

#include <errno.h>

static void test_variables_are_checked_by_name_and_value(void **state)
{
    (void)state;
    static const struct {
        const char *name, *json, *words; /* words: of the refusal; NULL: fine */
    } cases[] = {
        { "nothing", "{}", NULL },
        { "ordinary", "{\"A\": \"1\", \"_b2\": \"\", \"TZ\": \"Europe/Berlin\"}", NULL },
        { "a value of any text", "{\"A\": \"a=b\\n\xc3\xa4 $(x)\"}", NULL },
        { "near a reserved one", "{\"PATHS\": \"\", \"LDFLAGS\": \"\", \"MYLD_X\": \"\"}", NULL },
        { "an empty name", "{\"\": \"1\"}", "\"\" is no name" },
        { "a digit first", "{\"1A\": \"1\"}", "\"1A\" is no name" },
        { "a dash", "{\"A-B\": \"1\"}", "\"A-B\" is no name" },
        { "an equals sign", "{\"A=B\": \"1\"}", "\"A=B\" is no name" },
        { "a newline", "{\"A\\nB\": \"1\"}", "is no name" },
        { "a letter beyond ASCII", "{\"\xc3\xa4\": \"1\"}", "is no name" },
        { "a number", "{\"A\": 1}", "\"A\" must be a text" },
        { "null", "{\"A\": null}", "\"A\" must be a text" },
        { "a NUL", "{\"A\": \"a\\u0000b\"}", "\"A\" must be a text without NUL" },
        { "PATH", "{\"PATH\": \"/x\"}", "\"PATH\" is reserved" },
        { "the loader's", "{\"LD_PRELOAD\": \"/x\"}", "\"LD_PRELOAD\" is reserved" },
        { "ours", "{\"BELLJAR_RC\": \"\"}", "\"BELLJAR_RC\" is reserved" },
        { "a shell's", "{\"BASH_ENV\": \"/x\"}", "\"BASH_ENV\" is reserved" },
        { "no object", "[]", "must be an object" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *env = json_loads(cases[i].json, JSON_ALLOW_NUL, NULL);
        struct err err = { 0 };
        assert_non_null(env);
        int r = session_check_env(env, &err);
        json_decref(env);
        CHECK_INT(cases[i].name, r, cases[i].words ? -EINVAL : 0);
        if (cases[i].words && !strstr(err.msg, cases[i].words))
            FAIL("%s: \"%s\" does not say \"%s\"", cases[i].name, err.msg, cases[i].words);
    }
    assert_int_equal(session_check_env(NULL, NULL), 0);
}

static json_t *many(size_t count, size_t len)
{
    json_t *env = json_object();
    auto_free char *value = xmalloc(len + 1);
    memset(value, 'v', len);
    value[len] = '\0';
    for (size_t i = 0; i < count; i++) {
        auto_free char *name = xasprintf("V%05zu", i);
        json_put_str(env, name, value);
    }
    return env;
}

static void test_variables_are_bounded(void **state)
{
    (void)state;
    enum { NAME = 6, AROUND = 2 }; /* '=' and NUL */
    static const struct {
        const char *name;
        size_t count, len;
        int code;
    } cases[] = {
        { "as many as may be", SESSION_ENV_COUNT, 1, 0 },
        { "one more", SESSION_ENV_COUNT + 1, 1, -EINVAL },
        { "as long as may be", 1, SESSION_ENV_BYTES - NAME - AROUND, 0 },
        { "one byte more", 1, SESSION_ENV_BYTES - NAME - AROUND + 1, -EINVAL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *env = many(cases[i].count, cases[i].len);
        struct err err = { 0 };
        CHECK_INT(cases[i].name, session_check_env(env, &err), cases[i].code);
        json_decref(env);
    }
}

static void test_modules_are_names_with_dots(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        bool good;
    } cases[] = {
        { "[]", true },         { "[\"os\", \"os.path\", \"_x.y2\"]", true },
        { "[\"\"]", false },    { "[\".os\"]", false },
        { "[\"os.\"]", false }, { "[\"os..path\"]", false },
        { "[\"2os\"]", false }, { "[\"a b\"]", false },
        { "[\"os*\"]", false }, { "[1]", false },
        { "{}", false },        { "[\"os\\u0000\"]", false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *modules = json_loads(cases[i].json, JSON_ALLOW_NUL, NULL);
        struct err err = { 0 };
        int r = session_check_modules(modules, "blocked_modules", &err);
        json_decref(modules);
        CHECK_INT(cases[i].json, r, cases[i].good ? 0 : -EINVAL);
        if (!cases[i].good)
            assert_ptr_equal(strstr(err.msg, "blocked_modules: "), err.msg);
    }
    json_t *modules = json_array();
    struct err err = { 0 };
    for (int i = 0; i < SESSION_MODULES; i++)
        json_push(modules, json_string("os"));
    assert_int_equal(session_check_modules(modules, "m", &err), 0);
    json_push(modules, json_string("os"));
    assert_int_equal(session_check_modules(modules, "m", &err), -EINVAL);
    json_decref(modules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables_are_checked_by_name_and_value),
        cmocka_unit_test(test_variables_are_bounded),
        cmocka_unit_test(test_modules_are_names_with_dots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
