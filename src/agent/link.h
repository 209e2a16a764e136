/*
 * link: the server's end of the stream to an agent. It speaks the frames of frame.h over a socket on
 * the loop, believes nothing of what comes back (lengths, numbers of runs, order, totals are all
 * checked and bounded), and turns it into callbacks.
 *
 *   1. link_new()            takes the socket; on_ready when the agent has said hello
 *   2. link_run()            one run at a time; output as it comes, then its end
 *   3. link_kernel_…()       one process that stays between runs, spoken to in messages
 *   4. link_file_…()         work on files below /workspace, any time, also beside a run
 *   5. link_free()           ends what is open, closes; no callback afterwards
 *      link_retire()         the same, and the socket comes back if nothing was open
 *
 * An agent that was told to (link_keep()) outlives the stream. link_resume() over another one is then the first
 * step; what there was of the kernel goes on with link_kernel_resume().
 *
 * A stream that breaks the protocol is closed: on_broken is called once, everything open ends with
 * an error first. All callbacks come from the loop, or from link_hear().
 */
#ifndef BELLJAR_AGENT_LINK_H
#define BELLJAR_AGENT_LINK_H

#include "base/err.h"

#include <uv.h>

struct link;

struct link_events {
    void (*on_ready)(void *data);
    void (*on_broken)(const char *why, void *data);
};
/* Takes `fd`. */
struct link *link_new(uv_loop_t *loop, int fd, const struct link_events *events, void *data);
/* Looks at once for what has come already, as the hello of an agent that was made ahead has; the loop would do it
 * after another turn. For who has just come from the loop: on_ready may be called. */
void link_hear(struct link *link);
/* To an agent that has stayed: on_ready when all that ran has ended. */
struct link *link_resume(uv_loop_t *loop, int fd, const struct link_events *events, void *data);
/* When the stream ends, the agent stays for up to `keep_ms`, interrupts what runs, and kills it after
 * `grace_ms`. */
void link_keep(struct link *link, uint64_t keep_ms, uint64_t grace_ms);
/* Ends what is open first: runs and the kernel with exit NULL, file work with ECANCELED. NULL is
 * fine. */
void link_free(struct link *link);
/* As link_free(). If the agent is at rest, that is nothing was open that it was asked for and its kernel
 * has ended, the socket is the caller's: no process of the guest's is left, and while the agent can hear
 * nobody it will start none. Else -1. */
int link_retire(struct link *link);
/* Nothing is open but, perhaps, a kernel that is in no cell: nobody waits for a callback. */
bool link_is_calm(const struct link *link);

/* What is said between the two goes out in one piece: the agent wakes up once for it. Nothing is freed and
 * nothing is called back in between. */
void link_hold(struct link *link);
void link_release(struct link *link);

/* What the kernel has counted against the sandbox since its start, by the cgroup that the agent sees;
 * NULL: it sees none. -EBUSY while another asks, -EPIPE when the stream is broken; else one call of
 * on_counts follows, unless the link breaks or is freed before. */
struct link_counts {
    uint64_t oom_kills, pids_denied;
};
typedef void link_counts_fn(const struct link_counts *counts, void *data);
int link_count(struct link *link, link_counts_fn *on_counts, void *data);

/* --- runs ------------------------------------------------------------------------------------- */

enum link_stream { LINK_STDOUT = 1, LINK_STDERR = 2 };

struct link_run_spec {
    const char *const *argv; /* NULL-terminated; argv[0] is searched in the sandbox's PATH */
    const char *const
        *env;         /* "NAME=value" beyond the agent's own list; NULL-terminated, may be NULL */
    const char *cwd;  /* "" : /workspace */
    const char *code; /* written to LINK_CODE_PATH before the start; NULL: none */
    size_t code_len;
    const char *input; /* standard input, whole; NULL: empty */
    size_t input_len;
    uint64_t head_bytes, tail_bytes; /* of each stream that are kept; what is between is dropped */
    uint64_t flood_bytes;            /* of one stream, after which the run is killed */
};
#define LINK_CODE_PATH "/run/belljar/code"

/* How a run ended, as the agent tells it. */
struct link_exit {
    bool signaled;
    int code; /* exit status, or the signal */
    uint64_t wall_ns, cpu_ns;
    uint64_t stdout_bytes, stderr_bytes; /* written in all */
    bool flooded;                        /* killed for flood_bytes */
    bool absent;       /* of a joined kernel: nobody was there; it can be started without */
    char failure[200]; /* "" or why it could not be started */
};

struct link_run_events {
    /* Bytes of one stream, in order. */
    void (*on_output)(enum link_stream stream, const char *bytes, size_t len, void *data);
    /* `bytes` of this stream were dropped between what came before and what comes next. */
    void (*on_gap)(enum link_stream stream, uint64_t bytes, void *data);
    /* Once, last. exit NULL: the stream to the agent broke. */
    void (*on_exit)(const struct link_exit *exit, void *data);
};

/* -EBUSY while another run is going on. Copies what it needs. */
int link_run(struct link *link, const struct link_run_spec *spec,
             const struct link_run_events *events, void *data, struct err *err);
void link_interrupt(struct link *link); /* SIGINT to the run; nothing without one */
void link_kill(struct link *link);      /* SIGKILL to everything the run started */

/* --- the kernel ------------------------------------------------------------------------------- */

/*
 * A program that keeps a language's state: one at a time, beside runs, which leave it and what it has
 * started alone. It is started like a run, with /dev/null as input and a stream socket as descriptor
 * 3. Over that go messages in both directions: u32 length, little endian, then as many bytes of JSON,
 * which neither agent nor link looks at. The kernel marks its last message of a cell in the length, so that
 * the agent ends the cell at once.
 *
 *   1. link_kernel_start()
 *   2. link_kernel_cell()       from here on output counts anew, within these limits
 *   3. link_kernel_send()       what to do; output and messages come as callbacks
 *   4. link_kernel_cell_end()   when a message says that it is done: the rest of the output, then
 *                               on_cell_end. 2 to 4 are repeated
 *   5. link_kernel_kill(), or it ends by itself: on_exit
 *
 * A kernel can also be one that joins: then the agent knows who it is and how it ends, and no more; the link
 * itself has the other ends of channel and pipes.
 *
 * What it wrote before a message comes before that message. What it writes outside of cells, its
 * start included, is kept as far as the last tail_bytes reach and comes first in the next cell, or
 * before on_exit; a gap before it says how much is missing. Beyond the last flood_bytes nothing is
 * read outside of cells, and the writer waits.
 */
#define LINK_KERNEL_PATH "/run/belljar/kernel.py"
enum {
    LINK_KERNEL_SOURCE_MAX = 1024 * 1024,
    LINK_KERNEL_MESSAGE_MAX = 32 * 1024 * 1024,
    LINK_KERNEL_IDLE_MAX = 64 * 1024, /* outside of cells; a longer one is dropped unread */
};

/* What a kernel is spoken to by, of one side; -1: none. `channel` is a socket to the kernel, which it cannot
 * write to; `said` is the pipe for its answers. `unread`, of ours only: the kernel's end of the channel. */
struct link_pipes {
    int channel, said, out, err, unread;
};
#define LINK_PIPES_NONE                                                                            \
    {                                                                                              \
        .channel = -1, .said = -1, .out = -1, .err = -1, .unread = -1                              \
    }
/* -EMFILE also when descriptors are only scarce. */
int link_pipes_open(struct link_pipes *ret_ours, struct link_pipes *ret_theirs, struct err *err);
void link_pipes_close(struct link_pipes *pipes);
/* The same, made ahead while nobody waits for them. */
struct link_stock;
struct link_stock *link_stock_new(uv_loop_t *loop);
void link_stock_free(struct link_stock *stock); /* NULL is fine */
int link_stock_take(struct link_stock *stock, struct link_pipes *ret_ours,
                    struct link_pipes *ret_theirs, struct err *err);

struct link_kernel_spec {
    const char *const *argv; /* as for a run; argv[0] is searched in the sandbox's PATH */
    const char *const *env;  /* as for a run */
    const char *cwd;         /* "" : /workspace */
    const char *source;      /* written to LINK_KERNEL_PATH until the kernel ends; NULL: none */
    size_t source_len;
    /* Our ends, which are taken in any case: somebody comes to be it (engine.h:
     * sandbox_add_kernel), has the others, and has been started already: nothing else is said here
     * then. NULL: the agent starts it. */
    struct link_pipes *joined;
};

struct link_kernel_events {
    /* One whole message, with a NUL behind it; valid during the call, link_free() included. */
    void (*on_message)(const char *json, size_t len, void *data);
    void (*on_output)(enum link_stream stream, const char *bytes, size_t len, void *data);
    void (*on_gap)(enum link_stream stream, uint64_t bytes, void *data);
    /* Once, last. The bytes are those since the last end of a cell, the times those of its whole
     * life. `failure` also tells when it was killed for breaking the rules of messages: one that is
     * empty or longer than LINK_KERNEL_MESSAGE_MAX. exit NULL: the stream to the agent broke. */
    void (*on_exit)(const struct link_exit *exit, void *data);
};

/* -EBUSY while there is one. Copies what it needs. Once it has returned 0 there is a kernel until
 * on_exit, which also tells when it could not be started. */
int link_kernel_start(struct link *link, const struct link_kernel_spec *spec,
                      const struct link_kernel_events *events, void *data, struct err *err);
/* The kernel of an agent that has stayed is ours: as if link_kernel_start() had started it, and this many cells
 * had been. Once, in on_ready. -ENOENT: there is none; -ESRCH: none any more, it ended with the last server. */
int link_kernel_resume(struct link *link, const struct link_kernel_events *events, void *data,
                       uint64_t *ret_cells);
/* Copies. -ENOENT without a kernel, -EMSGSIZE, -ENOBUFS when it does not read what it was sent. */
int link_kernel_send(struct link *link, const char *json, size_t len, struct err *err);
/* Begins a cell; head, tail and flood as for a run, of which the last kills the kernel. -ENOENT, or
 * -EBUSY before on_cell_end of the last. */
int link_kernel_cell(struct link *link, uint64_t head_bytes, uint64_t tail_bytes,
                     uint64_t flood_bytes, struct err *err);
/* All that was written until now, or until the kernel's last message of this cell if called when that comes,
 * comes, then on_cell_end: code 0, bytes since the end of the last cell, times since the beginning of this one. When the kernel ends first there is on_exit only.
 * -ENOENT without a kernel, -EINVAL without a cell, or asked twice. */
typedef void link_cell_fn(const struct link_exit *totals, void *data);
int link_kernel_cell_end(struct link *link, link_cell_fn *on_cell_end, void *data, struct err *err);
/* By which somebody who is to be it comes to the agent. After link_kernel_start(). */
uint32_t link_kernel_number(const struct link *link);
/* Somebody comes to be it, says the engine; or nobody: on_exit follows, with `absent`. Not if it has come after
 * all and has read what it was sent: then it stays, and its work is not done twice. */
void link_kernel_comes(struct link *link);
void link_kernel_absent(struct link *link);
void link_kernel_interrupt(struct link *link); /* SIGINT to the kernel's process alone */
void link_kernel_kill(struct link *link);      /* SIGKILL to it and what it has started */
/* Between link_kernel_start() and on_exit. */
bool link_kernel_alive(const struct link *link);

/* --- files ------------------------------------------------------------------------------------ */

/* Paths are relative to /workspace, or absolute inside it. errno values in `code`: ENOENT, EISDIR,
 * ENOTDIR, EXDEV (leads outside), EFBIG, ENOSPC, EACCES, EINVAL (not a regular file), ETIMEDOUT …;
 * 0: done. */
typedef void link_done_fn(int code, void *data);
typedef void link_data_fn(int code, const char *bytes, size_t len, uint64_t size, void *data);

enum link_file_type { LINK_FILE, LINK_DIRECTORY, LINK_SYMLINK, LINK_OTHER };
struct link_entry {
    const char *name; /* raw bytes, relative to the listed directory */
    enum link_file_type type;
    uint64_t size;
    int64_t mtime_ns, ctime_ns; /* the second: of any change; nobody can set it */
    uint32_t mode;
};
typedef void link_list_fn(int code, const struct link_entry *entries, size_t count, bool more,
                          void *data);

/* At most `max` bytes from `offset`; size is that of the whole file. */
int link_file_read(struct link *link, const char *path, uint64_t offset, uint64_t max,
                   link_data_fn *on_data, void *data, struct err *err);
/* Atomic: the old content or the new. Makes parents. */
int link_file_write(struct link *link, const char *path, const char *bytes, size_t len,
                    link_done_fn *on_done, void *data, struct err *err);
/* One directory, or all below it; sorted by name; `more` when the limit cut it. */
int link_file_list(struct link *link, const char *path, bool recursive, size_t max_entries,
                   link_list_fn *on_list, void *data, struct err *err);
/* A list of the one entry. */
int link_file_stat(struct link *link, const char *path, link_list_fn *on_list, void *data,
                   struct err *err);
int link_file_delete(struct link *link, const char *path, bool recursive, link_done_fn *on_done,
                     void *data, struct err *err);
int link_file_move(struct link *link, const char *from, const char *to, link_done_fn *on_done,
                   void *data, struct err *err);
/* Many files in one piece of work; `content` as frame.h has it for FILE_PACK and FILE_UNPACK. What is
 * packed comes as bytes, at most `max`, and is not looked at here. */
int link_file_pack(struct link *link, const char *content, size_t len, uint64_t max,
                   link_data_fn *on_data, void *data, struct err *err);
int link_file_unpack(struct link *link, const char *content, size_t len, link_done_fn *on_done,
                     void *data, struct err *err);
/* Free bytes and inodes of /workspace: size = bytes free, len = inodes free (bytes NULL). */
int link_file_space(struct link *link, link_data_fn *on_data, void *data, struct err *err);

#endif
