#include "engine/native/runtime.h"

#include "engine/engine.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* in one path, as the kernel has it */

/* With all below them: of the host's programs, which sandboxes see anyhow (or those of `rootfs`); what each
 * sandbox has of its own; what is the host's only. */
static const char *const programs[] = { "/usr",   "/bin",   "/sbin",  "/lib",
                                        "/lib32", "/lib64", "/libx32" };
static const char *const hidden[] = { "/tmp",  "/var/tmp", "/run",       "/var/run", "/dev",
                                      "/proc", "/sys",     "/workspace", "/app" };
static const char *const private[] = { "/etc", "/boot" };
/* As a whole. */
static const char *const holders[] = { "/",    "/home", "/root", "/opt",
                                       "/srv", "/var",  "/mnt",  "/media" };

/*** Paths ***/

static bool is_within(const char *path, const char *dir)
{
    size_t len = str_eq(dir, "/") ? 0 : strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static bool is_within_any(const char *path, const char *const dirs[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_within(path, dirs[i]))
            return true;
    return false;
}

bool runtime_is_hidden(const char *path)
{
    return is_within_any(path, hidden, ARRAY_SIZE(hidden));
}

/* In place: the directory that it is in. */
static char *cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = '\0'; /* "/" has no parent but itself */
    return path;
}

static void add_link(struct runtime *runtime, const char *path, const char *target)
{
    for (size_t i = 0; i < runtime->n_links; i++)
        if (str_eq(runtime->links[i].path, path))
            return;
    runtime->links = xrealloc(runtime->links, (runtime->n_links + 1) * sizeof(*runtime->links));
    runtime->links[runtime->n_links++] = (struct runtime_link){ xstrdup(path), xstrdup(target) };
}

/* realpath(3) that notes every link on the way: the same must be in sandboxes. NULL: errno says why. */
static char *follow(struct runtime *runtime, const char *path)
{
    auto_free char *real = xstrdup("/");
    auto_free char *todo = xstrdup(path);
    unsigned links = 0;
    for (char *rest = todo; *rest;) {
        size_t len = strcspn(rest, "/");
        auto_free char *name = xstrndup(rest, len);
        rest += len + (rest[len] == '/');
        if (len == 0 || str_eq(name, "."))
            continue;
        if (str_eq(name, "..")) {
            (void)cut_last(real);
            continue;
        }
        char target[4096];
        char *next = xasprintf("%s/%s", str_eq(real, "/") ? "" : real, name);
        bool unknown = runtime->foreign && is_within_any(next, programs, ARRAY_SIZE(programs));
        ssize_t n = unknown ? -1 : readlink(next, target, sizeof(target) - 1);
        if (n < 0) {
            free(real);
            real = next;
            if (unknown || errno == EINVAL) /* not a link */
                continue;
            return NULL;
        }
        target[n] = '\0';
        add_link(runtime, next, target);
        free(next);
        if (++links > LINKS_MAX) {
            errno = ELOOP;
            return NULL;
        }
        if (target[0] == '/')
            real[1] = '\0';
        char *more = xasprintf("%s/%s", target, rest);
        free(todo);
        rest = todo = more;
    }
    return steal_ptr(&real);
}

/*** What may be shown ***/

static bool has_library(const char *prefix, const char *lib)
{
    auto_free char *path = xasprintf("%s/%s", prefix, lib);
    DIR *dir = opendir(path);
    bool found = false;
    const struct dirent *entry;
    while (dir && !found && (entry = readdir(dir))) {
        auto_free char *landmark = xasprintf("%s/%s/os.py", path, entry->d_name);
        found = str_has_prefix(entry->d_name, "python3.") && access(landmark, F_OK) == 0;
    }
    if (dir)
        (void)closedir(dir);
    return found;
}

/* A home, what holds one, or a user's own prefix, which has data of all programs in share and state. */
static bool shows_home(const char *base, const char *home)
{
    auto_free char *local = home ? xasprintf("%s/.local", home) : NULL;
    return home && home[0] == '/' && (is_within(home, base) || str_eq(base, local));
}

/* NULL: it may be shown. */
static const char *objection(const char *base)
{
    struct stat st;
    struct passwd entry, *owner = NULL;
    char words[4096]; /* where it is longer, the user's home is told by $HOME alone */
    if (stat(base, &st) == 0)
        (void)getpwuid_r(st.st_uid, &entry, words, sizeof(words), &owner);
    for (size_t i = 0; i < ARRAY_SIZE(holders); i++)
        if (str_eq(base, holders[i]))
            return "which is a directory of the system and not an interpreter's own";
    if (is_within_any(base, private, ARRAY_SIZE(private)))
        return "which is a directory of the system and not an interpreter's own";
    if (runtime_is_hidden(base))
        return "where sandboxes have files of their own";
    if (shows_home(base, getenv("HOME")) || shows_home(base, owner ? owner->pw_dir : NULL))
        return "which has more of a user's files than an interpreter";
    if (!has_library(base, "lib") && !has_library(base, "lib64"))
        return "which is no prefix of an interpreter: it has no lib/python3.*/os.py";
    return NULL;
}

/* Takes over `base`. */
static int add_base(struct runtime *runtime, char *base, struct err *err)
{
    auto_free char *owned = base;
    if (is_within(base, runtime->dir) || is_within_any(base, programs, ARRAY_SIZE(programs)))
        return 0;
    for (size_t i = 0; i < runtime->n_bases; i++)
        if (str_eq(runtime->bases[i], base))
            return 0;
    const char *why = objection(base);
    if (why)
        return err_set(
            err, EINVAL,
            "runtime: the interpreter of %.80s lies in %.80s, %s. Make the environment with "
            "one in /usr or in a prefix of its own, such as /opt/python3.12",
            runtime->dir, base, why);
    runtime->bases[runtime->n_bases++] = steal_ptr(&owned);
    return 0;
}

/*** The environment ***/

/* `home` of pyvenv.cfg, read as Python does; NULL: there is none. */
static char *read_home(const char *dir)
{
    auto_free char *path = xasprintf("%s/pyvenv.cfg", dir);
    FILE *file = fopen(path, "re");
    char line[4096];
    char *home = NULL;
    while (file && !home && fgets(line, sizeof(line), file)) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = '\0';
        line[strcspn(line, " \t")] = '\0';
        value += strspn(value, " \t");
        size_t len = strlen(value);
        while (len && strchr(" \t\r\n", value[len - 1]))
            value[--len] = '\0';
        if (strcasecmp(line, "home") == 0 && value[0] == '/')
            home = xstrdup(value);
    }
    if (file)
        (void)fclose(file);
    return home;
}

static int find_python(struct runtime *runtime, struct err *err)
{
    auto_free char *path = xasprintf("%s/bin/python3", runtime->dir);
    auto_free char *python = follow(runtime, path);
    if (!python)
        return err_sys(err, errno,
                       "runtime: %.200s is no environment that can be used, as the interpreter "
                       "of its bin/python3 is not there",
                       runtime->dir);
    int r = 0;
    if (!is_within(python, runtime->dir))
        r = add_base(runtime, cut_last(cut_last(xstrdup(python))), err);
    if (r == 0 && (runtime->n_bases || is_within(python, runtime->dir)))
        runtime->python = steal_ptr(&python);
    return r;
}

/* An interpreter that was copied into the environment has its library there, too. */
static int find_home(struct runtime *runtime, struct err *err)
{
    auto_free char *home = read_home(runtime->dir);
    auto_free char *real = home ? follow(runtime, home) : NULL;
    if (home && !real)
        return err_sys(err, errno, "runtime: %.120s: home of its pyvenv.cfg, %.120s", runtime->dir,
                       home);
    return real ? add_base(runtime, cut_last(xstrdup(real)), err) : 0;
}

int runtime_find(const char *path, const char *rootfs, struct runtime *ret, struct err *err)
{
    *ret = (struct runtime){ 0 };
    if (!path || !*path)
        return 0;
    auto_free char *here = path[0] == '/' ? NULL : realpath(".", NULL);
    auto_free char *full = here ? xasprintf("%s/%s", here, path) : xstrdup(path);
    struct runtime found = { .foreign = rootfs && *rootfs };
    found.dir = follow(&found, full);
    int r = 0;
    if (!found.dir)
        r = err_sys(err, errno, "runtime: open %.200s", path);
    if (r == 0) {
        add_link(&found, found.dir, ENGINE_RUNTIME);
        r = find_python(&found, err);
    }
    if (r == 0)
        r = find_home(&found, err);
    if (r < 0)
        runtime_done(&found);
    else
        *ret = found;
    return r;
}

void runtime_done(struct runtime *runtime)
{
    for (size_t i = 0; i < runtime->n_bases; i++)
        free(runtime->bases[i]);
    for (size_t i = 0; i < runtime->n_links; i++) {
        free(runtime->links[i].path);
        free(runtime->links[i].target);
    }
    free(runtime->links);
    free(runtime->dir);
    free(runtime->python);
    *runtime = (struct runtime){ 0 };
}
