#include "tools/file_job.h"

#include "base/buf.h"
#include "base/text.h"
#include "tools/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mcp_call *file_job_end(struct file_job *job)
{
    struct mcp_call *call = job->call;
    if (job->not_saved)
        mcp_call_add(call, mcp_textf("[note] %s\n", job->not_saved));
    free(job->not_saved);
    free(job->session_id);
    free(job->wish.made_content);
    free(job);
    return call;
}

/*** The agent's answers ***/

static void on_read(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    struct file_job *job = data;
    if (code)
        job->task->fail(job, code, strerror(code));
    else
        job->task->on_read(job, bytes, len, size);
}

static void on_saved(const char *error, void *data)
{
    struct file_job *job = data;
    job->not_saved = error ? toolbox_not_saved(error) : NULL;
    job->task->on_written(job);
}

static void on_written(int code, void *data)
{
    struct file_job *job = data;
    const char *owner = mcp_call_owner(job->call);
    watch_end_change(job->box->watch, owner, job->session_id);
    if (code)
        job->task->fail(job, code, strerror(code));
    else
        session_save(job->box->sessions, owner, job->session_id, on_saved, job);
}

static void on_listed(int code, const struct link_entry *entries, size_t count, bool more,
                      void *data)
{
    struct file_job *job = data;
    if (code)
        job->task->fail(job, code, strerror(code));
    else if (job->task->on_listed)
        job->task->on_listed(job, entries, count, more);
    else
        job->task->on_found(job);
}

/*** The questions ***/

static int begin_read(struct file_job *job, struct link *agent, struct err *err)
{
    uint64_t most = job->box->max_read;
    if (job->wish.length && job->wish.length < most)
        most = job->wish.length;
    return link_file_read(agent, job->wish.path, job->wish.offset, most, on_read, job, err);
}

static int begin_write(struct file_job *job, struct link *agent, struct err *err)
{
    struct watch *watch = job->box->watch;
    const char *owner = mcp_call_owner(job->call);
    watch_begin_change(watch, owner, job->session_id);
    int r = link_file_write(agent, job->wish.path, job->wish.content, job->wish.content_len,
                            on_written, job, err);
    if (r < 0)
        watch_end_change(watch, owner, job->session_id);
    return r;
}

static int begin(struct file_job *job, struct link *agent, struct err *err)
{
    const struct file_wish *wish = &job->wish;
    if (job->task->on_read)
        return begin_read(job, agent, err);
    if (job->task->on_written)
        return begin_write(job, agent, err);
    if (job->task->on_listed)
        return link_file_list(agent, wish->path, wish->recursive, job->box->max_list, on_listed,
                              job, err);
    return link_file_stat(agent, wish->path, on_listed, job, err);
}

static void on_agent(struct link *agent, const struct err *err, void *data)
{
    struct file_job *job = data;
    struct err why = *err;
    if (!agent || begin(job, agent, &why) < 0)
        job->task->fail(job, 0, why.msg);
}

static void on_session(const char *session_id, const struct err *err, void *data)
{
    struct file_job *job = data;
    struct err why = { 0 };
    if (!session_id) {
        job->task->fail(job, 0, err->msg);
        return;
    }
    job->session_id = xstrdup(session_id);
    if (session_reach(job->box->sessions, mcp_call_owner(job->call), job->session_id, on_agent, job,
                      &why) < 0)
        job->task->fail(job, 0, why.msg);
}

void file_job_start(struct mcp_call *call, const struct toolbox *box, const struct file_task *task,
                    const struct file_wish *wish)
{
    struct file_job *job = xcalloc(1, sizeof(*job));
    struct err err = { 0 };
    *job = (struct file_job){ .call = call, .box = box, .task = task, .wish = *wish };
    mcp_call_defer(call, NULL, NULL); /* file work is short and bounded */
    if (wish->content_len > box->max_write)
        task->fail(job, EFBIG, strerror(EFBIG));
    else if (wish->session_id)
        on_session(wish->session_id, &err, job);
    else if (session_ensure(box->sessions, mcp_call_owner(call), wish->plan, on_session, job,
                            &err) < 0)
        task->fail(job, 0, err.msg);
}

/*** For the answer ***/

size_t file_job_add_text(struct file_job *job, const char *bytes, size_t len)
{
    size_t budget = job->box->max_answer / 4 * 3;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    for (;;) {
        buf_clear(&text);
        if (job->wish.base64)
            (void)base64_add(&text, bytes, len);
        else
            toolbox_add_text(&text, bytes, len);
        size_t cost = toolbox_json_len(buf_str(&text));
        if (cost <= budget)
            break;
        len = (size_t)((double)len * ((double)budget / (double)cost));
    }
    mcp_call_add(job->call, mcp_text(buf_str(&text), text.len));
    return len;
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
