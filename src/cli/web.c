#include "cli/web.h"

#include "base/buf.h"
#include "http/http.h"
#include "mcp/http_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct mount {
    const char *name;
    struct mcp_server *server;
    struct mcp_http *mcp;
};

struct web {
    struct http_server *http;
    struct http_guard *guard;
    const struct sandboxes *sandboxes;
    struct mount *mounts; /* the first is the one at /mcp */
    size_t n_mounts;
    char *url;
    int statm; /* /proc/self/statm, which is out of reach later */
    bool draining;
};

/*** Pages ***/

static void text_page(struct http_request *req, int status, const char *text)
{
    static const struct http_field fields[] = { { "Content-Type", "text/plain; charset=utf-8" },
                                                { "Cache-Control", "no-store" },
                                                { 0 } };
    http_respond(req, status, fields, text, strlen(text));
}

static void method_not_allowed(struct http_request *req)
{
    static const struct http_field fields[] = { { "Content-Type", "text/plain; charset=utf-8" },
                                                { "Allow", "GET, HEAD" },
                                                { 0 } };
    static const char text[] = "use GET\n";
    http_respond(req, 405, fields, text, strlen(text));
}

static double resident_bytes(const struct web *web)
{
    char text[128] = "";
    long pages = 0;
    if (pread(web->statm, text, sizeof(text) - 1, 0) < 0 || sscanf(text, "%*d %ld", &pages) != 1)
        pages = 0;
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void add_metric(struct buf *page, const char *name, const char *type, const char *help,
                       double value)
{
    (void)buf_printf(page, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name,
                     value);
}

/* Over all profiles. */
static struct mcp_stats sum_stats(const struct web *web)
{
    struct mcp_stats sum = { 0 };
    for (size_t i = 0; i < web->n_mounts; i++) {
        struct mcp_stats one;
        mcp_server_stats(web->mounts[i].server, &one);
        sum.requests_total += one.requests_total;
        sum.errors_total += one.errors_total;
        sum.cancelled_total += one.cancelled_total;
        sum.in_flight += one.in_flight;
        sum.sessions_open += one.sessions_open;
        sum.streams_open += one.streams_open;
    }
    return sum;
}

static void metrics_page(const struct web *web, struct http_request *req)
{
    static const struct http_field fields[] = {
        { "Content-Type", "text/plain; version=0.0.4; charset=utf-8" }, { 0 }
    };
    struct mcp_stats mcp = sum_stats(web);
    struct http_stats http;
    http_server_stats(web->http, &http);
    struct session_stats sessions;
    sessions_stats(web->sandboxes->sessions, &sessions);
    struct engine_stats engine;
    engine_stats(web->sandboxes->engine, &engine);
    struct package_stats packages;
    packages_stats(web->sandboxes->installer.packages, &packages);
    const struct {
        const char *name, *type, *help;
        double value;
    } metrics[] = {
        { "belljar_mcp_requests_total", "counter", "MCP requests received.",
          (double)mcp.requests_total },
        { "belljar_mcp_errors_total", "counter", "MCP requests answered with a protocol error.",
          (double)mcp.errors_total },
        { "belljar_mcp_cancelled_total", "counter", "MCP requests that their client gave up.",
          (double)mcp.cancelled_total },
        { "belljar_mcp_in_flight", "gauge", "MCP requests being answered.", (double)mcp.in_flight },
        { "belljar_mcp_sessions", "gauge", "Open MCP sessions over HTTP.",
          (double)mcp.sessions_open },
        { "belljar_mcp_listen_streams", "gauge", "Open subscriptions/listen streams.",
          (double)mcp.streams_open },
        { "belljar_http_connections", "gauge", "Open HTTP connections.",
          (double)http.connections_open },
        { "belljar_http_connections_total", "counter", "HTTP connections accepted.",
          (double)http.connections_total },
        { "belljar_http_connections_refused_total", "counter", "HTTP connections over a limit.",
          (double)http.connections_refused },
        { "belljar_http_requests_total", "counter", "HTTP requests read.",
          (double)http.requests_total },
        { "belljar_http_bad_requests_total", "counter", "HTTP requests refused as malformed.",
          (double)http.bad_requests_total },
        { "belljar_sessions", "gauge", "Open sessions, each with a sandbox.",
          (double)sessions.sessions_open },
        { "belljar_sessions_total", "counter", "Sessions opened.",
          (double)sessions.sessions_total },
        { "belljar_sandboxes", "gauge",
          "Sandboxes in use: of sessions, and with a kernel made ahead.",
          (double)engine.sandboxes_open },
        { "belljar_pool_ready", "gauge", "Sandboxes without a kernel that wait ready.",
          (double)engine.pool_ready },
        { "belljar_pool_hits_total", "counter", "Sandboxes taken from the pool.",
          (double)engine.pool_hits },
        { "belljar_pool_misses_total", "counter", "Sandboxes that had to be made when needed.",
          (double)engine.pool_misses },
        { "belljar_kernel_pool_ready", "gauge", "Python kernels that wait ready.",
          (double)sessions.kernels_ready },
        { "belljar_kernel_pool_making", "gauge", "Python kernels being made ahead of need.",
          (double)sessions.kernels_making },
        { "belljar_kernel_pool_hits_total", "counter", "Sessions that got a kernel from the pool.",
          (double)sessions.kernel_hits },
        { "belljar_kernel_pool_misses_total", "counter",
          "Sessions that wanted one when none was ready.", (double)sessions.kernel_misses },
        { "belljar_kernel_pool_rehearsals_total", "counter",
          "Kernels that have rehearsed while they waited.", (double)sessions.kernel_rehearsals },
        { "belljar_kernel_pool_failures_total", "counter",
          "Kernels that could not be made ahead, or ended while they waited.",
          (double)sessions.kernel_failures },
        { "belljar_saves_total", "counter",
          "Times that files of a session were to be saved to disk.", (double)sessions.saves_total },
        { "belljar_save_failures_total", "counter", "Those that did not save all.",
          (double)sessions.save_failures },
        { "belljar_package_installs_total", "counter", "Sets of packages that were installed.",
          (double)packages.installs_total },
        { "belljar_package_cache_hits_total", "counter",
          "Requests for packages that had been installed before.", (double)packages.hits_total },
        { "belljar_package_failures_total", "counter", "Installs that came to nothing.",
          (double)packages.failures_total },
        { "belljar_package_bytes_total", "counter", "Bytes of packages that were installed.",
          (double)packages.bytes_total },
        { "belljar_package_installs_running", "gauge", "Installs under way.",
          (double)packages.running },
        { "belljar_package_installs_waiting", "gauge", "Installs that wait for others.",
          (double)packages.waiting },
        { "process_resident_memory_bytes", "gauge", "Resident memory of the server.",
          resident_bytes(web) },
    };
    auto_buf page = BUF_INIT(BUF_NO_CEILING);
    (void)buf_printf(&page,
                     "# HELP belljar_build_info Version of the server.\n"
                     "# TYPE belljar_build_info gauge\n"
                     "belljar_build_info{version=\"%s\"} 1\n",
                     BELLJAR_VERSION);
    for (size_t i = 0; i < ARRAY_SIZE(metrics); i++)
        add_metric(&page, metrics[i].name, metrics[i].type, metrics[i].help, metrics[i].value);
    http_respond(req, 200, fields, page.data, page.len);
}

/*** Routes ***/

static struct mcp_http *find_endpoint(const struct web *web, const char *path)
{
    if (!str_has_prefix(path, "/mcp"))
        return NULL;
    const char *name = path + strlen("/mcp");
    if (!*name || str_eq(name, "/")) /* some clients' URLs end in a slash */
        return web->mounts[0].mcp;
    for (size_t i = 0; *name == '/' && i < web->n_mounts; i++) {
        if (str_eq(name + 1, web->mounts[i].name))
            return web->mounts[i].mcp;
    }
    return NULL;
}

static bool is_read(const struct http_request *req)
{
    const char *method = http_request_method(req);
    return str_eq(method, "GET") || str_eq(method, "HEAD");
}

static void serve_open_page(const struct web *web, struct http_request *req, const char *path)
{
    if (!http_guard_check_web(web->guard, req))
        return;
    if (!is_read(req))
        method_not_allowed(req);
    else if (str_eq(path, "/readyz") && web->draining)
        text_page(req, 503, "shutting down\n");
    else
        text_page(req, 200, "ok\n");
}

static void on_request(struct http_request *req, void *data)
{
    const struct web *web = data;
    const char *path = http_request_path(req), *subject = NULL;
    if (str_eq(path, "/healthz") || str_eq(path, "/readyz")) {
        serve_open_page(web, req, path);
        return;
    }
    if (!http_guard_check(web->guard, req, &subject))
        return;
    struct mcp_http *endpoint = find_endpoint(web, path);
    if (endpoint)
        mcp_http_handle(endpoint, req, subject);
    else if (str_eq(path, "/metrics") && !is_read(req))
        method_not_allowed(req);
    else if (str_eq(path, "/metrics"))
        metrics_page(web, req);
    else
        text_page(req, 404, "not found; MCP is served at /mcp\n");
}

/*** Start and end ***/

/* Does this "address:port" mean loopback only? Anything we are not sure of does not: a name may
 * begin like an address. */
static bool is_loopback_address(const char *address)
{
    struct in_addr v4;
    const char *colon = strrchr(address, ':');
    auto_free char *host = xstrndup(address, colon ? (size_t)(colon - address) : strlen(address));
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return str_eq(host, "[::1]") || strcasecmp(host, "localhost") == 0;
}

static int check_access(const struct config *config, struct err *err)
{
    if (is_loopback_address(config->http) || config->token[0] || config->allow_unauthenticated)
        return 0;
    return err_set(err, EACCES,
                   "refusing to listen on %s without a token: anyone who reaches it could run "
                   "code. Set BELLJAR_TOKEN or --token-file FILE (at least %d characters), or "
                   "listen on 127.0.0.1, or insist with --allow-unauthenticated",
                   config->http, CONFIG_TOKEN_MIN);
}

static struct str_list view(const struct config_list *list)
{
    return (struct str_list){ .items = (const char **)list->items, .count = list->count };
}

static struct http_guard *make_guard(const struct config *config)
{
    return http_guard_new(&(struct http_guard_options){
        .token = config->token[0] ? config->token : NULL,
        .allowed_hosts = view(&config->allowed_hosts),
        .allowed_origins = view(&config->allowed_origins),
        .any_host = !is_loopback_address(config->http),
    });
}

static struct http_options http_options(const struct config *config)
{
    return (struct http_options){
        .limits = {
            .max_header_bytes = config->http_max_header,
            .max_headers = (size_t)config->http_max_headers,
            .max_body = config->http_max_body,
            .max_bodies = config->http_max_bodies,
            .max_connections = (size_t)config->http_max_connections,
            .max_connections_per_address = (size_t)config->http_max_connections_per_address,
            .max_backlog = config->http_max_backlog,
            .header_timeout_ms = config->http_header_timeout_ms,
            .body_timeout_ms = config->http_body_timeout_ms,
            .idle_timeout_ms = config->http_idle_timeout_ms,
            .write_timeout_ms = config->http_write_timeout_ms,
        },
        .tls_cert = config->tls_cert[0] ? config->tls_cert : NULL,
        .tls_key = config->tls_key[0] ? config->tls_key : NULL,
    };
}

static void mount_all(struct web *web, const struct config *config,
                      const struct web_endpoint *endpoints)
{
    const struct mcp_http_options options = {
        .max_sessions = (size_t)config->http_max_sessions,
        .session_timeout_ms = config->http_session_timeout_ms,
        .event_buffer_bytes = config->event_buffer,
        .event_buffer_count = (size_t)config->event_buffer_count,
        .keepalive_ms = config->keepalive_ms,
        .retry_ms = config->sse_retry_ms,
        .high_water = config->stream_high_water,
    };
    for (const struct web_endpoint *endpoint = endpoints; endpoint->name; endpoint++) {
        web->mounts = xrealloc(web->mounts, (web->n_mounts + 1) * sizeof(*web->mounts));
        web->mounts[web->n_mounts++] =
            (struct mount){ .name = endpoint->name,
                            .server = endpoint->server,
                            .mcp = mcp_http_start(endpoint->server, &options) };
    }
}

int web_start(uv_loop_t *loop, const struct config *config, const struct web_endpoint *endpoints,
              const struct sandboxes *sandboxes, struct web **ret, struct err *err)
{
    int r = check_access(config, err);
    if (r < 0)
        return r;
    struct web *web = xcalloc(1, sizeof(*web));
    web->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    struct http_options options = http_options(config);
    auto_free char *bound = NULL;
    r = http_server_new(loop, &options, on_request, web, &web->http, err);
    if (r == 0)
        r = http_server_listen(web->http, config->http, &bound, err);
    if (r < 0) {
        web_free(web);
        return r;
    }
    web->guard = make_guard(config);
    web->sandboxes = sandboxes;
    mount_all(web, config, endpoints);
    web->url = xasprintf("%s://%s/mcp", options.tls_cert ? "https" : "http", bound);
    *ret = web;
    return 0;
}

const char *web_url(const struct web *web)
{
    return web->url;
}

void web_drain(struct web *web, uint64_t grace_ms, void (*on_drained)(void *data), void *data)
{
    web->draining = true;
    for (size_t i = 0; i < web->n_mounts; i++)
        mcp_http_drain(web->mounts[i].mcp);
    http_server_drain(web->http, grace_ms, on_drained, data);
}

void web_free(struct web *web)
{
    if (!web)
        return;
    for (size_t i = 0; i < web->n_mounts; i++)
        mcp_http_free(web->mounts[i].mcp);
    http_server_free(web->http);
    http_guard_free(web->guard);
    fd_closep(&web->statm);
    free(web->mounts);
    free(web->url);
    free(web);
}
