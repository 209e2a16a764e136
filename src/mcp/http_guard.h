/*
 * http_guard: who may speak to this server. Every HTTP request passes here before anything of it
 * is believed: Host and Origin against web pages (DNS rebinding, cross-site requests), then the
 * bearer token.
 *
 * Allowed Host names: localhost, 127.0.0.1, [::1], those configured; with `any_host`, IP addresses
 * too, and every name when a token is required (a page that rebinds its name to us has no token).
 * Allowed Origins: none at all (not a browser), loopback names, the request's own Host, those
 * configured. "null" is never allowed.
 */
#ifndef BELLJAR_MCP_HTTP_GUARD_H
#define BELLJAR_MCP_HTTP_GUARD_H

#include "mcp/shape.h"

struct http_guard;
struct http_request;

struct http_guard_options {
    const char *token;               /* NULL: no authentication */
    struct str_list allowed_hosts;   /* "name" (any port) or "name:port" */
    struct str_list allowed_origins; /* "https://app.example", exact */
    bool any_host;                   /* the server listens beyond loopback */
};

/* Copies what it needs. */
struct http_guard *http_guard_new(const struct http_guard_options *options);
void http_guard_free(struct http_guard *guard); /* NULL is fine */

/* Host and Origin only, for pages that tell nothing: see http_guard_check() for the answers. */
bool http_guard_check_web(const struct http_guard *guard, struct http_request *req);

/* True: go on; *ret_subject names the authenticated caller, NULL without authentication. CORS fields
 * for an allowed Origin have been added to the coming answer. False: answered here, with 403, 401,
 * or 204 for a preflight. */
bool http_guard_check(const struct http_guard *guard, struct http_request *req,
                      const char **ret_subject);

#endif
