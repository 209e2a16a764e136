/*
 * Containers that outlive their server. What the next one has to know of a container stands in a note that
 * the sessions keep with their own; what is true of it is asked of the engine: it must be there, with the
 * label of a server that is dead, and whose files are locked by us. The same lock keeps others away: it stays
 * ours for as long as we live, for a label cannot be changed, and it is by it that what we may leave is found.
 *
 *   engine_open()   kept_choose() ─▶ docker_clean_dead() spares them ─▶ kept_found()
 *   engine_adopt()  kept ─▶ box ─▶ box_adopt()
 *
 * A container is only taken if it has been made as we would make it: with our agent, by the same runtime, with
 * the same volume of packages, of an image that is still that image. A few are joined at once, the others wait: an
 * engine that has to start many processes is slow with each.
 */
#include "engine/docker/private.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE = 4 };

struct kept {
    struct list link; /* docker->kept */
    char name[DOCKER_NAME];
    char image[sizeof(((struct docker_image *)NULL)->id)];
    uint32_t uid;
    int slot; /* -1: not yet, or none of our range */
};

static void kept_free(struct kept *kept)
{
    list_remove(&kept->link);
    free(kept);
}

static struct kept *find(const struct docker *docker, const char *name)
{
    list_each (struct kept, kept, &docker->kept, link)
        if (str_eq(kept->name, name))
            return kept;
    return NULL;
}

bool docker_spares(const struct docker *docker, const char *name)
{
    list_each (struct box, box, &docker->boxes, link)
        if (str_eq(box->name, name))
            return true;
    return find(docker, name);
}

/*** At the start ***/

/* A name that we could have given. */
static bool is_name(const char *name)
{
    return docker_is_name(name) && strlen(name) < DOCKER_NAME && str_has_prefix(name, "belljar-");
}

/* How we would not make it today; NULL: we would. */
static const char *refusal(const struct docker *docker, const json_t *note)
{
    if (!str_eq(json_str(note, "agent"), docker->prepared.volume))
        return "it has the agent of another version";
    if (!str_eq(json_str(note, "runtime"), docker->runtime))
        return "it has another runtime";
    if (!str_eq(json_str(note, "packages"), docker->packages.volume))
        return "it sees other packages";
    return NULL;
}

static void choose(struct docker *docker, const json_t *note)
{
    const char *name = json_str(note, "sandbox"), *image = json_str(note, "image");
    json_int_t uid = json_integer_value(json_object_get(note, "uid"));
    if (!is_name(name) || find(docker, name) || !dead_has(docker->dead, json_str(note, "instance")))
        return;
    const char *why = docker->adopts ? refusal(docker, note) : NULL; /* another would take it */
    if (why || !image || uid < 1 || uid > UINT32_MAX) {
        log_info("%s is not adopted: %s", name, why ? why : "its note makes no sense");
        return;
    }
    struct kept *kept = xcalloc(1, sizeof(*kept));
    (void)snprintf(kept->name, sizeof(kept->name), "%s", name);
    (void)snprintf(kept->image, sizeof(kept->image), "%s", image);
    kept->uid = (uint32_t)uid;
    kept->slot = -1;
    list_add_tail(&docker->kept, &kept->link);
}

void kept_choose(struct docker *docker, const json_t *notes)
{
    size_t i;
    json_t *note;
    json_array_foreach(notes, i, note) choose(docker, note);
}

json_t *kept_names(const struct docker *docker)
{
    json_t *names = json_object();
    list_each (struct kept, kept, &docker->kept, link)
        json_put(names, kept->name, json_false());
    return names;
}

void kept_found(struct docker *docker, const json_t *found)
{
    list_each (struct kept, kept, &docker->kept, link)
        if (!json_is_true(json_object_get(found, kept->name)))
            kept_free(kept);
}

void kept_claim(struct docker *docker)
{
    list_each (struct kept, kept, &docker->kept, link)
        kept->slot = docker_claim_slot(docker, kept->uid);
}

void kept_done(struct docker *docker)
{
    while (!list_empty(&docker->kept))
        kept_free(list_first(struct kept, &docker->kept, link));
    for (size_t i = 0; i < docker->n_heirs; i++)
        instance_close(&docker->heirs[i]);
    docker->n_heirs = 0;
}

/*** For sessions ***/

json_t *docker_note(const struct sandbox *sandbox)
{
    const struct box *box = container_of(sandbox, struct box, base);
    const struct docker *docker = box->docker;
    json_t *note = json_object();
    json_put_str(note, "instance", docker->instance.id);
    json_put_str(note, "sandbox", box->name);
    json_put_str(note, "agent", docker->prepared.volume);
    json_put_str(note, "runtime", docker->runtime);
    json_put_str(note, "packages", docker->packages.volume);
    json_put_str(note, "image", box->image);
    json_put(note, "uid", json_integer(box->uid));
    return note;
}

bool docker_has_kept(const struct engine *engine, const json_t *note,
                     const struct sandbox_plan *plan)
{
    const struct docker *docker = container_of(engine, struct docker, base);
    const char *name = json_str(note, "sandbox");
    const struct kept *kept = name ? find(docker, name) : NULL;
    return kept && plan->image < docker->images.count &&
           str_eq(kept->image, docker->prepared.images[plan->image].id);
}

/* The box is not freed in here: it hears from the loop. */
void adopt_pump(struct docker *docker)
{
    size_t under_way = 0;
    list_each (struct box, box, &docker->boxes, link)
        under_way += box->adopting && box->state != BOX_HELD_BACK;
    list_each (struct box, box, &docker->boxes, link) {
        if (under_way >= AT_ONCE)
            return;
        if (box->adopting && box->state == BOX_HELD_BACK) {
            box_adopt(box);
            under_way++;
        }
    }
}

struct engine_pending *docker_adopt(struct engine *engine, const json_t *note,
                                    const struct sandbox_plan *plan, engine_started_fn *on_started,
                                    void *data)
{
    struct docker *docker = container_of(engine, struct docker, base);
    struct kept *kept = find(docker, json_str(note, "sandbox"));
    struct box *box = box_new(docker, plan, kept->slot);
    box->adopting = true;
    box->adoption = (struct engine_pending){ engine, on_started, data };
    box->uid = kept->uid;
    memcpy(box->image, kept->image, sizeof(box->image));
    (void)snprintf(box->name, sizeof(box->name), "%s", kept->name);
    (void)snprintf(box->base.id, sizeof(box->base.id), "%s", kept->name);
    kept_free(kept);
    adopt_pump(docker);
    return &box->adoption;
}

void docker_adopt_leave(struct engine_pending *pending)
{
    container_of(pending->engine, struct docker, base)->leaves_kept = true;
    box_leave(container_of(pending, struct box, adoption));
}

/* Its server was dead when we started, or has ended so that nothing of it is left. */
bool docker_is_stale(const struct engine *engine, const json_t *note)
{
    const struct docker *docker = container_of(engine, struct docker, base);
    const char *id = json_str(note, "instance");
    return !id || strchr(id, '/') || dead_has(docker->dead, id) ||
           faccessat(docker->instance.dir, id, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

void docker_drop_kept(struct engine *engine)
{
    struct docker *docker = container_of(engine, struct docker, base);
    while (docker->api && !list_empty(&docker->kept)) {
        struct kept *kept = list_first(struct kept, &docker->kept, link);
        log_info("removing %s, which nobody can come back for", kept->name);
        grave_add(docker, kept->name, kept->slot, /* unsure= */ false);
        kept_free(kept);
    }
}
