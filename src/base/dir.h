/* dir: directories that the operator names and that need not be there yet. */
#ifndef BELLJAR_DIR_H
#define BELLJAR_DIR_H

#include "base/err.h"

#include <sys/types.h>

/* Makes every directory on the way that is missing, the last with `mode`. `option` is who wants it, for the
 * error. 0 or negative. */
int dir_make(const char *path, mode_t mode, const char *option, struct err *err);

#endif
