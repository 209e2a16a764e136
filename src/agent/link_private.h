/*
 * link_private: what the files of the server's end share. link.c moves frames and knows when the
 * stream is broken; link_run.c and link_file.c hold what is open and judge what comes for it.
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
};

/* One output stream of the run, as far as it has come. */
struct link_capture {
    uint64_t before, gap, after; /* bytes before the gap, in it, behind it */
};

struct link_run_state {
    bool active;
    uint32_t number; /* of this run or the last */
    struct link_run_events events;
    void *data;
    uint64_t head_bytes, tail_bytes;
    struct link_capture out, err;
    char *input; /* what the agent has not asked for yet is behind input_sent */
    size_t input_len, input_sent;
    bool input_asked; /* one chunk may be sent */
    uint64_t start_ns;
};

struct link_stream_handle; /* the socket on the loop; outlives the link until closed */

struct link {
    uv_loop_t *loop;
    struct link_events events;
    void *data;
    struct link_stream_handle *stream; /* NULL: broken */
    struct buf in;
    struct timer *patience;
    bool ready;
    unsigned depth; /* callbacks of ours on the stack */
    bool freed;     /* by one of them: release when depth is back at 0 */

    struct link_run_state run;
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
/* Ends all that is open, then tells the owner, once. Only below a callback of the loop. */
void link_break(struct link *link, const char *why);

/*** link_run.c ***/

/* Each returns NULL, or how the agent broke the rules. */
const char *link_run_take(struct link *link, const struct frame *frame);
void link_run_broken(struct link *link);

/*** link_file.c ***/

const char *link_file_take(struct link *link, const struct frame *frame);
void link_file_broken(struct link *link, int code);
/* Some piece of work has been waiting longer than LINK_PATIENCE_MS. */
bool link_file_overdue(const struct link *link);

#endif
