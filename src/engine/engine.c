/*
 * The front of the engines: picks one by name and passes calls on.
 */
#include "agent/link.h"
#include "engine/ops.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const struct engine_ops *const engines[] = { &native_engine_ops, &docker_engine_ops };

static const struct {
    enum engine_layer layer;
    const char *name;  /* as in allow_missing */
    const char *words; /* as in reports */
} layers[] = {
    { LAYER_USER_NS, "user_namespace", "user namespace" },
    { LAYER_MOUNT_NS, "mount_namespace", "mount namespace" },
    { LAYER_PID_NS, "pid_namespace", "pid namespace" },
    { LAYER_NET_NS, "network_namespace", "network namespace" },
    { LAYER_IPC_NS, "ipc_namespace", "ipc namespace" },
    { LAYER_UTS_NS, "uts_namespace", "uts namespace" },
    { LAYER_CGROUP_NS, "cgroup_namespace", "cgroup namespace" },
    { LAYER_SECCOMP, "seccomp", "seccomp" },
    { LAYER_OWN_UID, "own_uid", "own uid" },
    { LAYER_MEMORY_LIMIT, "memory_limit", "memory limit" },
    { LAYER_PIDS_LIMIT, "pids_limit", "pids limit" },
    { LAYER_CPU_LIMIT, "cpu_limit", "cpu limit" },
    { LAYER_LANDLOCK, "landlock", "landlock" },
};

static const struct engine_ops *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(engines); i++)
        if (str_eq(engines[i]->name, name))
            return engines[i];
    return NULL;
}

int engine_open(uv_loop_t *loop, const char *name, const struct engine_options *options,
                struct engine **ret, struct err *err)
{
    const struct engine_ops *ops = find(name);
    return ops ? ops->open(loop, options, ret, err)
               : err_set(err, EINVAL, "there is no engine named %s", name);
}

size_t engine_checks(const char *name, const struct engine_options *options,
                     struct engine_check ret[ENGINE_CHECKS_MAX])
{
    const struct engine_ops *ops = find(name);
    return ops ? ops->checks(options, ret) : 0;
}

int engine_list(const char *name, const struct engine_options *options, json_t *ret,
                struct err *err)
{
    const struct engine_ops *ops = find(name);
    return ops ? ops->list(options, ret, err) : 0;
}

void engine_close(struct engine *engine)
{
    if (engine)
        engine->ops->close(engine);
}

unsigned engine_layers(const struct engine *engine)
{
    return engine->layers;
}

json_t *engine_report(const struct engine *engine)
{
    json_t *report = engine->ops->report(engine);
    json_t *active = json_object();
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        json_put(active, layers[i].words, json_boolean(engine->layers & layers[i].layer));
    json_put_str(report, "engine", engine->ops->name);
    json_put(report, "layers", active);
    return report;
}

const char *engine_layer_name(enum engine_layer layer)
{
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        if (layers[i].layer == layer)
            return layers[i].name;
    return "unknown";
}

bool engine_layer_parse(const char *name, enum engine_layer *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        if (str_eq(layers[i].name, name)) {
            *ret = layers[i].layer;
            return true;
        }
    return false;
}

struct engine_pending *engine_start(struct engine *engine, const struct sandbox_plan *plan,
                                    engine_started_fn *on_started, void *data)
{
    return engine->ops->start(engine, plan, on_started, data);
}

void engine_start_cancel(struct engine_pending *pending)
{
    pending->engine->ops->cancel(pending);
}

int sandbox_take_fd(struct sandbox *sandbox)
{
    assert(sandbox->fd >= 0); /* may be taken once */
    return steal_fd(&sandbox->fd);
}

const char *sandbox_id(const struct sandbox *sandbox)
{
    return sandbox->id;
}

void sandbox_on_died(struct sandbox *sandbox, void (*on_died)(struct sandbox *sandbox, void *data),
                     void *data)
{
    sandbox->on_died = on_died;
    sandbox->on_died_data = data;
    sandbox->engine->ops->watch(sandbox);
}

void sandbox_add_kernel(struct sandbox *sandbox, uint32_t number, struct link_pipes *theirs,
                        sandbox_added_fn *on_added, void *data)
{
    sandbox->engine->ops->add_kernel(sandbox, number, theirs, on_added, data);
    link_pipes_close(theirs); /* unless they were taken */
}

struct engine_showing *engine_show_packages(struct engine *engine, const char *name,
                                            uint64_t timeout_ms, engine_shown_fn *on_shown,
                                            void *data)
{
    return engine->ops->show ? engine->ops->show(engine, name, timeout_ms, on_shown, data) : NULL;
}

void engine_show_cancel(struct engine_showing *showing)
{
    if (showing)
        showing->engine->ops->show_cancel(showing);
}

const char *engine_origin(const struct engine *engine, uint64_t image)
{
    return engine->ops->origin ? engine->ops->origin(engine, image) : "";
}

void sandbox_usage(struct sandbox *sandbox, sandbox_usage_fn *on_usage, void *data)
{
    sandbox->engine->ops->usage(sandbox, on_usage, data);
}

bool sandbox_counts(struct sandbox *sandbox, struct sandbox_usage *ret)
{
    return sandbox->engine->ops->counts && sandbox->engine->ops->counts(sandbox, ret);
}

bool sandbox_tells_counts(const struct sandbox *sandbox)
{
    return sandbox->engine->ops->tells_counts;
}

void sandbox_destroy(struct sandbox *sandbox)
{
    if (sandbox)
        sandbox->engine->ops->destroy(sandbox);
}

void sandbox_retire(struct sandbox *sandbox, int fd)
{
    auto_fd stream = fd;
    if (!sandbox)
        return;
    assert(sandbox->fd < 0); /* it has been taken */
    sandbox->fd = steal_fd(&stream);
    sandbox->engine->ops->destroy(sandbox);
}

bool engine_keeps(const struct engine *engine)
{
    return engine->ops->note;
}

json_t *sandbox_note(const struct sandbox *sandbox)
{
    return sandbox->engine->ops->note(sandbox);
}

void sandbox_leave(struct sandbox *sandbox)
{
    sandbox->engine->ops->leave(sandbox);
}

bool engine_has_kept(const struct engine *engine, const json_t *note,
                     const struct sandbox_plan *plan)
{
    return engine->ops->has_kept && engine->ops->has_kept(engine, note, plan);
}

struct engine_pending *engine_adopt(struct engine *engine, const json_t *note,
                                    const struct sandbox_plan *plan, engine_started_fn *on_started,
                                    void *data)
{
    return engine->ops->adopt(engine, note, plan, on_started, data);
}

void engine_adopt_leave(struct engine_pending *pending)
{
    pending->engine->ops->adopt_leave(pending);
}

bool engine_is_stale(const struct engine *engine, const json_t *note)
{
    return engine->ops->is_stale && engine->ops->is_stale(engine, note);
}

void engine_drop_kept(struct engine *engine)
{
    if (engine->ops->drop_kept)
        engine->ops->drop_kept(engine);
}

void engine_stats(const struct engine *engine, struct engine_stats *ret)
{
    *ret = engine->stats;
}
