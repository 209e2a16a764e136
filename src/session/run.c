/*
 * Runs: one at a time in a session, in order.
 *
 *   WAITING ─▶ RUNNING ─(exit)─▶ JUDGING ─▶ told and gone
 *                 │ time limit, or cancelled
 *                 ▼
 *             INTERRUPTED (SIGINT) ─grace─▶ KILLED (SIGKILL) ─grace─▶ the sandbox goes with it
 *
 * The clock, the counters and the decision are ours; what the agent says is only what the run
 * printed and how its main process ended. Which limit was hit is read from the counters that the
 * kernel keeps for the sandbox, compared with those of the end of the run before.
 */
#include "session/internal.h"

#include "agent/setup.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SPACE_FULL_BYTES = 4096, OUTPUT_SLACK = 4096 };
enum { STATE_SKIPPED_MAX = 1000, STATE_NAME_MAX = 1024 };

enum run_state {
    RUN_WAITING,
    RUN_RUNNING,
    RUN_INTERRUPTED,
    RUN_KILLED,
    RUN_JUDGING, /* and keeping, if its output is long, and looking for files, and saving them */
};

struct run {
    struct list link; /* session->runs */
    struct session_ref *session;
    enum run_state state;
    struct run_events events;
    void *data;

    const char *const *argv; /* of the language, or words below */
    char **own_argv;
    const char *shell_rc; /* a variable more, see language.c; NULL: none */
    char *code;
    size_t code_len;
    char *input;
    size_t input_len;
    uint64_t timeout_ms;
    bool transient;
    bool python;
    bool warm_up; /* ours, not a client's */

    uint64_t started_ns;
    uint64_t paused_ms; /* since when; 0: not now */
    struct timer *timer;
    struct output output;
    struct gather gather;
    size_t keep_over;
    struct keep *keep;
    bool want_files;
    struct changes changes;
    char *save_error;
    bool timed_out, cancelled;
    struct link_exit exit;
    bool has_exit;
    bool memory_hit, pids_hit, disk_full;
    enum outcome outcome;

    /* Python only. */
    json_t *variables; /* to set before */
    bool want_state, str_value;
    json_t *done, *displays;
    uint64_t display_bytes;
    size_t displays_lost;
    bool kernel_lost;
};

static const char *const outcome_names[] = {
    [OUTCOME_OK] = "ok",
    [OUTCOME_ERROR] = "error",
    [OUTCOME_TIMEOUT] = "timeout",
    [OUTCOME_INTERRUPTED] = "interrupted",
    [OUTCOME_MEMORY_LIMIT] = "memory_limit",
    [OUTCOME_OUTPUT_LIMIT] = "output_limit",
    [OUTCOME_PROCESS_LIMIT] = "process_limit",
    [OUTCOME_DISK_LIMIT] = "disk_limit",
    [OUTCOME_KILLED] = "killed",
    [OUTCOME_KERNEL_DIED] = "kernel_died",
    [OUTCOME_SANDBOX_FAILED] = "sandbox_failed",
};

const char *outcome_name(enum outcome outcome)
{
    return outcome_names[outcome];
}

/*** The end of a run ***/

static void run_free(struct run *run)
{
    timer_free(run->timer);
    gather_done(&run->gather);
    output_done(&run->output);
    keep_free(run->keep);
    changes_done(&run->changes);
    free(run->save_error);
    for (char **word = run->own_argv; word && *word; word++)
        free(*word);
    json_decref(run->variables);
    json_decref(run->done);
    json_decref(run->displays);
    free(run->own_argv);
    free(run->code);
    free(run->input);
    free(run);
}

/* Takes the run out of its session, tells its owner, frees it. The session may be gone after. */
static void run_tell(struct run *run, enum outcome outcome, const char *error, bool session_over)
{
    struct session_ref *session = run->session;
    session_hold(session);
    list_remove(&run->link);
    if (session->cell == run)
        session->cell = NULL;
    if (run->python)
        session_cell_gone(session);
    if (!run->warm_up) {
        session->n_runs--;
        session->sessions->stats.runs_total[outcome]++;
        session->last_used_ms = clock_ms();
    }

    gather_finish(&run->gather);
    struct run_chunk *chunks = xcalloc(run->output.count, sizeof(*chunks));
    for (size_t i = 0; i < run->output.count; i++) {
        const struct output_piece *piece = &run->output.pieces[i];
        chunks[i] = (struct run_chunk){ .stream = piece->stream,
                                        .text = buf_str(&piece->text),
                                        .len = piece->text.len };
    }
    struct run_result result = {
        .session_id = session->id,
        .outcome = outcome,
        .error = error,
        .has_exit_code = run->has_exit && !run->exit.failure[0] && !run->python,
        .exit_code = run->exit.signaled ? 128 + run->exit.code : run->exit.code,
        .duration_ms = run->started_ns ? (double)(uv_hrtime() - run->started_ns) / 1e6 : 0,
        .cpu_ms = (double)run->exit.cpu_ns / 1e6,
        .output = chunks,
        .n_output = run->output.count,
        .truncated = run->output.truncated,
        .session_over = session_over,
        .files = run->changes.files,
        .n_files = run->changes.count,
        .files_kept = session_over && session->leaves_files,
        .done = run->done,
        .displays = run->displays,
        .displays_lost = run->displays_lost,
        .kernel_lost = run->kernel_lost || (run->python && session->reopened),
        .save_error = run->save_error,
        .state = run->want_state ? json_object_get(run->done, "state") : NULL,
        .state_skipped = run->want_state ? json_object_get(run->done, "state_skipped") : NULL,
    };
    keep_result(run->keep, &result);
    if (run->python && !run->warm_up)
        session->reopened = false;
    if (session->owner && session->sessions->watch.on_run)
        session->sessions->watch.on_run(session->owner, &result, session->sessions->watch_data);
    if (run->events.on_done)
        run->events.on_done(&result, run->data);
    free(chunks);
    if (run->changes.files) {
        changes_done(&session->told);
        session->told = run->changes;
        run->changes = (struct changes){ 0 };
    }
    run_free(run);
    session_release(session);
}

static enum outcome judge(const struct run *run)
{
    const struct link_exit *exit = &run->exit;
    if (exit->flooded)
        return OUTCOME_OUTPUT_LIMIT;
    if (run->timed_out)
        return OUTCOME_TIMEOUT;
    if (run->cancelled)
        return OUTCOME_INTERRUPTED;
    /* A kernel that leaves with os._exit(0) takes the state with it: not a success. */
    if (!exit->signaled && exit->code == 0 && !exit->failure[0] && !run->kernel_lost)
        return OUTCOME_OK;
    if (run->memory_hit)
        return OUTCOME_MEMORY_LIMIT;
    if (run->pids_hit)
        return OUTCOME_PROCESS_LIMIT;
    if (run->disk_full)
        return OUTCOME_DISK_LIMIT;
    if (run->kernel_lost)
        return OUTCOME_KERNEL_DIED;
    return exit->signaled ? OUTCOME_KILLED : OUTCOME_ERROR;
}

/* "ValueError: bad value", as the kernel said it; NULL when it said nothing. */
static char *kernel_error(const struct run *run)
{
    const json_t *error = json_object_get(run->done, "error");
    const char *name = json_str(error, "name"), *value = json_str(error, "value");
    if (!name)
        return NULL;
    return value && *value ? xasprintf("%.200s: %.2000s", name, value) : xasprintf("%.200s", name);
}

/* Why a program did not start; where programs come from an image, which. */
static char *explain_failure(const struct run *run, const char *what)
{
    const char *image = session_image(run->session);
    return xasprintf("%s: %s%s%.300s", what, run->exit.failure, image ? ", in the image " : "",
                     image ? image : "");
}

/* One line for people; owned by the caller, NULL when all is well. */
static char *explain(const struct run *run, enum outcome outcome)
{
    const struct sandbox_limits *limits = &run->session->limits;
    char *said;
    switch (outcome) {
    case OUTCOME_OK:
        return NULL;
    case OUTCOME_TIMEOUT:
        return xasprintf("stopped after %.4g seconds, the time limit of this call",
                         (double)run->timeout_ms / 1000);
    case OUTCOME_INTERRUPTED:
        return xstrdup("interrupted");
    case OUTCOME_MEMORY_LIMIT:
        return xasprintf(
            "out of memory: the sandbox may use %llu MiB, files in /workspace and /tmp "
            "included",
            (unsigned long long)(limits->memory_bytes >> 20));
    case OUTCOME_OUTPUT_LIMIT:
        return xasprintf("killed: it wrote more than %llu MiB of output",
                         (unsigned long long)(run->session->sessions->options.flood_bytes >> 20));
    case OUTCOME_PROCESS_LIMIT:
        return xasprintf("too many processes: the sandbox may have %llu",
                         (unsigned long long)limits->pids);
    case OUTCOME_DISK_LIMIT:
        return xasprintf("/workspace is full: it holds %llu MiB and %llu files",
                         (unsigned long long)(limits->workspace_bytes >> 20),
                         (unsigned long long)limits->workspace_inodes);
    case OUTCOME_KILLED:
        return xasprintf("killed by signal %d (%s)", run->exit.code, strsignal(run->exit.code));
    case OUTCOME_ERROR:
        said = kernel_error(run);
        if (said)
            return said;
        if (run->exit.failure[0])
            return explain_failure(run, "could not be started");
        return xasprintf("exit status %d", run->exit.code);
    case OUTCOME_KERNEL_DIED:
        if (run->exit.failure[0])
            return explain_failure(run, "Python could not go on");
        if (run->exit.signaled)
            return xasprintf("Python was killed by signal %d (%s)", run->exit.code,
                             strsignal(run->exit.code));
        return xasprintf("Python ended with status %d", run->exit.code);
    case OUTCOME_SANDBOX_FAILED:
        return xstrdup("the sandbox failed");
    }
    return NULL;
}

/* Tells the run and goes on with the session, which its owner may have closed meanwhile. */
static void run_finish(struct run *run, enum outcome outcome, const char *error)
{
    struct session_ref *session = run->session;
    bool transient = run->transient;
    session_hold(session);
    run_tell(run, outcome, error, transient);
    if (session->state != SESSION_ENDED) {
        session_touch(session);
        if (transient)
            session_end(session, OUTCOME_INTERRUPTED, "the session was for one run");
        else
            session_pump(session);
    }
    session_release(session);
}

static void run_told(struct run *run)
{
    auto_free char *error = explain(run, run->outcome);
    run_finish(run, run->outcome, error);
}

static void on_saved(const char *error, void *data)
{
    struct run *run = data;
    if (run->session->state == SESSION_ENDED)
        return; /* which tells its runs itself */
    run->save_error = error ? xstrdup(error) : NULL;
    run_told(run);
}

/* What it has left is on the disk before anybody is told, if it is to be there. */
static void run_save(struct run *run)
{
    if (run->warm_up || run->transient)
        run_told(run);
    else
        disk_save(run->session, on_saved, run);
}

static void run_look(struct run *run)
{
    if (!run->want_files ||
        changes_look(&run->changes, run->session->agent, &run->session->told, run_save, run) < 0)
        run_save(run);
}

/* Long output first becomes a file, so that the answer can name it. */
static void run_over(struct run *run)
{
    run->outcome = judge(run);
    gather_finish(&run->gather);
    if (!run->keep_over || (!run->gather.cut && output_json_len(&run->output) <= run->keep_over)) {
        run_look(run);
        return;
    }
    run->keep = keep_start(run->session, &run->gather, run_look, run);
    keep_write(run->keep); /* the run may be gone */
}

/*** Counters ***/

static void on_agent_counts(const struct link_counts *counts, void *data)
{
    const struct session_ref *session = data;
    const struct sandbox_usage usage = { .oom_kills = counts ? counts->oom_kills : 0,
                                         .pids_denied = counts ? counts->pids_denied : 0 };
    session->on_counts(counts ? &usage : NULL, session->on_counts_data);
}

/* oom_kills and pids_denied, from whoever knows them; on_counts may be called at once. One asks at a time: the run that has ended, or
 * the session after it. */
static void ask_counts(struct session_ref *session, sandbox_usage_fn *on_counts, void *data)
{
    if (sandbox_tells_counts(session->sandbox)) {
        struct sandbox_usage counts;
        if (sandbox_counts(session->sandbox, &counts))
            on_counts(&counts, data);
        else
            sandbox_usage(session->sandbox, on_counts, data);
        return;
    }
    session->on_counts = on_counts;
    session->on_counts_data = data;
    if (link_count(session->agent, on_agent_counts, session) < 0)
        on_counts(NULL, data);
}

/*** Judging: counters first, then the disk if nothing else explains a failure ***/

static void on_space(int code, const char *bytes, size_t inodes_free, uint64_t bytes_free,
                     void *data)
{
    struct run *run = data;
    (void)bytes;
    if (code == ECANCELED)
        return; /* the session has ended, and the run with it: do not touch it */
    run->disk_full = code == 0 && (inodes_free == 0 || bytes_free < SPACE_FULL_BYTES);
    run_over(run);
}

static void on_usage(const struct sandbox_usage *usage, void *data)
{
    struct run *run = data;
    struct session_ref *session = run->session;
    if (usage) {
        run->memory_hit = usage->oom_kills > session->oom_kills;
        run->pids_hit = usage->pids_denied > session->pids_denied;
        session->oom_kills = usage->oom_kills;
        session->pids_denied = usage->pids_denied;
    }
    if (judge(run) != OUTCOME_ERROR || link_file_space(session->agent, on_space, run, NULL) < 0)
        run_over(run);
}

static void on_counted(const struct sandbox_usage *usage, void *data)
{
    struct session_ref *session = data;
    session->counting = false;
    if (usage) {
        session->oom_kills = usage->oom_kills;
        session->pids_denied = usage->pids_denied;
    }
    session_pump(session);
}

void session_count(struct session_ref *session)
{
    session->counting = true;
    ask_counts(session, on_counted, session);
}

/* After a run that went well nobody waits for the counters but the next run, which must not be blamed
 * for what they say now. */
static void run_over_well(struct run *run)
{
    struct session_ref *session = run->session;
    session_hold(session);
    session->counting = true;
    run_over(run);
    if (session->state != SESSION_ENDED)
        session_count(session);
    session_release(session);
}

/*** Running ***/

void run_on_output(struct run *run, enum link_stream stream, const char *bytes, size_t len)
{
    gather_add(&run->gather, stream, bytes, len);
    if (run->events.on_output)
        run->events.on_output(stream, bytes, len, run->data);
}

void run_on_gap(struct run *run, enum link_stream stream, uint64_t bytes)
{
    gather_add_gap(&run->gather, stream, bytes);
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    run_on_output(data, stream, bytes, len);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    run_on_gap(data, stream, bytes);
}

static void run_judge(struct run *run, const struct link_exit *exit)
{
    run->state = RUN_JUDGING;
    run->exit = *exit;
    run->has_exit = true;
    timer_stop(run->timer);
    if (judge(run) != OUTCOME_OK) {
        ask_counts(run->session, on_usage, run);
        return;
    }
    run_over_well(run);
}

static void on_exit_frame(const struct link_exit *exit, void *data)
{
    if (exit) /* else the link is gone: the session ends, and the run with it: do not touch it */
        run_judge(data, exit);
}

void run_on_display(struct run *run, json_t *display, size_t len)
{
    uint64_t room = run->session->sessions->options.display_bytes - run->display_bytes;
    if (len > room) {
        run->displays_lost++;
        run->output.truncated = true;
        json_decref(display);
        return;
    }
    run->display_bytes += len;
    if (!run->displays)
        run->displays = json_array();
    json_push(run->displays, display);
}

/* The guest may have forged what its kernel says of variables: an object and an array of short texts,
 * or nothing of both. */
static void check_state(struct run *run)
{
    const json_t *state = json_object_get(run->done, "state");
    const json_t *skipped = json_object_get(run->done, "state_skipped");
    auto_buf text = BUF_INIT(run->session->sessions->options.state_bytes);
    bool good = json_is_object(state) && json_is_array(skipped) &&
                json_array_size(skipped) <= STATE_SKIPPED_MAX && json_write(&text, state) == 0;
    for (size_t i = 0; good && i < json_array_size(skipped); i++)
        good = json_string_length(json_array_get(skipped, i)) - 1 < STATE_NAME_MAX;
    if (!good) {
        (void)json_object_del(run->done, "state");
        (void)json_object_del(run->done, "state_skipped");
    }
}

/* An exit status for how the cell ended, so that both kinds of run are judged alike. */
void run_on_done(struct run *run, json_t *done, const struct link_exit *totals)
{
    struct link_exit exit = *totals;
    const char *status = json_str(done, "status");
    json_int_t code = json_integer_value(json_object_get(done, "exit_code"));
    if (str_eq(status, "ok"))
        exit.code = 0;
    else if (str_eq(status, "exit"))
        exit.code = (int)(code & 0xff);
    else
        exit.code = 1;
    run->done = done;
    if (run->want_state)
        check_state(run);
    run_judge(run, &exit);
}

void run_cell(const struct run *run, struct cell *ret)
{
    *ret = (struct cell){ .code = run->code,
                          .state = run->variables,
                          .want_state = run->want_state,
                          .str_value = run->str_value,
                          .forget = run->warm_up };
}

bool run_is_stopping(const struct run *run)
{
    return run->state == RUN_INTERRUPTED;
}

void run_on_kernel_lost(struct run *run, const struct link_exit *exit)
{
    run->kernel_lost = true;
    run_judge(run, exit);
}

static void run_interrupt(struct run *run)
{
    run->state = RUN_INTERRUPTED;
    if (run->python) {
        session_cell_gone(run->session);
        link_kernel_interrupt(run->session->agent);
    } else
        link_interrupt(run->session->agent);
    timer_start(run->timer, run->session->sessions->options.interrupt_grace_ms);
}

void run_pause(struct run *run)
{
    if (run->state != RUN_RUNNING || run->paused_ms)
        return;
    run->paused_ms = clock_ms();
    timer_stop(run->timer);
}

void run_resume(struct run *run)
{
    if (run->state != RUN_RUNNING || !run->paused_ms)
        return;
    run->timeout_ms += clock_ms() - run->paused_ms;
    run->paused_ms = 0;
    uint64_t used = (uv_hrtime() - run->started_ns) / 1000000;
    timer_start(run->timer, used < run->timeout_ms ? run->timeout_ms - used : 0);
}

/* Time is up: for the run, for its answer to SIGINT, for its answer to SIGKILL. */
static void on_timer(void *data)
{
    struct run *run = data;
    switch (run->state) {
    case RUN_RUNNING:
        run->timed_out = true;
        run_interrupt(run);
        break;
    case RUN_INTERRUPTED:
        run->state = RUN_KILLED;
        if (run->python)
            link_kernel_kill(run->session->agent);
        else
            link_kill(run->session->agent);
        timer_start(run->timer, run->session->sessions->options.kill_grace_ms);
        break;
    case RUN_KILLED:
        log_warning("session %.6s…: a run outlived SIGKILL; its sandbox is destroyed",
                    run->session->id);
        session_end(run->session, run->timed_out ? OUTCOME_TIMEOUT : OUTCOME_INTERRUPTED,
                    "stopped at its limit; the sandbox had to be destroyed with all its files");
        break;
    case RUN_WAITING:
    case RUN_JUDGING:
        break;
    }
}

static int run_start(struct run *run, struct err *err)
{
    const char *env[2 * SESSION_ENV_COUNT + 4];
    size_t n_env = 0;
    auto_free char *python_path = session_python_path(run->session);
    static const struct link_run_events events = { .on_output = on_output,
                                                   .on_gap = on_gap,
                                                   .on_exit = on_exit_frame };
    const struct session_options *options = &run->session->sessions->options;
    for (char **word = run->session->env; *word; word++)
        if (!python_path || !str_has_prefix(*word, "PYTHONPATH="))
            env[n_env++] = *word;
    if (python_path)
        env[n_env++] = python_path;
    if (str_has_prefix(options->python, ENGINE_RUNTIME "/"))
        env[n_env++] = "PATH=" ENGINE_RUNTIME "/bin:" AGENT_PATH; /* `python` is the kernel's */
    if (run->shell_rc)
        env[n_env++] = run->shell_rc;
    env[n_env] = NULL;
    const struct link_run_spec spec = {
        .argv = run->own_argv ? (const char *const *)run->own_argv : run->argv,
        .env = env,
        .cwd = options->working_dir ? options->working_dir : "",
        .code = run->code,
        .code_len = run->code_len,
        .input = run->input,
        .input_len = run->input_len,
        .head_bytes = run_head_bytes(run),
        .tail_bytes = options->output_bytes / 2,
        .flood_bytes = options->flood_bytes,
    };
    run->state = RUN_RUNNING;
    run->started_ns = uv_hrtime();
    run->changes.since_ns = changes_clock_ns();
    run->changes.loaded = run->session->loaded;
    run->timer = timer_new(run->session->sessions->loop, on_timer, run);
    timer_start(run->timer, run->timeout_ms);
    if (run->python) {
        struct cell cell;
        run_cell(run, &cell);
        return kernel_run(run->session, run, &cell, err);
    }
    return link_run(run->session->agent, &spec, &events, run, err);
}

uint64_t run_head_bytes(const struct run *run)
{
    const struct session_options *options = &run->session->sessions->options;
    uint64_t tail = options->output_bytes / 2, most = run->keep_over ? options->overflow_bytes : 0;
    return most > 2 * tail ? most - tail : tail;
}

void session_pump(struct session_ref *session)
{
    struct err err = { 0 };
    if (session->state != SESSION_READY || session->counting || list_empty(&session->runs))
        return;
    struct run *run = list_first(struct run, &session->runs, link);
    if ((session->loading || session->transfer) && !run->warm_up)
        return; /* nothing changes files that are on their way */
    if (run->state == RUN_WAITING && run_start(run, &err) < 0)
        session_end(session, OUTCOME_SANDBOX_FAILED, err.msg);
}

void session_fail_runs(struct session_ref *session, enum outcome outcome, const char *why)
{
    while (!list_empty(&session->runs))
        run_tell(list_first(struct run, &session->runs, link), outcome, why, true);
}

/*** For callers ***/

static char **copy_words(const char *const *words)
{
    size_t count = 0;
    while (words[count])
        count++;
    char **copy = xcalloc(count + 1, sizeof(*copy));
    for (size_t i = 0; i < count; i++)
        copy[i] = xstrdup(words[i]);
    return copy;
}

/* `before` and the bytes, with a NUL behind. */
static char *copy_bytes(const char *before, const char *bytes, size_t len)
{
    size_t start = strlen(before);
    char *copy = xmalloc(start + len + 1);
    memcpy(copy, before, start);
    memcpy(copy + start, bytes, len);
    copy[start + len] = '\0';
    return copy;
}

static uint64_t clamp_timeout(const struct session_options *options, uint64_t wanted)
{
    uint64_t timeout = wanted ? wanted : options->run_timeout_ms;
    return timeout < options->run_timeout_max_ms ? timeout : options->run_timeout_max_ms;
}

static struct gather_limits gather_limits(struct sessions *sessions, bool keeps)
{
    const struct session_options *options = &sessions->options;
    uint64_t more = options->overflow_bytes;
    return (struct gather_limits){
        .shown = options->output_bytes,
        .keeps = keeps,
        .rest = more > options->output_bytes ? more : options->output_bytes,
        .total = &sessions->rest_bytes,
        .total_max = options->overflow_memory,
    };
}

static struct run *run_new(const struct run_spec *spec, struct sessions *sessions)
{
    const struct session_options *options = &sessions->options;
    struct run *run = xcalloc(1, sizeof(*run));
    list_init(&run->link);
    run->argv = spec->argv ? NULL : language_argv(spec->language);
    run->own_argv = spec->argv ? copy_words(spec->argv) : NULL;
    if (!spec->argv && !spec->transient) /* else nothing comes after it */
        run->shell_rc = language_shell_rc(spec->language);
    if (spec->code) {
        const char *before = run->shell_rc ? language_shell_prefix : "";
        run->code = copy_bytes(before, spec->code, spec->code_len);
        run->code_len = strlen(before) + spec->code_len;
    }
    if (spec->input) {
        run->input = copy_bytes("", spec->input, spec->input_len);
        run->input_len = spec->input_len;
    }
    run->timeout_ms = clamp_timeout(options, spec->timeout_ms);
    run->transient = spec->transient;
    run->python = !spec->argv && language_is_python(spec->language);
    run->want_files = spec->want_files && !spec->transient && !run->python;
    run->keep_over = options->overflow_bytes && !spec->transient ? spec->keep_over : 0;
    run->variables = run->python && spec->state ? json_deep_copy(spec->state) : NULL;
    run->want_state = run->python && spec->want_state;
    run->str_value = spec->str_value;
    output_init(&run->output, 2 * options->output_bytes + OUTPUT_SLACK, options->strip_ansi);
    const struct gather_limits limits = gather_limits(sessions, run->keep_over > 0);
    gather_init(&run->gather, &run->output, &limits);
    return run;
}

static bool wants_new_session(const char *id)
{
    return !id || !*id || str_eq(id, "0");
}

static int check_state_in(const struct sessions *sessions, const json_t *state, struct err *err)
{
    uint64_t most = sessions->options.state_bytes;
    auto_buf text = BUF_INIT(most);
    if (!state)
        return 0;
    if (!json_is_object(state))
        return err_set(err, EINVAL, "state: must be an object of variables");
    if (json_write(&text, state) < 0)
        return err_set(err, EFBIG, "state: more than %llu bytes, the limit",
                       (unsigned long long)most);
    return 0;
}

int session_run(struct sessions *sessions, const struct run_spec *spec,
                const struct run_events *events, void *data, struct run **ret, struct err *err)
{
    int r = check_state_in(sessions, spec->state, err);
    if (r < 0)
        return r;
    if (!spec->argv && !language_is_python(spec->language) && !language_argv(spec->language))
        return err_set(err, EOPNOTSUPP,
                       "language: %.32s is not known; use python, bash, sh or node",
                       spec->language);
    bool fresh = wants_new_session(spec->session_id);
    const char *id = !fresh ? spec->session_id : spec->plan ? spec->plan->id : NULL;
    enum session_use use = (!spec->argv && language_is_python(spec->language) ? USE_PYTHON : 0) |
                           (spec->transient ? USE_TRANSIENT : 0);
    struct session_ref *session =
        !fresh ? session_find_or_reopen(sessions, spec->owner, id, spec->plan, use, err)
        : id   ? session_find(sessions, spec->owner, id)
               : NULL;
    if (!fresh && !session)
        return -err->code;
    if (session && session->n_runs > sessions->options.max_queue)
        return err_set(err, EBUSY, "the session is busy and %zu runs wait already, the limit",
                       session->n_runs - 1);
    if (!session)
        session = session_make(sessions, spec->owner, spec->plan, use, err);
    if (!session)
        return -err->code;

    struct run *run = run_new(spec, sessions);
    run->session = session;
    run->events = *events;
    run->data = data;
    list_add_tail(&session->runs, &run->link);
    session->n_runs++;
    session->runs_total++;
    *ret = run;
    session_pump(session);
    return 0;
}

void session_warm_up(struct session_ref *session, uint64_t timeout_ms,
                     void (*on_done)(const struct run_result *result, void *data), void *data)
{
    static const char code[] = "print(1)\n1 + 1\n";
    const struct run_spec spec = { .language = "python",
                                   .code = code,
                                   .code_len = sizeof(code) - 1 };
    struct run *run = run_new(&spec, session->sessions);
    run->session = session;
    run->warm_up = true;
    run->timeout_ms = timeout_ms;
    run->events.on_done = on_done;
    run->data = data;
    list_add_tail(&session->runs, &run->link);
    session_pump(session);
}

void run_cancel(struct run *run)
{
    if (run->cancelled || run->timed_out)
        return;
    run->cancelled = true;
    if (run->state == RUN_WAITING)
        run_finish(run, OUTCOME_INTERRUPTED, "interrupted before it began");
    else if (run->state == RUN_RUNNING)
        run_interrupt(run);
}

/* The last that waits before the one that runs, lest it be started. */
static struct run *next_to_cancel(struct sessions *sessions)
{
    list_each (struct session_ref, session, &sessions->all, link) {
        for (struct list *at = session->runs.prev; at != &session->runs; at = at->prev) {
            struct run *run = container_of(at, struct run, link);
            if (!run->cancelled && !run->timed_out)
                return run;
        }
    }
    return NULL;
}

/* From the start each time: the end of a run may end its session. */
void sessions_cancel_runs(struct sessions *sessions)
{
    for (struct run *run; (run = next_to_cancel(sessions));)
        run_cancel(run);
}

void run_forget(struct run *run)
{
    run->events = (struct run_events){ 0 };
    run_cancel(run);
}
