/*
 * elicitation: tools of the handshake era that send the client a request while their own call
 * waits, and tell what came back.
 */
#include "fixture.h"

/* --- asking --------------------------------------------------------------------------------- */

static void on_answer(struct mcp_call *call, const json_t *result, const char *error, void *data)
{
    const char *what = data;

    if (!result) {
        mcp_call_fail(call, "%s failed: %s", what, error);
        return;
    }
    auto_free char *text = json_text(result);
    mcp_call_add(call, mcp_textf("%s completed: %s", what, text));
    mcp_call_finish(call);
}

static void on_sample(struct mcp_call *call, const json_t *result, const char *error, void *data)
{
    if (!result) {
        on_answer(call, result, error, data);
        return;
    }
    const char *text = json_str(json_object_get(result, "content"), "text");
    mcp_call_add(call, mcp_textf("LLM response: %s", text ? text : "(none)"));
    mcp_call_finish(call);
}

static void on_cancel(struct mcp_call *call, void *data)
{
    (void)data;
    mcp_call_finish(call);
}

static void elicit(struct mcp_call *call, const char *message, const char *schema)
{
    struct err err = { 0 };
    json_t *params = json_object();

    json_put_str(params, "message", message);
    json_put(params, "requestedSchema", json_literal(schema));
    mcp_call_defer(call, on_cancel, NULL);
    if (mcp_call_request(call, "elicitation/create", params, on_answer, (void *)"Elicitation",
                         &err) < 0)
        mcp_call_fail(call, "Elicitation is not possible: %s", err.msg);
}

/* --- the tools ------------------------------------------------------------------------------ */

struct sampling_args {
    const char *prompt;
};
static const struct field sampling_fields[] = {
    FIELD_STR(struct sampling_args, prompt, "What to ask the client's model.", .required = true),
    FIELD_END,
};
static const struct shape sampling_shape = SHAPE(struct sampling_args, sampling_fields);

static void call_sampling(struct mcp_call *call, const void *args, void *data)
{
    const struct sampling_args *sampling = args;
    struct err err = { 0 };
    json_t *params = json_literal("{\"messages\":[{\"role\":\"user\"}],\"maxTokens\":100}");
    json_t *message = json_array_get(json_object_get(params, "messages"), 0);

    (void)data;
    json_put(message, "content", mcp_textf("%s", sampling->prompt));
    mcp_call_defer(call, on_cancel, NULL);
    if (mcp_call_request(call, "sampling/createMessage", params, on_sample, (void *)"Sampling",
                         &err) < 0)
        mcp_call_fail(call, "Sampling is not possible: %s", err.msg);
}

struct elicitation_args {
    const char *message;
};
static const struct field elicitation_fields[] = {
    FIELD_STR(struct elicitation_args, message, "What to ask the user.", .required = true),
    FIELD_END,
};
static const struct shape elicitation_shape = SHAPE(struct elicitation_args, elicitation_fields);

static void call_elicitation(struct mcp_call *call, const void *args, void *data)
{
    const struct elicitation_args *elicitation = args;

    (void)data;
    elicit(call, elicitation->message,
           "{\"type\":\"object\",\"properties\":{"
           "\"username\":{\"type\":\"string\",\"description\":\"User's response\"},"
           "\"email\":{\"type\":\"string\",\"description\":\"User's email address\"}},"
           "\"required\":[\"username\",\"email\"]}");
}

static void call_defaults(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    elicit(call, "Please review the defaults.",
           "{\"type\":\"object\",\"properties\":{"
           "\"name\":{\"type\":\"string\",\"description\":\"User name\",\"default\":\"John Doe\"},"
           "\"age\":{\"type\":\"integer\",\"description\":\"User age\",\"default\":30},"
           "\"score\":{\"type\":\"number\",\"description\":\"User score\",\"default\":95.5},"
           "\"status\":{\"type\":\"string\",\"description\":\"User status\","
           "\"enum\":[\"active\",\"inactive\",\"pending\"],\"default\":\"active\"},"
           "\"verified\":{\"type\":\"boolean\",\"description\":\"Verified?\",\"default\":true}},"
           "\"required\":[]}");
}

static void call_enums(struct mcp_call *call, const void *args, void *data)
{
    (void)args, (void)data;
    elicit(call, "Please select options.",
           "{\"type\":\"object\",\"properties\":{"
           "\"untitledSingle\":{\"type\":\"string\",\"description\":\"One\","
           "\"enum\":[\"option1\",\"option2\",\"option3\"]},"
           "\"titledSingle\":{\"type\":\"string\",\"description\":\"One, with titles\",\"oneOf\":["
           "{\"const\":\"value1\",\"title\":\"First Option\"},"
           "{\"const\":\"value2\",\"title\":\"Second Option\"},"
           "{\"const\":\"value3\",\"title\":\"Third Option\"}]},"
           "\"legacyEnum\":{\"type\":\"string\",\"description\":\"One, the old way\","
           "\"enum\":[\"opt1\",\"opt2\",\"opt3\"],"
           "\"enumNames\":[\"Option One\",\"Option Two\",\"Option Three\"]},"
           "\"untitledMulti\":{\"type\":\"array\",\"description\":\"Several\",\"minItems\":1,"
           "\"maxItems\":3,\"items\":{\"type\":\"string\","
           "\"enum\":[\"option1\",\"option2\",\"option3\"]}},"
           "\"titledMulti\":{\"type\":\"array\",\"description\":\"Several, with titles\","
           "\"minItems\":1,\"maxItems\":3,\"items\":{\"anyOf\":["
           "{\"const\":\"value1\",\"title\":\"First Choice\"},"
           "{\"const\":\"value2\",\"title\":\"Second Choice\"},"
           "{\"const\":\"value3\",\"title\":\"Third Choice\"}]}}},"
           "\"required\":[]}");
}

static const struct mcp_tool tools[] = {
    { .name = "test_sampling",
      .description = "Lets the client's model answer a prompt.",
      .input = &sampling_shape,
      .call = call_sampling },
    { .name = "test_elicitation",
      .description = "Asks the user two questions.",
      .input = &elicitation_shape,
      .call = call_elicitation },
    { .name = "test_elicitation_sep1034_defaults",
      .description = "Asks the user with a default for every kind of answer.",
      .call = call_defaults },
    { .name = "test_elicitation_sep1330_enums",
      .description = "Asks the user to choose, in the five forms that a choice can have.",
      .call = call_enums },
};

void fixture_add_elicitation(struct fixture *fixture)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        mcp_server_add_tool(fixture->server, &tools[i], NULL);
}
