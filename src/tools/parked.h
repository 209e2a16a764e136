/*
 * parked: sessions that their client has put aside without ending them. Only names: a session that
 * ends meanwhile makes its entry void, and the oldest entries go when there are too many.
 */
#ifndef BELLJAR_TOOLS_PARKED_H
#define BELLJAR_TOOLS_PARKED_H

#include "base/base.h"

struct parked;
struct parked *parked_new(void);
void parked_free(struct parked *parked); /* NULL is fine */

void parked_add(struct parked *parked, const char *owner, const char *session_id);
void parked_remove(struct parked *parked, const char *owner, const char *session_id);
bool parked_has(const struct parked *parked, const char *owner, const char *session_id);

#endif
