/* mount(2) rather than the new calls, which need three steps for one. */
#include "agent/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PROC_MAGIC = 0x9fa0 };
/* Options are copied by the page. Where there is less behind them, as near the stack's end, the kernel finds out
 * by a fault, and then once more byte by byte. */
enum { OPTIONS_SIZE = 4096 };

/* As in the OCI's list, and what else tells about the host. What is not there needs no mask; nor does
 * what only root may open (kpagecount, slabinfo, vmallocinfo …): root is not in here. */
static const char *const masked_files[] = {
    "/proc/kcore",       "/proc/keys",          "/proc/key-users",     "/proc/timer_list",
    "/proc/sched_debug", "/proc/latency_stats", "/proc/sysrq-trigger", "/proc/kallsyms",
    "/proc/config.gz",   "/proc/cmdline",
};
static const char *const masked_directories[] = {
    "/proc/acpi", "/proc/asound", "/proc/bus",  "/proc/driver",
    "/proc/fs",   "/proc/irq",    "/proc/scsi",
};

static int mask(const char *const *paths, size_t n, const char *with, const char **ret_step)
{
    for (size_t i = 0; i < n; i++)
        if (mount(with, paths[i], NULL, MS_BIND, NULL) < 0 && errno != ENOENT) {
            *ret_step = paths[i];
            return -errno;
        }
    return 0;
}

static int private_proc(const char **ret_step)
{
    *ret_step = "mount /proc";
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return -errno;
    struct statfs fs;
    if (statfs("/proc", &fs) < 0 || fs.f_type != PROC_MAGIC)
        return -EINVAL;
    int r =
        mask(masked_files, sizeof(masked_files) / sizeof(masked_files[0]), "/dev/null", ret_step);
    if (r == 0)
        r = mask(masked_directories, sizeof(masked_directories) / sizeof(masked_directories[0]),
                 "/.empty", ret_step);
    if (r < 0)
        return r;
    *ret_step = "make /proc/sys read-only";
    if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, "/proc/sys", NULL,
              MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return -errno;
    return 0;
}

static int private_tmpfs(const char *path, unsigned uid, unsigned mode, uint64_t bytes,
                         uint64_t inodes, char options[static OPTIONS_SIZE])
{
    (void)snprintf(options, OPTIONS_SIZE,
                   "mode=%o,uid=%u,gid=%u,size=%" PRIu64 ",nr_inodes=%" PRIu64, mode, uid, uid,
                   bytes, inodes);
    return mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 ? -errno : 0;
}

int places_mount(const struct mould *mould, const struct mould_order *order, const char **ret_step)
{
    bool own = mould->setup.own_uids;
    unsigned guest = own ? order->guest_uid : order->setup.guest_uid;
    unsigned agent = own ? order->agent_uid : guest;
    const struct {
        const char *path;
        unsigned uid, mode;
    } places[MOULD_PLACES] = {
        [MOULD_TMP] = { "/tmp", guest, 01777 },
        [MOULD_SHM] = { "/dev/shm", guest, 01777 },
        [MOULD_WORKSPACE] = { AGENT_WORKSPACE, guest, 0755 },
        [MOULD_RUN_DIR] = { AGENT_RUN_DIR, agent, 0755 },
    };
    char options[OPTIONS_SIZE];
    int r = private_proc(ret_step);
    for (size_t i = 0; i < MOULD_PLACES && r == 0; i++) {
        *ret_step = places[i].path;
        r = private_tmpfs(places[i].path, places[i].uid, places[i].mode, order->places[i].bytes,
                          order->places[i].inodes, options);
    }
    if (r < 0)
        return r;
    *ret_step = "mount /dev/pts";
    (void)snprintf(options, sizeof(options), "newinstance,ptmxmode=0666,mode=0620,max=%u",
                   mould->setup.ptys);
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options) < 0)
        return -errno;
    *ret_step = "enter " AGENT_WORKSPACE;
    return chdir(AGENT_WORKSPACE) < 0 ? -errno : 0;
}
