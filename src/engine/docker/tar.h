/*
 * tar: an archive of one file, as the engine takes it.
 */
#ifndef BELLJAR_ENGINE_DOCKER_TAR_H
#define BELLJAR_ENGINE_DOCKER_TAR_H

#include "base/buf.h"

/* Root's, and executable for everybody. `name` has at most 99 bytes. */
void tar_program(struct buf *ret, const char *name, const void *bytes, size_t len);

#endif
