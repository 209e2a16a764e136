/*
 * tools: those that answer at once. The first in the list must take {} without complaint: the suite
 * tries HTTP headers on it.
 */
#include "fixture.h"

/* --- content -------------------------------------------------------------------------------- */

static void call_simple_text(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    mcp_call_add(call, mcp_textf("This is a simple text response for testing."));
    mcp_call_finish(call);
}

static void call_image(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    mcp_call_add(call, mcp_image("image/png", fixture_png, fixture_png_size));
    mcp_call_finish(call);
}

static void call_audio(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    mcp_call_add(call, mcp_audio("audio/wav", fixture_wav, fixture_wav_size));
    mcp_call_finish(call);
}

static void call_embedded(struct mcp_call *call, const void *args, void *data)
{
    static const char text[] = "This is an embedded resource content.";

    (void)args, (void)data;
    mcp_call_add(call,
                 mcp_embedded_text("test://embedded-resource", "text/plain", text, strlen(text)));
    mcp_call_finish(call);
}

static void call_mixed(struct mcp_call *call, const void *args, void *data)
{
    static const char json[] = "{\"test\":\"data\",\"value\":123}";

    (void)args, (void)data;
    mcp_call_add(call, mcp_textf("Multiple content types test:"));
    mcp_call_add(call, mcp_image("image/png", fixture_png, fixture_png_size));
    mcp_call_add(call, mcp_embedded_text("test://mixed-content-resource", "application/json", json,
                                         strlen(json)));
    mcp_call_finish(call);
}

static void call_error(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    mcp_call_fail(call, "This tool intentionally returns an error for testing");
}

/* --- schemas and headers -------------------------------------------------------------------- */

static const char schema_2020_12[] =
    "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\","
    "\"$defs\":{\"address\":{\"$anchor\":\"addressDef\",\"type\":\"object\","
    "\"properties\":{\"street\":{\"type\":\"string\"},\"city\":{\"type\":\"string\"}}}},"
    "\"properties\":{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":\"#/$defs/address\"},"
    "\"contactMethod\":{\"type\":\"string\",\"enum\":[\"phone\",\"email\"]},"
    "\"phone\":{\"type\":\"string\"},\"email\":{\"type\":\"string\"}},"
    "\"allOf\":[{\"anyOf\":[{\"required\":[\"phone\"]},{\"required\":[\"email\"]}]}],"
    "\"if\":{\"properties\":{\"contactMethod\":{\"const\":\"phone\"}},"
    "\"required\":[\"contactMethod\"]},"
    "\"then\":{\"required\":[\"phone\"]},\"else\":{\"required\":[\"email\"]},"
    "\"additionalProperties\":false}";

static void call_echo_arguments(struct mcp_call *call, const void *args, void *data)
{
    auto_free char *text = json_text(mcp_call_arguments(call));

    (void)args, (void)data;
    mcp_call_add(call, mcp_textf("Called with: %s", text));
    mcp_call_finish(call);
}

struct mirrored_args {
    const char *region;
    int64_t priority;
    bool urgent;
};
static const struct field mirrored_fields[] = {
    FIELD_STR(struct mirrored_args, region, "Where.", .required = true, .mcp_header = "Region"),
    FIELD_INT(struct mirrored_args, priority, "How soon.", .mcp_header = "Priority"),
    FIELD_BOOL(struct mirrored_args, urgent, "At once?", .mcp_header = "Urgent"),
    FIELD_END,
};
static const struct shape mirrored_shape = SHAPE(struct mirrored_args, mirrored_fields);

/* --- what the client said ------------------------------------------------------------------- */

struct revision_result {
    const char *revision;
    bool stateless;
};
static const struct field revision_fields[] = {
    FIELD_STR(struct revision_result, revision, "Protocol revision of this call.",
              .required = true),
    FIELD_BOOL(struct revision_result, stateless, "Is it of the stateless era?", .required = true),
    FIELD_END,
};
static const struct shape revision_shape = SHAPE(struct revision_result, revision_fields);

static void call_revision(struct mcp_call *call, const void *args, void *data)
{
    struct revision_result result = {
        .revision = mcp_call_revision(call),
        .stateless = mcp_call_is_stateless(call),
    };

    (void)args, (void)data;
    mcp_call_structured(call, &result);
    mcp_call_add(call, mcp_textf("%s", result.revision));
    mcp_call_finish(call);
}

static void call_missing_capability(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    if (!mcp_call_client_can(call, "sampling")) {
        mcp_call_missing_capability(call, "sampling");
        return;
    }
    mcp_call_add(call, mcp_textf("The client can sample."));
    mcp_call_finish(call);
}

static void call_logging(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    mcp_call_log(call, "info", "fixture", json_string("Diagnostic trace logging activated"));
    mcp_call_add(call, mcp_textf("Logging evaluated"));
    mcp_call_finish(call);
}

/* --- hooks that make something change ------------------------------------------------------- */

static void call_trigger_tools(struct mcp_call *call, const void *args, void *data)
{
    struct fixture *fixture = data;

    (void)args;
    mcp_server_tools_changed(fixture->server);
    mcp_call_add(call, mcp_textf("Mutation triggered"));
    mcp_call_finish(call);
}

static void call_trigger_prompts(struct mcp_call *call, const void *args, void *data)
{
    struct fixture *fixture = data;

    (void)args;
    mcp_server_prompts_changed(fixture->server);
    mcp_call_add(call, mcp_textf("Mutation triggered"));
    mcp_call_finish(call);
}

static void call_trigger_resource(struct mcp_call *call, const void *args, void *data)
{
    struct fixture *fixture = data;

    (void)args;
    mcp_server_resource_updated(fixture->server, "test://watched-resource", /* owner= */ NULL);
    mcp_call_add(call, mcp_textf("Mutation triggered"));
    mcp_call_finish(call);
}

static const struct mcp_tool tools[] = {
    { .name = "test_simple_text",
      .title = "Simple text",
      .description = "Answers with one text.",
      .hints = MCP_READ_ONLY,
      .call = call_simple_text },
    { .name = "test_image_content",
      .description = "Answers with an image.",
      .hints = MCP_READ_ONLY,
      .call = call_image },
    { .name = "test_audio_content",
      .description = "Answers with a sound.",
      .hints = MCP_READ_ONLY,
      .call = call_audio },
    { .name = "test_embedded_resource",
      .description = "Answers with an embedded resource.",
      .hints = MCP_READ_ONLY,
      .call = call_embedded },
    { .name = "test_multiple_content_types",
      .description = "Answers with text, image and resource.",
      .hints = MCP_READ_ONLY,
      .call = call_mixed },
    { .name = "test_error_handling", .description = "Always fails.", .call = call_error },
    { .name = "json_schema_2020_12_tool",
      .description = "Has an input schema with the whole 2020-12 vocabulary.",
      .input_schema = schema_2020_12,
      .call = call_echo_arguments },
    { .name = "test_mirrored_headers",
      .description = "Has arguments that clients repeat in HTTP headers.",
      .input = &mirrored_shape,
      .call = call_echo_arguments },
    { .name = "test_revision",
      .description = "Tells which protocol revision this call speaks.",
      .output = &revision_shape,
      .hints = MCP_READ_ONLY | MCP_IDEMPOTENT,
      .call = call_revision },
    { .name = "test_missing_capability",
      .description = "Cannot work without sampling.",
      .call = call_missing_capability },
    { .name = "test_logging_tool",
      .description = "Logs one message to the client, if it wants any.",
      .call = call_logging },
    { .name = "test_trigger_tool_change",
      .description = "Announces a change of the tool list.",
      .hidden = true,
      .call = call_trigger_tools },
    { .name = "test_trigger_prompt_change",
      .description = "Announces a change of the prompt list.",
      .hidden = true,
      .call = call_trigger_prompts },
    { .name = "test_trigger_resource_update",
      .description = "Announces a change of test://watched-resource.",
      .hidden = true,
      .call = call_trigger_resource },
};

void fixture_add_tools(struct fixture *fixture)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        mcp_server_add_tool(fixture->server, &tools[i], fixture);
}
