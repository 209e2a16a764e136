/*
 * The template, made once:
 *
 *   tmpfs root ── usr, lib*, bin, sbin   the host's, read-only, nosuid, nodev (or those of `rootfs`)
 *              ├─ etc                    written here; a few harmless files and directories of the host
 *              ├─ dev                    six device nodes bound from the host, links
 *              ├─ proc                   of the spawner's pid namespace: holds nothing of the host, but
 *              │                         the kernel lets a user namespace mount a fresh proc only
 *              │                         where a whole one is visible already
 *              ├─ sys                    three plain files; no sysfs at all
 *              ├─ opt/belljar            the operator's: runtime, packages; links lead from the runtime's
 *              │                         own path there
 *              ├─ …                      its interpreter's prefix, if it is elsewhere, at its own path
 *              └─ tmp run/belljar workspace dev/shm dev/pts   where sandboxes mount their own
 *
 * Sources are cloned (open_tree) before anything is covered, and attached by descriptor. Nothing of
 * /root, /home, /var or the rest of /etc is ever there.
 */
#include "engine/native/root.h"

#include "engine/native/plan.h"
#include "engine/native/sys.h"
#include "kernel/source.h"
#include "zygote/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
    READ_ONLY = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
    DEVICE = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
};
enum { COPY_MAX = 4 << 20 };

static const char *const directories[] = {
    "etc",
    "etc/ssl",
    "etc/pki",
    "proc",
    "dev",
    "dev/shm",
    "dev/pts",
    "tmp",
    "run",
    "run/belljar",
    "workspace",
    "home",
    "home/user",
    "var",
    "sys",
    "sys/devices",
    "sys/devices/system",
    "sys/devices/system/cpu",
    "opt",
    "opt/belljar",
    "opt/belljar/runtime",
    "opt/belljar/packages",
    "opt/belljar/wheels",
    ".empty", /* covers directories of /proc */
};

static const struct {
    const char *path, *target;
} links[] = {
    { "dev/fd", "/proc/self/fd" },
    { "dev/stdin", "/proc/self/fd/0" },
    { "dev/stdout", "/proc/self/fd/1" },
    { "dev/stderr", "/proc/self/fd/2" },
    { "dev/ptmx", "pts/ptmx" },
    { "var/tmp", "/tmp" },
    { "var/run", "/run" },
    /* Where the programs that profiles replace ran their code. */
    { "app", "/workspace" },
    { "home/user/session", "/workspace" },
};

struct etc_file {
    const char *path, *text;
};
static const struct etc_file etc_files[] = {
    { "etc/passwd", "root:x:0:0:root:/workspace:/bin/sh\n"
                    "guest:x:1000:1000:guest:/workspace:/bin/bash\n"
                    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n" },
    { "etc/group", "root:x:0:\nguest:x:1000:\nnogroup:x:65534:\n" },
    { "etc/hostname", PLAN_HOSTNAME "\n" },
};
static const struct etc_file etc_offline[] = {
    { "etc/hosts", "127.0.0.1 localhost " PLAN_HOSTNAME "\n::1 localhost\n" },
    { "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\n"
                           "protocols: files\n" },
    { "etc/resolv.conf", "" },
};
static const struct etc_file etc_online[] = {
    { "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"
                           "protocols: files\n" },
};
/* With a network; with a rootfs, whose /etc is as it is, they are the host's of this moment. */
static const char *const network_files[] = { "etc/resolv.conf", "etc/hosts" };
/* Files whose content is copied from the host, directories that are bound; what the host lacks is
 * left out. All are public. */
static const char *const host_copies[] = {
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/localtime",
    "etc/timezone",
    "etc/os-release",
    "etc/debian_version",
    "etc/mime.types",
    "etc/services",
    "etc/protocols",
    "etc/magic",
    "etc/matplotlibrc",
    "etc/ssl/openssl.cnf",
    "etc/inputrc",
    "etc/locale.alias",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/present",
};
static const char *const host_binds[] = {
    "etc/alternatives", "etc/ld.so.conf.d", "etc/ssl/certs", "etc/pki/tls",  "etc/ca-certificates",
    "etc/fonts",        "etc/python3",      "etc/perl",      "etc/terminfo",
};
static const char *const programs[] = { "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
static const char *const devices[] = { "dev/null",   "dev/zero",    "dev/full",
                                       "dev/random", "dev/urandom", "dev/tty" };

/*** Building blocks: `root` is the new root, `host` the directory that sources come from ***/

static int make_file(int root, const char *path, const char *text, size_t len, struct err *err)
{
    auto_fd fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len)
        return err_sys(err, errno, "template: %s", path);
    return 0;
}

static int copy_file(int host, int root, const char *path, struct err *err)
{
    auto_fd from = openat(host, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
        return 0; /* not on this host, or not for us: programs do without */
    auto_fd to = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (to < 0)
        return err_sys(err, errno, "template: %s", path);
    char block[16384];
    ssize_t n = 0;
    for (size_t total = 0; total < COPY_MAX && (n = read(from, block, sizeof(block))) > 0;
         total += (size_t)n)
        if (write(to, block, (size_t)n) != n)
            return err_sys(err, errno, "template: write %s", path);
    return n < 0 ? err_sys(err, errno, "template: read %s", path) : 0;
}

/* Attaches the host's `path` at the same place, as a directory or a file. -ENOENT: the host has none. */
static int bind_host(int host, int root, const char *path, uint64_t attributes, struct err *err)
{
    auto_fd tree = sys_clone_tree(host, path);
    struct stat st;
    if (tree < 0 || fstat(tree, &st) < 0)
        return tree == -ENOENT ? -ENOENT : err_sys(err, tree < 0 ? -tree : errno, "clone %s", path);
    int r = sys_mount_restrict(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, attributes);
    if (r < 0)
        return err_sys(err, -r, "restrict the mount of %s", path);
    if (S_ISDIR(st.st_mode)) {
        if (mkdirat(root, path, 0755) < 0 && errno != EEXIST)
            return err_sys(err, errno, "template: %s", path);
    } else if (make_file(root, path, "", 0, err) < 0) {
        return -err->code;
    }
    r = sys_attach_tree(tree, root, path);
    return r < 0 ? err_sys(err, -r, "attach %s", path) : 0;
}

/* What a directory of the operator's holds, read-only. `place` is absolute, as sandboxes see it. */
static int show(int dir, int root, const char *place, struct err *err)
{
    auto_fd tree = dir < 0 ? -1 : sys_clone_tree(dir, ".");
    if (dir < 0)
        return 0;
    int r = tree < 0 ? tree : sys_mount_restrict(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, READ_ONLY);
    if (r == 0)
        r = sys_attach_tree(tree, root, place + 1);
    return r < 0 ? err_sys(err, -r, "show %s", place) : 0;
}

/* -1: there is none, or it cannot be opened and err says why. */
static int open_shown(const char *path, const char *what, struct err *err)
{
    int fd = *path ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (*path && fd < 0)
        (void)err_sys(err, errno, "open %s %s", what, path);
    return fd;
}

/* Makes the directories on the way to `path`, absolute, as sandboxes see it. Returns the last one, and its name
 * in it. Links of the template's are not followed: they lead to what each sandbox has of its own. */
static int make_way(int root, const char *path, const char **ret_name)
{
    int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
    const char *name = path + 1;
    for (const char *end; dir >= 0 && (end = strchr(name, '/')); name = end + 1) {
        auto_fd parent = dir;
        auto_free char *step = xstrndup(name, (size_t)(end - name));
        dir = mkdirat(parent, step, 0755) < 0 && errno != EEXIST
                  ? -1
                  : openat(parent, step, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    *ret_name = name;
    return dir < 0 ? -errno : dir;
}

static int show_base(int base, int root, const char *path, struct err *err)
{
    const char *name;
    auto_fd way = make_way(root, path, &name);
    int r = way < 0 ? way : mkdirat(way, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
    if (r < 0)
        return err_sys(
            err, -r, "runtime: its interpreter's prefix %.200s cannot be shown in sandboxes", path);
    return show(base, root, path, err);
}

/* What is there stays: a directory that is shown, or one of rootfs. */
static void add_links(int root, const struct runtime *runtime)
{
    for (size_t i = 0; i < runtime->n_links; i++) {
        const char *name;
        auto_fd way = make_way(root, runtime->links[i].path, &name);
        if (way >= 0)
            (void)!symlinkat(runtime->links[i].target, way, name);
    }
}

/* As root we are nobody outside, as guests are. */
static int check_reach(const struct runtime *runtime, struct err *err)
{
    if (!runtime->python || access(runtime->python, X_OK) == 0)
        return 0;
    return err_sys(
        err, errno,
        "runtime: sandboxes cannot run %.120s. Let everybody enter its directory and those above "
        "it, or make the environment where everybody may look",
        runtime->python);
}

/* A directory of programs: bound, or the same link as on the host (bin -> usr/bin). */
static int bind_or_link(int host, int root, const char *path, struct err *err)
{
    char target[256];
    ssize_t len = readlinkat(host, path, target, sizeof(target) - 1);
    if (len < 0)
        return bind_host(host, root, path, READ_ONLY, err);
    target[len] = '\0';
    return symlinkat(target, root, path) < 0 ? err_sys(err, errno, "template: %s", path) : 0;
}

static int make_skeleton(int root, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (mkdirat(root, directories[i], 0755) < 0)
            return err_sys(err, errno, "template: %s", directories[i]);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlinkat(links[i].target, root, links[i].path) < 0)
            return err_sys(err, errno, "template: %s", links[i].path);
    return 0;
}

static int make_etc(int root, const struct etc_file *files, size_t n, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++)
        r = make_file(root, files[i].path, files[i].text, strlen(files[i].text), err);
    return r;
}

static int add_network_etc(int root, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(network_files); i++) {
        char target[128];
        (void)snprintf(target, sizeof(target), ENGINE_NETWORK_FILES "/%s",
                       strchr(network_files[i], '/') + 1);
        if (symlinkat(target, root, network_files[i]) < 0)
            return err_sys(err, errno, "template: %s", network_files[i]);
    }
    return make_etc(root, etc_online, ARRAY_SIZE(etc_online), err);
}

/* Over the rootfs's own; where it has none, its programs do without. */
static int cover_network_etc(int host, int root, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(network_files); i++) {
        auto_fd tree = sys_clone_tree(host, network_files[i]);
        int r =
            tree < 0 ? tree : sys_mount_restrict(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, READ_ONLY);
        if (r == 0)
            r = sys_attach_tree(tree, root, network_files[i]);
        if (r < 0 && r != -ENOENT)
            return err_sys(err, -r, "show %s", network_files[i]);
    }
    return 0;
}

static int add_host_programs(int host, int root, bool network, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(programs) && (r == 0 || r == -ENOENT); i++)
        r = bind_or_link(host, root, programs[i], err);
    if (r == 0 || r == -ENOENT)
        r = make_etc(root, etc_files, ARRAY_SIZE(etc_files), err);
    if (r == 0)
        r = network ? add_network_etc(root, err)
                    : make_etc(root, etc_offline, ARRAY_SIZE(etc_offline), err);
    for (size_t i = 0; i < ARRAY_SIZE(host_binds) && (r == 0 || r == -ENOENT); i++)
        r = bind_host(host, root, host_binds[i], READ_ONLY, err);
    return r == -ENOENT ? 0 : r;
}

/* Every top directory of the operator's choice but those that are ours. Its /etc comes whole. */
static int add_rootfs(int rootfs, int root, struct err *err)
{
    static const char *const ours[] = { ".",   "..",  "proc",      "sys", "dev",
                                        "tmp", "run", "workspace", "var", "opt" };
    int fd = openat(rootfs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return err_sys(err, errno, "read rootfs");
    int r = 0;
    struct dirent *entry;
    while (r == 0 && (entry = readdir(dir))) {
        bool own = false;
        for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
            own |= strcmp(entry->d_name, ours[i]) == 0;
        if (!own && (entry->d_type == DT_DIR || entry->d_type == DT_LNK))
            r = bind_or_link(rootfs, root, entry->d_name, err);
    }
    (void)closedir(dir);
    return r;
}

static int add_zygote(int root, struct err *err)
{
    int r = make_file(root, "run/belljar/kernel.py", kernel_source, kernel_source_len, err);
    if (r == 0)
        r = make_file(root, "run/belljar/zygote.py", zygote_source, zygote_source_len, err);
    if (r == 0)
        r = make_file(root, "run/belljar/zygote.so", zygote_library, zygote_library_len, err);
    return r;
}

/*** The template ***/

/* Somewhere to put the new root while it grows. It covers what is there for this process only, and
 * nothing that is copied comes from there. */
static int mount_new_root(struct err *err)
{
    static const char *const places[] = { "/tmp", "/mnt", "/run" };
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        if (mount("belljar", places[i], "tmpfs", MS_NOSUID | MS_NODEV,
                  "mode=0755,size=16m,nr_inodes=4096") == 0) {
            int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            return fd < 0 ? err_sys(err, errno, "open the new root") : fd;
        }
        if (errno != ENOENT)
            return err_sys(err, errno, "mount a tmpfs on %s", places[i]);
    }
    return err_set(err, ENOENT, "neither /tmp nor /mnt nor /run is there to mount on");
}

static int mount_proc(int root, struct err *err)
{
    if (fchdir(root) < 0)
        return err_sys(err, errno, "enter the new root");
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return errno == EPERM
                   ? err_set(
                         err, EPERM,
                         "mount /proc: not permitted: parts of this machine's /proc are hidden (a "
                         "container?). Start the container with unmasked paths, for example "
                         "docker run --security-opt systempaths=unconfined")
                   : err_sys(err, errno, "mount /proc");
    return 0;
}

static int pivot(struct err *err)
{
    /* "." twice: the old root ends up over the new one and is taken off at once. */
    int r = sys_pivot_root(".", ".");
    if (r < 0)
        return err_sys(err, -r, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_sys(err, errno, "detach the host's root");
    r = sys_mount_restrict(AT_FDCWD, "/", 0, READ_ONLY);
    return r < 0 ? err_sys(err, -r, "make the root read-only") : 0;
}

int root_template(const struct root_plan *plan, struct err *err)
{
    const char *rootfs = plan->rootfs;
    /* First: nothing that is mounted from here on may show outside. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, errno, "make mounts private");
    umask(022);
    auto_fd host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_fd chosen = open(*rootfs ? rootfs : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host < 0 || chosen < 0)
        return err_sys(err, errno, "open rootfs %s", rootfs);
    struct err unopened = { 0 };
    const struct runtime *parts = plan->runtime;
    int r = check_reach(parts, err);
    if (r < 0)
        return r;
    auto_fd runtime = open_shown(parts->dir ? parts->dir : "", "runtime", &unopened);
    _Static_assert(RUNTIME_BASES_MAX == 2, "each is opened");
    auto_fd base = open_shown(parts->n_bases > 0 ? parts->bases[0] : "", "runtime's", &unopened);
    auto_fd home = open_shown(parts->n_bases > 1 ? parts->bases[1] : "", "runtime's", &unopened);
    auto_fd packages = open_shown(plan->packages, "package_dir", &unopened);
    auto_fd wheels =
        plan->network ? open_shown(plan->network->wheels, "package_wheels", &unopened) : -1;
    if (unopened.code)
        return err_set(err, unopened.code, "%s", unopened.msg);
    auto_fd root = mount_new_root(err);
    if (root < 0)
        return root;

    r = make_skeleton(root, err);
    if (r == 0)
        r = *rootfs ? add_rootfs(chosen, root, err)
                    : add_host_programs(host, root, plan->network != NULL, err);
    if (r == 0 && *rootfs && plan->network)
        r = cover_network_etc(host, root, err);
    for (size_t i = 0; i < ARRAY_SIZE(host_copies) && r == 0; i++)
        if (!*rootfs || strncmp(host_copies[i], "etc/", 4) != 0)
            r = copy_file(host, root, host_copies[i], err);
    if (r == 0)
        r = show(runtime, root, ENGINE_RUNTIME, err);
    if (r == 0 && base >= 0)
        r = show_base(base, root, parts->bases[0], err);
    if (r == 0 && home >= 0)
        r = show_base(home, root, parts->bases[1], err);
    if (r == 0)
        add_links(root, parts);
    if (r == 0)
        r = show(packages, root, ENGINE_PACKAGES, err);
    if (r == 0)
        r = show(wheels, root, ENGINE_WHEELS, err);
    if (r == 0 && plan->with_zygote)
        r = add_zygote(root, err);
    for (size_t i = 0; i < ARRAY_SIZE(devices) && r == 0; i++)
        r = bind_host(host, root, devices[i], DEVICE, err);
    if (r == 0)
        r = mount_proc(root, err);
    return r == 0 ? pivot(err) : r;
}
