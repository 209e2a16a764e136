/*
 * What the files of session/ share. session.c owns sessions (table, opening, idle clock, end);
 * run.c owns runs (queue, time limits, outcome); output.c gathers what a run wrote, keep.c puts it
 * into files when it is long; language.c knows how to start an interpreter.
 */
#ifndef BELLJAR_SESSION_INTERNAL_H
#define BELLJAR_SESSION_INTERNAL_H

#include "base/buf.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/text.h"
#include "session/session.h"

struct sessions {
    uv_loop_t *loop;
    struct engine *engine;
    struct session_options options;
    struct list all; /* struct session_ref, the longest unused first */
    size_t count;
    struct timer *sweep;
    struct session_stats stats;
    struct session_watch watch;
    void *watch_data;
    size_t rest_bytes; /* of output behind the heads, in all runs together */
};

enum session_state {
    SESSION_OPENING, /* the sandbox is being made, or its agent has not said hello yet */
    SESSION_READY,
    SESSION_ENDED, /* out of the table; waits for its last run to be told */
};

struct session_ref {
    struct sessions *sessions;
    struct list link; /* sessions->all */
    char id[RANDOM_ID_SIZE];
    char *owner;
    enum session_state state;
    struct sandbox_limits limits;
    struct engine_pending *pending;
    struct sandbox *sandbox;
    struct link *agent;
    uint64_t created_ms, last_used_ms;

    struct list runs; /* struct run, in order; the first may be running */
    size_t n_runs, runs_total;
    bool transient;
    struct list openers;             /* session_open() calls that wait */
    struct list infos;               /* session_info() calls that wait */
    uint64_t oom_kills, pids_denied; /* as of the end of the last run */

    struct run *cell;  /* what the kernel is at; NULL: nothing */
    json_t *cell_done; /* its last word, until the output is complete */
    uint64_t cell_number;

    struct keeper *keeper; /* NULL: nothing was kept yet */
};

/*** session.c ***/

/* NULL when there is none of that id and owner. Counts as use. */
struct session_ref *session_find(struct sessions *sessions, const char *owner, const char *id);
/* A new one, being opened; NULL and err when there are too many. */
struct session_ref *session_make(struct sessions *sessions, const char *owner,
                                 const struct sandbox_limits *limits, struct err *err);
/* Ends it now: `why` is what its runs are told. */
void session_end(struct session_ref *session, enum outcome outcome, const char *why);

/*** run.c ***/

/* Starts the next run if there is one and none is running. */
void session_pump(struct session_ref *session);
/* Tells every run of a session that has ended. */
void session_fail_runs(struct session_ref *session, enum outcome outcome, const char *why);

/*** kernel.c ***/

/* Starts the kernel if there is none and gives it the cell. Events go to the functions below. */
struct run;
int kernel_run(struct session_ref *session, struct run *run, const char *code, struct err *err);
/* How much of the beginning of each stream the agent shall send. */
uint64_t run_head_bytes(const struct run *run);
/* From the kernel, to the run that is going on. */
void run_on_output(struct run *run, enum link_stream stream, const char *bytes, size_t len);
void run_on_gap(struct run *run, enum link_stream stream, uint64_t bytes);
void run_on_display(struct run *run, json_t *display, size_t len);               /* takes it */
void run_on_done(struct run *run, json_t *done, const struct link_exit *totals); /* takes it */
void run_on_kernel_lost(struct run *run, const struct link_exit *exit);

/*** output.c ***/

struct output_limits {
    size_t shown;     /* of each stream in the end: half of it head, half of it tail */
    size_t rest;      /* gathered behind the head, for the whole */
    size_t *total;    /* bytes of all such rests … */
    size_t total_max; /* … beyond which only tails are gathered */
};

struct output {
    struct output_limits limits;
    struct output_piece {
        enum link_stream stream;
        struct buf text;
    } * pieces; /* in order of arrival */
    size_t count;
    struct output_rest {
        size_t head_left;
        struct buf text;
        size_t gap_at; /* in `text`: gap_bytes are missing before this byte */
        uint64_t gap_bytes;
    } rests[2]; /* of stdout and stderr, behind the head */
    bool truncated;
};

void output_init(struct output *output, const struct output_limits *limits);
void output_done(struct output *output);
void output_add(struct output *output, enum link_stream stream, const char *bytes, size_t len);
/* A note where `bytes` were left out. */
void output_add_gap(struct output *output, enum link_stream stream, uint64_t bytes);
/* Bytes that all of it takes as JSON. */
size_t output_json_len(const struct output *output);
/* Appends all of a stream, with a note where something is missing: then false. */
bool output_whole(const struct output *output, enum link_stream stream, struct buf *ret);
/* Cuts each stream to what is shown, into `pieces`. Nothing may be added afterwards. */
void output_finish(struct output *output);

/*** keep.c ***/

enum { KEEP_MAX = 2 }; /* files of one run */
struct keep;
/* Takes what was written; to be called before output_finish(). */
struct keep *keep_start(struct session_ref *session, const struct output *output,
                        void (*on_kept)(struct run *run), struct run *run);
/* on_kept follows, perhaps at once, unless keep_free() comes first. */
void keep_write(struct keep *keep);
/* What became of it. NULL is fine here and below. */
void keep_result(const struct keep *keep, struct run_result *ret);
void keep_free(struct keep *keep);
void keeper_free(struct keeper *keeper);

/*** language.c ***/

/* Python, which has a kernel. */
bool language_is_python(const char *language);
/* The argv that runs LINK_CODE_PATH; NULL for a language we do not know. */
const char *const *language_argv(const char *language);

#endif
