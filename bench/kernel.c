/*
 * Measures Python cells without a protocol around them: sessions as the server makes them, from the
 * wish to the result. It takes the flags of `belljar serve`, then a command a line on standard input:
 *
 *   fresh COUNT IN_FLIGHT GAP_MS FILE   a new sandbox for each; it is destroyed afterwards
 *   alone COUNT IN_FLIGHT GAP_MS FILE   the same with limits that nothing made ahead has
 *   warm COUNT GAP_MS FILE              all in one session; the first run of it does not count
 *   many COUNT IN_FLIGHT GAP_MS FILE    the same in so many sessions side by side
 *   hold COUNT IN_FLIGHT FILE           a new session for each, which stays
 *   drop                                ends those that stay
 *   show FILE                           prints what the code printed in a new sandbox
 *
 * The answer is a line of microseconds for each run, then "end" and the seconds that all took. A run
 * only counts when what it printed or displayed has come back; any failure ends the program.
 */
#include "cli/cli.h"
#include "cli/sandboxes.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COMMAND_MAX = 4096, CODE_MAX = 1 << 20, COUNT_MAX = 1000000, LANES_MAX = 64 };

enum kind { FRESH, ALONE, WARM, HOLD, SHOW };

struct bench;

/* One run after another. */
struct lane {
    struct bench *bench;
    struct timer *gap;
    char *session; /* of WARM */
    uint64_t started_ns;
};

struct bench {
    uv_loop_t loop;
    uv_pipe_t input;
    struct sandboxes sandboxes;
    struct buf line;
    char chunk[COMMAND_MAX];

    /* The command that is being worked off. */
    enum kind kind;
    int64_t count, in_flight, gap_ms;
    struct buf code;
    int64_t begun, ended;
    uint64_t begin_ns;
    uint64_t *times_ns;
    struct lane lanes[LANES_MAX];

    char **held; /* ids of sessions that stay */
    size_t n_held;
};

static uint64_t now_ns(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench-kernel: %s: %s\n", what, why ? why : "no reason given");
    exit(1);
}

/*** Runs ***/

static void lane_begin(void *data);

static void lane_again(struct lane *lane, uint64_t ms)
{
    timer_free(lane->gap);
    lane->gap = timer_new(&lane->bench->loop, lane_begin, lane);
    timer_start(lane->gap, ms);
}

static void print_output(const struct run_result *result)
{
    for (size_t i = 0; i < result->n_output; i++)
        (void)fwrite(result->output[i].text, 1, result->output[i].len, stdout);
}

static void finish(struct bench *bench)
{
    double seconds = (double)(now_ns() - bench->begin_ns) / 1e9;
    for (int64_t i = 0; i < bench->count && bench->kind != SHOW; i++)
        (void)printf("%.1f\n", (double)bench->times_ns[i] / 1000);
    (void)printf("end %.6f\n", seconds);
    (void)fflush(stdout);
    for (size_t i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &bench->lanes[i];
        if (lane->session)
            (void)session_close(bench->sandboxes.sessions, "bench", lane->session);
        free(lane->session);
        lane->session = NULL;
    }
}

static void on_done(const struct run_result *result, void *data)
{
    struct lane *lane = data;
    struct bench *bench = lane->bench;
    uint64_t took = now_ns() - lane->started_ns;
    if (result->outcome != OUTCOME_OK)
        die(outcome_name(result->outcome), result->error);
    if (result->n_output == 0 && json_array_size(result->displays) == 0)
        die("a run", "nothing came back");
    if (bench->kind == SHOW)
        print_output(result);
    if (bench->kind == HOLD) {
        bench->held = xrealloc(bench->held, (bench->n_held + 1) * sizeof(*bench->held));
        bench->held[bench->n_held++] = xstrdup(result->session_id);
    }
    if (bench->kind == WARM && !lane->session) {
        lane->session = xstrdup(result->session_id);
        bench->begin_ns = now_ns();
    } else {
        bench->times_ns[bench->ended++] = took;
    }
    if (bench->ended == bench->count)
        finish(bench);
    else
        lane_again(lane, (uint64_t)bench->gap_ms);
}

static void lane_begin(void *data)
{
    static const struct run_events events = { .on_done = on_done };
    struct lane *lane = data;
    struct bench *bench = lane->bench;
    bool counts = bench->kind != WARM || lane->session;
    if (bench->begun == bench->count)
        return;
    struct sandbox_limits limits = bench->sandboxes.toolbox.limits;
    limits.pids--;
    const struct session_plan other = { .limits = &limits };
    const struct run_spec spec = {
        .owner = "bench",
        .plan = bench->kind == ALONE ? &other : NULL,
        .session_id = lane->session,
        .language = "python",
        .code = buf_str(&bench->code),
        .code_len = bench->code.len,
        .transient = bench->kind != WARM && bench->kind != HOLD,
    };
    struct run *run;
    struct err err = { 0 };
    bench->begun += counts;
    lane->started_ns = now_ns();
    if (session_run(bench->sandboxes.sessions, &spec, &events, lane, &run, &err) < 0)
        die("run", err.msg);
}

/*** Commands ***/

static void read_code(struct bench *bench, const char *path)
{
    FILE *file = fopen(path, "re");
    buf_clear(&bench->code);
    char *room = buf_room(&bench->code, CODE_MAX - 1);
    if (!file || !room)
        die("cannot read", path);
    buf_added(&bench->code, fread(room, 1, CODE_MAX - 1, file));
    (void)fclose(file);
}

static void start(struct bench *bench)
{
    if (bench->count < 1 || bench->in_flight < 1 || bench->in_flight > LANES_MAX)
        die("a command", "COUNT and IN_FLIGHT are at least 1");
    free(bench->times_ns);
    bench->times_ns = xcalloc((size_t)bench->count, sizeof(*bench->times_ns));
    bench->begun = bench->ended = 0;
    bench->begin_ns = now_ns();
    for (int64_t i = 0; i < bench->in_flight; i++) {
        bench->lanes[i].bench = bench;
        lane_begin(&bench->lanes[i]);
    }
}

static void drop(struct bench *bench)
{
    uint64_t begin = now_ns();
    for (size_t i = 0; i < bench->n_held; i++) {
        (void)session_close(bench->sandboxes.sessions, "bench", bench->held[i]);
        free(bench->held[i]);
    }
    bench->n_held = 0;
    (void)printf("end %.6f\n", (double)(now_ns() - begin) / 1e9);
    (void)fflush(stdout);
}

static const struct {
    const char *name;
    enum kind kind;
    const char *numbers; /* which follow: Count, In flight, Gap */
} commands[] = {
    { "fresh", FRESH, "CIG" }, { "alone", ALONE, "CIG" }, { "warm", WARM, "CG" },
    { "many", WARM, "CIG" },   { "hold", HOLD, "CI" },    { "show", SHOW, "" },
};

static void take_numbers(struct bench *bench, const char *which, char **rest)
{
    bench->count = bench->in_flight = 1;
    bench->gap_ms = 0;
    for (; *which; which++) {
        int64_t *number = *which == 'C'   ? &bench->count
                          : *which == 'I' ? &bench->in_flight
                                          : &bench->gap_ms;
        const char *word = strtok_r(NULL, " ", rest);
        if (!word || num_parse_int(word, 0, COUNT_MAX, number) < 0)
            die("not a number", word);
    }
}

static void on_line(struct bench *bench, char *line)
{
    char *rest = NULL;
    const char *name = strtok_r(line, " ", &rest);
    if (str_eq(name, "drop")) {
        drop(bench);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (!str_eq(name, commands[i].name))
            continue;
        bench->kind = commands[i].kind;
        take_numbers(bench, commands[i].numbers, &rest);
        read_code(bench, strtok_r(NULL, "", &rest));
        start(bench);
        return;
    }
    die("no such command", name);
}

/*** Input ***/

static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret)
{
    struct bench *bench = handle->data;
    (void)wanted;
    *ret = uv_buf_init(bench->chunk, sizeof(bench->chunk));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *chunk)
{
    struct bench *bench = stream->data;
    if (n < 0) {
        uv_stop(&bench->loop);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (chunk->base[i] != '\n') {
            if (buf_add_char(&bench->line, chunk->base[i]) < 0)
                die("a command", "too long");
            continue;
        }
        auto_free char *line = xstrdup(buf_str(&bench->line));
        buf_clear(&bench->line);
        on_line(bench, line);
    }
}

static int run(const struct cli_args *args, struct err *err)
{
    struct bench bench = { .line = BUF_INIT(COMMAND_MAX), .code = BUF_INIT(CODE_MAX) };
    uv_loop_init(&bench.loop);
    log_init(STDERR_FILENO, args->config.log_format, args->config.log_level);
    int r = sandboxes_open(&bench.sandboxes, &bench.loop, &args->config, /* strict= */ false, err);
    if (r == 0) {
        uv_pipe_init(&bench.loop, &bench.input, 0);
        bench.input.data = &bench;
        uv_pipe_open(&bench.input, 0);
        uv_read_start((uv_stream_t *)&bench.input, give_room, on_read);
        (void)uv_run(&bench.loop, UV_RUN_DEFAULT);
        for (size_t i = 0; i < LANES_MAX; i++)
            timer_free(bench.lanes[i].gap);
    }
    sandboxes_close(&bench.sandboxes);
    loop_finish(&bench.loop);
    for (size_t i = 0; i < bench.n_held; i++)
        free(bench.held[i]);
    free(bench.held);
    free(bench.times_ns);
    buf_done(&bench.line);
    buf_done(&bench.code);
    return r;
}

static const struct command command_bench = {
    .name = "bench",
    .summary = "Run Python cells and tell how long each took",
    .configured = true,
    .run = run,
};

int main(int argc, char **argv)
{
    static const struct command *const table[] = { &command_bench, NULL };
    auto_cli_args args = { 0 };
    struct err err = { 0 };
    int r = cli_parse(&args, table, argc, argv, &err);
    if (r >= 0)
        r = cli_load_config(&args, &err);
    if (r >= 0)
        r = args.help ? cli_show_help(&args, &err) : run(&args, &err);
    if (r < 0)
        die("start", err.msg);
    return r;
}
