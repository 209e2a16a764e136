#include "tools/watch.h"

#include "base/list.h"
#include "tools/session_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of one look at a session: past this many, the change of the list says enough. */
enum { UPDATES_MAX = 200 };

struct watch {
    struct sessions *sessions;
    size_t max_files;
    struct listener {
        struct mcp_server *server;
    } * listeners;
    size_t n_listeners;
    struct list all; /* struct watched */
};

struct stamp {
    char *path;
    int64_t size, mtime_ns;
};

/* A session that has run something, or whose owner has begun to follow resources. */
struct watched {
    struct watch *watch;
    struct list link; /* watch->all */
    char *owner, *id;
    struct stamp *files; /* sorted by path */
    size_t count;
    bool known;       /* `files` is what there was at the last look */
    bool looking;     /* a list is on its way */
    bool again;       /* it has to be followed by another */
    bool touched;     /* something happened that may have changed files */
    unsigned changes; /* by tools, under way */
};

/*** Telling ***/

static void tell_list_changed(const struct watch *watch, const char *owner)
{
    for (size_t i = 0; i < watch->n_listeners; i++)
        mcp_server_resources_changed(watch->listeners[i].server, owner);
}

static void tell_updated(const struct watched *watched, const char *path, size_t *told)
{
    if (*told >= UPDATES_MAX)
        return;
    auto_free char *uri = session_file_uri(watched->id, path);
    for (size_t i = 0; i < watched->watch->n_listeners; i++)
        *told +=
            mcp_server_resource_updated(watched->watch->listeners[i].server, uri, watched->owner);
}

/* Any file of the session may be other than it was. */
static void tell_all_updated(const struct watched *watched)
{
    auto_free char *uri = xasprintf("kernel://%s", watched->id);
    for (size_t i = 0; i < watched->watch->n_listeners; i++)
        mcp_server_resources_updated(watched->watch->listeners[i].server, uri, watched->owner);
}

static bool is_followed(const struct watch *watch, const char *owner)
{
    for (size_t i = 0; i < watch->n_listeners; i++) {
        if (mcp_server_watched(watch->listeners[i].server, owner))
            return true;
    }
    return false;
}

/*** What a session's files were like ***/

static void forget_files(struct watched *watched)
{
    for (size_t i = 0; i < watched->count; i++)
        free(watched->files[i].path);
    free(watched->files);
    watched->files = NULL;
    watched->count = 0;
    watched->known = false;
}

static void remember_files(struct watched *watched, const struct session_file *files, size_t count)
{
    forget_files(watched);
    watched->files = count ? xcalloc(count, sizeof(*watched->files)) : NULL;
    for (size_t i = 0; i < count; i++)
        watched->files[i] = (struct stamp){ .path = xstrdup(files[i].path),
                                            .size = files[i].size,
                                            .mtime_ns = files[i].mtime_ns };
    watched->count = count;
    watched->known = true;
}

/* Both are sorted. Returns whether a file came or went; tells of each that is not as it was. */
static bool compare(const struct watched *watched, const struct session_file *files, size_t count)
{
    size_t told = 0, i = 0, j = 0;
    bool list_changed = false;
    while (i < watched->count || j < count) {
        int order = i == watched->count ? 1
                    : j == count        ? -1
                                        : strcmp(watched->files[i].path, files[j].path);
        const char *path = order <= 0 ? watched->files[i].path : files[j].path;
        bool same = order == 0 && watched->files[i].size == files[j].size &&
                    watched->files[i].mtime_ns == files[j].mtime_ns;
        if (!same)
            tell_updated(watched, path, &told);
        list_changed = list_changed || order != 0;
        i += order <= 0;
        j += order >= 0;
    }
    return list_changed;
}

static bool is_changing(const struct watched *watched)
{
    return watched->changes > 0 ||
           session_busy(watched->watch->sessions, watched->owner, watched->id);
}

static void look(struct watched *watched);

static void on_files(int code, const struct session_file *files, size_t count, bool more,
                     void *data)
{
    struct watched *watched = data;
    (void)more; /* beyond max_files nothing is followed */
    watched->looking = false;
    if (code) { /* the session is ending, or has other trouble: on_end tells */
        forget_files(watched);
        return;
    }
    bool changed = watched->known ? compare(watched, files, count) : watched->touched;
    if (!watched->known && watched->touched) /* and nobody knows what it was like before */
        tell_all_updated(watched);
    /* A first look while somebody writes is no look at how it was. */
    if (watched->known || watched->touched || !is_changing(watched))
        remember_files(watched, files, count);
    watched->touched = false;
    if (changed)
        tell_list_changed(watched->watch, watched->owner);
    if (watched->again)
        look(watched);
}

static void look(struct watched *watched)
{
    struct err err = { 0 };
    watched->again = watched->looking;
    if (watched->looking)
        return;
    int r = session_files(watched->watch->sessions, watched->owner, watched->id,
                          /* uses= */ false, watched->watch->max_files, on_files, watched, &err);
    watched->looking = r == 0;
    if (r == -EAGAIN)
        remember_files(watched, NULL, 0); /* still opening, so there is none */
}

static void look_after_change(struct watched *watched)
{
    watched->touched = true;
    look(watched);
}

/*** Sessions ***/

static struct watched *find(struct watch *watch, const char *owner, const char *id)
{
    list_each (struct watched, watched, &watch->all, link) {
        if (str_eq(watched->id, id) && str_eq(watched->owner, owner))
            return watched;
    }
    return NULL;
}

/* A session that is seen for the first time when something has happened in it was empty before. */
static struct watched *find_or_add(struct watch *watch, const char *owner, const char *id,
                                   bool empty)
{
    struct watched *watched = find(watch, owner, id);
    if (watched)
        return watched;
    watched = xcalloc(1, sizeof(*watched));
    watched->watch = watch;
    watched->owner = xstrdup(owner);
    watched->id = xstrdup(id);
    watched->known = empty;
    list_add_tail(&watch->all, &watched->link);
    return watched;
}

static void watched_free(struct watched *watched)
{
    list_remove(&watched->link);
    forget_files(watched);
    free(watched->owner);
    free(watched->id);
    free(watched);
}

static bool made_files(const struct run_result *run)
{
    size_t i;
    json_t *file;
    json_array_foreach(json_object_get(run->done, "files"), i, file)
    {
        if (str_eq(json_str(file, "change"), "created"))
            return true;
    }
    return false;
}

static void on_run(const char *owner, const struct run_result *run, void *data)
{
    struct watch *watch = data;
    if (run->session_over)
        return; /* on_end follows */
    struct watched *watched = find_or_add(watch, owner, run->session_id, /* empty= */ true);
    if (is_followed(watch, owner)) {
        look_after_change(watched);
        return;
    }
    forget_files(watched);
    if (made_files(run))
        tell_list_changed(watch, owner);
}

static void on_end(const char *owner, const char *session_id, void *data)
{
    struct watch *watch = data;
    struct watched *watched = find(watch, owner, session_id);
    if (!watched)
        return; /* nothing ever happened in it */
    bool had_files = !watched->known || watched->count > 0;
    if (had_files)
        tell_all_updated(watched);
    watched_free(watched);
    if (had_files)
        tell_list_changed(watch, owner);
}

void watch_begin_change(struct watch *watch, const char *owner, const char *session_id)
{
    find_or_add(watch, owner, session_id, /* empty= */ true)->changes++;
}

void watch_end_change(struct watch *watch, const char *owner, const char *session_id)
{
    struct watched *watched = find(watch, owner, session_id);
    if (!watched)
        return; /* the session has ended */
    watched->changes--;
    if (is_followed(watch, owner)) {
        look_after_change(watched);
        return;
    }
    forget_files(watched);
    tell_list_changed(watch, owner);
}

/* From here on a change is told, so it has to be known what there is now. */
static void on_watch(const char *owner, void *data)
{
    struct watch *watch = data;
    struct session_ids ids = session_ids(watch->sessions, owner);
    for (size_t i = 0; i < ids.count; i++) {
        struct watched *watched = find_or_add(watch, owner, ids.items[i], /* empty= */ false);
        if (!watched->known && !watched->looking)
            look(watched);
    }
    session_ids_done(&ids);
}

/*** Beginning and end ***/

struct watch *watch_new(struct sessions *sessions, size_t max_files)
{
    static const struct session_watch events = { .on_run = on_run, .on_end = on_end };
    struct watch *watch = xcalloc(1, sizeof(*watch));
    watch->sessions = sessions;
    watch->max_files = max_files;
    list_init(&watch->all);
    sessions_watch(sessions, &events, watch);
    return watch;
}

void watch_add_server(struct watch *watch, struct mcp_server *server)
{
    watch->listeners =
        xrealloc(watch->listeners, (watch->n_listeners + 1) * sizeof(*watch->listeners));
    watch->listeners[watch->n_listeners++] = (struct listener){ .server = server };
    mcp_server_on_watch(server, on_watch, watch);
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    while (!list_empty(&watch->all))
        watched_free(list_first(struct watched, &watch->all, link));
    free(watch->listeners);
    free(watch);
}
