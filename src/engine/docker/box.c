/*
 * One container: create, attach, start, hear the agent; then bytes go through until it ends. What failed
 * or is not wanted any more goes to its grave under the name it was asked for, whether the engine has got to
 * make it or not.
 */
#include "engine/docker/private.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct usage {
    struct list link;
    struct box *box;
    struct docker_call *call;
    sandbox_usage_fn *on_usage;
    void *data;
};

/*** The end ***/

static void usage_free(struct usage *usage)
{
    docker_call_cancel(usage->call);
    list_remove(&usage->link);
    free(usage);
}

void box_clear(struct box *box)
{
    docker_call_cancel(steal_ptr(&box->call));
    docker_attach_free(steal_ptr(&box->attach));
    timer_stop(box->patience);
    list_each (struct usage, usage, &box->usages, link)
        usage_free(usage);
    fd_closep(&box->base.fd);
    box->base.fd = -1;
    if (box->name[0])
        grave_add(box->docker, box->name, box->slot, box->unsure);
    else
        docker_free_slot(box->docker, box->slot);
    box->name[0] = '\0';
    box->slot = -1;
    box->state = BOX_HELD_BACK;
}

void box_free(struct box *box)
{
    box_clear(box);
    list_remove(&box->link);
    timer_free(box->patience);
    timer_free(box->later);
    free(box);
}

/*** The making ***/

static void give_up(struct box *box, const struct err *err)
{
    struct err copy = *err; /* it may belong to what is freed */
    if (box->adopting) {
        box_adopted(box, &copy);
        return;
    }
    (void)err_wrap(&copy, "start a container");
    box_failed(box, &copy);
}

static void lose_patience(void *data)
{
    struct err err;
    (void)err_set(&err, ETIMEDOUT, "its agent says nothing");
    give_up(data, &err);
}

/* It is ready when the engine has said that it is started and the agent has said something, in either
 * order. */
static void saw(struct box *box, bool *fact)
{
    *fact = true;
    if (!box->started || !box->spoke)
        return;
    timer_stop(box->patience);
    box->state = BOX_READY;
    if (box->adopting)
        box_adopted(box, NULL);
    else
        box_made(box);
}

static void on_first(void *data)
{
    struct box *box = data;
    saw(box, &box->spoke);
}

static void on_end(const struct err *err, void *data)
{
    struct box *box = data;
    if (box->state == BOX_READY) {
        box_ended(box);
    } else if (box->call) {
        box->ended = true; /* why, the engine's answer says better */
        box->end = *err;
    } else {
        give_up(box, err);
    }
}

static void on_started(const struct docker_reply *reply, void *data)
{
    struct box *box = data;
    struct err err;
    box->call = NULL;
    if (docker_expect(reply, "start it", &err) < 0) {
        give_up(box, &err);
        return;
    }
    if (box->ended) {
        give_up(box, &box->end);
        return;
    }
    timer_start(box->patience, box->docker->timeout_ms);
    saw(box, &box->started);
}

static void on_open(void *data)
{
    struct box *box = data;
    auto_free char *path = xasprintf("/containers/%s/start", box->name);
    box->state = BOX_STARTING;
    box->call =
        docker_call(box->docker->api, &(struct docker_request){ .method = "POST", .path = path },
                    on_started, box);
}

static struct container_plan container_plan(const struct box *box)
{
    const struct docker *docker = box->docker;
    const struct prepared *prepared = docker_prepared(docker);
    uint32_t own = docker->uid_base + (uint32_t)box->slot;
    return (struct container_plan){ .facts = &prepared->facts,
                                    .image = &prepared->images[box->plan.image],
                                    .runtime = docker->runtime,
                                    .working_dir = docker->working_dir,
                                    .volume = prepared->volume,
                                    .packages = docker->packages.volume,
                                    .network = docker->network,
                                    .wheels = docker->wheels,
                                    .instance = docker->instance.id,
                                    .sandbox = box->base.id,
                                    .seccomp = docker->seccomp,
                                    .uid = box->slot < 0 ? docker->uid : own,
                                    .gid = box->slot < 0 ? docker->gid : own,
                                    .limits = box->plan.limits };
}

static void attach(struct box *box, const char *path, const char *body, const struct buf *before,
                   const struct docker_attach_events *events)
{
    struct docker *docker = box->docker;
    int ends[2];
    struct err err;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
        (void)err_sys(&err, errno, "make its agent's stream");
        give_up(box, &err);
        return;
    }
    box->base.fd = ends[0];
    box->state = BOX_ATTACHING;
    box->attach = docker_attach_new(docker->loop, docker->api, path, body, before, ends[1],
                                    docker->timeout_ms, events, box);
}

static void on_created(const struct docker_reply *reply, void *data)
{
    struct box *box = data;
    struct err err;
    box->call = NULL;
    box->unsure = !reply->status;
    if (docker_expect(reply, "create it", &err) < 0) {
        give_up(box, &err);
        return;
    }
    const struct container_plan plan = container_plan(box);
    auto_buf setup = BUF_INIT(BUF_NO_CEILING);
    container_setup(&plan, &box->docker->filter, &setup);
    auto_free char *path =
        xasprintf("/containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1", box->name);
    attach(box, path, "", &setup,
           &(struct docker_attach_events){
               .on_open = on_open, .on_first = on_first, .on_end = on_end });
}

void box_begin(struct box *box)
{
    struct docker *docker = box->docker;
    int n = snprintf(box->name, sizeof(box->name), "belljar-%s-%s%llu", docker->instance.id,
                     docker->guests ? "installer" : "", (unsigned long long)++docker->serial);
    assert(n > 0 && (size_t)n < sizeof(box->name));
    instance_touch(docker->guests ? &docker->guests->instance : &docker->instance);
    (void)snprintf(box->base.id, sizeof(box->base.id), "%s", box->name);
    const struct container_plan plan = container_plan(box);
    auto_json *json = container_json(&plan);
    auto_free char *text = json_text(json);
    auto_free char *path = xasprintf("/containers/create?name=%s", box->name);
    box->uid = plan.uid;
    memcpy(box->image, plan.image->id, sizeof(box->image));
    box->state = BOX_CREATING;
    box->started = box->spoke = box->ended = false;
    box->unsure = true;
    box->call = docker_call(docker->api,
                            &(struct docker_request){
                                .method = "POST", .path = path, .body = text, .len = strlen(text) },
                            on_created, box);
}

/*** Adopting: a second process in a container that is there; agent/stay.h says what for ***/

static void on_joining(void *data)
{
    const struct box *box = data;
    timer_start(box->patience, box->docker->timeout_ms);
}

static void on_exec(const struct docker_reply *reply, void *data)
{
    struct box *box = data;
    char id[DOCKER_EXEC_ID];
    struct err err;
    box->call = NULL;
    if (docker_expect(reply, "start a process in it", &err) < 0 ||
        docker_read_exec(reply, id, &err) < 0) {
        give_up(box, &err);
        return;
    }
    auto_free char *path = xasprintf("/exec/%s/start", id);
    const struct buf nothing = BUF_INIT(0);
    attach(box, path, "{\"Detach\":false,\"Tty\":false}", &nothing,
           &(struct docker_attach_events){
               .on_open = on_joining, .on_first = on_first, .on_end = on_end });
}

void box_adopt(struct box *box)
{
    auto_json *json = container_helper_exec_json(box->uid);
    auto_free char *text = json_text(json);
    auto_free char *path = xasprintf("/containers/%s/exec", box->name);
    box->state = BOX_STARTING;
    box->started = true;
    box->call = docker_call(box->docker->api,
                            &(struct docker_request){
                                .method = "POST", .path = path, .body = text, .len = strlen(text) },
                            on_exec, box);
}

void box_leave(struct box *box)
{
    box->name[0] = '\0';
    box_free(box);
}

/*** While it is there ***/

static void on_later(void *data)
{
    struct box *box = data;
    if (box->on_added) {
        sandbox_added_fn *on_added = steal_ptr(&box->on_added);
        on_added(-ENOENT, box->on_added_data); /* may destroy it */
        return;
    }
    if (box->dead && !box->told && box->base.on_died) {
        box->told = true;
        box->base.on_died(&box->base, box->base.on_died_data);
    }
}

/* Nothing can be forked into a container from outside. */
void box_add_kernel(struct box *box, sandbox_added_fn *on_added, void *data)
{
    assert(!box->on_added); /* one at a time */
    box->on_added = on_added;
    box->on_added_data = data;
    timer_start(box->later, 0);
}

static void on_stats(const struct docker_reply *reply, void *data)
{
    struct usage *usage = data;
    struct usage done = *usage;
    struct sandbox_usage used;
    struct err err;
    usage->call = NULL;
    usage_free(usage);
    bool known = docker_expect(reply, "ask for a container's usage", &err) == 0 &&
                 docker_read_stats(reply, &used, &err) == 0;
    if (!known)
        log_debug("%s", err.msg);
    done.on_usage(known ? &used : NULL, done.data);
}

void box_usage(struct box *box, sandbox_usage_fn *on_usage, void *data)
{
    auto_free char *path = xasprintf("/containers/%s/stats?stream=false&one-shot=true", box->name);
    struct usage *usage = xcalloc(1, sizeof(*usage));
    usage->box = box;
    usage->on_usage = on_usage;
    usage->data = data;
    list_add_tail(&box->usages, &usage->link);
    usage->call =
        docker_call(box->docker->api, &(struct docker_request){ .method = "GET", .path = path },
                    on_stats, usage);
}

struct box *box_new(struct docker *docker, const struct sandbox_plan *plan, int slot)
{
    struct box *box = xcalloc(1, sizeof(*box));
    box->base.engine = &docker->base;
    box->base.fd = -1;
    box->docker = docker;
    box->plan = *plan;
    box->slot = slot;
    list_init(&box->usages);
    box->patience = timer_new(docker->loop, lose_patience, box);
    box->later = timer_new(docker->loop, on_later, box);
    list_add_tail(&docker->boxes, &box->link);
    return box;
}
