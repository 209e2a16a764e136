/*
 * belljar run: one file in a fresh sandbox, from the shell. Output goes where the guest wrote it as
 * it comes; the exit status is the guest's own.
 */
#include "cli/cli.h"
#include "cli/sandboxes.h"
#include "tools/tools.h"

#include "base/log.h"
#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CODE_MAX = 16 << 20, ITEMS_MAX = 64 << 20 };

/* What the shell is told when the guest did not end by itself; as timeout(1) and the shell do. */
enum { STATUS_TIMEOUT = 124, STATUS_LIMIT = 125, STATUS_INTERRUPTED = 130 };

struct one_run {
    uv_loop_t loop;
    uv_signal_t signals[2];
    struct sandboxes sandboxes;
    struct run *run;
    bool items; /* tell at the end what the code left, as JSON */
    int status;
};

/*** The code ***/

static int read_code(const char *path, struct buf *ret, struct err *err)
{
    auto_fd fd = str_eq(path, "-") ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open %s", path);
    for (;;) {
        char *room = buf_room(ret, 1 << 16);
        if (!room)
            return err_set(err, EFBIG, "%s is larger than %d MiB", path, CODE_MAX >> 20);
        ssize_t n = read(fd, room, 1 << 16);
        if (n < 0 && errno != EINTR)
            return err_sys(err, errno, "read %s", path);
        if (n == 0)
            return 0;
        if (n > 0)
            buf_added(ret, (size_t)n);
    }
}

/* By --language, or by the file's ending. NULL: neither says. */
static const char *language_of(const char *path)
{
    static const struct {
        const char *ending, *language;
    } endings[] = {
        { ".sh", "bash" },  { ".bash", "bash" }, { ".js", "node" },
        { ".mjs", "node" }, { ".cjs", "node" },
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < ARRAY_SIZE(endings); i++) {
        if (str_eq(dot, endings[i].ending))
            return endings[i].language;
    }
    return NULL;
}

/*** The run ***/

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    const struct one_run *one = data;
    if (one->items)
        return; /* they come at the end, all together */
    FILE *out = stream == LINK_STDOUT ? stdout : stderr;
    (void)fwrite(bytes, 1, len, out); /* whoever reads may have left; the run ends all the same */
    (void)fflush(out);
}

/* What the code left, as one line of JSON. */
static void print_items(const struct run_result *result)
{
    auto_json *items = pyexec_items(result, ITEMS_MAX);
    auto_free char *text = json_text(items);
    (void)puts(text); /* as above */
    (void)fflush(stdout);
}

static void on_done(const struct run_result *result, void *data)
{
    struct one_run *one = data;
    one->run = NULL;
    if (one->items)
        print_items(result);
    switch (result->outcome) {
    case OUTCOME_OK:
    case OUTCOME_ERROR: /* Python's kernel goes on and has no status */
        one->status = result->has_exit_code ? result->exit_code : result->outcome != OUTCOME_OK;
        break;
    case OUTCOME_KILLED:
        one->status = result->has_exit_code ? result->exit_code : STATUS_LIMIT;
        break;
    case OUTCOME_TIMEOUT:
        one->status = STATUS_TIMEOUT;
        break;
    case OUTCOME_INTERRUPTED:
        one->status = STATUS_INTERRUPTED;
        break;
    default:
        one->status = STATUS_LIMIT;
        break;
    }
    if (result->outcome != OUTCOME_OK && result->outcome != OUTCOME_ERROR)
        (void)fprintf(stderr, "belljar: %s: %s\n", outcome_name(result->outcome), result->error);
    else if (result->outcome == OUTCOME_ERROR && !result->has_exit_code)
        (void)fprintf(stderr, "belljar: %s\n", result->error);
    uv_stop(&one->loop);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct one_run *one = handle->data;
    (void)number;
    if (one->run)
        run_cancel(one->run);
}

static int run_code(const struct config *config, const char *language, const struct buf *code,
                    bool items, struct err *err)
{
    static const struct run_events events = { .on_output = on_output, .on_done = on_done };
    struct one_run one = { .items = items };
    struct config lean = *config; /* shallow */
    lean.workspace = CONFIG_WORKSPACE_MEMORY;
    lean.pool_enabled = false; /* nothing comes after this one */
    /* Few programs install something; the others start sooner. */
    lean.packages_enabled &= code->len && memmem(code->data, code->len, "pip", 3);
    int r = loop_begin(&one.loop, err);
    if (r < 0)
        return r;
    r = sandboxes_open(&one.sandboxes, &one.loop, &lean, /* strict= */ false, err);
    if (r == 0)
        r = loop_watch_signals(&one.loop, one.signals, on_signal, &one, err);
    if (r == 0) {
        const struct run_spec spec = { .owner = "run",
                                       .language = language,
                                       .code = buf_str(code),
                                       .code_len = code->len,
                                       .str_value = items,
                                       .transient = true };
        r = session_run(one.sandboxes.sessions, &spec, &events, &one, &one.run, err);
    }
    if (r == 0) {
        uv_run(&one.loop, UV_RUN_DEFAULT);
        r = one.status;
    }
    sandboxes_close(&one.sandboxes);
    loop_finish(&one.loop);
    return r;
}

static int run(const struct cli_args *args, struct err *err)
{
    if (args->n_operands != 1)
        return err_set(err, EINVAL, "run: name one file, or - for standard input");
    const char *path = args->operands[0];
    const char *given = cli_given(args, "--language");
    bool items = cli_given(args, "--items");
    const char *language = given ? given : items ? "python" : language_of(path);
    auto_buf code = BUF_INIT(CODE_MAX);
    if (!language)
        return err_set(err, EINVAL, "run: --language: say which language %.100s is in", path);
    int r = read_code(path, &code, err);
    return r < 0 ? r : run_code(&args->config, language, &code, items, err);
}

const struct command command_run = {
    .name = "run",
    .summary = "Run a file in a fresh sandbox",
    .operands = "FILE|-",
    .max_operands = 1,
    .configured = true,
    .switches = { { "--language", "bash, sh or node. Not given: by the ending of the file's name.",
                    "NAME" },
                  { "--items",
                    "Run Python and print what it left as JSON: a list of items with "
                    "type (text, error, image) and data.",
                    NULL } },
    .run = run,
};
