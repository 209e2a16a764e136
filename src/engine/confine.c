/*
 * What the server itself may reach: Landlock, which also binds a process that somebody has taken over.
 */
#include "engine/ops.h"

#include "base/log.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>

/* Each interface knows all that the one before it did. */
enum {
    FS_ALL_2 = (1 << 14) - 1, /* up to LANDLOCK_2_REFER */
    FS_ALL_3 = (1 << 15) - 1, /* with LANDLOCK_3_TRUNCATE */
    FS_ALL_5 = (1 << 16) - 1, /* with ioctl() on devices */
    FS_OWN = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE |
             LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_DIR |
             LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
             LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_2_REFER | LANDLOCK_3_TRUNCATE,
};

/* libuv keeps it open as its spare descriptor, and asks for it with every stream that it is refused for. */
static const char null[] = "/dev/null";

/* Where hosts say how names become addresses. Directories: these files are replaced, not rewritten. */
static const char *const names[] = { "/etc", "/run/systemd/resolve", "/run/NetworkManager",
                                     "/run/resolvconf", NULL };

static struct landlock_ruleset_6 everything(int abi)
{
    return (struct landlock_ruleset_6){
        .handled_access_fs = abi >= 5   ? FS_ALL_5
                             : abi >= 3 ? FS_ALL_3
                                        : FS_ALL_2,
        .handled_access_net = abi >= 4 ? LANDLOCK_4_BIND_TCP | LANDLOCK_4_CONNECT_TCP : 0,
        .scoped = abi >= 6 ? LANDLOCK_6_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_6_SCOPE_SIGNAL : 0,
    };
}

/* A file, or a directory with all below it. 0, or -errno: -ENOENT where there is none. */
static int allow(int ruleset, const char *path, uint64_t access)
{
    auto_fd fd = open(path, O_PATH | O_CLOEXEC);
    return fd < 0 ? -errno : sys_landlock_allow_path(ruleset, access, fd);
}

static int allow_all(int ruleset, const struct engine *engine, const struct engine_reach *reach,
                     const struct landlock_ruleset_6 *handled, struct err *err)
{
    (void)allow(ruleset, null, LANDLOCK_ACCESS_FS_READ_FILE); /* it does without, too */
    for (const char *const *at = reach->dirs; *at; at++) {
        int r = allow(ruleset, *at, FS_OWN & handled->handled_access_fs);
        if (r < 0)
            return err_sys(err, -r, "keep access to %s", *at);
    }
    for (const char *const *at = names; *at && (reach->names || engine->tcp_port); at++) {
        int r = allow(ruleset, *at, LANDLOCK_ACCESS_FS_READ_FILE);
        if (r < 0 && r != -ENOENT)
            return err_sys(err, -r, "keep access to %s", *at);
    }
    if (!engine->tcp_port || !handled->handled_access_net)
        return 0;
    int r = sys_landlock_allow_port(ruleset, LANDLOCK_4_CONNECT_TCP, engine->tcp_port);
    return r < 0 ? err_sys(err, -r, "keep access to port %u", engine->tcp_port) : 0;
}

/* A sanitizer reads and writes files of its own to the end. */
static bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return true;
#elif defined(__has_feature)
    return __has_feature(address_sanitizer);
#else
    return false;
#endif
}

int engine_confine(const struct engine *engine, const struct engine_reach *reach, struct err *err)
{
    enum { ABI_MIN = 2 }; /* before it no file could be moved between directories */
    int abi = sys_landlock_abi();
    if (is_sanitized() || abi < ABI_MIN) {
        log_info("the server can reach all files of its user: there is no Landlock here");
        return 0;
    }
    struct landlock_ruleset_6 handled = everything(abi);
    auto_fd ruleset = sys_landlock_create(&handled);
    if (ruleset < 0)
        return err_sys(err, -ruleset, "make a Landlock ruleset");
    int r = allow_all(ruleset, engine, reach, &handled, err);
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "set no_new_privs");
    r = sys_landlock_restrict_self(ruleset);
    return r < 0 ? err_sys(err, -r, "confine the server (Landlock)") : 0;
}
