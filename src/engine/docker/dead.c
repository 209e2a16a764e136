/*
 * What dead servers have asked for. An engine may still be about to make a container when its server is killed
 * and the next one has looked: such a container is never started, so nothing but we will ever remove it.
 */
#include "engine/docker/private.h"

#include "base/log.h"

#include <stdlib.h>

enum { FIRST_MS = 500, LAST_MS = 16 * 1000 };

struct dead {
    struct docker *docker;
    json_t *ids; /* of their instances */
    size_t next; /* of them to be asked for */
    struct docker_call *call;
    struct timer *timer;
    uint64_t pause_ms, until_ms;
};

struct dead *dead_new(struct docker *docker, const struct instance *instances, size_t count)
{
    struct dead *dead = xcalloc(1, sizeof(*dead));
    dead->docker = docker;
    dead->ids = json_array();
    for (size_t i = 0; i < count; i++)
        json_push(dead->ids, json_string(instances[i].id));
    return dead;
}

void dead_free(struct dead *dead)
{
    if (!dead)
        return;
    docker_call_cancel(dead->call);
    timer_free(dead->timer);
    json_decref(dead->ids);
    free(dead);
}

bool dead_has(const struct dead *dead, const char *id)
{
    for (size_t i = 0; i < json_array_size(dead->ids); i++)
        if (str_eq(json_string_value(json_array_get(dead->ids, i)), id))
            return true;
    return false;
}

static const char *next_id(const struct dead *dead)
{
    return json_string_value(json_array_get(dead->ids, dead->next));
}

static void ask(struct dead *dead);

static void on_list(const struct docker_reply *reply, void *data)
{
    struct dead *dead = data;
    auto_json *names = json_object();
    struct err err;
    const char *name;
    json_t *unused;
    dead->call = NULL;
    if (docker_expect(reply, "list containers", &err) < 0 ||
        docker_read_names(reply, CONTAINER_LABEL_INSTANCE, next_id(dead), names, &err) < 0)
        log_debug("%s", err.msg); /* it is asked again */
    json_object_foreach(names, name, unused)
    {
        if (docker_spares(dead->docker, name))
            continue;
        log_info("removing %s, which was made for a server that is dead", name);
        grave_add(dead->docker, name, /* slot= */ -1, /* unsure= */ false);
    }
    dead->next++;
    ask(dead);
}

/* For the next, or, after the last, for all of them again in a while. */
static void ask(struct dead *dead)
{
    if (next_id(dead)) {
        auto_free char *path = docker_list_path(next_id(dead));
        dead->call =
            docker_call(dead->docker->api,
                        &(struct docker_request){ .method = "GET", .path = path }, on_list, dead);
    } else if (clock_ms() < dead->until_ms) {
        dead->next = 0;
        timer_start(dead->timer, dead->pause_ms);
        dead->pause_ms = dead->pause_ms < LAST_MS ? dead->pause_ms * 2 : LAST_MS;
    }
}

static void on_time(void *data)
{
    ask(data);
}

void dead_watch(struct dead *dead)
{
    dead->timer = timer_new(dead->docker->loop, on_time, dead);
    dead->pause_ms = FIRST_MS;
    dead->until_ms = clock_ms() + dead->docker->timeout_ms + DOCKER_UNSURE_MS;
    if (json_array_size(dead->ids))
        timer_start(dead->timer, FIRST_MS);
}
