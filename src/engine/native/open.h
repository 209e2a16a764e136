/*
 * open: starts the keeper and the spawner; see host.h for who is who.
 */
#ifndef BELLJAR_ENGINE_NATIVE_OPEN_H
#define BELLJAR_ENGINE_NATIVE_OPEN_H

#include "engine/native/host.h"

struct native_started {
    int wire; /* the server's end */
    pid_t keeper;
    unsigned layers;
    uint32_t slots;
    bool own_uids;
    enum cgroup_kind cgroup;
    char missing[256]; /* limits that are not to be had, in words; "" */
};

/* As engine_checks(). */
size_t native_checks(const struct engine_options *options,
                     struct engine_check ret[ENGINE_CHECKS_MAX]);

/* On failure nothing is left. Blocks for some milliseconds. */
int native_host_open(const struct engine_options *options, struct native_started *ret,
                     struct err *err);

#endif
