/*
 * prompts: plain, with arguments that complete, with a resource, with an image.
 */
#include "fixture.h"

static void get_simple(struct mcp_call *call, const json_t *args, void *data)
{
    (void)args, (void)data;
    mcp_call_add_message(call, "user", mcp_textf("This is a simple prompt for testing."));
    mcp_call_finish(call);
}

static void get_with_arguments(struct mcp_call *call, const json_t *args, void *data)
{
    (void)data;
    mcp_call_add_message(call, "user",
                         mcp_textf("Prompt with arguments: arg1='%s', arg2='%s'",
                                   json_str(args, "arg1"), json_str(args, "arg2")));
    mcp_call_finish(call);
}

static void complete_argument(struct mcp_call *call, const char *name, const char *value,
                              const json_t *known, void *data)
{
    static const char *const words[] = { "paris", "park", "party", "test", "testing" };

    (void)name, (void)known, (void)data;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (str_has_prefix(words[i], value))
            mcp_call_add_completion(call, words[i]);
    mcp_call_finish(call);
}

static void get_with_resource(struct mcp_call *call, const json_t *args, void *data)
{
    static const char text[] = "Embedded resource content for testing.";

    (void)data;
    mcp_call_add_message(
        call, "user",
        mcp_embedded_text(json_str(args, "resourceUri"), "text/plain", text, strlen(text)));
    mcp_call_add_message(call, "user", mcp_textf("Please process the embedded resource above."));
    mcp_call_finish(call);
}

static void get_with_image(struct mcp_call *call, const json_t *args, void *data)
{
    (void)args, (void)data;
    mcp_call_add_message(call, "user", mcp_image("image/png", fixture_png, fixture_png_size));
    mcp_call_add_message(call, "user", mcp_textf("Please analyze the image above."));
    mcp_call_finish(call);
}

static const struct mcp_prompt_arg two_args[] = {
    { .name = "arg1", .description = "First test argument.", .required = true },
    { .name = "arg2", .description = "Second test argument.", .required = true },
    { NULL },
};
static const struct mcp_prompt_arg uri_arg[] = {
    { .name = "resourceUri", .description = "URI of the resource to embed.", .required = true },
    { NULL },
};

static const struct mcp_prompt prompts[] = {
    { .name = "test_simple_prompt",
      .title = "Simple prompt",
      .description = "Takes no arguments.",
      .get = get_simple },
    { .name = "test_prompt_with_arguments",
      .title = "Prompt with arguments",
      .description = "Takes two arguments.",
      .args = two_args,
      .get = get_with_arguments,
      .complete = complete_argument },
    { .name = "test_prompt_with_embedded_resource",
      .title = "Prompt with a resource",
      .description = "Embeds the resource it is told to.",
      .args = uri_arg,
      .get = get_with_resource },
    { .name = "test_prompt_with_image",
      .title = "Prompt with an image",
      .description = "Contains an image.",
      .get = get_with_image },
};

void fixture_add_prompts(struct fixture *fixture)
{
    for (size_t i = 0; i < ARRAY_SIZE(prompts); i++)
        mcp_server_add_prompt(fixture->server, &prompts[i], NULL);
}
