/*
 * slow_tools: calls that go on while time passes. Each is a script: a function that is called every
 * period until it has finished the call.
 */
#include "fixture.h"

#include "base/loop.h"

struct script {
    struct mcp_call *call;
    struct timer *timer;
    struct fixture *fixture;
    /* Round 0 runs inside the handler. False: the call has been finished. */
    bool (*step)(struct script *script);
    int64_t round;
    int64_t last_round;
};

static void script_free(struct script *script)
{
    script->fixture->running--;
    timer_free(script->timer);
    free(script);
}

static void script_tick(void *data)
{
    struct script *script = data;

    script->round++;
    if (!script->step(script))
        script_free(script);
}

static void script_cancel(struct mcp_call *call, void *data)
{
    struct script *script = data;

    script->fixture->cancelled++;
    script_free(script);
    mcp_call_finish(call); /* nobody reads it; the call has to end */
}

static void script_start(struct fixture *fixture, struct mcp_call *call, uint64_t period_ms,
                         bool (*step)(struct script *script), int64_t last_round)
{
    struct script *script = xcalloc(1, sizeof(*script));

    fixture->running++;
    script->call = call;
    script->fixture = fixture;
    script->step = step;
    script->last_round = last_round;
    script->timer = timer_new(fixture->loop, script_tick, script);
    mcp_call_defer(call, script_cancel, script);
    if (!step(script))
        script_free(script);
    else
        timer_repeat(script->timer, period_ms);
}

/* Always false: the script is over. */
static bool finish_with(struct script *script, const char *text)
{
    mcp_call_add(script->call, mcp_textf("%s", text));
    mcp_call_finish(script->call);
    return false;
}

/* --- the tools ------------------------------------------------------------------------------ */

/* 0, 50, 100; the answer comes a round later, because the TypeScript SDKs drop a report that they
 * read together with the answer. */
static bool progress_step(struct script *script)
{
    if (script->round == script->last_round)
        return finish_with(script, "Progress was reported.");
    mcp_call_progress(script->call, 50.0 * (double)script->round, 100, "working");
    return true;
}

static void call_progress(struct mcp_call *call, const void *args, void *data)
{
    (void)args;
    script_start(data, call, /* period_ms= */ 50, progress_step, /* last_round= */ 3);
}

static bool logging_step(struct script *script)
{
    static const char *const messages[] = {
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    };

    mcp_call_log(script->call, "info", "fixture", json_string(messages[script->round]));
    return script->round < script->last_round || finish_with(script, "Messages were logged.");
}

static void call_with_logging(struct mcp_call *call, const void *args, void *data)
{
    (void)args;
    script_start(data, call, /* period_ms= */ 50, logging_step, /* last_round= */ 2);
}

/* Hangs up at once; the answer is there when the client comes back. */
static bool reconnection_step(struct script *script)
{
    if (script->round == 0)
        mcp_call_hang_up(script->call, /* retry_ms= */ 500);
    return script->round < script->last_round || finish_with(script, "You came back.");
}

static void call_reconnection(struct mcp_call *call, const void *args, void *data)
{
    (void)args;
    script_start(data, call, /* period_ms= */ 100, reconnection_step, /* last_round= */ 1);
}

enum { SLOW_STEPS_PER_SECOND = 20 };

struct slow_args {
    double seconds;
};
static const struct field slow_fields[] = {
    FIELD_REAL(struct slow_args, seconds, "How long to take.", .required = true,
               RANGE_REAL(0, 600)),
    FIELD_END,
};
static const struct shape slow_shape = SHAPE(struct slow_args, slow_fields);

static bool slow_step(struct script *script)
{
    mcp_call_progress(script->call, (double)script->round, (double)script->last_round, "waiting");
    return script->round < script->last_round || finish_with(script, "Time is up.");
}

static void call_slow(struct mcp_call *call, const void *args, void *data)
{
    const struct slow_args *slow = args;

    script_start(data, call, 1000 / SLOW_STEPS_PER_SECOND, slow_step,
                 (int64_t)(slow->seconds * SLOW_STEPS_PER_SECOND));
}

static void call_cancel_count(struct mcp_call *call, const void *args, void *data)
{
    const struct fixture *fixture = data;

    (void)args;
    mcp_call_add(call, mcp_textf("%lld", (long long)fixture->cancelled));
    mcp_call_finish(call);
}

static void call_running_count(struct mcp_call *call, const void *args, void *data)
{
    const struct fixture *fixture = data;

    (void)args;
    mcp_call_add(call, mcp_textf("%lld", (long long)fixture->running));
    mcp_call_finish(call);
}

static const struct mcp_tool tools[] = {
    { .name = "test_tool_with_progress",
      .description = "Reports progress three times.",
      .call = call_progress },
    { .name = "test_tool_with_logging",
      .description = "Logs three messages to the client.",
      .call = call_with_logging },
    { .name = "test_reconnection",
      .description = "Ends the connection, not the call: the client returns for the answer.",
      .call = call_reconnection },
    { .name = "test_slow",
      .description = "Takes its time, with progress; counts when a client cancels it.",
      .input = &slow_shape,
      .hints = MCP_READ_ONLY,
      .call = call_slow },
    { .name = "test_cancel_count",
      .description = "Tells how many calls have been cancelled.",
      .hints = MCP_READ_ONLY,
      .call = call_cancel_count },
    { .name = "test_running_count",
      .description = "Tells how many calls are under way.",
      .hints = MCP_READ_ONLY,
      .call = call_running_count },
};

void fixture_add_slow_tools(struct fixture *fixture)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        mcp_server_add_tool(fixture->server, &tools[i], fixture);
}
