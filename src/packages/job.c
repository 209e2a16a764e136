/*
 * One install, from a sandbox to a set on the shelf:
 *
 *   WAITING ─▶ sandbox ─▶ agent ─▶ installer.py ─▶ pieces of its result, unpacked by a worker ─▶
 *   published by a worker ─▶ shown to guests ─▶ told
 *
 * Whatever fails on the way (or the clock, or the last who waits leaves), the sandbox is destroyed and
 * what was unpacked is removed. A worker that is at it then is waited for first: it holds the job.
 */
#include "packages/private.h"

#include "agent/link.h"
#include "base/log.h"
#include "packages/requirement.h"
#include "packages/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 1 << 20,
    OUTPUT_KEPT = 16 << 10,
    OUTPUT_BYTES = 1 << 20, /* of each stream that the agent passes on */
    FLOOD_BYTES = 64 << 20,
    NETWORK_FILE_MAX = 64 << 10,
    REASON_BYTES = 400, /* of the installer's last lines in an error */
};
static const uint64_t MIB = 1 << 20;

/*** The end ***/

static void job_free(struct package_job *job)
{
    struct packages *packages = job->packages;
    list_remove(&job->link);
    requirements_free(job->requirements, job->n_requirements);
    timer_free(job->clock);
    timer_free(job->settle);
    buf_done(&job->output);
    buf_done(&job->spec);
    buf_done(&job->piece);
    package_set_release(job->set);
    free(job);
    packages_unref(packages);
}

/* Everything but what the worker uses. */
static void let_go(struct package_job *job)
{
    if (job->pending)
        engine_start_cancel(job->pending);
    engine_show_cancel(job->showing);
    link_free(job->agent);
    sandbox_destroy(job->sandbox);
    job->pending = NULL;
    job->showing = NULL;
    job->agent = NULL;
    job->sandbox = NULL;
    timer_stop(job->clock);
}

static void discard_work(uv_work_t *work)
{
    struct package_job *job = work->data;
    unpack_done(&job->unpack);
    shelf_discard(&job->packages->shelf, &job->stage);
}

static void after_discard(uv_work_t *work, int status)
{
    (void)status;
    job_free(work->data);
}

static void discard(struct package_job *job)
{
    if (job->stage.dir < 0) {
        job_free(job);
        return;
    }
    if (uv_queue_work(job->packages->loop, &job->work, discard_work, after_discard) < 0) {
        discard_work(&job->work);
        job_free(job);
    }
}

static void on_settle(void *data)
{
    struct package_job *job = data;
    let_go(job);
    packages_job_over(job);
    discard(job);
}

static void end(struct package_job *job)
{
    if (job->over)
        return;
    job->over = true;
    timer_start(job->settle, 0);
}

static void fail(struct package_job *job)
{
    if (job->over)
        return;
    log_info("installing packages: %s", job->failure.msg);
    end(job);
}

void job_abort(struct package_job *job)
{
    struct packages *packages = job->packages;
    list_remove(&job->link);
    packages->n_jobs--;
    packages->n_running -= job->running;
    job->over = true;
    timer_stop(job->settle);
    let_go(job);
    if (!job->working) /* else its worker's end does it */
        discard(job);
}

/* Nobody waits any more, or the clock has struck, while a worker was at it. */
static bool was_abandoned(struct package_job *job)
{
    job->working = false;
    if (!job->over)
        return false;
    if (timer_active(job->settle))
        return true; /* on_settle() goes on */
    fd_closep(&job->hold);
    job->hold = -1;
    discard(job);
    return true;
}

/*** Unpacking ***/

static void fetch(struct package_job *job);

static void unpack_work(uv_work_t *work)
{
    struct package_job *job = work->data;
    (void)unpack_feed(&job->unpack, job->piece.data, job->piece.len, &job->failure);
}

static void publish_work(uv_work_t *work)
{
    struct package_job *job = work->data;
    const struct packages *packages = job->packages;
    if (unpack_end(&job->unpack, &job->failure) < 0)
        return;
    unpack_done(&job->unpack);
    job->hold =
        shelf_publish(&packages->shelf, &job->stage, job->name, job->unpack.bytes, &job->failure);
    shelf_trim(&packages->shelf, packages->options.cache_bytes);
}

static void on_shown(const char *path, const struct err *err, void *data)
{
    struct package_job *job = data;
    job->showing = NULL;
    if (path) {
        package_set_shown_at(job->set, path);
        end(job);
        return;
    }
    package_set_release(steal_ptr(&job->set));
    job->failure = *err;
    (void)err_wrap(&job->failure, "nothing was installed");
    fail(job);
}

/* The clock goes on: it is the engine's limit, too, and strikes first. */
static void show(struct package_job *job)
{
    struct packages *packages = job->packages;
    job->showing = engine_show_packages(packages->guests, job->name, packages->options.timeout_ms,
                                        on_shown, job);
    if (job->showing)
        return;
    package_set_shown_at(job->set, NULL);
    end(job);
}

static void after_publish(uv_work_t *work, int status)
{
    struct package_job *job = work->data;
    (void)status;
    if (was_abandoned(job))
        return;
    if (job->hold < 0) {
        fail(job);
        return;
    }
    job->set = package_set_new(job->packages, job->name, job->hold);
    job->hold = -1;
    show(job);
}

static void after_unpack(uv_work_t *work, int status)
{
    struct package_job *job = work->data;
    (void)status;
    if (was_abandoned(job))
        return;
    if (job->failure.code)
        fail(job);
    else
        fetch(job);
}

static void begin_work(struct package_job *job, uv_work_cb work, uv_after_work_cb after)
{
    job->working = true;
    int r = uv_queue_work(job->packages->loop, &job->work, work, after);
    if (r < 0) {
        job->working = false;
        (void)err_set(&job->failure, -r, "no worker: %s", uv_strerror(r));
        fail(job);
    }
}

static void on_piece(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    struct package_job *job = data;
    if (job->over)
        return;
    if (code || (len == 0 && job->offset < size)) {
        (void)err_sys(&job->failure, code ? code : EIO, "fetch the packages");
        fail(job);
        return;
    }
    if (len == 0) {
        begin_work(job, publish_work, after_publish);
        return;
    }
    buf_clear(&job->piece);
    (void)buf_add(&job->piece, bytes, len); /* as many as were asked for, at most */
    job->offset += len;
    begin_work(job, unpack_work, after_unpack);
}

static void fetch(struct package_job *job)
{
    if (link_file_read(job->agent, "result", job->offset, PIECE, on_piece, job, &job->failure) < 0)
        fail(job);
}

/*** The installer ***/

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    struct package_job *job = data;
    (void)stream;
    (void)buf_add(&job->output, bytes, len); /* no ceiling, but cut here */
    if (job->output.len > 2 * OUTPUT_KEPT)
        buf_drop(&job->output, job->output.len - OUTPUT_KEPT);
    list_each (struct package_wait, wait, &job->waits, link)
        if (wait->events.on_output)
            wait->events.on_output(bytes, len, wait->data);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    (void)stream, (void)bytes, (void)data; /* of an installer's chatter the end is enough */
}

/* The installer's own last words; it knows best. */
static void fail_with_output(struct package_job *job)
{
    const char *text = buf_str(&job->output);
    size_t len = job->output.len;
    while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
        len--;
    size_t from = len > REASON_BYTES ? len - REASON_BYTES : 0;
    while (from && from < len && text[from - 1] != '\n')
        from++;
    if (from == len && len) /* one endless line */
        from = len > REASON_BYTES ? len - REASON_BYTES : 0;
    auto_buf clean = BUF_INIT(BUF_NO_CEILING);
    (void)utf8_add_clean(&clean, text + from, len - from);
    (void)err_set(&job->failure, EIO, "nothing was installed: %s",
                  clean.len ? clean.data : "the installer failed without a word");
    fail(job);
}

static void on_exit_frame(const struct link_exit *exit, void *data)
{
    struct package_job *job = data;
    if (!exit || job->over)
        return;
    if (exit->failure[0]) {
        const char *image = job->packages->options.image;
        (void)err_set(&job->failure, EIO,
                      "nothing was installed: the installer could not be started%s%s: %s",
                      *image ? " in the image " : "", image, exit->failure);
        fail(job);
    } else if (exit->signaled) {
        (void)err_set(&job->failure, ENOMEM,
                      "nothing was installed: the installer was killed by signal %d (its memory is "
                      "bounded by package_max_bytes)",
                      exit->code);
        fail(job);
    } else if (exit->code) {
        fail_with_output(job);
    } else if (shelf_stage(&job->packages->shelf, &job->stage, &job->failure) < 0) {
        fail(job);
    } else {
        const struct packages_options *options = &job->packages->options;
        unpack_init(&job->unpack, job->stage.dir, options->max_bytes, options->max_files);
        fetch(job);
    }
}

/* As it is now: a laptop moves between networks. Nothing, where it cannot be read. */
static json_t *network_file(const char *path)
{
    auto_buf text = BUF_INIT(NETWORK_FILE_MAX);
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *room = buf_room(&text, NETWORK_FILE_MAX);
    ssize_t n = fd < 0 ? 0 : read(fd, room, NETWORK_FILE_MAX);
    if (n > 0)
        buf_added(&text, (size_t)n);
    return json_text_value(buf_str(&text), text.len);
}

static void write_spec(struct package_job *job)
{
    static const char *const installers[] = { "auto", "uv", "pip" };
    const struct packages_options *options = &job->packages->options;
    auto_json *spec = json_object();
    json_t *requirements = json_array(), *hosts = json_array(), *files = json_object();
    for (size_t i = 0; i < job->n_requirements; i++)
        json_push(requirements, json_string(job->requirements[i]));
    for (size_t i = 0; i < options->n_trusted_hosts; i++)
        json_push(hosts, json_string(options->trusted_hosts[i]));
    json_put(files, "resolv.conf", network_file("/etc/resolv.conf"));
    json_put(files, "hosts", network_file("/etc/hosts"));
    auto_free char *place = xasprintf(ENGINE_PACKAGES "/%s", job->name);
    json_put(spec, "requirements", requirements);
    json_put(spec, "trusted_hosts", hosts);
    json_put(spec, "files", files);
    json_put_str(spec, "installer", installers[options->installer]);
    json_put_str(spec, "index", options->index);
    json_put_str(spec, "wheels", *options->wheels ? ENGINE_WHEELS : "");
    json_put_str(spec, "place", place);
    auto_free char *image = xasprintf("the image %s", options->image);
    json_put_str(spec, "home", *options->image ? image : "the runtime");
    json_put(spec, "certificates",
             json_text_value(options->certificates, strlen(options->certificates)));
    json_put(spec, "allow_source", json_boolean(options->allow_source));
    json_put(spec, "max_bytes", json_integer((json_int_t)options->max_bytes));
    json_put(spec, "max_files", json_integer((json_int_t)options->max_files));
    (void)json_write(&job->spec, spec);
}

static void on_ready(void *data)
{
    struct package_job *job = data;
    const struct packages_options *options = &job->packages->options;
    static const struct link_run_events events = { .on_output = on_output,
                                                   .on_gap = on_gap,
                                                   .on_exit = on_exit_frame };
    write_spec(job);
    const char *const argv[] = { options->python, "-I", LINK_CODE_PATH, NULL };
    const struct link_run_spec spec = {
        .argv = argv,
        .env = options->env,
        .cwd = "",
        .code = installer_source,
        .code_len = installer_source_len,
        .input = job->spec.data,
        .input_len = job->spec.len,
        .head_bytes = OUTPUT_BYTES,
        .tail_bytes = OUTPUT_BYTES,
        .flood_bytes = FLOOD_BYTES,
    };
    if (link_run(job->agent, &spec, &events, job, &job->failure) < 0)
        fail(job);
}

static void on_broken(const char *why, void *data)
{
    struct package_job *job = data;
    if (job->working)
        return; /* the words are the worker's now; the next piece will be missed */
    (void)err_set(&job->failure, EIO, "the installer's sandbox ended: %s", why);
    fail(job);
}

static void on_started(struct sandbox *sandbox, const struct err *err, void *data)
{
    struct package_job *job = data;
    static const struct link_events events = { .on_ready = on_ready, .on_broken = on_broken };
    job->pending = NULL;
    if (!sandbox) {
        job->failure = *err;
        fail(job);
        return;
    }
    job->sandbox = sandbox;
    job->agent = link_new(job->packages->loop, sandbox_take_fd(sandbox), &events, job);
}

static void on_clock(void *data)
{
    struct package_job *job = data;
    if (job->over)
        return;
    if (job->working) { /* it may be about to fail by itself, and owns the words */
        timer_start(job->clock, 100);
        return;
    }
    (void)err_set(&job->failure, ETIMEDOUT,
                  "nothing was installed: it took longer than %llu s, the limit (package_timeout)",
                  (unsigned long long)job->packages->options.timeout_ms / 1000);
    fail(job);
}

/*** The beginning ***/

struct package_job *job_new(struct packages *packages, const char *name, char **requirements,
                            size_t n)
{
    struct package_job *job = xcalloc(1, sizeof(*job));
    list_init(&job->waits);
    job->packages = packages;
    packages->users++;
    packages->n_jobs++;
    (void)snprintf(job->name, sizeof(job->name), "%s", name);
    job->requirements = requirements;
    job->n_requirements = n;
    job->clock = timer_new(packages->loop, on_clock, job);
    job->settle = timer_new(packages->loop, on_settle, job);
    job->output = job->spec = job->piece = BUF_INIT(BUF_NO_CEILING);
    job->stage.dir = -1;
    job->unpack.file = -1;
    job->hold = -1;
    job->work.data = job;
    list_add_tail(&packages->jobs, &job->link);
    return job;
}

/* Room for what is downloaded and what is unpacked, both in memory; and for the programs. */
static struct sandbox_plan installer_plan(const struct packages_options *options)
{
    uint64_t room = 2 * options->max_bytes + 64 * MIB;
    return (struct sandbox_plan){ .limits = {
                                      .memory_bytes = room + 512 * MIB,
                                      .pids = 256,
                                      .cpu_millis = 2000,
                                      .nofile = 4096,
                                      .file_bytes = room,
                                      .workspace_bytes = room,
                                      .workspace_inodes = 2 * options->max_files + 10000,
                                      .tmp_bytes = MIB,
                                      .tmp_inodes = 100,
                                      .shm_bytes = MIB,
                                  } };
}

void job_start(struct package_job *job)
{
    struct packages *packages = job->packages;
    const struct sandbox_plan plan = installer_plan(&packages->options);
    job->running = true;
    packages->n_running++;
    timer_start(job->clock, packages->options.timeout_ms);
    job->pending = engine_start(packages->installers, &plan, on_started, job);
}
