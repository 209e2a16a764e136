#include "session/internal.h"

#include "base/json.h"

#include <stdlib.h>

/* A guest that alternates between its streams byte by byte must not make a piece of every byte:
 * past this many, order between the streams is given up for order within each. */
enum { PIECES_MAX = 1000 };

void output_init(struct output *output, size_t max_bytes, bool tidies)
{
    *output = (struct output){ .max_bytes = max_bytes, .tidies = tidies };
    output->lines[0] = (struct output_line){ .output = output, .stream = LINK_STDOUT };
    output->lines[1] = (struct output_line){ .output = output, .stream = LINK_STDERR };
}

void output_done(struct output *output)
{
    for (size_t i = 0; i < output->count; i++)
        buf_done(&output->pieces[i].text);
    free(output->pieces);
    *output = (struct output){ 0 };
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

static void add_bytes(struct output *output, enum link_stream stream, const char *bytes, size_t len)
{
    size_t room = output->max_bytes - output->bytes;
    if (len > room) { /* the agent should have cut before */
        output->truncated = true;
        len = room;
    }
    if (len == 0)
        return;
    output->bytes += len;
    (void)buf_add(&piece_for(output, stream)->text, bytes, len); /* bounded just above */
}

/*** The line that a stream is at ***/

/* Its last piece that is not empty, as far as it belongs to the line; NULL: the line is empty. */
static struct output_piece *end_of(const struct output_line *line, size_t *ret_start)
{
    const struct output *output = line->output;
    for (size_t i = output->count; i > line->piece; i--) {
        struct output_piece *piece = &output->pieces[i - 1];
        *ret_start = i - 1 == line->piece ? line->offset : 0;
        if (piece->stream == line->stream && piece->text.len > *ret_start)
            return piece;
    }
    return NULL;
}

static void cut_piece(struct output_line *line, struct output_piece *piece, size_t len)
{
    line->output->bytes -= piece->text.len - len;
    buf_cut(&piece->text, len);
}

/* The next line begins behind what is there. */
static void begin_line(struct output_line *line)
{
    const struct output_piece *last = last_of(line->output, line->stream);
    line->piece = last ? (size_t)(last - line->output->pieces) : 0;
    line->offset = last ? last->text.len : 0;
}

static void line_add(const char *bytes, size_t len, void *data)
{
    const struct output_line *line = data;
    add_bytes(line->output, line->stream, bytes, len);
}

static void line_end(void *data)
{
    line_add("\n", 1, data);
    begin_line(data);
}

static void line_erase(void *data)
{
    size_t start;
    for (struct output_piece *piece; (piece = end_of(data, &start));)
        cut_piece(data, piece, start);
    begin_line(data); /* nearer to the end: who rewrites often does not walk far */
}

static void line_drop_chars(size_t count, void *data)
{
    size_t start;
    for (struct output_piece *piece; count && (piece = end_of(data, &start));) {
        size_t len = piece->text.len - start;
        cut_piece(data, piece,
                  piece->text.len - tidy_chars_len(piece->text.data + start, len, &count));
    }
}

static void line_drop_spaces(void *data)
{
    size_t start;
    for (struct output_piece *piece; (piece = end_of(data, &start));) {
        size_t len = piece->text.len;
        while (len > start && piece->text.data[len - 1] == ' ')
            len--;
        cut_piece(data, piece, len);
        if (len > start)
            return;
    }
}

static const struct tidy_sink line_sink = {
    .add = line_add,
    .line_end = line_end,
    .erase_line = line_erase,
    .drop_chars = line_drop_chars,
    .drop_spaces = line_drop_spaces,
};

static struct output_line *line_of(struct output *output, enum link_stream stream)
{
    return &output->lines[stream == LINK_STDOUT ? 0 : 1];
}

/*** For runs ***/

void output_add(struct output *output, enum link_stream stream, const char *bytes, size_t len)
{
    struct output_line *line = line_of(output, stream);
    if (output->tidies)
        tidy_feed(&line->tidy, bytes, len, &line_sink, line);
    else
        add_bytes(output, stream, bytes, len);
}

void output_add_gap(struct output *output, enum link_stream stream, uint64_t bytes)
{
    struct output_line *line = line_of(output, stream);
    if (output->tidies)
        tidy_end(&line->tidy, &line_sink, line);
    output->truncated = true;
    (void)buf_printf(&piece_for(output, stream)->text, "\n[… %llu bytes left out …]\n",
                     (unsigned long long)bytes);
    begin_line(line);
}

void output_end(struct output *output)
{
    size_t kept = 0;
    for (size_t i = 0; output->tidies && i < ARRAY_SIZE(output->lines); i++)
        tidy_end(&output->lines[i].tidy, &line_sink, &output->lines[i]);
    for (size_t i = 0; i < output->count; i++) {
        struct output_piece *piece = &output->pieces[i];
        struct output_piece *before = kept ? &output->pieces[kept - 1] : NULL;
        if (before && piece->text.len && before->stream == piece->stream)
            (void)buf_add(&before->text, piece->text.data, piece->text.len);
        if (!piece->text.len || (before && before->stream == piece->stream)) {
            buf_done(&piece->text);
        } else {
            if (kept != i)
                output->pieces[kept] = *piece;
            kept++;
        }
    }
    output->count = kept;
}

size_t output_json_len(const struct output *output)
{
    size_t len = 0;
    for (size_t i = 0; i < output->count; i++)
        len += json_escaped_len(output->pieces[i].text.data, output->pieces[i].text.len);
    return len;
}
