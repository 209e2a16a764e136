/*
 * web: the HTTP face of `belljar serve`. Routes:
 *
 *   /mcp, /mcp/PROFILE   MCP, after Host, Origin and token
 *   /healthz, /readyz    alive; taking requests (no token: they tell nothing else)
 *   /metrics             Prometheus text, with the token
 */
#ifndef BELLJAR_CLI_WEB_H
#define BELLJAR_CLI_WEB_H

#include "cli/sandboxes.h"
#include "config/config.h"
#include "mcp/mcp.h"

struct web;

/* Binds and serves. The first profile's server is at /mcp, each also at /mcp/NAME. `servers` are
 * borrowed and end with a row whose name is NULL, `sandboxes` is borrowed for /metrics. */
struct web_endpoint {
    const char *name;
    struct mcp_server *server;
};
int web_start(uv_loop_t *loop, const struct config *config, const struct web_endpoint *endpoints,
              const struct sandboxes *sandboxes, struct web **ret, struct err *err);

/* "http://127.0.0.1:8000/mcp" */
const char *web_url(const struct web *web);

/* Stops accepting and ends what can be ended; on_drained once, at the latest after grace_ms. */
void web_drain(struct web *web, uint64_t grace_ms, void (*on_drained)(void *data), void *data);
void web_free(struct web *web); /* NULL is fine */

#endif
