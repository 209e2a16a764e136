/* Runs, as the server sees them: one at a time, and no number that the agent says is believed. */
#include "agent/link_private.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*** asking ***/

static int count_strings(const char *const *strings, size_t *ret_count)
{
    *ret_count = 0;
    for (; strings && *strings; strings++)
        if (++*ret_count > FRAME_ARGS_COUNT_MAX)
            return -E2BIG;
    return 0;
}

int link_collect_args(const char *const *argv, const char *const *env, const char *cwd,
                      struct buf *args, struct frame_run *ret, struct err *err)
{
    size_t argc, envc;
    if (count_strings(argv, &argc) < 0 || count_strings(env, &envc) < 0)
        return err_set(err, E2BIG, "more than %d arguments", FRAME_ARGS_COUNT_MAX);
    if (argc == 0 || !*argv[0])
        return err_set(err, EINVAL, "nothing to run");
    int r = 0;
    for (size_t i = 0; i < argc && r == 0; i++)
        r = buf_add(args, argv[i], strlen(argv[i]) + 1);
    for (size_t i = 0; i < envc && r == 0; i++) {
        if (!strchr(env[i], '='))
            return err_set(err, EINVAL, "environment: a variable without a value");
        r = buf_add(args, env[i], strlen(env[i]) + 1);
    }
    if (r == 0)
        r = buf_add(args, cwd ? cwd : "", cwd ? strlen(cwd) + 1 : 1);
    if (r < 0)
        return err_set(err, E2BIG, "arguments and environment: more than %d bytes", FRAME_ARGS_MAX);
    ret->args_len = (uint32_t)args->len;
    ret->argc = (uint32_t)argc;
    ret->envc = (uint32_t)envc;
    return 0;
}

void link_add_program(struct buf *out, uint8_t type, uint32_t number, const struct frame_run *frame,
                      const struct buf *args, const char *code)
{
    char payload[FRAME_RUN_SIZE];
    frame_run_put(payload, frame);
    link_add_frame(out, type, number, payload, sizeof(payload));
    link_add_frames(out, FRAME_ARGS, number, args->data, args->len);
    if (frame->has_code)
        link_add_frames(out, FRAME_CODE, number, code, (size_t)frame->code_len);
    link_add_frame(out, FRAME_START, number, NULL, 0);
}

/* The agent's ring has a limit; what it cannot keep at the end is kept at the beginning. */
void link_fit_tail(uint64_t *head_bytes, uint64_t *tail_bytes)
{
    if (*tail_bytes <= FRAME_TAIL_MAX)
        return;
    *head_bytes += *tail_bytes - FRAME_TAIL_MAX;
    *tail_bytes = FRAME_TAIL_MAX;
}

static void send_input(struct link *link, struct buf *out)
{
    struct link_run_state *run = &link->run;
    size_t left = run->input_len - run->input_sent;
    if (!run->input_asked || !left)
        return;
    size_t len = left < FRAME_PAYLOAD_MAX ? left : FRAME_PAYLOAD_MAX;
    link_add_frame(out, FRAME_INPUT, run->number, run->input + run->input_sent, len);
    run->input_sent += len;
    run->input_asked = false;
}

int link_run(struct link *link, const struct link_run_spec *spec,
             const struct link_run_events *events, void *data, struct err *err)
{
    if (!link->stream)
        return err_set(err, EPIPE, "the sandbox is gone");
    if (link->run.active)
        return err_set(err, EBUSY, "another run is going on");
    if (spec->code_len > FRAME_CODE_MAX)
        return err_set(err, EFBIG, "code: more than %d bytes", FRAME_CODE_MAX);
    struct frame_run frame = {
        .head_bytes = spec->head_bytes,
        .tail_bytes = spec->tail_bytes,
        .flood_bytes = spec->flood_bytes,
        .input_len = spec->input ? spec->input_len : 0,
        .code_len = spec->code ? spec->code_len : 0,
        .has_code = spec->code != NULL,
    };
    link_fit_tail(&frame.head_bytes, &frame.tail_bytes);
    auto_buf args = BUF_INIT(FRAME_ARGS_MAX);
    int r = link_collect_args(spec->argv, spec->env, spec->cwd, &args, &frame, err);
    if (r < 0)
        return r;

    struct link_run_state *run = &link->run;
    *run = (struct link_run_state){
        .active = true,
        .number = ++link->program_number,
        .events = *events,
        .data = data,
        .head_bytes = frame.head_bytes,
        .tail_bytes = frame.tail_bytes,
        .input_len = (size_t)frame.input_len,
        .input_asked = true,
        .start_ns = uv_hrtime(),
    };
    if (spec->input && run->input_len)
        run->input = memcpy(xmalloc(run->input_len), spec->input, run->input_len);

    struct buf out = BUF_INIT(BUF_NO_CEILING);
    link_add_program(&out, FRAME_RUN, run->number, &frame, &args, spec->code);
    send_input(link, &out);
    link_write(link, &out);
    return 0;
}

static void say(struct link *link, uint8_t type)
{
    if (!link->run.active)
        return;
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    link_add_frame(&out, type, link->run.number, NULL, 0);
    link_write(link, &out);
}

void link_interrupt(struct link *link)
{
    say(link, FRAME_INTERRUPT);
}

void link_kill(struct link *link)
{
    say(link, FRAME_KILL);
}

/*** answers ***/

static void end_run(struct link *link, const struct link_exit *exit)
{
    struct link_run_state *run = &link->run;
    run->active = false;
    free(run->input);
    run->input = NULL;
    if (run->events.on_exit)
        run->events.on_exit(exit, run->data); /* may start the next run, or free the link */
}

void link_run_broken(struct link *link)
{
    if (link->run.active)
        end_run(link, NULL);
}

/* Head, then perhaps a gap, then at most the tail; without a gap head and tail are one. */
static const char *take_output(struct link *link, enum link_stream stream,
                               struct link_capture *capture, const struct frame *frame)
{
    struct link_run_state *run = &link->run;
    uint64_t *count = capture->gap ? &capture->after : &capture->before;
    uint64_t most = capture->gap ? run->tail_bytes : run->head_bytes + run->tail_bytes;
    if (!frame->len || *count > most || frame->len > most - *count)
        return "the agent sent more output than it may";
    *count += frame->len;
    if (run->events.on_output)
        run->events.on_output(stream, frame->payload, frame->len, run->data);
    return NULL;
}

static const char *take_gap(struct link *link, const struct frame *frame)
{
    struct link_run_state *run = &link->run;
    struct frame_gap gap;
    if (frame_gap_get(frame, &gap) < 0)
        return "the agent sent a gap that is none";
    struct link_capture *capture = gap.stream == FRAME_IS_STDOUT ? &run->out : &run->err;
    if (capture->gap || capture->before != run->head_bytes || gap.bytes > INT64_MAX)
        return "the agent left out output where it may not";
    capture->gap = gap.bytes;
    if (run->events.on_gap)
        run->events.on_gap((enum link_stream)gap.stream, gap.bytes, run->data);
    return NULL;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

/* Words of the agent's; people will read them. */
static void copy_words(char *to, size_t size, const char *words, size_t len)
{
    size_t used = 0;
    for (size_t at = 0; at < len;) {
        char shown[TEXT_SHOWN_MAX + 1] = "";
        at += text_show_char(words + at, len - at, shown);
        size_t n = strnlen(shown, TEXT_SHOWN_MAX);
        if (used + n >= size)
            break;
        memcpy(to + used, shown, n);
        used += n;
    }
    to[used] = '\0';
}

static uint64_t total(const struct link_capture *capture)
{
    return capture->before + capture->gap + capture->after;
}

void link_read_exit(const struct frame_exit *said, uint64_t start_ns, struct link_exit *ret)
{
    /* Time is what we have seen pass; the rest a guest could have made up. */
    uint64_t wall = uv_hrtime() - start_ns;
    *ret = (struct link_exit){
        .signaled = said->signaled,
        .code = said->failed ? 127 : (int)said->code,
        .wall_ns = at_most(said->wall_ns, wall),
        .cpu_ns = at_most(said->cpu_ns, wall > UINT64_MAX / 4096 ? wall : wall * 4096),
        .stdout_bytes = said->stdout_bytes,
        .stderr_bytes = said->stderr_bytes,
        .flooded = said->flooded,
        .absent = said->absent,
    };
    copy_words(ret->failure, sizeof(ret->failure), said->failure, said->failure_len);
}

static const char *take_exit(struct link *link, const struct frame *frame)
{
    struct link_run_state *run = &link->run;
    struct frame_exit said;
    if (frame_exit_get(frame, &said) < 0)
        return "the agent sent an exit that is none";
    if (said.stdout_bytes != total(&run->out) || said.stderr_bytes != total(&run->err))
        return "the agent lost count of the output";
    struct link_exit exit;
    link_read_exit(&said, run->start_ns, &exit);
    end_run(link, &exit);
    return NULL;
}

static const char *take_more(struct link *link, const struct frame *frame)
{
    struct link_run_state *run = &link->run;
    if (frame->len || run->input_asked || run->input_sent == run->input_len)
        return "the agent asked for input that there is not";
    run->input_asked = true;
    struct buf out = BUF_INIT(BUF_NO_CEILING);
    send_input(link, &out);
    link_write(link, &out);
    return NULL;
}

const char *link_run_take(struct link *link, const struct frame *frame)
{
    if (!link->run.active || frame->number != link->run.number)
        return "the agent spoke of a run that is not";
    switch (frame->type) {
    case FRAME_STDOUT:
        return take_output(link, LINK_STDOUT, &link->run.out, frame);
    case FRAME_STDERR:
        return take_output(link, LINK_STDERR, &link->run.err, frame);
    case FRAME_GAP:
        return take_gap(link, frame);
    case FRAME_RUN_MORE:
        return take_more(link, frame);
    case FRAME_EXIT:
        return take_exit(link, frame);
    default:
        return "the agent spoke of a run as of a kernel";
    }
}
