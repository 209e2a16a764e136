#include "agent/run.h"
#include "agent/clock.h"

#include <errno.h>
#include <signal.h>

void run_init(struct run *run, const struct config *config, struct wire *wire)
{
    run->wire = wire;
    run->state = RUN_IDLE;
    order_init(&run->order, config, "code"); /* LINK_CODE_PATH */
    understudy_init(&run->understudy);
    capture_init(&run->out, FRAME_IS_STDOUT);
    capture_init(&run->err, FRAME_IS_STDERR);
    feed_init(&run->input);
}

/*** start ***/

void run_prepare(struct run *run)
{
    understudy_make(&run->understudy, &run->order);
}

void run_unprepare(struct run *run)
{
    understudy_dismiss(&run->understudy);
}

int run_announce(struct run *run, uint32_t number, const struct frame_run *spec)
{
    if (run->state != RUN_IDLE || spec->joined)
        return -EPROTO;
    run->number = number;
    run->kill_early = run->flooded = false;
    run->pid = 0;
    run->status = 0;
    run->wall_ns = run->cpu_ns = 0;
    capture_begin(&run->out, -1, 0, 0);
    capture_begin(&run->err, -1, 0, 0);
    run->state = RUN_TAKING;
    order_begin(&run->order, spec);
    return 0;
}

int run_args(struct run *run, const char *bytes, size_t len)
{
    return run->state != RUN_TAKING ? -EPROTO : order_args(&run->order, bytes, len);
}

int run_code(struct run *run, const char *bytes, size_t len)
{
    return run->state != RUN_TAKING ? -EPROTO : order_code(&run->order, bytes, len);
}

static void launch(struct run *run)
{
    const struct frame_run *spec = &run->order.spec;
    struct process process;
    run->start_ns = clock_ns();
    if (!understudy_send(&run->understudy, &run->order, &process) &&
        !order_launch(&run->order, /* with_channel= */ false, &process))
        return;
    run->pid = process.pid;
    capture_begin(&run->out, process.out_fd, spec->head_bytes, spec->tail_bytes);
    capture_begin(&run->err, process.err_fd, spec->head_bytes, spec->tail_bytes);
    feed_begin(&run->input, spec->input_len);
    feed_connect(&run->input, process.in_fd);
}

int run_start(struct run *run)
{
    if (run->state != RUN_TAKING)
        return -EPROTO;
    int r = order_complete(&run->order);
    if (r < 0)
        return r;
    if (run->kill_early)
        order_fail(&run->order, ECANCELED, "killed before the start");
    if (!run->order.failure_code)
        launch(run);
    run->state = run->order.failure_code ? RUN_ENDING : RUN_GOING;
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

void run_abandon(struct run *run)
{
    if (run->state != RUN_TAKING)
        return;
    order_fail(&run->order, ECANCELED, "the server is gone");
    run->state = RUN_ENDING;
}

static uint64_t timeval_ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_usec * 1000U;
}

void run_reaped(struct run *run, pid_t pid, int status, const struct rusage *usage)
{
    if (understudy_reaped(&run->understudy, pid))
        return;
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
    order_check_child(&run->order);
    capture_mark(&run->out);
    capture_mark(&run->err);
}

/*** the end ***/

/* Whoever could write is dead: what is in the pipes now is all there will be. A pipe may stay open
 * without a process, sent to a socket that nobody reads, or held by a kernel that plays tricks; what
 * was in it at the end is enough. */
static void finish(struct run *run)
{
    if (!capture_finish(&run->out, run->wire, run->number) ||
        !capture_finish(&run->err, run->wire, run->number))
        return;
    struct frame_exit exit = {
        .flooded = run->flooded,
        .wall_ns = run->wall_ns,
        .cpu_ns = run->cpu_ns,
        .stdout_bytes = run->out.total,
        .stderr_bytes = run->err.total,
    };
    if (!order_send_exit(&run->order, run->wire, run->number, run->status, &exit))
        return;
    capture_end(&run->out);
    capture_end(&run->err);
    order_end(&run->order);
    run->state = RUN_IDLE;
}

static void watch_flood(struct run *run)
{
    if (run->state == RUN_GOING && (run->out.total > run->order.spec.flood_bytes ||
                                    run->err.total > run->order.spec.flood_bytes)) {
        run->flooded = true;
        run->state = RUN_ENDING;
    }
}

void run_poll(struct run *run, struct pollset *set)
{
    if (run->state != RUN_GOING && run->state != RUN_FLUSHING)
        return;
    bool all = run->state != RUN_FLUSHING;
    capture_poll(&run->out, run->wire, set, all);
    capture_poll(&run->err, run->wire, set, all);
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
