#include "agent/run.h"
#include "agent/clock.h"
#include "agent/guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char code_name[] = "code"; /* in AGENT_RUN_DIR: LINK_CODE_PATH */

void run_init(struct run *run, const struct config *config, struct wire *wire)
{
    run->config = config;
    run->wire = wire;
    run->state = RUN_IDLE;
    run->code_fd = run->failure_fd = -1;
    capture_init(&run->out, FRAME_IS_STDOUT);
    capture_init(&run->err, FRAME_IS_STDERR);
    feed_init(&run->input);
}

static void close_slot(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The first failure counts. The run goes on to its end without having been. */
static void fail(struct run *run, int code, const char *what)
{
    if (run->failure_code)
        return;
    run->failure_code = code;
    (void)snprintf(run->failure, sizeof(run->failure), "%s: %s", what, strerror(code));
}

/*** what a run is made of ***/

/* A new file each time: an old one may be linked, open or being executed somewhere. The guest may read
 * it and, being somebody else in the native engine, not change it. */
static void make_code(struct run *run)
{
    int dir = run->config->run_dir_fd;
    if (unlinkat(dir, code_name, 0) < 0 && errno != ENOENT) {
        fail(run, errno, "replace code");
        return;
    }
    run->code_fd =
        openat(dir, code_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (run->code_fd < 0 || fchmod(run->code_fd, 0444) < 0)
        fail(run, errno, "make code");
}

int run_announce(struct run *run, uint32_t number, const struct frame_run *spec)
{
    if (run->state != RUN_IDLE || number <= run->number)
        return -EPROTO;
    run->number = number;
    run->spec = *spec;
    run->args_len = 0;
    run->code_len = 0;
    run->kill_early = run->flooded = false;
    run->pid = 0;
    run->status = 0;
    run->wall_ns = run->cpu_ns = 0;
    run->failure_code = 0;
    capture_begin(&run->out, -1, 0, 0);
    capture_begin(&run->err, -1, 0, 0);
    run->state = RUN_TAKING;
    if (spec->has_code)
        make_code(run);
    return 0;
}

int run_args(struct run *run, const char *bytes, size_t len)
{
    if (run->state != RUN_TAKING || len > run->spec.args_len - run->args_len)
        return -EPROTO;
    memcpy(run->args + run->args_len, bytes, len);
    run->args_len += (uint32_t)len;
    return 0;
}

int run_code(struct run *run, const char *bytes, size_t len)
{
    if (run->state != RUN_TAKING || len > run->spec.code_len - run->code_len)
        return -EPROTO;
    run->code_len += len;
    for (size_t done = 0; done < len && !run->failure_code;) {
        ssize_t n = write(run->code_fd, bytes + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            fail(run, n < 0 ? errno : EIO, "write code");
        else
            done += (size_t)n;
    }
    return 0;
}

/* The next string of `args`, or NULL when they end. */
static const char *next_string(struct run *run, size_t *at)
{
    char *end = memchr(run->args + *at, '\0', run->args_len - *at);
    if (!end)
        return NULL;
    const char *text = run->args + *at;
    *at = (size_t)(end - run->args) + 1;
    return text;
}

static bool same_name(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");
    return strncmp(a, b, len + 1) == 0;
}

static void set_env(struct run *run, size_t *count, const char *var)
{
    for (size_t i = 0; i < *count; i++)
        if (same_name(run->env[i], var)) {
            run->env[i] = var;
            return;
        }
    run->env[(*count)++] = var;
}

static int split_args(struct run *run)
{
    size_t at = 0, env_count = 0;
    for (uint32_t i = 0; i < run->spec.argc; i++)
        if (!(run->argv[i] = next_string(run, &at)))
            return -EPROTO;
    run->argv[run->spec.argc] = NULL;
    for (const char *const *var = run->config->env; *var; var++)
        set_env(run, &env_count, *var);
    for (uint32_t i = 0; i < run->spec.envc; i++) {
        const char *var = next_string(run, &at);
        if (!var || !strchr(var, '='))
            return -EPROTO;
        set_env(run, &env_count, var);
    }
    run->env[env_count] = NULL;
    run->cwd = next_string(run, &at);
    return run->cwd && at == run->spec.args_len ? 0 : -EPROTO;
}

/*** start ***/

struct pipes {
    int in[2], out[2], err[2], failure[2];
};

static void pipes_close(struct pipes *pipes)
{
    for (int i = 0; i < 2; i++) {
        close_slot(&pipes->in[i]);
        close_slot(&pipes->out[i]);
        close_slot(&pipes->err[i]);
        close_slot(&pipes->failure[i]);
    }
}

/* Our ends do not block; the guest's do, as programs expect. */
static int make_pipe(int fds[2], int ours)
{
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    return fcntl(fds[ours], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int pipes_open(struct pipes *pipes, bool with_input)
{
    int r = make_pipe(pipes->out, 0);
    if (r == 0)
        r = make_pipe(pipes->err, 0);
    if (r == 0)
        r = make_pipe(pipes->failure, 0);
    if (r < 0)
        return r;
    if (with_input)
        return make_pipe(pipes->in, 1);
    pipes->in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return pipes->in[0] < 0 ? -errno : 0;
}

static void launch(struct run *run)
{
    struct pipes pipes = { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    int r = pipes_open(&pipes, run->spec.input_len > 0);
    if (r < 0) {
        pipes_close(&pipes);
        fail(run, -r, "make pipes");
        return;
    }
    run->start_ns = clock_ns();
    pid_t pid = guest_fork(run->config);
    if (pid == 0) {
        const struct guest_exec exec = {
            .argv = run->argv,
            .env = run->env,
            .cwd = run->cwd,
            .stdio = { pipes.in[0], pipes.out[1], pipes.err[1] },
            .failure_fd = pipes.failure[1],
        };
        guest_exec(run->config, &exec);
    }
    if (pid < 0) {
        pipes_close(&pipes);
        fail(run, -pid, "start process");
        return;
    }
    run->pid = pid;
    run->failure_fd = pipes.failure[0];
    capture_begin(&run->out, pipes.out[0], run->spec.head_bytes, run->spec.tail_bytes);
    capture_begin(&run->err, pipes.err[0], run->spec.head_bytes, run->spec.tail_bytes);
    feed_begin(&run->input, run->spec.input_len);
    feed_connect(&run->input, pipes.in[1]);
    pipes.failure[0] = pipes.out[0] = pipes.err[0] = pipes.in[1] = -1;
    pipes_close(&pipes);
}

int run_start(struct run *run)
{
    if (run->state != RUN_TAKING || run->args_len != run->spec.args_len ||
        run->code_len != run->spec.code_len)
        return -EPROTO;
    int r = split_args(run);
    if (r < 0)
        return r;
    close_slot(&run->code_fd); /* before the fork: a file open for writing is not executed */
    if (run->kill_early)
        fail(run, ECANCELED, "killed before the start");
    if (!run->failure_code)
        launch(run);
    run->state = run->failure_code ? RUN_ENDING : RUN_GOING;
    return 0;
}

/*** while it goes ***/

int run_input(struct run *run, const char *bytes, size_t len)
{
    return run->state == RUN_TAKING ? -EPROTO : feed_take(&run->input, bytes, len);
}

/* To the group that the main process leads. It is not reaped before run->pid is 0, so the number is
 * nobody else's. */
void run_interrupt(struct run *run)
{
    if (run->state == RUN_GOING && run->pid && kill(-run->pid, SIGINT) < 0)
        (void)kill(run->pid, SIGINT); /* it has left its group */
}

void run_kill(struct run *run)
{
    if (run->state == RUN_TAKING)
        run->kill_early = true;
    if (run->state == RUN_GOING)
        run->state = RUN_ENDING;
}

static uint64_t timeval_ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_usec * 1000U;
}

void run_reaped(struct run *run, pid_t pid, int status, const struct rusage *usage)
{
    if (run->state != RUN_GOING && run->state != RUN_ENDING)
        return;
    run->cpu_ns += timeval_ns(usage->ru_utime) + timeval_ns(usage->ru_stime);
    if (pid != run->pid)
        return;
    run->pid = 0;
    run->status = status;
    run->wall_ns = clock_ns() - run->start_ns;
    run->state = RUN_ENDING;
}

void run_alone(struct run *run)
{
    run->state = RUN_FLUSHING;
    feed_end(&run->input);
    struct guest_failure failure;
    if (run->failure_fd >= 0 &&
        read(run->failure_fd, &failure, sizeof(failure)) == (ssize_t)sizeof(failure)) {
        failure.step[sizeof(failure.step) - 1] = '\0';
        fail(run, failure.code, failure.step);
    }
    close_slot(&run->failure_fd);
}

/*** the end ***/

static bool send_exit(struct run *run)
{
    struct frame_exit exit = {
        .signaled = !run->failure_code && WIFSIGNALED(run->status),
        .flooded = run->flooded,
        .failed = run->failure_code != 0,
        .wall_ns = run->wall_ns,
        .cpu_ns = run->cpu_ns,
        .stdout_bytes = run->out.total,
        .stderr_bytes = run->err.total,
    };
    exit.code = exit.failed     ? (uint32_t)run->failure_code
                : exit.signaled ? (uint32_t)WTERMSIG(run->status)
                                : (uint32_t)WEXITSTATUS(run->status);
    char payload[FRAME_EXIT_SIZE + FRAME_FAILURE_MAX];
    frame_exit_put(payload, &exit);
    size_t words = exit.failed ? strlen(run->failure) : 0;
    memcpy(payload + FRAME_EXIT_SIZE, run->failure, words);
    return wire_send(run->wire, FRAME_EXIT, run->number, payload, FRAME_EXIT_SIZE + words);
}

/* Whoever could write is dead: what is in the pipes now is all there will be. A pipe may stay open
 * without a process, sent to a socket that nobody reads; empty is enough. */
static void finish(struct run *run)
{
    if (!capture_drain(&run->out, run->wire, run->number) ||
        !capture_drain(&run->err, run->wire, run->number) ||
        !capture_flush(&run->out, run->wire, run->number) ||
        !capture_flush(&run->err, run->wire, run->number) || !send_exit(run))
        return;
    capture_end(&run->out);
    capture_end(&run->err);
    if (run->spec.has_code)
        (void)unlinkat(run->config->run_dir_fd, code_name, 0); /* gives its memory back */
    run->state = RUN_IDLE;
}

static void watch_flood(struct run *run)
{
    if (run->out.total > run->spec.flood_bytes || run->err.total > run->spec.flood_bytes) {
        run->flooded = true;
        run->state = RUN_ENDING;
    }
}

void run_poll(struct run *run, struct pollset *set)
{
    if (run->state != RUN_GOING && run->state != RUN_FLUSHING)
        return;
    capture_poll(&run->out, run->wire, set);
    capture_poll(&run->err, run->wire, set);
    feed_poll(&run->input, set);
}

void run_step(struct run *run)
{
    /* Not while it is being ended: who is about to die may wait for a full pipe until then. */
    if (run->state == RUN_GOING) {
        if (run->out.ready)
            (void)capture_drain(&run->out, run->wire, run->number);
        if (run->err.ready)
            (void)capture_drain(&run->err, run->wire, run->number);
        feed_step(&run->input, run->wire, FRAME_RUN_MORE, run->number);
        watch_flood(run);
    }
    if (run->state == RUN_FLUSHING)
        finish(run);
}
