/*
 * What a run writes, byte for byte, on its way into what is shown of it. The first bytes of each stream
 * are shown as they come (output.c); what follows them is gathered, for only the end of the run shows
 * how much of it is the tail. The agent sends more than an answer can show, up to overflow_bytes, so
 * that the whole can be kept as a file when something had to be left out (keep.c).
 */
#include "session/internal.h"

void gather_init(struct gather *gather, struct output *output, const struct gather_limits *limits)
{
    *gather = (struct gather){ .output = output, .limits = *limits };
    for (size_t i = 0; i < ARRAY_SIZE(gather->streams); i++)
        gather->streams[i] = (struct gathered){ .head_left = limits->shown / 2,
                                                .head = BUF_INIT(BUF_NO_CEILING),
                                                .rest = BUF_INIT(BUF_NO_CEILING) };
}

void gather_done(struct gather *gather)
{
    for (size_t i = 0; i < ARRAY_SIZE(gather->streams); i++) {
        *gather->limits.total -= gather->streams[i].rest.len;
        buf_done(&gather->streams[i].head);
        buf_done(&gather->streams[i].rest);
    }
}

static struct gathered *stream_of(struct gather *gather, enum link_stream stream)
{
    return &gather->streams[stream == LINK_STDERR];
}

/* Forgets the first `len` bytes behind the head. What the agent left out among them goes, too. */
static void forget(struct gather *gather, struct gathered *gathered, size_t len)
{
    buf_drop(&gathered->rest, len);
    *gather->limits.total -= len;
    gathered->gap_bytes += len;
    gathered->gap_at = 0;
}

/* Past a limit only the tail is kept: twice as much at times, so that not every byte moves all. */
static void make_room(struct gather *gather, struct gathered *gathered, size_t len)
{
    const struct gather_limits *limits = &gather->limits;
    size_t tail = limits->shown / 2;
    bool over = gathered->rest.len + len > limits->rest || *limits->total + len > limits->total_max;
    if (over && gathered->rest.len > 2 * tail)
        forget(gather, gathered, gathered->rest.len - tail);
}

void gather_add(struct gather *gather, enum link_stream stream, const char *bytes, size_t len)
{
    struct gathered *gathered = stream_of(gather, stream);
    size_t head = len < gathered->head_left ? len : gathered->head_left;
    if (gather->finished)
        return;
    if (head) {
        output_add(gather->output, stream, bytes, head);
        if (gather->limits.keeps)
            (void)buf_add(&gathered->head, bytes, head); /* bounded by head_left */
        gathered->head_left -= head;
    }
    if (len > head) {
        make_room(gather, gathered, len - head);
        (void)buf_add(&gathered->rest, bytes + head, len - head); /* bounded just above */
        *gather->limits.total += len - head;
    }
}

static void add_note(struct buf *text, uint64_t bytes)
{
    (void)buf_printf(text, "\n[… %llu bytes left out …]\n", (unsigned long long)bytes);
}

void gather_add_gap(struct gather *gather, enum link_stream stream, uint64_t bytes)
{
    struct gathered *gathered = stream_of(gather, stream);
    if (gather->finished)
        return;
    if (gathered->head_left) { /* before the first byte of a cell */
        output_add_gap(gather->output, stream, bytes);
        add_note(&gathered->head, bytes);
        return;
    }
    if (gathered->gap_bytes)
        forget(gather, gathered, gathered->gap_at); /* one gap is all that we remember */
    gathered->gap_at = gathered->rest.len;
    gathered->gap_bytes += bytes;
}

static void finish_stream(struct gather *gather, enum link_stream stream)
{
    const struct gathered *gathered = stream_of(gather, stream);
    size_t tail = gather->limits.shown / 2;
    size_t cut = gathered->rest.len > tail ? gathered->rest.len - tail : 0;
    if (cut < gathered->gap_at)
        cut = gathered->gap_at;
    if (cut || gathered->gap_bytes) {
        output_add_gap(gather->output, stream, cut + gathered->gap_bytes);
        gather->cut = true;
    }
    output_add(gather->output, stream, buf_str(&gathered->rest) + cut, gathered->rest.len - cut);
}

void gather_finish(struct gather *gather)
{
    if (gather->finished)
        return;
    finish_stream(gather, LINK_STDOUT);
    finish_stream(gather, LINK_STDERR);
    output_end(gather->output);
    gather->finished = true;
}

bool gather_whole(const struct gather *gather, enum link_stream stream, struct buf *ret)
{
    const struct gathered *gathered = &gather->streams[stream == LINK_STDERR];
    const char *rest = buf_str(&gathered->rest);
    (void)buf_add(ret, gathered->head.data, gathered->head.len);
    (void)buf_add(ret, rest, gathered->gap_at);
    if (gathered->gap_bytes)
        add_note(ret, gathered->gap_bytes);
    (void)buf_add(ret, rest + gathered->gap_at, gathered->rest.len - gathered->gap_at);
    return !gathered->gap_bytes;
}
