/*
 * link_private: what the files of the server's end share. link.c moves frames and knows when the
 * stream is broken; link_run.c, link_kernel.c and link_file.c hold what is open and judge what comes
 * for it. link_direct.c has what comes from a kernel without the agent.
 */
#ifndef BELLJAR_AGENT_LINK_PRIVATE_H
#define BELLJAR_AGENT_LINK_PRIVATE_H

#include "agent/frame.h"
#include "agent/link.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/loop.h"

enum {
    LINK_IN_MAX = 2 * FRAME_MAX,
    LINK_PATIENCE_MS = 15000, /* for a hello, and for file work, which the agent ends after 5 s */
    LINK_FILES_QUEUE = 1024,  /* that wait; one more is refused */
    LINK_FILE_TRIES = 4,      /* of work that the end of a run cuts off */

    /* What a kernel may write before its first cell: the end of it is kept, beyond the flood it
     * waits. */
    LINK_KERNEL_KEPT = 64 * 1024,
    LINK_KERNEL_FLOOD = 16 * 1024 * 1024,
    LINK_KERNEL_QUEUE = 2 * LINK_KERNEL_MESSAGE_MAX, /* bytes on the way to it */
};

/* One output stream of the run, as far as it has come. */
struct link_capture {
    uint64_t before, gap, after; /* bytes before the gap, in it, behind it */
};

struct link_run_state {
    bool active;
    uint32_t number;
    struct link_run_events events;
    void *data;
    uint64_t head_bytes, tail_bytes;
    struct link_capture out, err;
    char *input; /* what the agent has not asked for yet is behind input_sent */
    size_t input_len, input_sent;
    bool input_asked; /* one chunk may be sent */
    uint64_t start_ns;
};

/* One output stream of the kernel since the last end of a cell. */
struct link_kernel_output {
    uint64_t bytes, dropped;
    unsigned gaps; /* one for what was kept, one in the cell */
};

struct link_kernel_state {
    bool active;
    uint32_t number;
    struct link_kernel_events events;
    void *data;
    struct link_direct *direct; /* NULL: all goes through the agent */
    bool given_up;              /* nobody will come to be it */
    bool spoke;                 /* it has said or printed something */
    char broken[100];           /* "" or how it broke the rules; it is being killed for that */
    uint64_t start_ns;

    struct buf talk; /* messages to it; sent up to talk_at */
    size_t talk_at;
    bool talk_asked; /* one chunk may be sent */
    struct buf said; /* length and bytes of a message from it, not whole yet */
    bool said_last;  /* with its latest message the cell ends */
    size_t unheard;  /* bytes of it that are still to come and nobody wants */

    bool in_cell, cell_ends; /* its end has been asked for */
    link_cell_fn *on_cell_end;
    void *cell_data;
    uint64_t cell_start_ns;
    uint64_t kept_bytes, head_bytes, tail_bytes; /* of each stream that may come */
    struct link_kernel_output out, err;
};

struct link_stream_handle; /* the socket on the loop; outlives the link until closed */

struct link {
    uv_loop_t *loop;
    struct link_events events;
    void *data;
    struct link_stream_handle *stream; /* NULL: broken */
    struct buf in;
    bool holding;
    struct buf held; /* while `holding`: to be written */
    struct timer *patience;
    bool greeted, ready;     /* the agent has said hello; and may be spoken to */
    bool resumes;            /* it has had another server before */
    struct frame_idle found; /* what that one has left */
    unsigned depth;          /* callbacks of ours on the stack */
    bool freed;              /* by one of them: release when depth is back at 0 */

    link_counts_fn *on_counts; /* NULL: nobody has asked */
    void *counts_data;
    uint64_t count_ms; /* when */

    uint32_t program_number; /* the last of a run or kernel */
    struct link_run_state run;
    struct link_kernel_state kernel;
    struct list files;         /* struct link_file, sent */
    struct list files_waiting; /* not sent yet */
    size_t n_files, n_waiting;
    uint32_t file_number;
};

/*** link.c ***/

/* Frames collected and written together. */
void link_add_frame(struct buf *out, uint8_t type, uint32_t number, const void *payload,
                    size_t len);
/* A payload of any length in as many frames as it takes. */
void link_add_frames(struct buf *out, uint8_t type, uint32_t number, const char *bytes, size_t len);
/* Takes the bytes. */
void link_write(struct link *link, struct buf *out);
/* Whatever comes from the loop stands between these: callbacks may free the link, which then lives until
 * the last of them has returned. */
void link_enter(struct link *link);
void link_leave(struct link *link);
/* Ends all that is open, then tells the owner, once. Only below a callback of the loop. */
void link_break(struct link *link, const char *why);

/*** link_run.c ***/

/* Puts arguments, environment and directory into `args`, and their numbers into *ret. */
int link_collect_args(const char *const *argv, const char *const *env, const char *cwd,
                      struct buf *args, struct frame_run *ret, struct err *err);
/* Announces a program and starts it, with a frame of this type. */
void link_add_program(struct buf *out, uint8_t type, uint32_t number, const struct frame_run *frame,
                      const struct buf *args, const char *code);
/* Moves what a tail may not hold from its end to the head. */
void link_fit_tail(uint64_t *head_bytes, uint64_t *tail_bytes);
/* What the agent said of an end, as far as it can be true. */
void link_read_exit(const struct frame_exit *said, uint64_t start_ns, struct link_exit *ret);

/* Each returns NULL, or how the agent broke the rules. */
const char *link_run_take(struct link *link, const struct frame *frame);
void link_run_broken(struct link *link);

/*** link_kernel.c ***/

const char *link_kernel_take(struct link *link, const struct frame *frame);
void link_kernel_broken(struct link *link);
/* It has broken the rules, in these words: kills it. */
void link_kernel_break(struct link *link, const char *how);
/* All that was to be said to it has been. */
void link_kernel_sent(struct link *link);

/*** link_direct.c ***/

/* For a kernel that is active but for this. Takes the descriptors, also when it fails. */
int link_direct_begin(struct link *link, const struct link_pipes *ours, struct err *err);
/* NULL is fine. */
void link_direct_free(struct link *link);
/* What waits in kernel.talk. */
void link_direct_send(struct link *link);
void link_direct_cell(struct link *link, const struct frame_cell *limits);
void link_direct_cell_end(struct link *link);
/* What it was sent is taken back. False: it has read it. */
bool link_direct_take_back(struct link *link);
/* It has come: what it is sent is its own. */
void link_direct_comes(struct link *link);
/* It is being killed: nothing is read before it is dead. */
void link_direct_stop(struct link *link);
/* It is dead: takes what is left, and puts bytes and flood into *ret. False: it is nobody's any more. */
bool link_direct_finish(struct link *link, struct frame_exit *ret);

/*** link_file.c ***/

const char *link_file_take(struct link *link, const struct frame *frame);
void link_file_broken(struct link *link, int code);
/* Some piece of work has been waiting longer than LINK_PATIENCE_MS. */
bool link_file_overdue(const struct link *link);

#endif
