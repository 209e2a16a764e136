/*
 * file_job: a call that works on a file of a session which is made if it is not there yet. The session
 * comes first, then the profile's `begin` asks its agent; whatever goes wrong ends in `fail`.
 */
#ifndef BELLJAR_TOOLS_FILE_JOB_H
#define BELLJAR_TOOLS_FILE_JOB_H

#include "tools/toolbox.h"

enum { FILE_JOB_PATH_MAX = 4096 };

struct file_job {
    struct mcp_call *call;
    const struct toolbox *box;
    char *path;
    char *content; /* to be written; NULL: nothing */
    char *session_id;
    const struct file_job_ops {
        int (*begin)(struct file_job *job, struct link *agent, struct err *err);
        /* In the profile's own words; ends with file_job_end(). `code` is an errno value. */
        void (*fail)(struct file_job *job, int code, const char *why);
    } * ops;
};

void file_job_start(struct mcp_call *call, const struct toolbox *box,
                    const struct session_plan *plan, const char *path, const char *content,
                    const struct file_job_ops *ops);
/* Frees it and returns the call, which the caller then finishes. */
struct mcp_call *file_job_end(struct file_job *job);

/* Adds what was read of a file of `size` bytes to the answer, as text. */
void file_job_add_text(struct file_job *job, const char *bytes, size_t len, uint64_t size);

/* The whole path of one that the agent has accepted. Owned by the caller. */
char *file_job_absolute(const char *path);

#endif
