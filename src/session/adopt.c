/*
 * Sessions that outlive their server: the note of each (roster.h), written before its agent is told to stay, and
 * what the next server makes of it.
 *
 *   session is ready, its owner can come back ─▶ note ─▶ link_keep()
 *   the server ends, however                     the agent stays, the note too
 *   the next one: sessions_adopt() ─▶ in the table at once ─(engine_adopt(), link_resume())─▶ READY
 *
 * So there is no moment at which an agent stays that nobody could find; and one without a note is removed by the
 * engine. What a session was given by the operator must be what it would be given today: another policy of
 * imports, another environment or lower limits, and it is not adopted.
 */
#include "session/internal.h"

#include "base/log.h"
#include "session/roster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOTE_VERSION = 1, TOUCH_MS = 1000 };

/*** The note ***/

static const struct {
    const char *name;
    size_t at;
} limit_fields[] = {
    { "memory_bytes", offsetof(struct sandbox_limits, memory_bytes) },
    { "pids", offsetof(struct sandbox_limits, pids) },
    { "cpu_millis", offsetof(struct sandbox_limits, cpu_millis) },
    { "nofile", offsetof(struct sandbox_limits, nofile) },
    { "file_bytes", offsetof(struct sandbox_limits, file_bytes) },
    { "workspace_bytes", offsetof(struct sandbox_limits, workspace_bytes) },
    { "workspace_inodes", offsetof(struct sandbox_limits, workspace_inodes) },
    { "tmp_bytes", offsetof(struct sandbox_limits, tmp_bytes) },
    { "tmp_inodes", offsetof(struct sandbox_limits, tmp_inodes) },
    { "shm_bytes", offsetof(struct sandbox_limits, shm_bytes) },
};
_Static_assert(ARRAY_SIZE(limit_fields) * sizeof(uint64_t) == sizeof(struct sandbox_limits),
               "all of them");

static uint64_t *limit_at(struct sandbox_limits *limits, size_t i)
{
    return (uint64_t *)(void *)((char *)limits + limit_fields[i].at);
}

static json_t *limits_json(struct sandbox_limits limits)
{
    json_t *json = json_object();
    for (size_t i = 0; i < ARRAY_SIZE(limit_fields); i++)
        json_put(json, limit_fields[i].name, json_integer((json_int_t)*limit_at(&limits, i)));
    return json;
}

/* False: they are not whole, or higher than today's. */
static bool read_limits(const json_t *json, struct sandbox_limits most, struct sandbox_limits *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(limit_fields); i++) {
        json_int_t value = json_integer_value(json_object_get(json, limit_fields[i].name));
        if (value < 1 || (uint64_t)value > *limit_at(&most, i))
            return false;
        *limit_at(ret, i) = (uint64_t)value;
    }
    return true;
}

static json_t *or_null(const json_t *json)
{
    return json ? json_deep_copy(json) : json_null();
}

/* What the operator has decided about guests. */
static json_t *conditions(const struct sessions *sessions)
{
    const struct session_options *options = &sessions->options;
    json_t *json = json_object();
    json_put(json, "env", or_null(options->env));
    json_put(json, "allowed_modules", or_null(options->allowed_modules));
    json_put(json, "blocked_modules", or_null(options->blocked_modules));
    json_put_str(json, "python", options->python);
    json_put_str(json, "working_dir", options->working_dir ? options->working_dir : "");
    json_put(json, "on_disk", json_boolean(sessions->disk));
    return json;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static json_t *make_note(const struct session_ref *session)
{
    const struct sessions *sessions = session->sessions;
    const char *image = session_image(session);
    json_t *note = json_object();
    json_put(note, "version", json_integer(NOTE_VERSION));
    json_put_str(note, "profile", sessions->options.stay.profile);
    json_put_str(note, "id", session->id);
    json_put_str(note, "owner", session->owner);
    json_put_str(note, "image", image ? image : "");
    json_put(note, "limits", limits_json(session->limits));
    json_put(note, "kernel", json_deep_copy(session->kernel_config));
    json_put(note, "packages", session_package_sets(session));
    json_put(note, "kept_outputs", json_integer((json_int_t)keeper_number(session->keeper)));
    json_put(note, "created",
             json_integer(now_ms() - (json_int_t)(clock_ms() - session->created_ms)));
    json_put(note, "conditions", conditions(sessions));
    json_put(note, "sandbox", sandbox_note(session->sandbox));
    return note;
}

static int write_note(const struct session_ref *session, const char *name)
{
    auto_json *note = make_note(session);
    return roster_write(session->sessions->options.stay.roster, name, note,
                        clock_ms() - session->last_used_ms);
}

void session_note(struct session_ref *session)
{
    if (session->note_name)
        (void)write_note(session, session->note_name);
}

void session_stay_on(struct session_ref *session)
{
    const struct session_options *options = &session->sessions->options;
    session_note(session);
    link_keep(session->agent, options->idle_timeout_ms, options->interrupt_grace_ms);
}

void session_stay(struct session_ref *session)
{
    const struct session_options *options = &session->sessions->options;
    const struct session_stay_options *stay = &options->stay;
    bool may = stay->roster && engine_keeps(session->sessions->engine) && session->owner &&
               !session->transient && !session->loading && session->state == SESSION_READY;
    if (!may || session->note_name || !stay->comes_back(session->owner) ||
        write_note(session, sandbox_id(session->sandbox)) < 0)
        return;
    session->note_name = xstrdup(sandbox_id(session->sandbox));
    session->noted_ms = clock_ms();
    link_keep(session->agent, options->idle_timeout_ms, options->interrupt_grace_ms);
}

void session_note_used(struct session_ref *session)
{
    if (!session->note_name || clock_ms() - session->noted_ms < TOUCH_MS)
        return;
    session->noted_ms = clock_ms();
    roster_touch(session->sessions->options.stay.roster, session->note_name);
}

void session_note_done(struct session_ref *session, bool stays)
{
    if (session->note_name && !stays)
        roster_remove(session->sessions->options.stay.roster, session->note_name);
    free(session->note_name);
    session->note_name = NULL;
}

/*** The next server ***/

static bool refuse(const char *name, const char *why)
{
    log_info("%s is not adopted: %s", name, why);
    return false;
}

/* Of a note that is somebody else's nothing is said: there may be other servers. */
static bool is_ours(const struct sessions *sessions, const json_t *note)
{
    return json_integer_value(json_object_get(note, "version")) == NOTE_VERSION &&
           str_eq(json_str(note, "profile"), sessions->options.stay.profile);
}

static bool is_welcome(const struct sessions *sessions, const char *name, const json_t *note)
{
    const struct session_options *options = &sessions->options;
    const char *id = json_str(note, "id"), *owner = json_str(note, "owner");
    json_int_t unused = json_integer_value(json_object_get(note, "unused"));
    auto_json *now = conditions(sessions);
    if (!id || !session_id_is_valid(id) || !owner || !options->stay.comes_back(owner))
        return refuse(name, "nobody can come back for it");
    if ((uint64_t)unused >= options->idle_timeout_ms)
        return refuse(name, "its session was idle for too long");
    if (!json_equal(now, json_object_get(note, "conditions")))
        return refuse(name, "guests are given something else today");
    if (session_is_open(sessions, owner, id) || !sessions_have_room(sessions, owner))
        return refuse(name, "there are too many sessions");
    return true;
}

/* What the session and its sandbox are to be like. */
static bool read_plan(const struct sessions *sessions, const char *name, const json_t *note,
                      struct session_plan *plan, struct sandbox_limits *limits)
{
    const json_t *env = json_object_get(json_object_get(note, "kernel"), "env");
    struct err err;
    *plan = (struct session_plan){ .id = json_str(note, "id"), .image = json_str(note, "image") };
    if (!read_limits(json_object_get(note, "limits"), sessions->options.limits, limits))
        return refuse(name, "its limits are not today's");
    if (!json_is_object(env) || session_check_env(env, &err) < 0 ||
        !json_is_array(json_object_get(json_object_get(note, "kernel"), "policies")))
        return refuse(name, "its note makes no sense");
    if (plan_check(sessions, plan, &err) < 0)
        return refuse(name, err.msg);
    plan->limits = limits;
    return true;
}

static void on_adopted(struct sandbox *sandbox, const struct err *err, void *data)
{
    struct session_ref *session = data;
    session->pending = NULL;
    if (sandbox) {
        session_connect(session, sandbox, /* resumes= */ true);
        return;
    }
    log_warning("session %.6s… could not be adopted: %s", session->id, err->msg);
    session_end(session, OUTCOME_SANDBOX_FAILED,
                "the server was started anew, and the sandbox could not be found again");
}

static bool adopt(struct sessions *sessions, const char *name, const json_t *note)
{
    struct session_plan plan;
    struct sandbox_limits limits;
    struct stored *stored = NULL;
    struct err err;
    const json_t *sandbox = json_object_get(note, "sandbox");
    const char *owner = json_str(note, "owner");
    if (!is_welcome(sessions, name, note) || !read_plan(sessions, name, note, &plan, &limits))
        return false;
    const struct sandbox_plan box = { .limits = limits, .image = plan_image(sessions, &plan) };
    if (!engine_has_kept(sessions->engine, sandbox, &box))
        return refuse(name, "its sandbox is not there, or is another's, or is of another image");
    if (sessions->disk && store_has(disk_store(sessions->disk), owner, plan.id) &&
        store_hold(disk_store(sessions->disk), owner, plan.id, /* make= */ false, &stored, &err) <
            0)
        return refuse(name, err.msg);
    struct session_ref *session = session_new(sessions, &plan);
    plan_take_again(session, json_object_get(note, "kernel"));
    if (!session_take_packages(session, json_object_get(note, "packages"))) {
        stored_release(stored);
        session_drop(session);
        return refuse(name, "packages of its are gone");
    }
    json_int_t age = now_ms() - json_integer_value(json_object_get(note, "created"));
    json_int_t outputs = json_integer_value(json_object_get(note, "kept_outputs"));
    session->keeper = keeper_new(outputs > 0 ? (uint64_t)outputs : 0);
    session->on_disk = sessions->disk;
    session->note_name = xstrdup(name);
    session->noted_ms = clock_ms();
    session->pending = engine_adopt(sessions->engine, sandbox, &box, on_adopted, session);
    uint64_t now = clock_ms(),
             unused = (uint64_t)json_integer_value(json_object_get(note, "unused"));
    session_readmit(session, owner, plan.id, stored, unused < now ? now - unused : 0);
    session->created_ms = age > 0 && (uint64_t)age < now ? now - (uint64_t)age : now;
    return true;
}

void sessions_adopt(struct sessions *sessions, json_t *notes)
{
    const char *name;
    json_t *note;
    void *next;
    json_object_foreach_safe(notes, next, name, note)
    {
        if (is_ours(sessions, note) && adopt(sessions, name, note))
            (void)json_object_del(notes, name);
    }
}
