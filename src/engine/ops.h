/*
 * ops: what an engine implements behind engine.h. The structs hold what every engine has; an engine
 * embeds them as the first member of its own.
 */
#ifndef BELLJAR_ENGINE_OPS_H
#define BELLJAR_ENGINE_OPS_H

#include "engine/engine.h"

struct engine_ops {
    const char *name;
    bool tells_counts; /* as sandbox_tells_counts() */
    int (*open)(uv_loop_t *loop, const struct engine_options *options, struct engine **ret,
                struct err *err);
    void (*close)(struct engine *engine);
    size_t (*checks)(const struct engine_options *options,
                     struct engine_check ret[ENGINE_CHECKS_MAX]);
    int (*list)(const struct engine_options *options, json_t *ret, struct err *err);
    json_t *(*report)(const struct engine *engine);
    struct engine_pending *(*start)(struct engine *engine, const struct sandbox_plan *plan,
                                    engine_started_fn *on_started, void *data);
    void (*cancel)(struct engine_pending *pending);
    /* on_died has been set: tell, from the loop, if it is dead already. */
    void (*watch)(struct sandbox *sandbox);
    void (*add_kernel)(struct sandbox *sandbox, uint32_t number, struct link_pipes *theirs,
                       sandbox_added_fn *on_added, void *data);
    /* Both NULL: sandboxes see options.packages.dir itself. */
    struct engine_showing *(*show)(struct engine *engine, const char *name, uint64_t timeout_ms,
                                   engine_shown_fn *on_shown, void *data);
    void (*show_cancel)(struct engine_showing *showing);
    const char *(*origin)(const struct engine *engine, uint64_t image); /* NULL: this host */
    void (*usage)(struct sandbox *sandbox, sandbox_usage_fn *on_usage, void *data);
    bool (*counts)(struct sandbox *sandbox, struct sandbox_usage *ret); /* NULL: never */
    /* With its stream: nothing runs in it, and its end has no hurry. */
    void (*destroy)(struct sandbox *sandbox);
    /* NULL, all of them: no sandbox outlives its server. */
    json_t *(*note)(const struct sandbox *sandbox);
    void (*leave)(struct sandbox *sandbox);
    bool (*has_kept)(const struct engine *engine, const json_t *note,
                     const struct sandbox_plan *plan);
    struct engine_pending *(*adopt)(struct engine *engine, const json_t *note,
                                    const struct sandbox_plan *plan, engine_started_fn *on_started,
                                    void *data);
    void (*adopt_leave)(struct engine_pending *pending);
    void (*drop_kept)(struct engine *engine);
    bool (*is_stale)(const struct engine *engine, const json_t *note);
};

struct engine {
    const struct engine_ops *ops;
    unsigned layers;
    struct engine_stats stats;
    bool keeps_group; /* beyond engine_drop_privileges(): what it needs to reach its sandboxes */
    gid_t group;
    uint16_t tcp_port; /* beyond engine_confine(): where it connects to; 0: nowhere */
};

struct sandbox {
    struct engine *engine;
    char id[96];
    int fd; /* -1 while it is taken */
    void (*on_died)(struct sandbox *sandbox, void *data);
    void *on_died_data;
};

struct engine_pending {
    struct engine *engine;
    engine_started_fn *on_started;
    void *data;
};

struct engine_showing {
    struct engine *engine;
    engine_shown_fn *on_shown;
    void *data;
};

extern const struct engine_ops native_engine_ops, docker_engine_ops;

#endif
