/*
 * The native engine on the server's side: slots, the pool, and the socket to the spawner. Nothing
 * here is privileged and nothing blocks.
 *
 * A slot is FREE, CREATING, READY (in the pool), HELD (by whoever asked) or LEAVING. Every creation
 * is for a plan, not for a caller: when it is done, the first caller who waits for such a plan gets
 * it, else the pool. So a caller that comes while the pool is being filled waits for what is nearly
 * done instead of for a start of its own, and one that gives up leaves its sandbox to the next.
 */
#include "engine/native/open.h"

#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "engine/ops.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FILL_MS = 50,  /* before the pool is first filled: the server answers its first client then */
    REFILL_MS = 5, /* before it is filled again: the processors are for whoever has just come */
    POOL_TICK_MS = 1000, /* how often the pool's ages are looked at, and a failed refill retried */
    CLOSE_MS = 5000,     /* how long engine_close() waits for the keeper */
};

enum slot_state { SLOT_FREE, SLOT_CREATING, SLOT_READY, SLOT_HELD, SLOT_LEAVING };

struct box {
    struct sandbox base;
    struct native *native;
    unsigned slot;
    uint64_t ready_ms;
    bool dead, told;
    struct list link;   /* native.pool when READY, native.dead when that is still to be told */
    struct list usages; /* of struct usage, in the order asked */
    sandbox_added_fn *on_added; /* NULL: nobody waits for a kernel */
    void *on_added_data;
};

struct slot {
    enum slot_state state;
    struct sandbox_plan plan;
    struct list link; /* native.creations, when CREATING */
    struct box *box;  /* READY and HELD */
};

struct usage {
    struct list link;
    sandbox_usage_fn *on_usage;
    void *data;
};

struct pending {
    struct engine_pending base;
    struct sandbox_plan plan;
    struct list link;      /* native.waiting or native.settled */
    struct sandbox *ready; /* settled: what it gets, or NULL and err */
    struct err err;
};

struct request {
    struct list link;
    struct wire_request wire;
};

struct native {
    struct engine base;
    struct engine_options options;
    struct native_started started;
    char instance[65];
    uv_loop_t *loop;
    uv_poll_t *poll; /* freed by its close callback */
    struct timer *deliver, *tick, *refill;
    bool network;       /* as options.network was */
    bool lost;          /* the spawner is gone */
    bool refill_failed; /* not before the next tick */
    bool refilling;     /* the pool is being filled, until it is full or who comes has time */

    struct slot *slots;
    unsigned next_slot;
    uint64_t serial;
    size_t n_creating, n_leaving;
    struct list creations;        /* of struct slot */
    struct list pool, dead;       /* of struct box */
    struct list waiting, settled; /* of struct pending */
    struct list requests;
};

static struct native *native_of(struct engine *engine)
{
    return container_of(engine, struct native, base);
}

static void pump(struct native *native);

/*** To the spawner ***/

static void on_wire(uv_poll_t *poll, int status, int events);

static void send_queued(struct native *native)
{
    while (!native->lost && !list_empty(&native->requests)) {
        struct request *request = list_first(struct request, &native->requests, link);
        ssize_t n = send(native->started.wire, &request->wire, sizeof(request->wire),
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR))
            break;
        list_remove(&request->link);
        free(request); /* any other failure is seen as the end of the socket */
    }
    if (!native->lost)
        (void)uv_poll_start(
            native->poll, UV_READABLE | (list_empty(&native->requests) ? 0 : UV_WRITABLE), on_wire);
}

static void ask(struct native *native, enum wire_request_kind kind, unsigned slot,
                const struct sandbox_limits *limits)
{
    if (native->lost)
        return;
    struct request *request = xcalloc(1, sizeof(*request));
    request->wire.kind = kind;
    request->wire.slot = slot;
    if (limits)
        request->wire.limits = *limits;
    bool first = list_empty(&native->requests);
    list_add_tail(&native->requests, &request->link);
    if (first)
        send_queued(native);
}

/*** Slots ***/

static bool same_plan(const struct sandbox_plan *a, const struct sandbox_plan *b)
{
    _Static_assert(sizeof(*a) == 10 * sizeof(uint64_t), "no padding to compare");
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* Round robin: an outside uid rests for as long as possible before it is used again. */
static int find_slot(struct native *native)
{
    for (unsigned i = 0; i < native->started.slots; i++) {
        unsigned slot = (native->next_slot + i) % native->started.slots;
        if (native->slots[slot].state == SLOT_FREE) {
            native->next_slot = slot + 1;
            return (int)slot;
        }
    }
    return -EAGAIN;
}

static int create(struct native *native, const struct sandbox_plan *plan)
{
    int slot = find_slot(native);
    if (slot < 0)
        return slot;
    native->slots[slot] = (struct slot){ .state = SLOT_CREATING, .plan = *plan };
    list_add_tail(&native->creations, &native->slots[slot].link);
    native->n_creating++;
    ask(native, WIRE_CREATE, (unsigned)slot, &plan->limits);
    return 0;
}

static void created(struct native *native, struct slot *slot)
{
    list_remove(&slot->link);
    native->n_creating--;
}

static void leaving(struct native *native, struct slot *slot)
{
    slot->state = SLOT_LEAVING;
    slot->box = NULL;
    native->n_leaving++;
}

static struct box *box_new(struct native *native, unsigned slot, int fd)
{
    struct box *box = xcalloc(1, sizeof(*box));
    box->base.engine = &native->base;
    box->base.fd = fd;
    (void)snprintf(box->base.id, sizeof(box->base.id), "%s.%llu", native->instance,
                   (unsigned long long)++native->serial);
    box->native = native;
    box->slot = slot;
    box->ready_ms = clock_ms();
    list_init(&box->link);
    list_init(&box->usages);
    native->base.stats.sandboxes_total++;
    return box;
}

static void box_free(struct box *box)
{
    list_each (struct usage, usage, &box->usages, link) {
        list_remove(&usage->link);
        free(usage);
    }
    list_remove(&box->link);
    fd_closep(&box->base.fd);
    free(box);
}

/* Takes it out of the pool or from its holder, and ends it. */
static void box_leave(struct box *box)
{
    struct native *native = box->native;
    struct slot *slot = &native->slots[box->slot];
    if (slot->state == SLOT_READY)
        native->base.stats.pool_ready--;
    else
        native->base.stats.sandboxes_open--;
    leaving(native, slot);
    ask(native, WIRE_DESTROY, box->slot, NULL);
    box_free(box);
}

/*** Callers who wait ***/

static void settle(struct native *native, struct pending *pending, struct box *box,
                   const struct err *err)
{
    list_remove(&pending->link);
    list_add_tail(&native->settled, &pending->link);
    if (box) {
        native->slots[box->slot].state = SLOT_HELD;
        native->base.stats.sandboxes_open++;
        pending->ready = &box->base;
    } else {
        pending->err = *err;
        native->base.stats.failures_total++;
    }
    timer_start(native->deliver, 0); /* from the loop, never from inside a call */
}

static void pending_free(struct pending *pending)
{
    list_remove(&pending->link);
    free(pending);
}

static void list_move(struct list *to, struct list *from)
{
    while (!list_empty(from)) {
        struct list *link = from->next;
        list_remove(link);
        list_add_tail(to, link);
    }
}

static void tell_died(struct box *box)
{
    list_remove(&box->link);
    if (box->told || !box->base.on_died)
        return;
    box->told = true;
    box->base.on_died(&box->base, box->base.on_died_data); /* may destroy it */
}

/* Only as many as there were: a caller that starts again at once must not keep the loop. */
static void deliver(void *data)
{
    struct native *native = data;
    struct list now = LIST_INIT(now);
    list_move(&now, &native->settled);
    while (!list_empty(&now)) {
        struct pending *pending = list_first(struct pending, &now, link);
        struct pending done = *pending;
        pending_free(pending);
        done.base.on_started(done.ready, done.ready ? NULL : &done.err, done.base.data);
    }
    while (!list_empty(&native->dead))
        tell_died(list_first(struct box, &native->dead, link));
}

static struct pending *first_waiting(struct native *native, const struct sandbox_plan *plan)
{
    list_each (struct pending, pending, &native->waiting, link)
        if (same_plan(&pending->plan, plan))
            return pending;
    return NULL;
}

/* Whether a creation under way is meant for this caller: as many as wait before it are not. */
static bool is_served(struct native *native, const struct pending *pending)
{
    size_t before = 0, under_way = 0;
    list_each (struct pending, other, &native->waiting, link) {
        if (other == pending)
            break;
        before += same_plan(&other->plan, &pending->plan);
    }
    list_each (struct slot, slot, &native->creations, link)
        under_way += same_plan(&slot->plan, &pending->plan);
    return before < under_way;
}

/* Starts what is wanted and not yet under way: callers first, then the pool. */
static void pump(struct native *native)
{
    size_t max = native->options.pool_max_creations ? native->options.pool_max_creations : 1;
    list_each (struct pending, pending, &native->waiting, link) {
        if (native->lost || native->n_creating >= max)
            return;
        if (is_served(native, pending) || create(native, &pending->plan) == 0)
            continue;
        if (native->n_leaving > 0)
            return; /* a slot will be free in a moment */
        struct err err;
        err_set(&err, EAGAIN, "all %u places for sandboxes are taken", native->started.slots);
        settle(native, pending, NULL, &err);
    }
    const struct engine_stats *stats = &native->base.stats;
    bool may_refill = native->refilling && !native->refill_failed && !native->lost;
    while (may_refill && native->n_creating < max &&
           stats->pool_ready + native->n_creating < native->options.pool_size)
        if (create(native, &native->options.pool_plan) < 0)
            return;
    if (stats->pool_ready == native->options.pool_size)
        native->refilling = false;
}

/*** From the spawner ***/

static void on_created(struct native *native, struct slot *slot, int fd)
{
    created(native, slot);
    struct box *box = slot->box = box_new(native, (unsigned)(slot - native->slots), fd);
    native->refill_failed = false;
    struct pending *pending = first_waiting(native, &slot->plan);
    if (pending) {
        settle(native, pending, box, NULL);
        return;
    }
    slot->state = SLOT_READY;
    native->base.stats.pool_ready++;
    list_add_tail(&native->pool, &box->link);
    bool for_pool =
        native->options.pool_enabled && same_plan(&slot->plan, &native->options.pool_plan);
    if (!for_pool || native->base.stats.pool_ready > native->options.pool_size)
        box_leave(box); /* its caller has given up */
}

static void on_failed(struct native *native, struct slot *slot, const struct wire_event *event)
{
    struct err err;
    if (event->code)
        err_sys(&err, event->code, "start a sandbox: %s", event->step);
    else
        err_set(&err, EIO, "start a sandbox: %s", event->step);
    created(native, slot);
    leaving(native, slot); /* WIRE_GONE follows */
    struct pending *pending = first_waiting(native, &slot->plan);
    if (pending) {
        settle(native, pending, NULL, &err);
        return;
    }
    log_warning("filling the pool: %s", err.msg);
    native->base.stats.failures_total++;
    native->refill_failed = true;
}

static void on_used(struct box *box, const struct wire_event *event)
{
    if (list_empty(&box->usages))
        return;
    struct usage *usage = list_first(struct usage, &box->usages, link);
    list_remove(&usage->link);
    struct usage done = *usage;
    free(usage);
    done.on_usage(event->known ? &event->usage : NULL, done.data);
}

static void on_kernel(struct box *box, int code)
{
    sandbox_added_fn *on_added = box->on_added;
    box->on_added = NULL;
    if (on_added)
        on_added(code, box->on_added_data);
}

static void on_died(struct native *native, struct box *box)
{
    if (native->slots[box->slot].state == SLOT_READY) {
        log_warning("sandbox %s died in the pool", box->base.id);
        native->refill_failed = true; /* not in a tight circle */
        box_leave(box);
        return;
    }
    box->dead = true;
    tell_died(box);
}

/* Takes `fd`, which may be -1. */
static void on_event(struct native *native, const struct wire_event *event, int fd)
{
    auto_fd stream = fd;
    struct slot *slot = event->slot < native->started.slots ? &native->slots[event->slot] : NULL;
    if (!slot)
        return;
    if (event->kind == WIRE_CREATED && slot->state == SLOT_CREATING && stream >= 0) {
        on_created(native, slot, steal_fd(&stream));
    } else if (event->kind == WIRE_FAILED && slot->state == SLOT_CREATING) {
        on_failed(native, slot, event);
    } else if (event->kind == WIRE_FAILED && slot->state == SLOT_FREE) {
        log_error("the spawner cannot start: %s", event->step); /* its end follows */
    } else if (event->kind == WIRE_GONE && slot->state == SLOT_LEAVING) {
        slot->state = SLOT_FREE;
        native->n_leaving--;
    } else if (event->kind == WIRE_USED && slot->box) {
        on_used(slot->box, event);
    } else if (event->kind == WIRE_KERNEL_ADDED && slot->box) {
        on_kernel(slot->box, 0);
    } else if (event->kind == WIRE_KERNEL_FAILED && slot->box) {
        on_kernel(slot->box, event->code > 0 ? -event->code : -ENOENT);
    } else if (event->kind == WIRE_DIED && slot->box) {
        on_died(native, slot->box);
    }
}

/* 1 and an event, 0: none now, -1: the spawner is gone. */
static int receive(struct native *native, int flags, struct wire_event *ret, int *ret_fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = { ret, sizeof(*ret) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    ssize_t n = recvmsg(native->started.wire, &message, flags | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    *ret_fd = -1;
    struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
    if (n == (ssize_t)sizeof(*ret)) {
        ret->step[sizeof(ret->step) - 1] = '\0';
        return 1;
    }
    fd_closep(ret_fd);
    return -1;
}

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void close_wire(struct native *native)
{
    if (native->poll)
        uv_close((uv_handle_t *)native->poll, poll_closed);
    native->poll = NULL;
    fd_closep(&native->started.wire);
    native->started.wire = -1;
    list_each (struct request, request, &native->requests, link) {
        list_remove(&request->link);
        free(request);
    }
}

/* With the spawner every sandbox has ended, and there is no way to get another. */
static void on_lost(struct native *native)
{
    log_error("the spawner of %s has died, and all of them with it; restart belljar",
              native->network ? "installers" : "sandboxes");
    native->lost = true;
    close_wire(native);
    struct err err;
    err_set(&err, EPIPE, "the spawner has died; belljar must be restarted");
    while (!list_empty(&native->waiting))
        settle(native, list_first(struct pending, &native->waiting, link), NULL, &err);
    for (unsigned i = 0; i < native->started.slots; i++) {
        struct slot *slot = &native->slots[i];
        if (slot->state == SLOT_READY) {
            box_leave(slot->box);
        } else if (slot->state == SLOT_HELD && !slot->box->dead) {
            slot->box->dead = true;
            list_add_tail(&native->dead, &slot->box->link);
        }
    }
    timer_start(native->deliver, 0);
}

static void on_wire(uv_poll_t *poll, int status, int events)
{
    struct native *native = poll->data;
    (void)status, (void)events; /* receive() and send_queued() find out themselves */
    struct wire_event event;
    int fd, r = 0;
    /* Bounded, so that clients get their turn; no handle is closed by a callback but in close(). */
    for (int i = 0; i < 64 && !native->lost && (r = receive(native, MSG_DONTWAIT, &event, &fd)) > 0;
         i++)
        on_event(native, &event, fd);
    if (r < 0) {
        on_lost(native);
        return;
    }
    send_queued(native);
    pump(native);
}

/*** The pool's clock ***/

static void refill(void *data)
{
    struct native *native = data;
    native->refilling = native->options.pool_enabled;
    pump(native);
}

/* Somebody has taken one, or found none. While more than half are left each of them puts the filling off, so
 * that several who come at once are served first; below that the first of them has set the time. */
static void refill_later(struct native *native)
{
    bool plenty = native->base.stats.pool_ready * 2 > native->options.pool_size;
    if (plenty)
        native->refilling = false;
    if (plenty || (!native->refilling && !timer_active(native->refill)))
        timer_start(native->refill, REFILL_MS);
}

static void tick(void *data)
{
    struct native *native = data;
    native->refill_failed = false;
    uint64_t now = clock_ms(), age = native->options.pool_max_age_ms;
    list_each (struct box, box, &native->pool, link)
        if (age && now - box->ready_ms >= age)
            box_leave(box);
    if (!timer_active(native->refill))
        native->refilling = native->options.pool_enabled;
    pump(native);
}

/*** The interface ***/

static struct engine_pending *native_start(struct engine *engine, const struct sandbox_plan *plan,
                                           engine_started_fn *on_started, void *data)
{
    struct native *native = native_of(engine);
    struct pending *pending = xcalloc(1, sizeof(*pending));
    pending->base = (struct engine_pending){ engine, on_started, data };
    pending->plan = *plan;
    list_add_tail(&native->waiting, &pending->link);
    if (native->lost) {
        struct err err;
        err_set(&err, EPIPE, "the spawner has died; belljar must be restarted");
        settle(native, pending, NULL, &err);
        return &pending->base;
    }
    bool pooled = native->options.pool_enabled && same_plan(plan, &native->options.pool_plan);
    if (pooled && native->base.stats.pool_ready > 0) {
        struct box *box = list_first(struct box, &native->pool, link); /* the oldest */
        list_remove(&box->link);
        native->base.stats.pool_ready--;
        native->base.stats.pool_hits++;
        settle(native, pending, box, NULL);
    } else {
        native->base.stats.pool_misses += native->options.pool_enabled;
    }
    refill_later(native);
    pump(native);
    return &pending->base;
}

static void native_cancel(struct engine_pending *base)
{
    struct pending *pending = container_of(base, struct pending, base);
    if (pending->ready)
        box_leave(container_of(pending->ready, struct box, base));
    pending_free(pending);
}

static void native_usage(struct sandbox *sandbox, sandbox_usage_fn *on_usage, void *data)
{
    struct box *box = container_of(sandbox, struct box, base);
    struct usage *usage = xcalloc(1, sizeof(*usage));
    usage->on_usage = on_usage;
    usage->data = data;
    list_add_tail(&box->usages, &usage->link);
    ask(box->native, WIRE_USAGE, box->slot, NULL);
}

static void native_add_kernel(struct sandbox *sandbox, sandbox_added_fn *on_added, void *data)
{
    struct box *box = container_of(sandbox, struct box, base);
    assert(!box->on_added); /* one at a time */
    box->on_added = on_added;
    box->on_added_data = data;
    ask(box->native, WIRE_KERNEL, box->slot, NULL);
}

static void native_watch(struct sandbox *sandbox)
{
    struct box *box = container_of(sandbox, struct box, base);
    if (!box->dead || box->told)
        return;
    list_remove(&box->link);
    list_add_tail(&box->native->dead, &box->link);
    timer_start(box->native->deliver, 0);
}

static void native_destroy(struct sandbox *sandbox)
{
    box_leave(container_of(sandbox, struct box, base));
}

static json_t *native_report(const struct engine *engine)
{
    const struct native *native = container_of(engine, struct native, base);
    static const char *const kinds[] = { "none", "v1", "v2" };
    json_t *report = json_object();
    json_put_str(report, "cgroup", kinds[native->started.cgroup]);
    json_put_str(report, "limits_missing", native->started.missing);
    json_put_str(report, "rootfs", *native->options.rootfs ? native->options.rootfs : "host");
    json_put(report, "max_sandboxes", json_integer(native->started.slots));
    if (native->started.own_uids)
        json_put(report, "uid_range",
                 json_pack("[i,i]", (int)native->options.uid_base, (int)native->options.uid_count));
    return report;
}

/* The keeper ends after the spawner, when every trace is gone. */
static void wait_for_keeper(pid_t keeper)
{
    for (uint64_t start = clock_ms(); clock_ms() - start < CLOSE_MS; uv_sleep(1))
        if (waitpid(keeper, NULL, WNOHANG) != 0)
            return;
    log_warning("sandboxes take long to end; leaving them to the keeper");
}

static void native_close(struct engine *engine)
{
    struct native *native = native_of(engine);
    native->lost = true;
    close_wire(native);
    list_each (struct pending, pending, &native->waiting, link)
        pending_free(pending);
    list_each (struct pending, pending, &native->settled, link)
        pending_free(pending);
    for (unsigned i = 0; i < native->started.slots; i++)
        if (native->slots[i].box)
            box_free(native->slots[i].box);
    timer_free(native->deliver);
    timer_free(native->tick);
    timer_free(native->refill);
    wait_for_keeper(native->started.keeper);
    free((char *)native->options.rootfs);
    free(native->slots);
    free(native);
}

/* The first sandbox, made before anything else: if it fails, no other would start. It goes into the
 * pool when there is one. */
static int try_one(struct native *native, struct err *err)
{
    if (create(native, &native->options.pool_plan) < 0)
        return err_set(err, EAGAIN, "no place for a sandbox");
    struct wire_event event;
    int fd = -1, r;
    while ((r = receive(native, 0, &event, &fd)) == 0) {
        struct pollfd watched = { .fd = native->started.wire, .events = POLLIN };
        (void)poll(&watched, 1,
                   -1); /* the loop's poll has made the socket one that does not wait */
    }
    if (r < 0)
        return err_set(err, EIO, "the spawner died at its first sandbox");
    if (event.kind == WIRE_FAILED)
        return event.code ? err_sys(err, event.code, "start a sandbox: %s", event.step)
                          : err_set(err, EIO, "start a sandbox: %s", event.step);
    on_event(native, &event, fd);
    return 0;
}

static int native_open(uv_loop_t *loop, const struct engine_options *options, struct engine **ret,
                       struct err *err)
{
    struct native_started started;
    int r = native_host_open(options, &started, err);
    if (r < 0)
        return r;
    struct native *native = xcalloc(1, sizeof(*native));
    native->base.ops = &native_engine_ops;
    native->base.layers = started.layers;
    native->options = *options;
    native->options.rootfs = xstrdup(options->rootfs ? options->rootfs : "");
    native->options.state_dir = native->options.instance = NULL; /* not kept */
    native->options.packages = (struct engine_packages){ 0 };
    native->options.network = NULL;
    native->network = options->network != NULL;
    native->options.kernels.python = NULL;
    native->options.kernels.preload = NULL;
    native->started = started;
    (void)snprintf(native->instance, sizeof(native->instance), "%s", options->instance);
    native->loop = loop;
    native->slots = xcalloc(started.slots, sizeof(native->slots[0]));
    struct list *lists[] = { &native->creations, &native->pool,    &native->dead,
                             &native->waiting,   &native->settled, &native->requests };
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        list_init(lists[i]);
    native->deliver = timer_new(loop, deliver, native);
    native->tick = timer_new(loop, tick, native);
    native->refill = timer_new(loop, refill, native);
    native->poll = xcalloc(1, sizeof(*native->poll));
    native->poll->data = native;
    r = uv_poll_init(loop, native->poll, started.wire);
    if (r < 0) {
        free(native->poll);
        native->poll = NULL;
        r = err_set(err, -r, "watch the spawner: %s", uv_strerror(r));
    }
    if (r == 0 && !options->network)
        r = try_one(native, err);
    if (r < 0) {
        native_close(&native->base);
        return r;
    }
    if (*started.missing)
        log_warning("not enforced, as allowed: %s", started.missing);
    timer_repeat(native->tick, POOL_TICK_MS);
    timer_start(native->refill, FILL_MS);
    send_queued(native);
    *ret = &native->base;
    return 0;
}

const struct engine_ops native_engine_ops = {
    .name = "native",
    .tells_counts = true,
    .open = native_open,
    .close = native_close,
    .checks = native_checks,
    .report = native_report,
    .start = native_start,
    .cancel = native_cancel,
    .watch = native_watch,
    .add_kernel = native_add_kernel,
    .usage = native_usage,
    .destroy = native_destroy,
};
