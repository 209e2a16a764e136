/*
 * current: which of its sessions a client means when it names none: the one that it turned to last.
 * Only names: a session that ends by itself makes its entry void, and the oldest entries go when
 * there are too many.
 */
#ifndef BELLJAR_TOOLS_CURRENT_H
#define BELLJAR_TOOLS_CURRENT_H

#include "base/base.h"

struct current;
struct current *current_new(void);
void current_free(struct current *current); /* NULL is fine */

void current_add(struct current *current, const char *owner, const char *session_id);
/* False: it is not there. */
bool current_remove(struct current *current, const char *owner, const char *session_id);
/* The one that was added last; NULL: none. Borrowed until the next change. */
const char *current_find(const struct current *current, const char *owner);

#endif
