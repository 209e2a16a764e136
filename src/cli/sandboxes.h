/*
 * sandboxes: engine, sessions and toolbox as the configuration wants them, for the commands that run
 * code.
 */
#ifndef BELLJAR_CLI_SANDBOXES_H
#define BELLJAR_CLI_SANDBOXES_H

#include "cli/installer.h"
#include "config/config.h"
#include "tools/toolbox.h"

/* What the sessions' options refer to. */
struct guest_options {
    json_t *env, *allowed_modules, *blocked_modules, *preload;
};

struct sandboxes {
    struct engine *engine;
    struct sessions *sessions;
    struct installer installer;
    struct toolbox toolbox;
    struct guest_options guest;
    /* Of the docker engine: its own, then those that sessions may ask for; else NULL. */
    const char **images;
    size_t n_images;
    char **dirs; /* where it keeps files; NULL at the end, once there is one */
    size_t n_dirs;
    /* Of an engine whose sandboxes can outlive a server: notes of sessions, and at the start what they say. */
    struct roster *roster;
    json_t *notes;
    bool adopts;            /* this is a server that others come back to */
    struct more_sandboxes { /* of the other profiles */
        struct more_sandboxes *next;
        struct guest_options guest;
        struct toolbox toolbox;
    } * more;
};

/* What concerns the docker engine, but for the images; borrows from `config`. */
struct engine_docker docker_options(const struct config *config);

/* state_dir, or where it is when that is not set; owned by the caller. */
char *sandboxes_state_dir(const struct config *config);

/* Who the server will be once it has dropped its privileges, to give it what is its own before. */
uid_t sandboxes_server_uid(const struct config *config);

/* `strict`: it is served over HTTP, which decides what require_limits "auto" means, and whether sessions
 * can outlive the server. Must come before the process drops privileges. On failure nothing is left. */
int sandboxes_open(struct sandboxes *ret, uv_loop_t *loop, const struct config *config, bool strict,
                   struct err *err);
/* Sessions for another profile, over the same engine, as its `config` (which outlives them) wants
 * them; the toolbox is borrowed and ends with the rest. */
int sandboxes_add(struct sandboxes *sandboxes, uv_loop_t *loop, const struct config *config,
                  const char *profile, struct toolbox **ret, struct err *err);
/* engine_confine() to what they need. */
int sandboxes_confine(const struct sandboxes *sandboxes, struct err *err);
/* All profiles are there: what none of them has adopted goes. */
void sandboxes_adopted(struct sandboxes *sandboxes);
/* sessions_cancel_runs() for all of them. */
void sandboxes_cancel_runs(struct sandboxes *sandboxes);
/* Ends every session. A zeroed struct is fine. */
void sandboxes_close(struct sandboxes *sandboxes);

#endif
