/*
 * ask: requests that are waited for, one after another, on a loop of their own: for the start and the end of
 * a server, and for worker threads.
 */
#ifndef BELLJAR_ENGINE_DOCKER_ASK_H
#define BELLJAR_ENGINE_DOCKER_ASK_H

#include "base/json.h"
#include "base/loop.h"
#include "engine/docker/api.h"

#include <stdatomic.h>

struct asker {
    uv_loop_t loop;
    struct docker_api *api;
    struct timer *look; /* at `cancelled` */
    const atomic_bool *cancelled;
    struct docker_call *call; /* under way */
    struct docker_reply reply;
    struct buf body; /* the reply's */
    bool answered;
};

/* Each request may take `timeout_ms`. When another thread sets `cancelled` (NULL: nobody will), the request
 * that is under way ends soon, without an answer, and so does each that follows. `target` outlives it. Fails when no
 * descriptors are left; then there is nothing to close. */
int asker_open(struct asker *asker, const struct docker_target *target, uint64_t timeout_ms,
               const atomic_bool *cancelled, struct err *err);
void asker_close(struct asker *asker);

/* The reply is valid until the next. */
const struct docker_reply *asker_ask(struct asker *asker, const struct docker_request *request);
const struct docker_reply *asker_get(struct asker *asker, const char *path);
const struct docker_reply *asker_post(struct asker *asker, const char *path, const json_t *body);

#endif
