#include "check.h"

#include "base/buf.h"
#include "config/config.h"
#include "config/option.h"
#include "config/origin.h"
#include "config/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/*** Loading from words ***/

enum { WORDS_MAX = 8 };

struct given {
    const char *system, *user; /* texts of s.yaml and u.yaml; NULL: no such file */
    const char *env[WORDS_MAX];
    const char *args[WORDS_MAX];
    const char *profile;
};

static int parse_flags(const char *const *args, struct config_flag *flags, size_t *count,
                       struct err *err)
{
    for (*count = 0; *args; (*count)++) {
        int used = config_flag_next((char *const *)args, &flags[*count], err);
        if (used < 0)
            return used;
        args += used;
    }
    return 0;
}

static int load(const struct given *given, struct config *ret, struct err *err)
{
    struct config_file files[2];
    struct config_flag flags[WORDS_MAX];
    struct config_sources sources = { .profile = given->profile,
                                      .files = files,
                                      .environment = (char *const *)given->env,
                                      .flags = flags };
    if (given->system)
        files[sources.n_files++] =
            (struct config_file){ "s.yaml", given->system, strlen(given->system) };
    if (given->user)
        files[sources.n_files++] =
            (struct config_file){ "u.yaml", given->user, strlen(given->user) };
    int r = parse_flags(given->args, flags, &sources.n_flags, err);
    return r < 0 ? r : config_load(&sources, ret, err);
}

/*** The table ***/

static void test_every_row_is_complete_and_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_options_count; i++) {
        const struct option *option = &config_options[i];
        CHECK(option->key,
              strspn(option->key, "abcdefghijklmnopqrstuvwxyz_.") == strlen(option->key));
        CHECK(option->key, option->section && option->fallback && option->help);
        CHECK(option->key, option->help[strlen(option->help) - 1] == '.');
        CHECK(option->key, (option->type == OPTION_ENUM) == (option->names != NULL));
        CHECK(option->key, !option->check || option->allowed);
        for (size_t j = 0; j < i; j++) {
            auto_free char *flag = option_flag(option);
            auto_free char *other = option_flag(&config_options[j]);
            CHECK(option->key, !str_eq(flag, other));
            CHECK(option->key, option->offset != config_options[j].offset);
        }
    }
}

static void test_names_follow_from_the_key(void **state)
{
    (void)state;
    const struct option option = { .key = "docker.memory_limit" };
    auto_free char *variable = option_variable(&option);
    auto_free char *flag = option_flag(&option);
    assert_string_equal(variable, "BELLJAR_DOCKER_MEMORY_LIMIT");
    assert_string_equal(flag, "--docker-memory-limit");
}

static void test_every_default_is_a_value_that_users_could_write(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_options_count; i++) {
        const struct option *option = &config_options[i];
        struct config config = { 0 };
        if (*option->fallback)
            CHECK_INT(option->key, option_set(option, &config, option->fallback), 0);
        option_release(option, &config);
    }
}

static int set_number(const struct option *option, double value)
{
    struct config config = { 0 };
    auto_free char *text = xasprintf("%.0f%s", value, option->type == OPTION_DURATION ? "ms" : "");
    return option_set(option, &config, text);
}

static void test_every_bound_holds_at_its_edge(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_options_count; i++) {
        const struct option *option = &config_options[i];
        if (option->type != OPTION_INT && option->type != OPTION_SIZE &&
            option->type != OPTION_DURATION)
            continue;
        CHECK_INT(option->key, set_number(option, option->min), 0);
        CHECK_INT(option->key, set_number(option, option->max), 0);
        CHECK_INT(option->key, set_number(option, option->min - 1), -EINVAL);
        CHECK_INT(option->key, set_number(option, option->max + 1), -EINVAL);
    }
}

static void test_defaults_are_those_we_stand_behind(void **state)
{
    (void)state;
    auto_config config = { 0 };
    assert_int_equal(load(&(struct given){ 0 }, &config, NULL), 0);
    assert_string_equal(config.http, "");
    assert_false(config.stdio);
    assert_string_equal(config.profile, "default");
    assert_int_equal(config.log_level, LOG_INFO);
    assert_string_equal(config.token, "");
    assert_int_equal(config.allowed_hosts.count, 0);
    assert_int_equal(config.http_max_header, 16 << 10);
    assert_int_equal(config.http_max_headers, 100);
    assert_int_equal(config.http_max_body, 16 << 20);
    assert_int_equal(config.http_header_timeout_ms, 10000);
    assert_int_equal(config.http_body_timeout_ms, 60000);
    assert_int_equal(config.http_max_connections_per_address, 1024);
    assert_int_equal(config.json_max_depth, 128);
    assert_int_equal(config.max_answer, 4 << 20);
    assert_int_equal(config.http_max_sessions, 1000);
    assert_int_equal(config.http_session_timeout_ms, 1800000);
}

/*** Values by type ***/

struct sample {
    char *string;
    int choice;
    bool truth;
    int64_t count;
    size_t size;
    uint64_t wait_ms;
    double share;
    struct config_list list;
};

static bool is_lower(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz") == strlen(text);
}

static const char *const choices[] = { "red", "green", NULL };
#define AT(member) .offset = offsetof(struct sample, member)
static const struct option sample_string = {
    .key = "s", .type = OPTION_STRING, AT(string), .fallback = "", .min = 2, .max = 4
};
static const struct option sample_lower = { .key = "l",
                                            .type = OPTION_STRING,
                                            AT(string),
                                            .fallback = "",
                                            .max = 9,
                                            .check = is_lower,
                                            .allowed = "small letters" };
static const struct option sample_enum = {
    .key = "e", .type = OPTION_ENUM, AT(choice), .fallback = "red", .names = choices
};
static const struct option sample_bool = {
    .key = "b", .type = OPTION_BOOL, AT(truth), .fallback = "true"
};
static const struct option sample_int = {
    .key = "i", .type = OPTION_INT, AT(count), .fallback = "0", .min = -5, .max = 5
};
static const struct option sample_size = {
    .key = "z", .type = OPTION_SIZE, AT(size), .fallback = "1k", .min = 10, .max = 1 << 20
};
static const struct option sample_wait = {
    .key = "w", .type = OPTION_DURATION, AT(wait_ms), .fallback = "1s", .min = 1, .max = 3600000
};
static const struct option sample_real = {
    .key = "r", .type = OPTION_REAL, AT(share), .fallback = "0.5", .min = 0.25, .max = 64
};
static const struct option sample_list = { .key = "a",
                                           .type = OPTION_LIST,
                                           AT(list),
                                           .fallback = "",
                                           .max = 3,
                                           .check = is_lower,
                                           .allowed = "small words" };

static void test_values_of_every_type(void **state)
{
    (void)state;
    static const struct {
        const struct option *option;
        const char *text;
        const char *shown; /* NULL: refused */
        const char *json;
    } cases[] = {
        { &sample_string, "ab", "ab", "\"ab\"" },
        { &sample_string, "abcd", "abcd", "\"abcd\"" },
        { &sample_string, "a", NULL, NULL },
        { &sample_string, "abcde", NULL, NULL },
        { &sample_string, "", NULL, NULL },
        { &sample_string, "a\n", NULL, NULL },
        { &sample_string, "a\x7f", NULL, NULL },
        { &sample_string, "a\xff", NULL, NULL },
        { &sample_string, "\xc3\xa4", "\xc3\xa4", "\"\xc3\xa4\"" },
        { &sample_lower, "abc", "abc", "\"abc\"" },
        { &sample_lower, "aBc", NULL, NULL },
        { &sample_enum, "green", "green", "\"green\"" },
        { &sample_enum, "RED", "red", "\"red\"" },
        { &sample_enum, "blue", NULL, NULL },
        { &sample_enum, "", NULL, NULL },
        { &sample_bool, "yes", "true", "true" },
        { &sample_bool, "Off", "false", "false" },
        { &sample_bool, "2", NULL, NULL },
        { &sample_int, "-5", "-5", "-5" },
        { &sample_int, "5", "5", "5" },
        { &sample_int, "6", NULL, NULL },
        { &sample_int, "-6", NULL, NULL },
        { &sample_int, "1k", NULL, NULL },
        { &sample_int, "", NULL, NULL },
        { &sample_size, "10", "10", "10" },
        { &sample_size, "2048", "2k", "2048" },
        { &sample_size, "1MiB", "1m", "1048576" },
        { &sample_size, "1025k", NULL, NULL },
        { &sample_size, "9", NULL, NULL },
        { &sample_wait, "1ms", "1ms", "0.001" },
        { &sample_wait, "1.5", "1500ms", "1.5" },
        { &sample_wait, "90", "90s", "90" },
        { &sample_wait, "60m", "1h", "3600" },
        { &sample_wait, "0", NULL, NULL },
        { &sample_wait, "3600.001", NULL, NULL },
        { &sample_real, "0.25", "0.25", "0.25" },
        { &sample_real, "64", "64", "64.0" },
        { &sample_real, "0.2", NULL, NULL },
        { &sample_real, "64.1", NULL, NULL },
        { &sample_real, "1e1", NULL, NULL },
        { &sample_list, "", "", "[]" },
        { &sample_list, "a", "a", "[\"a\"]" },
        { &sample_list, " a , b,c ", "a,b,c", "[\"a\",\"b\",\"c\"]" },
        { &sample_list, "a,b,c,d", NULL, NULL },
        { &sample_list, "a,,b", NULL, NULL },
        { &sample_list, ",", NULL, NULL },
        { &sample_list, "a,B", NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct option *option = cases[i].option;
        struct sample sample = { 0 };
        option_set_default(option, &sample);
        auto_free char *before = option_text(option, &sample);
        int r = option_set(option, &sample, cases[i].text);
        CHECK_INT(cases[i].text, r, cases[i].shown ? 0 : -EINVAL);
        auto_free char *shown = option_text(option, &sample);
        CHECK_STR(cases[i].text, shown, cases[i].shown ? cases[i].shown : before);
        if (cases[i].json) {
            auto_json *json = option_json(option, &sample);
            auto_free char *text = json_text(json);
            CHECK_STR(cases[i].text, text, cases[i].json);
        }
        option_release(option, &sample);
    }
}

static void test_what_is_allowed_is_said_in_words(void **state)
{
    (void)state;
    static const struct {
        const struct option *option;
        const char *want;
    } cases[] = {
        { &sample_string, "one line of 2 to 4 bytes" },
        { &sample_lower, "small letters" },
        { &sample_enum, "one of red, green" },
        { &sample_bool, "true or false" },
        { &sample_int, "an integer from -5 to 5" },
        { &sample_size, "a size from 10 to 1m" },
        { &sample_wait, "a duration from 1ms to 1h" },
        { &sample_real, "a number from 0.25 to 64" },
        { &sample_list, "at most 3 small words" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *allowed = option_allowed(cases[i].option);
        CHECK_STR(cases[i].want, allowed, cases[i].want);
    }
}

static void test_addresses_names_and_tokens_have_their_form(void **state)
{
    (void)state;
    static const struct {
        const char *key, *text;
        bool allowed;
    } cases[] = {
        { "http", "", true },
        { "http", "127.0.0.1:8000", true },
        { "http", "[::1]:0", true },
        { "http", "localhost:65535", true },
        { "http", "localhost:65536", false },
        { "http", "localhost:-1", false },
        { "http", "localhost:", false },
        { "http", "localhost", false },
        { "http", ":8000", false },
        { "http", "8000", false },
        { "http", "::1:8000", false },
        { "http", "[::1]", false },
        { "http", "[]:1", false },
        { "http", "[::1:1", false },
        { "http", "a b:1", false },
        { "http", "http://localhost:1", false },
        { "profile", "mcp-pyexec", true },
        { "profile", "a/b", false },
        { "profile", "", false },
        { "token", "0123456789abcde", false },
        { "token", "0123456789abcdef", true },
        { "token", "0123456789abcd==", true },
        { "token", "0123456789=abcdef", false },
        { "token", "0123456789 abcdef", false },
        { "token", "", false },
        { "allowed_hosts", "example.org,example.org:80,[::1],[::1]:80", true },
        { "allowed_hosts", "*", false },
        { "allowed_hosts", "http://example.org", false },
        { "allowed_hosts", "example.org:http", false },
        { "allowed_origins", "https://example.org,http://localhost:80", true },
        { "allowed_origins", "vscode-webview://1a2b", true },
        { "allowed_origins", "https://example.org/", false },
        { "allowed_origins", "example.org", false },
        { "allowed_origins", "://example.org", false },
        { "allowed_origins", "1https://example.org", false },
        { "allowed_origins", "*", false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct option *option = option_find(cases[i].key);
        struct config config = { 0 };
        option_set_default(option, &config);
        CHECK_INT(cases[i].text, option_set(option, &config, cases[i].text),
                  cases[i].allowed ? 0 : -EINVAL);
        option_release(option, &config);
    }
}

/*** Precedence ***/

static void test_the_strongest_source_wins(void **state)
{
    (void)state;
    static const struct {
        struct given given;
        int64_t want;
        const char *origin;
    } cases[] = {
        { { 0 }, 100, "default" },
        { { .system = "page_size: 1" }, 1, "s.yaml:1" },
        { { .user = "\n# two\n\npage_size: 2" }, 2, "u.yaml:4" },
        { { .system = "page_size: 1", .user = "page_size: 2" }, 2, "u.yaml:1" },
        { { .system = "page_size: 1", .env = { "BELLJAR_PAGE_SIZE=3" } },
          3,
          "environment variable BELLJAR_PAGE_SIZE" },
        { { .env = { "BELLJAR_PAGE_SIZE=3" }, .args = { "--page-size", "4" } },
          4,
          "flag --page-size" },
        { { .system = "page_size: 1", .args = { "--page-size=4" } }, 4, "flag --page-size" },
        { { .args = { "--page-size=4", "--page-size=5" } }, 5, "flag --page-size" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_config config = { 0 };
        struct err err = { 0 };
        CHECK_INT(cases[i].origin, load(&cases[i].given, &config, &err), 0);
        CHECK_INT(cases[i].origin, config.page_size, cases[i].want);
        auto_free char *origin =
            origin_text(&config.origins[option_find("page_size") - config_options]);
        CHECK_STR(cases[i].origin, origin, cases[i].origin);
    }
}

static void test_the_program_name_is_weaker_than_any_setting(void **state)
{
    (void)state;
    auto_config named = { 0 }, set = { 0 }, bad = { 0 };
    struct err err = { 0 };
    assert_int_equal(load(&(struct given){ .profile = "mcp-pyexec" }, &named, NULL), 0);
    assert_string_equal(named.profile, "mcp-pyexec");
    assert_int_equal(load(&(struct given){ .profile = "x", .system = "profile: y" }, &set, NULL),
                     0);
    assert_string_equal(set.profile, "y");
    assert_int_equal(load(&(struct given){ .profile = "" }, &bad, &err), -EINVAL);
    assert_string_equal(err.msg,
                        "program name \"belljar-\": profile: \"\" is not allowed; expected "
                        "a name of 1 to 64 letters, digits, '_', '.' or '-'");
}

static void test_an_alias_counts_in_its_profile_only(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct given given;
        enum log_level want;
    } cases[] = {
        { "another profile", { .env = { "LOG_LEVEL=DEBUG" } }, LOG_INFO },
        { "its profile, by flag",
          { .env = { "LOG_LEVEL=DEBUG" }, .args = { "--profile=python-interpreter" } },
          LOG_DEBUG },
        { "its profile, by name",
          { .env = { "LOG_LEVEL=DEBUG" }, .profile = "python-interpreter" },
          LOG_DEBUG },
        { "stronger than a file",
          { .env = { "LOG_LEVEL=ERROR" },
            .system = "log_level: debug",
            .profile = "python-interpreter" },
          LOG_ERROR },
        { "weaker than our own name",
          { .env = { "LOG_LEVEL=ERROR", "BELLJAR_LOG_LEVEL=warning" },
            .profile = "python-interpreter" },
          LOG_WARNING },
        { "weaker than a flag",
          { .env = { "LOG_LEVEL=ERROR" },
            .args = { "--log-level=warning" },
            .profile = "python-interpreter" },
          LOG_WARNING },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_config config = { 0 };
        CHECK_INT(cases[i].name, load(&cases[i].given, &config, NULL), 0);
        CHECK_INT(cases[i].name, config.log_level, cases[i].want);
    }
}

static void test_lists_replace_each_other_but_flags_add_up(void **state)
{
    (void)state;
    static const struct {
        struct given given;
        const char *want;
    } cases[] = {
        { { .system = "allowed_hosts: [a, \"b\"]" }, "a,b" },
        { { .system = "allowed_hosts:\n  - a\n  - b:80\n" }, "a,b:80" },
        { { .system = "allowed_hosts: a, b" }, "a,b" },
        { { .system = "allowed_hosts: []" }, "" },
        { { .system = "allowed_hosts: [a]", .user = "allowed_hosts: [c]" }, "c" },
        { { .system = "allowed_hosts: [a]", .env = { "BELLJAR_ALLOWED_HOSTS=c,d" } }, "c,d" },
        { { .env = { "BELLJAR_ALLOWED_HOSTS=c" },
            .args = { "--allowed-hosts=x", "--allowed-hosts", "y,z" } },
          "x,y,z" },
        { { .system = "allowed_hosts: [a]", .args = { "--allowed-hosts=" } }, "" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_config config = { 0 };
        CHECK_INT(cases[i].want, load(&cases[i].given, &config, NULL), 0);
        auto_free char *all = config_list_join(&config.allowed_hosts);
        CHECK_STR(cases[i].want, all, cases[i].want);
    }
}

static void test_flags_in_each_form(void **state)
{
    (void)state;
    static const struct {
        const char *args[3];
        int used; /* negative: refused */
        const char *value;
    } cases[] = {
        { { "--http", "a:1" }, 2, "a:1" },
        { { "--http=a:1" }, 1, "a:1" },
        { { "--http=" }, 1, "" },
        { { "--http", "" }, 2, "" },
        { { "--http=--stdio" }, 1, "--stdio" },
        { { "--stdio" }, 1, "true" },
        { { "--stdio", "false" }, 1, "true" }, /* "false" is an argument of its own */
        { { "--stdio=off" }, 1, "off" },
        { { "--no-stdio" }, 1, "false" },
        { { "--no-stdio=false" }, -EINVAL, NULL },
        { { "--no-http" }, -EINVAL, NULL },
        { { "--http" }, -EINVAL, NULL },
        { { "--http", "--stdio" }, -EINVAL, NULL },
        { { "-http", "x" }, -EINVAL, NULL },
        { { "--" }, -EINVAL, NULL },
        { { "" }, -EINVAL, NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct config_flag flag = { 0 };
        struct err err = { 0 };
        CHECK_INT(cases[i].args[0], config_flag_next((char *const *)cases[i].args, &flag, &err),
                  cases[i].used);
        if (cases[i].value)
            CHECK_STR(cases[i].args[0], flag.value, cases[i].value);
        else
            CHECK(cases[i].args[0], err.msg[0]);
    }
}

/*** Refusals ***/

/* No option allows a control character, whatever its type. */
static void test_every_option_refuses_with_place_and_remedy(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_options_count; i++) {
        const struct option *option = &config_options[i];
        auto_free char *flag_name = option_flag(option), *variable_name = option_variable(option);
        auto_free char *file = xasprintf("# one\n%s: \"a\\x01\"", option->key);
        auto_free char *variable = xasprintf("%s=a\x01", variable_name);
        auto_free char *flag = xasprintf("%s=a\x01", flag_name);
        auto_free char *from_variable = xasprintf("environment variable %s", variable_name);
        auto_free char *from_flag = xasprintf("flag %s", flag_name);
        const struct {
            struct given given;
            const char *place;
        } cases[] = {
            { { .system = file }, "s.yaml:2" },
            { { .env = { variable } }, from_variable },
            { { .args = { flag } }, from_flag },
        };
        auto_free char *allowed = option_allowed(option);
        for (size_t at = 0; at < ARRAY_SIZE(cases); at++) {
            auto_config config = { 0 };
            struct err err = { 0 };
            auto_free char *want = xasprintf(
                "%s: %s: %s is not allowed; expected %s", cases[at].place, option->key,
                option->secret ? "the value (2 bytes, not shown)" : "\"a\\u0001\"", allowed);
            want[sizeof(err.msg) - 1 < strlen(want) ? sizeof(err.msg) - 1 : strlen(want)] = '\0';
            CHECK_INT(want, load(&cases[at].given, &config, &err), -EINVAL);
            CHECK_STR(want, err.msg, want);
        }
    }
}

static void test_a_bad_setting_is_named_with_its_place(void **state)
{
    (void)state;
    static const struct {
        struct given given;
        const char *want;
    } cases[] = {
        { { .system = "stdio: false\npage_size: many" },
          "s.yaml:2: page_size: \"many\" is not allowed; expected an integer from 1 to 10000" },
        { { .env = { "BELLJAR_LOG_LEVEL=loud" } },
          "environment variable BELLJAR_LOG_LEVEL: log_level: \"loud\" is not allowed; expected "
          "one "
          "of error, warning, info, debug" },
        { { .args = { "--http-idle-timeout=2d" } },
          "flag --http-idle-timeout: http_idle_timeout: \"2d\" is not allowed; expected a duration "
          "from 10ms to 1d" },
        { { .args = { "--http-max-body", "16x" } },
          "flag --http-max-body: http_max_body: \"16x\" is not allowed; expected a size from 1k to "
          "1g" },
        { { .env = { "BELLJAR_STDIO=maybe\n" } },
          "environment variable BELLJAR_STDIO: stdio: \"maybe\\n\" is not allowed; expected true "
          "or "
          "false" },
        { { .system =
                "profile: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" },
          "s.yaml:1: profile: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\" "
          "is "
          "not allowed; expected a name of 1 to 64 letters, digits, '_', '.' or '-'" },
        { { .env = { "BELLJAR_TOKEN=hunter2" } },
          "environment variable BELLJAR_TOKEN: token: the value (7 bytes, not shown) is not "
          "allowed; "
          "expected 16 to 512 letters, digits or any of -._~+/ with = only at the end" },
        { { .system = "allowed_hosts: [a, b c]" },
          "s.yaml:1: allowed_hosts: \"b c\" is not allowed; expected at most 1000 host names such "
          "as "
          "example.org or example.org:8000" },
        { { .args = { "--tls-cert=a\x01" } },
          "flag --tls-cert: tls_cert: \"a\\u0001\" is not allowed; expected one line of at most "
          "4096 "
          "bytes" },
        /* a bad value is refused even where a stronger source overrides it */
        { { .system = "page_size: 0", .args = { "--page-size=1" } },
          "s.yaml:1: page_size: \"0\" is not allowed; expected an integer from 1 to 10000" },
        { { .env = { "LOG_LEVEL=x" },
            .args = { "--log-level=info" },
            .profile = "python-interpreter" },
          "environment variable LOG_LEVEL: log_level: \"x\" is not allowed; expected one of error, "
          "warning, info, debug" },
        /* names */
        { { .system = "page_sise: 1" },
          "s.yaml:1: there is no option \"page_sise\"; did you mean \"page_size\"?" },
        { { .system = "colour: red" }, "s.yaml:1: there is no option \"colour\"" },
        { { .system = "stdio:\n  deep: 1" },
          "s.yaml:1: stdio: a map is not allowed; expected true or false" },
        { { .system = "kubernetes:\n  image: x" }, "s.yaml:1: there is no option \"kubernetes\"" },
        { { .system = "\"a\\tb\": red" }, "s.yaml:1: there is no option \"a\\tb\"" },
        { { .env = { "BELLJAR_TOKN=0123456789abcdef" } },
          "environment variable \"BELLJAR_TOKN\": there is no such option; did you mean "
          "BELLJAR_TOKEN?" },
        { { .env = { "BELLJAR_http=a:1" } },
          "environment variable \"BELLJAR_http\": there is no such option; did you mean "
          "BELLJAR_HTTP?" },
        { { .args = { "--page-sise", "1" } },
          "there is no flag \"--page-sise\"; did you mean --page-size?" },
        { { .args = { "--page_size", "1" } },
          "there is no flag \"--page_size\"; did you mean --page-size?" },
        { { .args = { "--colour" } }, "there is no flag \"--colour\"" },
        { { .args = { "-v" } }, "\"-v\" is not a flag" },
        { { .args = { "--page-size" } },
          "flag --page-size: page_size: needs a value; expected an integer from 1 to 10000" },
        /* form */
        { { .system = "page_size: [1]" },
          "s.yaml:1: page_size: a list is not allowed; expected an integer from 1 to 10000" },
        { { .system = "page_size:" },
          "s.yaml:1: page_size: has no value; expected an integer from 1 to 10000" },
        { { .system = "token: ~" },
          "s.yaml:1: token: has no value; expected 16 to 512 letters, digits or any of -._~+/ with "
          "= "
          "only at the end" },
        { { .system = "stdio: true\nhttp: a:1\nstdio: false" },
          "s.yaml:3: stdio: is set twice, first on line 1" },
        { { .system = "page_size: 1\npage_size: 1" },
          "s.yaml:2: page_size: is set twice, first on line 1" },
        /* pairs */
        { { .args = { "--tls-cert=c" } }, "flag --tls-cert: tls_cert: needs tls_key as well" },
        { { .system = "tls_key: k" }, "s.yaml:1: tls_key: needs tls_cert as well" },
        { { .system = "token_file: f", .env = { "BELLJAR_TOKEN=0123456789abcdef" } },
          "environment variable BELLJAR_TOKEN: token: is set together with token_file; use one of "
          "them" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_config config = { 0 };
        struct err err = { 0 };
        CHECK_INT(cases[i].want, load(&cases[i].given, &config, &err), -EINVAL);
        CHECK_STR(cases[i].want, err.msg, cases[i].want);
        CHECK(cases[i].want, config.origins == NULL); /* written on success only */
    }
}

static void test_a_list_holds_no_more_than_its_limit(void **state)
{
    (void)state;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&text, "allowed_hosts: [a");
    for (int i = 1; i < 1000; i++)
        (void)buf_add_str(&text, ",a");
    auto_free char *most = xasprintf("%s]", buf_str(&text));
    auto_free char *more = xasprintf("%s,a]", buf_str(&text));
    auto_config config = { 0 }, none = { 0 };
    struct err err = { 0 };
    assert_int_equal(load(&(struct given){ .system = most }, &config, &err), 0);
    assert_int_equal(config.allowed_hosts.count, 1000);
    assert_int_equal(load(&(struct given){ .system = more }, &none, &err), -EINVAL);
    assert_true(str_has_prefix(err.msg, "s.yaml:1: allowed_hosts: \"a,a,a,"));
    assert_non_null(strstr(err.msg, "...\" is not allowed; expected at most 1000 host names"));
}

static void test_variables_that_are_not_ours_are_let_pass(void **state)
{
    (void)state;
    const struct given given = { .env = { "BELLJAR_PORT=tcp://10.0.0.1:80",
                                          "BELLJAR_BIN=build/belljar",
                                          "BELLJAR_SERVICE_HOST=10.0.0.1", "BELLJAR_CONFIG=x",
                                          "BELLJAR_=", "PATH=/bin", "XBELLJAR_HTTP=bad" } };
    auto_config config = { 0 };
    struct err err = { 0 };
    CHECK_INT(err.msg, load(&given, &config, &err), 0);
    assert_string_equal(config.http, "");
}

/*** YAML ***/

static int read_yaml(const char *text, size_t len, struct yaml_file *ret, struct err *err)
{
    /* An exact copy on the heap: a read past the end is seen by the sanitizers. */
    auto_free char *copy = xmalloc(len);
    memcpy(copy, text, len);
    struct config_file file = { "f.yaml", copy, len };
    return yaml_read(&file, ret, err);
}

static char *entries_text(const struct yaml_file *file)
{
    static const char *const kinds[] = { "=", "?", "*", "{}" };
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < file->count; i++) {
        const struct yaml_entry *entry = &file->entries[i];
        auto_free char *items = config_list_join(&entry->items);
        (void)buf_printf(&buf, "%zu:%s%s%s;", entry->line, entry->key, kinds[entry->kind], items);
    }
    return buf_steal(&buf);
}

static void test_yaml_is_flattened_in_the_order_of_the_file(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "", "" },
        { "# nothing\n", "" },
        { "---\n", "" },
        { "---\n...\n", "" },
        { "{}", "" },
        { "a: 1\nb: two words # comment\n", "1:a=1;2:b=two words;" },
        { "a: '1'\nb: \"x\\ty\"\n", "1:a=1;2:b=x\ty;" },
        { "a: yes\nb: 0x10\nc: 1.50\n", "1:a=yes;2:b=0x10;3:c=1.50;" }, /* text, never guessed */
        { "a:\nb: ~\nc: null\nd: 'null'\ne: ''\n", "1:a?;2:b?~;3:c?null;4:d=null;5:e=;" },
        { "a: [x, 'y', z z]\n", "1:a*x,y,z z;" },
        { "a:\n- x\n- y\n", "1:a*x,y;" },
        { "docker:\n  image: i\n  pool:\n    size: 3\nz: 1\n",
          "1:docker{};2:docker.image=i;3:docker.pool{};4:docker.pool.size=3;5:z=1;" },
        { "docker: {image: i}\n", "1:docker{};1:docker.image=i;" },
        { "docker.image: i\n", "1:docker.image=i;" },
        { "a: |\n  x\n  y\n", "1:a=x\ny\n;" },
        { "? a\n: 1\n", "1:a=1;" },
        { "%YAML 1.1\n---\na: 1\n", "3:a=1;" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct yaml_file file = { 0 };
        struct err err = { 0 };
        int r = read_yaml(cases[i].text, strlen(cases[i].text), &file, &err);
        CHECK_STR(cases[i].text, err.msg, "");
        CHECK_INT(cases[i].text, r, 0);
        auto_free char *got = entries_text(&file);
        CHECK_STR(cases[i].text, got, cases[i].want);
        yaml_done(&file);
    }
}

static void test_yaml_beyond_our_form_is_refused(void **state)
{
    (void)state;
    static const char adorned[] = "anchors, aliases and tags are not allowed";
    static const struct {
        const char *text;
        int want;
        const char *where, *msg;
    } cases[] = {
        { "a: &x 1", -EINVAL, "f.yaml:1: ", adorned },
        { "a: 1\nb: *x", -EINVAL, "f.yaml:2: ", adorned },
        { "a: !!str 1", -EINVAL, "f.yaml:1: ", adorned },
        { "a: ! 1", -EINVAL, "f.yaml:1: ", adorned },
        { "&r\na: 1", -EINVAL, "f.yaml:1: ", adorned },
        { "a: &l [1]", -EINVAL, "f.yaml:1: ", adorned },
        { "a: !m {b: 1}", -EINVAL, "f.yaml:1: ", adorned },
        { "&k a: 1", -EINVAL, "f.yaml:1: ", adorned },
        { "a: [*x]", -EINVAL, "f.yaml:1: ", adorned },
        { "a: 1\n---\nb: 2", -EINVAL, "f.yaml:2: ", "a second document is not allowed" },
        { "---\n---\n", -EINVAL, "f.yaml:2: ", "a second document is not allowed" },
        { "- a\n- b", -EINVAL, "f.yaml:1: ", "expected lines of the form key: value" },
        { "just text", -EINVAL, "f.yaml:1: ", "expected lines of the form key: value" },
        { "a: [[1]]", -EINVAL, "f.yaml:1: ", "a list may hold plain values only" },
        { "a:\n- b: 1", -EINVAL, "f.yaml:2: ", "a list may hold plain values only" },
        { "a:\n-\n- b", -EINVAL, "f.yaml:2: ", "a list may hold plain values only" },
        { "[a]: 1", -EINVAL, "f.yaml:1: ", "a key must be plain text" },
        { "{a: 1}: 1", -EINVAL, "f.yaml:1: ", "a key must be plain text" },
        { "a: \"x\\0y\"", -EINVAL, "f.yaml:1: ", "a NUL character is not allowed" },
        { "\"x\\0y\": 1", -EINVAL, "f.yaml:1: ", "a NUL character is not allowed" },
        { "a: 1\n\tb: 2", -EINVAL,
          "f.yaml:2: ", "found a tab character that violates indentation" },
        { "a: 1\n b: 2", -EINVAL, "f.yaml:2: ", "mapping values are not allowed in this context" },
        { "a: [1", -EINVAL, "f.yaml:2: ", "did not find expected ',' or ']'" },
        { "a: 'x", -EINVAL, "f.yaml:1: ", "found unexpected end of stream" },
        { "a: \xff", -EINVAL, "f.yaml: byte 3: ", "invalid leading UTF-8 octet" },
        { "a: \x01", -EINVAL, "f.yaml: byte 3: ", "control characters are not allowed" },
        { "a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}", 0, "", "" },
        { "a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}", -E2BIG,
          "f.yaml:1: ", "nested more than 8 deep" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct yaml_file file = { 0 };
        struct err err = { 0 };
        int r = read_yaml(cases[i].text, strlen(cases[i].text), &file, &err);
        auto_free char *want = xasprintf("%s%s", cases[i].where, cases[i].msg);
        CHECK_STR(cases[i].text, err.msg, want);
        CHECK_INT(cases[i].text, r, cases[i].want);
        if (r == 0)
            yaml_done(&file);
    }
}

static void test_every_prefix_of_a_file_is_safe(void **state)
{
    (void)state;
    static const char text[] =
        "%YAML 1.1\n--- # c\na: \"x\\ty\"\nb: [1, 'two', |]\nc:\n  d: {e: f}\n"
        "  g:\n    - h\n    - \xc3\xa4\n? i\n: >\n  j\n...\n";
    for (size_t len = 0; len < sizeof(text); len++) {
        struct yaml_file file = { 0 };
        struct err err = { 0 };
        int r = read_yaml(text, len, &file, &err);
        assert_true(r == 0 ? !err.code : err.code == -r && err.msg[0]);
        if (r == 0)
            yaml_done(&file);
    }
}

static void test_a_file_holds_no_more_than_its_limits(void **state)
{
    (void)state;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    while (text.len < CONFIG_FILE_MAX)
        (void)buf_add_char(&text, '#');
    struct yaml_file file = { 0 };
    struct err err = { 0 };
    assert_int_equal(read_yaml(buf_str(&text), text.len, &file, &err), 0);
    (void)buf_add_char(&text, '#');
    assert_int_equal(read_yaml(buf_str(&text), text.len, &file, &err), -E2BIG);
    assert_string_equal(err.msg, "f.yaml: more than 1048576 bytes");

    auto_buf list = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&list, "a:\n");
    for (int i = 1; i < YAML_ENTRIES_MAX; i++)
        (void)buf_add_str(&list, "- x\n");
    assert_int_equal(read_yaml(buf_str(&list), list.len, &file, &err), 0);
    assert_int_equal(file.entries[0].items.count, YAML_ENTRIES_MAX - 1);
    yaml_done(&file);
    (void)buf_add_str(&list, "- x\n");
    assert_int_equal(read_yaml(buf_str(&list), list.len, &file, &err), -E2BIG);
    assert_string_equal(err.msg, "f.yaml:10001: more than 10000 entries");
}

static void test_hostile_nesting_is_refused_fast(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "[", "{", "- ", "? ", "a: {", "{a: [", "\"", "&a ", "!a "
    };
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        auto_buf text = BUF_INIT(BUF_NO_CEILING);
        while (text.len < CONFIG_FILE_MAX - 8)
            (void)buf_add_str(&text, pieces[i]);
        struct yaml_file file = { 0 };
        CHECK(pieces[i], read_yaml(buf_str(&text), text.len, &file, NULL) < 0);
    }
}

/*** The token's file ***/

static void test_a_token_file_gives_the_token(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *token, *msg;
    } cases[] = {
        { "0123456789abcdef", 16, "0123456789abcdef", "" },
        { "0123456789abcdef\n", 17, "0123456789abcdef", "" },
        { "0123456789abcdef \r\n\n", 20, "0123456789abcdef", "" },
        { "short\n", 6, "",
          "/t: token: the value (5 bytes, not shown) is not allowed; expected 16 to 512 letters, "
          "digits or any of -._~+/ with = only at the end" },
        { "", 0, "",
          "/t: token: the value (0 bytes, not shown) is not allowed; expected 16 to 512 letters, "
          "digits or any of -._~+/ with = only at the end" },
        { "0123456789abcdef\nmore", 21, "",
          "/t: token: the value (21 bytes, not shown) is not allowed; expected 16 to 512 letters, "
          "digits or any of -._~+/ with = only at the end" },
        { "0123456789abcdef\0x", 18, "", "/t: token: a NUL character is not allowed" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_config config = { 0 };
        struct err err = { 0 };
        assert_int_equal(load(&(struct given){ .args = { "--token-file=/t" } }, &config, &err), 0);
        int r = config_use_token_file(&config, cases[i].text, cases[i].len, &err);
        CHECK_STR(cases[i].text, err.msg, cases[i].msg);
        CHECK_INT(cases[i].text, r, *cases[i].msg ? -EINVAL : 0);
        CHECK_STR(cases[i].text, config.token, cases[i].token);
    }
}

/*** Showing ***/

static const struct given everything = {
    .system = "stdio: on\nhttp_max_body: 1536\nkeepalive: 0.25\nallowed_hosts: [\"[::1]:80\", b]\n"
              "profile: 'null'\nlog_level: DEBUG\nhttp_session_timeout: 36h\nevent_buffer: 0\n",
    .env = { "BELLJAR_TOKEN=0123456789abcdef", "BELLJAR_TLS_KEY=/a b/\"key\": #1.pem" },
    .args = { "--tls-cert=c", "--http", "[::1]:0", "--json-max-depth=9" },
};

static void test_what_is_printed_can_be_read_again(void **state)
{
    (void)state;
    auto_config config = { 0 }, again = { 0 };
    struct err err = { 0 };
    CHECK_INT(err.msg, load(&everything, &config, &err), 0);
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    config_print(&text, &config);
    CHECK_INT(err.msg, load(&(struct given){ .system = buf_str(&text) }, &again, &err), 0);
    for (size_t i = 0; i < config_options_count; i++) {
        auto_free char *first = option_text(&config_options[i], &config);
        auto_free char *second = option_text(&config_options[i], &again);
        CHECK_STR(config_options[i].key, second, config_options[i].secret ? "" : first);
    }
}

static void test_printed_lines_say_where_values_came_from(void **state)
{
    (void)state;
    auto_config config = { 0 };
    assert_int_equal(load(&everything, &config, NULL), 0);
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    config_print(&text, &config);
    static const char *const lines[] = {
        "http: \"[::1]:0\"                               # flag --http\n",
        "stdio: true                                   # s.yaml:1\n",
        "# token: (set)                                # environment variable BELLJAR_TOKEN\n",
        "http_max_body: 1536                           # s.yaml:2\n",
        "http_session_timeout: 36h                     # s.yaml:7\n",
        "page_size: 100                                # default\n",
        "allowed_hosts: [\"[::1]:80\",\"b\"]               # s.yaml:4\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        if (!strstr(buf_str(&text), lines[i]))
            FAIL("expected %s in %s", lines[i], buf_str(&text));
}

static void test_json_has_numbers_sources_and_no_secrets(void **state)
{
    (void)state;
    auto_config config = { 0 };
    assert_int_equal(load(&everything, &config, NULL), 0);
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    config_print_json(&text, &config);
    assert_null(strstr(buf_str(&text), "0123456789abcdef"));
    static const char *const members[] = {
        "\"token\":{\"value\":\"(set)\",\"source\":\"environment\",\"where\":\"BELLJAR_TOKEN\"}",
        "\"http_max_body\":{\"value\":1536,\"source\":\"file\",\"where\":\"s.yaml:2\"}",
        "\"keepalive\":{\"value\":0.25,\"source\":\"file\",\"where\":\"s.yaml:3\"}",
        "\"json_max_depth\":{\"value\":9,\"source\":\"flag\",\"where\":\"--json-max-depth\"}",
        "\"page_size\":{\"value\":100,\"source\":\"default\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        if (!strstr(buf_str(&text), members[i]))
            FAIL("expected %s in %s", members[i], buf_str(&text));
}

static void test_help_names_every_flag_and_keeps_its_width(void **state)
{
    (void)state;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    config_help(&text);
    for (size_t i = 0; i < config_options_count; i++) {
        auto_free char *flag = option_flag(&config_options[i]);
        auto_free char *line = xasprintf("\n  %s", flag);
        CHECK(flag, strstr(buf_str(&text), line));
    }
    for (const char *at = buf_str(&text); *at; at += strcspn(at, "\n") + 1)
        CHECK(at, strcspn(at, "\n") <= 80);
}

static void test_the_manual_in_docs_is_up_to_date(void **state)
{
    (void)state;
    const char *root = getenv("SOURCE_ROOT");
    auto_free char *path = xasprintf("%s/docs/configuration.md", root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file)
        FAIL("open %s: %s (SOURCE_ROOT names the source tree)", path, strerror(errno));
    auto_buf want = BUF_INIT(BUF_NO_CEILING), got = BUF_INIT(1 << 20);
    config_markdown(&want);
    char *room = buf_room(&got, 1 << 20);
    buf_added(&got, fread(room, 1, 1 << 20, file));
    (void)fclose(file);
    if (!str_eq(buf_str(&got), buf_str(&want)))
        FAIL("%s is out of date: belljar config --markdown > docs/configuration.md", path);
}

static void test_done_takes_anything(void **state)
{
    (void)state;
    config_done(NULL);
    struct config config = { 0 };
    config_done(&config);
    assert_int_equal(load(&(struct given){ 0 }, &config, NULL), 0);
    config_done(&config);
    config_done(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_complete_and_unique),
        cmocka_unit_test(test_names_follow_from_the_key),
        cmocka_unit_test(test_every_default_is_a_value_that_users_could_write),
        cmocka_unit_test(test_every_bound_holds_at_its_edge),
        cmocka_unit_test(test_defaults_are_those_we_stand_behind),
        cmocka_unit_test(test_values_of_every_type),
        cmocka_unit_test(test_what_is_allowed_is_said_in_words),
        cmocka_unit_test(test_addresses_names_and_tokens_have_their_form),
        cmocka_unit_test(test_the_strongest_source_wins),
        cmocka_unit_test(test_the_program_name_is_weaker_than_any_setting),
        cmocka_unit_test(test_an_alias_counts_in_its_profile_only),
        cmocka_unit_test(test_lists_replace_each_other_but_flags_add_up),
        cmocka_unit_test(test_flags_in_each_form),
        cmocka_unit_test(test_every_option_refuses_with_place_and_remedy),
        cmocka_unit_test(test_a_bad_setting_is_named_with_its_place),
        cmocka_unit_test(test_a_list_holds_no_more_than_its_limit),
        cmocka_unit_test(test_variables_that_are_not_ours_are_let_pass),
        cmocka_unit_test(test_yaml_is_flattened_in_the_order_of_the_file),
        cmocka_unit_test(test_yaml_beyond_our_form_is_refused),
        cmocka_unit_test(test_every_prefix_of_a_file_is_safe),
        cmocka_unit_test(test_a_file_holds_no_more_than_its_limits),
        cmocka_unit_test(test_hostile_nesting_is_refused_fast),
        cmocka_unit_test(test_a_token_file_gives_the_token),
        cmocka_unit_test(test_what_is_printed_can_be_read_again),
        cmocka_unit_test(test_printed_lines_say_where_values_came_from),
        cmocka_unit_test(test_json_has_numbers_sources_and_no_secrets),
        cmocka_unit_test(test_help_names_every_flag_and_keeps_its_width),
        cmocka_unit_test(test_the_manual_in_docs_is_up_to_date),
        cmocka_unit_test(test_done_takes_anything),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
