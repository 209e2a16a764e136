/*
 * prepare: what has to be known and to be there before containers can be made, and what has to be removed
 * after them. These functions block: they are for the start and the end of a server, and for a worker
 * thread; each has a loop of its own.
 */
#ifndef BELLJAR_ENGINE_DOCKER_PREPARE_H
#define BELLJAR_ENGINE_DOCKER_PREPARE_H

#include "engine/docker/reply.h"
#include "engine/native/instance.h"

#include <stdatomic.h>

enum {
    DOCKER_UNSURE_MS = 60 * 1000
}; /* that an engine may work on what nobody waits for any more */

struct prepare_options {
    const struct docker_target *target;
    const char *const *images;
    size_t n_images;
    const char *instance;
    uint64_t timeout_ms;          /* of one request */
    const atomic_bool *cancelled; /* another thread wants it to end soon; NULL: nobody will */
    bool refill;                  /* put the agent into its volume, even if there is one */
};

struct prepared {
    struct docker_facts facts;
    struct docker_image
        *images; /* as asked for; of all but the first: "" as id when it is not there */
    size_t n_images;
    char volume[64];
};

/* Asks who the engine is, looks for the images, and puts the agent into a volume that is named after its
 * content unless that has been done. On failure err names the remedy. */
int docker_prepare(const struct prepare_options *options, struct prepared *ret, struct err *err);
void prepared_done(struct prepared *prepared);

/* Only the facts: for people who look. */
int docker_look(const struct prepare_options *options, struct docker_facts *ret, struct err *err);

/* Adds to `ret` what containers of belljar servers there are, as docker_read_list() says. */
int docker_list(const struct prepare_options *options, json_t *ret, struct err *err);

/* Removes the containers of instances whose servers are dead, and forgets these if nothing more can come of
 * them. Containers that are members of `spared`, an object, stay, and become true there; instances that have some
 * stay open, and all others are closed. */
void docker_clean_dead(const struct prepare_options *options, const char *api,
                       struct instance *dead, size_t count, json_t *spared);

/* Removes containers, all at once, within `limit_ms`. `names` is an object of their names; true: the engine
 * may still be about to make it, and its not being there proves nothing for a while. False: some may be
 * left. */
bool docker_remove_all(const struct docker_target *target, const char *api, json_t *names,
                       uint64_t limit_ms);

/* That the engine does not have an image, and the remedy. Returns -ENOENT. */
int docker_no_image(const char *name, struct err *err);

/* The path by which containers of belljar's are listed, of all instances (NULL) or of one; owned by the
 * caller. */
char *docker_list_path(const char *id);
/* The path by which a container is removed; owned by the caller. */
char *docker_removal_path(const char *name);

#endif
