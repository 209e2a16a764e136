/*
 * tools: what clients can ask for. A profile is a set of tools with a name, a voice (instructions
 * for the model) and defaults; belljar has one of its own, "default".
 *
 *   1. tools_find_profile()    by name, from --profile or the URL
 *   2. tools_new_server()      an MCP server that offers the profile's tools
 */
#ifndef BELLJAR_TOOLS_H
#define BELLJAR_TOOLS_H

#include "mcp/mcp.h"

struct profile {
    const char *name;
    struct mcp_info info;
    const struct mcp_tool *const *tools; /* NULL-terminated, in the order clients see */
};

/* NULL when there is none of that name. */
const struct profile *tools_find_profile(const char *name);
/* By position, for listings; NULL past the end. */
const struct profile *tools_profile_at(size_t index);

/* Free with mcp_server_free(). */
struct mcp_server *tools_new_server(uv_loop_t *loop, const struct profile *profile,
                                    const struct mcp_limits *limits);

#endif
