#include "engine/docker/copies.h"

#include "base/loop.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AGAIN_MS = 20 };

int copies_open(const struct engine_packages *packages, struct copies *ret, struct err *err)
{
    *ret = (struct copies){ -1, -1 };
    ret->sets = open(packages->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    ret->notes = open(packages->copies, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->sets >= 0 && ret->notes >= 0)
        return 0;
    int r = err_sys(err, errno, "package_dir: open %s",
                    ret->sets < 0 ? packages->dir : packages->copies);
    copies_close(ret);
    return r;
}

void copies_close(struct copies *copies)
{
    fd_closep(&copies->sets);
    fd_closep(&copies->notes);
    *copies = (struct copies){ -1, -1 };
}

int copies_lock(const struct copies *copies, uint64_t deadline_ms, const atomic_bool *cancelled,
                struct err *err)
{
    while (flock(copies->notes, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "package_dir: lock copies");
        if (atomic_load(cancelled))
            return err_set(err, ECANCELED, "nobody waits for it any more");
        if (clock_ms() >= deadline_ms)
            return err_set(err, ETIMEDOUT,
                           "package_dir: another server copies packages for longer than "
                           "package_timeout");
        (void)usleep(AGAIN_MS * 1000);
    }
    return 0;
}

/*** Plans ***/

/* False: there is no such set. */
static bool name_edition(const struct copies *copies, const char *name, char *ret, size_t size)
{
    struct stat st;
    if (fstatat(copies->sets, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return false;
    int n = snprintf(ret, size, "%s.%llx%08lx", name, (unsigned long long)st.st_mtim.tv_sec,
                     (unsigned long)st.st_mtim.tv_nsec);
    return n > 0 && (size_t)n < size;
}

/* What was noted of a place; "" : nothing. */
static void read_note(const struct copies *copies, const char *place, char ret[COPIES_SET_MAX])
{
    auto_fd fd = openat(copies->notes, place, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, ret, COPIES_SET_MAX - 1);
    ret[n > 0 ? n : 0] = '\0';
}

/* Is the set of a note still what it was? */
static bool is_there(const struct copies *copies, const char *set)
{
    char now[COPIES_SET_MAX];
    auto_free char *name = xstrndup(set, strcspn(set, "."));
    return *name && !strchr(name, '/') && name_edition(copies, name, now, sizeof(now)) &&
           str_eq(now, set);
}

struct survey {
    unsigned next;           /* behind the last place */
    unsigned free, has_free; /* the lowest */
};

static void survey_place(const struct copies *copies, const char *name, struct survey *survey,
                         struct copies_plan *plan)
{
    char set[COPIES_SET_MAX];
    int64_t number;
    if (num_parse_int(name, 0, COPIES_PLACES_MAX - 1, &number) < 0)
        return;
    unsigned place = (unsigned)number;
    survey->next = place >= survey->next ? place + 1 : survey->next;
    read_note(copies, name, set);
    if (str_eq(set, plan->set)) {
        plan->place = place;
        plan->noted = true;
        return;
    }
    if (is_there(copies, set))
        return;
    if (!survey->has_free || place < survey->free)
        survey->free = place;
    survey->has_free = true;
    if (*set) {
        plan->stale = xrealloc(plan->stale, (plan->n_stale + 1) * sizeof(*plan->stale));
        plan->stale[plan->n_stale++] = place;
    }
}

int copies_plan(const struct copies *copies, const char *name, struct copies_plan *ret,
                struct err *err)
{
    struct copies_plan plan = { 0 };
    struct survey survey = { 0 };
    if (!name_edition(copies, name, plan.set, sizeof(plan.set)))
        return err_set(err, ENOENT, "the packages were removed at once; try again");
    int fd = openat(copies->notes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int r = err_sys(err, errno, "package_dir: read copies");
        fd_closep(&fd);
        return r;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        survey_place(copies, entry->d_name, &survey, &plan);
    (void)closedir(dir);
    if (!plan.noted)
        plan.place = survey.has_free ? survey.free : survey.next;
    if (plan.place >= COPIES_PLACES_MAX) {
        copies_plan_done(&plan);
        return err_set(err, ENOSPC, "there are %d sets of packages, the limit", COPIES_PLACES_MAX);
    }
    *ret = plan;
    return 0;
}

void copies_plan_done(struct copies_plan *plan)
{
    free(plan->stale);
    *plan = (struct copies_plan){ 0 };
}

int copies_note(const struct copies *copies, unsigned place, const char *set, struct err *err)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "%u", place);
    auto_fd fd =
        openat(copies->notes, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t len = strlen(set);
    if (fd < 0 || write(fd, set, len) != (ssize_t)len)
        return err_sys(err, errno ? errno : EIO, "package_dir: note a copy");
    return 0;
}
