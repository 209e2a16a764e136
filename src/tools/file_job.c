#include "tools/file_job.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

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

void file_job_add_text(struct file_job *job, const char *bytes, size_t len, uint64_t size)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    toolbox_add_text(&text, bytes, len);
    auto_free char *shown = buf_steal(&text);
    (void)toolbox_cut(&shown, job->box->max_answer / 4 * 3);
    mcp_call_add(job->call, mcp_text(shown, strlen(shown)));
    if (len < size)
        mcp_call_add(job->call, mcp_textf("[note] only the first %zu of %llu bytes", len,
                                          (unsigned long long)size));
}

char *file_job_absolute(const char *path)
{
    static const char root[] = "/workspace";
    auto_buf whole = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&whole, root);
    if (str_has_prefix(path, root))
        path += strlen(root);
    while (*path) {
        size_t slashes = strspn(path, "/"), len = strcspn(path + slashes, "/");
        if (len && !(len == 1 && path[slashes] == '.'))
            (void)buf_printf(&whole, "/%.*s", (int)len, path + slashes);
        path += slashes + len;
    }
    return buf_steal(&whole);
}
