/*
 * start_session, session_info, clear_session: sessions as such.
 */
#include "tools/icons.h"
#include "tools/packages.h"
#include "tools/toolbox.h"
#include "tools/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MIB = 1 << 20;

/*** start_session ***/

struct start_args {
    int64_t memory_mib, processes;
    double cpus;
    int64_t workspace_mib;
    const char *image;
    const json_t *env;
    bool has_memory, has_processes, has_cpus, has_workspace;
    struct str_list packages;
};
static const struct field start_fields[] = {
    FIELD_INT(struct start_args, memory_mib,
              "Memory limit in MiB, at most the server's own, which is the default.",
              RANGE(16, 1 << 20), HAS_FLAG(struct start_args, has_memory)),
    FIELD_INT(struct start_args, processes,
              "How many processes and threads there may be, at most the server's limit.",
              RANGE(4, 1 << 20), HAS_FLAG(struct start_args, has_processes)),
    FIELD_REAL(struct start_args, cpus, "How many cores may be used, at most the server's limit.",
               RANGE_REAL(0.05, 1024.0), HAS_FLAG(struct start_args, has_cpus)),
    FIELD_INT(struct start_args, workspace_mib,
              "Size of /workspace in MiB, at most the server's limit.", RANGE(1, 1 << 20),
              HAS_FLAG(struct start_args, has_workspace)),
    FIELD_STR(
        struct start_args, image,
        "Container image to run in, one that the server offers (docker.images). Leave out for "
        "the usual one.",
        .max_len = 300),
    FIELD_JSON(struct start_args, env,
               "Environment variables that the session's code sees: names and texts, such as "
               "{\"TZ\": \"Europe/Berlin\"}."),
    FIELD_STRS(struct start_args, packages, PACKAGES_HELP, .max_len = PACKAGES_MAX,
               .item_max_len = PACKAGE_LEN_MAX),
    FIELD_END,
};
static const struct shape start_input = SHAPE(struct start_args, start_fields);

struct start_result {
    const char *session_id;
};
static const struct field start_result_fields[] = {
    FIELD_STR(struct start_result, session_id, "Use it in the other tools.", .required = true),
    FIELD_END,
};
static const struct shape start_output = SHAPE(struct start_result, start_result_fields);

/* A start whose packages cannot be had has failed, and leaves no session. */
static void on_started(struct mcp_call *call, const char *session_id,
                       const struct install_result *installed, void *data)
{
    const struct start_result result = { .session_id = session_id };
    (void)data;
    if (!installed->ok) {
        packages_add_output(call, installed);
        mcp_call_fail(call, "start_session: %s", installed->error);
        return;
    }
    mcp_call_add(call, mcp_textf("[session_id] %s\n", session_id));
    mcp_call_structured(call, &result);
    mcp_call_finish(call);
}

/* A caller may lower a limit, never raise it: a wish beyond it is refused by name. */
static int lower(uint64_t *limit, bool given, uint64_t wish, const char *field, double shown,
                 struct err *err)
{
    if (!given)
        return 0;
    if (wish > *limit)
        return err_set(err, EINVAL, "%s: at most %g on this server", field, shown);
    *limit = wish;
    return 0;
}

static int lower_limits(struct sandbox_limits *limits, const struct start_args *args,
                        struct err *err)
{
    const struct sandbox_limits most = *limits;
    int r = lower(&limits->memory_bytes, args->has_memory, (uint64_t)(args->memory_mib * MIB),
                  "memory_mib", (double)most.memory_bytes / (double)MIB, err);
    if (r == 0)
        r = lower(&limits->pids, args->has_processes, (uint64_t)args->processes, "processes",
                  (double)most.pids, err);
    if (r == 0)
        r = lower(&limits->cpu_millis, args->has_cpus, (uint64_t)(args->cpus * 1000), "cpus",
                  (double)most.cpu_millis / 1000, err);
    if (r == 0)
        r = lower(&limits->workspace_bytes, args->has_workspace,
                  (uint64_t)(args->workspace_mib * MIB), "workspace_mib",
                  (double)most.workspace_bytes / (double)MIB, err);
    return r;
}

static void start_session(struct mcp_call *call, const void *arguments, void *data)
{
    const struct start_args *args = arguments;
    const struct toolbox *box = data;
    struct sandbox_limits limits = box->limits;
    const struct session_plan plan = { .limits = &limits, .image = args->image, .env = args->env };
    struct err err = { 0 };
    mcp_call_defer(call, NULL, NULL);
    if (packages_can_install(box, &args->packages, &err) < 0 ||
        lower_limits(&limits, args, &err) < 0 ||
        packages_install_with_session(call, box, &plan, &args->packages, PACKAGES_KEEP_WHOLE,
                                      on_started, &err) < 0)
        mcp_call_fail(call, "start_session: %s", err.msg);
}

const struct mcp_tool tool_start_session = {
    .name = "start_session",
    .title = "Start a session",
    .description =
        "Makes a session ahead of its first use, with environment variables and lower limits if "
        "wanted, and returns its session_id. Not needed before execute_code, which starts a "
        "session by itself.",
    .input = &start_input,
    .output = &start_output,
    .icons = icon_session,
    .call = start_session,
};

/*** session_info ***/

struct limits_view {
    int64_t memory_bytes, processes, workspace_bytes, workspace_files, open_files, file_bytes;
    double cpus;
};
static const struct field limits_fields[] = {
    FIELD_INT(struct limits_view, memory_bytes, "Processes and files in memory.", .required = true),
    FIELD_INT(struct limits_view, processes, "Processes and threads.", .required = true),
    FIELD_REAL(struct limits_view, cpus, "Cores.", .required = true),
    FIELD_INT(struct limits_view, workspace_bytes, "Size of /workspace.", .required = true),
    FIELD_INT(struct limits_view, workspace_files, "Files in /workspace.", .required = true),
    FIELD_INT(struct limits_view, open_files, "Open files of one process.", .required = true),
    FIELD_INT(struct limits_view, file_bytes, "Largest file.", .required = true),
    FIELD_END,
};
static const struct shape limits_shape = SHAPE(struct limits_view, limits_fields);

struct usage_view {
    int64_t memory_bytes, memory_peak_bytes, processes, out_of_memory_kills;
    double cpu_seconds;
};
static const struct field usage_fields[] = {
    FIELD_INT(struct usage_view, memory_bytes, "In use now.", .required = true),
    FIELD_INT(struct usage_view, memory_peak_bytes, "Most that was in use.", .required = true),
    FIELD_INT(struct usage_view, processes, "Running now.", .required = true),
    FIELD_REAL(struct usage_view, cpu_seconds, "Processor time used.", .required = true),
    FIELD_INT(struct usage_view, out_of_memory_kills, "Processes killed for the memory limit.",
              .required = true),
    FIELD_END,
};
static const struct shape usage_shape = SHAPE(struct usage_view, usage_fields);

struct info_result {
    const char *session_id;
    bool busy;
    int64_t runs, waiting;
    double age_seconds, idle_seconds_left;
    struct limits_view limits;
    struct usage_view usage;
    bool has_usage;
    struct str_list enforced;
};
static const struct field info_fields[] = {
    FIELD_STR(struct info_result, session_id, "The session.", .required = true),
    FIELD_BOOL(struct info_result, busy, "Something is running in it.", .required = true),
    FIELD_INT(struct info_result, runs, "Runs so far.", .required = true),
    FIELD_INT(struct info_result, waiting, "Runs that wait or are running.", .required = true),
    FIELD_REAL(struct info_result, age_seconds, "Since it was made.", .required = true),
    FIELD_REAL(struct info_result, idle_seconds_left, "Until it ends if it is not used.",
               .required = true),
    FIELD_OBJECT(struct info_result, limits, "What it may use.", &limits_shape, .required = true),
    FIELD_OBJECT(struct info_result, usage, "What it uses, as the host counts.", &usage_shape,
                 HAS_FLAG(struct info_result, has_usage)),
    FIELD_STRS(struct info_result, enforced, "Layers of isolation and limits in force.",
               .required = true),
    FIELD_END,
};
static const struct shape info_output = SHAPE(struct info_result, info_fields);

struct info_call {
    struct mcp_call *call;
    unsigned layers;
};

static size_t layer_names(unsigned layers, const char *names[static ENGINE_LAYERS])
{
    size_t count = 0;
    for (unsigned bit = 0; bit < ENGINE_LAYERS; bit++) {
        if (layers & (1u << bit))
            names[count++] = engine_layer_name((enum engine_layer)(1u << bit));
    }
    return count;
}

static void on_info(const struct session_info *info, void *data)
{
    struct info_call *asked = data;
    const char *names[ENGINE_LAYERS];
    const struct sandbox_limits *limits = &info->limits;
    const struct sandbox_usage *usage = &info->usage;
    const struct info_result result = {
        .session_id = info->session_id,
        .busy = info->busy,
        .runs = (int64_t)info->runs_total,
        .waiting = (int64_t)info->runs_waiting,
        .age_seconds = (double)info->age_ms / 1000,
        .idle_seconds_left = (double)info->idle_left_ms / 1000,
        .limits = { .memory_bytes = (int64_t)limits->memory_bytes,
                    .processes = (int64_t)limits->pids,
                    .cpus = (double)limits->cpu_millis / 1000,
                    .workspace_bytes = (int64_t)limits->workspace_bytes,
                    .workspace_files = (int64_t)limits->workspace_inodes,
                    .open_files = (int64_t)limits->nofile,
                    .file_bytes = (int64_t)limits->file_bytes },
        .usage = { .memory_bytes = (int64_t)usage->memory_bytes,
                   .memory_peak_bytes = (int64_t)usage->memory_peak_bytes,
                   .processes = (int64_t)usage->pids,
                   .cpu_seconds = (double)usage->cpu_ns / 1e9,
                   .out_of_memory_kills = (int64_t)usage->oom_kills },
        .has_usage = info->has_usage,
        .enforced = { .items = names, .count = layer_names(asked->layers, names) },
    };
    struct mcp_call *call = asked->call;
    free(asked);
    mcp_call_structured(call, &result);
    mcp_call_finish(call); /* short: its text is the JSON */
}

static void show_session(struct mcp_call *call, const void *arguments, void *data)
{
    const struct session_arg *args = arguments;
    const struct toolbox *box = data;
    struct info_call *asked = xcalloc(1, sizeof(*asked));
    struct err err = { 0 };
    asked->call = call;
    asked->layers = engine_layers(box->engine);
    mcp_call_defer(call, NULL, NULL);
    if (session_info(box->sessions, mcp_call_owner(call), args->session_id, on_info, asked, &err) <
        0) {
        free(asked);
        mcp_call_fail(call, "session_info: %s", err.msg);
    }
}

const struct mcp_tool tool_session_info = {
    .name = "session_info",
    .title = "Session info",
    .description = "Says what a session may use (memory, cores, processes, files), what it uses, "
                   "whether it is "
                   "busy, and how long it will be kept if nobody uses it.",
    .input = &session_arg_input,
    .output = &info_output,
    .icons = icon_session,
    .hints = MCP_READ_ONLY,
    .call = show_session,
};

/*** clear_session ***/

static void clear_session(struct mcp_call *call, const void *arguments, void *data)
{
    const struct session_arg *args = arguments;
    const struct toolbox *box = data;
    int r = session_close(box->sessions, mcp_call_owner(call), args->session_id);
    if (r < 0) {
        mcp_call_fail(call, r == -EBUSY ? "clear_session: session_id: another server has it open"
                                        : "clear_session: session_id: no such session (it may have "
                                          "expired)");
        return;
    }
    auto_free char *message =
        xasprintf("Session %s cleared and all files deleted", args->session_id);
    const struct session_cleared result = { .success = true, .message = message };
    mcp_call_add(call, mcp_textf("%s", message));
    mcp_call_structured(call, &result);
    mcp_call_finish(call);
}

const struct mcp_tool tool_clear_session = {
    .name = "clear_session",
    .title = "Clear a session",
    .description =
        "Ends a session at once: stops what runs in it, forgets its variables and deletes its "
        "files. "
        "Cannot be undone. Call it when a task is done; unused sessions end by themselves, too.",
    .input = &session_arg_input,
    .output = &session_cleared_output,
    .hints = MCP_DESTRUCTIVE | MCP_IDEMPOTENT,
    .icons = icon_session,
    .call = clear_session,
};
