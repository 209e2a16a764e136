/*
 * Which files a run has made or changed, for what no kernel reports: shells and programs. The agent lists
 * the workspace when the run is over; what counts is the time of a file's last change of any kind,
 * which nobody can set back. The clock is the file system's own, the coarse one.
 */
#include "session/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { LOOKED_AT = 4000 }; /* files and directories, as kernel.py has it */

static int64_t ns_by(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t changes_clock_ns(void)
{
    return ns_by(CLOCK_REALTIME_COARSE);
}

/* Since Linux 6.13 a file can have a time between two ticks. */
struct loaded changes_loaded(void)
{
    return (struct loaded){ .coarse_ns = changes_clock_ns(), .fine_ns = ns_by(CLOCK_REALTIME) };
}

/* Two runs can meet in one tick of the clock: what the one before has told is not told again. */
static bool was_told(const struct changes *before, const struct run_file *file)
{
    for (size_t i = 0; i < before->count; i++) {
        const struct run_file *told = &before->files[i];
        if (told->changed_ns == file->changed_ns && told->size == file->size &&
            str_eq(told->path, file->path))
            return true;
    }
    return false;
}

/* The first run can begin in the tick in which files have come from the disk. Those have their old times of
 * modification. */
static bool was_loaded(const struct changes *changes, const struct link_entry *entry)
{
    return entry->ctime_ns <= changes->loaded.fine_ns &&
           entry->mtime_ns < changes->loaded.coarse_ns;
}

static void take(struct changes *changes, const struct link_entry *entries, size_t count)
{
    changes->files = xcalloc(count, sizeof(*changes->files));
    for (size_t i = 0; i < count; i++) {
        const struct run_file file = { .path = entries[i].name,
                                       .size = (int64_t)entries[i].size,
                                       .changed_ns = entries[i].ctime_ns };
        if (entries[i].type != LINK_FILE || file.changed_ns < changes->since_ns ||
            was_loaded(changes, &entries[i]) || was_told(changes->before, &file))
            continue;
        changes->files[changes->count] = file;
        changes->files[changes->count++].path = xstrdup(file.path);
    }
}

static void on_list(int code, const struct link_entry *entries, size_t count, bool more, void *data)
{
    struct changes *changes = data;
    (void)more;
    if (code == ECANCELED)
        return; /* the session has ended, and the run with it: do not touch it */
    if (!code)
        take(changes, entries, count);
    changes->on_seen(changes->run);
}

int changes_look(struct changes *changes, struct link *agent, const struct changes *before,
                 void (*on_seen)(struct run *run), struct run *run)
{
    changes->before = before;
    changes->on_seen = on_seen;
    changes->run = run;
    return link_file_list(agent, "/workspace", /* recursive= */ true, LOOKED_AT, on_list, changes,
                          NULL);
}

void changes_done(struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++)
        free((char *)changes->files[i].path);
    free(changes->files);
    *changes = (struct changes){ 0 };
}
