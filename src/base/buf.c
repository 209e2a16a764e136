#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_done(struct buf *buf)
{
    free(buf->data);
    *buf = BUF_INIT(buf->max);
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

char *buf_room(struct buf *buf, size_t len)
{
    if (len > buf->max || buf->len > buf->max - len)
        return NULL;
    size_t need = buf->len + len + 1;
    if (need > buf->cap) {
        size_t cap = buf->cap ? buf->cap : 64;
        while (cap < need)
            cap *= 2;
        buf->data = xrealloc(buf->data, cap);
        buf->cap = cap;
        buf->data[buf->len] = '\0';
    }
    return buf->data + buf->len;
}

void buf_added(struct buf *buf, size_t len)
{
    assert(buf->len + len < buf->cap);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

int buf_add(struct buf *buf, const void *data, size_t len)
{
    char *room = buf_room(buf, len);
    if (!room)
        return -EMSGSIZE;
    if (len)
        memcpy(room, data, len);
    buf_added(buf, len);
    return 0;
}

int buf_add_str(struct buf *buf, const char *text)
{
    return buf_add(buf, text, strlen(text));
}

int buf_add_char(struct buf *buf, char c)
{
    return buf_add(buf, &c, 1);
}

int buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *room = len < 0 ? NULL : buf_room(buf, (size_t)len);
    if (room) {
        (void)vsnprintf(room, (size_t)len + 1, fmt, again); /* measured just above */
        buf_added(buf, (size_t)len);
    }
    va_end(again);
    return room ? 0 : -EMSGSIZE;
}

void buf_drop(struct buf *buf, size_t len)
{
    assert(len <= buf->len);
    if (!len)
        return;
    memmove(buf->data, buf->data + len, buf->len - len + 1);
    buf->len -= len;
}

void buf_cut(struct buf *buf, size_t len)
{
    assert(len <= buf->len);
    buf->len = len;
    if (buf->data)
        buf->data[len] = '\0';
}

char *buf_steal(struct buf *buf)
{
    char *text = buf->data ? buf->data : xstrdup("");
    *buf = BUF_INIT(buf->max);
    return text;
}

const char *buf_str(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}
