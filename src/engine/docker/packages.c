/*
 * Packages in containers. There is no directory that server and containers share, so sets are copied into a
 * volume that every container has mounted, read-only. It is named after the packages' id, and outlives the
 * server; copies.h says what is where in it.
 *
 * A set is sent as a tar, straight from its directory, through a container that has the volume and is never
 * started; an empty file comes last, and only with it the copy is whole. The container stays for as long as
 * the server, to be asked whether a copy is there: somebody may have removed the volume. Sets that are gone
 * are replaced by an empty file in the same request, for to remove is nothing that an engine can be asked for.
 *
 * All of it is a worker's, one set at a time.
 */
#include "engine/docker/private.h"

#include "base/log.h"
#include "engine/docker/ask.h"
#include "engine/docker/copies.h"
#include "engine/docker/tar.h"
#include "engine/docker/tree.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE ".belljar-whole"

/* Owns all that the worker looks at: who asked, and the engine, may be gone before that is done. */
struct showing {
    struct engine_showing base;
    struct list link;      /* docker->packages.showings */
    struct docker *docker; /* NULL: nobody wants to know any more */
    bool working;
    uv_work_t work;
    struct docker_target *target; /* a reference */
    struct docker_image image;    /* its id only */
    char api[12];
    char *dir, *copies, *name, *instance, *helper, *volume;
    uint64_t request_ms, deadline_ms;
    atomic_bool cancelled;
    char *path; /* what comes of it */
    struct err err;
    int r;
};

static void showing_free(struct showing *showing)
{
    docker_target_unref(showing->target);
    list_remove(&showing->link);
    free(showing->dir);
    free(showing->copies);
    free(showing->name);
    free(showing->instance);
    free(showing->helper);
    free(showing->volume);
    free(showing->path);
    free(showing);
}

/*** In the worker ***/

static uint64_t time_left(const struct showing *showing)
{
    uint64_t now = clock_ms();
    return now < showing->deadline_ms ? showing->deadline_ms - now : 1;
}

/* 1: the copy is there, and whole; 0: it is not. While another set is being sent, the engine answers late. */
static int is_whole(const struct showing *showing, struct asker *asker, struct err *err)
{
    auto_free char *path =
        xasprintf("/containers/%s/archive?path=%s/" WHOLE, showing->helper, showing->path);
    const struct docker_reply *reply =
        asker_ask(asker, &(struct docker_request){
                             .method = "HEAD", .path = path, .timeout_ms = time_left(showing) });
    if (reply->status == 404)
        return 0;
    int r = docker_expect(reply, "look for packages in their volume", err);
    return r < 0 ? r : 1;
}

/* One that is there is as good. */
static int make_helper(const struct showing *showing, struct asker *asker, struct err *err)
{
    auto_free char *look = xasprintf("/containers/%s/json", showing->helper);
    auto_free char *path = xasprintf("/containers/create?name=%s", showing->helper);
    const struct container_plan plan = { .image = &showing->image,
                                         .instance = showing->instance,
                                         .sandbox = "packages" };
    if (asker_get(asker, look)->status == 200)
        return 0;
    auto_json *json = container_helper_json(&plan, showing->volume, ENGINE_PACKAGES);
    return docker_expect(asker_post(asker, path, json), "make a container for the packages' volume",
                         err);
}

/* A file takes the place of all that is there. */
static void add_emptied(struct buf *tar, unsigned place)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "%u", place);
    tar_head(tar, &(struct tar_entry){ .name = name, .type = '0', .mode = 0400 });
}

static void add_places(struct buf *tar, const struct copies_plan *plan)
{
    char name[16];
    for (size_t i = 0; i < plan->n_stale; i++)
        if (plan->stale[i] != plan->place)
            add_emptied(tar, plan->stale[i]);
    add_emptied(tar, plan->place);
    (void)snprintf(name, sizeof(name), "%u", plan->place);
    tar_head(tar, &(struct tar_entry){ .name = name, .type = '5', .mode = 0711 });
}

static ssize_t read_tree(void *data, char *room, size_t size)
{
    return tree_read(data, room, size);
}

static void rewind_tree(void *data)
{
    tree_rewind(data);
}

static int send_set(const struct showing *showing, struct asker *asker,
                    const struct copies_plan *plan, int root, struct err *err)
{
    auto_free char *path =
        xasprintf("/containers/%s/archive?path=" ENGINE_PACKAGES, showing->helper);
    auto_free char *prefix = xasprintf("%u/%s", plan->place, plan->set);
    auto_buf before = BUF_INIT(BUF_NO_CEILING);
    struct tree tree;
    add_places(&before, plan);
    tree_init(&tree, &(struct tree_plan){
                         .root = root, .before = &before, .prefix = prefix, .last = WHOLE });
    const struct docker_source source = { read_tree, rewind_tree, &tree };
    const struct docker_reply *reply =
        asker_ask(asker, &(struct docker_request){ .method = "PUT",
                                                   .path = path,
                                                   .type = "application/x-tar",
                                                   .source = &source,
                                                   .timeout_ms = time_left(showing) });
    int r = docker_expect(reply, "put packages into their volume", err);
    if (tree.err.code) {
        *err = tree.err;
        r = -err->code;
    }
    tree_done(&tree);
    return r;
}

/* The stale ones are gone with what was sent. */
static void forget_stale(const struct copies *copies, const struct copies_plan *plan)
{
    struct err err;
    for (size_t i = 0; i < plan->n_stale; i++)
        if (plan->stale[i] != plan->place && copies_note(copies, plan->stale[i], "", &err) < 0)
            log_debug("%s", err.msg); /* it is emptied once more, then */
}

static int copy(const struct showing *showing, struct asker *asker, const struct copies *copies,
                const struct copies_plan *plan, struct err *err)
{
    auto_fd root =
        openat(copies->sets, showing->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0)
        return err_sys(err, errno, "package_dir: open a set");
    int r = copies_note(copies, plan->place, plan->set, err);
    if (r == 0)
        r = send_set(showing, asker, plan, root, err);
    if (r == 0)
        forget_stale(copies, plan);
    return r;
}

static int see_to(struct showing *showing, const struct copies *copies, struct err *err)
{
    struct copies_plan plan;
    struct asker asker;
    int r = copies_lock(copies, showing->deadline_ms, &showing->cancelled, err);
    if (r == 0)
        r = copies_plan(copies, showing->name, &plan, err);
    if (r < 0)
        return r;
    showing->path = xasprintf(ENGINE_PACKAGES "/%u/%s", plan.place, plan.set);
    asker_open(&asker, showing->target, showing->request_ms, &showing->cancelled);
    docker_api_version(asker.api, showing->api);
    r = make_helper(showing, &asker, err);
    if (r == 0 && plan.noted)
        r = is_whole(showing, &asker, err);
    if (r == 0)
        r = copy(showing, &asker, copies, &plan, err);
    asker_close(&asker);
    copies_plan_done(&plan);
    return r;
}

static void show_work(uv_work_t *work)
{
    struct showing *showing = container_of(work, struct showing, work);
    const struct engine_packages packages = { .dir = showing->dir, .copies = showing->copies };
    struct copies copies;
    showing->r = copies_open(&packages, &copies, &showing->err);
    if (showing->r == 0)
        showing->r = see_to(showing, &copies, &showing->err);
    copies_close(&copies);
}

/*** On the loop ***/

static void start_next(struct docker *docker);

static void show_done(uv_work_t *work, int status)
{
    struct showing *showing = container_of(work, struct showing, work);
    struct docker *docker = showing->docker;
    (void)status; /* it is never taken from its queue */
    if (docker) {
        list_remove(&showing->link);
        start_next(docker);
        bool shown = showing->r >= 0;
        showing->base.on_shown(shown ? showing->path : NULL, shown ? NULL : &showing->err,
                               showing->base.data);
    }
    showing_free(showing);
}

static void start_next(struct docker *docker)
{
    struct list *showings = &docker->packages.showings;
    if (list_empty(showings))
        return;
    struct showing *showing = list_first(struct showing, showings, link);
    if (showing->working)
        return;
    showing->working = true;
    (void)uv_queue_work(docker->loop, &showing->work, show_work, show_done);
}

static void name_helper(struct docker *docker)
{
    int n = snprintf(docker->packages.helper, sizeof(docker->packages.helper),
                     "belljar-%s-packages", docker->instance.id);
    assert(n > 0 && (size_t)n < sizeof(docker->packages.helper));
}

struct engine_showing *docker_show(struct engine *engine, const char *name, uint64_t timeout_ms,
                                   engine_shown_fn *on_shown, void *data)
{
    struct docker *docker = container_of(engine, struct docker, base);
    struct showing *showing = xcalloc(1, sizeof(*showing));
    name_helper(docker);
    showing->base = (struct engine_showing){ engine, on_shown, data };
    showing->docker = docker;
    showing->target = docker_target_ref(docker->target);
    (void)snprintf(showing->image.id, sizeof(showing->image.id), "%s",
                   docker->prepared.images[0].id);
    (void)snprintf(showing->api, sizeof(showing->api), "%s", docker->prepared.facts.api);
    showing->dir = xstrdup(docker->packages.dir);
    showing->copies = xstrdup(docker->packages.copies);
    showing->name = xstrdup(name);
    showing->instance = xstrdup(docker->instance.id);
    showing->helper = xstrdup(docker->packages.helper);
    showing->volume = xstrdup(docker->packages.volume);
    showing->request_ms = docker->timeout_ms;
    showing->deadline_ms = clock_ms() + timeout_ms;
    list_add_tail(&docker->packages.showings, &showing->link);
    start_next(docker);
    return &showing->base;
}

/* A worker that is at it ends soon, and finds nobody. */
void docker_show_cancel(struct engine_showing *base)
{
    struct showing *showing = container_of(base, struct showing, base);
    struct docker *docker = showing->docker;
    if (!showing->working) {
        showing_free(showing);
        return;
    }
    atomic_store(&showing->cancelled, true);
    showing->docker = NULL;
    list_remove(&showing->link);
    start_next(docker);
}

void docker_packages_open(struct docker *docker, const struct engine_packages *packages)
{
    list_init(&docker->packages.showings);
    if (!packages->dir || !*packages->dir)
        return;
    docker->packages.dir = xstrdup(packages->dir);
    docker->packages.copies = xstrdup(packages->copies);
    int n = snprintf(docker->packages.volume, sizeof(docker->packages.volume),
                     "belljar-packages-%s", packages->id);
    assert(n > 0 && (size_t)n < sizeof(docker->packages.volume));
}

void docker_packages_close(struct docker *docker, json_t *names)
{
    struct list *showings = &docker->packages.showings;
    bool working = false;
    while (!list_empty(showings)) { /* from the end, for the first one's end would start the next */
        struct showing *showing = container_of(showings->prev, struct showing, link);
        working |= showing->working;
        docker_show_cancel(&showing->base);
    }
    if (*docker->packages.helper)
        json_put(names, docker->packages.helper, json_boolean(working));
}
