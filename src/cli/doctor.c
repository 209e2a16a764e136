/*
 * belljar doctor: what works on this host, what is missing, how to get it. The facts come from the
 * engine's own checks; the proof is a sandbox that is made and runs something.
 */
#include "cli/cli.h"
#include "cli/sandboxes.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECKS_MAX = ENGINE_CHECKS_MAX + 8 };

struct examination {
    struct engine_check checks[CHECKS_MAX];
    size_t count;
    unsigned layers; /* in force; 0: no engine */
    bool works;
};

static const char *const verdicts[] = {
    [ENGINE_OK] = "ok",
    [ENGINE_WARNING] = "warning",
    [ENGINE_PROBLEM] = "problem",
};

static void add_check(struct examination *exam, const char *name, enum engine_verdict verdict,
                      const char *detail, const char *remedy)
{
    struct engine_check *check = &exam->checks[exam->count++];
    check->name = name;
    check->verdict = verdict;
    (void)snprintf(check->detail, sizeof(check->detail), "%s", detail); /* cut is fine */
    (void)snprintf(check->remedy, sizeof(check->remedy), "%s", remedy);
}

/*** Programs that guests or later engines use ***/

static char *find_program(const char *name)
{
    auto_free char *path = xstrdup("/usr/local/bin:/usr/bin:/bin"); /* what a guest's PATH has */
    char *rest = path;
    for (char *dir; (dir = strsep(&rest, ":"));) {
        char *full = xasprintf("%s/%s", dir, name);
        if (access(full, X_OK) == 0)
            return full;
        free(full);
    }
    return NULL;
}

static void check_interpreter(struct examination *exam, const char *name, const char *remedy)
{
    auto_free char *found = find_program(name);
    add_check(exam, name, found ? ENGINE_OK : ENGINE_WARNING,
              found ? found : "not found where sandboxes look for it", found ? "" : remedy);
}

static void check_docker(struct examination *exam)
{
    static const char socket_path[] = "/var/run/docker.sock";
    bool usable = access(socket_path, R_OK | W_OK) == 0;
    add_check(exam, "docker", ENGINE_OK,
              usable ? "its socket is there; the native engine does not need it"
                     : "not there; the native engine does not need it",
              "");
}

/*** Packages ***/

/* Which program installs them, as installer.py looks for it; NULL: it is not there. What an image has is
 * not known before it is tried. */
static char *find_installer(const struct config *config)
{
    static const char *const words[] = { "uv or pip", "uv", "pip" };
    enum package_installer wanted = (enum package_installer)config->package_installer;
    if (str_eq(config->engine, "docker"))
        return xasprintf("%s of %.100s in the network %s", words[wanted], config->docker_image,
                         config->docker_install_network);
    if (wanted == PACKAGE_INSTALLER_PIP)
        return xstrdup("pip");
    auto_free char *own = xasprintf("%s/bin/uv", config->runtime);
    if (config->runtime[0] && access(own, X_OK) == 0)
        return steal_ptr(&own);
    char *found = find_program("uv");
    return found || wanted == PACKAGE_INSTALLER_UV ? found : xstrdup("pip, for there is no uv");
}

static void check_packages(struct examination *exam, const struct config *config,
                           const struct installer *installer)
{
    enum { MIB = 1 << 20 };
    if (!installer->packages) {
        add_check(exam, "packages", config->packages_enabled ? ENGINE_WARNING : ENGINE_OK,
                  config->packages_enabled ? installer->failure.msg : "off (packages_enabled)",
                  config->packages_enabled ? "see package_dir and package_wheels" : "");
        return;
    }
    size_t sets;
    uint64_t bytes;
    packages_kept(installer->packages, &sets, &bytes);
    auto_free char *kept =
        xasprintf("%zu sets, %.0f of at most %.0f MiB, in %s", sets, (double)bytes / MIB,
                  (double)config->package_cache_size / MIB, installer->dir);
    auto_free char *program = find_installer(config);
    const char *index = config->package_index;
    auto_free char *from = xasprintf("%s, from %s", program ? program : "uv is not found",
                                     *index ? index : "its default index");
    add_check(exam, "packages", ENGINE_OK, kept, "");
    add_check(exam, "package installer", program ? ENGINE_OK : ENGINE_WARNING, from,
              program ? ""
                      : "tools/runtime makes a runtime with uv, or set package_installer to pip");
}

/*** A sandbox, tried ***/

struct trial {
    uv_loop_t loop;
    char verdict[200]; /* of the last run */
    bool works;
};

static void on_done(const struct run_result *result, void *data)
{
    struct trial *trial = data;
    trial->works = result->outcome == OUTCOME_OK;
    (void)snprintf(trial->verdict, sizeof(trial->verdict), "%s",
                   result->error ? result->error : "");
    uv_stop(&trial->loop);
}

static int try_run(struct trial *trial, struct sessions *sessions, const struct run_spec *spec,
                   struct err *err)
{
    static const struct run_events events = { .on_done = on_done };
    struct run *run;
    int r = session_run(sessions, spec, &events, trial, &run, err);
    if (r == 0)
        uv_run(&trial->loop, UV_RUN_DEFAULT);
    return r;
}

/* Whether the interpreter starts where it is shown, with its libraries. The operator who has named one wants
 * it; without, there are other languages. Returns whether that is well. */
static bool check_cell(struct examination *exam, const struct config *config, struct trial *trial,
                       struct sessions *sessions)
{
    const struct run_spec spec = {
        .owner = "doctor", .language = "python", .code = "", .transient = true
    };
    struct err err = { 0 };
    bool wanted = config->runtime[0] || config->python[0];
    if (try_run(trial, sessions, &spec, &err) == 0 && trial->works)
        add_check(exam, "python cells", ENGINE_OK, "one was run", "");
    else
        add_check(exam, "python cells", wanted ? ENGINE_PROBLEM : ENGINE_WARNING,
                  err.code ? err.msg : trial->verdict,
                  "see runtime and python in docs/configuration.md: the interpreter and its "
                  "libraries must be readable for everybody, and lie where they were installed");
    return trial->works || !wanted;
}

static void check_run(struct examination *exam, const struct trial *trial)
{
    exam->works = trial->works;
    if (trial->works)
        add_check(exam, "sandbox", ENGINE_OK, "one was made, ran a program and is gone again", "");
    else
        add_check(exam, "sandbox", ENGINE_PROBLEM, trial->verdict, "see the problems above");
}

static int try_sandbox(struct trial *trial, const struct config *config, struct examination *exam,
                       struct err *err)
{
    static const char *const argv[] = { "true", NULL };
    const struct run_spec spec = { .owner = "doctor", .argv = argv, .transient = true };
    struct config lean = *config; /* shallow */
    struct sandboxes sandboxes;
    lean.workspace = CONFIG_WORKSPACE_MEMORY;
    lean.pool_enabled = false;
    int r = loop_begin(&trial->loop, err);
    if (r < 0)
        return r;
    r = sandboxes_open(&sandboxes, &trial->loop, &lean, /* strict= */ false, err);
    if (r == 0) {
        exam->layers = engine_layers(sandboxes.engine);
        check_packages(exam, config, &sandboxes.installer);
        r = try_run(trial, sandboxes.sessions, &spec, err);
    }
    if (r == 0)
        check_run(exam, trial);
    if (r == 0 && trial->works && str_eq(config->engine, "native"))
        exam->works = check_cell(exam, config, trial, sandboxes.sessions);
    sandboxes_close(&sandboxes);
    loop_finish(&trial->loop);
    return r;
}

static void check_sandbox(struct examination *exam, const struct config *config)
{
    struct trial trial = { 0 };
    struct err err = { 0 };
    if (try_sandbox(&trial, config, exam, &err) < 0)
        add_check(exam, "sandbox", ENGINE_PROBLEM, err.msg, "see the problems above");
}

static void examine(struct examination *exam, const struct config *config)
{
    const struct engine_options options = { .rootfs = config->rootfs,
                                            .runtime = config->runtime,
                                            .uid_base = (uint32_t)config->uid_base,
                                            .uid_count = (uint32_t)config->uid_count,
                                            .docker = docker_options(config) };
    exam->count = engine_checks(config->engine, &options, exam->checks);
    if (str_eq(config->engine, "native")) {
        check_interpreter(exam, "bash", "install bash");
        check_interpreter(exam, "node", "install nodejs if guests shall run JavaScript");
        check_interpreter(exam, "python3", "install python3");
        check_docker(exam);
    }
    check_sandbox(exam, config);
}

/*** Telling ***/

static void tell(const struct examination *exam, struct buf *text)
{
    for (size_t i = 0; i < exam->count; i++) {
        const struct engine_check *check = &exam->checks[i];
        (void)buf_printf(text, "%-8s %-18s %s\n", verdicts[check->verdict], check->name,
                         check->detail);
        if (check->remedy[0])
            (void)buf_printf(text, "%-27s to mend it: %s\n", "", check->remedy);
    }
    (void)buf_add_str(text, "\nenforced for each sandbox:");
    for (unsigned bit = 0; bit < ENGINE_LAYERS; bit++) {
        if (exam->layers & (1u << bit))
            (void)buf_printf(text, " %s", engine_layer_name((enum engine_layer)(1u << bit)));
    }
    (void)buf_add_str(text, exam->layers ? "\nnot enforced:" : " nothing\nnot enforced:");
    for (unsigned bit = 0; bit < ENGINE_LAYERS; bit++) {
        if (!(exam->layers & (1u << bit)))
            (void)buf_printf(text, " %s", engine_layer_name((enum engine_layer)(1u << bit)));
    }
    (void)buf_add_str(text, "\n");
}

static void tell_json(const struct examination *exam, struct buf *text)
{
    json_t *checks = json_array(), *layers = json_object();
    for (size_t i = 0; i < exam->count; i++) {
        const struct engine_check *check = &exam->checks[i];
        json_t *row = json_object();
        json_put_str(row, "name", check->name);
        json_put_str(row, "verdict", verdicts[check->verdict]);
        json_put(row, "detail", json_text_value(check->detail, strlen(check->detail)));
        json_put(row, "remedy", json_text_value(check->remedy, strlen(check->remedy)));
        json_push(checks, row);
    }
    for (unsigned bit = 0; bit < ENGINE_LAYERS; bit++) {
        const char *name = engine_layer_name((enum engine_layer)(1u << bit));
        json_put(layers, name, json_boolean(exam->layers & (1u << bit)));
    }
    auto_json *all = json_object();
    json_put(all, "works", json_boolean(exam->works));
    json_put(all, "checks", checks);
    json_put(all, "enforced", layers);
    (void)json_write(text, all);
    (void)buf_add_char(text, '\n');
}

static int run(const struct cli_args *args, struct err *err)
{
    struct examination exam = { 0 };
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    examine(&exam, &args->config);
    if (cli_given(args, "--json"))
        tell_json(&exam, &text);
    else
        tell(&exam, &text);
    int r = cli_print(&text, err);
    return r < 0 ? r : exam.works ? CLI_OK : CLI_FAILED;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "Say what works on this host, what is missing and how to get it",
    .configured = true,
    .switches = { { "--json", "Print one JSON object." } },
    .run = run,
};
