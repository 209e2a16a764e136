/*
 * file: work on files below the workspace. Each piece is done by a short-lived worker, a fork of the
 * agent that has become the guest (worker.h), so that it can reach nothing a guest could not, and a
 * file system that hangs or a guest that plays tricks stops the worker only. This is the agent's side:
 * it starts workers, passes bytes on in both directions, and gives up on them after FRAME_FILE_MS.
 */
#ifndef BELLJAR_AGENT_FILE_H
#define BELLJAR_AGENT_FILE_H

#include "agent/config.h"
#include "agent/feed.h"
#include "agent/wire.h"

enum {
    FILE_SLOTS = FRAME_FILES_MAX,
    FILE_DYING = 64, /* workers that have answered and are not reaped yet */
};

enum file_state { FILE_FREE, FILE_WAITING, FILE_WORKING, FILE_ANSWERED };

struct file {
    enum file_state state;
    uint32_t number;
    pid_t pid; /* 0: none, or reaped */
    int fd;    /* from the worker; -1: ended */
    short ready;
    uint64_t deadline_ns;
    int why;      /* errno for a worker that dies without a word */
    bool said_it; /* the end frame has come from the worker */
    struct frame_file_end end;
    struct feed content; /* to the worker */
    struct frame_file request;
    char paths[2 * FRAME_PATH_MAX];
    size_t in_len;
    char in[FRAME_MAX];
};

struct files {
    const struct config *config;
    struct wire *wire;
    uint32_t last_number;
    pid_t dying[FILE_DYING];
    size_t n_dying;
    struct file slots[FILE_SLOTS];
};

void files_init(struct files *files, const struct config *config, struct wire *wire);

/* Frames from the server. 0, or -EPROTO. */
int files_request(struct files *files, uint32_t number, const struct frame_file *request);
int files_put(struct files *files, uint32_t number, const char *bytes, size_t len);

/* True when the process was a worker. */
bool files_reaped(struct files *files, pid_t pid);
/* A worker is under way. */
bool files_working(const struct files *files);
/* They are being killed with a run: who asked hears EAGAIN. */
void files_cut(struct files *files);

void files_poll(struct files *files, struct pollset *set);
/* `may_start`: false while a run is being ended. */
void files_step(struct files *files, bool may_start);

#endif
