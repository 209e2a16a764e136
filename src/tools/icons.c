#include "tools/icons.h"

/* One path, drawn with the colour of the text around it. */
#define DRAWING(path)                                                                              \
    "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%2024%2024'"   \
    "%20fill='none'%20stroke='currentColor'%20stroke-width='2'%3E%3Cpath%20d='" path               \
    "'/%3E%3C/svg%3E"

#define ICON(path)                                                                                 \
    {                                                                                              \
        { .src = DRAWING(path), .mime_type = "image/svg+xml", .sizes = "any" }, { 0 },             \
    }

const struct mcp_icon icon_belljar[] =
    ICON("M3%2020h18M6%2020v-9a6%206%200%200%201%2012%200v9M12%205V2");
const struct mcp_icon icon_run[] = ICON("M7%204l12%208-12%208z");
const struct mcp_icon icon_file[] = ICON("M6%203h8l5%205v13H6zM14%203v5h5");
const struct mcp_icon icon_files[] = ICON("M4%206h16M4%2012h16M4%2018h10");
const struct mcp_icon icon_package[] =
    ICON("M4%207l8-4%208%204v10l-8%204-8-4zM4%207l8%204%208-4M12%2011v10");
const struct mcp_icon icon_session[] = ICON("M4%205h16v14H4zM4%209h16");
