/*
 * file_job: a call that works on a file of a session. The session comes first: the one that is named, also
 * if it is on the disk only, or one that is made for it; then its agent is asked. What was written is saved, if
 * it is to be. What was done goes to the task's function, whatever goes wrong to its `fail`, in the tool's own
 * words.
 */
#ifndef BELLJAR_TOOLS_FILE_JOB_H
#define BELLJAR_TOOLS_FILE_JOB_H

#include "tools/toolbox.h"

enum { FILE_JOB_PATH_MAX = 4096 };

/* What a call wants. Borrowed from its arguments, which live as long as the call. */
struct file_wish {
    const char *session_id;          /* NULL: see plan */
    const struct session_plan *plan; /* as of session_ensure(); NULL: a new session */
    const char *path;
    const char *content; /* to be written; more than the server takes fails with EFBIG */
    size_t content_len;
    char *made_content;      /* what content points to if it is no argument; the job frees it */
    uint64_t offset, length; /* of what is read; length 0: as much as the server's limit allows */
    bool base64;             /* what is read is shown so */
    bool recursive;          /* list all below the path */
};

struct file_job {
    struct mcp_call *call;
    const struct toolbox *box;
    const struct file_task *task;
    struct file_wish wish;
    char *session_id; /* NULL until it is there */
    char *not_saved;  /* what was written is not on the disk, in a sentence; NULL: it is */
};

/* Which of the functions there is says what is to be done. They end with file_job_end(). */
struct file_task {
    const char *name; /* for `fail` */
    /* `code` is the errno value that the agent answered with; 0: it was not asked, `why` says why. */
    void (*fail)(struct file_job *job, int code, const char *why);
    void (*on_read)(struct file_job *job, const char *bytes, size_t len, uint64_t size);
    void (*on_written)(struct file_job *job);
    void (*on_listed)(struct file_job *job, const struct link_entry *entries, size_t count,
                      bool more);
    void (*on_found)(struct file_job *job); /* the path leads to something in /workspace */
};

void file_job_start(struct mcp_call *call, const struct toolbox *box, const struct file_task *task,
                    const struct file_wish *wish);
/* Says if something was not saved, frees the job and returns the call, which the caller then finishes. */
struct mcp_call *file_job_end(struct file_job *job);

/* Adds what was read to the answer: as much from the beginning as fits into it, however much of that
 * needs escaping. Returns how many bytes that are. */
size_t file_job_add_text(struct file_job *job, const char *bytes, size_t len);

/* The whole path of one that the agent has accepted. Owned by the caller. */
char *file_job_absolute(const char *path);

#endif
