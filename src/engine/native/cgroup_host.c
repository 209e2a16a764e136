/*
 * Which cgroups this host offers, and this instance's own directory in each. Runs at start and, for
 * the removal, in the keeper. It reads the kernel's own tables and nothing else.
 */
#include "engine/native/cgroup.h"

#include "engine/native/sys.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include <linux/magic.h>

enum { LINE_MAX_ = 4096 };

static const struct {
    unsigned bit;
    const char *name;
} controllers[] = {
    { CGROUP_MEMORY, "memory" },
    { CGROUP_PIDS, "pids" },
    { CGROUP_CPU, "cpu" },
    { CGROUP_CPUACCT, "cpuacct" },
};
enum { CGROUP_LIMITS = CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU };

/* Whether `list` ("cpu,cpuacct" or "cpu memory pids") holds `name`. */
static bool list_has(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; *at;) {
        size_t span = strcspn(at, ", \n");
        if (span == len && memcmp(at, name, len) == 0)
            return true;
        at += span + (at[span] != '\0');
    }
    return false;
}

static unsigned list_controllers(const char *list)
{
    unsigned found = 0;
    for (size_t i = 0; i < ARRAY_SIZE(controllers); i++)
        if (list_has(list, controllers[i].name))
            found |= controllers[i].bit;
    return found;
}

/* The first line of a small kernel file, "" when it cannot be read. */
static void read_line(const char *path, char *out, size_t size)
{
    out[0] = '\0';
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, out, size - 1);
    out[len > 0 ? len : 0] = '\0';
}

static int write_file(const char *path, const char *text)
{
    auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/*** Where this process sits ***/

/* This process's cgroup in the hierarchy of `controller` (NULL: v2), from /proc/self/cgroup. */
static bool own_cgroup(const char *controller, char *out, size_t size)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[LINE_MAX_];
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file)) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        list++;
        path[strcspn(path, "\n")] = '\0';
        found = controller ? list_has(list, controller) : *list == '\0';
        if (found)
            found = (size_t)snprintf(out, size, "%s", path) < size;
    }
    if (file)
        (void)fclose(file);
    return found;
}

/* A line of /proc/self/mountinfo: "36 35 98:0 /root /where rw … - type source options". */
struct mount_line {
    char *root, *where, *type, *options;
};

static bool parse_mount(char *line, struct mount_line *ret)
{
    char *field[6], *at = line, *save = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(field); i++, at = NULL)
        if (!(field[i] = strtok_r(at, " ", &save)))
            return false;
    char *word = strtok_r(NULL, " ", &save);
    while (word && strcmp(word, "-") != 0)
        word = strtok_r(NULL, " ", &save);
    *ret = (struct mount_line){ .root = field[3], .where = field[4] };
    ret->type = strtok_r(NULL, " ", &save);
    (void)strtok_r(NULL, " ", &save);
    ret->options = strtok_r(NULL, " \n", &save);
    return ret->type && ret->options;
}

/* The directory of this process's cgroup below a mount, "" when it is not visible there. */
static void own_directory(const struct mount_line *mount, const char *cgroup, char *out,
                          size_t size)
{
    size_t root = strcmp(mount->root, "/") == 0 ? 0 : strlen(mount->root);
    bool below = strncmp(cgroup, mount->root, root) == 0 && strstr(cgroup, "/..") == NULL;
    const char *rest = below ? cgroup + root : "";
    if (!below || (size_t)snprintf(out, size, "%s%s", mount->where,
                                   strcmp(rest, "/") == 0 ? "" : rest) >= size)
        out[0] = '\0';
}

static void add_tree(struct cgroups *cgroups, unsigned bits, const char *path)
{
    if (cgroups->n == CGROUP_TREES_MAX || (cgroups->controllers & bits) == bits)
        return; /* mounted twice */
    struct cgroup_tree *tree = &cgroups->trees[cgroups->n++];
    tree->controllers = bits;
    tree->dir = -1;
    (void)snprintf(tree->path, sizeof(tree->path), "%s", path);
    cgroups->controllers |= bits;
}

/* A second engine of the same process: the first has moved it into a leaf, beside which there is room
 * and controllers are passed on already. */
static void leave_server_leaf(char *dir)
{
    static const char begin[] = "/belljar-", end[] = "-server";
    char *last = strrchr(dir, '/');
    size_t len = last ? strlen(last) : 0;
    if (len > sizeof(begin) + sizeof(end) && strncmp(last, begin, sizeof(begin) - 1) == 0 &&
        strcmp(last + len - (sizeof(end) - 1), end) == 0)
        *last = '\0';
}

/* v2: those that a directory could pass on. */
static unsigned controllers_at(const char *dir)
{
    char path[CGROUP_PATH_MAX + 32], list[512];
    (void)snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
    read_line(path, list, sizeof(list));
    return list_controllers(list) & CGROUP_LIMITS;
}

bool cgroup_go_up(char *dir)
{
    char path[CGROUP_PATH_MAX + 32];
    char *last = strrchr(dir, '/');
    if (!last || last == dir)
        return false;
    *last = '\0';
    (void)snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
    return access(path, F_OK) == 0;
}

static bool find_v2(struct cgroups *cgroups, const struct mount_line *mount)
{
    char cgroup[CGROUP_PATH_MAX], dir[CGROUP_PATH_MAX], above[CGROUP_PATH_MAX];
    if (strcmp(mount->type, "cgroup2") != 0 || !own_cgroup(NULL, cgroup, sizeof(cgroup)))
        return false;
    own_directory(mount, cgroup, dir, sizeof(dir));
    leave_server_leaf(dir);
    unsigned bits = controllers_at(dir);
    memcpy(above, dir, sizeof(above));
    while (cgroup_go_up(above))
        bits |= controllers_at(above);
    if (!dir[0] || !(bits & CGROUP_MEMORY))
        return false; /* a v2 tree without controllers beside v1: the others have them */
    *cgroups = (struct cgroups){ .kind = CGROUP_V2 };
    add_tree(cgroups, bits, dir);
    return true;
}

static void find_v1(struct cgroups *cgroups, const struct mount_line *mount)
{
    unsigned bits = strcmp(mount->type, "cgroup") == 0 ? list_controllers(mount->options) : 0;
    for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
        char cgroup[CGROUP_PATH_MAX], dir[CGROUP_PATH_MAX];
        if (!(bits & controllers[i].bit) ||
            !own_cgroup(controllers[i].name, cgroup, sizeof(cgroup)))
            continue;
        own_directory(mount, cgroup, dir, sizeof(dir));
        if (!dir[0])
            return;
        cgroups->kind = CGROUP_V1;
        add_tree(cgroups, bits, dir);
        return;
    }
}

void cgroups_find(struct cgroups *ret)
{
    *ret = (struct cgroups){ .kind = CGROUP_NONE };
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[LINE_MAX_];
    struct mount_line mount;
    bool v2 = false;
    while (file && !v2 && fgets(line, sizeof(line), file)) {
        if (!parse_mount(line, &mount))
            continue;
        v2 = find_v2(ret, &mount);
        if (!v2)
            find_v1(ret, &mount);
    }
    if (file)
        (void)fclose(file);
}

/*** This instance's directories ***/

/* The process itself, or a child of it. */
static bool is_ours(pid_t pid)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    read_line(path, text, sizeof(text));
    const char *rest = strrchr(text, ')'); /* "pid (name) state parent …" */
    return pid == getpid() || (rest && strlen(rest) > 4 && strtol(rest + 4, NULL, 10) == getpid());
}

/* Those of one cgroup that are ours go into another. */
static int move_ours(const char *from, const char *to)
{
    char path[CGROUP_PATH_MAX + 64], line[32];
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", from);
    FILE *file = fopen(path, "re");
    int r = file ? 0 : -errno;
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", to);
    while (file && r == 0 && fgets(line, sizeof(line), file)) {
        pid_t pid = (pid_t)strtol(line, NULL, 10);
        if (pid > 0 && is_ours(pid))
            r = write_file(path, line);
        if (r == -ESRCH) /* it has ended */
            r = 0;
    }
    if (file)
        (void)fclose(file);
    return r;
}

static int write_control(const char *home, unsigned bits)
{
    char path[CGROUP_PATH_MAX + 64], value[64] = "";
    for (size_t i = 0; i < ARRAY_SIZE(controllers); i++)
        if (bits & controllers[i].bit)
            (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "+%s ",
                           controllers[i].name);
    (void)snprintf(path, sizeof(path), "%s/cgroup.subtree_control", home);
    return write_file(path, value);
}

/* v2 passes controllers on only from a directory without processes: our own go into a leaf if they must. */
static int make_room(struct cgroups *cgroups, const char *home, const char *instance, unsigned bits)
{
    char leaf[CGROUP_PATH_MAX];
    if ((size_t)snprintf(leaf, sizeof(leaf), "%s/belljar-%s-server", home, instance) >=
        sizeof(leaf))
        return -ENAMETOOLONG;
    if (mkdir(leaf, 0755) < 0 && errno != EEXIST)
        return -errno;
    int r = move_ours(home, leaf);
    if (r == 0)
        r = write_control(home, bits);
    if (r < 0) {
        (void)move_ours(leaf, home);
        (void)rmdir(leaf);
        return r;
    }
    (void)snprintf(cgroups->home, sizeof(cgroups->home), "%s", home);
    (void)snprintf(cgroups->server_leaf, sizeof(cgroups->server_leaf), "%s", leaf);
    return 0;
}

/* Gives the files that a manager of the subtree writes to `owner`; limits of the directory itself
 * stay with us. */
static int give(const struct cgroups *cgroups, const char *path, uid_t owner)
{
    static const char *const v2_files[] = { "cgroup.procs", "cgroup.subtree_control" };
    if (chown(path, owner, (gid_t)-1) < 0)
        return -errno;
    for (size_t i = 0; cgroups->kind == CGROUP_V2 && i < ARRAY_SIZE(v2_files); i++) {
        char file[CGROUP_PATH_MAX + 32];
        (void)snprintf(file, sizeof(file), "%s/%s", path, v2_files[i]);
        if (chown(file, owner, (gid_t)-1) < 0)
            return -errno;
    }
    return 0;
}

static int make_dir(const struct cgroups *cgroups, struct cgroup_tree *tree, const char *home,
                    const char *instance, uid_t owner)
{
    if ((size_t)snprintf(tree->path, sizeof(tree->path), "%.900s/belljar-%.64s", home, instance) >=
        sizeof(tree->path))
        return -ENAMETOOLONG;
    if (mkdir(tree->path, 0755) < 0)
        return -errno;
    int r = give(cgroups, tree->path, owner);
    if (r == 0)
        tree->dir = open(tree->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && tree->dir < 0)
        r = -errno;
    if (r < 0)
        (void)rmdir(tree->path);
    return r;
}

/* v2: below our own cgroup, if nobody but us is in it or it passes controllers on already: a service, a scope that was
 * delegated. Else below the next above it where we may: a shell and all that is started there are in one, which
 * so cannot have any below it. `wanted`: what it must be able to pass on. */
static int open_v2(struct cgroups *cgroups, struct cgroup_tree *tree, const char *instance,
                   uid_t owner, unsigned wanted)
{
    char home[CGROUP_PATH_MAX];
    int first = -ENOENT; /* why not below our own: what can be mended */
    bool own = true;
    memcpy(home, tree->path, sizeof(home));
    do {
        unsigned bits = controllers_at(home);
        if ((bits & wanted) == wanted) {
            int r = write_control(home, bits);
            if (r == -EBUSY && own)
                r = make_room(cgroups, home, instance, bits);
            if (r == 0)
                r = make_dir(cgroups, tree, home, instance, owner);
            if (r == 0) {
                tree->controllers = bits;
                return 0;
            }
            first = first == -ENOENT ? r : first;
        }
        own = false;
    } while (cgroup_go_up(home));
    return first;
}

static int open_tree_dir(struct cgroups *cgroups, struct cgroup_tree *tree, const char *instance,
                         uid_t owner)
{
    char home[CGROUP_PATH_MAX];
    memcpy(home, tree->path, sizeof(home));
    if (cgroups->kind != CGROUP_V2)
        return make_dir(cgroups, tree, home, instance, owner);
    int r = open_v2(cgroups, tree, instance, owner, CGROUP_LIMITS);
    if (r == 0)
        return r;
    memcpy(tree->path, home, sizeof(home));
    return open_v2(cgroups, tree, instance, owner, CGROUP_MEMORY);
}

static void note_missing(struct cgroups *cgroups, unsigned bits, const char *why)
{
    size_t len = strlen(cgroups->missing);
    for (size_t i = 0; i < ARRAY_SIZE(controllers) && len < sizeof(cgroups->missing); i++)
        if (bits & CGROUP_LIMITS & controllers[i].bit)
            len += (size_t)snprintf(cgroups->missing + len, sizeof(cgroups->missing) - len,
                                    "%s%s (%s)", len ? ", " : "", controllers[i].name, why);
}

void cgroups_open(struct cgroups *ret, const char *instance, uid_t owner)
{
    cgroups_find(ret);
    note_missing(ret, CGROUP_LIMITS & ~ret->controllers, "no such cgroup controller is mounted");
    ret->controllers = 0;
    size_t kept = 0;
    for (size_t i = 0; i < ret->n; i++) {
        struct cgroup_tree tree = ret->trees[i];
        char home[CGROUP_PATH_MAX];
        memcpy(home, tree.path, sizeof(home));
        unsigned found = tree.controllers;
        int r = open_tree_dir(ret, &tree, instance, owner);
        note_missing(ret, r < 0 ? 0 : found & ~tree.controllers,
                     "not passed on to where we may be");
        if (r < 0) {
            char why[CGROUP_PATH_MAX + 64];
            (void)snprintf(why, sizeof(why), "%s: %s", home, strerror(-r));
            note_missing(ret, found, why);
            continue;
        }
        ret->controllers |= tree.controllers;
        ret->trees[kept++] = tree;
    }
    ret->n = kept;
    if (kept == 0)
        ret->kind = CGROUP_NONE;
}

void cgroups_close(struct cgroups *cgroups)
{
    for (size_t i = 0; i < cgroups->n; i++) {
        fd_closep(&cgroups->trees[i].dir);
        cgroups->trees[i].dir = -1;
    }
}

int cgroups_enter(const struct cgroups *cgroups)
{
    const struct cgroup_tree *tree = &cgroups->trees[0];
    if (mkdirat(tree->dir, "spawner", 0755) < 0)
        return -errno;
    auto_fd procs = openat(tree->dir, "spawner/cgroup.procs", O_WRONLY | O_CLOEXEC);
    auto_fd control = openat(tree->dir, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
    if (procs < 0 || control < 0 || write(procs, "0", 1) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
        char value[16];
        int len = snprintf(value, sizeof(value), "+%s", controllers[i].name);
        if ((tree->controllers & controllers[i].bit) && write(control, value, (size_t)len) < 0)
            return -errno;
    }
    return 0;
}

/*** Removal ***/

static void kill_members(int dir)
{
    auto_fd kill_all = openat(dir, "cgroup.kill", O_WRONLY | O_CLOEXEC); /* v2, Linux 5.14 */
    if (kill_all >= 0 && write(kill_all, "1", 1) == 1)
        return;
    int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "re") : NULL;
    char line[32];
    while (file && fgets(line, sizeof(line), file)) {
        pid_t pid = (pid_t)strtol(line, NULL, 10);
        if (pid > 1 && pid != getpid())
            (void)kill(pid, SIGKILL); /* gone already: all the better */
    }
    if (file)
        (void)fclose(file);
    else
        fd_closep(&fd);
}

/* Children first. Depth is ours: at most three. */
static int remove_below(int parent, const char *name, int depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    while (dir && depth > 0 && (entry = readdir(dir)))
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            (void)remove_below(fd, entry->d_name, depth - 1); /* seen by the rmdir below */
    kill_members(fd);
    int r = 0;
    for (int i = 0; i < 100; i++) { /* a killed process leaves its cgroup a moment later */
        r = unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
        if (r != -EBUSY)
            break;
        (void)nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
    }
    if (dir)
        (void)closedir(dir);
    return r;
}

int cgroup_remove_path(const char *path)
{
    struct statfs fs;
    if (statfs(path, &fs) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fs.f_type != CGROUP_SUPER_MAGIC && fs.f_type != CGROUP2_SUPER_MAGIC)
        return -EINVAL;
    return remove_below(AT_FDCWD, path, 3);
}

int cgroups_remove(const struct cgroups *cgroups)
{
    int r = 0;
    for (size_t i = 0; i < cgroups->n; i++) {
        int removed = cgroup_remove_path(cgroups->trees[i].path);
        r = removed < 0 ? removed : r;
    }
    return r;
}

void cgroups_go_home(const struct cgroups *cgroups, pid_t server)
{
    if (!cgroups->home[0])
        return;
    /* Best effort throughout: at worst an empty directory stays. */
    char path[CGROUP_PATH_MAX + 64], pid[16];
    (void)snprintf(path, sizeof(path), "%s/cgroup.subtree_control", cgroups->home);
    (void)write_file(path, "-memory -pids -cpu");
    (void)move_ours(cgroups->server_leaf, cgroups->home);
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", cgroups->home);
    (void)snprintf(pid, sizeof(pid), "%d", (int)server);
    (void)write_file(path, pid);
    (void)rmdir(cgroups->server_leaf);
}
