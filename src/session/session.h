/*
 * session: sandboxes with a name that clients hold, their queue of runs and their idle clock. Tools
 * and the command line use this; it uses engine.h and agent/link.h.
 *
 *   1. sessions_new()                       over an open engine
 *   2. session_open()                       a fresh sandbox under a new secret id, or a chosen one
 *   3. session_run(), session_read_file() …  queued in order, one at a time (files: beside)
 *   4. session_close(), or the idle clock, or sessions_free()
 *
 * Where files are kept on the disk, a session that has ended, also with another server, is opened again
 * when somebody names it: with its files, but without its variables.
 *
 * Ownership: every look-up names the owner; a session of somebody else is "not found".
 */
#ifndef BELLJAR_SESSION_H
#define BELLJAR_SESSION_H

#include "agent/link.h"
#include "base/json.h"
#include "engine/engine.h"
#include "packages/packages.h"

struct sessions;
struct session_ref; /* a session as clients see it */

/* Characters of an id: of one that a caller chooses, and of a random one. */
enum { SESSION_ID_MAX = 64, SESSION_ID_RANDOM = 22, SESSION_ID_RANDOM_MIN = 16 };
/* What an id may be: 1 to SESSION_ID_MAX letters, digits, '_', '.' or '-'. */
bool session_id_is_valid(const char *id);

/* How much of a Python run is told, and how figures are drawn. 0: as kernel.py has it. */
struct session_python {
    int64_t max_images;
    size_t image_bytes; /* of one; figures are drawn smaller to fit, others left out */
    int64_t result_chars, traceback_frames;
    int64_t figure_dpi;
    double figure_width, figure_height; /* inches; of figures that do not say */
};

/* Files that outlive their session, and the server. */
struct store;
struct session_disk_options {
    struct store *store; /* store.h; taken by sessions_new(). NULL: files end with their session */
    uint64_t max_age_ms; /* unused for longer, they go; not before the session does */
    uint64_t save_timeout_ms; /* for what a run has changed */
};

/* Sessions whose sandboxes outlive the server, where the engine can do that (engine_keeps()). */
struct roster;
struct session_stay_options {
    struct roster *roster; /* roster.h; borrowed. NULL: all end with the server */
    const char *profile;   /* sessions of one profile are not those of another; borrowed */
    /* Whether an owner can be the same with the next server. */
    bool (*comes_back)(const char *owner);
};

struct session_options {
    struct session_disk_options disk;
    struct session_stay_options stay;
    uint64_t idle_timeout_ms;
    size_t max_sessions, max_sessions_per_owner;
    size_t max_queue; /* runs that wait in one session; one more is refused */
    uint64_t run_timeout_ms, run_timeout_max_ms;
    uint64_t busy_poll_us;       /* for which a cell's end is waited for awake; 0: never */
    uint64_t interrupt_grace_ms; /* from SIGINT to SIGKILL */
    uint64_t kill_grace_ms;      /* from there to the end of the sandbox */
    uint64_t output_bytes;       /* kept of each stream, head and tail together */
    uint64_t flood_bytes;
    uint64_t overflow_bytes; /* of each stream kept as a file when it is cut; 0: no files */
    size_t overflow_files;   /* of one session; then the oldest goes */
    size_t overflow_memory;  /* that all runs together may gather for such files */
    uint64_t display_bytes;  /* of all that one run displays */
    struct session_python python_runs;
    bool strip_ansi;               /* tidy.h: escape sequences and progress bars */
    uint64_t state_bytes;          /* of variables that go into a run or come out of it, as JSON */
    struct packages *packages;     /* borrowed; NULL: none can be installed */
    size_t max_package_sets;       /* installs in one session */
    size_t max_installs_per_owner; /* that run or wait */
    const char *python;            /* the interpreter, as sandboxes see it; borrowed */
    /* As in a plan, for every session; borrowed, NULL: none. What a plan says comes on top: variables
     * replace those of the same name, and an import must be allowed by both policies. */
    const json_t *env, *allowed_modules, *blocked_modules;
    struct sandbox_limits limits; /* defaults, and what a caller may lower */

    /* Kernels made ahead of need, for new sessions with the default limits whose first run is
     * Python. There are kernel_pool_size of them; as many as kernel_pool_max while more are asked
     * for than are ready. 0: none. */
    size_t kernel_pool_size, kernel_pool_max;
    bool fork_kernels;     /* the engine has a zygote, or will have one */
    const json_t *preload; /* names of modules that each of them imports by itself, before it is
                            * needed; borrowed, NULL: none */
    bool rehearses; /* each of them tries common cells over data, when it has waited for a moment */
    /* What sandboxes run in, the first unless a plan says otherwise; 0: the host's programs. */
    const char *const *images;
    size_t n_images;
    const char *working_dir;   /* where code begins, as guests see it; NULL, "" : /workspace */
    size_t pool_max_creations; /* at once */
    uint64_t pool_max_age_ms;  /* then one that waits is replaced */
};

struct sessions *sessions_new(uv_loop_t *loop, struct engine *engine,
                              const struct session_options *options);
/* Begins to make kernels ahead; the first run begins it, too. Until then nothing is made, so that a
 * server that is only asked for its tools stays small and answers at once. */
void sessions_make_ahead(struct sessions *sessions);
/* Takes over what earlier servers have left, of what roster_read() says, and takes it out of `notes`. Such a
 * session is there at once; runs wait until its sandbox has been found again. */
void sessions_adopt(struct sessions *sessions, json_t *notes);
/* Destroys every sandbox but those that are left to the next server. NULL is fine. */
void sessions_free(struct sessions *sessions);

/* How a new session is to be; every member may be left out (0, NULL). Copied. */
struct session_plan {
    const char *id; /* caller-chosen: 1-64 of [A-Za-z0-9_.-]; NULL: a new secret */
    const struct sandbox_limits *limits; /* NULL: the defaults */
    const char *image;                   /* one of session_options.images; NULL, "" : the first */
    const json_t *env;                   /* object of strings: added to the guest's environment */
    const json_t *allowed_modules,
        *blocked_modules; /* arrays of strings: import policy of the kernel */
    size_t id_len;        /* of a random id: 0 is the default of 22; 16 for python-interpreter */
};

enum {
    SESSION_ENV_COUNT = 256, /* variables of one plan */
    SESSION_ENV_BYTES = 64 << 10,
    SESSION_ENV_NAME_MAX = 200,
    SESSION_MODULES = 1000, /* names in one list */
    SESSION_MODULE_MAX = 200,
};
/* 0, or -EINVAL and err says which variable or name breaks which rule. NULL is fine. */
int session_check_env(const json_t *env, struct err *err);
int session_check_modules(const json_t *modules, const char *field, struct err *err);

enum outcome {
    OUTCOME_OK,
    OUTCOME_ERROR, /* non-zero exit */
    OUTCOME_TIMEOUT,
    OUTCOME_INTERRUPTED,
    OUTCOME_MEMORY_LIMIT,
    OUTCOME_OUTPUT_LIMIT,
    OUTCOME_PROCESS_LIMIT,
    OUTCOME_DISK_LIMIT,
    OUTCOME_KILLED,
    OUTCOME_KERNEL_DIED,
    OUTCOME_SANDBOX_FAILED,
};
const char *outcome_name(enum outcome outcome);

/* Everything about one finished run. Valid during the callback. */
struct run_result {
    const char *session_id;
    enum outcome outcome;
    const char *error; /* one line for people, NULL when ok */
    bool has_exit_code;
    int exit_code; /* 128 + signal when killed by one */
    double duration_ms, cpu_ms;
    struct run_chunk {
        enum link_stream stream;
        const char *text; /* raw bytes */
        size_t len;
    } * output; /* in order of arrival; cut marks are chunks of their own */
    size_t n_output;
    bool truncated;
    bool session_over; /* it and its files are gone */
    bool
        files_kept; /* … but for those on the disk: as the run before left them, for who names it */
    /* Files of the session that hold what did not fit; see keep_over. */
    const struct run_kept {
        const char *stream; /* "stdout", "stderr" */
        const char *path;   /* below /workspace */
        uint64_t size;
        bool whole; /* false: longer than overflow_bytes, and its middle is missing here, too */
    } * kept;
    size_t n_kept;
    /* Files below /workspace that it made or changed, by path, if they were wanted; Python's are in
     * `done`. At most 4000 files and directories are looked at. What was changed by others in the
     * last milliseconds before the run, a tick of the file system's clock, may be among them. */
    const struct run_file {
        const char *path;
        int64_t size;
        int64_t changed_ns;
    } * files;
    size_t n_files;
    const char *keep_error; /* why there is no such file; NULL: there is, or none was needed */
    const char
        *save_error; /* why the files on the disk are not those of the sandbox; NULL: they are */
    /* Python only; borrowed, NULL otherwise. */
    const json_t *done; /* what the kernel said at the end: result, error, traceback, files … */
    const json_t *displays; /* array of {"data": {mime: text}, "metadata"}; bounded */
    size_t displays_lost;   /* that went beyond that bound */
    bool kernel_lost;       /* variables and imports are gone, files are kept */
    const json_t *state; /* object of the JSON-able variables after the run; NULL unless wanted */
    const json_t *state_skipped; /* array of names that are not JSON-able; NULL with the other */
};

struct run; /* queued or running */
struct run_events {
    /* While it runs; may be NULL. */
    void (*on_output)(enum link_stream stream, const char *bytes, size_t len, void *data);
    /* Once, unless the session's owner is freed before. */
    void (*on_done)(const struct run_result *result, void *data);
};

struct run_spec {
    const char *owner;
    const char *session_id; /* NULL, "" or "0": a new session, after `plan` */
    const char *language;   /* "python", "bash", "sh", "node", "javascript" */
    const char *code;
    size_t code_len;
    const char *const *argv; /* instead of language and code; NULL otherwise */
    const char *input;
    size_t input_len;
    uint64_t timeout_ms; /* 0: the default; more than the maximum is lowered to it */
    bool transient;      /* the session ends with the run */
    bool want_files;     /* tell which files it made or changed */
    size_t keep_over;    /* output that takes more bytes as JSON is also kept as files; 0: never */
    /* Of a new session; NULL: all defaults. With an id that the owner has a session of, that one is
     * used as it is. */
    const struct session_plan *plan;
    const json_t
        *state;      /* Python: an object; each member becomes a variable before the code runs */
    bool want_state; /* Python: tell the variables after the run */
    bool str_value;  /* Python: the last value's text is its str(), not its repr() */
};

/* 0 and a run whose on_done will follow; or negative and err: -ENOENT no such session, -EBUSY queue
 * full, -EAGAIN too many sessions, -EOPNOTSUPP unknown language, -EINVAL a plan or state that
 * cannot be, -EFBIG a state of more than state_bytes. */
int session_run(struct sessions *sessions, const struct run_spec *spec,
                const struct run_events *events, void *data, struct run **ret, struct err *err);
/* Interrupt → grace → kill, as for a timeout; on_done follows (outcome interrupted) with what there
 * is. A run that still waits ends at once. */
void run_cancel(struct run *run);
/* Cancels all there are: for a server that ends, and still wants to say what they printed. */
void sessions_cancel_runs(struct sessions *sessions);
/* on_done will not be called any more; the run is cancelled. */
void run_forget(struct run *run);

/* A session made ahead; plan NULL: all defaults. on_open once: with the id, or NULL and why. Negative
 * and err: -EAGAIN too many sessions, -EEXIST the id is in use, -EINVAL a plan that cannot be. */
typedef void session_open_fn(const char *session_id, const struct err *err, void *data);
int session_open(struct sessions *sessions, const char *owner, const struct session_plan *plan,
                 session_open_fn *on_open, void *data, struct err *err);

/* The same, but a session of that id which the owner has already will do; if it is ready, on_open is
 * called from in here. */
int session_ensure(struct sessions *sessions, const char *owner, const struct session_plan *plan,
                   session_open_fn *on_open, void *data, struct err *err);

/* 0, or -ENOENT, or -EBUSY: another server has it. Ends its runs (on_done, interrupted), deletes its
 * files, on the disk, too. */
int session_close(struct sessions *sessions, const char *owner, const char *session_id);

/* Python packages for a session: importable in its next run. Beside runs, several at once. */
struct install; /* under way */
struct install_result {
    bool ok;
    const char *error;  /* why not, NULL when ok; nothing has changed then */
    const char *output; /* what the installer said */
    size_t output_len;
    double duration_ms;
    bool cached; /* the same packages had been installed before */
};
struct install_events {
    void (*on_output)(const char *bytes, size_t len, void *data); /* may be NULL */
    void (*on_done)(const struct install_result *result, void *data);
};
/* Whether session_install() would take these names: 0, or as below and err. To be asked before a
 * session is made for them. */
int sessions_check_packages(const struct sessions *sessions, const char *const *packages, size_t n,
                            struct err *err);
/* 0, and exactly one on_done follows; or -ENOENT no such session, -EINVAL a bad name or too many,
 * -EAGAIN too many installs, -EOPNOTSUPP not on this server, and err. */
int session_install(struct sessions *sessions, const char *owner, const char *session_id,
                    const char *const *packages, size_t n, const struct install_events *events,
                    void *data, struct install **ret, struct err *err);
/* on_done is called from in here. */
void install_cancel(struct install *install);

struct session_info {
    const char *session_id;
    uint64_t age_ms, idle_left_ms;
    size_t runs_total, runs_waiting;
    bool busy;
    struct sandbox_limits limits;
    struct sandbox_usage usage;
    bool has_usage;
};
typedef void session_info_fn(const struct session_info *info, void *data);
int session_info(struct sessions *sessions, const char *owner, const char *session_id,
                 session_info_fn *on_info, void *data, struct err *err);

/* The agent of a session, for file work; NULL and -ENOENT when there is no such session. Counts as
 * use. A new session is opened by session_open() first. */
int session_link(struct sessions *sessions, const char *owner, const char *session_id,
                 struct link **ret, struct err *err);

/* As session_link(), but no use: the session's idle clock goes on. */
int session_peek(struct sessions *sessions, const char *owner, const char *session_id,
                 struct link **ret, struct err *err);

/* Is there such a session, be it ready or not, or on the disk only? No use of it. */
bool session_is_there(const struct sessions *sessions, const char *owner, const char *session_id);

/* The agent of a session as soon as it can be had: of one that is still being opened, or that has ended
 * and left its files on the disk, when it is open. on_link once, perhaps from in here: with the agent, or
 * NULL and why. Negative and err as session_open(), and -ENOENT. Counts as use. */
typedef void session_link_fn(struct link *agent, const struct err *err, void *data);
int session_reach(struct sessions *sessions, const char *owner, const char *session_id,
                  session_link_fn *on_link, void *data, struct err *err);

/* All files of a session, also of one that is on the disk only, which stays there. `uses`: it counts as
 * use. */
int session_list(struct sessions *sessions, const char *owner, const char *session_id, bool uses,
                 size_t max_entries, link_list_fn *on_list, void *data, struct err *err);

/* A tool has written files: on_saved when they are on the disk too, if they are to be; perhaps from in
 * here. `error` says why they are not. While something runs the end of that run does it. */
typedef void session_saved_fn(const char *error, void *data);
void session_save(struct sessions *sessions, const char *owner, const char *session_id,
                  session_saved_fn *on_saved, void *data);

/* Does something run or wait in it? */
bool session_busy(const struct sessions *sessions, const char *owner, const char *session_id);

/* The ids of an owner's sessions, sorted, with those that are on the disk only. Release with
 * session_ids_done(). */
struct session_ids {
    char **items;
    size_t count;
};
struct session_ids session_ids(const struct sessions *sessions, const char *owner);
void session_ids_done(struct session_ids *ids);

/* Somebody who is told what happens in all sessions; one at the most. */
struct session_watch {
    /* Before the run's own on_done. */
    void (*on_run)(const char *owner, const struct run_result *result, void *data);
    /* It is out of the table, and its files are as good as gone. */
    void (*on_end)(const char *owner, const char *session_id, void *data);
};
void sessions_watch(struct sessions *sessions, const struct session_watch *watch, void *data);

struct session_stats {
    uint64_t sessions_open, sessions_total;
    uint64_t runs_total[OUTCOME_SANDBOX_FAILED + 1]; /* by outcome */
    uint64_t kernels_ready, kernels_making;          /* ahead of need */
    uint64_t kernel_hits,
        kernel_misses; /* new sessions that found one ready, and those that did not */
    uint64_t saves_total, save_failures; /* of files, to the disk */
    uint64_t kernel_rehearsals;          /* that they have ended */
    uint64_t kernel_failures;            /* that could not be made, or ended while they waited */
};
void sessions_stats(const struct sessions *sessions, struct session_stats *ret);

#endif
