#include "tools/file_job.h"

#include <stdlib.h>

struct mcp_call *file_job_end(struct file_job *job)
{
    struct mcp_call *call = job->call;
    free(job->path);
    free(job->content);
    free(job->session_id);
    free(job);
    return call;
}

static void on_session(const char *session_id, const struct err *err, void *data)
{
    struct file_job *job = data;
    struct link *agent;
    struct err why = { 0 };
    if (!session_id) {
        job->ops->fail(job, err->code, err->msg);
        return;
    }
    job->session_id = xstrdup(session_id);
    if (session_link(job->box->sessions, mcp_call_owner(job->call), session_id, &agent, &why) < 0 ||
        job->ops->begin(job, agent, &why) < 0)
        job->ops->fail(job, why.code, why.msg);
}

void file_job_start(struct mcp_call *call, const struct toolbox *box,
                    const struct session_plan *plan, const char *path, const char *content,
                    const struct file_job_ops *ops)
{
    struct file_job *job = xcalloc(1, sizeof(*job));
    struct err err = { 0 };
    *job = (struct file_job){ .call = call,
                              .box = box,
                              .path = xstrdup(path),
                              .content = content ? xstrdup(content) : NULL,
                              .ops = ops };
    mcp_call_defer(call, NULL, NULL); /* file work is short and bounded */
    if (session_ensure(box->sessions, mcp_call_owner(call), plan, on_session, job, &err) < 0)
        ops->fail(job, err.code, err.msg);
}
