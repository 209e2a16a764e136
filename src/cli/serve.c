/*
 * belljar serve: the server. One loop, one thread; it ends when its client does (stdio) or when it
 * is told to (SIGTERM, SIGINT). A second signal ends it at once.
 */
#include "cli/cli.h"
#include "cli/sandboxes.h"
#include "cli/web.h"
#include "tools/tools.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_PORT = 8000 };
enum { ANSWER_MS = 1000 }; /* from the end of an interrupted run to the end of its answer */

struct serve {
    uv_loop_t loop;
    const struct cli_args *args;
    const struct config *config;
    struct sandboxes sandboxes;
    struct web_endpoint *endpoints; /* the chosen profile first; ends with a NULL name */
    struct config *configs;         /* of the other profiles */
    size_t n_configs;
    struct mcp_stdio *stdio;
    struct web *web;
    uv_signal_t signals[2];
    bool stopping;
    struct timer *grace; /* until calls that still run are interrupted */
};

/*** The end ***/

static void serve_stopped(void *data)
{
    struct serve *serve = data;
    uv_stop(&serve->loop);
}

/* What still runs has had its time. Its caller gets what it printed, unless it resists. */
static void serve_interrupt(void *data)
{
    struct serve *serve = data;
    sandboxes_cancel_runs(&serve->sandboxes);
}

static void serve_stop(struct serve *serve)
{
    if (serve->stopping)
        return;
    serve->stopping = true;
    if (!serve->web) {
        serve_stopped(serve);
        return;
    }
    uint64_t grace = serve->config->shutdown_grace_ms;
    serve->grace = timer_new(&serve->loop, serve_interrupt, serve);
    timer_start(serve->grace, grace);
    web_drain(serve->web, grace + serve->config->interrupt_grace_ms + ANSWER_MS, serve_stopped,
              serve);
}

static void on_client_end(void *data)
{
    serve_stop(data);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct serve *serve = handle->data;
    log_info("%s: shutting down", strsignal(number));
    if (serve->stopping)
        uv_stop(&serve->loop);
    serve_stop(serve);
}

/*** The beginning ***/

static struct mcp_limits mcp_limits(const struct config *config)
{
    return (struct mcp_limits){
        .json = { .depth = (size_t)config->json_max_depth,
                  .digits = (size_t)config->json_max_digits,
                  .nodes = (size_t)config->json_max_nodes },
        .max_message = config->max_message,
        .max_answer = config->max_answer,
        .max_batch = (size_t)config->max_batch,
        .max_requests = (size_t)config->max_requests_per_client,
        .max_subscriptions = (size_t)config->max_subscriptions,
        .page_size = (size_t)config->page_size,
        .list_ttl_ms = config->list_ttl_ms,
        .state_ttl_ms = config->request_state_ttl_ms,
    };
}

static void add_endpoint(struct serve *serve, size_t *count, const struct profile *profile,
                         struct toolbox *box)
{
    struct mcp_limits limits = mcp_limits(serve->config);
    serve->endpoints = xrealloc(serve->endpoints, (*count + 2) * sizeof(*serve->endpoints));
    serve->endpoints[(*count)++] =
        (struct web_endpoint){ .name = profile->name,
                               .server = tools_new_server(&serve->loop, profile, &limits, box) };
    serve->endpoints[*count] = (struct web_endpoint){ 0 };
}

/* Another profile than the chosen one, with its own defaults and its own sessions. */
static int add_other(struct serve *serve, size_t *count, const struct profile *profile,
                     struct err *err)
{
    struct config *config = &serve->configs[serve->n_configs];
    int r = cli_load_endpoint(serve->args, profile->name, config, err);
    if (r < 0)
        return r;
    struct toolbox *box;
    serve->n_configs++;
    r = sandboxes_add(&serve->sandboxes, &serve->loop, config, profile->name, &box, err);
    if (r == 0)
        add_endpoint(serve, count, profile, box);
    return r;
}

/* stdio serves the chosen profile; HTTP also serves the others, each at its own path. */
static int make_endpoints(struct serve *serve, bool all, struct err *err)
{
    const struct profile *chosen = tools_find_profile(serve->config->profile);
    size_t count = 0, profiles = 0;
    while (tools_profile_at(profiles))
        profiles++;
    serve->configs =
        xcalloc(profiles, sizeof(*serve->configs)); /* never moved: they are borrowed */
    add_endpoint(serve, &count, chosen, &serve->sandboxes.toolbox);
    const struct profile *other;
    int r = 0;
    for (size_t i = 0; r == 0 && all && (other = tools_profile_at(i)); i++) {
        if (other != chosen)
            r = add_other(serve, &count, other, err);
    }
    return r;
}

static void on_first_answer(void *data)
{
    struct serve *serve = data;
    if (!serve->stopping)
        sessions_make_ahead(serve->sandboxes.sessions);
}

static int start_http(struct serve *serve, struct err *err)
{
    int r = web_start(&serve->loop, serve->config, serve->endpoints, &serve->sandboxes, &serve->web,
                      err);
    if (r < 0)
        return r;
    log_info("listening on %s", web_url(serve->web));
    log_info("connect any MCP client that speaks Streamable HTTP to that URL%s, for example: "
             "{\"mcpServers\":{\"belljar\":{\"type\":\"http\",\"url\":\"%s\"}}}",
             serve->config->token[0] ? " with your token as bearer" : "", web_url(serve->web));
    return 0;
}

static void serve_done(struct serve *serve)
{
    timer_free(serve->grace);
    mcp_stdio_free(serve->stdio);
    web_free(serve->web);
    sandboxes_close(&serve->sandboxes); /* ends the calls that the transports have let go */
    for (struct web_endpoint *at = serve->endpoints; at && at->name; at++)
        mcp_server_free(at->server);
    free(serve->endpoints);
    for (size_t i = 0; i < serve->n_configs; i++)
        config_done(&serve->configs[i]);
    free(serve->configs);
    loop_finish(&serve->loop);
}

static int no_profile(const char *name, struct err *err)
{
    auto_buf names = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; tools_profile_at(i); i++)
        (void)buf_printf(&names, "%s%s", i ? ", " : "", tools_profile_at(i)->name);
    return err_set(err, EINVAL, "profile: there is no \"%.64s\"; there are %s", name,
                   buf_str(&names));
}

/* Has a client started us, to speak to us here? A profile that is usually served over HTTP is also
 * started by service managers, which leave nothing to read there. */
static bool is_client(int fd, const struct profile *profile)
{
    struct stat st;
    if (!profile->over_http)
        return !isatty(fd);
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

static int serve_run(const struct cli_args *args, struct err *err)
{
    struct config config = args->config; /* shallow: only `http` may be replaced */
    const struct profile *profile = tools_find_profile(config.profile);
    if (!profile)
        return no_profile(config.profile, err);
    bool use_http = config.http[0] != '\0';
    bool use_stdio = config.stdio || (!use_http && is_client(STDIN_FILENO, profile));
    auto_free char *address = xasprintf(
        "%s:%d", profile->over_http ? config_default_host(&config) : "127.0.0.1", DEFAULT_PORT);
    if (!use_http && !use_stdio) {
        config.http = address;
        use_http = true;
    }

    struct serve serve = { .args = args, .config = &config };
    (void)signal(SIGPIPE, SIG_IGN); /* a client that left is an error of write(), not our end */
    int r = loop_begin(&serve.loop, err);
    if (r < 0)
        return r;
    r = loop_watch_signals(&serve.loop, serve.signals, on_signal, &serve, err);
    if (r == 0)
        r = sandboxes_open(&serve.sandboxes, &serve.loop, &config, /* strict= */ use_http, err);
    if (r == 0)
        r = make_endpoints(&serve, use_http, err);
    if (r == 0 && use_http)
        r = start_http(&serve, err);
    if (r == 0)
        sandboxes_adopted(&serve.sandboxes);
    if (r == 0) /* ports are bound, keys are read, and no client has been heard yet */
        r = sandboxes_confine(&serve.sandboxes, err);
    if (r == 0)
        r = engine_drop_privileges(serve.sandboxes.engine, (uint32_t)config.server_uid,
                                   (uint32_t)config.server_uid, err);
    if (r == 0 && use_http)
        sessions_make_ahead(serve.sandboxes.sessions);
    if (r == 0) /* nobody waits for the first answer of a client on stdio longer than needed */
        mcp_server_on_first_answer(serve.endpoints[0].server, on_first_answer, &serve);
    if (r == 0 && use_stdio)
        serve.stdio = mcp_stdio_start(serve.endpoints[0].server, STDIN_FILENO, STDOUT_FILENO,
                                      on_client_end, &serve);
    if (r == 0)
        uv_run(&serve.loop, UV_RUN_DEFAULT);
    serve_done(&serve);
    return r;
}

const struct command command_serve = {
    .name = "serve",
    .summary = "Serve MCP over stdio or HTTP",
    .configured = true,
    .run = serve_run,
};
