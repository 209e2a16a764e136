#include "tools/toolbox.h"

#include "base/text.h"

#include <string.h>

void toolbox_add_text(struct buf *buf, const char *bytes, size_t len)
{
    while (len > 0) {
        const char *nul = memchr(bytes, '\0', len);
        size_t part = nul ? (size_t)(nul - bytes) : len;
        (void)utf8_add_clean(buf, bytes, part);
        if (!nul)
            return;
        (void)buf_add_str(buf, "\xef\xbf\xbd");
        bytes += part + 1;
        len -= part + 1;
    }
}
