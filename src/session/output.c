/*
 * What a run wrote. Of each stream the first bytes are kept as they come, in one order with the other
 * stream's; what follows them is gathered apart, for only the end of the run shows how much of it is
 * the tail. The agent sends more than an answer can show, up to overflow_bytes, so that the whole can
 * be kept as a file when something had to be cut out.
 */
#include "session/internal.h"

#include "base/json.h"

#include <stdlib.h>

/* A guest that alternates between its streams byte by byte must not make a piece of every byte:
 * past this many, order between the streams is given up for order within each. */
enum { PIECES_MAX = 1000 };

void output_init(struct output *output, const struct output_limits *limits)
{
    *output = (struct output){ .limits = *limits };
    for (size_t i = 0; i < ARRAY_SIZE(output->rests); i++)
        output->rests[i] = (struct output_rest){ .head_left = limits->shown / 2,
                                                 .text = BUF_INIT(BUF_NO_CEILING) };
}

static void let_go(struct output *output, struct output_rest *rest)
{
    *output->limits.total -= rest->text.len;
    buf_done(&rest->text);
}

void output_done(struct output *output)
{
    for (size_t i = 0; i < output->count; i++)
        buf_done(&output->pieces[i].text);
    for (size_t i = 0; i < ARRAY_SIZE(output->rests); i++)
        let_go(output, &output->rests[i]);
    free(output->pieces);
    output->pieces = NULL;
    output->count = 0;
}

static struct output_piece *last_of(struct output *output, enum link_stream stream)
{
    for (size_t i = output->count; i > 0; i--) {
        if (output->pieces[i - 1].stream == stream)
            return &output->pieces[i - 1];
    }
    return NULL;
}

static struct output_piece *piece_for(struct output *output, enum link_stream stream)
{
    struct output_piece *last = last_of(output, stream);
    bool newest = last && last == &output->pieces[output->count - 1];
    if (newest || (last && output->count >= PIECES_MAX))
        return last;
    output->pieces = xrealloc(output->pieces, (output->count + 1) * sizeof(*output->pieces));
    struct output_piece *piece = &output->pieces[output->count++];
    *piece = (struct output_piece){ .stream = stream, .text = BUF_INIT(BUF_NO_CEILING) };
    return piece;
}

static struct output_rest *rest_of(struct output *output, enum link_stream stream)
{
    return &output->rests[stream == LINK_STDERR];
}

static void add_note(struct buf *text, uint64_t bytes)
{
    (void)buf_printf(text, "\n[… %llu bytes left out …]\n", (unsigned long long)bytes);
}

/* Forgets the first `len` bytes behind the head, and what the agent left out before their end. */
static void forget(struct output *output, struct output_rest *rest, size_t len)
{
    buf_drop(&rest->text, len);
    *output->limits.total -= len;
    rest->gap_bytes += len;
    rest->gap_at = 0;
}

/* Past a limit only the tail is kept: twice as much at times, so that not every byte moves all. */
static void make_room(struct output *output, struct output_rest *rest, size_t len)
{
    const struct output_limits *limits = &output->limits;
    size_t tail = limits->shown / 2;
    bool over = rest->text.len + len > limits->rest || *limits->total + len > limits->total_max;
    if (over && rest->text.len > 2 * tail)
        forget(output, rest, rest->text.len - tail);
}

static void add_rest(struct output *output, struct output_rest *rest, const char *bytes, size_t len)
{
    make_room(output, rest, len);
    (void)buf_add(&rest->text, bytes, len); /* bounded just above */
    *output->limits.total += len;
}

void output_add(struct output *output, enum link_stream stream, const char *bytes, size_t len)
{
    struct output_rest *rest = rest_of(output, stream);
    size_t head = len < rest->head_left ? len : rest->head_left;
    if (head)
        (void)buf_add(&piece_for(output, stream)->text, bytes, head); /* bounded by head_left */
    rest->head_left -= head;
    if (len > head)
        add_rest(output, rest, bytes + head, len - head);
}

void output_add_gap(struct output *output, enum link_stream stream, uint64_t bytes)
{
    struct output_rest *rest = rest_of(output, stream);
    output->truncated = true;
    if (rest->head_left) { /* before the first byte of a cell */
        add_note(&piece_for(output, stream)->text, bytes);
        return;
    }
    if (rest->gap_bytes)
        forget(output, rest, rest->gap_at); /* one gap is all that we remember */
    rest->gap_at = rest->text.len;
    rest->gap_bytes += bytes;
}

size_t output_json_len(const struct output *output)
{
    size_t len = 0;
    for (size_t i = 0; i < output->count; i++)
        len += json_escaped_len(output->pieces[i].text.data, output->pieces[i].text.len);
    for (size_t i = 0; i < ARRAY_SIZE(output->rests); i++)
        len += json_escaped_len(output->rests[i].text.data, output->rests[i].text.len);
    return len;
}

bool output_whole(const struct output *output, enum link_stream stream, struct buf *ret)
{
    const struct output_rest *rest = &output->rests[stream == LINK_STDERR];
    for (size_t i = 0; i < output->count; i++) {
        if (output->pieces[i].stream == stream)
            (void)buf_add(ret, output->pieces[i].text.data, output->pieces[i].text.len);
    }
    (void)buf_add(ret, buf_str(&rest->text), rest->gap_at);
    if (rest->gap_bytes)
        add_note(ret, rest->gap_bytes);
    (void)buf_add(ret, buf_str(&rest->text) + rest->gap_at, rest->text.len - rest->gap_at);
    return !rest->gap_bytes;
}

static void finish_stream(struct output *output, enum link_stream stream)
{
    struct output_rest *rest = rest_of(output, stream);
    size_t tail = output->limits.shown / 2;
    size_t cut = rest->text.len > tail ? rest->text.len - tail : 0;
    if (cut < rest->gap_at)
        cut = rest->gap_at;
    if (!rest->text.len && !rest->gap_bytes)
        return;
    struct buf *text = &piece_for(output, stream)->text;
    if (cut || rest->gap_bytes) {
        add_note(text, cut + rest->gap_bytes);
        output->truncated = true;
    }
    (void)buf_add(text, buf_str(&rest->text) + cut, rest->text.len - cut);
    let_go(output, rest);
}

void output_finish(struct output *output)
{
    finish_stream(output, LINK_STDOUT);
    finish_stream(output, LINK_STDERR);
}
