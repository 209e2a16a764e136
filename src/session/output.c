#include "session/internal.h"

#include <stdlib.h>

/* A guest that alternates between its streams byte by byte must not make a piece of every byte:
 * past this many, order between the streams is given up for order within each. */
enum { PIECES_MAX = 1000 };

void output_init(struct output *output, size_t max_bytes)
{
    *output = (struct output){ .max_bytes = max_bytes };
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

void output_add(struct output *output, enum link_stream stream, const char *bytes, size_t len)
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

void output_add_gap(struct output *output, enum link_stream stream, uint64_t bytes)
{
    output->truncated = true;
    (void)buf_printf(&piece_for(output, stream)->text, "\n[… %llu bytes left out …]\n",
                     (unsigned long long)bytes);
}
