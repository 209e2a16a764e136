#include "mcp/revision.h"

#include <string.h>

enum {
    FEATURES_2024_11_05 = 0,
    FEATURES_2025_03_26 =
        HAS_TOOL_ANNOTATIONS | HAS_AUDIO | HAS_PROGRESS_MESSAGE | HAS_COMPLETIONS_CAPABILITY,
    FEATURES_2025_06_18 =
        FEATURES_2025_03_26 | HAS_TITLE | HAS_STRUCTURED | HAS_RESOURCE_LINK | HAS_ELICITATION,
    FEATURES_2025_11_25 = FEATURES_2025_06_18 | HAS_ICONS | HAS_TOOL_INPUT_ERRORS,
};

static const struct {
    const char *name;
    unsigned features;
} revisions[REVISION_COUNT] = {
    [REVISION_2024_11_05] = { "2024-11-05", FEATURES_2024_11_05 },
    [REVISION_2025_03_26] = { "2025-03-26", FEATURES_2025_03_26 | HAS_BATCHES }, /* only here */
    [REVISION_2025_06_18] = { "2025-06-18", FEATURES_2025_06_18 },
    [REVISION_2025_11_25] = { "2025-11-25", FEATURES_2025_11_25 | HAS_PRIMING }, /* only here */
    [REVISION_2026_07_28] = { "2026-07-28", FEATURES_2025_11_25 | IS_STATELESS },
};

const char *revision_name(enum revision revision)
{
    return revisions[revision].name;
}

bool revision_has(enum revision revision, enum revision_feature feature)
{
    return revisions[revision].features & feature;
}

bool revision_parse(const char *name, enum revision *ret)
{
    for (enum revision i = 0; i < REVISION_COUNT; i++) {
        if (str_eq(revisions[i].name, name)) {
            *ret = i;
            return true;
        }
    }
    return false;
}

enum revision revision_negotiate(const char *requested)
{
    enum revision revision;
    if (revision_parse(requested, &revision) && revision <= REVISION_NEWEST_HANDSHAKE)
        return revision;
    return REVISION_NEWEST_HANDSHAKE;
}

/*** fitting to an older client ***/

/* Which members came with which feature. */
struct member_rule {
    enum revision_feature feature;
    const char *key;
};

static const struct member_rule tool_rules[] = {
    { HAS_TOOL_ANNOTATIONS, "annotations" }, { HAS_TITLE, "title" }, { HAS_TITLE, "_meta" },
    { HAS_STRUCTURED, "outputSchema" },      { HAS_ICONS, "icons" }, { 0 },
};

/* Resources, templates, prompts and content blocks; of these only links have title and icons among
 * the blocks, so one table does. */
static const struct member_rule item_rules[] = {
    { HAS_TITLE, "title" },
    { HAS_TITLE, "_meta" },
    { HAS_ICONS, "icons" },
    { 0 },
};

static const struct member_rule annotation_rules[] = {
    { HAS_RESOURCE_LINK, "lastModified" }, /* the same revision brought both */
    { 0 },
};

static const struct member_rule implementation_rules[] = {
    { HAS_TITLE, "title" },
    { HAS_ICONS, "icons" },
    { HAS_ICONS, "description" },
    { HAS_ICONS, "websiteUrl" },
    { 0 },
};

static json_t *fit(enum revision revision, const json_t *json, const struct member_rule *rules)
{
    json_t *copy = json_copy((json_t *)json); /* shallow, and leaves the original alone */
    for (const struct member_rule *rule = rules; rule->key; rule++)
        if (!revision_has(revision, rule->feature))
            json_object_del(copy, rule->key);
    return copy;
}

/* Replaces object[key], if it is there, by what fits. */
static void fit_member(enum revision revision, json_t *object, const char *key,
                       const struct member_rule *rules)
{
    const json_t *value = json_object_get(object, key);
    if (value)
        json_put(object, key, fit(revision, value, rules));
}

json_t *revision_fit_tool(enum revision revision, const json_t *tool)
{
    json_t *copy = fit(revision, tool, tool_rules);
    json_object_del(copy, "execution"); /* tasks of 2025-11-25; we have none */
    return copy;
}

json_t *revision_fit_resource(enum revision revision, const json_t *resource)
{
    json_t *copy = fit(revision, resource, item_rules);
    fit_member(revision, copy, "annotations", annotation_rules);
    return copy;
}

json_t *revision_fit_prompt(enum revision revision, const json_t *prompt)
{
    json_t *copy = fit(revision, prompt, item_rules);
    const json_t *args = json_object_get(prompt, "arguments");
    if (args) {
        json_t *fitted = json_array();
        for (size_t i = 0; i < json_array_size(args); i++)
            json_push(fitted, fit(revision, json_array_get(args, i), item_rules));
        json_put(copy, "arguments", fitted);
    }
    return copy;
}

json_t *revision_fit_implementation(enum revision revision, const json_t *info)
{
    return fit(revision, info, implementation_rules);
}

/*** content ***/

/* How many bytes canonical base64 stands for. */
static size_t base64_size(const char *text)
{
    size_t len = text ? strlen(text) : 0;
    size_t size = len / 4 * 3;
    for (size_t i = len; i > 0 && len - i < 2 && text[i - 1] == '='; i--)
        size--;
    return size;
}

static void add_detail(struct buf *text, const char *detail)
{
    if (detail)
        (void)buf_printf(text, ", %s", detail);
}

static void describe_audio(const json_t *block, struct buf *text)
{
    (void)buf_add_str(text, "Audio");
    add_detail(text, json_str(block, "mimeType"));
    (void)buf_printf(text, ", %zu bytes", base64_size(json_str(block, "data")));
}

static void describe_link(const json_t *block, struct buf *text)
{
    const char *uri = json_str(block, "uri");
    (void)buf_printf(text, "Resource %s", uri ? uri : "without a URI");
    add_detail(text, json_str(block, "name"));
    add_detail(text, json_str(block, "mimeType"));
    const json_t *size = json_object_get(block, "size");
    if (json_is_integer(size))
        (void)buf_printf(text, ", %" JSON_INTEGER_FORMAT " bytes", json_integer_value(size));
    add_detail(text, json_str(block, "description"));
}

static void describe_unknown(const json_t *block, struct buf *text)
{
    const char *type = json_str(block, "type");
    (void)buf_printf(text, "Content of type %s", type ? type : "unknown");
}

static const struct content_kind {
    const char *type;
    unsigned feature; /* 0: always known */
    void (*describe)(const json_t *block, struct buf *text);
} content_kinds[] = {
    { "text", 0, NULL },
    { "image", 0, NULL },
    { "resource", 0, NULL },
    { "audio", HAS_AUDIO, describe_audio },
    { "resource_link", HAS_RESOURCE_LINK, describe_link },
};

static const struct content_kind *find_kind(const char *type)
{
    static const struct content_kind unknown = { "", 0, describe_unknown };
    for (size_t i = 0; i < ARRAY_SIZE(content_kinds); i++)
        if (str_eq(content_kinds[i].type, type))
            return &content_kinds[i];
    return &unknown;
}

/* "[Audio, audio/wav, 1234 bytes]": whom it is for and how important it is stays. */
static json_t *describe_block(const json_t *block, const struct content_kind *kind)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_char(&text, '[');
    kind->describe(block, &text);
    (void)buf_add_char(&text, ']');

    json_t *described = json_object();
    json_put_str(described, "type", "text");
    json_put(described, "text", json_text_value(text.data, text.len));
    json_t *annotations = json_object_get(block, "annotations");
    if (annotations)
        json_put(described, "annotations", json_incref(annotations));
    return described;
}

json_t *revision_fit_content(enum revision revision, const json_t *block)
{
    const struct content_kind *kind = find_kind(json_str(block, "type"));
    bool known = kind->type[0] && (!kind->feature || revision_has(revision, kind->feature));
    json_t *copy = known ? fit(revision, block, item_rules) : describe_block(block, kind);
    fit_member(revision, copy, "annotations", annotation_rules);
    fit_member(revision, copy, "resource", item_rules);
    return copy;
}
