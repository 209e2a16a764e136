/*
 * current: which of its sessions a client means when it names none: the one that it turned to last and
 * that is still there. The oldest entries go when there are too many.
 */
#ifndef BELLJAR_TOOLS_CURRENT_H
#define BELLJAR_TOOLS_CURRENT_H

#include "session/session.h"

struct current;
struct current *current_new(void);
void current_free(struct current *current); /* NULL is fine */

void current_add(struct current *current, const char *owner, const char *session_id);
/* False: it is not there. */
bool current_remove(struct current *current, const char *owner, const char *session_id);
/* The one that was added last and has not ended; NULL: none. Borrowed until the next change. */
const char *current_find(struct current *current, struct sessions *sessions, const char *owner);

#endif
