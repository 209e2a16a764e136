/* What an engine says while it builds: however it is cut, the same is told, and no control character. */
#include "engine/docker/progress.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_text(const char *text, size_t len, void *data)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t')
            abort();
    (void)buf_add(data, text, len);
}

static int read_in_two(const char *bytes, size_t size, size_t first, struct buf *told,
                       struct progress *progress)
{
    struct err err;
    progress_init(progress, on_text, told);
    int r = progress_feed(progress, bytes, first, &err);
    if (r == 0)
        r = progress_feed(progress, bytes + first, size - first, &err);
    return r < 0 ? r : progress_end(progress, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_buf one = BUF_INIT(BUF_NO_CEILING), two = BUF_INIT(BUF_NO_CEILING);
    struct progress whole, cut;
    int r = read_in_two((const char *)data, size, 0, &one, &whole);
    int s = read_in_two((const char *)data, size, size / 2, &two, &cut);
    if (r != s || strcmp(buf_str(&one), buf_str(&two)) != 0 || strcmp(whole.image, cut.image) != 0)
        abort();
    progress_done(&whole);
    progress_done(&cut);
    return 0;
}
