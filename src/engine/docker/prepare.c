#include "engine/docker/prepare.h"

#include "agent/image.h"
#include "base/log.h"
#include "engine/docker/ask.h"
#include "engine/docker/container.h"
#include "engine/docker/tar.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define OUR_ARCH "amd64"
#elif defined(__aarch64__)
#define OUR_ARCH "arm64"
#else
#error "this machine's name in the container engines' words is not known"
#endif

/*** The engine ***/

static int look(struct asker *asker, struct docker_facts *ret, struct err *err)
{
    const struct docker_reply *reply = asker_get(asker, "/version");
    int r = docker_expect(reply, "ask the container engine for its version", err);
    if (r == 0)
        r = docker_read_version(reply, ret, err);
    if (r < 0)
        return r;
    docker_api_version(asker->api, ret->api);
    reply = asker_get(asker, "/info");
    r = docker_expect(reply, "ask the container engine about its host", err);
    return r < 0 ? r : docker_read_info(reply, ret, err);
}

int docker_look(const struct prepare_options *options, struct docker_facts *ret, struct err *err)
{
    struct asker asker;
    *ret = (struct docker_facts){ 0 };
    int r = asker_open(&asker, options->target, options->timeout_ms, options->cancelled, err);
    if (r < 0)
        return r;
    r = look(&asker, ret, err);
    asker_close(&asker);
    return r;
}

char *docker_list_path(const char *id)
{
    /* {"label":["belljar.instance=ID"]}; an id is of characters that need no escape. */
    return xasprintf(
        "/containers/json?all=true&filters=%%7B%%22label%%22%%3A%%5B%%22" CONTAINER_LABEL_INSTANCE
        "%s%s%%22%%5D%%7D",
        id ? "%3D" : "", id ? id : "");
}

int docker_list(const struct prepare_options *options, json_t *ret, struct err *err)
{
    struct asker asker;
    struct docker_facts facts = { 0 };
    auto_free char *path = docker_list_path(/* id= */ NULL);
    int r = asker_open(&asker, options->target, options->timeout_ms, options->cancelled, err);
    if (r < 0)
        return r;
    r = look(&asker, &facts, err);
    if (r == 0) {
        const struct docker_reply *reply = asker_get(&asker, path);
        r = docker_expect(reply, "list containers", err);
        if (r == 0)
            r = docker_read_list(reply, CONTAINER_LABEL_INSTANCE, ret, err);
    }
    asker_close(&asker);
    return r;
}

static int check_arch(const struct docker_facts *facts, struct err *err)
{
    if (!*facts->arch || str_eq(facts->arch, OUR_ARCH))
        return 0;
    return err_set(err, ENOEXEC,
                   "the container engine's machine is %s, and this belljar is made for " OUR_ARCH,
                   facts->arch);
}

int docker_no_image(const char *name, struct err *err)
{
    return err_set(
        err, ENOENT,
        "docker.image: the container engine has no image %s; make it with `belljar image "
        "build`, or fetch it with `docker pull %s`",
        name, name);
}

static int find_image(struct asker *asker, const char *name, struct docker_image *ret,
                      struct err *err)
{
    auto_free char *path = xasprintf("/images/%s/json", name);
    const struct docker_reply *reply = asker_get(asker, path);
    if (reply->status == 404)
        return docker_no_image(name, err);
    int r = docker_expect(reply, "look for the image", err);
    return r < 0 ? r : docker_read_image(reply, ret, err);
}

static int find_images(struct asker *asker, const struct prepare_options *options,
                       struct prepared *ret, struct err *err)
{
    ret->images = xcalloc(options->n_images, sizeof(*ret->images));
    ret->n_images = options->n_images;
    for (size_t i = 0; i < options->n_images; i++) {
        int r = find_image(asker, options->images[i], &ret->images[i], err);
        if (r < 0 && (i == 0 || r != -ENOENT))
            return r;
        if (r < 0)
            log_warning("docker.images: the container engine has no image %s", options->images[i]);
    }
    return 0;
}

/*** The agent's volume ***/

static void name_volume(char *ret, size_t size)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    (void)SHA256(agent_image, agent_image_len, hash);
    int n = snprintf(ret, size, "belljar-agent-");
    for (size_t i = 0; i < 16; i++)
        n += snprintf(ret + n, size - (size_t)n, "%02x", hash[i]);
}

char *docker_removal_path(const char *name)
{
    return xasprintf("/containers/%s?force=true&v=true", name);
}

static int put_agent(struct asker *asker, const char *container, struct err *err)
{
    auto_free char *path = xasprintf("/containers/%s/archive?path=" CONTAINER_AGENT_DIR, container);
    auto_buf tar = BUF_INIT(BUF_NO_CEILING);
    tar_program(&tar, CONTAINER_AGENT_NAME, agent_image, agent_image_len);
    return docker_expect(asker_ask(asker, &(struct docker_request){ .method = "PUT",
                                                                    .path = path,
                                                                    .type = "application/x-tar",
                                                                    .body = tar.data,
                                                                    .len = tar.len }),
                         "put the agent into its volume", err);
}

/* Through a container that is never started: it has the volume mounted, and can be written to. */
static int fill_volume(struct asker *asker, const struct prepare_options *options,
                       const struct prepared *prepared, struct err *err)
{
    auto_free char *name = xasprintf("belljar-%s-agent", options->instance);
    auto_free char *create = xasprintf("/containers/create?name=%s", name);
    auto_free char *removal = docker_removal_path(name);
    auto_json *volume = json_pack("{s:s}", "Name", prepared->volume);
    int r =
        docker_expect(asker_post(asker, "/volumes/create", volume), "make the agent's volume", err);
    if (r < 0)
        return r;
    const struct container_plan plan = { .image = &prepared->images[0],
                                         .instance = options->instance,
                                         .sandbox = "agent" };
    auto_json *helper = container_helper_json(&plan, prepared->volume, CONTAINER_AGENT_DIR);
    r = docker_expect(asker_post(asker, create, helper), "make a container for the agent's volume",
                      err);
    if (r == 0)
        r = put_agent(asker, name, err);
    (void)asker_ask(asker, &(struct docker_request){ .method = "DELETE", .path = removal });
    return r;
}

static int see_to_volume(struct asker *asker, const struct prepare_options *options,
                         const struct prepared *prepared, struct err *err)
{
    auto_free char *path = xasprintf("/volumes/%s", prepared->volume);
    const struct docker_reply *reply = asker_get(asker, path);
    if (reply->status == 200 && !options->refill)
        return 0;
    if (reply->status != 200 && reply->status != 404)
        return docker_explain(reply, "look for the agent's volume", err);
    return fill_volume(asker, options, prepared, err);
}

int docker_prepare(const struct prepare_options *options, struct prepared *ret, struct err *err)
{
    struct asker asker;
    *ret = (struct prepared){ 0 };
    name_volume(ret->volume, sizeof(ret->volume));
    int r = asker_open(&asker, options->target, options->timeout_ms, options->cancelled, err);
    if (r < 0)
        return r;
    r = look(&asker, &ret->facts, err);
    if (r == 0)
        r = check_arch(&ret->facts, err);
    if (r == 0)
        r = find_images(&asker, options, ret, err);
    if (r == 0)
        r = see_to_volume(&asker, options, ret, err);
    asker_close(&asker);
    if (r < 0)
        prepared_done(ret);
    return r;
}

void prepared_done(struct prepared *prepared)
{
    for (size_t i = 0; i < prepared->n_images; i++)
        docker_image_done(&prepared->images[i]);
    free(prepared->images);
    *prepared = (struct prepared){ 0 };
}

/*** Removing ***/

enum {
    UNSURE_MS = 2000, /* after which what is not there will not be made any more */
    AGAIN_MS = 100,
};

enum removal_state { REMOVAL_TODO, REMOVAL_ASKED, REMOVAL_SETTLED };

struct removal {
    struct removals *all;
    const char *name;
    enum removal_state state;
    bool unsure, gone;
};

struct removals {
    struct asker asker;
    struct removal *items;
    size_t count, settled;
    uint64_t begin_ms;
};

/* 409: the engine is at it already. */
static void on_removed(const struct docker_reply *reply, void *data)
{
    struct removal *removal = data;
    struct removals *all = removal->all;
    int status = reply->status;
    if (status == 404 && removal->unsure && clock_ms() - all->begin_ms < UNSURE_MS) {
        removal->state = REMOVAL_TODO;
        return;
    }
    removal->gone =
        (status >= 200 && status < 300) || status == 409 || (status == 404 && !removal->unsure);
    removal->state = REMOVAL_SETTLED;
    all->settled++;
}

static void ask_for_removals(void *data)
{
    struct removals *all = data;
    for (size_t i = 0; i < all->count; i++) {
        struct removal *removal = &all->items[i];
        if (removal->state != REMOVAL_TODO)
            continue;
        auto_free char *path = docker_removal_path(removal->name);
        removal->state = REMOVAL_ASKED;
        (void)docker_call(all->asker.api,
                          &(struct docker_request){ .method = "DELETE", .path = path }, on_removed,
                          removal);
    }
}

static size_t list_removals(struct removals *all, json_t *names)
{
    const char *name;
    json_t *unsure;
    all->items = xcalloc(json_object_size(names), sizeof(*all->items));
    json_object_foreach(names, name, unsure) all->items[all->count++] =
        (struct removal){ .all = all, .name = name, .unsure = json_is_true(unsure) };
    return all->count;
}

bool docker_remove_all(const struct docker_target *target, const char *api, json_t *names,
                       uint64_t limit_ms)
{
    struct removals all = { .begin_ms = clock_ms() };
    struct err err;
    bool gone = true;
    if (!list_removals(&all, names) ||
        asker_open(&all.asker, target, limit_ms, /* cancelled= */ NULL, &err) < 0) {
        free(all.items);
        return all.count == 0;
    }
    docker_api_version(all.asker.api, api);
    struct timer *again = timer_new(&all.asker.loop, ask_for_removals, &all);
    timer_repeat(again, AGAIN_MS);
    ask_for_removals(&all);
    while (all.settled < all.count && clock_ms() - all.begin_ms < limit_ms)
        (void)uv_run(&all.asker.loop, UV_RUN_ONCE);
    for (size_t i = 0; i < all.count; i++)
        gone &= all.items[i].gone;
    timer_free(again);
    asker_close(&all.asker);
    free(all.items);
    return gone;
}

/* Moves the names of those that stay out of `names`; how many. */
static size_t take_spared(json_t *names, json_t *spared)
{
    size_t count = 0;
    const char *name;
    json_t *unused;
    json_object_foreach(spared, name, unused)
    {
        if (json_object_del(names, name) < 0)
            continue;
        (void)json_object_set_new(spared, name, json_true());
        count++;
    }
    return count;
}

/* False: the engine does not tell, or does not obey. */
static bool clean_one(const struct prepare_options *options, const char *api, const char *id,
                      json_t *spared, size_t *ret_spared)
{
    struct asker asker;
    struct err err;
    auto_json *names = json_object();
    auto_free char *path = docker_list_path(id);
    int r = asker_open(&asker, options->target, options->timeout_ms, options->cancelled, &err);
    if (r == 0) {
        docker_api_version(asker.api, api);
        const struct docker_reply *reply = asker_get(&asker, path);
        r = docker_expect(reply, "list containers", &err);
        if (r == 0)
            r = docker_read_names(reply, CONTAINER_LABEL_INSTANCE, id, names, &err);
        asker_close(&asker);
    }
    if (r < 0) {
        log_warning("what instance %s has left cannot be seen: %s", id, err.msg);
        return false;
    }
    *ret_spared = take_spared(names, spared);
    if (json_object_size(names))
        log_info("removing %zu containers that instance %s has left", json_object_size(names), id);
    return docker_remove_all(options->target, api, names, options->timeout_ms);
}

void docker_clean_dead(const struct prepare_options *options, const char *api,
                       struct instance *dead, size_t count, json_t *spared)
{
    for (size_t i = 0; i < count; i++) {
        size_t stay = 0;
        /* The engine may still be at work on what it asked for last; then the next start looks again. */
        bool settled = instance_age_ms(&dead[i]) > options->timeout_ms + DOCKER_UNSURE_MS;
        bool clean = clean_one(options, api, dead[i].id, spared, &stay);
        if (stay)
            continue;
        if (clean && settled)
            instance_remove(&dead[i]);
        instance_close(&dead[i]);
    }
}
