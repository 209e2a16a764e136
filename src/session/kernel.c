/*
 * The Python kernel of a session, from the server's side: its messages are JSON that the guest may
 * have forged, so they are read with bounds and believed only as far as they concern the guest's
 * own run. A kernel that says nonsense is killed; the next cell gets a fresh one.
 */
#include "session/internal.h"

#include "base/log.h"
#include "kernel/source.h"

#include <errno.h>
#include <string.h>

enum {
    AGAIN_MS = 100, /* how often one that can wait asks for a kernel */
    /* Of the time for which we look for the end of a cell, a kernel looks for the next: there is no cell in
     * between. Longer looks would take processors from other kernels, and from us. */
    LOOK_SHARE = 4,
    ONE_CORE = 1000, /* cpu_millis: with less, a look would be taken from its cells */
};

static const struct json_limits message_limits = { .depth = 64, .digits = 512, .nodes = 200000 };

/* Processor time, of a kernel of which the agent sees nothing: its own word about all that it has used, which
 * cannot be more than there was. */
static uint64_t told_cpu_ns(struct session_ref *session, uint64_t wall_ns)
{
    const json_t *told = json_object_get(session->cell_done, "cpu_ns");
    json_int_t value = json_integer_value(told);
    uint64_t now = value > 0 ? (uint64_t)value : 0;
    uint64_t used = now > session->cpu_ns ? now - session->cpu_ns : 0;
    uint64_t most = wall_ns * session->sessions->processors;
    session->cpu_ns = now;
    return used < most ? used : most;
}

static void end_cell(const struct link_exit *totals, void *data)
{
    struct session_ref *session = data;
    struct run *run = steal_ptr(&session->cell);
    struct link_exit seen = *totals;
    look_answered(session->sessions->look, &session->pace);
    if (session->joined)
        seen.cpu_ns = told_cpu_ns(session, seen.wall_ns);
    if (run)
        run_on_done(run, steal_ptr(&session->cell_done), &seen);
}

/* The kernel's word is about the cell that is going on, and about no other. */
static bool is_current(const struct session_ref *session, const json_t *message)
{
    const json_t *id = json_object_get(message, "id");
    return session->cell && !session->cell_done && json_is_integer(id) &&
           json_integer_value(id) == (json_int_t)session->cell_number;
}

static void on_message(const char *text, size_t len, void *data)
{
    struct session_ref *session = data;
    struct err err = { 0 };
    auto_json *message = NULL;
    if (session->owner && !session->cell)
        return; /* late, or forged: not worth reading */
    if (json_read(text, len, &message_limits, &message, &err) < 0 || !json_is_object(message)) {
        log_debug("session %.6s…: the kernel sent no message: %s", session->id, err.msg);
        link_kernel_kill(session->agent);
        return;
    }
    const char *op = json_str(message, "op");
    if (str_eq(op, "error")) { /* it did not understand us: our fault, but its end */
        log_warning("session %.6s…: the kernel refused a message: %s", session->id,
                    json_str(message, "message"));
        link_kernel_kill(session->agent);
        return;
    }
    if (str_eq(op, "preloaded") && !session->owner)
        pool_on_preloaded(session);
    if (str_eq(op, "rehearsed") && !session->owner)
        pool_on_rehearsed(session);
    if (!is_current(session, message))
        return; /* late, or forged */
    if (str_eq(op, "display")) {
        run_on_display(session->cell, steal_ptr(&message), len);
    } else if (str_eq(op, "install")) {
        session_install_for_cell(session, message);
    } else if (str_eq(op, "done")) {
        session->cell_done = steal_ptr(&message);
        if (link_kernel_cell_end(session->agent, end_cell, session, &err) < 0)
            link_kernel_kill(session->agent);
    }
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    struct session_ref *session = data;
    if (session->cell)
        run_on_output(session->cell, stream, bytes, len);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    struct session_ref *session = data;
    if (session->cell)
        run_on_gap(session->cell, stream, bytes);
}

static void begin(struct session_ref *session, bool joined);
static void begin_without(struct session_ref *session);

static void on_exit_frame(const struct link_exit *exit, void *data)
{
    struct session_ref *session = data;
    if (!exit)
        return; /* the session ends, and tells its runs */
    if (exit->absent && session->joined && session->cell) {
        begin_without(session);
        return;
    }
    look_answered(session->sessions->look, &session->pace);
    json_decref(session->cell_done);
    session->cell_done = NULL;
    struct run *run = steal_ptr(&session->cell);
    if (run)
        run_on_kernel_lost(run, exit);
    else if (!session->owner)
        pool_on_kernel_lost(session);
}

static int send_message(struct session_ref *session, const json_t *message, struct err *err)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    (void)json_write(&text, message);
    return link_kernel_send(session->agent, text.data, text.len, err);
}

/* What is the session's own about its kernel, if anything. Before the first cell, and once; of a kernel made
 * ahead once more if its session has wishes. */
static int configure(struct session_ref *session, struct err *err)
{
    const char *directory = session->sessions->options.working_dir;
    bool elsewhere = directory && *directory;
    session->configured = true;
    if (!elsewhere && json_object_size(json_object_get(session->kernel_config, "env")) == 0 &&
        json_array_size(json_object_get(session->kernel_config, "policies")) == 0)
        return 0; /* as a kernel is from the beginning */
    auto_json *message = json_object();
    json_put_str(message, "op", "configure");
    json_put(message, "id", json_integer(0));
    (void)json_object_update(message, session->kernel_config);
    if (elsewhere)
        json_put_str(message, "cwd", directory);
    return send_message(session, message, err);
}

int kernel_preload(struct session_ref *session, struct err *err)
{
    auto_json *message = json_object();
    json_put_str(message, "op", "preload");
    json_put(message, "id", json_integer(0));
    json_put(message, "modules", json_incref((json_t *)session->sessions->options.preload));
    return send_message(session, message, err);
}

int kernel_rehearse(struct session_ref *session, struct err *err)
{
    auto_json *message = json_object();
    json_put_str(message, "op", "rehearse");
    json_put(message, "id", json_integer(0));
    return send_message(session, message, err);
}

/* What an interpreter and its libraries look at once, at their start: then it has to be a new one. */
static bool wants_new_interpreter(const struct session_ref *session)
{
    static const char *const prefixes[] = { "PYTHON", "LD_",  "MPL",      "LANG",
                                            "LC_",    "OMP_", "MKL_",     "OPENBLAS_",
                                            "GLIBC_", "TCL",  "NUMEXPR_", "IPYTHON" };
    for (char **word = session->env; *word; word++)
        for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
            if (str_has_prefix(*word, prefixes[i]))
                return true;
    return false;
}

bool kernel_may_be_forked(const struct session_ref *session)
{
    return session->sessions->options.fork_kernels && !wants_new_interpreter(session);
}

static const struct link_kernel_events kernel_events = {
    .on_message = on_message, .on_output = on_output, .on_gap = on_gap, .on_exit = on_exit_frame
};

/* One that has not been given a cell may not have got its configuration either. */
void kernel_resume(struct session_ref *session)
{
    int r = link_kernel_resume(session->agent, &kernel_events, session, &session->cell_number);
    session->configured = r == 0 && session->cell_number > 0;
    session->reopened = r == -ESRCH;
}

static void on_added(int code, void *data);

static int have_kernel(struct session_ref *session, const struct link_kernel_spec *spec,
                       struct err *err)
{
    session->joined = spec->joined;
    session->configured = false;
    session->told_options = 0;
    session->cpu_ns = 0;
    return link_kernel_start(session->agent, spec, &kernel_events, session, err);
}

static int start_kernel(struct session_ref *session, struct err *err)
{
    const char *const argv[] = { session->sessions->options.python, "-u", LINK_KERNEL_PATH, NULL };
    static const char *const always[] = { KERNEL_ENVIRONMENT };
    const char *env[ARRAY_SIZE(always) + 2 * SESSION_ENV_COUNT + 1] = { KERNEL_ENVIRONMENT };
    for (size_t i = 0; session->env[i]; i++)
        env[ARRAY_SIZE(always) + i] = session->env[i];
    const struct link_kernel_spec spec = { .argv = argv,
                                           .env = env,
                                           .cwd = "",
                                           .source = kernel_source,
                                           .source_len = kernel_source_len };
    return have_kernel(session, &spec, err);
}

/* The engine is asked before the agent hears of it: a process takes longer to come. */
static int start_joined(struct session_ref *session, struct err *err)
{
    struct link_pipes ours, theirs;
    if (link_stock_take(session->sessions->stock, &ours, &theirs, err) < 0)
        return start_kernel(session, err); /* descriptors are scarce, and the agent has its own */
    const struct link_kernel_spec spec = { .joined = &ours };
    int r = have_kernel(session, &spec, err);
    if (r < 0) {
        link_pipes_close(&theirs);
        return r;
    }
    session->adding = true;
    session->added_number = link_kernel_number(session->agent);
    session->add_code = 0;
    sandbox_add_kernel(session->sandbox, session->added_number, &theirs, on_added, session);
    return 0;
}

static void put_count(json_t *wanted, const char *key, uint64_t value)
{
    if (value)
        json_put(wanted, key, json_integer((json_int_t)value));
}

static void put_python(json_t *wanted, const struct session_python *python)
{
    put_count(wanted, "max_images", (uint64_t)python->max_images);
    put_count(wanted, "max_image_bytes", python->image_bytes);
    put_count(wanted, "max_repr", (uint64_t)python->result_chars);
    put_count(wanted, "max_frames", (uint64_t)python->traceback_frames);
    put_count(wanted, "figure_dpi", (uint64_t)python->figure_dpi);
    if (python->figure_width > 0 && python->figure_height > 0)
        json_put(wanted, "figure_size",
                 json_pack("[ff]", python->figure_width, python->figure_height));
}

static json_t *cell_options(const struct session_ref *session, const struct cell *cell)
{
    const struct session_options *options = &session->sessions->options;
    json_t *wanted = json_object();
    put_python(wanted, &options->python_runs);
    if (session->limits.cpu_millis >= ONE_CORE)
        put_count(wanted, "look_us", options->busy_poll_us / LOOK_SHARE);
    json_put(wanted, "strip", json_boolean(options->strip_ansi));
    json_put(wanted, "max_state", json_integer((json_int_t)options->state_bytes));
    json_put_str(wanted, "plain", cell->str_value ? "str" : "repr");
    if (session->on_disk)
        json_put(wanted, "mapped", json_true()); /* what has changed is known by its time */
    return wanted;
}

/* Those of most cells are those of the last, and that is how a kernel takes none. */
static void put_options(json_t *request, struct session_ref *session, const struct cell *cell)
{
    unsigned told = OPTIONS_TOLD | (cell->str_value ? OPTIONS_STR : 0) |
                    (session->on_disk ? OPTIONS_ON_DISK : 0);
    if (told != session->told_options)
        json_put(request, "options", cell_options(session, cell));
    session->told_options = told;
}

static int send_cell(struct session_ref *session, const struct cell *cell, struct err *err)
{
    const struct session_options *options = &session->sessions->options;
    int r = session->configured ? 0 : configure(session, err);
    if (r == 0)
        r = link_kernel_cell(session->agent, run_head_bytes(session->cell),
                             options->output_bytes / 2, options->flood_bytes, err);
    if (r < 0)
        return r;
    auto_json *request = json_object();
    json_put_str(request, "op", "execute");
    json_put(request, "id", json_integer((json_int_t)++session->cell_number));
    json_put_str(request, "code", cell->code);
    put_options(request, session, cell);
    if (session->packages.n_sets)
        json_put(request, "paths", session_package_paths(session));
    if (cell->state)
        json_put(request, "state", json_incref((json_t *)cell->state));
    if (cell->forget)
        json_put(request, "forget", json_true());
    if (cell->want_state)
        json_put(request, "want_state", json_true());
    look_ask(session->sessions->look, &session->pace);
    return send_message(session, request, err);
}

/* What is said goes out in one piece. */
static int start_and_send(struct session_ref *session, bool joined, const struct cell *cell,
                          struct err *err)
{
    link_hold(session->agent);
    int r = link_kernel_alive(session->agent) ? 0
            : joined                          ? start_joined(session, err)
                                              : start_kernel(session, err);
    if (r == 0)
        r = send_cell(session, cell, err);
    link_release(session->agent);
    return r;
}

static void begin(struct session_ref *session, bool joined)
{
    struct err err = { 0 };
    struct cell cell;
    run_cell(session->cell, &cell);
    if (start_and_send(session, joined, &cell, &err) < 0)
        session_end(session, OUTCOME_SANDBOX_FAILED, err.msg);
    else if (run_is_stopping(session->cell))
        link_kernel_interrupt(session->agent);
}

static void try_again(void *data)
{
    struct session_ref *session = data;
    session->adding = false;
    if (session->cell && session->agent) /* else its run has been given up meanwhile */
        begin(session, /* joined= */ true);
}

/* Nobody has come to be the kernel. */
static void begin_without(struct session_ref *session)
{
    if (session->add_code == -EAGAIN && !session->owner) {
        /* Made ahead: it can wait for what is worth more. */
        if (!session->again)
            session->again = timer_new(session->sessions->loop, try_again, session);
        session->adding = true;
        timer_start(session->again, AGAIN_MS);
    } else if (session->add_code < 0 && session->only_forked && !session->owner) {
        pool_on_no_fork(session);
    } else {
        begin(session, /* joined= */ false);
    }
}

void kernel_hurry(struct session_ref *session)
{
    if (!session->again || !timer_active(session->again))
        return;
    timer_stop(session->again);
    try_again(session);
}

static void on_added(int code, void *data)
{
    struct session_ref *session = data;
    session->adding = false;
    bool alive = session->agent && link_kernel_alive(session->agent);
    if (!alive && session->agent &&
        session->cell) { /* it has gone already, and another is wanted */
        begin(session, /* joined= */ true);
    } else if (alive && link_kernel_number(session->agent) == session->added_number) {
        session->add_code = code;
        if (code < 0)
            link_kernel_absent(session->agent); /* on_exit_frame() follows, unless it has come */
        else
            link_kernel_comes(session->agent);
    }
}

int kernel_run(struct session_ref *session, struct run *run, const struct cell *cell,
               struct err *err)
{
    session->cell = run;
    if (session->adding && !link_kernel_alive(session->agent))
        return 0; /* of the last one nobody has told yet */
    return start_and_send(session, kernel_may_be_forked(session), cell, err);
}
