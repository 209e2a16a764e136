/*
 * The docker engine: sandboxes as containers of an engine that speaks Docker's interface.
 *
 *   server ── requests (api.c) ──▶ engine ── containers
 *      ╚═════ one attached connection each (attach.c) ═════ agent, pid 1
 *
 * What the engine is and has is learned at the start (prepare.c), and once more in a worker thread when a
 * container could not be made: the engine may have been exchanged, the image or the agent's volume removed.
 * Then the making is tried again, once; so a caller hears what is really wrong.
 *
 * Who dies with whom: a container's input ends with the connection to this server, however that dies; its
 * agent exits then, unless it was told to stay (adopt.c), and the engine removes what has exited. What is
 * left all the same (containers that were never started, an engine that was down) is found by the label of
 * its instance: by us as long as we live, else by the next start with the same state directory.
 */
#include "engine/docker/private.h"

#include "base/log.h"
#include "base/num.h"
#include "base/text.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BURY_MS = 1000,
    CLOSE_MS = 10 * 1000, /* for the removal of all containers at the end */
    /* In an engine with a user namespace of its own there are 65536 ids, of which images use the lower
     * ones. */
    MAPPED_UID_BASE = 20000,
    MAPPED_UID_COUNT = 40000,
    MAPPED_INSTALLERS = 1000, /* of these, the last */
};

static struct docker *docker_of(struct engine *engine)
{
    return container_of(engine, struct docker, base);
}

static struct box *box_of(struct sandbox *sandbox)
{
    return container_of(sandbox, struct box, base);
}

/*** Users ***/

/* Round robin: a uid rests for as long as possible before it is used again. */
static int take_slot(struct docker *docker)
{
    for (uint32_t i = 0; i < docker->uid_count; i++) {
        uint32_t slot = (docker->uid_next + i) % docker->uid_count;
        if (docker->taken[slot])
            continue;
        docker->taken[slot] = 1;
        docker->uid_next = slot + 1;
        return (int)slot;
    }
    return -EAGAIN;
}

void docker_free_slot(struct docker *docker, int slot)
{
    if (slot >= 0)
        docker->taken[slot] = 0;
}

int docker_claim_slot(struct docker *docker, uint32_t uid)
{
    if (!docker->own_uids || uid < docker->uid_base || uid - docker->uid_base >= docker->uid_count)
        return -1;
    uint32_t slot = uid - docker->uid_base;
    docker->taken[slot] = 1;
    return (int)slot;
}

/* "1000" or "1000:1000", as the table of options has checked. */
static void read_user(const char *text, uint32_t *ret_uid, uint32_t *ret_gid)
{
    char *end;
    *ret_uid = *ret_gid = (uint32_t)strtoul(text, &end, 10);
    if (*end == ':')
        *ret_gid = (uint32_t)strtoul(end + 1, NULL, 10);
}

static void choose_users(struct docker *docker, const struct engine_options *options)
{
    const struct docker_facts *facts = &docker_prepared(docker)->facts;
    bool mapped = facts->rootless || facts->userns;
    uint32_t guests = MAPPED_UID_COUNT - MAPPED_INSTALLERS;
    docker->own_uids = !*options->docker.user;
    read_user(options->docker.user, &docker->uid, &docker->gid);
    docker->uid_base = options->uid_base;
    docker->uid_count = options->uid_count;
    if (mapped) {
        docker->uid_base = docker->guests ? MAPPED_UID_BASE + guests : MAPPED_UID_BASE;
        docker->uid_count = docker->guests ? MAPPED_INSTALLERS : guests;
    }
    docker->taken = xcalloc(docker->uid_count, 1);
    /* Other servers may use the same engine, and the same range. */
    random_bytes(&docker->uid_next, sizeof(docker->uid_next));
    docker->uid_next %= docker->uid_count;
}

/*** Images ***/

struct image_names image_names_copy(const char *const *items, size_t count)
{
    struct image_names names = { xcalloc(count, sizeof(*names.items)), count };
    for (size_t i = 0; i < count; i++)
        names.items[i] = xstrdup(items[i]);
    return names;
}

void image_names_done(struct image_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free((char *)names->items[i]);
    free(names->items);
}

static bool has_image(const struct docker *docker, const struct sandbox_plan *plan)
{
    return *docker_prepared(docker)->images[plan->image].id;
}

/*** Making ***/

/* Owns all that the worker looks at: the engine may be closed before that is done. */
struct refresh {
    uv_work_t work;
    struct docker *docker; /* NULL: closed meanwhile */
    struct prepare_options options;
    struct docker_target *target; /* a reference */
    struct image_names images;
    char *instance;
    atomic_bool cancelled;
    struct prepared prepared;
    struct err err;
    int r;
};

static void refresh_free(struct refresh *refresh)
{
    docker_target_unref(refresh->target);
    image_names_done(&refresh->images);
    free(refresh->instance);
    free(refresh);
}

static void refresh_work(uv_work_t *work)
{
    struct refresh *refresh = container_of(work, struct refresh, work);
    refresh->r = docker_prepare(&refresh->options, &refresh->prepared, &refresh->err);
}

/* With those that were held back. `err`: why it is of no use; then each fails for good. */
static void go_on(struct docker *docker, const struct err *err)
{
    struct list held = LIST_INIT(held);
    while (!list_empty(&docker->held_back)) {
        struct list *link = docker->held_back.next;
        list_remove(link);
        list_add_tail(&held, link);
    }
    while (!list_empty(&held)) {
        struct box *box = list_first(struct box, &held, link);
        list_remove(&box->link);
        list_add_tail(&docker->boxes, &box->link);
        box->again = true;
        if (!err && has_image(docker, &box->plan)) {
            box_begin(box);
            continue;
        }
        struct err none = { 0 };
        if (!err)
            (void)docker_no_image(docker->images.items[box->plan.image], &none);
        box_failed(box, err ? err : &none);
    }
}

static void take_prepared(struct docker *docker, const struct prepared *prepared)
{
    prepared_done(&docker->prepared);
    docker->prepared = *prepared;
    docker_api_version(docker->api, prepared->facts.api);
    if (docker->installers)
        docker_api_version(docker->installers->api, prepared->facts.api);
}

static void refresh_done(uv_work_t *work, int status)
{
    struct refresh *refresh = container_of(work, struct refresh, work);
    struct docker *docker = refresh->docker;
    (void)status; /* it is never taken from its queue */
    if (!docker) {
        prepared_done(&refresh->prepared);
    } else {
        docker->refresh = NULL;
        if (refresh->r == 0)
            take_prepared(docker, &refresh->prepared);
        if (docker->installers)
            go_on(docker->installers, refresh->r < 0 ? &refresh->err : NULL);
        go_on(docker, refresh->r < 0 ? &refresh->err : NULL);
    }
    refresh_free(refresh);
}

static void start_refresh(struct docker *docker)
{
    struct refresh *refresh = xcalloc(1, sizeof(*refresh));
    refresh->docker = docker;
    refresh->target = docker_target_ref(docker->target);
    refresh->images = image_names_copy(docker->images.items, docker->images.count);
    refresh->instance = xstrdup(docker->instance.id);
    refresh->options = (struct prepare_options){ .target = refresh->target,
                                                 .images = refresh->images.items,
                                                 .n_images = refresh->images.count,
                                                 .instance = refresh->instance,
                                                 .timeout_ms = docker->timeout_ms,
                                                 .cancelled = &refresh->cancelled,
                                                 .refill = true };
    docker->refresh = refresh;
    (void)uv_queue_work(docker->loop, &refresh->work, refresh_work, refresh_done);
}

static struct docker *looks_after(struct docker *docker)
{
    return docker->guests ? docker->guests : docker;
}

static void hold_back(struct box *box)
{
    list_remove(&box->link);
    list_add_tail(&box->docker->held_back, &box->link);
    if (!looks_after(box->docker)->refresh)
        start_refresh(looks_after(box->docker));
}

void box_failed(struct box *box, const struct err *err)
{
    struct docker *docker = box->docker;
    const struct sandbox_plan plan = box->plan;
    struct err copy = *err;
    int slot = docker->own_uids && !box->again ? take_slot(docker) : -1;
    if (!box->again && (slot >= 0 || !docker->own_uids)) {
        log_debug("%s; looking at the engine again", copy.msg);
        box_clear(box);
        box->slot = slot;
        box->again = true;
        hold_back(box);
        return;
    }
    box_free(box);
    broker_failed(docker->broker, &plan, &copy);
}

void box_made(struct box *box)
{
    broker_made(box->docker->broker, &box->plan, &box->base);
}

void box_ended(struct box *box)
{
    box->dead = true;
    if (broker_lost(box->docker->broker, &box->base)) {
        log_warning("sandbox %s died in the pool", box->base.id);
        box_free(box);
    } else {
        timer_start(box->later, 0);
    }
}

void box_adopted(struct box *box, const struct err *err)
{
    const struct engine_pending adoption = box->adoption;
    struct docker *docker = box->docker;
    box->adopting = false;
    if (err)
        box_free(box);
    docker->base.stats.sandboxes_open += !err;
    docker->base.stats.failures_total += !!err;
    adopt_pump(docker);
    adoption.on_started(err ? NULL : &box->base, err, adoption.data);
}

static int make(void *data, const struct sandbox_plan *plan, struct err *err)
{
    struct docker *docker = data;
    if (plan->image >= docker->images.count)
        return err_set(err, EINVAL, "there is no such image");
    int slot = docker->own_uids ? take_slot(docker) : -1;
    if (docker->own_uids && slot < 0)
        return err_set(err, EAGAIN, "all %u places for sandboxes are taken", docker->uid_count);
    struct box *box = box_new(docker, plan, slot);
    if (looks_after(docker)->refresh || !has_image(docker, plan))
        hold_back(box); /* perhaps it is there by now */
    else
        box_begin(box);
    return 0;
}

static void discard(struct sandbox *sandbox)
{
    box_free(box_of(sandbox));
}

/*** The interface ***/

static struct engine_pending *docker_start(struct engine *engine, const struct sandbox_plan *plan,
                                           engine_started_fn *on_started, void *data)
{
    return broker_start(docker_of(engine)->broker, plan, on_started, data);
}

static void docker_cancel(struct engine_pending *pending)
{
    list_each (struct box, box, &docker_of(pending->engine)->boxes, link) {
        if (box->adopting && &box->adoption == pending) {
            struct docker *docker = box->docker;
            box_free(box);
            adopt_pump(docker);
            return;
        }
    }
    broker_cancel(docker_of(pending->engine)->broker, pending);
}

static void docker_watch(struct sandbox *sandbox)
{
    const struct box *box = box_of(sandbox);
    if (box->dead && !box->told)
        timer_start(box->later, 0);
}

static void docker_add_kernel(struct sandbox *sandbox, uint32_t number, struct link_pipes *theirs,
                              sandbox_added_fn *on_added, void *data)
{
    (void)number, (void)theirs; /* there will be nobody to have them */
    box_add_kernel(box_of(sandbox), on_added, data);
}

static void docker_usage(struct sandbox *sandbox, sandbox_usage_fn *on_usage, void *data)
{
    box_usage(box_of(sandbox), on_usage, data);
}

static void docker_destroy(struct sandbox *sandbox)
{
    docker_of(sandbox->engine)->base.stats.sandboxes_open--;
    box_free(box_of(sandbox));
}

static void docker_leave(struct sandbox *sandbox)
{
    struct docker *docker = docker_of(sandbox->engine);
    docker->base.stats.sandboxes_open--;
    docker->leaves_kept = true;
    box_leave(box_of(sandbox));
}

static int docker_list_all(const struct engine_options *options, json_t *ret, struct err *err)
{
    struct docker_target *target;
    size_t i;
    json_t *row;
    int r = docker_target_new(&options->docker, &target, err);
    if (r < 0)
        return r;
    const struct prepare_options look = { .target = target,
                                          .timeout_ms = options->docker.timeout_ms };
    r = docker_list(&look, ret, err);
    docker_target_unref(target);
    json_array_foreach(ret, i, row)
    {
        const char *id = json_str(row, "instance");
        json_put_str(row, "server", instance_server(options->state_dir, INSTANCES_DOCKER, id));
    }
    return r;
}

static const char *docker_origin(const struct engine *engine, uint64_t image)
{
    return docker_prepared(container_of(engine, struct docker, base))->images[image].id;
}

static json_t *docker_report(const struct engine *engine)
{
    const struct docker *docker = container_of(engine, struct docker, base);
    const struct docker_facts *facts = &docker->prepared.facts;
    json_t *report = json_object();
    json_put_str(report, "version", facts->version);
    json_put_str(report, "api", facts->api);
    json_put_str(report, "image", docker->images.items[0]);
    json_put_str(report, "runtime", *docker->runtime ? docker->runtime : facts->runtime);
    json_put_str(report, "cgroup", facts->cgroup_version == 2 ? "v2" : "v1");
    json_put_str(report, "cgroup_driver", facts->cgroup_driver);
    json_put(report, "rootless", json_boolean(facts->rootless));
    return report;
}

/*** Open and close ***/

/* The worker ends soon, and finds nobody. */
static void leave_refresh(struct docker *docker)
{
    if (!docker->refresh)
        return;
    docker->refresh->docker = NULL;
    atomic_store(&docker->refresh->cancelled, true);
    docker->refresh = NULL;
}

static void remove_everything(struct docker *docker)
{
    auto_json *names = json_object();
    while (!list_empty(&docker->boxes))
        box_free(list_first(struct box, &docker->boxes, link));
    while (!list_empty(&docker->held_back))
        box_free(list_first(struct box, &docker->held_back, link));
    graves_give_up(docker, names);
    docker_packages_close(docker, names);
    looks_after(docker)->leaves_some |=
        !docker_remove_all(docker->target, docker_prepared(docker)->facts.api, names, CLOSE_MS);
    if (docker->guests)
        return; /* the instance is the guests' engine's */
    if (!docker->leaves_some && !docker->leaves_kept) {
        instance_remove(&docker->instance);
        for (size_t i = 0; i < docker->n_heirs; i++)
            instance_remove(&docker->heirs[i]);
    }
    if (docker->leaves_some)
        log_info("containers may be left; the next start with this state_dir removes them");
}

static void docker_close(struct engine *engine)
{
    struct docker *docker = docker_of(engine);
    leave_refresh(docker);
    dead_free(docker->dead);
    broker_free(docker->broker);
    docker->leaves_kept |= !list_empty(&docker->kept);
    if (docker->api)
        remove_everything(docker);
    kept_done(docker);
    if (docker->guests)
        docker->guests->installers = NULL;
    timer_free(docker->bury);
    docker_api_free(docker->api);
    instance_close(&docker->instance);
    prepared_done(&docker->prepared);
    seccomp_program_done(&docker->filter);
    docker_target_unref(docker->target);
    free(docker->taken);
    free(docker->seccomp);
    image_names_done(&docker->images);
    free(docker->runtime);
    free(docker->working_dir);
    free(docker->network);
    free(docker->wheels);
    free(docker->packages.dir);
    free(docker->packages.copies);
    free(docker);
}

/* What the engine says it enforces. The user namespace is the operator's choice, and never missed. */
static unsigned layers_of(const struct docker *docker)
{
    const struct docker_facts *facts = &docker_prepared(docker)->facts;
    unsigned layers = LAYER_MOUNT_NS | LAYER_PID_NS | LAYER_IPC_NS | LAYER_UTS_NS | LAYER_CGROUP_NS;
    layers |= str_eq(docker->network, "host") ? 0 : LAYER_NET_NS;
    layers |= facts->rootless || facts->userns ? LAYER_USER_NS : 0;
    layers |= facts->seccomp ? LAYER_SECCOMP : 0;
    layers |= docker->own_uids ? LAYER_OWN_UID : 0;
    layers |= facts->memory_limit ? LAYER_MEMORY_LIMIT : 0;
    layers |= facts->pids_limit ? LAYER_PIDS_LIMIT : 0;
    layers |= facts->cpu_limit ? LAYER_CPU_LIMIT : 0;
    return layers;
}

static int check_layers(unsigned layers, unsigned allowed, struct err *err)
{
    static const unsigned needed =
        LAYER_SECCOMP | LAYER_MEMORY_LIMIT | LAYER_PIDS_LIMIT | LAYER_CPU_LIMIT;
    unsigned missing = needed & ~layers & ~allowed;
    for (unsigned bit = 0; bit < ENGINE_LAYERS; bit++)
        if (missing & (1u << bit))
            return err_set(
                err, ENOTSUP,
                "the container engine cannot enforce %s; give it to the engine's host, or "
                "name it in allow_missing",
                engine_layer_name((enum engine_layer)(1u << bit)));
    return 0;
}

/* A server that was started by root becomes somebody else, who must still be able to connect. */
static int keep_access(struct docker *docker, struct err *err)
{
    struct stat st;
    const char *path = docker->target->socket;
    if (!path || geteuid() != 0 || stat(path, &st) < 0)
        return 0; /* what is wrong with it is seen soon */
    if ((st.st_mode & 0060) != 0060)
        return err_set(err, EACCES,
                       "docker.host: %s is for its owner alone, and the server does not stay root; "
                       "give the socket a group (dockerd --group NAME), or start belljar as its "
                       "owner",
                       path);
    docker->base.keeps_group = true;
    docker->base.group = st.st_gid;
    return 0;
}

/* Asks the engine; cleans up after servers that are dead. */
static int prepare(struct docker *docker, const struct engine_options *open, struct err *err)
{
    struct instance dead[DOCKER_DEAD_MAX];
    const struct prepare_options options = { .target = docker->target,
                                             .images = docker->images.items,
                                             .n_images = docker->images.count,
                                             .instance = docker->instance.id,
                                             .timeout_ms = docker->timeout_ms };
    int r = docker_prepare(&options, &docker->prepared, err);
    if (r < 0)
        return r;
    size_t n_dead = instance_take_dead(&docker->instance, dead, DOCKER_DEAD_MAX);
    docker->dead = dead_new(docker, dead, n_dead);
    docker->adopts = open->adopts;
    kept_choose(docker, open->kept);
    auto_json *spared = kept_names(docker);
    docker_clean_dead(&options, docker->prepared.facts.api, dead, n_dead, spared);
    kept_found(docker, spared);
    for (size_t i = 0; i < n_dead; i++)
        if (dead[i].lock >= 0 && docker->adopts)
            docker->heirs[docker->n_heirs++] = dead[i];
        else
            instance_close(&dead[i]);
    return 0;
}

static int build_filter(struct docker *docker, struct err *err)
{
    bool podman = docker_prepared(docker)->facts.podman;
    enum seccomp_role role = !podman          ? SECCOMP_GUEST_SHARED
                             : docker->guests ? SECCOMP_GUEST_WHOLE_NETWORK
                                              : SECCOMP_GUEST_WHOLE;
    auto_json *profile = seccomp_profile(docker->guests ? SECCOMP_AGENT_NETWORK : SECCOMP_AGENT);
    docker->seccomp = json_text(profile);
    return seccomp_build(role, &docker->filter, err);
}

static int open_parts(struct docker *docker, const struct engine_options *options, struct err *err)
{
    int r = docker_target_new(&options->docker, &docker->target, err);
    if (r == 0)
        r = keep_access(docker, err);
    if (r == 0 && docker->guests)
        memcpy(docker->instance.id, docker->guests->instance.id, sizeof(docker->instance.id));
    else if (r == 0)
        r = instance_open(options->state_dir, INSTANCES_DOCKER, options->instance,
                          &docker->instance, err);
    if (r < 0)
        return r;
    r = docker->guests ? 0 : prepare(docker, options, err);
    if (r == 0)
        r = build_filter(docker, err);
    if (r < 0)
        return r;
    choose_users(docker, options);
    kept_claim(docker);
    docker->base.layers = layers_of(docker);
    return check_layers(docker->base.layers, options->allow_missing, err);
}

static int docker_open(uv_loop_t *loop, const struct engine_options *options, struct engine **ret,
                       struct err *err)
{
    struct docker *docker = xcalloc(1, sizeof(*docker));
    docker->base.ops = &docker_engine_ops;
    docker->loop = loop;
    docker->instance = (struct instance){ .dir = -1, .lock = -1 };
    docker->images = image_names_copy(options->docker.images, options->docker.n_images);
    docker->runtime = xstrdup(options->docker.runtime);
    docker->working_dir = xstrdup(options->docker.working_dir);
    docker->timeout_ms = options->docker.timeout_ms;
    docker->network = xstrdup(options->network ? options->docker.install_network : "");
    docker->wheels = xstrdup(options->network ? options->network->wheels : "");
    if (options->network)
        docker->guests = docker_of(options->network->guests);
    docker_packages_open(docker, &options->packages);
    list_init(&docker->kept);
    list_init(&docker->boxes);
    list_init(&docker->held_back);
    list_init(&docker->graves);
    int r = open_parts(docker, options, err);
    if (r < 0) {
        if (docker->instance.lock >= 0)
            instance_remove(&docker->instance);
        docker_close(&docker->base);
        return r;
    }
    docker->base.tcp_port = docker_target_port(docker->target);
    docker->api = docker_api_new(loop, docker->target, docker->timeout_ms);
    docker_api_version(docker->api, docker_prepared(docker)->facts.api);
    if (docker->guests)
        docker->guests->installers = docker;
    const struct broker_options pool = { .pooled = options->pool_enabled,
                                         .plan = options->pool_plan,
                                         .size = options->pool_size,
                                         .max_makings = options->pool_max_creations,
                                         .max_age_ms = options->pool_max_age_ms };
    docker->broker =
        broker_new(loop, &docker->base, &pool, &(struct broker_maker){ docker, make, discard });
    docker->bury = timer_new(loop, graves_tend, docker);
    timer_repeat(docker->bury, BURY_MS);
    if (docker->dead)
        dead_watch(docker->dead);
    *ret = &docker->base;
    return 0;
}

const struct engine_ops docker_engine_ops = {
    .name = "docker",
    .open = docker_open,
    .close = docker_close,
    .checks = docker_checks,
    .list = docker_list_all,
    .report = docker_report,
    .start = docker_start,
    .cancel = docker_cancel,
    .watch = docker_watch,
    .add_kernel = docker_add_kernel,
    .show = docker_show,
    .show_cancel = docker_show_cancel,
    .origin = docker_origin,
    .usage = docker_usage,
    .destroy = docker_destroy,
    .note = docker_note,
    .leave = docker_leave,
    .has_kept = docker_has_kept,
    .adopt = docker_adopt,
    .adopt_leave = docker_adopt_leave,
    .drop_kept = docker_drop_kept,
    .is_stale = docker_is_stale,
};
