/*
 * conformance-server: the fixtures on stdio or HTTP. For tests only; never installed.
 *
 *   conformance-server --stdio
 *   conformance-server --http 127.0.0.1:0      says on stderr where it listens
 */
#include "fixture.h"

#include "base/log.h"
#include "base/loop.h"
#include "http/http.h"
#include "mcp/http_guard.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { GRACE_MS = 2000 };

struct app {
    struct fixture fixture;
    struct mcp_stdio *stdio;
    struct http_server *http;
    struct http_guard *guard;
    struct mcp_http *endpoint;
};

static void stop(void *data)
{
    struct app *app = data;

    uv_stop(app->fixture.loop);
}

/* --- stdio and HTTP ------------------------------------------------------------------------- */

static int serve_stdio(struct app *app, const char *address, struct err *err)
{
    (void)address, (void)err;
    app->stdio = mcp_stdio_start(app->fixture.server, STDIN_FILENO, STDOUT_FILENO, stop, app);
    return 0;
}

static void handle(struct http_request *req, void *data)
{
    const struct app *app = data;
    const char *subject = NULL;

    if (!http_guard_check(app->guard, req, &subject))
        return;
    if (!str_eq(http_request_path(req), "/mcp"))
        http_respond(req, 404, NULL, NULL, 0);
    else
        mcp_http_handle(app->endpoint, req, subject);
}

static int serve_http(struct app *app, const char *address, struct err *err)
{
    struct http_options options = { .limits = HTTP_LIMITS_DEFAULT };
    struct http_guard_options guard = { 0 };
    auto_free char *bound = NULL;

    int r = http_server_new(app->fixture.loop, &options, handle, app, &app->http, err);
    if (r < 0)
        return r;
    app->guard = http_guard_new(&guard);
    app->endpoint = mcp_http_start(app->fixture.server, &MCP_HTTP_OPTIONS_DEFAULT);
    r = http_server_listen(app->http, address, &bound, err);
    if (r < 0)
        return r;
    log_info("listening on http://%s/mcp", bound);
    return 0;
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct app *app = handle->data;

    (void)number;
    if (!app->http) {
        stop(app);
        return;
    }
    mcp_http_drain(app->endpoint);
    http_server_drain(app->http, GRACE_MS, stop, app);
    uv_signal_stop(handle);
}

/* --- main ----------------------------------------------------------------------------------- */

static const struct mode {
    const char *flag;
    int operands;
    int (*serve)(struct app *app, const char *address, struct err *err);
} modes[] = {
    { "--stdio", 0, serve_stdio },
    { "--http", 1, serve_http },
};

static const struct mode *find_mode(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        if (argc > 1 && str_eq(argv[1], modes[i].flag) && argc == 2 + modes[i].operands)
            return &modes[i];
    return NULL;
}

static const struct mcp_icon icons[] = {
    { .src = "https://example.com/fixture.png", .mime_type = "image/png", .sizes = "48x48" },
    { NULL },
};
static const struct mcp_info info = {
    .name = "belljar-conformance",
    .version = BELLJAR_VERSION,
    .title = "Conformance fixtures",
    .description = "Everything the official conformance suite asks for.",
    .website_url = "https://example.com/",
    .icons = icons,
    .instructions = "For tests only.",
};

static void (*const subjects[])(struct fixture *fixture) = {
    fixture_add_tools,          fixture_add_slow_tools, fixture_add_elicitation,
    fixture_add_input_required, fixture_add_resources,  fixture_add_prompts,
};

int main(int argc, char **argv)
{
    const struct mode *mode = find_mode(argc, argv);
    if (!mode) {
        fprintf(stderr, "usage: conformance-server --stdio | --http ADDRESS:PORT\n");
        return 2;
    }

    uv_loop_t loop;
    uv_signal_t on_term, on_int;
    struct err err = { 0 };
    struct app app = { .fixture = { .loop = &loop } };

    uv_loop_init(&loop);
    app.fixture.server = mcp_server_new(&loop, &info, &MCP_LIMITS_DEFAULT,
                                        MCP_LOGGING | MCP_SUBSCRIBE | MCP_TOOLS_CHANGE |
                                            MCP_RESOURCES_CHANGE | MCP_PROMPTS_CHANGE);
    for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
        subjects[i](&app.fixture);
    (void)signal(SIGPIPE, SIG_IGN); /* a client that left is an error of a write */
    uv_signal_init(&loop, &on_term);
    uv_signal_init(&loop, &on_int);
    on_term.data = on_int.data = &app;
    uv_signal_start(&on_term, on_signal, SIGTERM);
    uv_signal_start(&on_int, on_signal, SIGINT);

    int r = mode->serve(&app, argv[2], &err);
    if (r < 0)
        log_error("%s", err.msg);
    else
        uv_run(&loop, UV_RUN_DEFAULT);

    mcp_stdio_free(app.stdio);
    mcp_http_free(app.endpoint);
    http_server_free(app.http);
    http_guard_free(app.guard);
    mcp_server_free(app.fixture.server);
    loop_finish(&loop);
    return r < 0;
}
