/*
 * api: requests to the container engine, each one answered once, from the loop. Nothing that comes back
 * is believed here but its length and its status; reply.h reads it.
 */
#ifndef BELLJAR_ENGINE_DOCKER_API_H
#define BELLJAR_ENGINE_DOCKER_API_H

#include "base/buf.h"
#include "engine/docker/target.h"

#include <uv.h>

enum { DOCKER_REPLY_MAX = 4 << 20 };

struct docker_api;
struct docker_call;

/* A body that is read while it is sent: of a plain file, for reading blocks. */
struct docker_file {
    int fd;
    uint64_t len;
};

/* A body whose length nobody knows before its end. Both are called from the loop, and may block where that
 * is a worker's own. */
struct docker_source {
    ssize_t (*read)(void *data, char *room, size_t size); /* 0: the end; negative: it is broken */
    void (*rewind)(void *data);
    void *data;
};

struct docker_request {
    const char *method;
    const char *path; /* behind the version: "/containers/json?all=1" */
    const char *type; /* of the body; NULL: JSON */
    const void *body; /* copied; NULL: none */
    size_t len;
    const struct docker_file *file;     /* the body instead; outlives the call; NULL: none */
    const struct docker_source *source; /* the same */
    uint64_t timeout_ms;                /* 0: that of docker_api_new() */
    /* Gets the answer as it comes, if its status is one of success; the reply then has no body. A
     * negative number ends the call. */
    int (*on_piece)(const char *bytes, size_t len, void *data);
};

struct docker_reply {
    int status; /* of HTTP; 0: there was no answer, and err says why */
    const char *body;
    size_t len;
    struct err err;
};
typedef void docker_reply_fn(const struct docker_reply *reply, void *data);

/* `target` outlives it. Each request may take `timeout_ms`. */
struct docker_api *docker_api_new(uv_loop_t *loop, const struct docker_target *target,
                                  uint64_t timeout_ms);
void docker_api_free(struct docker_api *api); /* NULL is fine; nobody is told any more */
/* "1.41": from here on paths are those of this version. "": without. */
void docker_api_version(struct docker_api *api, const char *version);
const struct docker_target *docker_api_target(const struct docker_api *api);
const char *docker_api_prefix(const struct docker_api *api); /* "/v1.41", or "" */

/* Exactly one call of on_reply follows, unless cancelled. */
struct docker_call *docker_call(struct docker_api *api, const struct docker_request *request,
                                docker_reply_fn *on_reply, void *data);
void docker_call_cancel(struct docker_call *call);

#endif
