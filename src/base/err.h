/*
 * err: an error as a plain value in the caller's frame. Nothing to free; small enough to cross a
 * pipe from child to parent in one write.
 *
 *     if (listen(fd, 128) < 0)
 *         return err_sys(err, errno, "listen on %s", address);   // returns -errno
 *
 * A function that takes `struct err *err` fills it when it returns a negative number and leaves it
 * alone otherwise. `err` may be NULL where the caller does not care for the words.
 */
#ifndef BELLJAR_BASE_ERR_H
#define BELLJAR_BASE_ERR_H

#include "base/base.h"

#include <limits.h>

struct err {
    int code; /* an errno value, positive; 0: no error */
    char msg[504];
};
_Static_assert(sizeof(struct err) <= _POSIX_PIPE_BUF, "one write() carries an err whole");

/* The message as written. Returns -code. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The message followed by ": " and what errno `code` means. Returns -code. */
int err_sys(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts context before the message: "start box 7: mount /proc: …". Returns -err->code,
 * or -EIO when there is no err to remember the code: never 0, for callers return it. */
int err_wrap(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
