#include "mcp/server.h"

#include "base/text.h"

#include <assert.h>
#include <stdlib.h>

const struct mcp_limits MCP_LIMITS_DEFAULT = {
    .json = { .depth = 128, .digits = 512, .nodes = 200000 },
    .max_message = 16 << 20,
    .max_answer = 4 << 20,
    .max_batch = 64,
    .max_requests = 64,
    .max_subscriptions = 1024,
    .page_size = 100,
    .list_ttl_ms = 60000,
    .state_ttl_ms = 600000,
};

struct mcp_server *mcp_server_new(uv_loop_t *loop, const struct mcp_info *info,
                                  const struct mcp_limits *limits, unsigned capabilities)
{
    struct mcp_server *server = xcalloc(1, sizeof(*server));
    server->loop = loop;
    server->info = *info;
    server->implementation = registry_implementation(info);
    server->limits = *limits;
    server->capabilities = capabilities;
    list_init(&server->peers);
    list_init(&server->orphans);
    random_bytes(server->seal_key, sizeof(server->seal_key));
    return server;
}

void mcp_server_free(struct mcp_server *server)
{
    if (!server)
        return;
    assert(list_empty(&server->peers));   /* transports go first */
    assert(list_empty(&server->orphans)); /* and handlers finish what they deferred */
    registry_done(&server->registry);
    json_decref(server->implementation);
    free(server);
}

void mcp_server_stats(const struct mcp_server *server, struct mcp_stats *ret)
{
    *ret = server->stats;
}

void mcp_server_on_first_answer(struct mcp_server *server, void (*on_first)(void *data), void *data)
{
    server->on_first_answer = on_first;
    server->on_first_answer_data = data;
}

void mcp_server_list_resources(struct mcp_server *server, mcp_list_fn *list, void *data)
{
    server->list_resources = list;
    server->list_data = data;
}

void mcp_server_on_watch(struct mcp_server *server, void (*on_watch)(const char *owner, void *data),
                         void *data)
{
    server->on_watch = on_watch;
    server->watch_data = data;
}

static json_t *capability(bool list_changed)
{
    json_t *object = json_object();
    if (list_changed)
        json_put(object, "listChanged", json_true());
    return object;
}

json_t *server_capabilities(const struct mcp_server *server, enum revision revision)
{
    const struct registry *registry = &server->registry;
    json_t *all = json_object();
    if (server->capabilities & MCP_LOGGING)
        json_put(all, "logging", json_object());
    if (revision_has(revision, HAS_COMPLETIONS_CAPABILITY) && registry_completes(registry))
        json_put(all, "completions", json_object());
    if ((server->capabilities & MCP_PROMPTS) || registry->tables[ENTRY_PROMPT].count)
        json_put(all, "prompts", capability(server->capabilities & MCP_PROMPTS_CHANGE));
    if ((server->capabilities & MCP_RESOURCES) || server->list_resources ||
        registry->tables[ENTRY_RESOURCE].count || registry->tables[ENTRY_TEMPLATE].count) {
        json_t *resources = capability(server->capabilities & MCP_RESOURCES_CHANGE);
        if (server->capabilities & MCP_SUBSCRIBE)
            json_put(resources, "subscribe", json_true());
        json_put(all, "resources", resources);
    }
    if (registry->tables[ENTRY_TOOL].count)
        json_put(all, "tools", capability(server->capabilities & MCP_TOOLS_CHANGE));
    return all;
}
