#include "cli/sandboxes.h"

#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*** Where state is kept ***/

static char *default_state_dir(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0)
        return xstrdup("/run/belljar");
    if (runtime && runtime[0] == '/')
        return xasprintf("%s/belljar", runtime);
    return xasprintf("/tmp/belljar-%u", (unsigned)geteuid());
}

/* Ours alone: in /tmp somebody else could have made it before us. */
static int make_state_dir(const char *path, struct err *err)
{
    struct stat st;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "state_dir: make %s", path);
    if (lstat(path, &st) < 0)
        return err_sys(err, errno, "state_dir: look at %s", path);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return err_set(err, EPERM,
                       "state_dir: %s must be a directory of this user that nobody else can "
                       "write to",
                       path);
    return 0;
}

/*** Options ***/

static struct sandbox_limits sandbox_limits(const struct config *config)
{
    return (struct sandbox_limits){
        .memory_bytes = config->memory_limit,
        .pids = (uint64_t)config->process_limit,
        .cpu_millis = (uint64_t)(config->cpu_limit * 1000),
        .nofile = (uint64_t)config->open_file_limit,
        .file_bytes = config->file_size_limit,
        .workspace_bytes = config->workspace_size,
        .workspace_inodes = (uint64_t)config->workspace_files,
        .tmp_bytes = config->tmp_size,
        .tmp_inodes = (uint64_t)config->tmp_files,
        .shm_bytes = config->shm_size,
    };
}

static int missing_layers(const struct config *config, bool strict, unsigned *ret, struct err *err)
{
    *ret = 0;
    for (size_t i = 0; i < config->allow_missing.count; i++) {
        enum engine_layer layer;
        if (!engine_layer_parse(config->allow_missing.items[i], &layer))
            return err_set(err, EINVAL,
                           "allow_missing: there is no layer \"%.64s\"; belljar doctor lists them",
                           config->allow_missing.items[i]);
        *ret |= layer;
    }
    bool required =
        config->require_limits == CONFIG_TRUE || (config->require_limits == CONFIG_AUTO && strict);
    if (!required)
        *ret |= LAYER_MEMORY_LIMIT | LAYER_PIDS_LIMIT | LAYER_CPU_LIMIT;
    return 0;
}

static const char *python_program(const struct config *config)
{
    if (config->python[0])
        return config->python;
    return config->runtime[0] ? ENGINE_RUNTIME "/bin/python3" : "python3";
}

/* "NAME=value" as an object; of two with one name the last counts, as in a shell. */
static json_t *variables(const struct config_list *list)
{
    json_t *env = json_object();
    for (size_t i = 0; i < list->count; i++) {
        const char *item = list->items[i], *equals = strchr(item, '=');
        auto_free char *name = xstrndup(item, (size_t)(equals - item));
        json_put(env, name, json_text_value(equals + 1, strlen(equals + 1)));
    }
    return env;
}

static json_t *texts(const struct config_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_push(array, json_text_value(list->items[i], strlen(list->items[i])));
    return array;
}

static int read_guest_options(struct sandboxes *sandboxes, const struct config *config,
                              struct err *err)
{
    sandboxes->env = variables(&config->env);
    sandboxes->allowed_modules = texts(&config->allowed_modules);
    sandboxes->blocked_modules = texts(&config->blocked_modules);
    int r = session_check_env(sandboxes->env, err);
    if (r == 0)
        r = session_check_modules(sandboxes->allowed_modules, "allowed_modules", err);
    if (r == 0)
        r = session_check_modules(sandboxes->blocked_modules, "blocked_modules", err);
    return r;
}

static struct session_options session_options(const struct sandboxes *sandboxes,
                                              const struct config *config)
{
    return (struct session_options){
        .idle_timeout_ms = config->session_timeout_ms,
        .max_sessions = (size_t)config->max_sessions,
        .max_sessions_per_owner = (size_t)config->max_sessions_per_client,
        .max_queue = (size_t)config->max_queue,
        .run_timeout_ms = config->run_timeout_ms,
        .run_timeout_max_ms = config->run_timeout_max_ms,
        .interrupt_grace_ms = config->interrupt_grace_ms,
        .output_bytes = config->output_limit,
        .flood_bytes = config->output_flood,
        .display_bytes = config->display_limit,
        .strip_ansi = config->strip_ansi,
        .state_bytes = config->state_limit,
        .python = python_program(config),
        .env = sandboxes->env,
        .allowed_modules = sandboxes->allowed_modules,
        .blocked_modules = sandboxes->blocked_modules,
        .limits = sandbox_limits(config),
        .kernel_pool_size = config->pool_enabled ? (size_t)config->kernel_pool_size : 0,
        .kernel_pool_max = (size_t)config->pool_size,
        .pool_max_creations = (size_t)config->pool_max_creations,
        .pool_max_age_ms = config->pool_max_age_ms,
    };
}

/*** Open and close ***/

static int open_engine(struct sandboxes *sandboxes, uv_loop_t *loop, const struct config *config,
                       bool strict, struct err *err)
{
    char instance[RANDOM_ID_SIZE];
    auto_free char *state_dir =
        config->state_dir[0] ? xstrdup(config->state_dir) : default_state_dir();
    struct engine_options options = {
        .state_dir = state_dir,
        .instance = instance,
        .rootfs = config->rootfs,
        .runtime = config->runtime,
        /* Warming up takes longer than a single run does. */
        .kernels = { .python = config->zygote && config->pool_enabled ? python_program(config) : "",
                     .preload = (const char *const *)config->preload.items,
                     .n_preload = config->preload.count,
                     .memory_bytes = config->zygote_memory,
                     .max_forks = (uint64_t)config->zygote_max_forks,
                     .max_age_ms = config->zygote_max_age_ms,
                     .huge_pages = config->zygote_huge_pages,
                     .freeze = config->zygote_freeze },
        .uid_base = (uint32_t)config->uid_base,
        .uid_count = (uint32_t)config->uid_count,
        .pool_enabled = config->pool_enabled,
        .pool_size = (size_t)config->pool_size,
        .pool_max_age_ms = config->pool_max_age_ms,
        .pool_max_creations = (size_t)config->pool_max_creations,
        .pool_plan = { .limits = sandbox_limits(config) },
    };
    random_id(instance);
    int r = missing_layers(config, strict, &options.allow_missing, err);
    if (r == 0)
        r = make_state_dir(state_dir, err);
    if (r == 0)
        r = engine_open(loop, config->engine, &options, &sandboxes->engine, err);
    return r;
}

/* A limit that the host cannot enforce is never silently dropped. */
static void say_what_is_missing(const struct engine *engine)
{
    static const enum engine_layer limits[] = { LAYER_MEMORY_LIMIT, LAYER_PIDS_LIMIT,
                                                LAYER_CPU_LIMIT };
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        if (!(engine_layers(engine) & limits[i]))
            log_warning("%s is not enforced for sandboxes as a whole on this host; see belljar "
                        "doctor",
                        engine_layer_name(limits[i]));
    }
}

int sandboxes_open(struct sandboxes *ret, uv_loop_t *loop, const struct config *config, bool strict,
                   struct err *err)
{
    *ret = (struct sandboxes){ 0 };
    (void)signal(SIGPIPE, SIG_IGN); /* an agent that died is an error of a write, not our end */
    int r = read_guest_options(ret, config, err);
    if (r == 0)
        r = open_engine(ret, loop, config, strict, err);
    if (r < 0) {
        sandboxes_close(ret);
        return r;
    }
    say_what_is_missing(ret->engine);
    const struct session_options options = session_options(ret, config);
    ret->sessions = sessions_new(loop, ret->engine, &options);
    ret->toolbox = (struct toolbox){
        .loop = loop,
        .sessions = ret->sessions,
        .engine = ret->engine,
        .limits = options.limits,
        .strip_ansi = config->strip_ansi,
        .max_answer = config->max_answer,
        .max_read = config->max_read,
        .max_write = config->max_write,
        .max_list = (size_t)config->max_list,
    };
    return 0;
}

void sandboxes_close(struct sandboxes *sandboxes)
{
    sessions_free(sandboxes->sessions);
    engine_close(sandboxes->engine);
    json_decref(sandboxes->env);
    json_decref(sandboxes->allowed_modules);
    json_decref(sandboxes->blocked_modules);
    *sandboxes = (struct sandboxes){ 0 };
}
