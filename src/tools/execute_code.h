/* execute_code: run code in a sandbox. */
#ifndef BELLJAR_TOOLS_EXECUTE_CODE_H
#define BELLJAR_TOOLS_EXECUTE_CODE_H

#include "mcp/mcp.h"

extern const struct mcp_tool tool_execute_code;

#endif
