#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->code = code;
        (void)vsnprintf(err->msg, sizeof(err->msg), fmt,
                        args); /* a cut message is still a message */
        va_end(args);
    }
    return -code;
}

int err_sys(struct err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        auto_free char *what = xvasprintf(fmt, args);
        va_end(args);
        err_set(err, code, "%s: %s", what, strerror(code));
    }
    return -code;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    if (!err)
        return -EIO;
    va_list args;
    va_start(args, fmt);
    auto_free char *context = xvasprintf(fmt, args);
    va_end(args);
    auto_free char *inner = xstrdup(err->msg);
    return err_set(err, err->code, "%s: %s", context, inner);
}
