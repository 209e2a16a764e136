/*
 * Sessions: the table of them, how they open, age and end.
 *
 *   session_make ─▶ OPENING ─(sandbox made, agent said hello)─▶ READY ─▶ ENDED
 *
 * A session may be made ahead of need; until the pool gives it away it is nobody's, neither in the
 * table nor counted. Runs may be queued from the first moment. A session ends when its client closes
 * it, when it has been idle too long, when a transient run is over, when its sandbox dies, or with all
 * others. It leaves the table at once; its sandbox is destroyed; whoever waits for it is told why.
 */
#include "session/internal.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEPS_PER_TIMEOUT = 16, SWEEP_MIN_MS = 250, BUCKETS_MAX = 1 << 14 };

/* A question of session_info() that waits for the counters. */
struct info_request {
    struct list link; /* session->infos */
    struct session_info info;
    char id[SESSION_ID_MAX + 1];
    session_info_fn *on_info;
    void *data;
};

struct opener {
    struct list link; /* session->openers */
    session_open_fn *on_open;
    void *data;
};

/*** The table ***/

/* Ready, and with all its files. */
static bool is_open(const struct session_ref *session)
{
    return session->state == SESSION_READY && !session->loading;
}

static bool is_ahead(const struct session_ref *session)
{
    return !session->owner;
}

/* FNV-1a from a start that nobody outside knows: neither the order nor the time of a look-up tells
 * anything about ids. */
static struct list *bucket_of(const struct sessions *sessions, const char *owner, const char *id)
{
    uint64_t hash = sessions->hash_seed;
    const char *const words[] = { owner, id };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        for (const char *c = words[i]; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
        hash = (hash ^ 0xff) * 0x100000001b3; /* no text ends like this */
    }
    return &sessions->buckets[(hash ^ hash >> 32) & (sessions->n_buckets - 1)];
}

void session_touch(struct session_ref *session)
{
    if (is_ahead(session))
        return;
    list_remove(&session->link);
    list_add_tail(&session->sessions->all, &session->link);
    session->last_used_ms = clock_ms();
    session_note_used(session);
}

static struct session_ref *session_look(const struct sessions *sessions, const char *owner,
                                        const char *id)
{
    list_each (struct session_ref, session, bucket_of(sessions, owner, id), bucket) {
        if (str_eq(session->owner, owner) && secret_eq(session->id, id))
            return session;
    }
    return NULL;
}

struct session_ref *session_find(struct sessions *sessions, const char *owner, const char *id)
{
    struct session_ref *session = session_look(sessions, owner, id);
    if (session)
        session_touch(session);
    return session;
}

bool session_is_open(const struct sessions *sessions, const char *owner, const char *id)
{
    return session_look(sessions, owner, id);
}

static size_t count_of(const struct sessions *sessions, const char *owner)
{
    size_t count = 0;
    list_each (struct session_ref, session, &sessions->all, link)
        count += str_eq(session->owner, owner);
    return count;
}

bool sessions_have_room(const struct sessions *sessions, const char *owner)
{
    return sessions->count < sessions->options.max_sessions &&
           count_of(sessions, owner) < sessions->options.max_sessions_per_owner;
}

/*** Opening ***/

static void tell_openers(struct session_ref *session, const char *id, const struct err *err)
{
    while (!list_empty(&session->openers)) {
        struct opener *opener = list_first(struct opener, &session->openers, link);
        list_remove(&opener->link);
        opener->on_open(id, err, opener->data);
        free(opener);
    }
}

static void tell_opened(struct session_ref *session)
{
    session_hold(session);
    tell_openers(session, session->id, NULL);
    if (session->state == SESSION_READY)
        session_pump(session);
    session_release(session);
}

void session_opened(struct session_ref *session)
{
    session_touch(session);
    session_stay(session);
    tell_opened(session);
}

static void on_agent_ready(void *data)
{
    struct session_ref *session = data;
    struct pool *pool = session->sessions->pool;
    session->state = SESSION_READY;
    if (!is_ahead(session))
        session->sessions->n_opening--;
    if (session->loading)
        disk_load(session);
    else
        session_opened(session);
    pool_pump(pool); /* it waits while others open */
}

/* That it has been found again is no use of it. */
static void on_agent_resumed(void *data)
{
    struct session_ref *session = data;
    struct pool *pool = session->sessions->pool;
    session->state = SESSION_READY;
    session->sessions->n_opening--;
    kernel_resume(session);
    session_stay_on(session);
    session_count(session);
    log_info("session %.6s… has been adopted", session->id);
    tell_opened(session);
    pool_pump(pool);
}

static void on_agent_broken(const char *why, void *data)
{
    struct session_ref *session = data;
    log_warning("session %.6s…: its agent is gone: %s", session->id, why);
    session_end(session, OUTCOME_SANDBOX_FAILED, "the sandbox ended unexpectedly");
}

static void on_sandbox_died(struct sandbox *sandbox, void *data)
{
    (void)sandbox;
    session_end(data, OUTCOME_SANDBOX_FAILED, "the sandbox ended unexpectedly");
}

void session_connect(struct session_ref *session, struct sandbox *sandbox, bool resumes)
{
    static const struct link_events fresh = { .on_ready = on_agent_ready,
                                              .on_broken = on_agent_broken };
    static const struct link_events again = { .on_ready = on_agent_resumed,
                                              .on_broken = on_agent_broken };
    uv_loop_t *loop = session->sessions->loop;
    session->sandbox = sandbox;
    sandbox_on_died(sandbox, on_sandbox_died, session);
    session->agent = resumes ? link_resume(loop, sandbox_take_fd(sandbox), &again, session)
                             : link_new(loop, sandbox_take_fd(sandbox), &fresh, session);
}

static void on_started(struct sandbox *sandbox, const struct err *err, void *data)
{
    struct session_ref *session = data;
    session->pending = NULL;
    if (!sandbox) {
        log_error("a sandbox could not be made: %s", err->msg);
        session_end(session, OUTCOME_SANDBOX_FAILED, err->msg);
        return;
    }
    session_connect(session, sandbox, /* resumes= */ false);
    link_hear(session->agent); /* last: whoever waits for the session may end it */
}

struct session_ref *session_new(struct sessions *sessions, const struct session_plan *plan)
{
    struct session_ref *session = xcalloc(1, sizeof(*session));
    session->sessions = sessions;
    random_id(session->id);
    plan_take(session, plan);
    session->limits = plan->limits ? *plan->limits : sessions->options.limits;
    session->created_ms = clock_ms();
    list_init(&session->link);
    list_init(&session->bucket);
    list_init(&session->runs);
    list_init(&session->openers);
    list_init(&session->infos);
    list_init(&session->savers);
    list_init(&session->next_savers);
    session_packages_init(session);
    return session;
}

void session_drop(struct session_ref *session)
{
    session_packages_done(session, "");
    session->state = SESSION_ENDED;
    session_hold(session);
    session_release(session);
}

struct session_ref *session_begin(struct sessions *sessions, const struct session_plan *plan)
{
    struct session_ref *session = session_new(sessions, plan);
    const struct sandbox_plan sandbox = { .limits = session->limits, .image = session->image };
    session->pending = engine_start(sessions->engine, &sandbox, on_started, session);
    return session;
}

/* From here on it is somebody's: in the table, and counted. `stored`: what it has left on the disk. */
static void enter_table(struct session_ref *session, const char *owner, const char *id,
                        struct stored *stored)
{
    struct sessions *sessions = session->sessions;
    session->owner = xstrdup(owner);
    memcpy(session->id, id, sizeof(session->id));
    session->created_ms = clock_ms();
    list_add_tail(bucket_of(sessions, owner, session->id), &session->bucket);
    sessions->count++;
    sessions->n_opening += session->state == SESSION_OPENING;
    sessions->stats.sessions_open++;
    sessions->stats.sessions_total++;
    session_touch(session);
    session->stored = stored;
}

/* In the order of the last use. */
void session_readmit(struct session_ref *session, const char *owner, const char *id,
                     struct stored *stored, uint64_t last_used_ms)
{
    char copy[SESSION_ID_MAX + 1] = "";
    memcpy(copy, id, strlen(id));
    enter_table(session, owner, copy, stored);
    session->last_used_ms = last_used_ms;
    list_each (struct session_ref, other, &session->sessions->all, link) {
        if (other == session || other->last_used_ms <= last_used_ms)
            continue;
        list_remove(&session->link);
        list_add_tail(&other->link, &session->link);
        return;
    }
}

static void session_admit(struct session_ref *session, const char *owner, const char *id,
                          struct stored *stored)
{
    enter_table(session, owner, id, stored);
    kernel_hurry(session);
    session->loading = stored != NULL;
    session_stay(session); /* one that is ready already */
    if (session->loading && session->state == SESSION_READY)
        disk_load(session);
}

static bool is_default(const struct sandbox_limits *limits, const struct sessions *sessions)
{
    _Static_assert(sizeof(*limits) == 10 * sizeof(uint64_t), "no padding to compare");
    return !limits || memcmp(limits, &sessions->options.limits, sizeof(*limits)) == 0;
}

/* One from the pool, made fit for the plan; NULL when there is none that can be. Python reads some
 * variables of the environment only when it starts; an import policy it takes any time. */
static struct session_ref *session_from_pool(struct sessions *sessions,
                                             const struct session_plan *plan)
{
    if (!is_default(plan->limits, sessions) || json_object_size(plan->env) > 0 ||
        plan_image(sessions, plan) > 0)
        return NULL;
    struct session_ref *session = pool_take(sessions->pool);
    if (session && (plan->allowed_modules || plan->blocked_modules)) {
        plan_take(session, plan);
        session->configured = false;
    }
    return session;
}

_Static_assert((int)SESSION_ID_RANDOM == (int)RANDOM_ID_LEN, "what random_id() writes");

/* Fills in the id: the chosen one, or a secret. */
static int choose_id(char *ret, const struct session_plan *plan, struct err *err)
{
    if (plan->id) {
        if (!session_id_is_valid(plan->id))
            return err_set(err, EINVAL, "session_id: use 1 to %d letters, digits, '_', '.' or '-'",
                           SESSION_ID_MAX);
        memcpy(ret, plan->id, strlen(plan->id) + 1);
        return 0;
    }
    size_t len = plan->id_len ? plan->id_len : SESSION_ID_RANDOM;
    if (len < SESSION_ID_RANDOM_MIN || len > SESSION_ID_RANDOM)
        return err_set(err, EINVAL, "a secret id has %d to %d characters", SESSION_ID_RANDOM_MIN,
                       SESSION_ID_RANDOM);
    random_id(ret);
    ret[len] = '\0';
    return 0;
}

struct session_ref *session_make(struct sessions *sessions, const char *owner,
                                 const struct session_plan *plan, enum session_use use,
                                 struct err *err)
{
    static const struct session_plan defaults = { 0 };
    const struct session_options *options = &sessions->options;
    bool on_disk = sessions->disk && !(use & USE_TRANSIENT);
    struct stored *stored = NULL;
    char id[SESSION_ID_MAX + 1];
    if (!plan)
        plan = &defaults;
    if (choose_id(id, plan, err) < 0 || plan_check(sessions, plan, err) < 0)
        return NULL;
    if (sessions->count >= options->max_sessions) {
        (void)err_set(err, EAGAIN, "the server has %zu sessions open, its limit; try again later",
                      sessions->count);
        return NULL;
    }
    if (count_of(sessions, owner) >= options->max_sessions_per_owner) {
        (void)err_set(err, EAGAIN,
                      "you have %zu sessions open, the limit; end one with clear_session",
                      options->max_sessions_per_owner);
        return NULL;
    }
    if (on_disk && store_has(disk_store(sessions->disk), owner, id) &&
        store_hold(disk_store(sessions->disk), owner, id, /* make= */ false, &stored, err) < 0)
        return NULL;
    struct session_ref *session = use & USE_PYTHON ? session_from_pool(sessions, plan) : NULL;
    if (!session)
        session = session_begin(sessions, plan);
    session->on_disk = on_disk;
    session->transient = use & USE_TRANSIENT;
    session_admit(session, owner, id, stored);
    return session;
}

static void add_opener(struct session_ref *session, session_open_fn *on_open, void *data)
{
    struct opener *opener = xcalloc(1, sizeof(*opener));
    opener->on_open = on_open;
    opener->data = data;
    list_add_tail(&session->openers, &opener->link);
}

int session_open(struct sessions *sessions, const char *owner, const struct session_plan *plan,
                 session_open_fn *on_open, void *data, struct err *err)
{
    if (plan && plan->id && session_find(sessions, owner, plan->id))
        return err_set(err, EEXIST, "session_id: there is a session of that name already");
    struct session_ref *session = session_make(sessions, owner, plan, /* use= */ 0, err);
    if (!session)
        return -err->code;
    add_opener(session, on_open, data);
    return 0;
}

int session_ensure(struct sessions *sessions, const char *owner, const struct session_plan *plan,
                   session_open_fn *on_open, void *data, struct err *err)
{
    struct session_ref *session = plan && plan->id ? session_find(sessions, owner, plan->id) : NULL;
    if (!session)
        return session_open(sessions, owner, plan, on_open, data, err);
    if (is_open(session)) {
        auto_free char *id = xstrdup(session->id); /* whoever is told may end the session */
        on_open(id, NULL, data);
    } else {
        add_opener(session, on_open, data);
    }
    return 0;
}

/*** Ending ***/

static void on_info_usage(const struct sandbox_usage *usage, void *data)
{
    struct info_request *request = data;
    list_remove(&request->link);
    request->info.session_id = request->id;
    request->info.has_usage = usage != NULL;
    if (usage)
        request->info.usage = *usage;
    request->on_info(&request->info, request->data);
    free(request);
}

void session_bury(struct session_ref *session)
{
    int stream = link_retire(steal_ptr(&session->agent)); /* ends file work, too */
    sandbox_retire(steal_ptr(&session->sandbox), stream);
}

/* Nobody waits for anything of it, and nothing is under way that could still speak of what is freed with it. */
static bool is_calm(const struct session_ref *session)
{
    return session->state == SESSION_READY && session->owner && list_empty(&session->runs) &&
           list_empty(&session->openers) && list_empty(&session->infos) && !session->adding &&
           !session->transfer && link_is_calm(session->agent);
}

void session_end(struct session_ref *session, enum outcome outcome, const char *why)
{
    struct sessions *sessions = session->sessions;
    if (session->state == SESSION_ENDED)
        return;
    bool calm = is_calm(session);
    session_hold(session);
    if (is_ahead(session)) {
        pool_lost(sessions->pool, session);
    } else {
        sessions->count--;
        sessions->n_opening -= session->state == SESSION_OPENING;
        sessions->stats.sessions_open--;
    }
    bool stays = sessions->leaving && session->note_name;
    session->state = SESSION_ENDED;
    list_remove(&session->link);
    list_remove(&session->bucket);
    if (session->pending && stays)
        engine_adopt_leave(session->pending);
    else if (session->pending)
        engine_start_cancel(session->pending);

    auto_free char *words = xstrdup(why); /* it may belong to what is freed below */
    struct err err = { 0 };
    (void)err_set(&err, ECANCELED, "%s", words);
    session_packages_done(session, words);
    disk_end(session, session->removes);
    session_fail_runs(session, outcome, words);
    look_answered(sessions->look, &session->pace); /* it will not be */
    tell_openers(session, NULL, &err);
    while (!list_empty(&session->infos))
        on_info_usage(NULL, list_first(struct info_request, &session->infos, link));
    if (session->sandbox && stays) {
        link_free(steal_ptr(&session->agent));
        sandbox_leave(steal_ptr(&session->sandbox));
    } else if (!calm || !pool_holds_back(sessions->pool, session)) {
        session_bury(session);
    }
    session_note_done(session, stays);
    if (session->owner && sessions->watch.on_end)
        sessions->watch.on_end(session->owner, session->id, sessions->watch_data);
    pool_pump(sessions->pool);
    session_release(session);
}

void session_hold(struct session_ref *session)
{
    session->holds++;
}

void session_release(struct session_ref *session)
{
    if (--session->holds > 0 || session->state != SESSION_ENDED)
        return;
    keeper_free(session->keeper);
    changes_done(&session->told);
    timer_free(session->again);
    json_decref(session->cell_done);
    plan_done(session);
    free(session->owner);
    free(session);
}

int session_close(struct sessions *sessions, const char *owner, const char *session_id)
{
    struct session_ref *session = session_find(sessions, owner, session_id);
    if (session) {
        session->removes = true;
        session_end(session, OUTCOME_INTERRUPTED, "the session was closed");
        return 0;
    }
    int r = sessions->disk ? store_remove(disk_store(sessions->disk), owner, session_id) : -ENOENT;
    if (r == 0)
        disk_clean(sessions->disk);
    return r;
}

/* Not while it is being opened, however long that takes: somebody waits for it. */
static bool is_idle(const struct session_ref *session)
{
    return clock_ms() - session->last_used_ms >= session->sessions->options.idle_timeout_ms &&
           is_open(session) && list_empty(&session->runs) && !session_is_installing(session);
}

static void end_idle(const char *error, void *data)
{
    struct session_ref *session = data;
    (void)error; /* it has been logged */
    session->retiring = false;
    if (session->state != SESSION_ENDED && is_idle(session))
        session_end(session, OUTCOME_INTERRUPTED, "the session was idle for too long");
}

/* What programs in the background have written since the last run is saved first. */
static void retire(struct session_ref *session)
{
    if (session->retiring)
        return;
    session->retiring = true;
    session->removes = session->on_disk && disk_ends_with_session(session->sessions->disk);
    if (session->removes)
        end_idle(NULL, session);
    else
        disk_save(session, end_idle, session);
}

static void on_sweep(void *data)
{
    struct sessions *sessions = data;
    uint64_t now = clock_ms();
    list_each (struct session_ref, session, &sessions->all, link) {
        if (now - session->last_used_ms < sessions->options.idle_timeout_ms)
            return; /* the rest has been used later */
        if (is_idle(session))
            retire(session);
    }
}

struct sessions *sessions_new(uv_loop_t *loop, struct engine *engine,
                              const struct session_options *options)
{
    struct sessions *sessions = xcalloc(1, sizeof(*sessions));
    sessions->loop = loop;
    sessions->engine = engine;
    sessions->options = *options;
    sessions->processors = uv_available_parallelism();
    list_init(&sessions->all);
    sessions->n_buckets = 64;
    while (sessions->n_buckets < options->max_sessions && sessions->n_buckets < BUCKETS_MAX)
        sessions->n_buckets *= 2;
    sessions->buckets = xcalloc(sessions->n_buckets, sizeof(*sessions->buckets));
    for (size_t i = 0; i < sessions->n_buckets; i++)
        list_init(&sessions->buckets[i]);
    random_bytes(&sessions->hash_seed, sizeof(sessions->hash_seed));
    if (options->disk.store)
        sessions->disk = disk_new(loop, &options->disk, options->idle_timeout_ms);
    sessions->pool = pool_new(sessions);
    sessions->look = look_new(loop, options->busy_poll_us);
    sessions->stock = link_stock_new(loop);
    sessions->sweep = timer_new(loop, on_sweep, sessions);
    timer_repeat(sessions->sweep, options->idle_timeout_ms / SWEEPS_PER_TIMEOUT + SWEEP_MIN_MS);
    return sessions;
}

void sessions_make_ahead(struct sessions *sessions)
{
    pool_start(sessions->pool);
}

void sessions_free(struct sessions *sessions)
{
    if (!sessions)
        return;
    pool_free(steal_ptr(&sessions->pool));
    sessions->leaving = true;
    size_t left = 0;
    while (!list_empty(&sessions->all)) {
        struct session_ref *session = list_first(struct session_ref, &sessions->all, link);
        left += session->note_name != NULL;
        session_end(session, OUTCOME_INTERRUPTED, "the server is shutting down");
    }
    if (left)
        log_info("%zu sessions are left to the next server with this state_dir; without one they "
                 "end after session_timeout",
                 left);
    timer_free(sessions->sweep);
    look_free(sessions->look);
    link_stock_free(sessions->stock);
    disk_free(sessions->disk);
    free(sessions->buckets);
    free(sessions);
}

/*** Looking ***/

static int no_session(struct err *err)
{
    return err_set(err, ENOENT, "session_id: no such session (it may have expired)");
}

static int link_of(const struct session_ref *session, struct link **ret, struct err *err)
{
    if (!session)
        return no_session(err);
    if (!is_open(session))
        return err_set(err, EAGAIN, "session_id: the session is still being opened");
    *ret = session->agent;
    return 0;
}

int session_link(struct sessions *sessions, const char *owner, const char *session_id,
                 struct link **ret, struct err *err)
{
    return link_of(session_find(sessions, owner, session_id), ret, err);
}

int session_peek(struct sessions *sessions, const char *owner, const char *session_id,
                 struct link **ret, struct err *err)
{
    return link_of(session_look(sessions, owner, session_id), ret, err);
}

/* Somebody who wants an agent and waits for its session. */
struct reacher {
    struct sessions *sessions;
    char *owner;
    session_link_fn *on_link;
    void *data;
};

static void on_reached(const char *session_id, const struct err *err, void *data)
{
    struct reacher *reacher = data;
    struct link *agent = NULL;
    struct err why = { 0 };
    if (session_id)
        (void)session_link(reacher->sessions, reacher->owner, session_id, &agent, &why);
    else if (err)
        why = *err;
    reacher->on_link(agent, &why, reacher->data);
    free(reacher->owner);
    free(reacher);
}

static bool is_stored(const struct sessions *sessions, const char *owner, const char *id)
{
    return sessions->disk && store_has(disk_store(sessions->disk), owner, id);
}

bool session_is_there(const struct sessions *sessions, const char *owner, const char *session_id)
{
    return session_look(sessions, owner, session_id) || is_stored(sessions, owner, session_id);
}

int session_reach(struct sessions *sessions, const char *owner, const char *session_id,
                  session_link_fn *on_link, void *data, struct err *err)
{
    const struct session_plan plan = { .id = session_id };
    if (!session_is_there(sessions, owner, session_id))
        return no_session(err);
    struct reacher *reacher = xcalloc(1, sizeof(*reacher));
    *reacher = (struct reacher){ sessions, xstrdup(owner), on_link, data };
    int r = session_ensure(sessions, owner, &plan, on_reached, reacher, err);
    if (r < 0) {
        free(reacher->owner);
        free(reacher);
    }
    return r;
}

int session_list(struct sessions *sessions, const char *owner, const char *session_id, bool uses,
                 size_t max_entries, link_list_fn *on_list, void *data, struct err *err)
{
    struct link *agent;
    int r = uses ? session_link(sessions, owner, session_id, &agent, err)
                 : session_peek(sessions, owner, session_id, &agent, err);
    if (r == 0)
        return link_file_list(agent, "/workspace", /* recursive= */ true, max_entries, on_list,
                              data, err);
    return is_stored(sessions, owner, session_id)
               ? disk_list(sessions->disk, owner, session_id, on_list, data, err)
               : r;
}

void session_save(struct sessions *sessions, const char *owner, const char *session_id,
                  session_saved_fn *on_saved, void *data)
{
    struct session_ref *session = session_look(sessions, owner, session_id);
    if (session && session->n_runs == 0)
        disk_save(session, on_saved, data);
    else
        on_saved(NULL, data);
}

struct session_ref *session_find_or_reopen(struct sessions *sessions, const char *owner,
                                           const char *id, const struct session_plan *plan,
                                           enum session_use use, struct err *err)
{
    struct session_ref *session = session_find(sessions, owner, id);
    if (session)
        return session;
    if (!is_stored(sessions, owner, id)) {
        (void)no_session(err);
        return NULL;
    }
    struct session_plan again = plan ? *plan : (struct session_plan){ 0 };
    again.id = id;
    return session_make(sessions, owner, &again, use, err);
}

bool session_busy(const struct sessions *sessions, const char *owner, const char *session_id)
{
    const struct session_ref *session = session_look(sessions, owner, session_id);
    return session && session->n_runs > 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_id(const char *id, void *data)
{
    struct session_ids *ids = data;
    ids->items = xrealloc(ids->items, (ids->count + 1) * sizeof(*ids->items));
    ids->items[ids->count++] = xstrdup(id);
}

/* One that is open may be on the disk, too. */
static void drop_repeated(struct session_ids *ids)
{
    size_t kept = 0;
    for (size_t i = 0; i < ids->count; i++) {
        if (kept && str_eq(ids->items[kept - 1], ids->items[i]))
            free(ids->items[i]);
        else
            ids->items[kept++] = ids->items[i];
    }
    ids->count = kept;
}

struct session_ids session_ids(const struct sessions *sessions, const char *owner)
{
    struct session_ids ids = { 0 };
    list_each (struct session_ref, session, &sessions->all, link)
        if (str_eq(session->owner, owner))
            add_id(session->id, &ids);
    if (sessions->disk)
        store_ids(disk_store(sessions->disk), owner, add_id, &ids);
    if (ids.count)
        qsort(ids.items, ids.count, sizeof(*ids.items), by_text);
    drop_repeated(&ids);
    return ids;
}

void session_ids_done(struct session_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        free(ids->items[i]);
    free(ids->items);
    *ids = (struct session_ids){ 0 };
}

void sessions_watch(struct sessions *sessions, const struct session_watch *watch, void *data)
{
    sessions->watch = *watch;
    sessions->watch_data = data;
}

int session_info(struct sessions *sessions, const char *owner, const char *session_id,
                 session_info_fn *on_info, void *data, struct err *err)
{
    struct session_ref *session = session_find(sessions, owner, session_id);
    if (!session)
        return no_session(err);
    struct info_request *request = xcalloc(1, sizeof(*request));
    memcpy(request->id, session->id, sizeof(request->id));
    request->on_info = on_info;
    request->data = data;
    request->info = (struct session_info){
        .age_ms = clock_ms() - session->created_ms,
        .idle_left_ms = sessions->options.idle_timeout_ms,
        .runs_total = session->runs_total,
        .runs_waiting = session->n_runs,
        .busy = session->n_runs > 0,
        .limits = session->limits,
    };
    list_add_tail(&session->infos, &request->link);
    if (session->sandbox)
        sandbox_usage(session->sandbox, on_info_usage, request);
    else
        on_info_usage(NULL, request);
    return 0;
}

void sessions_stats(const struct sessions *sessions, struct session_stats *ret)
{
    *ret = sessions->stats;
}
