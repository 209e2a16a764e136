#include "cli/sandboxes.h"

#include "tools/current.h"

#include "base/log.h"
#include "base/text.h"
#include "mcp/mcp.h"
#include "session/roster.h"
#include "session/store.h"
#include "tools/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/*** Where state is kept ***/

char *sandboxes_state_dir(const struct config *config)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (config->state_dir[0])
        return xstrdup(config->state_dir);
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

uid_t sandboxes_server_uid(const struct config *config)
{
    return geteuid() == 0 ? (uid_t)config->server_uid : geteuid();
}

static char *default_workspace_dir(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (geteuid() == 0)
        return xstrdup("/var/lib/belljar/sessions");
    if (state && state[0] == '/')
        return xasprintf("%s/belljar/sessions", state);
    return home && home[0] == '/' ? xasprintf("%s/.local/state/belljar/sessions", home) : NULL;
}

static void note_dir(struct sandboxes *sandboxes, const char *dir)
{
    sandboxes->dirs = xrealloc(sandboxes->dirs, (sandboxes->n_dirs + 2) * sizeof(*sandboxes->dirs));
    sandboxes->dirs[sandboxes->n_dirs++] = xstrdup(dir);
    sandboxes->dirs[sandboxes->n_dirs] = NULL;
}

/* Where files of sessions are kept, while we may still make it; NULL: they are not. */
static int open_store(struct sandboxes *sandboxes, const struct config *config, const char *profile,
                      struct store **ret, struct err *err)
{
    *ret = NULL;
    if (config->workspace != CONFIG_WORKSPACE_DISK)
        return 0;
    uint64_t age = config->workspace_max_age_ms, idle = config->session_timeout_ms;
    auto_free char *dir =
        config->workspace_dir[0] ? xstrdup(config->workspace_dir) : default_workspace_dir();
    const struct store_options options = {
        .dir = dir,
        .profile = profile,
        .uid = sandboxes_server_uid(config),
        .max_bytes = config->workspace_dir_size,
        .max_age_ms = age > idle ? age : idle,
    };
    int r = dir ? store_open(&options, ret, err)
                : err_set(err, EINVAL, "workspace_dir: say where files of sessions are to be kept");
    if (r == 0)
        note_dir(sandboxes, dir);
    return r;
}

/*** Options ***/

enum { UTF8_CHAR_MAX = 4 };

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

static bool uses_docker(const struct config *config)
{
    return str_eq(config->engine, "docker");
}

static const char *python_program(const struct config *config)
{
    if (config->python[0])
        return config->python;
    return config->runtime[0] && !uses_docker(config) ? ENGINE_RUNTIME "/bin/python3" : "python3";
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

/* python-docker-mcp says which libraries come with it: a list that allows others is not about them. */
static void allow_preinstalled(json_t *modules)
{
    static const char *const names[] = { "numpy",      "pandas",  "scipy",
                                         "matplotlib", "sklearn", "sympy" };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        json_push(modules, json_string(names[i]));
}

static int read_guest_options(struct guest_options *guest, const struct config *config,
                              const char *profile, struct err *err)
{
    guest->env = variables(&config->env);
    guest->allowed_modules = texts(&config->allowed_modules);
    guest->blocked_modules = texts(&config->blocked_modules);
    guest->preload = texts(&config->preload);
    if (config->allowed_modules.count && str_eq(profile, "python-docker-mcp"))
        allow_preinstalled(guest->allowed_modules);
    int r = session_check_env(guest->env, err);
    if (r == 0)
        r = session_check_modules(guest->allowed_modules, "allowed_modules", err);
    if (r == 0)
        r = session_check_modules(guest->blocked_modules, "blocked_modules", err);
    return r;
}

static void guest_options_done(struct guest_options *guest)
{
    json_decref(guest->env);
    json_decref(guest->allowed_modules);
    json_decref(guest->blocked_modules);
    json_decref(guest->preload);
}

static bool forks_kernels(const struct config *config)
{
    return config->zygote && config->pool_enabled && !uses_docker(config);
}

static struct session_options session_options(const struct sandboxes *sandboxes,
                                              const struct guest_options *guest,
                                              const struct config *config, const char *profile,
                                              struct store *store)
{
    /* Half of what is kept of a stream is its beginning, of which a tool may show so much. */
    size_t shown = 2 * UTF8_CHAR_MAX * (size_t)config->output_chars;
    return (struct session_options){
        .disk = { .store = store,
                  .max_age_ms = config->workspace_max_age_ms,
                  .save_timeout_ms = config->workspace_save_timeout_ms },
        .stay = { .roster = sandboxes->adopts ? sandboxes->roster : NULL,
                  .profile = profile,
                  .comes_back = mcp_owner_comes_back },
        .idle_timeout_ms = config->session_timeout_ms,
        .max_sessions = (size_t)config->max_sessions,
        .max_sessions_per_owner = (size_t)config->max_sessions_per_client,
        .max_queue = (size_t)config->max_queue,
        .run_timeout_ms = config->run_timeout_ms,
        .run_timeout_max_ms = config->run_timeout_max_ms > config->run_timeout_ms
                                  ? config->run_timeout_max_ms
                                  : config->run_timeout_ms,
        .busy_poll_us = (uint64_t)config->busy_poll_us,
        .interrupt_grace_ms = config->interrupt_grace_ms,
        .kill_grace_ms = config->kill_grace_ms,
        .output_bytes = config->output_limit > shown ? config->output_limit : shown,
        .flood_bytes = config->output_flood,
        .overflow_bytes = config->overflow_limit,
        .overflow_files = (size_t)config->overflow_files,
        .overflow_memory = config->overflow_memory,
        .display_bytes = config->display_limit,
        .python_runs = { .max_images = config->max_images,
                         .image_bytes = config->max_image_size,
                         .result_chars = config->result_limit,
                         .traceback_frames = config->traceback_frames,
                         .figure_dpi = config->figure_dpi,
                         .figure_width = config->figure_width,
                         .figure_height = config->figure_height },
        .strip_ansi = config->strip_ansi,
        .state_bytes = config->state_limit,
        .packages = sandboxes->installer.packages,
        .max_package_sets = (size_t)config->package_max_sets,
        .max_installs_per_owner = (size_t)config->package_max_per_client,
        .python = python_program(config),
        .env = guest->env,
        .allowed_modules = guest->allowed_modules,
        .blocked_modules = guest->blocked_modules,
        .limits = sandbox_limits(config),
        .kernel_pool_size = config->pool_enabled ? (size_t)config->kernel_pool_size : 0,
        .kernel_pool_max = (size_t)config->pool_size,
        .fork_kernels = forks_kernels(config),
        .preload = forks_kernels(config) ? NULL : guest->preload,
        .rehearses = config->kernel_rehearsal == CONFIG_REHEARSAL_DATA,
        .images = sandboxes->images,
        .n_images = sandboxes->n_images,
        .working_dir = uses_docker(config) ? config->docker_working_dir : "",
        .pool_max_creations = (size_t)config->pool_max_creations,
        .pool_max_age_ms = config->pool_max_age_ms,
    };
}

/*** What tools work with ***/

static struct toolbox make_toolbox(struct engine *engine, struct sessions *sessions,
                                   uv_loop_t *loop, const struct config *config)
{
    return (struct toolbox){
        .loop = loop,
        .sessions = sessions,
        .engine = engine,
        .limits = sandbox_limits(config),
        .current = current_new(),
        .python = python_program(config),
        .strip_ansi = config->strip_ansi,
        .run_timeout_ms = config->run_timeout_ms,
        .session_timeout_ms = config->session_timeout_ms,
        .output_chars = (size_t)config->output_chars,
        .max_answer = config->max_answer,
        .max_read = config->max_read,
        .max_write = config->max_write,
        .max_list = (size_t)config->max_list,
        .watch = watch_new(sessions, (size_t)config->max_list),
    };
}

/*** Open and close ***/

struct engine_docker docker_options(const struct config *config)
{
    return (struct engine_docker){ .host = config->docker_host,
                                   .cert_path = config->docker_cert_path,
                                   .runtime = config->docker_runtime,
                                   .working_dir = config->docker_working_dir,
                                   .user = config->docker_user,
                                   .install_network = config->docker_install_network,
                                   .timeout_ms = config->docker_timeout_ms };
}

/* What containers see comes from their image. */
static void say_what_is_unused(const struct config *config)
{
    if (config->rootfs[0])
        log_warning("rootfs is not used by the docker engine; docker.image is");
    if (config->runtime[0])
        log_warning("runtime is not used by the docker engine; the Python of docker.image is");
}

static void list_images(struct sandboxes *sandboxes, const struct config *config)
{
    const struct config_list *more = &config->docker_images;
    sandboxes->images = xcalloc(1 + more->count, sizeof(*sandboxes->images));
    sandboxes->images[sandboxes->n_images++] = config->docker_image;
    for (size_t i = 0; i < more->count; i++)
        sandboxes->images[sandboxes->n_images++] = more->items[i];
}

/* What sessions earlier servers have left, for the engine to spare; while we may still make the directory. */
static int read_roster(struct sandboxes *sandboxes, const struct config *config,
                       const char *state_dir, json_t *ret_kept, struct err *err)
{
    const char *name;
    json_t *note;
    int r = roster_open(state_dir, /* make= */ sandboxes->adopts, sandboxes_server_uid(config),
                        &sandboxes->roster, err);
    if (r == -ENOENT && !sandboxes->adopts)
        return 0; /* nobody has left any */
    if (r < 0)
        return r;
    sandboxes->notes = roster_read(sandboxes->roster);
    json_object_foreach(sandboxes->notes, name, note)
    {
        json_t *sandbox = json_object_get(note, "sandbox");
        if (json_is_object(sandbox))
            json_push(ret_kept, json_incref(sandbox));
    }
    return 0;
}

static int open_engine(struct sandboxes *sandboxes, uv_loop_t *loop, const struct config *config,
                       bool strict, struct err *err)
{
    char instance[RANDOM_ID_SIZE];
    auto_free char *state_dir = sandboxes_state_dir(config);
    auto_json *kept = json_array();
    struct engine_options installer;
    struct engine_options options = {
        .state_dir = state_dir,
        .instance = instance,
        .kept = kept,
        .adopts = strict,
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
        .docker = docker_options(config),
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
    if (r < 0)
        return r;
    if (uses_docker(config)) {
        say_what_is_unused(config);
        list_images(sandboxes, config);
        options.docker.images = sandboxes->images;
        options.docker.n_images = sandboxes->n_images;
        sandboxes->adopts = strict && config->docker_adopt;
        r = config->docker_adopt ? read_roster(sandboxes, config, state_dir, kept, err) : 0;
        if (r < 0)
            return r;
    }
    installer_prepare(&sandboxes->installer, loop, config, state_dir, python_program(config));
    installer_take_ids(&sandboxes->installer, &options, &installer);
    options.packages = installer_shown(&sandboxes->installer);
    r = engine_open(loop, config->engine, &options, &sandboxes->engine, err);
    if (r < 0)
        return r;
    installer_start(&sandboxes->installer, loop, config, sandboxes->engine, &installer);
    note_dir(sandboxes, state_dir);
    if (sandboxes->installer.packages)
        note_dir(sandboxes, sandboxes->installer.dir);
    return 0;
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

/* A session with Python has some six of them, and the customary limit is 1,024. */
static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files); /* or as many sessions as there is room for */
}

int sandboxes_open(struct sandboxes *ret, uv_loop_t *loop, const struct config *config, bool strict,
                   struct err *err)
{
    *ret = (struct sandboxes){ 0 };
    (void)signal(SIGPIPE, SIG_IGN); /* an agent that died is an error of a write, not our end */
    raise_file_limit();
    struct store *store = NULL;
    int r = read_guest_options(&ret->guest, config, config->profile, err);
    if (r == 0)
        r = open_store(ret, config, config->profile, &store, err);
    if (r == 0)
        r = open_engine(ret, loop, config, strict, err);
    if (r < 0) {
        store_close(store);
        sandboxes_close(ret);
        return r;
    }
    say_what_is_missing(ret->engine);
    const struct session_options options =
        session_options(ret, &ret->guest, config, config->profile, store);
    ret->sessions = sessions_new(loop, ret->engine, &options);
    if (ret->adopts)
        sessions_adopt(ret->sessions, ret->notes);
    ret->toolbox = make_toolbox(ret->engine, ret->sessions, loop, config);
    return 0;
}

/* Sessions of their own: other defaults, and nobody finds there what is here. */
int sandboxes_add(struct sandboxes *sandboxes, uv_loop_t *loop, const struct config *config,
                  const char *profile, struct toolbox **ret, struct err *err)
{
    struct more_sandboxes *more = xcalloc(1, sizeof(*more));
    struct store *store = NULL;
    int r = read_guest_options(&more->guest, config, profile, err);
    if (r == 0)
        r = open_store(sandboxes, config, profile, &store, err);
    if (r < 0) {
        guest_options_done(&more->guest);
        free(more);
        return r;
    }
    struct session_options options =
        session_options(sandboxes, &more->guest, config, profile, store);
    options.kernel_pool_size = 0; /* what is made ahead is for the chosen profile */
    more->toolbox = make_toolbox(sandboxes->engine, sessions_new(loop, sandboxes->engine, &options),
                                 loop, config);
    if (sandboxes->adopts)
        sessions_adopt(more->toolbox.sessions, sandboxes->notes);
    more->next = sandboxes->more;
    sandboxes->more = more;
    *ret = &more->toolbox;
    return 0;
}

int sandboxes_confine(const struct sandboxes *sandboxes, struct err *err)
{
    const struct engine_reach reach = { .dirs = (const char *const *)sandboxes->dirs,
                                        .names = sandboxes->installer.packages };
    return engine_confine(sandboxes->engine, &reach, err);
}

void sandboxes_adopted(struct sandboxes *sandboxes)
{
    const char *name;
    json_t *note;
    if (!sandboxes->adopts)
        return;
    engine_drop_kept(sandboxes->engine);
    json_object_foreach(sandboxes->notes, name, note)
    {
        if (engine_is_stale(sandboxes->engine, json_object_get(note, "sandbox")))
            roster_remove(sandboxes->roster, name);
    }
    json_decref(steal_ptr(&sandboxes->notes));
}

void sandboxes_cancel_runs(struct sandboxes *sandboxes)
{
    sessions_cancel_runs(sandboxes->sessions);
    for (struct more_sandboxes *more = sandboxes->more; more; more = more->next)
        sessions_cancel_runs(more->toolbox.sessions);
}

static void toolbox_done(struct toolbox *box)
{
    sessions_free(box->sessions); /* the watch hears of each that ends */
    watch_free(box->watch);
    current_free(box->current);
}

void sandboxes_close(struct sandboxes *sandboxes)
{
    while (sandboxes->more) {
        struct more_sandboxes *more = sandboxes->more;
        sandboxes->more = more->next;
        toolbox_done(&more->toolbox);
        guest_options_done(&more->guest);
        free(more);
    }
    toolbox_done(&sandboxes->toolbox);
    installer_close(&sandboxes->installer);
    engine_close(sandboxes->engine);
    guest_options_done(&sandboxes->guest);
    json_decref(sandboxes->notes);
    roster_close(sandboxes->roster);
    free(sandboxes->images);
    for (size_t i = 0; i < sandboxes->n_dirs; i++)
        free(sandboxes->dirs[i]);
    free(sandboxes->dirs);
    *sandboxes = (struct sandboxes){ 0 };
}
