/*
 * resources: the files of a client's sessions as MCP resources, kernel://SESSION/PATH: listed, read
 * as text or bytes, with values for completion. Who may not use a session learns no more of its files
 * than that there is no such resource.
 */
#ifndef BELLJAR_TOOLS_RESOURCES_H
#define BELLJAR_TOOLS_RESOURCES_H

#include "tools/toolbox.h"

/* What a server that offers them declares to mcp_server_new(). */
enum { RESOURCES_CAPABILITIES = MCP_SUBSCRIBE | MCP_RESOURCES_CHANGE };

void resources_add(struct mcp_server *server, struct toolbox *box);

#endif
