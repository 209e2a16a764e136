/*
 * instance: the file by which a later start finds what a killed one left: <state_dir>/instances/<id>,
 * locked for as long as the keeper or the spawner lives. It lists where its cgroups are. Those of the docker
 * engine are in a directory of their own, locked by the server itself, and their time is that of the last
 * container it has asked for: labels tell the rest.
 */
#ifndef BELLJAR_ENGINE_NATIVE_INSTANCE_H
#define BELLJAR_ENGINE_NATIVE_INSTANCE_H

#include "engine/native/cgroup.h"

struct instance {
    int dir;  /* <state_dir>/instances */
    int lock; /* the file, locked */
    char id[65];
};

/* Makes and locks the file, in the directory `kind` of state_dir. -EBUSY: an instance of this name is
 * alive. */
#define INSTANCES_NATIVE "instances"
#define INSTANCES_DOCKER "containers"
int instance_open(const char *state_dir, const char *kind, const char *id, struct instance *ret,
                  struct err *err);
/* Notes where cgroups_open() will make its directories; to be called before it, so that there is no
 * moment at which a kill leaves something that cannot be found. */
int instance_note(const struct instance *instance, struct err *err);
/* Leaves the time of now in the file, by its descriptor: its name may be out of reach. */
void instance_touch(const struct instance *instance);
/* How long ago that was. */
uint64_t instance_age_ms(const struct instance *instance);
/* Removes the file; the lock goes with the last descriptor. */
void instance_remove(const struct instance *instance);
void instance_close(struct instance *instance);

/* Instances of the same kind that nobody holds any more, locked, at most `max`; how many. What they left is
 * for the caller to remove, and then their files. */
size_t instance_take_dead(const struct instance *instance, struct instance *ret, size_t max);

/* Whether the server of that name is "running" or "gone"; "unknown" when nothing tells of it here. */
const char *instance_server(const char *state_dir, const char *kind, const char *id);
/* Adds to `ret` what native sandboxes there are, as engine_list() says; by their cgroups, so none on a host
 * without. */
int instance_list(const char *state_dir, json_t *ret, struct err *err);

/* Removes the cgroups and files of instances that nobody holds any more. */
void instance_clean_others(const struct instance *instance);
/* The same for one whose server is dead, as soon as nobody holds it. */
void instance_clean_dead(const char *state_dir, const char *id);

#endif
