/*
 * hub: libcurl's transfers on the loop. libcurl says which sockets and which moment it waits for; the hub
 * watches those and tells when a transfer is over. It knows nothing of Docker.
 */
#ifndef BELLJAR_ENGINE_DOCKER_HUB_H
#define BELLJAR_ENGINE_DOCKER_HUB_H

#include "base/base.h"

#include <curl/curl.h>
#include <uv.h>

struct hub;

/* One transfer: the owner embeds it, sets up `easy` and owns it. */
struct hub_transfer {
    CURL *easy;
    /* Once, from the loop; hub_remove() is still to be called. */
    void (*on_over)(struct hub_transfer *transfer, CURLcode code);
};

struct hub *hub_new(uv_loop_t *loop, long max_connections);
void hub_free(struct hub *hub); /* NULL is fine; every transfer has been removed */

void hub_add(struct hub *hub, struct hub_transfer *transfer);
/* Ends it if it is not over. A connection that is CONNECT_ONLY lives until here. */
void hub_remove(struct hub *hub, struct hub_transfer *transfer);

#endif
