#include "check.h"

#include "mcp/mcp.h"
#include "mcp/rpc.h"

#include <errno.h>
#include <stdlib.h>

/* Checks the text of `got`, which it takes over. */
static void check_text(const char *name, json_t *got, const char *want)
{
    auto_json *json = got;
    auto_free char *text = json_text(json);
    CHECK_STR(name, text, want);
}

static void test_messages_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum rpc_kind kind;
    } cases[] = {
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\"}", RPC_REQUEST },
        { "{\"method\":\"ping\",\"params\":{},\"jsonrpc\":\"2.0\",\"id\":\"\"}", RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"ping\"}", RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"extra\":[]}", RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", RPC_NOTIFICATION },
        { "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}", RPC_RESPONSE },
        { "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-1,\"message\":\"\"}}", RPC_RESPONSE },
        { "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-1,\"message\":\"\"}}", RPC_RESPONSE },
        { "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"\"}}",
          RPC_RESPONSE },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *root = json_literal(cases[i].text);
        struct rpc_message message;
        struct rpc_error error = { 0 };
        CHECK_INT(cases[i].text, rpc_parse(root, &message, &error), 0);
        CHECK_INT(cases[i].text, message.kind, cases[i].kind);
        CHECK(cases[i].text, (cases[i].kind == RPC_RESPONSE) == !message.method);
        CHECK(cases[i].text, (cases[i].kind == RPC_RESPONSE) == (message.result || message.error));
        if (cases[i].kind == RPC_REQUEST)
            assert_ptr_equal(message.id, json_object_get(root, "id"));
    }
}

static void test_malformed_messages_are_refused_and_their_id_kept(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
        bool has_id;
        enum rpc_kind kind;
    } cases[] = {
        { "[]", "Invalid request: a message is a JSON object", false, RPC_REQUEST },
        { "\"x\"", "Invalid request: a message is a JSON object", false, RPC_REQUEST },
        { "{}", "Invalid request: \"jsonrpc\" must be \"2.0\"", false, RPC_REQUEST },
        { "{\"id\":1,\"method\":\"x\"}", "Invalid request: \"jsonrpc\" must be \"2.0\"", true,
          RPC_REQUEST },
        { "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"x\"}",
          "Invalid request: \"jsonrpc\" must be \"2.0\"", true, RPC_REQUEST },
        { "{\"jsonrpc\":2.0,\"method\":\"x\"}", "Invalid request: \"jsonrpc\" must be \"2.0\"",
          false, RPC_NOTIFICATION },
        { "{\"jsonrpc\":\"2.0\",\"id\":\"a\"}",
          "Invalid request: there is no \"method\", \"result\" or \"error\"", true, RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}",
          "Invalid request: \"method\" must be a string", true, RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}",
          "Invalid request: \"id\" must be a string or an integer", false, RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"x\"}",
          "Invalid request: \"id\" must be a string or an integer", false, RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"}",
          "Invalid request: \"id\" must be a string or an integer", false, RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":[1]}",
          "Invalid request: \"params\" must be an object", true, RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":null}",
          "Invalid request: \"params\" must be an object", false, RPC_NOTIFICATION },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"result\":{}}",
          "Invalid request: \"method\" excludes \"result\" and \"error\"", true, RPC_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{\"code\":1,\"message\":\"\"}}",
          "Invalid request: \"result\" and \"error\" exclude each other", true, RPC_RESPONSE },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}",
          "Invalid request: \"result\" must be an object", true, RPC_RESPONSE },
        { "{\"jsonrpc\":\"2.0\",\"result\":{}}",
          "Invalid request: \"id\" must be a string or an integer", false, RPC_RESPONSE },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":\"1\",\"message\":\"\"}}",
          "Invalid request: \"error\" must have a \"code\" and a \"message\"", true, RPC_RESPONSE },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *root = json_literal(cases[i].text);
        struct rpc_message message;
        struct rpc_error error;
        CHECK_INT(cases[i].text, rpc_parse(root, &message, &error), -EBADMSG);
        CHECK_INT(cases[i].text, error.code, MCP_INVALID_REQUEST);
        CHECK_STR(cases[i].text, error.text, cases[i].want);
        CHECK_INT(cases[i].text, message.id != NULL, cases[i].has_id);
        CHECK_INT(cases[i].text, message.kind, cases[i].kind);
    }
}

static void test_a_method_with_a_nul_is_refused(void **state)
{
    (void)state;
    auto_json *root = json_pack("{s:s,s:i,s:s#}", "jsonrpc", "2.0", "id", 1, "method", "a\0b", 3);
    struct rpc_message message;
    struct rpc_error error;
    assert_int_equal(rpc_parse(root, &message, &error), -EBADMSG);
}

static void test_replies_have_exactly_the_members_of_the_protocol(void **state)
{
    (void)state;
    auto_json *id = json_integer(0);
    auto_json *text_id = json_string("a");
    check_text("result", rpc_result(id, json_object()),
               "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}");
    check_text("notification", rpc_notification("n", NULL),
               "{\"jsonrpc\":\"2.0\",\"method\":\"n\"}");
    check_text("params", rpc_notification("n", json_object()),
               "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{}}");
    check_text("request", rpc_request(json_string("s1"), "ping", NULL),
               "{\"jsonrpc\":\"2.0\",\"id\":\"s1\",\"method\":\"ping\"}");

    struct rpc_error error = { 0 };
    rpc_error_set(&error, MCP_INVALID_PARAMS, "no %s", "good");
    check_text("without an id", rpc_error_reply(NULL, &error),
               "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32602,\"message\":\"no good\"}}");
    error.data = json_literal("{\"uri\":\"x\"}");
    check_text("with data", rpc_error_reply(text_id, &error),
               "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"error\":{\"code\":-32602,\"message\":\"no "
               "good\",\"data\":{\"uri\":\"x\"}}}");
    rpc_error_done(&error);
    assert_null(error.data);
}

static void test_a_long_error_is_cut_between_characters(void **state)
{
    (void)state;
    struct rpc_error error;
    char long_text[1000];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(long_text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof(long_text); i += 3)
            memcpy(long_text + i, "\xe2\x82\xac", 4);
        rpc_error_set(&error, 1, "%s", long_text);
        size_t len = strlen(error.text);
        CHECK_INT("cut", (len - shift) % 3, 0);
        CHECK("cut late", len > sizeof(error.text) - 5);
    }
}

/* Makes a request whose _meta is `meta` (NULL: no params). */
static json_t *request_with(const char *meta)
{
    json_t *root = json_literal("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}");
    if (meta) {
        json_t *params = json_object();
        json_put(params, "_meta", json_literal(meta));
        json_put(root, "params", params);
    }
    return root;
}

#define VERSION "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\""
#define CAPABILITIES "\"io.modelcontextprotocol/clientCapabilities\":{}"

static void test_the_envelope_must_be_complete(void **state)
{
    (void)state;
    static const struct {
        const char *meta, *want; /* NULL: it is fine */
        bool claim;
    } cases[] = {
        { "{" VERSION "," CAPABILITIES "}", NULL, true },
        { "{" VERSION "," CAPABILITIES ",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"c\","
          "\"version\":\"1\"},\"io.modelcontextprotocol/logLevel\":\"debug\",\"other\":1}",
          NULL, true },
        { NULL,
          "Invalid params: _meta lacks \"io.modelcontextprotocol/protocolVersion\" and "
          "\"io.modelcontextprotocol/clientCapabilities\"",
          false },
        { "{}",
          "Invalid params: _meta lacks \"io.modelcontextprotocol/protocolVersion\" and "
          "\"io.modelcontextprotocol/clientCapabilities\"",
          false },
        { "[]", "Invalid params: _meta must be an object", false },
        { "{" VERSION "}",
          "Invalid params: _meta lacks \"io.modelcontextprotocol/clientCapabilities\"", true },
        { "{" CAPABILITIES "}",
          "Invalid params: _meta lacks \"io.modelcontextprotocol/protocolVersion\"", false },
        { "{" CAPABILITIES ",\"io.modelcontextprotocol/protocolVersion\":1}",
          "Invalid params: _meta[\"io.modelcontextprotocol/protocolVersion\"] must be a string",
          true },
        { "{" CAPABILITIES ",\"io.modelcontextprotocol/protocolVersion\":null}",
          "Invalid params: _meta[\"io.modelcontextprotocol/protocolVersion\"] must be a string",
          true },
        { "{" VERSION ",\"io.modelcontextprotocol/clientCapabilities\":[]}",
          "Invalid params: _meta[\"io.modelcontextprotocol/clientCapabilities\"] must be an object",
          true },
        { "{" VERSION "," CAPABILITIES ",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"c\"}}",
          "Invalid params: _meta[\"io.modelcontextprotocol/clientInfo\"] must be an object with "
          "the "
          "strings \"name\" and \"version\"",
          true },
        { "{" VERSION "," CAPABILITIES ",\"io.modelcontextprotocol/logLevel\":\"loud\"}",
          "Invalid params: _meta[\"io.modelcontextprotocol/logLevel\"] must be one of debug, info, "
          "notice, warning, error, critical, alert, emergency",
          true },
        { "{" VERSION "," CAPABILITIES ",\"io.modelcontextprotocol/logLevel\":3}",
          "Invalid params: _meta[\"io.modelcontextprotocol/logLevel\"] must be one of debug, info, "
          "notice, warning, error, critical, alert, emergency",
          true },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *name = cases[i].meta ? cases[i].meta : "no params";
        auto_json *root = request_with(cases[i].meta);
        struct rpc_message message;
        struct rpc_envelope envelope;
        struct rpc_error error = { 0 };
        CHECK_INT(name, rpc_parse(root, &message, &error), 0);
        CHECK_INT(name, rpc_has_claim(&message), cases[i].claim);
        CHECK_INT(name, rpc_envelope(&message, &envelope, &error), cases[i].want ? -EBADMSG : 0);
        if (cases[i].want) {
            CHECK_STR(name, error.text, cases[i].want);
            CHECK_INT(name, error.code, MCP_INVALID_PARAMS);
        } else {
            CHECK_STR(name, envelope.version, "2026-07-28");
            CHECK(name, json_is_object(envelope.capabilities));
        }
    }
}

static void test_only_stateless_revisions_may_be_claimed(void **state)
{
    (void)state;
    struct rpc_error error = { 0 };
    assert_int_equal(rpc_check_version("2026-07-28", &error), 0);
    static const char *const refused[] = { "2025-11-25", "2026-07-29", "v999.0.0", "" };
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        CHECK_INT(refused[i], rpc_check_version(refused[i], &error), -EPROTONOSUPPORT);
        CHECK_INT(refused[i], error.code, MCP_UNSUPPORTED_VERSION);
        CHECK_STR(refused[i], json_str(error.data, "requested"), refused[i]);
        check_text(refused[i], json_incref(json_object_get(error.data, "supported")),
                   "[\"2026-07-28\"]");
        rpc_error_done(&error);
    }
}

static void test_a_progress_token_is_a_string_or_an_integer(void **state)
{
    (void)state;
    static const struct {
        const char *meta;
        bool is_token;
    } cases[] = {
        { NULL, false },
        { "{}", false },
        { "{\"progressToken\":\"\"}", true },
        { "{\"progressToken\":0}", true },
        { "{\"progressToken\":null}", false },
        { "{\"progressToken\":1.5}", false },
        { "{\"progressToken\":{}}", false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_json *root = request_with(cases[i].meta);
        struct rpc_message message;
        struct rpc_error error;
        assert_int_equal(rpc_parse(root, &message, &error), 0);
        CHECK_INT(cases[i].meta ? cases[i].meta : "no params", rpc_progress_token(&message) != NULL,
                  cases[i].is_token);
    }
}

static void test_log_levels_are_ordered(void **state)
{
    (void)state;
    assert_true(rpc_log_level("debug") >= 0);
    assert_true(rpc_log_level("debug") < rpc_log_level("info"));
    assert_true(rpc_log_level("info") < rpc_log_level("notice"));
    assert_true(rpc_log_level("notice") < rpc_log_level("warning"));
    assert_true(rpc_log_level("warning") < rpc_log_level("error"));
    assert_true(rpc_log_level("error") < rpc_log_level("critical"));
    assert_true(rpc_log_level("critical") < rpc_log_level("alert"));
    assert_true(rpc_log_level("alert") < rpc_log_level("emergency"));
    assert_int_equal(rpc_log_level("Debug"), -1);
    assert_int_equal(rpc_log_level(""), -1);
    assert_int_equal(rpc_log_level(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_told_apart),
        cmocka_unit_test(test_malformed_messages_are_refused_and_their_id_kept),
        cmocka_unit_test(test_a_method_with_a_nul_is_refused),
        cmocka_unit_test(test_replies_have_exactly_the_members_of_the_protocol),
        cmocka_unit_test(test_a_long_error_is_cut_between_characters),
        cmocka_unit_test(test_the_envelope_must_be_complete),
        cmocka_unit_test(test_only_stateless_revisions_may_be_claimed),
        cmocka_unit_test(test_a_progress_token_is_a_string_or_an_integer),
        cmocka_unit_test(test_log_levels_are_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
