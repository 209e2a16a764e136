#include "base/dir.h"

#include "base/base.h"

#include <errno.h>
#include <sys/stat.h>

int dir_make(const char *path, mode_t mode, const char *option, struct err *err)
{
    auto_free char *copy = xstrdup(path);
    for (char *at = copy + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return err_sys(err, errno, "%s: make %s", option, copy);
        *at = '/';
    }
    if (mkdir(copy, mode) < 0 && errno != EEXIST)
        return err_sys(err, errno, "%s: make %s", option, copy);
    return 0;
}
