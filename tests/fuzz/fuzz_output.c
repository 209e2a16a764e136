/*
 * What a guest writes, tidied. The first byte says how the rest is cut into chunks; every byte of 0xf8
 * and more changes the stream. Beyond "does not crash": nothing that a terminal obeys is left, where the
 * chunks end does not matter, and no more is kept than may be.
 */
#include "session/internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX = 300 };

/* Not assert(): the promise is checked in every build. */
static void must(bool promise)
{
    if (!promise)
        abort();
}

static void feed(struct output *output, const uint8_t *data, size_t size, size_t part)
{
    enum link_stream stream = LINK_STDOUT;
    for (size_t at = 0; at < size;) {
        if (data[at] >= 0xf8) {
            stream = data[at++] % 2 ? LINK_STDERR : LINK_STDOUT;
            continue;
        }
        size_t end = at + 1;
        while (end < size && end - at < part && data[end] < 0xf8)
            end++;
        output_add(output, stream, (const char *)data + at, end - at);
        at = end;
    }
    output_end(output);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct output whole, parts;
    output_init(&whole, MAX, true);
    output_init(&parts, MAX, true);
    feed(&whole, data + 1, size - 1, SIZE_MAX);
    feed(&parts, data + 1, size - 1, 1 + data[0] % 8);

    size_t bytes = 0;
    must(whole.count == parts.count && whole.truncated == parts.truncated);
    for (size_t i = 0; i < whole.count; i++) {
        const struct buf *text = &whole.pieces[i].text, *same = &parts.pieces[i].text;
        must(text->len && text->len == same->len && memcmp(text->data, same->data, text->len) == 0);
        must(whole.pieces[i].stream == parts.pieces[i].stream);
        must(!memchr(text->data, '\r', text->len) && !memchr(text->data, '\b', text->len) &&
             !memchr(text->data, 0x1b, text->len));
        bytes += text->len;
    }
    must(bytes <= MAX);
    output_done(&whole);
    output_done(&parts);
    return 0;
}
