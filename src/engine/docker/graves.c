#include "engine/docker/private.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    FIRST_PAUSE_MS = 1000,
    LAST_PAUSE_MS = 10 * 1000,
};

struct grave {
    struct docker *docker;
    struct list link;
    char name[DOCKER_NAME];
    int slot;
    uint64_t unsure_ms;       /* until then, that it is not there proves nothing */
    struct docker_call *call; /* NULL: pausing */
    uint64_t pause_ms, not_before_ms;
};

static void grave_free(struct grave *grave)
{
    docker_call_cancel(grave->call);
    list_remove(&grave->link);
    free(grave);
}

static void on_removed(const struct docker_reply *reply, void *data)
{
    struct grave *grave = data;
    struct err err;
    int r = docker_expect(reply, "remove a container", &err);
    grave->call = NULL;
    if (r == 0 || (reply->status == 404 && clock_ms() >= grave->unsure_ms)) {
        docker_free_slot(grave->docker, grave->slot);
        grave_free(grave);
        return;
    }
    /* 409: the engine is at it, and will say 404 soon. */
    if (!grave->pause_ms && reply->status != 409 && reply->status != 404)
        log_warning("container %s is still to be removed: %s", grave->name, err.msg);
    uint64_t pause = grave->pause_ms ? grave->pause_ms * 2 : FIRST_PAUSE_MS;
    grave->pause_ms = pause < LAST_PAUSE_MS ? pause : LAST_PAUSE_MS;
    grave->not_before_ms = clock_ms() + grave->pause_ms;
}

static void remove_it(struct grave *grave)
{
    auto_free char *path = docker_removal_path(grave->name);
    grave->call = docker_call(grave->docker->api,
                              &(struct docker_request){ .method = "DELETE", .path = path },
                              on_removed, grave);
}

void grave_add(struct docker *docker, const char *name, int slot, bool unsure)
{
    struct grave *grave = xcalloc(1, sizeof(*grave));
    grave->docker = docker;
    grave->unsure_ms = unsure ? clock_ms() + docker->timeout_ms + DOCKER_UNSURE_MS : 0;
    grave->slot = slot;
    (void)snprintf(grave->name, sizeof(grave->name), "%s", name);
    list_add_tail(&docker->graves, &grave->link);
    remove_it(grave);
}

void graves_tend(void *data)
{
    struct docker *docker = data;
    uint64_t now = clock_ms();
    list_each (struct grave, grave, &docker->graves, link)
        if (!grave->call && now >= grave->not_before_ms)
            remove_it(grave);
}

void graves_give_up(struct docker *docker, json_t *names)
{
    list_each (struct grave, grave, &docker->graves, link) {
        json_put(names, grave->name, json_boolean(clock_ms() < grave->unsure_ms));
        grave_free(grave);
    }
}
