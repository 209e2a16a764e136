#include "agent/path.h"
#include "agent/frame.h"
#include "agent/sys.h"

#include <fcntl.h>
#include <string.h>

/*** text ***/

/* What is left of an absolute path below the workspace, or NULL. */
static const char *strip_workspace(const char *workspace, const char *path, size_t *len)
{
    size_t n = strlen(workspace);
    if (*len < n || memcmp(path, workspace, n) != 0 || (*len > n && path[n] != '/'))
        return NULL;
    *len -= n;
    return path + n;
}

int path_clean(const char *workspace, const char *path, size_t len, char ret[PATH_BYTES])
{
    if (len > 0 && path[0] == '/') {
        path = strip_workspace(workspace, path, &len);
        if (!path)
            return -EXDEV;
    }
    char clean[PATH_BYTES]; /* *ret is written on success only */
    size_t used = 0;
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t n = slash ? (size_t)(slash - (path + at)) : len - at;
        const char *name = path + at;
        at += n + 1;
        if (n == 0 || (n == 1 && name[0] == '.'))
            continue;
        if (n == 2 && name[0] == '.' && name[1] == '.')
            return -EXDEV;
        if (n > FRAME_NAME_MAX || used + 1 + n >= sizeof(clean))
            return -ENAMETOOLONG;
        if (used)
            clean[used++] = '/';
        memcpy(clean + used, name, n);
        used += n;
    }
    clean[used] = '\0';
    memcpy(ret, clean, used + 1);
    return 0;
}

const char *path_split(const char *clean, char ret_dir[PATH_BYTES])
{
    const char *slash = strrchr(clean, '/');
    size_t len = slash ? (size_t)(slash - clean) : 0;
    memcpy(ret_dir, clean, len);
    ret_dir[len] = '\0';
    return slash ? slash + 1 : clean;
}

/*** walking ***/

enum { ALWAYS = O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

/* O_PATH takes few other flags, and openat2() is strict about it. */
static int with_always(int flags)
{
    return flags & O_PATH ? flags | O_CLOEXEC : flags | ALWAYS;
}

static int walk(int root, const char *clean, int flags)
{
    int at = root;
    for (const char *name = clean;;) {
        char part[FRAME_NAME_MAX + 1];
        size_t n = strcspn(name, "/");
        if (n > FRAME_NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(part, name, n);
        part[n] = '\0';
        bool last = name[n] == '\0';
        int next = openat(at, part,
                          last ? with_always(flags) | O_NOFOLLOW
                               : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int code = errno;
        if (at != root)
            close(at);
        if (next < 0)
            return -code;
        if (last)
            return next;
        at = next;
        name += n + 1;
    }
}

int path_open(int root, const char *clean, int flags, enum path_links links)
{
    const char *path = *clean ? clean : ".";
    uint64_t resolve = SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_MAGICLINKS |
                       (links == PATH_NO_LINKS ? SYS_RESOLVE_NO_SYMLINKS : 0);
    /* EAGAIN: a directory on the way was moved meanwhile, and the kernel cannot vouch for `..` in a
     * link. A guest may play that game for ever; we do not. */
    int r = -EAGAIN;
    for (int i = 0; i < 16 && r == -EAGAIN; i++)
        r = sys_openat2(root, path, with_always(flags), resolve);
    return r == -ENOSYS || r == -EPERM ? walk(root, path, flags) : r;
}
