/*
 * What a server offers, as it is listed. Each entry's listing is made once, in newest form; the
 * arrays that clients of a revision see are made when first asked for and kept.
 */
#include "mcp/server.h"
#include "mcp/uri_template.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/*** Listings ***/

static void put_optional(json_t *object, const char *key, const char *text)
{
    if (text)
        json_put_str(object, key, text);
}

static void put_icons(json_t *object, const struct mcp_icon *icons)
{
    if (!icons)
        return;
    json_t *array = json_array();
    for (; icons->src; icons++) {
        json_t *icon = json_object();
        json_put_str(icon, "src", icons->src);
        put_optional(icon, "mimeType", icons->mime_type);
        if (icons->sizes) {
            json_t *sizes = json_array();
            json_push(sizes, json_string(icons->sizes));
            json_put(icon, "sizes", sizes);
        }
        put_optional(icon, "theme", icons->theme);
        json_push(array, icon);
    }
    json_put(object, "icons", array);
}

static json_t *tool_annotations(unsigned hints)
{
    json_t *annotations = json_object();
    json_put(annotations, "readOnlyHint", json_boolean(hints & MCP_READ_ONLY));
    if (!(hints & MCP_READ_ONLY)) {
        json_put(annotations, "destructiveHint", json_boolean(hints & MCP_DESTRUCTIVE));
        json_put(annotations, "idempotentHint", json_boolean(hints & MCP_IDEMPOTENT));
    }
    json_put(annotations, "openWorldHint", json_boolean(hints & MCP_OPEN_WORLD));
    return annotations;
}

static json_t *tool_listing(const struct mcp_tool *tool)
{
    json_t *listing = json_object();
    json_put_str(listing, "name", tool->name);
    put_optional(listing, "title", tool->title);
    json_put_str(listing, "description", tool->description);
    json_put(listing, "inputSchema",
             tool->input_schema ? json_literal(tool->input_schema) : shape_schema(tool->input));
    if (tool->output)
        json_put(listing, "outputSchema", shape_schema(tool->output));
    json_put(listing, "annotations", tool_annotations(tool->hints));
    put_icons(listing, tool->icons);
    return listing;
}

static json_t *resource_listing(const struct mcp_resource *resource)
{
    json_t *listing = json_object();
    json_put_str(listing, "uri", resource->uri);
    json_put_str(listing, "name", resource->name);
    put_optional(listing, "title", resource->title);
    put_optional(listing, "description", resource->description);
    put_optional(listing, "mimeType", resource->mime_type);
    if (resource->size > 0)
        json_put(listing, "size", json_integer(resource->size));
    put_icons(listing, resource->icons);
    return listing;
}

static json_t *template_listing(const struct mcp_template *templ)
{
    json_t *listing = json_object();
    json_put_str(listing, "uriTemplate", templ->uri_template);
    json_put_str(listing, "name", templ->name);
    put_optional(listing, "title", templ->title);
    put_optional(listing, "description", templ->description);
    put_optional(listing, "mimeType", templ->mime_type);
    put_icons(listing, templ->icons);
    return listing;
}

static json_t *prompt_listing(const struct mcp_prompt *prompt)
{
    json_t *listing = json_object();
    json_put_str(listing, "name", prompt->name);
    put_optional(listing, "title", prompt->title);
    json_put_str(listing, "description", prompt->description);
    if (prompt->args) {
        json_t *arguments = json_array();
        for (const struct mcp_prompt_arg *arg = prompt->args; arg->name; arg++) {
            json_t *argument = json_object();
            json_put_str(argument, "name", arg->name);
            put_optional(argument, "title", arg->title);
            put_optional(argument, "description", arg->description);
            json_put(argument, "required", json_boolean(arg->required));
            json_push(arguments, argument);
        }
        json_put(listing, "arguments", arguments);
    }
    put_icons(listing, prompt->icons);
    return listing;
}

json_t *registry_implementation(const struct mcp_info *info)
{
    json_t *implementation = json_object();
    json_put_str(implementation, "name", info->name);
    json_put_str(implementation, "version", info->version);
    put_optional(implementation, "title", info->title);
    put_optional(implementation, "description", info->description);
    put_optional(implementation, "websiteUrl", info->website_url);
    put_icons(implementation, info->icons);
    return implementation;
}

/*** Tables ***/

/* What distinguishes the kinds: the member that names an entry, and how a listing is fitted. */
static const struct {
    const char *key;
    json_t *(*fit)(enum revision revision, const json_t *listing);
} kinds[ENTRY_KINDS] = {
    [ENTRY_TOOL] = { "name", revision_fit_tool },
    [ENTRY_RESOURCE] = { "uri", revision_fit_resource },
    [ENTRY_TEMPLATE] = { "uriTemplate", revision_fit_resource },
    [ENTRY_PROMPT] = { "name", revision_fit_prompt },
};

static void table_forget_fitted(struct entry_table *table)
{
    for (int i = 0; i < REVISION_COUNT; i++) {
        json_decref(table->fitted[i]);
        free(table->whole[i]);
        table->fitted[i] = NULL;
        table->whole[i] = NULL;
    }
}

static void registry_add(struct registry *registry, enum entry_kind kind, const struct entry *entry)
{
    const char *name = json_str(entry->listing, kinds[kind].key);
    assert(name && !registry_find(registry, kind, name));
    (void)name; /* with NDEBUG */
    struct entry_table *table = &registry->tables[kind];
    table->entries = xrealloc(table->entries, (table->count + 1) * sizeof(*table->entries));
    table->entries[table->count++] = *entry;
    table_forget_fitted(table);
}

void mcp_server_add_tool(struct mcp_server *server, const struct mcp_tool *tool, void *data)
{
    registry_add(
        &server->registry, ENTRY_TOOL,
        &(struct entry){
            .tool = tool, .data = data, .listing = tool_listing(tool), .hidden = tool->hidden });
}

void mcp_server_add_resource(struct mcp_server *server, const struct mcp_resource *resource,
                             void *data)
{
    registry_add(&server->registry, ENTRY_RESOURCE,
                 &(struct entry){
                     .resource = resource, .data = data, .listing = resource_listing(resource) });
}

void mcp_server_add_template(struct mcp_server *server, const struct mcp_template *templ,
                             void *data)
{
    assert(uri_template_check(templ->uri_template, NULL) == 0);
    registry_add(
        &server->registry, ENTRY_TEMPLATE,
        &(struct entry){ .templ = templ, .data = data, .listing = template_listing(templ) });
}

void mcp_server_add_prompt(struct mcp_server *server, const struct mcp_prompt *prompt, void *data)
{
    registry_add(
        &server->registry, ENTRY_PROMPT,
        &(struct entry){ .prompt = prompt, .data = data, .listing = prompt_listing(prompt) });
}

void registry_done(struct registry *registry)
{
    for (int kind = 0; kind < ENTRY_KINDS; kind++) {
        struct entry_table *table = &registry->tables[kind];
        for (size_t i = 0; i < table->count; i++)
            json_decref(table->entries[i].listing);
        table_forget_fitted(table);
        free(table->entries);
    }
}

const struct entry *registry_find(const struct registry *registry, enum entry_kind kind,
                                  const char *name)
{
    const struct entry_table *table = &registry->tables[kind];
    for (size_t i = 0; i < table->count; i++) {
        if (str_eq(json_str(table->entries[i].listing, kinds[kind].key), name))
            return &table->entries[i];
    }
    return NULL;
}

const json_t *registry_list(struct registry *registry, enum entry_kind kind, enum revision revision)
{
    struct entry_table *table = &registry->tables[kind];
    if (!table->fitted[revision]) {
        json_t *list = json_array();
        for (size_t i = 0; i < table->count; i++) {
            if (!table->entries[i].hidden)
                json_push(list, kinds[kind].fit(revision, table->entries[i].listing));
        }
        table->fitted[revision] = list;
    }
    return table->fitted[revision];
}

bool registry_completes(const struct registry *registry)
{
    const struct entry_table *templates = &registry->tables[ENTRY_TEMPLATE];
    for (size_t i = 0; i < templates->count; i++) {
        if (templates->entries[i].templ->complete)
            return true;
    }
    const struct entry_table *prompts = &registry->tables[ENTRY_PROMPT];
    for (size_t i = 0; i < prompts->count; i++) {
        if (prompts->entries[i].prompt->complete)
            return true;
    }
    return false;
}
