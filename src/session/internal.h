/*
 * What the files of session/ share. session.c owns sessions (table, opening, idle clock, end);
 * pool.c owns those that are made ahead of need; run.c owns runs (queue, time limits, outcome);
 * plan.c knows what guests are given; gather.c takes what a run writes, output.c shows it, keep.c puts
 * it into files when it is long; language.c knows how to start an interpreter; kernel.c speaks to
 * Python's; adopt.c takes over what an earlier server has left; disk.c brings a session's files to the disk and back, where store.c keeps them.
 */
#ifndef BELLJAR_SESSION_INTERNAL_H
#define BELLJAR_SESSION_INTERNAL_H

#include "base/buf.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/text.h"
#include "session/session.h"
#include "session/store.h"
#include "session/tidy.h"

struct sessions {
    uv_loop_t *loop;
    struct engine *engine;
    struct session_options options;
    struct list all; /* struct session_ref, the longest unused first */
    size_t count;
    size_t n_opening;     /* of those, not ready yet */
    struct list *buckets; /* the same by owner and id */
    size_t n_buckets;     /* a power of two */
    uint64_t hash_seed;
    struct pool *pool;
    struct disk *disk; /* NULL: files end with their session */
    struct timer *sweep;
    struct look *look;        /* for the ends of cells */
    struct link_stock *stock; /* for kernels that join */
    struct session_stats stats;
    struct session_watch watch;
    void *watch_data;
    unsigned processors; /* that there are */
    bool leaving;        /* the server ends, and what can stay does */
    size_t rest_bytes;   /* of output behind the heads, in all runs together */
};

enum session_state {
    SESSION_OPENING, /* the sandbox is being made, or its agent has not said hello yet */
    SESSION_READY,
    SESSION_ENDED, /* out of the table; waits for its last run to be told */
};

struct session_packages {
    struct list installs; /* struct install */
    struct held_set {
        struct package_set *set;
    } * sets; /* in the order in which they came */
    size_t n_sets;
    struct install *of_cell; /* what the cell that runs waits for */
};

/* Which files a run changed: a part of it, and then of its session. See changes.c. */
struct changes {
    int64_t since_ns;
    struct loaded {
        int64_t coarse_ns, fine_ns; /* by the clock of changes.c, and by one without ticks */
    } loaded;                       /* when files had come from the disk */
    struct run_file *files;
    size_t count;
    const struct changes *before; /* those of the last run that was looked at */
    void (*on_seen)(struct run *run);
    struct run *run;
};

/* Of a session that is nobody's yet; pool.c says what these are. */
enum ahead { AHEAD_MAKING, AHEAD_BARE, AHEAD_READY };

/* By what the options of cells can differ in one session. */
enum told_options { OPTIONS_TOLD = 1, OPTIONS_STR = 2, OPTIONS_ON_DISK = 4 };

struct session_ref {
    struct sessions *sessions;
    struct list link;   /* sessions->all, or a list of the pool */
    struct list bucket; /* sessions->buckets */
    char id[SESSION_ID_MAX + 1];
    char *owner; /* NULL: made ahead, and nobody's yet */
    enum session_state state;
    unsigned holds; /* frames on the stack that will look at it again */
    struct sandbox_limits limits;
    size_t image;          /* of session_options.images */
    char **env;            /* "NAME=value" for what runs, ends with NULL */
    json_t *kernel_config; /* members of its "configure" message */
    bool configured;       /* the kernel has got them */
    struct engine_pending *pending;
    struct sandbox *sandbox;
    struct link *agent;
    uint64_t created_ms, last_used_ms;

    struct list runs; /* struct run, in order; the first may be running */
    size_t n_runs, runs_total;
    bool transient;
    enum ahead ahead;                /* made ahead: how far it is */
    bool only_forked;                /* made ahead: no use with a kernel that has to be started */
    bool rehearsed;                  /* made ahead: it has, or need not */
    struct list openers;             /* session_open() calls that wait */
    struct list infos;               /* session_info() calls that wait */
    uint64_t oom_kills, pids_denied; /* as of the end of the last run */
    bool counting;                   /* these are being read, and the next run waits */
    sandbox_usage_fn *on_counts;     /* who wants them from the agent */
    void *on_counts_data;

    struct run *cell;      /* what the kernel is at, or is being started for; NULL: nothing */
    bool adding;           /* sandbox_add_kernel() has not answered yet, or is asked again soon */
    uint32_t added_number; /* of the kernel that it was asked for, */
    int add_code;          /* and 0, or that there is none to be had */
    struct timer *again;
    bool joined;     /* the kernel was put there by the engine, not started */
    uint64_t cpu_ns; /* that it has told of, all in all */
    struct look_pace pace;
    unsigned told_options; /* enum told_options: those that the kernel has from its last cell */
    json_t *cell_done;     /* its last word, until the output is complete */
    uint64_t cell_number;

    struct session_packages packages;
    struct keeper *keeper; /* NULL: nothing was kept yet */
    struct changes told;   /* of the last run that was looked at */

    char *note_name;   /* in the roster; NULL: it ends with the server */
    uint64_t noted_ms; /* when the note last told of a use */

    bool on_disk;                    /* its files outlive it */
    bool loading;                    /* they are on their way into its sandbox */
    bool reopened;                   /* they have come, and no run has been told of it yet */
    struct loaded loaded;            /* when they had come */
    bool retiring;                   /* it ends when its files are saved */
    bool removes;                    /* it takes them with it */
    bool leaves_files;               /* it has ended, and they are on the disk */
    struct stored *stored;           /* NULL: it has left none on the disk yet */
    bool saved;                      /* it had these files when they were last saved … */
    uint64_t saved_look;             /* … as disk.c sees at a glance */
    struct transfer *transfer;       /* to the disk or back, under way */
    struct list savers, next_savers; /* struct saver: who waits for that, and for the one after */
};

/*** session.c ***/

/* NULL when there is none of that id and owner. Counts as use. */
struct session_ref *session_find(struct sessions *sessions, const char *owner, const char *id);
/* What a new one is for. */
enum session_use {
    USE_PYTHON = 1 << 0,    /* first of all */
    USE_TRANSIENT = 1 << 1, /* nothing of it is kept on the disk */
};
/* A new one, being opened or from the pool; NULL and err when there are too many, or the plan cannot
 * be. */
struct session_ref *session_make(struct sessions *sessions, const char *owner,
                                 const struct session_plan *plan, enum session_use use,
                                 struct err *err);
/* As session_find(); one that is on the disk only is opened again, after `plan` but for its id. NULL and
 * err: -ENOENT, or as session_make(). */
struct session_ref *session_find_or_reopen(struct sessions *sessions, const char *owner,
                                           const char *id, const struct session_plan *plan,
                                           enum session_use use, struct err *err);
/* One that is nobody's, being opened: neither in the table nor counted. The plan has been checked. */
struct session_ref *session_begin(struct sessions *sessions, const struct session_plan *plan);
/* The same without a sandbox. */
struct session_ref *session_new(struct sessions *sessions, const struct session_plan *plan);
/* Of one that nobody has seen: as if it had never been. */
void session_drop(struct session_ref *session);
/* An agent is there, and is to be heard. `resumes`: it has had another server. */
void session_connect(struct session_ref *session, struct sandbox *sandbox, bool resumes);
/* Into the table with one that an earlier server had. */
void session_readmit(struct session_ref *session, const char *owner, const char *id,
                     struct stored *stored, uint64_t last_used_ms);
bool session_is_open(const struct sessions *sessions, const char *owner, const char *id);
bool sessions_have_room(const struct sessions *sessions, const char *owner);
/* Its files are there: whoever waits for it goes on. */
void session_opened(struct session_ref *session);
/* Used now: the idle clock begins anew. */
void session_touch(struct session_ref *session);
/* Ends it now: `why` is what its runs are told. */
void session_end(struct session_ref *session, enum outcome outcome, const char *why);
/* The last step of that: its sandbox goes. */
void session_bury(struct session_ref *session);
/* Between these it may end, but its memory stays. */
void session_hold(struct session_ref *session);
void session_release(struct session_ref *session);

/*** adopt.c ***/

/* Of one that is ready, with its files: from here on it outlives the server, if it may. */
void session_stay(struct session_ref *session);
/* The same for one that has done so before. */
void session_stay_on(struct session_ref *session);
/* Something has changed that the next server has to know; and: it is being used. */
void session_note(struct session_ref *session);
void session_note_used(struct session_ref *session);
/* It ends; `stays`: with this server only. */
void session_note_done(struct session_ref *session, bool stays);

/*** pool.c ***/

/* NULL when the options want none, which all of these take. Idle until pool_start(). */
struct pool *pool_new(struct sessions *sessions);
void pool_start(struct pool *pool);
/* One whose Python is ready, or will be sooner than a new one's; it has left the pool. NULL: none. */
struct session_ref *pool_take(struct pool *pool);
/* Something has changed that it may have waited for. */
void pool_pump(struct pool *pool);
/* A session that is nobody's ends. */
void pool_lost(struct pool *pool, struct session_ref *session);
/* A session that is nobody's and only wants a forked kernel cannot get one now. */
void pool_on_no_fork(struct session_ref *session);
/* The kernel of a session that is nobody's has ended between cells. */
void pool_on_kernel_lost(struct session_ref *session);
/* It has imported what there was to import; it has rehearsed. */
void pool_on_preloaded(struct session_ref *session);
void pool_on_rehearsed(struct session_ref *session);
/* Whether one that has ended keeps its sandbox for a moment, while others come for theirs: then the pool ends
 * it by session_bury(). */
bool pool_holds_back(struct pool *pool, struct session_ref *session);
void pool_free(struct pool *pool);

/*** plan.c ***/

/* What its sandbox runs in; NULL: the host's programs. */
const char *session_image(const struct session_ref *session);
/* Which of session_options.images, of one that has been checked. */
size_t plan_image(const struct sessions *sessions, const struct session_plan *plan);
/* 0, or -EINVAL and err. */
int plan_check(const struct sessions *sessions, const struct session_plan *plan, struct err *err);
/* Fills in env and kernel_config, in place of those that are there. */
void plan_take(struct session_ref *session, const struct session_plan *plan);
/* The same from what another server had: takes a copy of its kernel_config. */
void plan_take_again(struct session_ref *session, const json_t *kernel_config);
void plan_done(struct session_ref *session);

/*** run.c ***/

/* Queues a cell that leaves no trace: it starts the kernel and tries it. It counts nowhere.
 * on_done as for a run; the session may have ended, or have got an owner, by then. */
void session_warm_up(struct session_ref *session, uint64_t timeout_ms,
                     void (*on_done)(const struct run_result *result, void *data), void *data);
/* Starts the next run if there is one and none is running. */
void session_pump(struct session_ref *session);
/* Reads the counters; no run begins before they are there. */
void session_count(struct session_ref *session);
/* Tells every run of a session that has ended. */
void session_fail_runs(struct session_ref *session, enum outcome outcome, const char *why);

/*** kernel.c ***/

struct run;
struct cell {
    const char *code;
    const json_t *state; /* variables to set before; NULL: none */
    bool want_state;
    bool str_value;
    bool forget; /* leave no trace of it */
};
/* Gives the cell to the kernel, which is put there or started if there is none. Events go to the
 * functions below. */
int kernel_run(struct session_ref *session, struct run *run, const struct cell *cell,
               struct err *err);
/* Goes on with the one that an earlier server had, if it is there. */
void kernel_resume(struct session_ref *session);
/* Has a kernel that nobody uses import the modules of the list; pool_on_preloaded() follows. A cell
 * would wait until then. */
int kernel_preload(struct session_ref *session, struct err *err);
/* Has a kernel that nobody uses try common cells; pool_on_rehearsed() follows. */
int kernel_rehearse(struct session_ref *session, struct err *err);
/* Somebody has come for a session that was nobody's: its kernel waits for no zygote. */
void kernel_hurry(struct session_ref *session);
/* Whether a zygote could have made its kernel. */
bool kernel_may_be_forked(const struct session_ref *session);
/* How much of the beginning of each stream the agent shall send. */
uint64_t run_head_bytes(const struct run *run);
/* From the kernel, to the run that is going on. */
void run_on_output(struct run *run, enum link_stream stream, const char *bytes, size_t len);
void run_on_gap(struct run *run, enum link_stream stream, uint64_t bytes);
void run_on_display(struct run *run, json_t *display, size_t len);               /* takes it */
void run_on_done(struct run *run, json_t *done, const struct link_exit *totals); /* takes it */
void run_on_kernel_lost(struct run *run, const struct link_exit *exit);
void run_cell(const struct run *run, struct cell *ret); /* valid as long as the run */
bool run_is_stopping(const struct run *run); /* interrupted while its kernel was being started */

/* A run's clock stands still while the server works for it. */
void run_pause(struct run *run);
void run_resume(struct run *run);

/*** install.c ***/

void session_packages_init(struct session_ref *session);
/* Ends installs, whose owners are told why, and lets go of what was installed. */
void session_packages_done(struct session_ref *session, const char *why);
bool session_is_installing(const struct session_ref *session);
/* What it has got, for the next server; a new reference. And there: false, some of it is gone. */
json_t *session_package_sets(const struct session_ref *session);
bool session_take_packages(struct session_ref *session, const json_t *sets);
int session_install_in(struct session_ref *session, const char *const *packages, size_t n,
                       const struct install_events *events, void *data, struct install **ret,
                       struct err *err);
/* The kernel asks, for the cell that runs; and that cell does not wait any more. */
void session_install_for_cell(struct session_ref *session, const json_t *message);
void session_cell_gone(struct session_ref *session);
/* What Python is to look for modules in, the latest first; a new reference. */
json_t *session_package_paths(const struct session_ref *session);
/* "PYTHONPATH=…", owned by the caller: the packages, then what the session's environment says; NULL:
 * there are no packages. */
char *session_python_path(const struct session_ref *session);

/*** output.c ***/

/* What is shown of a run, in order of arrival. */
struct output {
    struct output_piece {
        enum link_stream stream;
        struct buf text;
    } * pieces;
    size_t count;
    size_t bytes, max_bytes;
    bool truncated;
    struct output_line { /* of each stream, where it is tidied */
        struct output *output;
        enum link_stream stream;
        struct tidy tidy;
        size_t piece, offset; /* where the current line begins; it may go on in later pieces */
    } lines[2];
    bool tidies;
};

/* `tidies`: as a terminal would show it, see tidy.h; otherwise as it came. It may not be moved. */
void output_init(struct output *output, size_t max_bytes, bool tidies);
void output_done(struct output *output);
void output_add(struct output *output, enum link_stream stream, const char *bytes, size_t len);
/* A note where `bytes` were left out. */
void output_add_gap(struct output *output, enum link_stream stream, uint64_t bytes);
/* No more comes: afterwards no piece is empty, and no two of one stream follow each other. */
void output_end(struct output *output);
/* Bytes that all of it takes as JSON. */
size_t output_json_len(const struct output *output);

/*** gather.c ***/

struct gather_limits {
    size_t shown;     /* of each stream: half of it head, half of it tail */
    bool keeps;       /* gather_whole() will be asked for */
    size_t rest;      /* gathered behind the head */
    size_t *total;    /* bytes of all such rests … */
    size_t total_max; /* … beyond which only tails are gathered */
};

struct gather {
    struct output *output;
    struct gather_limits limits;
    struct gathered {
        size_t head_left;
        struct buf head, rest;
        size_t gap_at; /* in `rest`: gap_bytes are missing before this byte */
        uint64_t gap_bytes;
    } streams[2]; /* stdout and stderr */
    bool cut;     /* more was written than is shown */
    bool finished;
};

void gather_init(struct gather *gather, struct output *output, const struct gather_limits *limits);
void gather_done(struct gather *gather);
void gather_add(struct gather *gather, enum link_stream stream, const char *bytes, size_t len);
/* The agent left out `bytes`. */
void gather_add_gap(struct gather *gather, enum link_stream stream, uint64_t bytes);
/* No more comes: the tails are shown, and the output ends. The second time nothing happens. */
void gather_finish(struct gather *gather);
/* Appends all of a stream, with a note where something is missing: then false. */
bool gather_whole(const struct gather *gather, enum link_stream stream, struct buf *ret);

/*** keep.c ***/

enum { KEEP_MAX = 2 }; /* files of one run */
struct keep;
struct keep *keep_start(struct session_ref *session, const struct gather *gather,
                        void (*on_kept)(struct run *run), struct run *run);
/* on_kept follows, perhaps at once, unless keep_free() comes first. */
void keep_write(struct keep *keep);
/* What became of it. NULL is fine here and below. */
void keep_result(const struct keep *keep, struct run_result *ret);
void keep_free(struct keep *keep);
/* How many runs have had something to keep; and one that goes on there. */
uint64_t keeper_number(const struct keeper *keeper);
struct keeper *keeper_new(uint64_t number);
void keeper_free(struct keeper *keeper);

/*** changes.c ***/

/* What `since_ns` of a run that begins now is to be, and `loaded` of files that have come just now. */
int64_t changes_clock_ns(void);
struct loaded changes_loaded(void);
/* on_seen follows, unless the session ends first. Negative: it does not. */
int changes_look(struct changes *changes, struct link *agent, const struct changes *before,
                 void (*on_seen)(struct run *run), struct run *run);
void changes_done(struct changes *changes);

/*** disk.c ***/

struct disk *disk_new(uv_loop_t *loop, const struct session_disk_options *options,
                      uint64_t idle_timeout_ms);
void disk_free(struct disk *disk);                 /* after the sessions; NULL is fine */
struct store *disk_store(const struct disk *disk); /* NULL without a disk */
/* A session that was idle for too long takes its files with it. */
bool disk_ends_with_session(const struct disk *disk);
/* Begins to remove what is to be removed. */
void disk_clean(struct disk *disk);
/* Brings what session->stored holds into the sandbox of a session that is ready, then calls
 * session_opened(); or ends the session. */
void disk_load(struct session_ref *session);
/* `error` NULL: all that the session has is on the disk, or nothing is to be there. Perhaps from in
 * here. No run of the session begins meanwhile. */
void disk_save(struct session_ref *session, session_saved_fn *on_saved, void *data);
/* The session ends, and its files with it if asked; savers are told. */
void disk_end(struct session_ref *session, bool removes);
/* Files of a session that is on the disk only. */
int disk_list(struct disk *disk, const char *owner, const char *id, link_list_fn *on_list,
              void *data, struct err *err);

/*** language.c ***/

/* Python, which has a kernel. */
bool language_is_python(const char *language);
/* The argv that runs LINK_CODE_PATH; NULL for a language we do not know. */
const char *const *language_argv(const char *language);
/* A variable for the environment of a shell that is to go on where the last one ended, if its code
 * begins with the prefix; NULL for other languages. */
const char *language_shell_rc(const char *language);
extern const char language_shell_prefix[];

#endif
