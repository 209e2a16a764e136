/*
 * tools: what clients can ask for. A profile is a set of tools with a name and a voice (instructions
 * for the model); belljar has one of its own, "default", and one for each of the programs that it
 * replaces, in profiles/. Their default limits are in the table of options (config/options.c).
 *
 *   1. tools_find_profile()    by name, from --profile or the URL
 *   2. tools_new_server()      an MCP server that offers the profile's tools
 */
#ifndef BELLJAR_TOOLS_H
#define BELLJAR_TOOLS_H

#include "mcp/mcp.h"

struct toolbox;

struct profile {
    const char *name;
    struct mcp_info info;
    const struct mcp_tool *const *tools;     /* NULL-terminated, in the order clients see */
    const struct mcp_prompt *const *prompts; /* NULL-terminated; NULL: none */
    bool resources;     /* offers the files of sessions as resources (resources.h) */
    bool names_missing; /* ... and says whether it is the session or the file that is not there */
    unsigned capabilities; /* beyond those of what is registered */
    bool over_http;        /* usually served over HTTP, not started by its client */
};
extern const struct profile profile_mcp_pyexec;
extern const struct profile profile_code_executer;
extern const struct profile profile_python_interpreter;
extern const struct profile profile_python_docker_mcp;
extern const struct profile profile_mcp_codemode;

/* NULL when there is none of that name. */
const struct profile *tools_find_profile(const char *name);
/* By position, for listings; NULL past the end. */
const struct profile *tools_profile_at(size_t index);

/* Free with mcp_server_free(). `box` is what the tools work with; it outlives the server. */
struct mcp_server *tools_new_server(uv_loop_t *loop, const struct profile *profile,
                                    const struct mcp_limits *limits, struct toolbox *box);

/* [{"type": "text"|"error"|"image", "data"}], as mcp-pyexec tells what a run left; a new reference. */
struct run_result;
json_t *pyexec_items(const struct run_result *run, size_t max_answer);

/* The tools, one file a family. */
extern const struct mcp_tool tool_execute_code;
extern const struct mcp_tool tool_read_file;
extern const struct mcp_tool tool_write_file;
extern const struct mcp_tool tool_list_files;
extern const struct mcp_tool tool_start_session;
extern const struct mcp_tool tool_install_packages;
extern const struct mcp_tool tool_session_info;
extern const struct mcp_tool tool_clear_session;
extern const struct mcp_tool tool_list_session_files;

extern const struct mcp_prompt prompt_run_code;

#endif
