/*
 * image: makes the image that sandboxes in containers start from, by the engine's interface and without
 * its command. The recipe (packaging/image) is part of the program. For the command line: files are read
 * while the loop waits.
 *
 *   1. image_build_new()    asks the engine; asynchronous
 *   2. on_text()            what the engine says meanwhile, for people
 *   3. on_built()           once: the image's id, or why there is none
 *   4. image_build_free()   before the end it makes the engine stop
 */
#ifndef BELLJAR_ENGINE_IMAGE_H
#define BELLJAR_ENGINE_IMAGE_H

#include "engine/engine.h"

/* Texts are borrowed until image_build_new() returns. */
struct image_recipe {
    const struct engine_docker *docker;
    const char *base;    /* an image's name, with tag or digest, or its id; NULL: a rootfs */
    const char *rootfs;  /* path of the tar of a root file system to begin with */
    const char *name;    /* what the image shall be called, with its tag */
    const char *network; /* of the steps: "default", "host", "none" */
    const char *index;   /* of Python packages; "": PyPI */
    const char *const *trusted_hosts;
    size_t n_trusted_hosts;
    bool fresh; /* take no step from the engine's cache */
    uint64_t timeout_ms;
};

struct image_events {
    void (*on_text)(const char *text, size_t len, void *data); /* a line or a part of one */
    void (*on_built)(const char *id, const struct err *err, void *data);
};

struct image_build;
/* -errno at once when the recipe is no good: the rootfs cannot be read, the engine's address is none. */
int image_build_new(uv_loop_t *loop, const struct image_recipe *recipe,
                    const struct image_events *events, void *data, struct image_build **ret,
                    struct err *err);
void image_build_free(struct image_build *build); /* NULL is fine; no callback afterwards */

#endif
