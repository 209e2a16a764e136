/*
 * root: the file system that sandboxes see. The template is built once, in the spawner's own mount
 * namespace, and pivoted into: the spawner lives in it and has no way back to the host's files. Each
 * sandbox copies the namespace and adds what must be private (agent/places.c).
 */
#ifndef BELLJAR_ENGINE_NATIVE_ROOT_H
#define BELLJAR_ENGINE_NATIVE_ROOT_H

#include "engine/engine.h"
#include "engine/native/runtime.h"

/* In the spawner, in a fresh mount and pid namespace. */
struct root_plan {
    const char *rootfs; /* "" : the host's own programs */
    const struct runtime *runtime;
    const char *packages;                 /* shown at ENGINE_PACKAGES; "" : nothing is */
    const struct engine_network *network; /* NULL: none */
    /* The zygote's files are put where it looks for them, and where each sandbox mounts something else. */
    bool with_zygote;
};
int root_template(const struct root_plan *plan, struct err *err);

#endif
