/*
 * attach: a connection of the engine that was taken over for the standard streams of one container, joined
 * to a socket: what is written to the socket is the container's input, its output can be read there. Both
 * ways are bounded: who does not read stops who writes.
 */
#ifndef BELLJAR_ENGINE_DOCKER_ATTACH_H
#define BELLJAR_ENGINE_DOCKER_ATTACH_H

#include "engine/docker/api.h"

struct docker_attach;

struct docker_attach_events {
    void (*on_open)(void *data);  /* the container may be started: nothing will be lost */
    void (*on_first)(void *data); /* the first output has come */
    /* Once, last: the engine has closed the connection, or spoke nonsense. What the container complained
     * of is part of err. docker_attach_free() is still to be called. */
    void (*on_end)(const struct err *err, void *data);
};

/* Asks for it with `path` and `body` (JSON; "" : none). `before` (copied) goes to the container ahead of what comes
 * from the socket. Takes `fd`. */
struct docker_attach *docker_attach_new(uv_loop_t *loop, const struct docker_api *api,
                                        const char *path, const char *body,
                                        const struct buf *before, int fd, uint64_t timeout_ms,
                                        const struct docker_attach_events *events, void *data);
/* Closes both sides; no callback afterwards. NULL is fine. The container's input ends with it. */
void docker_attach_free(struct docker_attach *attach);

#endif
