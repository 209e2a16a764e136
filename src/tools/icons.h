/* icons: small drawings for clients that show tools to people. Data URIs: nothing is fetched. */
#ifndef BELLJAR_TOOLS_ICONS_H
#define BELLJAR_TOOLS_ICONS_H

#include "mcp/mcp.h"

extern const struct mcp_icon icon_belljar[]; /* the server */
extern const struct mcp_icon icon_run[];     /* runs code */
extern const struct mcp_icon icon_file[];    /* one file */
extern const struct mcp_icon icon_files[];   /* several */
extern const struct mcp_icon icon_package[]; /* something to install */
extern const struct mcp_icon icon_session[]; /* a session as such */

#endif
