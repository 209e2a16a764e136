/*
 * What the files of docker/ share that make the engine: docker.c owns it, box.c owns one container from its
 * making to its end, graves.c sees that none is left.
 */
#ifndef BELLJAR_ENGINE_DOCKER_PRIVATE_H
#define BELLJAR_ENGINE_DOCKER_PRIVATE_H

#include "base/list.h"
#include "base/loop.h"
#include "engine/broker.h"
#include "engine/docker/attach.h"
#include "engine/docker/container.h"
#include "engine/docker/prepare.h"
#include "engine/native/seccomp.h"

enum { DOCKER_NAME = 96, DOCKER_DEAD_MAX = 64 /* instances that one start cleans up after */ };

struct image_names {
    const char **items;
    size_t count;
};
struct image_names image_names_copy(const char *const *items, size_t count);
void image_names_done(struct image_names *names);

struct docker {
    struct engine base;
    uv_loop_t *loop;
    struct docker_target *target;
    struct docker_api *api;
    struct instance instance;
    struct prepared prepared;
    struct image_names images; /* as struct sandbox_plan counts them */
    char *runtime, *working_dir, *seccomp;
    struct seccomp_program filter; /* of guests */
    uint64_t timeout_ms;
    struct broker *broker;
    uint64_t serial;

    /* Each container has a user of its own, unless `user` says otherwise. */
    bool own_uids;
    uint32_t uid_base, uid_count, uid_next;
    uint32_t uid, gid;    /* without */
    unsigned char *taken; /* by number of the uid */

    bool adopts;                            /* else these are another server's */
    struct list kept;                       /* struct kept: of dead servers, to be adopted */
    struct instance heirs[DOCKER_DEAD_MAX]; /* whose containers we have adopted, or may */
    size_t n_heirs;
    bool leaves_kept; /* some are left to the next server */

    struct list boxes;       /* struct box */
    struct list held_back;   /* struct box that wait for `refresh` */
    struct refresh *refresh; /* NULL: none under way */
    struct list graves;
    struct dead *dead;
    struct timer *bury;

    /* Of an engine for installers: the one for whose guests it is, which looks after the container engine
     * for both, and by whose instance the containers of both are found; and the other way round. */
    struct docker *guests, *installers;
    bool leaves_some;       /* containers may be left at the end */
    char *network, *wheels; /* "" : none */

    struct {
        char volume[96]; /* "" : there are none */
        char *dir, *copies;
        char helper[DOCKER_NAME]; /* the container by which the volume is written; "" : not yet */
        struct list showings;     /* in the order of arrival; the first is being worked on */
    } packages;
};

/* What is known of the engine and the image. */
static inline const struct prepared *docker_prepared(const struct docker *docker)
{
    return docker->guests ? &docker->guests->prepared : &docker->prepared;
}

struct usage; /* one who waits to hear it */

enum box_state { BOX_HELD_BACK, BOX_CREATING, BOX_ATTACHING, BOX_STARTING, BOX_READY };

struct box {
    struct sandbox base;
    struct docker *docker;
    struct list link; /* docker->boxes or ->held_back */
    enum box_state state;
    struct sandbox_plan plan;
    char name[DOCKER_NAME]; /* of its container; "" : none was asked for */
    int slot;               /* of its uid; -1: it has none of its own */
    uint32_t uid;
    char image[sizeof(((struct docker_image *)NULL)->id)]; /* its id */
    bool again;                                            /* its first attempt has failed */
    bool unsure;         /* the engine has been asked to make it, and has not answered */
    bool started, spoke; /* what has been seen of it */
    bool ended;          /* its connection has, before the engine has said that it is started */
    struct err end;      /* the same: how */
    struct docker_call *call;
    struct docker_attach *attach;
    struct timer *patience; /* for the agent's first word */
    struct timer *later;    /* what must be told from the loop */
    bool dead, told;
    bool adopting; /* it is another server's, and not ours yet */
    struct engine_pending adoption;
    sandbox_added_fn *on_added; /* NULL: nobody waits */
    void *on_added_data;
    struct list usages; /* struct usage */
};

/*** box.c ***/

struct box *box_new(struct docker *docker, const struct sandbox_plan *plan, int slot);
/* Makes its container: box_made() or box_failed() of docker.c follows. */
void box_begin(struct box *box);
/* Away with what there is of the container, if any; the box is as new, and has no slot any more. */
void box_clear(struct box *box);
/* The same, and the box is gone. */
void box_free(struct box *box);
/* Joins the agent of a dead server's container, whose name it has; `adoption` is told how it went. */
void box_adopt(struct box *box);
/* The box is gone, its container stays. */
void box_leave(struct box *box);
void box_add_kernel(struct box *box, sandbox_added_fn *on_added, void *data);
void box_usage(struct box *box, sandbox_usage_fn *on_usage, void *data);

/*** docker.c ***/

void box_made(struct box *box);
void box_failed(struct box *box, const struct err *err);
/* A container that was made has ended. */
void box_ended(struct box *box);
void docker_free_slot(struct docker *docker, int slot);
/* The slot of a uid that is in use; -1: it is none of our range. */
int docker_claim_slot(struct docker *docker, uint32_t uid);
/* An adoption is over: with the box, or with NULL and why. */
void box_adopted(struct box *box, const struct err *err);

/*** adopt.c ***/

/* Chooses from notes of sandboxes those of docker->dead. */
void kept_choose(struct docker *docker, const json_t *notes);
/* Their names, as an object for docker_clean_dead(). */
json_t *kept_names(const struct docker *docker);
/* The engine does not have those that are not true in `found`. */
void kept_found(struct docker *docker, const json_t *found);
/* Their users are taken, from when we know which are ours. */
void kept_claim(struct docker *docker);
/* Kept, or adopted. */
bool docker_spares(const struct docker *docker, const char *name);
json_t *docker_note(const struct sandbox *sandbox);
bool docker_has_kept(const struct engine *engine, const json_t *note,
                     const struct sandbox_plan *plan);
struct engine_pending *docker_adopt(struct engine *engine, const json_t *note,
                                    const struct sandbox_plan *plan, engine_started_fn *on_started,
                                    void *data);
/* Begins with those that wait, as many as may. */
void adopt_pump(struct docker *docker);
void docker_adopt_leave(struct engine_pending *pending);
void docker_drop_kept(struct engine *engine);
bool docker_is_stale(const struct engine *engine, const json_t *note);
void kept_done(struct docker *docker);

/*** dead.c ***/

/* Remembers instances whose servers are dead, and from dead_watch() on removes for a while what the engine
 * still makes for them. */
struct dead *dead_new(struct docker *docker, const struct instance *instances, size_t count);
void dead_watch(struct dead *dead);
bool dead_has(const struct dead *dead, const char *id); /* one of these instances */
void dead_free(struct dead *dead);

/*** packages.c ***/

void docker_packages_open(struct docker *docker, const struct engine_packages *packages);
/* Nobody is told any more. Adds the name of the helper to `names`, for docker_remove_all(). */
void docker_packages_close(struct docker *docker, json_t *names);
struct engine_showing *docker_show(struct engine *engine, const char *name, uint64_t timeout_ms,
                                   engine_shown_fn *on_shown, void *data);
void docker_show_cancel(struct engine_showing *showing);

/*** checks.c ***/

size_t docker_checks(const struct engine_options *options,
                     struct engine_check ret[ENGINE_CHECKS_MAX]);

/*** graves.c ***/

/* Removes the container of that name, however long it takes; then its slot is free. `unsure`: the engine may
 * still be about to make it, and its not being there yet proves nothing. */
void grave_add(struct docker *docker, const char *name, int slot, bool unsure);
/* From time to time: those whose removal has failed are tried again. */
void graves_tend(void *docker);
/* Adds the names of those that are not gone, for docker_remove_all(); they are forgotten. */
void graves_give_up(struct docker *docker, json_t *names);

#endif
