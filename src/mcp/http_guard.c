#include "mcp/http_guard.h"

#include "base/buf.h"
#include "base/text.h"
#include "http/http.h"
#include "mcp/mcp.h"
#include "mcp/rpc.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct http_guard {
    char *token;
    char **hosts;   /* NULL-terminated */
    char **origins; /* NULL-terminated */
    bool any_host;
};

static char **copy_list(const struct str_list *list)
{
    char **copy = xcalloc(list->count + 1, sizeof(*copy));
    for (size_t i = 0; i < list->count; i++)
        copy[i] = xstrdup(list->items[i]);
    return copy;
}

static void free_list(char **list)
{
    for (char **item = list; item && *item; item++)
        free(*item);
    free(list);
}

struct http_guard *http_guard_new(const struct http_guard_options *options)
{
    struct http_guard *guard = xcalloc(1, sizeof(*guard));
    guard->token = options->token ? xstrdup(options->token) : NULL;
    guard->hosts = copy_list(&options->allowed_hosts);
    guard->origins = copy_list(&options->allowed_origins);
    guard->any_host = options->any_host;
    return guard;
}

void http_guard_free(struct http_guard *guard)
{
    if (!guard)
        return;
    free(guard->token);
    free_list(guard->hosts);
    free_list(guard->origins);
    free(guard);
}

/*** Names ***/

/* Length of the name in "name", "name:port" or "[v6]:port"; 0 when it is none of these. */
static size_t name_length(const char *authority)
{
    size_t len = authority[0] == '[' ? strcspn(authority, "]") + 1 : strcspn(authority, ":");
    if (authority[0] == '[' && authority[len - 1] != ']')
        return 0;
    const char *rest = authority + len;
    if (*rest == ':') {
        size_t digits = strspn(rest + 1, "0123456789");
        if (digits == 0 || digits > 5)
            return 0;
        rest += 1 + digits;
    }
    return *rest ? 0 : len;
}

static bool is_name(const char *authority, size_t len, const char *name)
{
    return strlen(name) == len && strncasecmp(authority, name, len) == 0;
}

static bool is_loopback(const char *authority)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    size_t len = name_length(authority);
    for (size_t i = 0; len && i < ARRAY_SIZE(names); i++) {
        if (is_name(authority, len, names[i]))
            return true;
    }
    return false;
}

static bool is_address(const char *authority)
{
    size_t len = name_length(authority);
    return len && (authority[0] == '[' || strspn(authority, "0123456789.") == len);
}

static bool host_allowed(const struct http_guard *guard, const char *host)
{
    size_t len = name_length(host);
    if (!len)
        return false;
    if (is_loopback(host))
        return true;
    if (guard->any_host && (guard->token || is_address(host)))
        return true;
    for (char **name = guard->hosts; *name; name++) {
        if (strcasecmp(*name, host) == 0 || is_name(host, len, *name))
            return true;
    }
    return false;
}

/* The "host:port" part of an Origin, or NULL when it is not one ("null", a path, another scheme). */
static const char *origin_authority(const char *origin)
{
    if (strncasecmp(origin, "http://", 7) == 0)
        origin += 7;
    else if (strncasecmp(origin, "https://", 8) == 0)
        origin += 8;
    else
        return NULL;
    return name_length(origin) ? origin : NULL;
}

static bool origin_allowed(const struct http_guard *guard, const char *origin, const char *host)
{
    for (char **name = guard->origins; *name; name++) {
        if (strcmp(*name, origin) == 0)
            return true;
    }
    const char *authority = origin_authority(origin);
    return authority && (is_loopback(authority) || strcasecmp(authority, host) == 0);
}

/*** Answers ***/

static void refuse(struct http_request *req, int status, const struct http_field *fields,
                   const char *text)
{
    struct rpc_error error = { 0 };
    rpc_error_set(&error, MCP_INVALID_REQUEST, "%s", text);
    auto_json *reply = rpc_error_reply(NULL, &error);
    auto_free char *body = json_text(reply);
    http_respond(req, status, fields, body, strlen(body));
}

static void forbid(struct http_request *req, const char *what)
{
    static const struct http_field fields[] = { { "Content-Type", "application/json" }, { 0 } };
    refuse(req, 403, fields, what);
}

static void challenge(struct http_request *req, const char *challenge_value, const char *text)
{
    const struct http_field fields[] = { { "Content-Type", "application/json" },
                                         { "WWW-Authenticate", challenge_value },
                                         { 0 } };
    refuse(req, 401, fields, text);
}

/* Appends those of the headers asked for that mirror a tool's argument: their names are the tools',
 * and there is no wildcard for a prefix. */
static void add_mirrored(struct buf *allowed, const char *asked)
{
    static const char prefix[] = "mcp-param-";
    static const char token[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "!#$%&'*+-.^_`|~";
    while (asked && *asked) {
        asked += strspn(asked, ", \t");
        size_t len = strcspn(asked, ", \t");
        if (strncasecmp(asked, prefix, strlen(prefix)) == 0 && strspn(asked, token) == len)
            (void)buf_printf(allowed, ", %.*s", (int)len, asked);
        asked += len;
    }
}

static void preflight(struct http_request *req)
{
    auto_buf allowed = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&allowed, "content-type, accept, authorization, mcp-protocol-version, "
                                "mcp-method, mcp-name, mcp-session-id, last-event-id");
    add_mirrored(&allowed, http_request_header(req, "Access-Control-Request-Headers"));
    const struct http_field fields[] = {
        { "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS" },
        { "Access-Control-Allow-Headers", buf_str(&allowed) },
        { "Access-Control-Max-Age", "600" },
        { 0 },
    };
    http_respond(req, 204, fields, NULL, 0);
}

/*** The check ***/

static bool check_token(const struct http_guard *guard, struct http_request *req)
{
    const char *value = http_request_header(req, "Authorization");
    /* RFC 6750, 3.1: who has not tried with a token is told of no error. */
    if (!value || strncasecmp(value, "Bearer ", 7) != 0) {
        challenge(req, "Bearer realm=\"belljar\"",
                  "this server needs a token: send Authorization: Bearer …");
        return false;
    }
    if (http_request_header_count(req, "Authorization") == 1 && secret_eq(value + 7, guard->token))
        return true;
    challenge(req,
              "Bearer realm=\"belljar\", error=\"invalid_token\", "
              "error_description=\"the token is not valid\"",
              "the token is not valid");
    return false;
}

static bool check_origin(const struct http_guard *guard, struct http_request *req, const char *host)
{
    const char *origin = http_request_header(req, "Origin");
    if (!origin)
        return true;
    if (http_request_header_count(req, "Origin") != 1 || !origin_allowed(guard, origin, host)) {
        forbid(req, "this Origin may not use this server (see allowed_origins)");
        return false;
    }
    http_request_add_field(req, "Access-Control-Allow-Origin", origin);
    http_request_add_field(req, "Access-Control-Expose-Headers",
                           "Mcp-Session-Id, WWW-Authenticate");
    http_request_add_field(req, "Vary", "Origin");
    return true;
}

bool http_guard_check_web(const struct http_guard *guard, struct http_request *req)
{
    const char *host = http_request_header(req, "Host");
    if (!host || !host_allowed(guard, host)) {
        forbid(req, "this Host may not be used for this server (see allowed_hosts)");
        return false;
    }
    if (!check_origin(guard, req, host))
        return false;
    if (str_eq(http_request_method(req), "OPTIONS")) { /* carries no credentials by design */
        preflight(req);
        return false;
    }
    return true;
}

bool http_guard_check(const struct http_guard *guard, struct http_request *req,
                      const char **ret_subject)
{
    *ret_subject = guard->token ? MCP_OWNER_TOKEN : NULL;
    return http_guard_check_web(guard, req) && (!guard->token || check_token(guard, req));
}
