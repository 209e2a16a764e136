/*
 * reply: what the engine's answers say. Pure. The engine is somebody else's program, perhaps on somebody
 * else's machine: lengths, types and numbers are checked, and what is shown to people is quoted.
 */
#ifndef BELLJAR_ENGINE_DOCKER_REPLY_H
#define BELLJAR_ENGINE_DOCKER_REPLY_H

#include "base/json.h"
#include "engine/docker/api.h"

/* An object; release it. -EPROTO: it is none. */
int docker_read_object(const struct docker_reply *reply, json_t **ret, struct err *err);

/* What it means that `what` was not answered with a status of 2xx. Returns -errno: ENOENT (404), EBUSY
 * (409), ENOSPC … */
int docker_explain(const struct docker_reply *reply, const char *what, struct err *err);
/* 0 for 2xx, else as above. */
int docker_expect(const struct docker_reply *reply, const char *what, struct err *err);

/* --- the engine ------------------------------------------------------------------------------- */

enum { DOCKER_WORD = 64 };
struct docker_facts {
    char version[DOCKER_WORD];
    char api[12]; /* the version of the interface that both know: "1.41" */
    char arch[DOCKER_WORD];
    bool podman;
    char runtime[DOCKER_WORD], cgroup_driver[DOCKER_WORD], storage[DOCKER_WORD];
    int cgroup_version;
    unsigned cpus;
    bool rootless, userns, seccomp;
    bool memory_limit, swap_limit, pids_limit, cpu_limit;
};
/* GET /version. -EPROTONOSUPPORT: none that both know. */
int docker_read_version(const struct docker_reply *reply, struct docker_facts *ret,
                        struct err *err);
/* GET /info */
int docker_read_info(const struct docker_reply *reply, struct docker_facts *ret, struct err *err);

/* --- images and containers -------------------------------------------------------------------- */

struct docker_image {
    char id[80];     /* "sha256:…" */
    struct buf env;  /* "NAME=value\0…" */
    json_t *volumes; /* array of paths */
};
enum { DOCKER_IMAGE_ENV_MAX = 8 * 1024, DOCKER_IMAGE_ENV_COUNT = 128, DOCKER_VOLUMES_MAX = 32 };
/* GET /images/NAME/json */
int docker_read_image(const struct docker_reply *reply, struct docker_image *ret, struct err *err);
void docker_image_done(struct docker_image *image);

/* As engines let names be; nothing else goes into a path. NULL is none. */
bool docker_is_name(const char *text);
/* GET /containers/json: adds a member to `ret`, an object, for each container with that value of `label`: its
 * name without the slash, and false. */
int docker_read_names(const struct docker_reply *reply, const char *label, const char *value,
                      json_t *ret, struct err *err);

/* GET /containers/json: adds to the array `ret` what it says of each container with that label, in words that can
 * be shown: "sandbox", "instance" (the label's value), "image", "state", and "created", in seconds since 1970. */
int docker_read_list(const struct docker_reply *reply, const char *label, json_t *ret,
                     struct err *err);

/* POST /containers/NAME/exec */
enum { DOCKER_EXEC_ID = 65 };
int docker_read_exec(const struct docker_reply *reply, char ret[static DOCKER_EXEC_ID],
                     struct err *err);

/* GET /containers/NAME/stats */
int docker_read_stats(const struct docker_reply *reply, struct sandbox_usage *ret, struct err *err);

#endif
