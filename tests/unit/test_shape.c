#include "check.h"

#include "mcp/shape.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/*** a shape with every kind of field and rule ***/

struct limits {
    int64_t memory;
    double cpu;
    bool has_cpu;
};
static const struct field limits_fields[] = {
    FIELD_INT(struct limits, memory, "MiB.", RANGE(1, 4096), PRESET_INT(256)),
    FIELD_REAL(struct limits, cpu, "Cores.", RANGE_REAL(0.5, 8), HAS_FLAG(struct limits, has_cpu)),
    FIELD_END,
};
static const struct shape limits_shape = SHAPE(struct limits, limits_fields);

struct file {
    const char *path;
    struct str_list tags;
};
static const struct field file_fields[] = {
    FIELD_STR(struct file, path, "Where.", .required = true, .min_len = 1, .max_len = 8),
    FIELD_STRS(struct file, tags, NULL),
    FIELD_END,
};
static const struct shape file_shape = SHAPE(struct file, file_fields);

struct args {
    const char *code;
    const char *language;
    const char *session_id;
    int64_t timeout;
    bool has_timeout;
    double ratio;
    bool keep;
    const json_t *env;
    struct str_list packages;
    struct limits limits;
    bool has_limits;
    struct obj_list files;
};
static const char *const languages[] = { "python", "bash", NULL };
static const struct field args_fields[] = {
    FIELD_STR(struct args, code, "What to run.", .required = true, .max_len = 20),
    FIELD_STR(struct args, language, "In which language.", .choices = languages, .any_case = true,
              .preset_str = "python"),
    FIELD_STR(struct args, session_id, "Where.", .nullable = true, .mcp_header = NULL),
    FIELD_INT(struct args, timeout, "Seconds.", RANGE(1, 600), PRESET_INT(30),
              HAS_FLAG(struct args, has_timeout), .mcp_header = "Timeout"),
    FIELD_REAL(struct args, ratio, NULL, PRESET_REAL(0.5)),
    FIELD_BOOL(struct args, keep, "Whether to keep it.", PRESET_BOOL(true)),
    FIELD_JSON(struct args, env, "Variables."),
    FIELD_STRS(struct args, packages, "To install.", .max_len = 3, .item_max_len = 10),
    FIELD_OBJECT(struct args, limits, "Bounds.", &limits_shape, HAS_FLAG(struct args, has_limits)),
    FIELD_OBJECTS(struct args, files, "To write.", &file_shape, .min_len = 1, .max_len = 2),
    FIELD_END,
};
static const struct shape args_shape = SHAPE(struct args, args_fields);

/*** schema ***/

static void test_the_schema_says_every_rule(void **state)
{
    (void)state;
    auto_json *schema = shape_schema(&args_shape);
    auto_free char *text = json_text(schema);
    assert_string_equal(
        text,
        "{\"type\":\"object\",\"properties\":{"
        "\"code\":{\"type\":\"string\",\"description\":\"What to run.\",\"maxLength\":20},"
        "\"language\":{\"type\":\"string\",\"description\":\"In which language.\","
        "\"enum\":[\"python\",\"bash\"],\"default\":\"python\"},"
        "\"session_id\":{\"type\":[\"string\",\"null\"],\"description\":\"Where.\"},"
        "\"timeout\":{\"type\":\"integer\",\"description\":\"Seconds.\",\"minimum\":1,"
        "\"maximum\":600,\"default\":30,\"x-mcp-header\":\"Timeout\"},"
        "\"ratio\":{\"type\":\"number\",\"default\":0.5},"
        "\"keep\":{\"type\":\"boolean\",\"description\":\"Whether to keep it.\",\"default\":true},"
        "\"env\":{\"type\":\"object\",\"description\":\"Variables.\"},"
        "\"packages\":{\"type\":\"array\",\"description\":\"To install.\","
        "\"items\":{\"type\":\"string\",\"maxLength\":10},\"maxItems\":3},"
        "\"limits\":{\"type\":\"object\",\"description\":\"Bounds.\",\"properties\":{"
        "\"memory\":{\"type\":\"integer\",\"description\":\"MiB.\",\"minimum\":1,\"maximum\":4096,"
        "\"default\":256},"
        "\"cpu\":{\"type\":\"number\",\"description\":\"Cores.\",\"minimum\":0.5,\"maximum\":8.0}},"
        "\"additionalProperties\":false},"
        "\"files\":{\"type\":\"array\",\"description\":\"To "
        "write.\",\"items\":{\"type\":\"object\","
        "\"properties\":{"
        "\"path\":{\"type\":\"string\",\"description\":\"Where.\",\"minLength\":1,\"maxLength\":8},"
        "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},"
        "\"required\":[\"path\"],\"additionalProperties\":false},\"minItems\":1,\"maxItems\":2}},"
        "\"required\":[\"code\"],\"additionalProperties\":false}");
}

static void test_a_shape_without_fields_takes_an_empty_object(void **state)
{
    (void)state;
    static const struct field none[] = { FIELD_END };
    static const struct shape empty = { .fields = none };
    const struct shape *const shapes[] = { NULL, &empty };
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        auto_json *schema = shape_schema(shapes[i]);
        auto_free char *text = json_text(schema);
        assert_string_equal(text, "{\"type\":\"object\",\"additionalProperties\":false}");

        struct err err = { 0 };
        auto_json *nothing = json_object();
        auto_json *something = json_literal("{\"a\":1}");
        assert_int_equal(shape_decode(shapes[i], nothing, NULL, &err), 0);
        shape_done(shapes[i], NULL);
        assert_int_equal(shape_decode(shapes[i], something, NULL, &err), -EINVAL);
        assert_string_equal(err.msg, "unknown member \"a\"; none is taken");
        auto_json *encoded = shape_encode(shapes[i], NULL);
        assert_int_equal(json_object_size(encoded), 0);
    }
}

static void test_a_minimum_length_in_bytes_never_asks_for_more_characters(void **state)
{
    (void)state;
    struct one {
        const char *text;
    };
    static const struct field fields[] = {
        FIELD_STR(struct one, text, NULL, .min_len = 5),
        FIELD_END,
    };
    static const struct shape shape = SHAPE(struct one, fields);
    auto_json *schema = shape_schema(&shape);
    const json_t *text = json_object_get(json_object_get(schema, "properties"), "text");
    assert_int_equal(json_integer_value(json_object_get(text, "minLength")), 2);

    auto_json *two_characters = json_literal("{\"text\":\"\xf0\x9f\x94\x94\xc3\xa4\"}");
    struct one one;
    assert_int_equal(shape_decode(&shape, two_characters, &one, NULL), 0);
}

/*** decoding ***/

static void test_everything_given_arrives(void **state)
{
    (void)state;
    auto_json *json = json_literal(
        "{\"code\":\"1+1\",\"language\":\"BASH\",\"session_id\":\"s\",\"timeout\":5.0,\"ratio\":2,"
        "\"keep\":false,\"env\":{\"A\":[1]},\"packages\":[\"numpy\",\"\"],"
        "\"limits\":{\"memory\":1,\"cpu\":1.5},"
        "\"files\":[{\"path\":\"a\",\"tags\":[\"x\",\"y\"]},{\"path\":\"b\"}]}");
    struct args args;
    struct err err = { 0 };
    CHECK_INT(err.msg, shape_decode(&args_shape, json, &args, &err), 0);
    assert_string_equal(args.code, "1+1");
    assert_ptr_equal(args.language, languages[1]); /* in the spelling of the table */
    assert_string_equal(args.session_id, "s");
    assert_int_equal(args.timeout, 5);
    assert_true(args.has_timeout);
    assert_true(args.ratio == 2);
    assert_false(args.keep);
    assert_ptr_equal(args.env, json_object_get(json, "env"));
    assert_int_equal(args.packages.count, 2);
    assert_string_equal(args.packages.items[0], "numpy");
    assert_string_equal(args.packages.items[1], "");
    assert_true(args.has_limits);
    assert_int_equal(args.limits.memory, 1);
    assert_true(args.limits.has_cpu && args.limits.cpu == 1.5);
    const struct file *files = args.files.items;
    assert_int_equal(args.files.count, 2);
    assert_string_equal(files[0].path, "a");
    assert_int_equal(files[0].tags.count, 2);
    assert_string_equal(files[0].tags.items[1], "y");
    assert_string_equal(files[1].path, "b");
    assert_null(files[1].tags.items);
    shape_done(&args_shape, &args);
    shape_done(&args_shape, &args); /* once more does no harm */
}

static void test_what_is_absent_or_null_keeps_its_preset(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"code\":\"\"}",
        "{\"code\":\"\",\"language\":null,\"session_id\":null,\"timeout\":null,\"ratio\":null,"
        "\"keep\":null,\"env\":null,\"packages\":null,\"limits\":null,\"files\":null}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        auto_json *json = json_literal(texts[i]);
        struct args args;
        memset(&args, 0xff, sizeof(args));
        struct err err = { 0 };
        CHECK_INT(err.msg, shape_decode(&args_shape, json, &args, &err), 0);
        assert_string_equal(args.code, "");
        assert_string_equal(args.language, "python");
        assert_null(args.session_id);
        assert_int_equal(args.timeout, 30);
        assert_false(args.has_timeout);
        assert_true(args.ratio == 0.5);
        assert_true(args.keep);
        assert_null(args.env);
        assert_null(args.packages.items);
        assert_int_equal(args.packages.count, 0);
        assert_false(args.has_limits);
        assert_int_equal(args.limits.memory, 256);
        assert_false(args.limits.has_cpu);
        assert_int_equal(args.files.count, 0);
        shape_done(&args_shape, &args);
    }
}

static void test_an_error_names_the_field_the_rule_and_the_value(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {
        { "[]", "expected an object, got an array of 0" },
        { "\"x\"", "expected an object, got \"x\"" },
        { "{}", "code: missing; expected a string of at most 20 bytes" },
        { "{\"code\":null}", "code: expected a string of at most 20 bytes, got null" },
        { "{\"code\":7}", "code: expected a string of at most 20 bytes, got 7" },
        { "{\"code\":\"123456789012345678901\"}",
          "code: expected a string of at most 20 bytes, got \"123456789012345678901\"" },
        { "{\"code\":\"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
          "\xc3\xa4\xc3\xa4\"}",
          "code: expected a string of at most 20 bytes, got \"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
          "\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\" (22 bytes)" },
        { "{\"code\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\xc3\xa4x\"}",
          "code: expected a string of at most 20 bytes, got "
          "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…\" (42 bytes)" },
        { "{\"code\":\"\",\"language\":\"ruby\"}",
          "language: expected one of \"python\", \"bash\", got \"ruby\"" },
        { "{\"code\":\"\",\"language\":\"line\\nbreak\"}",
          "language: expected one of \"python\", \"bash\", got \"line\\nbreak\"" },
        { "{\"code\":\"\",\"session_id\":1}", "session_id: expected a string or null, got 1" },
        { "{\"code\":\"\",\"timeout\":0}", "timeout: expected an integer from 1 to 600, got 0" },
        { "{\"code\":\"\",\"timeout\":601}",
          "timeout: expected an integer from 1 to 600, got 601" },
        { "{\"code\":\"\",\"timeout\":1.5}",
          "timeout: expected an integer from 1 to 600, got 1.5" },
        { "{\"code\":\"\",\"timeout\":1e300}",
          "timeout: expected an integer from 1 to 600, got 1e300" },
        { "{\"code\":\"\",\"timeout\":\"5\"}",
          "timeout: expected an integer from 1 to 600, got \"5\"" },
        { "{\"code\":\"\",\"timeout\":true}",
          "timeout: expected an integer from 1 to 600, got true" },
        { "{\"code\":\"\",\"ratio\":\"1\"}", "ratio: expected a number, got \"1\"" },
        { "{\"code\":\"\",\"keep\":\"yes\"}", "keep: expected true or false, got \"yes\"" },
        { "{\"code\":\"\",\"keep\":1}", "keep: expected true or false, got 1" },
        { "{\"code\":\"\",\"env\":[1]}", "env: expected an object, got an array of 1" },
        { "{\"code\":\"\",\"packages\":\"numpy\"}",
          "packages: expected an array of at most 3 strings, got \"numpy\"" },
        { "{\"code\":\"\",\"packages\":[\"a\",\"b\",\"c\",\"d\"]}",
          "packages: expected an array of at most 3 strings, got an array of 4" },
        { "{\"code\":\"\",\"packages\":[\"a\",\"b\",{}]}",
          "packages[2]: expected a string of at most 10 bytes, got an object" },
        { "{\"code\":\"\",\"packages\":[null]}",
          "packages[0]: expected a string of at most 10 bytes, got null" },
        { "{\"code\":\"\",\"limits\":7}", "limits: expected an object, got 7" },
        { "{\"code\":\"\",\"limits\":{\"cpu\":0.25}}",
          "limits.cpu: expected a number from 0.5 to 8.0, got 0.25" },
        { "{\"code\":\"\",\"limits\":{\"memry\":1}}",
          "limits: unknown member \"memry\", did you mean \"memory\"? Known are memory, cpu" },
        { "{\"code\":\"\",\"files\":[]}",
          "files: expected an array of 1 to 2 objects, got an array of 0" },
        { "{\"code\":\"\",\"files\":[{\"path\":\"a\",\"tags\":[\"t\"]},{}]}",
          "files[1].path: missing; expected a string of 1 to 8 bytes" },
        { "{\"code\":\"\",\"files\":[{\"path\":\"a\",\"tags\":[\"t\",0]}]}",
          "files[0].tags[1]: expected a string, got 0" },
        { "{\"code\":\"\",\"files\":[{\"path\":\"\"}]}",
          "files[0].path: expected a string of 1 to 8 bytes, got \"\"" },
        { "{\"code\":\"\",\"files\":[{\"path\":\"a\"},{\"path\":\"a\"},{\"path\":\"a\"}]}",
          "files: expected an array of 1 to 2 objects, got an array of 3" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *json = json_literal(cases[i].in);
        struct args args;
        struct err err = { 0 };
        CHECK_INT(cases[i].in, shape_decode(&args_shape, json, &args, &err), -EINVAL);
        CHECK_STR(cases[i].in, err.msg, cases[i].want);
        CHECK_INT(cases[i].in, err.code, EINVAL);
        CHECK(cases[i].in, !args.code && !args.packages.items && !args.files.items);
        CHECK_INT(cases[i].in, shape_decode(&args_shape, json, &args, NULL), -EINVAL);
    }
}

#define KNOWN "code, language, session_id, timeout, ratio, keep, env, packages, limits, files"

static void test_an_unknown_member_is_named_with_its_nearest_neighbour(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {
        { "{\"cod\":\"x\"}", "unknown member \"cod\", did you mean \"code\"? Known are " KNOWN },
        { "{\"sessionId\":\"x\"}",
          "unknown member \"sessionId\", did you mean \"session_id\"? Known are " KNOWN },
        { "{\"tiemout\":1}",
          "unknown member \"tiemout\", did you mean \"timeout\"? Known are " KNOWN },
        { "{\"Language\":1}",
          "unknown member \"Language\", did you mean \"language\"? Known are " KNOWN },
        { "{\"x\":1}", "unknown member \"x\"; known are " KNOWN },
        { "{\"\":1}", "unknown member \"\"; known are " KNOWN },
        { "{\"interpreter\":1}", "unknown member \"interpreter\"; known are " KNOWN },
        { "{\"a\\u001b[31m\":1}", "unknown member \"a\\u001b[31m\"; known are " KNOWN },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *json = json_literal(cases[i].in);
        struct args args;
        struct err err = { 0 };
        CHECK_INT(cases[i].in, shape_decode(&args_shape, json, &args, &err), -EINVAL);
        CHECK_STR(cases[i].in, err.msg, cases[i].want);
    }
}

static void test_a_huge_member_name_is_shortened(void **state)
{
    (void)state;
    char name[3000];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    auto_json *json = json_object();
    json_put(json, name, json_true());
    struct args args;
    struct err err = { 0 };
    assert_int_equal(shape_decode(&args_shape, json, &args, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "nnn…\"; known are code"));
}

static void test_a_nul_in_a_string_is_refused(void **state)
{
    (void)state;
    auto_json *json = json_pack("{s:s#}", "code", "a\0b", 3);
    auto_json *list = json_pack("{s:s,s:[s#]}", "code", "", "packages", "\0", 1);
    struct args args;
    struct err err = { 0 };
    assert_int_equal(shape_decode(&args_shape, json, &args, &err), -EINVAL);
    assert_string_equal(err.msg, "code: expected a string without NUL bytes, got \"a\\u0000b\"");
    assert_int_equal(shape_decode(&args_shape, list, &args, &err), -EINVAL);
    assert_string_equal(err.msg,
                        "packages[0]: expected a string without NUL bytes, got \"\\u0000\"");
}

struct number {
    int64_t whole;
    double real;
};
static const struct field number_fields[] = {
    FIELD_INT(struct number, whole, NULL),
    FIELD_REAL(struct number, real, NULL),
    FIELD_END,
};
static const struct shape number_shape = SHAPE(struct number, number_fields);

static void test_integers_keep_all_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        int64_t want;
    } cases[] = {
        { "{\"whole\":9223372036854775807}", INT64_MAX },
        { "{\"whole\":-9223372036854775808}", INT64_MIN },
        { "{\"whole\":9007199254740993}", 9007199254740993 },
        { "{\"whole\":-9223372036854775808.0}", INT64_MIN },
        { "{\"whole\":1e3}", 1000 },
        { "{\"whole\":-0.0}", 0 },
    };
    struct number number;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *json = json_literal(cases[i].in);
        CHECK_INT(cases[i].in, shape_decode(&number_shape, json, &number, NULL), 0);
        CHECK_INT(cases[i].in, number.whole, cases[i].want);
    }
    auto_json *beyond = json_literal("{\"whole\":9223372036854775808.0}");
    assert_int_equal(shape_decode(&number_shape, beyond, &number, NULL), -EINVAL);
}

static void test_lower_and_upper_bounds_stand_alone(void **state)
{
    (void)state;
    struct half {
        int64_t low;
        double high;
        const char *text;
        struct str_list list;
    };
    static const struct field fields[] = {
        FIELD_INT(struct half, low, NULL, .has_min = true, .min = 0),
        FIELD_REAL(struct half, high, NULL, .has_max = true, .max_real = 1),
        FIELD_STR(struct half, text, NULL, .min_len = 3),
        FIELD_STRS(struct half, list, NULL, .min_len = 1, .choices = languages),
        FIELD_END,
    };
    static const struct shape shape = SHAPE(struct half, fields);
    static const struct {
        const char *in, *want;
    } cases[] = {
        { "{\"low\":-1}", "low: expected an integer of at least 0, got -1" },
        { "{\"high\":1.5}", "high: expected a number of at most 1.0, got 1.5" },
        { "{\"text\":\"ab\"}", "text: expected a string of at least 3 bytes, got \"ab\"" },
        { "{\"list\":[]}", "list: expected an array of at least 1 string, got an array of 0" },
        { "{\"list\":[\"bash\",\"c\"]}",
          "list[1]: expected one of \"python\", \"bash\", got \"c\"" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *json = json_literal(cases[i].in);
        struct half half;
        struct err err = { 0 };
        CHECK_INT(cases[i].in, shape_decode(&shape, json, &half, &err), -EINVAL);
        CHECK_STR(cases[i].in, err.msg, cases[i].want);
    }
}

/*** encoding ***/

static void check_encoded(const struct shape *shape, const void *value, const char *want)
{
    auto_json *json = shape_encode(shape, value);
    auto_free char *text = json_text(json);
    assert_string_equal(text, want);
}

static void test_encoding_writes_what_is_there(void **state)
{
    (void)state;
    const char *packages[] = { "a", "b" };
    const char *tags[] = { "t" };
    struct file files[] = { { .path = "p", .tags = { tags, 1 } }, { .path = "q" } };
    auto_json *env = json_literal("{\"A\":1}");
    struct args args = {
        .code = "x",
        .language = "bash",
        .session_id = "s",
        .timeout = 3,
        .has_timeout = true,
        .ratio = 0.1,
        .keep = true,
        .env = env,
        .packages = { packages, 2 },
        .limits = { .memory = 5, .cpu = 2, .has_cpu = true },
        .has_limits = true,
        .files = { files, 2 },
    };
    check_encoded(&args_shape, &args,
                  "{\"code\":\"x\",\"language\":\"bash\",\"session_id\":\"s\",\"timeout\":3,"
                  "\"ratio\":0.1,\"keep\":true,\"env\":{\"A\":1},\"packages\":[\"a\",\"b\"],"
                  "\"limits\":{\"memory\":5,\"cpu\":2.0},"
                  "\"files\":[{\"path\":\"p\",\"tags\":[\"t\"]},{\"path\":\"q\"}]}");
}

static void test_encoding_leaves_out_what_is_not_there(void **state)
{
    (void)state;
    struct args args = { .code = "" };
    check_encoded(&args_shape, &args,
                  "{\"code\":\"\",\"session_id\":null,\"ratio\":0.0,\"keep\":false}");
}

struct report {
    struct str_list files;
    double share;
    struct limits used;
    bool has_used;
};
static const struct field report_fields[] = {
    FIELD_STRS(struct report, files, NULL, .required = true),
    FIELD_REAL(struct report, share, NULL, .required = true, .nullable = true),
    FIELD_OBJECT(struct report, used, NULL, &limits_shape, .required = true, .nullable = true,
                 HAS_FLAG(struct report, has_used)),
    FIELD_END,
};
static const struct shape report_shape = SHAPE(struct report, report_fields);

static void test_required_members_are_always_written(void **state)
{
    (void)state;
    struct report report = { .share = NAN };
    check_encoded(&report_shape, &report, "{\"files\":[],\"share\":null,\"used\":null}");
}

static void test_bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    struct file file = { .path = "a\xff" };
    check_encoded(&file_shape, &file, "{\"path\":\"a\xef\xbf\xbd\"}");
}

static void test_what_is_decoded_encodes_to_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"code\":\"1+1\",\"language\":\"bash\",\"session_id\":null,\"timeout\":5,\"ratio\":2.5,"
        "\"keep\":false,\"env\":{\"A\":[1]},\"packages\":[],\"limits\":{\"memory\":1,\"cpu\":1.5},"
        "\"files\":[{\"path\":\"a\",\"tags\":[\"x\",\"y\"]},{\"path\":\"b\"}]}",
        "{\"code\":\"\xf0\x9f\x94\x94\",\"language\":\"python\",\"session_id\":\"\",\"ratio\":0.0,"
        "\"keep\":true}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        auto_json *json = json_literal(texts[i]);
        struct args args;
        assert_int_equal(shape_decode(&args_shape, json, &args, NULL), 0);
        check_encoded(&args_shape, &args, texts[i]);
        shape_done(&args_shape, &args);
    }
}

static void test_a_list_without_a_shape_holds_any_objects(void **state)
{
    (void)state;
    struct any {
        struct obj_list items;
    };
    static const struct field fields[] = {
        FIELD_OBJECTS(struct any, items, "Any.", NULL, .max_len = 2),
        FIELD_END,
    };
    static const struct shape shape = SHAPE(struct any, fields);
    auto_json *schema = shape_schema(&shape), *given = json_literal("{\"items\":[{\"a\":1},{}]}");
    auto_free char *text = json_text(schema);
    assert_non_null(strstr(text, "\"items\":{\"type\":\"object\"}"));
    struct any any;
    struct err err = { 0 };
    assert_int_equal(shape_decode(&shape, given, &any, &err), 0);
    assert_int_equal(any.items.count, 2);
    auto_json *encoded = shape_encode(&shape, &any);
    assert_true(json_equal(encoded, given));
    shape_done(&shape, &any);
    auto_json *none = shape_encode(&shape, &any);
    assert_int_equal(json_object_size(none), 0);
    auto_json *bad = json_literal("{\"items\":[1]}");
    assert_true(shape_decode(&shape, bad, &any, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list_without_a_shape_holds_any_objects),
        cmocka_unit_test(test_the_schema_says_every_rule),
        cmocka_unit_test(test_a_shape_without_fields_takes_an_empty_object),
        cmocka_unit_test(test_a_minimum_length_in_bytes_never_asks_for_more_characters),
        cmocka_unit_test(test_everything_given_arrives),
        cmocka_unit_test(test_what_is_absent_or_null_keeps_its_preset),
        cmocka_unit_test(test_an_error_names_the_field_the_rule_and_the_value),
        cmocka_unit_test(test_an_unknown_member_is_named_with_its_nearest_neighbour),
        cmocka_unit_test(test_a_huge_member_name_is_shortened),
        cmocka_unit_test(test_a_nul_in_a_string_is_refused),
        cmocka_unit_test(test_integers_keep_all_64_bits),
        cmocka_unit_test(test_lower_and_upper_bounds_stand_alone),
        cmocka_unit_test(test_encoding_writes_what_is_there),
        cmocka_unit_test(test_encoding_leaves_out_what_is_not_there),
        cmocka_unit_test(test_required_members_are_always_written),
        cmocka_unit_test(test_bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(test_what_is_decoded_encodes_to_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
