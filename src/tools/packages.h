/*
 * packages: installing for a session on behalf of a call, as several tools do it: progress is sent on,
 * cancelling the call cancels the install. The session is there already, or is made for the call.
 */
#ifndef BELLJAR_TOOLS_PACKAGES_H
#define BELLJAR_TOOLS_PACKAGES_H

#include "tools/toolbox.h"

enum { PACKAGES_MAX = 1000, PACKAGE_LEN_MAX = 200 };
#define PACKAGES_HELP                                                                              \
    "Python packages by their names on the index, optionally with extras and versions: "           \
    "\"requests\", \"pandas[excel]>=2,<3\". No URLs, paths or options."

/* Finishes the call. Arguments as of session_install(). session_id is NULL if no session could be
 * made. */
typedef void packages_installed_fn(struct mcp_call *call, const char *session_id,
                                   const struct install_result *result, void *data);

/* The call must be deferred already, without a handler for cancelling or with one that is not needed
 * any more. on_installed gets `box` as data. Negative and err: nothing was begun. */
int packages_install_for_call(struct mcp_call *call, const struct toolbox *box,
                              const char *session_id, const struct str_list *packages,
                              packages_installed_fn *on_installed, struct err *err);

/* Whether these names can be installed here: 0, also for none, or negative and err. To be asked before
 * a session is made for them. */
int packages_can_install(const struct toolbox *box, const struct str_list *packages,
                         struct err *err);

/* What becomes of the session that packages_install_with_session() makes. */
enum packages_keep {
    PACKAGES_KEEP,       /* it stays, and one of that id which is there already will do */
    PACKAGES_KEEP_WHOLE, /* it is new, and stays only with its packages */
    PACKAGES_KEEP_NONE,  /* it is new, and ends: they were only tried */
};

/* As packages_install_for_call(), but makes the session after `plan` (NULL: all defaults) first; then
 * the packages, if there are any. Defers the call; the names must live as long as it, as arguments do.
 * Negative and err as of session_open(): nothing was begun. */
int packages_install_with_session(struct mcp_call *call, const struct toolbox *box,
                                  const struct session_plan *plan, const struct str_list *packages,
                                  enum packages_keep keep, packages_installed_fn *on_installed,
                                  struct err *err);

/* For a call that fails: all that the installer said, if the error is just its end. */
void packages_add_output(struct mcp_call *call, const struct install_result *result);

#endif
