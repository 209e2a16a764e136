#include "check.h"

#include "mcp/header_rules.h"
#include "mcp/mcp.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

/*** headers as one line of text: "name: value\n…" ***/

static char found_value[512];

static struct mirrored look_up(const char *name, const void *data)
{
    struct mirrored found = { 0 };
    for (const char *line = data; *line;) {
        size_t len = strcspn(line, "\n");
        size_t name_len = strcspn(line, ":");
        if (name_len == strlen(name) && strncasecmp(line, name, name_len) == 0) {
            if (!found.count++) {
                size_t value_len = len - name_len - 2;
                memcpy(found_value, line + name_len + 2, value_len);
                found_value[value_len] = '\0';
                found.value = found_value;
            }
        }
        line += len + (line[len] == '\n');
    }
    return found;
}

#define META                                                                                       \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                       \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define CALL(params)                                                                               \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{" params "," META "}}"
#define LIST "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{" META "}}"
#define NOTICE "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{" META "}}"
#define V "MCP-Protocol-Version: 2026-07-28\n"

/* Compares with "" for success, else with the words. */
static void check_verdict(const char *name, int r, struct rpc_error *error, const char *want)
{
    CHECK_INT(name, r, *want ? -EBADMSG : 0);
    if (r == 0)
        return;
    CHECK_STR(name, error->text, want);
    CHECK_INT(name, error->code, MCP_HEADER_MISMATCH);
    CHECK(name, json_is_object(error->data));
    rpc_error_done(error);
}

static void parse(const char *text, json_t **ret_root, struct rpc_message *ret)
{
    struct rpc_error error;
    *ret_root = json_literal(text);
    CHECK_INT(text, rpc_parse(*ret_root, ret, &error), 0);
}

static void test_what_is_there_must_agree_with_the_body(void **state)
{
    (void)state;
    static const struct {
        const char *message, *headers, *want;
    } cases[] = {
        { LIST, "", "" },
        { LIST, V "Mcp-Method: tools/list", "" },
        { LIST, "mcp-protocol-version: 2026-07-28\nMCP-METHOD: tools/list", "" },
        { LIST, "MCP-Protocol-Version: 2025-11-25",
          "Header mismatch: MCP-Protocol-Version differs from the body" },
        { LIST, V "Mcp-Method: tools/call", "Header mismatch: Mcp-Method differs from the body" },
        { LIST, V "Mcp-Method: Tools/List", "Header mismatch: Mcp-Method differs from the body" },
        { LIST, V "Mcp-Method: ", "Header mismatch: Mcp-Method differs from the body" },
        { LIST, V V, "Header mismatch: MCP-Protocol-Version was sent more than once" },
        { LIST, "Mcp-Method: tools/list\nmcp-method: tools/list",
          "Header mismatch: Mcp-Method was sent more than once" },
        { NOTICE, V, "" },
        { NOTICE, V "Mcp-Method: notifications/initialized",
          "Header mismatch: Mcp-Method differs from the body" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *root = NULL;
        struct rpc_message message;
        struct rpc_error error;
        parse(cases[i].message, &root, &message);
        int r = header_rules_agree(&message, "2026-07-28", look_up, cases[i].headers, &error);
        check_verdict(cases[i].headers, r, &error, cases[i].want);
    }
}

static void test_a_request_must_carry_its_headers(void **state)
{
    (void)state;
    static const struct {
        const char *message, *headers, *want;
    } cases[] = {
        { LIST, V "Mcp-Method: tools/list", "" },
        { LIST, "", "Header mismatch: MCP-Protocol-Version is required" },
        { LIST, V, "Header mismatch: Mcp-Method is required" },
        { LIST, V "Mcp-Method: x", "Header mismatch: Mcp-Method differs from the body" },
        { LIST, V "Mcp-Method: tools/list\nMcp-Name: ignored", "" },
        { NOTICE, "", "" },
        { CALL("\"name\":\"run\""), V "Mcp-Method: tools/call\nMcp-Name: run", "" },
        { CALL("\"name\":\"run\""), V "Mcp-Method: tools/call",
          "Header mismatch: Mcp-Name is required" },
        { CALL("\"name\":\"run\""), V "Mcp-Method: tools/call\nMcp-Name: Run",
          "Header mismatch: Mcp-Name differs from the body" },
        { CALL("\"name\":\"run\""), V "Mcp-Method: tools/call\nMcp-Name: run\nMcp-Name: run",
          "Header mismatch: Mcp-Name was sent more than once" },
        { CALL("\"name\":\"run\""), V "Mcp-Method: tools/call\nMcp-Name: =?base64?cnVu?=", "" },
        { CALL("\"name\":\"run\""), V "Mcp-Method: tools/call\nMcp-Name: =?base64?cnV?=",
          "Header mismatch: Mcp-Name is neither plain ASCII nor valid =?base64?…?=" },
        { CALL("\"name\":\"r\xc3\xa4n\""),
          V "Mcp-Method: tools/call\nMcp-Name: =?base64?csOkbg==?=", "" },
        { CALL("\"name\":\"r\xc3\xa4n\""), V "Mcp-Method: tools/call\nMcp-Name: r\xc3\xa4n",
          "Header mismatch: Mcp-Name is neither plain ASCII nor valid =?base64?…?=" },
        /* without the field there is nothing to repeat */
        { CALL("\"arguments\":{}"), V "Mcp-Method: tools/call", "" },
        { CALL("\"name\":7"), V "Mcp-Method: tools/call\nMcp-Name: 7", "" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/"
          "read\",\"params\":{\"uri\":\"a:b\"," META "}}",
          V "Mcp-Method: resources/read\nMcp-Name: a:c",
          "Header mismatch: Mcp-Name differs from the body" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/"
          "get\",\"params\":{\"name\":\"p\"," META "}}",
          V "Mcp-Method: prompts/get", "Header mismatch: Mcp-Name is required" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/"
          "get\",\"params\":{\"taskId\":\"t\"," META "}}",
          V "Mcp-Method: tasks/get", "Header mismatch: Mcp-Name is required" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *root = NULL;
        struct rpc_message message;
        struct rpc_error error;
        parse(cases[i].message, &root, &message);
        int r = header_rules_required(&message, look_up, cases[i].headers, &error);
        check_verdict(cases[i].headers, r, &error, cases[i].want);
    }
}

static void test_a_difference_is_shown_in_the_data(void **state)
{
    (void)state;
    auto_json *root = NULL;
    struct rpc_message message;
    struct rpc_error error;
    parse(CALL("\"name\":\"run\""), &root, &message);
    assert_int_equal(
        header_rules_required(&message, look_up, V "Mcp-Method: tools/call\nMcp-Name: rn", &error),
        -EBADMSG);
    auto_free char *text = json_text(error.data);
    assert_string_equal(
        text, "{\"header\":\"Mcp-Name\",\"mismatch\":{\"header\":\"rn\",\"body\":\"run\"}}");
    rpc_error_done(&error);
}

static void test_arguments_must_agree_with_their_headers(void **state)
{
    (void)state;
    static const char schema_text[] = "{\"type\":\"object\",\"properties\":{"
                                      "\"s\":{\"type\":\"string\",\"x-mcp-header\":\"Text\"},"
                                      "\"i\":{\"type\":\"integer\",\"x-mcp-header\":\"Count\"},"
                                      "\"b\":{\"type\":\"boolean\",\"x-mcp-header\":\"Flag\"},"
                                      "\"plain\":{\"type\":\"string\"},"
                                      "\"o\":{\"type\":\"object\",\"properties\":{"
                                      "\"in\":{\"type\":\"string\",\"x-mcp-header\":\"Inner\"}}}}}";
    static const struct {
        const char *arguments, *headers, *want;
    } cases[] = {
        { "{}", "", "" },
        { "{\"plain\":\"x\"}", "", "" },
        { "{}", "Mcp-Param-Other: 1", "" },
        { "{\"s\":\"a\",\"i\":1,\"b\":true,\"o\":{\"in\":\"z\"}}",
          "Mcp-Param-Text: a\nmcp-param-count: 1\nMCP-PARAM-FLAG: true\nMcp-Param-Inner: z", "" },

        { "{\"s\":\"a\"}", "", "Header mismatch: Mcp-Param-Text is required" },
        { "{\"s\":\"a\"}", "Mcp-Param-Text: A",
          "Header mismatch: Mcp-Param-Text differs from the body" },
        { "{\"s\":\"a\"}", "Mcp-Param-Text: a\nMcp-Param-Text: a",
          "Header mismatch: Mcp-Param-Text was sent more than once" },
        { "{\"s\":null}", "", "" },
        { "{}", "Mcp-Param-Text: a",
          "Header mismatch: Mcp-Param-Text has no counterpart in the body" },
        { "{\"s\":null}", "Mcp-Param-Text: null",
          "Header mismatch: Mcp-Param-Text has no counterpart in the body" },
        { "{\"s\":\"\"}", "Mcp-Param-Text: ", "" },
        { "{\"s\":\"\"}", "Mcp-Param-Text: =?base64?\?=", "" },
        { "{\"s\":\"Hello\"}", "Mcp-Param-Text: =?base64?SGVsbG8=?=", "" },
        { "{\"s\":\"Hello\"}", "Mcp-Param-Text: =?base64?SGVsbG8?=",
          "Header mismatch: Mcp-Param-Text is neither plain ASCII nor valid =?base64?…?=" },
        { "{\"s\":\"Hello\"}", "Mcp-Param-Text: =?base64?SGVs!!!bG8=?=",
          "Header mismatch: Mcp-Param-Text is neither plain ASCII nor valid =?base64?…?=" },
        { "{\"s\":\"SGVsbG8=\"}", "Mcp-Param-Text: SGVsbG8=", "" },
        { "{\"s\":\"=?base64?SGVsbG8=\"}", "Mcp-Param-Text: =?base64?SGVsbG8=", "" },
        { "{\"s\":\"42\"}", "Mcp-Param-Text: 42.0",
          "Header mismatch: Mcp-Param-Text differs from the body" },
        { "{\"s\":[1]}", "", "" }, /* refused with the arguments */

        { "{\"i\":42}", "Mcp-Param-Count: 42", "" },
        { "{\"i\":42}", "Mcp-Param-Count: 42.0", "" },
        { "{\"i\":42.0}", "Mcp-Param-Count: 42", "" },
        { "{\"i\":42}", "Mcp-Param-Count: 4.2e1", "" },
        { "{\"i\":42}", "Mcp-Param-Count: =?base64?NDI=?=", "" },
        { "{\"i\":-1}", "Mcp-Param-Count: -1", "" },
        { "{\"i\":0}", "Mcp-Param-Count: -0.0", "" },
        { "{\"i\":42}", "Mcp-Param-Count: 43",
          "Header mismatch: Mcp-Param-Count differs from the body" },
        { "{\"i\":42}", "Mcp-Param-Count: 42x",
          "Header mismatch: Mcp-Param-Count differs from the body" },
        { "{\"i\":42}", "Mcp-Param-Count: 0x2a",
          "Header mismatch: Mcp-Param-Count differs from the body" },
        { "{\"i\":42}", "Mcp-Param-Count: [42]",
          "Header mismatch: Mcp-Param-Count differs from the body" },
        { "{\"i\":42}",
          "Mcp-Param-Count: ", "Header mismatch: Mcp-Param-Count differs from the body" },
        { "{\"i\":42}", "", "Header mismatch: Mcp-Param-Count is required" },
        { "{\"i\":9007199254740991}", "", "Header mismatch: Mcp-Param-Count is required" },
        { "{\"i\":9007199254740993}", "", "" }, /* no client can send it */
        { "{\"i\":9007199254740993}", "Mcp-Param-Count: 9007199254740993", "" },
        { "{\"i\":9007199254740993}", "Mcp-Param-Count: 9007199254740992.0",
          "Header mismatch: Mcp-Param-Count differs from the body" },
        { "{\"i\":1.5}", "Mcp-Param-Count: 1.5", "" }, /* refused with the arguments */

        { "{\"b\":false}", "Mcp-Param-Flag: false", "" },
        { "{\"b\":false}", "Mcp-Param-Flag: true",
          "Header mismatch: Mcp-Param-Flag differs from the body" },
        { "{\"b\":true}", "Mcp-Param-Flag: True",
          "Header mismatch: Mcp-Param-Flag differs from the body" },

        { "{\"o\":{\"in\":\"z\"}}", "", "Header mismatch: Mcp-Param-Inner is required" },
        { "{\"o\":{}}", "", "" },
        { "{\"o\":7}", "", "" },
    };
    auto_json *schema = json_literal(schema_text);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *arguments = json_literal(cases[i].arguments);
        struct rpc_error error;
        int r = header_rules_params(schema, arguments, look_up, cases[i].headers, &error);
        check_verdict(cases[i].headers, r, &error, cases[i].want);
    }
    struct rpc_error error;
    assert_int_equal(header_rules_params(schema, NULL, look_up, "", &error), 0);
}

static void test_only_complete_sentinels_are_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *value, *want; /* NULL: refused */
    } cases[] = {
        { "", "" },
        { "plain text\twith tab ~", "plain text\twith tab ~" },
        { "=?base64?SGVsbG8=?=", "Hello" },
        { "=?base64?\?=", "" },
        { "=?base64?=", "=?base64?=" },
        { "=?base64?SGVsbG8=", "=?base64?SGVsbG8=" },
        { "SGVsbG8=?=", "SGVsbG8=?=" },
        { "=?Base64?SGVsbG8=?=", "=?Base64?SGVsbG8=?=" },
        { "=?base64?SGVsbG8?=", NULL },   /* padding missing */
        { "=?base64?SGVsbG9=?=", NULL },  /* unused bits set */
        { "=?base64?SGVs bG8=?=", NULL }, /* a space */
        { "=?base64?_-__?=", NULL },      /* the other alphabet */
        { "=?base64?/w==?=", NULL },      /* not UTF-8 */
        { "caf\xc3\xa9", NULL },          /* would have to be encoded */
        { "bell\x07", NULL },
        { "del\x7f", NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_buf decoded = BUF_INIT(100);
        assert_int_equal(buf_add_str(&decoded, ">"), 0);
        int r = header_rules_decode(cases[i].value, &decoded);
        CHECK_INT(cases[i].value, r, cases[i].want ? 0 : -EINVAL);
        CHECK_STR(cases[i].value, buf_str(&decoded) + 1, cases[i].want ? cases[i].want : "");
    }
    auto_buf small = BUF_INIT(2);
    assert_int_equal(header_rules_decode("abc", &small), -EINVAL);
    assert_int_equal(header_rules_decode("=?base64?SGVsbG8=?=", &small), -EINVAL);
}

static void test_eras_are_told_by_the_version_header(void **state)
{
    (void)state;
    assert_true(header_rules_is_stateless("2026-07-28"));
    assert_true(header_rules_is_stateless("2027-01-01"));
    assert_true(header_rules_is_stateless("v999.0.0"));
    assert_false(header_rules_is_stateless("2026-07-27"));
    assert_false(header_rules_is_stateless("2025-11-25"));
    assert_false(header_rules_is_stateless("2026-07"));
    assert_false(header_rules_is_stateless(""));
    assert_false(header_rules_is_stateless(NULL));
}

static void test_only_utf8_json_is_json(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool want;
    } cases[] = {
        { "application/json", true },
        { "Application/JSON", true },
        { "application/json;charset=utf-8", true },
        { "application/json ; Charset=\"UTF-8\"", true },
        { "application/json; a=b; charset=utf-8 ", true },
        { "application/json; a=\"x;\\\"y\"", true },
        { "application/json; charset=latin1", false },
        { "application/json; charset", false },
        { "application/json; charset=\"utf-8", false },
        { "application/json;", false },
        { "application/json, text/plain", false },
        { "application/jsonp", false },
        { "application/json-rpc", false },
        { "text/plain", false },
        { "", false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_INT(cases[i].value, header_rules_is_json(cases[i].value), cases[i].want);
    assert_false(header_rules_is_json(NULL));
}

static void test_the_closest_range_decides_what_is_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        bool json, sse;
    } cases[] = {
        { "application/json, text/event-stream", true, true },
        { "text/event-stream,application/json", true, true },
        { "application/json", true, false },
        { "APPLICATION/JSON;q=0.5", true, false },
        { "*/*", true, true },
        { "text/*", false, true },
        { "*/*, text/event-stream;q=0", true, false },
        { "text/event-stream; q=0.000, */*;q=0.1", true, false },
        { "*/*;q=0, application/*", true, false },
        { "text/*;q=0, text/event-stream", false, true },
        { "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", true, true },
        { "application/json;profile=\"a,b\", text/event-stream", true, true },
        { "application/json garbage, text/event-stream", false, true },
        { " , ,application/json", true, false },
        { "application/jsonx, text/event", false, false },
        { "application/*x", false, false },
        { "applications", false, false },
        { "", false, false },
        { NULL, true, true },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *name = cases[i].accept ? cases[i].accept : "none";
        CHECK_INT(name, header_rules_accepts(cases[i].accept, "application/json"), cases[i].json);
        CHECK_INT(name, header_rules_accepts(cases[i].accept, "text/event-stream"), cases[i].sse);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_there_must_agree_with_the_body),
        cmocka_unit_test(test_a_request_must_carry_its_headers),
        cmocka_unit_test(test_a_difference_is_shown_in_the_data),
        cmocka_unit_test(test_arguments_must_agree_with_their_headers),
        cmocka_unit_test(test_only_complete_sentinels_are_decoded),
        cmocka_unit_test(test_eras_are_told_by_the_version_header),
        cmocka_unit_test(test_only_utf8_json_is_json),
        cmocka_unit_test(test_the_closest_range_decides_what_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
