/*
 * base: what every other module stands on. This header is small helpers for memory, ownership and
 * descriptors; the neighbours are one subject each:
 *
 *   err.h     errors as values            buf.h      growing bytes with a ceiling
 *   log.h     lines on stderr             json.h     bounded JSON in, exact JSON out
 *   num.h     checked numbers             text.h     UTF-8, base64, random names
 *   loop.h    libuv glue: timers, clocks  dir.h      directories made on demand
 *
 * Running out of memory ends the process with a message; no caller tests for it.
 */
#ifndef BELLJAR_BASE_H
#define BELLJAR_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* The struct that holds `member` at `ptr`. */
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Never return NULL. */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);
char *xstrndup(const char *text, size_t len);
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2);
char *xvasprintf(const char *fmt, va_list args) PRINTF_LIKE(1, 0);

/* After something that took `used` bytes in many small pieces was freed: malloc keeps the pages
 * for itself, this gives them back to the system. Does nothing for small amounts. */
void memory_trim(size_t used);

/* Owning locals: released when the scope ends, handed on with steal_…(). */
void freep(void *slot);
void fd_closep(int *fd);
#define auto_free __attribute__((cleanup(freep)))
#define auto_fd __attribute__((cleanup(fd_closep))) int

/* Returns *slot and leaves NULL behind. Keeps the type. */
#define steal_ptr(slot)                                                                            \
    ({                                                                                             \
        __typeof__(slot) slot_ = (slot);                                                           \
        __typeof__(*slot_) value_ = *slot_;                                                        \
        *slot_ = NULL;                                                                             \
        value_;                                                                                    \
    })

/* Returns *fd and leaves -1 behind. */
static inline int steal_fd(int *fd)
{
    int value = *fd;
    *fd = -1;
    return value;
}

/* strcmp() == 0, and false when either side is NULL. */
bool str_eq(const char *a, const char *b);
bool str_has_prefix(const char *text, const char *prefix);

#endif
