/*
 * packages: installing for a session on behalf of a call, as several tools do it: progress is sent on,
 * cancelling the call cancels the install.
 */
#ifndef BELLJAR_TOOLS_PACKAGES_H
#define BELLJAR_TOOLS_PACKAGES_H

#include "tools/toolbox.h"

enum { PACKAGES_MAX = 1000, PACKAGE_LEN_MAX = 200 };
#define PACKAGES_HELP                                                                              \
    "Python packages by their names on the index, optionally with extras and versions: "           \
    "\"requests\", \"pandas[excel]>=2,<3\". No URLs, paths or options."

/* Finishes the call. Arguments as of session_install(). */
typedef void packages_installed_fn(struct mcp_call *call, const char *session_id,
                                   const struct install_result *result, void *data);

/* The call must be deferred already, without a handler for cancelling or with one that is not needed
 * any more. on_installed gets `box` as data. Negative and err: nothing was begun. */
int packages_install_for_call(struct mcp_call *call, const struct toolbox *box,
                              const char *session_id, const struct str_list *packages,
                              packages_installed_fn *on_installed, struct err *err);

/* For a call that fails: all that the installer said, if the error is just its end. */
void packages_add_output(struct mcp_call *call, const struct install_result *result);

#endif
