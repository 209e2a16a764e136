/*
 * resources: one of text, one of bytes, one to watch, and a family.
 */
#include "fixture.h"

static void read_text(struct mcp_call *call, const char *uri, void *data)
{
    static const char text[] = "This is the content of the static text resource.";

    (void)data;
    mcp_call_add_text(call, uri, "text/plain", text, strlen(text));
    mcp_call_finish(call);
}

static void read_binary(struct mcp_call *call, const char *uri, void *data)
{
    (void)data;
    mcp_call_add_blob(call, uri, "image/png", fixture_png, fixture_png_size);
    mcp_call_finish(call);
}

static void read_watched(struct mcp_call *call, const char *uri, void *data)
{
    static const char text[] = "Watched resource content.";

    (void)data;
    mcp_call_add_text(call, uri, "text/plain", text, strlen(text));
    mcp_call_finish(call);
}

static const struct mcp_resource resources[] = {
    { .uri = "test://static-text",
      .name = "static-text",
      .title = "Static text",
      .description = "A text that never changes.",
      .mime_type = "text/plain",
      .read = read_text },
    { .uri = "test://static-binary",
      .name = "static-binary",
      .title = "Static image",
      .description = "A red pixel.",
      .mime_type = "image/png",
      .read = read_binary },
    { .uri = "test://watched-resource",
      .name = "watched-resource",
      .title = "Watched text",
      .description = "A text to subscribe to.",
      .mime_type = "text/plain",
      .read = read_watched },
};

static void read_template(struct mcp_call *call, const char *uri, const char *const vars[],
                          void *data)
{
    const char *id = vars[0];
    auto_json *json = json_object();
    auto_free char *sentence = xasprintf("Data for ID: %s", id);

    (void)data;
    json_put_str(json, "id", id);
    json_put(json, "templateTest", json_true());
    json_put_str(json, "data", sentence);

    auto_free char *text = json_text(json);
    mcp_call_add_text(call, uri, "application/json", text, strlen(text));
    mcp_call_finish(call);
}

static void complete_template(struct mcp_call *call, const char *name, const char *value,
                              const json_t *known, void *data)
{
    static const char *const ids[] = { "1", "12", "123", "2" };

    (void)name, (void)known, (void)data;
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        if (str_has_prefix(ids[i], value))
            mcp_call_add_completion(call, ids[i]);
    mcp_call_finish(call);
}

static const struct mcp_template templ = {
    .uri_template = "test://template/{id}/data",
    .name = "template",
    .title = "Family of data",
    .description = "One JSON document for every id.",
    .mime_type = "application/json",
    .read = read_template,
    .complete = complete_template,
};

void fixture_add_resources(struct fixture *fixture)
{
    for (size_t i = 0; i < ARRAY_SIZE(resources); i++)
        mcp_server_add_resource(fixture->server, &resources[i], NULL);
    mcp_server_add_template(fixture->server, &templ, NULL);
}
