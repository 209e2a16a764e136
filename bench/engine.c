/*
 * Measures fresh sandboxes without a protocol around them: made (or taken from the pool), `true` run
 * in them by their agent, destroyed. What counts is from the wish to the exit status.
 *
 *   bench-engine COUNT IN_FLIGHT GAP_MS POOL_SIZE STATE_DIR      POOL_SIZE 0: none are made ahead
 *
 * Prints COUNT lines of microseconds, then the seconds that all took together. Any failure ends it.
 */
#include "engine/engine.h"
#include "agent/link.h"
#include "base/loop.h"
#include "base/num.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct sandbox_limits limits = {
    .memory_bytes = 512 << 20,
    .pids = 128,
    .cpu_millis = 1000,
    .nofile = 1024,
    .file_bytes = 256 << 20,
    .workspace_bytes = 256 << 20,
    .workspace_inodes = 100000,
    .tmp_bytes = 256 << 20,
    .tmp_inodes = 100000,
    .shm_bytes = 64 << 20,
};

struct bench {
    uv_loop_t loop;
    struct engine *engine;
    int64_t count, in_flight, gap_ms, pool_size;
    int64_t begun, ended;
    uint64_t *times_ns;
};

/* One sandbox after another. */
struct lane {
    struct bench *bench;
    struct timer *gap;
    struct sandbox *sandbox;
    struct link *link;
    uint64_t started_ns;
};

static uint64_t now_ns(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench-engine: %s: %s\n", what, why);
    exit(1);
}

/*** One lane ***/

static void lane_begin(void *data);

/* From the loop, not from within the link's own callback. */
static void lane_end(void *data)
{
    struct lane *lane = data;
    struct bench *bench = lane->bench;
    int stream = link_retire(lane->link);
    sandbox_retire(lane->sandbox, stream);
    lane->link = NULL;
    lane->sandbox = NULL;
    if (bench->ended == bench->count)
        uv_stop(&bench->loop);
    if (bench->begun < bench->count) {
        timer_free(lane->gap);
        lane->gap = timer_new(&bench->loop, lane_begin, lane);
        timer_start(lane->gap, (uint64_t)bench->gap_ms);
    }
}

static void on_exit_frame(const struct link_exit *result, void *data)
{
    struct lane *lane = data;
    struct bench *bench = lane->bench;
    if (!result || result->signaled || result->code != 0 || result->failure[0])
        die("true", result ? result->failure : "the sandbox is gone");
    bench->times_ns[bench->ended++] = now_ns() - lane->started_ns;
    timer_free(lane->gap);
    lane->gap = timer_new(&bench->loop, lane_end, lane);
    timer_start(lane->gap, 0);
}

static void on_ready(void *data)
{
    static const char *const argv[] = { "true", NULL };
    static const struct link_run_events events = { .on_exit = on_exit_frame };
    const struct link_run_spec spec = {
        .argv = argv, .cwd = "", .head_bytes = 4096, .tail_bytes = 4096, .flood_bytes = 1 << 20
    };
    struct lane *lane = data;
    struct err err = { 0 };
    if (link_run(lane->link, &spec, &events, lane, &err) < 0)
        die("run", err.msg);
}

static void on_broken(const char *why, void *data)
{
    (void)data;
    die("agent", why);
}

static void on_started(struct sandbox *sandbox, const struct err *err, void *data)
{
    static const struct link_events events = { .on_ready = on_ready, .on_broken = on_broken };
    struct lane *lane = data;
    if (!sandbox)
        die("start", err->msg);
    lane->sandbox = sandbox;
    lane->link = link_new(&lane->bench->loop, sandbox_take_fd(sandbox), &events, lane);
}

static void lane_begin(void *data)
{
    struct lane *lane = data;
    const struct sandbox_plan plan = { .limits = limits };
    if (lane->bench->begun == lane->bench->count)
        return;
    lane->bench->begun++;
    lane->started_ns = now_ns();
    (void)engine_start(lane->bench->engine, &plan, on_started, lane);
}

/*** All of them ***/

static void open_engine(struct bench *bench, const char *state_dir)
{
    char instance[RANDOM_ID_SIZE];
    random_id(instance);
    const struct engine_options options = {
        .state_dir = state_dir,
        .instance = instance,
        .rootfs = "",
        .uid_base = 1610612736,
        .uid_count = 65536,
        .allow_missing = LAYER_MEMORY_LIMIT | LAYER_PIDS_LIMIT | LAYER_CPU_LIMIT,
        .pool_enabled = bench->pool_size > 0,
        .pool_size = (size_t)bench->pool_size,
        .pool_max_age_ms = 600000,
        .pool_max_creations = 2,
        .pool_plan = { .limits = limits },
    };
    struct err err = { 0 };
    if (engine_open(&bench->loop, "native", &options, &bench->engine, &err) < 0)
        die("engine", err.msg);
    struct engine_stats stats = { 0 };
    while (stats.pool_ready < (uint64_t)bench->pool_size) { /* begin with a full pool */
        (void)uv_run(&bench->loop, UV_RUN_NOWAIT);
        uv_sleep(1);
        engine_stats(bench->engine, &stats);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = { 0 };
    int64_t *const numbers[] = { &bench.count, &bench.in_flight, &bench.gap_ms, &bench.pool_size };
    if (argc != 6)
        die("usage", "COUNT IN_FLIGHT GAP_MS POOL_SIZE STATE_DIR");
    for (int i = 0; i < 4; i++)
        if (num_parse_int(argv[i + 1], 0, 1000000, numbers[i]) < 0)
            die("not a number", argv[i + 1]);
    uv_loop_init(&bench.loop);
    bench.times_ns = xcalloc((size_t)bench.count + 1, sizeof(*bench.times_ns));
    open_engine(&bench, argv[5]);

    struct lane *lanes = xcalloc((size_t)bench.in_flight, sizeof(*lanes));
    uint64_t begin = now_ns();
    for (int64_t i = 0; i < bench.in_flight; i++) {
        lanes[i].bench = &bench;
        lane_begin(&lanes[i]);
    }
    (void)uv_run(&bench.loop, UV_RUN_DEFAULT);
    uint64_t took = now_ns() - begin;
    for (int64_t i = 0; i < bench.count; i++)
        (void)printf("%.1f\n", (double)bench.times_ns[i] / 1000);
    (void)printf("%.6f\n", (double)took / 1e9);

    engine_close(bench.engine);
    for (int64_t i = 0; i < bench.in_flight; i++)
        timer_free(lanes[i].gap);
    loop_finish(&bench.loop);
    free(lanes);
    free(bench.times_ns);
    return 0;
}
