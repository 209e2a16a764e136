/*
 * buf: growing bytes with a ceiling. The ceiling is said once, when the buffer is made; an append
 * that would pass it changes nothing and returns -EMSGSIZE.
 *
 * Invariant: `data` is NULL or holds `len` bytes and a NUL after them, so text can be printed.
 */
#ifndef BELLJAR_BASE_BUF_H
#define BELLJAR_BASE_BUF_H

#include "base/base.h"

struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max;
};

#define BUF_INIT(ceiling) ((struct buf){ .max = (ceiling) })
#define auto_buf __attribute__((cleanup(buf_done))) struct buf

/* For text whose length the program itself bounds. */
#define BUF_NO_CEILING (SIZE_MAX / 4)

void buf_done(struct buf *buf);
void buf_clear(struct buf *buf);

/* 0, or -EMSGSIZE and nothing appended. */
int buf_add(struct buf *buf, const void *data, size_t len);
int buf_add_str(struct buf *buf, const char *text);
int buf_add_char(struct buf *buf, char c);
int buf_printf(struct buf *buf, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Room for at least `len` more bytes behind data[len], or NULL when that passes the ceiling.
 * After writing there, say how much with buf_added(). */
char *buf_room(struct buf *buf, size_t len);
void buf_added(struct buf *buf, size_t len);

/* Drops `len` bytes from the front. */
void buf_drop(struct buf *buf, size_t len);

/* Keeps the first `len` bytes, which must not be more than there are. */
void buf_cut(struct buf *buf, size_t len);

/* The text, NUL-terminated, owned by the caller; the buffer is empty afterwards. */
char *buf_steal(struct buf *buf);

/* The text or "", for printing. */
const char *buf_str(const struct buf *buf);

#endif
