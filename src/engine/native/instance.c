#include "engine/native/instance.h"

#include "base/json.h"
#include "base/log.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A name that is a path component and nothing else. */
static bool good_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= 64 && name[0] != '.' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == len;
}

enum lock_how { LOCK_MAKE, LOCK_TRY, LOCK_WAIT };

/* Locks the file of that name, making it if asked; the lock counts only when the name still leads
 * to the same file, for its last owner may have removed it meanwhile. */
static int lock_file(int dir, const char *name, enum lock_how how)
{
    bool make = how == LOCK_MAKE;
    for (;;) {
        auto_fd fd =
            openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
        struct stat ours, there;
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX | (how == LOCK_WAIT ? 0 : LOCK_NB)) < 0)
            return errno == EWOULDBLOCK ? -EBUSY : -errno;
        if (fstat(fd, &ours) == 0 && fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
            ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
            return steal_fd(&fd);
        if (!make)
            return -ENOENT;
    }
}

/* The directories of that instance below `home`, under the names that cgroups_open() gives them.
 * cgroup_remove_path() checks that it is a cgroup file system. */
static void remove_below(const char *home, const char *id)
{
    static const char *const suffixes[] = { "", "-server" };
    for (size_t i = 0; home[0] == '/' && i < ARRAY_SIZE(suffixes); i++) {
        auto_free char *path = xasprintf("%s/belljar-%s%s", home, id, suffixes[i]);
        int r = cgroup_remove_path(path);
        if (r < 0)
            log_warning("leaving %s of a dead instance: %s", path, strerror(-r));
    }
}

/* What the file says that its last owner had made; nothing when that has cleaned up itself. */
static void remove_noted(int lock, const char *id)
{
    int fd = fcntl(lock, F_DUPFD_CLOEXEC, 0);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
    char home[CGROUP_PATH_MAX];
    while (file && fgets(home, sizeof(home), file)) {
        home[strcspn(home, "\n")] = '\0';
        remove_below(home, id);
    }
    if (file)
        (void)fclose(file);
}

int instance_open(const char *state_dir, const char *kind, const char *id, struct instance *ret,
                  struct err *err)
{
    if (!good_name(id))
        return err_set(err, EINVAL, "instance name: 1 to 64 letters, digits, '_', '.' or '-'");
    auto_free char *path = xasprintf("%s/%s", state_dir, kind);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make %s", path);
    auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (dir < 0 || fstat(dir, &st) < 0)
        return err_sys(err, errno, "open %s", path);
    /* What is written there is later removed with our rights. */
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return err_set(err, EPERM, "%s must belong to uid %u and be writable for nobody else", path,
                       geteuid());
    int lock = lock_file(dir, id, LOCK_MAKE);
    if (lock < 0)
        return lock == -EBUSY
                   ? err_set(err, EBUSY, "instance %s runs already, with the state in %s", id,
                             state_dir)
                   : err_sys(err, -lock, "lock %s/%s", path, id);
    *ret = (struct instance){ .dir = steal_fd(&dir), .lock = lock };
    (void)snprintf(ret->id, sizeof(ret->id), "%s", id);
    return 0;
}

int instance_note(const struct instance *instance, struct err *err)
{
    struct cgroups found;
    cgroups_find(&found);
    remove_noted(instance->lock, instance->id); /* an earlier one of the same name */
    if (ftruncate(instance->lock, 0) < 0 || lseek(instance->lock, 0, SEEK_SET) < 0)
        return err_sys(err, errno, "instance %s", instance->id);
    for (size_t i = 0; i < found.n; i++) {
        char *home = found.trees[i].path;
        do /* v2: or above it */
            if (dprintf(instance->lock, "%s\n", home) < 0)
                return err_sys(err, errno, "note the cgroups of instance %s", instance->id);
        while (found.kind == CGROUP_V2 && cgroup_go_up(home));
    }
    return 0;
}

void instance_touch(const struct instance *instance)
{
    (void)!pwrite(instance->lock, "\n", 1, 0); /* else it looks older than it is */
}

uint64_t instance_age_ms(const struct instance *instance)
{
    struct stat st;
    time_t now = time(NULL);
    return fstat(instance->lock, &st) == 0 && now > st.st_mtime
               ? (uint64_t)(now - st.st_mtime) * 1000
               : 0;
}

void instance_remove(const struct instance *instance)
{
    (void)unlinkat(instance->dir, instance->id, 0); /* else the next start removes it */
}

void instance_close(struct instance *instance)
{
    fd_closep(&instance->dir);
    fd_closep(&instance->lock);
    instance->dir = instance->lock = -1;
}

static void clean_one(int dir, const char *id, enum lock_how how)
{
    auto_fd lock = lock_file(dir, id, how);
    if (lock < 0)
        return; /* alive, or gone this moment */
    remove_noted(lock, id);
    (void)unlinkat(dir, id, 0); /* else the next start tries again */
    log_info("removed what instance %s had left", id);
}

/* NULL: it cannot be read. */
static DIR *open_list(const struct instance *instance)
{
    int fd = openat(instance->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopendir(fd);
}

/* The next name that is another instance's; NULL: there are no more. */
static const char *next_other(const struct instance *instance, DIR *dir)
{
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (good_name(entry->d_name) && strcmp(entry->d_name, instance->id) != 0)
            return entry->d_name;
    return NULL;
}

void instance_clean_others(const struct instance *instance)
{
    DIR *dir = open_list(instance);
    const char *id;
    while (dir && (id = next_other(instance, dir)))
        clean_one(instance->dir, id, LOCK_TRY);
    if (dir)
        (void)closedir(dir);
}

size_t instance_take_dead(const struct instance *instance, struct instance *ret, size_t max)
{
    DIR *dir = open_list(instance);
    const char *id;
    size_t count = 0;
    while (dir && count < max && (id = next_other(instance, dir))) {
        int lock = lock_file(instance->dir, id, LOCK_TRY);
        if (lock < 0)
            continue; /* alive, or gone this moment */
        struct instance *dead = &ret[count++];
        *dead = (struct instance){ .dir = fcntl(instance->dir, F_DUPFD_CLOEXEC, 0), .lock = lock };
        (void)snprintf(dead->id, sizeof(dead->id), "%s", id);
    }
    if (dir)
        (void)closedir(dir);
    return count;
}

/*** Looking ***/

const char *instance_server(const char *state_dir, const char *kind, const char *id)
{
    auto_free char *path = xasprintf("%s/%s/%s", state_dir, kind, id);
    auto_fd fd = good_name(id) ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        return "unknown";
    return flock(fd, LOCK_SH | LOCK_NB) == 0 ? "gone" : "running";
}

/* The number of a sandbox whose cgroup has this name: "7-guest" (v1) or "7" (v2); -1: it is another's. */
static int slot_of(const char *name)
{
    size_t len = strspn(name, "0123456789");
    bool own = len > 0 && len < 10 && (!name[len] || str_eq(name + len, "-guest"));
    int64_t slot;
    auto_free char *digits = xstrndup(name, len);
    return own && num_parse_int(digits, 0, INT32_MAX, &slot) == 0 ? (int)slot : -1;
}

/* A hierarchy has them all, or has other directories only. */
static void list_below(const char *home, const char *id, const char *server, json_t *ret)
{
    auto_free char *path = xasprintf("%s/belljar-%s", home, id);
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        int slot = slot_of(entry->d_name);
        if (slot < 0)
            continue;
        auto_free char *name = xasprintf("%s.%d", id, slot);
        json_t *row = json_object();
        json_put_str(row, "sandbox", name);
        json_put_str(row, "instance", id);
        json_put_str(row, "server", server);
        json_push(ret, row);
    }
    if (dir)
        (void)closedir(dir);
}

static void list_one(int dir, const char *id, const char *server, json_t *ret)
{
    int fd = openat(dir, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
    char home[CGROUP_PATH_MAX];
    size_t before = json_array_size(ret);
    while (file && json_array_size(ret) == before && fgets(home, sizeof(home), file)) {
        home[strcspn(home, "\n")] = '\0';
        list_below(home, id, server, ret);
    }
    if (file)
        (void)fclose(file);
}

int instance_list(const char *state_dir, json_t *ret, struct err *err)
{
    auto_free char *path = xasprintf("%s/" INSTANCES_NATIVE, state_dir);
    DIR *dir = opendir(path);
    struct dirent *entry;
    if (!dir)
        return errno == ENOENT ? 0 : err_sys(err, errno, "read %s", path);
    while ((entry = readdir(dir)))
        if (good_name(entry->d_name))
            list_one(dirfd(dir), entry->d_name,
                     instance_server(state_dir, INSTANCES_NATIVE, entry->d_name), ret);
    (void)closedir(dir);
    return 0;
}

void instance_clean_dead(const char *state_dir, const char *id)
{
    auto_free char *path = xasprintf("%s/" INSTANCES_NATIVE, state_dir);
    auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir >= 0 && good_name(id))
        clean_one(dir, id, LOCK_WAIT);
}
