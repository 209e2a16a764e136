/*
 * revision: what each protocol revision knows. One table of features, and the functions that fit
 * our newest-form JSON to an older client. Pure.
 */
#ifndef BELLJAR_MCP_REVISION_H
#define BELLJAR_MCP_REVISION_H

#include "base/json.h"

enum revision {
    REVISION_2024_11_05,
    REVISION_2025_03_26,
    REVISION_2025_06_18,
    REVISION_2025_11_25,
    REVISION_2026_07_28,
    REVISION_COUNT,
};
#define REVISION_NEWEST_HANDSHAKE REVISION_2025_11_25
#define REVISION_FIRST_STATELESS REVISION_2026_07_28

enum revision_feature {
    HAS_BATCHES = 1 << 0,
    HAS_TOOL_ANNOTATIONS = 1 << 1,
    HAS_AUDIO = 1 << 2,
    HAS_PROGRESS_MESSAGE = 1 << 3,
    HAS_COMPLETIONS_CAPABILITY = 1 << 4,
    HAS_TITLE = 1 << 5, /* title on everything, _meta on tools, resources, prompts, content */
    HAS_STRUCTURED = 1 << 6,
    HAS_RESOURCE_LINK = 1 << 7,
    HAS_ELICITATION = 1 << 8,
    HAS_ICONS = 1 << 9,              /* and description, websiteUrl of an implementation */
    HAS_PRIMING = 1 << 10,           /* empty first SSE event, retry, polling */
    HAS_TOOL_INPUT_ERRORS = 1 << 11, /* bad arguments are tool results, not protocol errors */
    IS_STATELESS = 1 << 12, /* resultType, cache hints, serverInfo in _meta, envelope per request */
};

const char *revision_name(enum revision revision);
bool revision_has(enum revision revision, enum revision_feature feature);

/* Exact names only. False: not one of ours. */
bool revision_parse(const char *name, enum revision *ret);

/* What to answer to `initialize`: the same revision when it is one of the handshake era, else the
 * newest of that era. */
enum revision revision_negotiate(const char *requested);

/* A copy fitted to `revision`; a new reference. `json` is in newest form. */
json_t *revision_fit_tool(enum revision revision, const json_t *tool);
json_t *revision_fit_resource(enum revision revision, const json_t *resource); /* template too */
json_t *revision_fit_prompt(enum revision revision, const json_t *prompt);
json_t *revision_fit_implementation(enum revision revision, const json_t *info);
/* One content block: unknown kinds become text that says what was there. */
json_t *revision_fit_content(enum revision revision, const json_t *block);

#endif
