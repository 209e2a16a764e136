/*
 * mime: what kind of file it is, by its name and, where that says nothing, by its first bytes. A
 * guest chooses both, so the answer is a hint for whoever shows the file, and never a decision of
 * ours. Pure.
 */
#ifndef BELLJAR_TOOLS_MIME_H
#define BELLJAR_TOOLS_MIME_H

#include "base/base.h"

/* NULL when the name tells nothing. */
const char *mime_of_name(const char *path);
/* Never NULL: by name, else by content, else text/plain or application/octet-stream. */
const char *mime_of(const char *path, const char *bytes, size_t len);
/* By content alone; NULL when it tells nothing. */
const char *mime_of_bytes(const char *bytes, size_t len);
/* Is a file of this type, if it is UTF-8, for reading as text? */
bool mime_is_text(const char *type);

#endif
