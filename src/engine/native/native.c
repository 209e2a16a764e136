/*
 * The native engine on the server's side: slots, and the socket to the spawner. Nothing here is privileged
 * and nothing blocks. Who gets what is made, and what is made ahead, is the broker's business.
 *
 * A slot is FREE, CREATING, LIVE (in the pool or somebody's) or LEAVING.
 */
#include "engine/native/open.h"

#include "agent/link.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "engine/broker.h"
#include "engine/native/cgroup.h"
#include "engine/native/sys.h"
#include "zygote/zygote.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CLOSE_MS = 5000, /* how long engine_close() waits for the keeper */
    LANE_MS = 3, /* in which a kernel answers; until it does nobody asks for its stand-in's word */
};

enum slot_state { SLOT_FREE, SLOT_CREATING, SLOT_LIVE, SLOT_LEAVING };

struct box {
    struct sandbox base;
    struct native *native;
    unsigned slot;
    bool dead, told;
    bool learned;       /* what it was for */
    struct list link;   /* native.dead, when that is still to be told */
    struct list usages; /* of struct usage, in the order asked */
    bool asked_counters;
    int counters[CGROUP_COUNTERS]; /* descriptors, -1: not there (yet) */
    sandbox_added_fn *on_added;    /* NULL: nobody waits for a kernel */
    void *on_added_data;
    int lane;            /* to a stand-in (zygote/zygote.h); -1: none */
    struct list on_lane; /* native.on_lanes, when it has been called upon */
};

struct slot {
    enum slot_state state;
    struct sandbox_plan plan;
    struct box *box; /* LIVE */
};

struct usage {
    struct list link;
    sandbox_usage_fn *on_usage;
    void *data;
};

struct request {
    struct list link;
    struct wire_request wire;
    int fds[WIRE_KERNEL_FDS]; /* of WIRE_KERNEL */
};

struct native {
    struct engine base;
    struct engine_options options;
    struct native_started started;
    char instance[65];
    uv_loop_t *loop;
    uv_poll_t *poll; /* freed by its close callback */
    int events;      /* that it watches for */
    struct broker *broker;
    struct timer *tell_dead;
    bool network; /* as options.network was */
    bool lost;    /* the spawner is gone */

    struct slot *slots;
    unsigned next_slot;
    uint64_t serial;
    size_t n_leaving;
    uint8_t lately;   /* of the last eight that somebody had, bit by bit: it got a kernel */
    struct list dead; /* of struct box */
    struct list requests;
    struct list on_lanes; /* of struct box, whose stand-ins have still to answer */
    struct timer *hear_lanes;
};

static struct native *native_of(struct engine *engine)
{
    return container_of(engine, struct native, base);
}

/*** To the spawner ***/

static void on_wire(uv_poll_t *poll, int status, int events);

static void request_free(struct request *request)
{
    list_remove(&request->link);
    for (int i = 0; i < WIRE_KERNEL_FDS; i++)
        fd_closep(&request->fds[i]);
    free(request);
}

static int send_request(int wire, const struct request *request)
{
    return sys_send_fds(wire, &request->wire, sizeof(request->wire), request->fds,
                        request->wire.kind == WIRE_KERNEL ? WIRE_KERNEL_FDS : 0,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_queued(struct native *native)
{
    while (!native->lost && !list_empty(&native->requests)) {
        struct request *request = list_first(struct request, &native->requests, link);
        int r = send_request(native->started.wire, request);
        if (r == -EAGAIN || r == -ENOBUFS || r == -EINTR)
            break;
        request_free(request); /* any other failure is seen as the end of the socket */
    }
    int events = UV_READABLE | (list_empty(&native->requests) ? 0 : UV_WRITABLE);
    if (native->lost || events == native->events)
        return; /* each change is a system call or two */
    native->events = events;
    (void)uv_poll_start(native->poll, events, on_wire);
}

static struct request *request_new(enum wire_request_kind kind, unsigned slot)
{
    struct request *request = xcalloc(1, sizeof(*request));
    list_init(&request->link);
    request->wire.kind = kind;
    request->wire.slot = slot;
    for (int i = 0; i < WIRE_KERNEL_FDS; i++)
        request->fds[i] = -1;
    return request;
}

/* Takes it. */
static void enqueue(struct native *native, struct request *request)
{
    bool first = list_empty(&native->requests);
    list_add_tail(&native->requests, &request->link);
    if (native->lost)
        request_free(request);
    else if (first)
        send_queued(native);
}

static void ask(struct native *native, enum wire_request_kind kind, unsigned slot,
                const struct sandbox_limits *limits)
{
    struct request *request = request_new(kind, slot);
    if (limits)
        request->wire.limits = *limits;
    request->wire.for_kernel = native->lately == UINT8_MAX;
    /* Where somebody waits for the sandbox, its kernel is there sooner without. */
    request->wire.stand_in = request->wire.for_kernel && !broker_hurries(native->broker);
    enqueue(native, request);
}

/*** Slots ***/

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

/* As struct broker_maker says. */
static int make(void *data, const struct sandbox_plan *plan, struct err *err)
{
    struct native *native = data;
    int slot = find_slot(native);
    if (slot < 0 && native->n_leaving > 0)
        return -EBUSY; /* WIRE_GONE comes in a moment */
    if (slot < 0)
        return err_set(err, EAGAIN, "all %u places for sandboxes are taken", native->started.slots);
    native->slots[slot] = (struct slot){ .state = SLOT_CREATING, .plan = *plan };
    ask(native, WIRE_CREATE, (unsigned)slot, &plan->limits);
    return 0;
}

static void leaving(struct native *native, struct slot *slot)
{
    slot->state = SLOT_LEAVING;
    slot->box = NULL;
    native->n_leaving++;
}

/* Takes the descriptors. */
static struct box *box_new(struct native *native, unsigned slot, const int fds[WIRE_CREATED_FDS])
{
    struct box *box = xcalloc(1, sizeof(*box));
    box->base.engine = &native->base;
    box->base.fd = fds[0];
    box->lane = fds[1];
    (void)snprintf(box->base.id, sizeof(box->base.id), "%s.%llu", native->instance,
                   (unsigned long long)++native->serial);
    box->native = native;
    box->slot = slot;
    list_init(&box->link);
    list_init(&box->usages);
    list_init(&box->on_lane);
    for (int i = 0; i < CGROUP_COUNTERS; i++)
        box->counters[i] = -1;
    return box;
}

/* Its owner hears of nothing any more. */
static void box_disown(struct box *box)
{
    list_each (struct usage, usage, &box->usages, link) {
        list_remove(&usage->link);
        free(usage);
    }
    list_remove(&box->link);
    list_remove(&box->on_lane);
    fd_closep(&box->lane);
    box->lane = -1;
    box->on_added = NULL;
    box->base.on_died = NULL;
}

static void box_free(struct box *box)
{
    box_disown(box);
    for (int i = 0; i < CGROUP_COUNTERS; i++)
        fd_closep(&box->counters[i]);
    fd_closep(&box->base.fd);
    free(box);
}

static void box_leave(struct box *box)
{
    struct native *native = box->native;
    leaving(native, &native->slots[box->slot]);
    ask(native, WIRE_DESTROY, box->slot, NULL);
    box_free(box);
}

static void discard(struct sandbox *sandbox)
{
    box_leave(container_of(sandbox, struct box, base));
}

static void tell_died(struct box *box)
{
    list_remove(&box->link);
    if (box->told || !box->base.on_died)
        return;
    box->told = true;
    box->base.on_died(&box->base, box->base.on_died_data); /* may destroy it */
}

static void tell_dead(void *data)
{
    struct native *native = data;
    while (!list_empty(&native->dead))
        tell_died(list_first(struct box, &native->dead, link));
}

/*** From the spawner ***/

static void on_created(struct native *native, struct slot *slot, const int fds[WIRE_CREATED_FDS])
{
    slot->state = SLOT_LIVE;
    slot->box = box_new(native, (unsigned)(slot - native->slots), fds);
    broker_made(native->broker, &slot->plan, &slot->box->base);
}

static int start_error(const struct wire_event *event, struct err *err)
{
    return event->code ? err_sys(err, event->code, "start a sandbox: %s", event->step)
                       : err_set(err, EIO, "start a sandbox: %s", event->step);
}

static void on_failed(struct native *native, struct slot *slot, const struct wire_event *event)
{
    struct err err;
    (void)start_error(event, &err);
    leaving(native, slot); /* WIRE_GONE follows */
    broker_failed(native->broker, &slot->plan, &err);
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

/* Takes *fd, unless descriptors are getting scarce: those of clients and sandboxes come first. */
static void on_counter(struct box *box, int which, int *fd)
{
    struct rlimit files;
    if (which >= 0 && which < CGROUP_COUNTERS && box->counters[which] < 0 && *fd >= 0 &&
        getrlimit(RLIMIT_NOFILE, &files) == 0 && (rlim_t)*fd < files.rlim_cur / 2)
        box->counters[which] = steal_fd(fd);
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
    if (broker_lost(native->broker, &box->base)) {
        log_warning("sandbox %s died while it was nobody's", box->base.id);
        box_leave(box);
        return;
    }
    box->dead = true;
    tell_died(box);
}

/* Takes the descriptors, which may be -1. */
static void on_event(struct native *native, const struct wire_event *event,
                     const int fds[WIRE_CREATED_FDS])
{
    auto_fd stream = fds[0], lane = fds[1];
    struct slot *slot = event->slot < native->started.slots ? &native->slots[event->slot] : NULL;
    if (!slot)
        return;
    if (event->kind == WIRE_CREATED && slot->state == SLOT_CREATING && stream >= 0) {
        on_created(native, slot, (int[WIRE_CREATED_FDS]){ steal_fd(&stream), steal_fd(&lane) });
    } else if (event->kind == WIRE_FAILED && slot->state == SLOT_CREATING) {
        on_failed(native, slot, event);
    } else if (event->kind == WIRE_FAILED && slot->state == SLOT_FREE) {
        log_error("the spawner cannot start: %s", event->step); /* its end follows */
    } else if (event->kind == WIRE_GONE && slot->state == SLOT_LEAVING) {
        slot->state = SLOT_FREE;
        native->n_leaving--;
    } else if (event->kind == WIRE_USED && slot->box) {
        on_used(slot->box, event);
    } else if (event->kind == WIRE_COUNTER && slot->box) {
        on_counter(slot->box, event->code, &stream);
    } else if (event->kind == WIRE_KERNEL_ADDED && slot->box) {
        on_kernel(slot->box, 0);
    } else if (event->kind == WIRE_KERNEL_FAILED && slot->box) {
        on_kernel(slot->box, event->code > 0 ? -event->code : -ENOENT);
    } else if (event->kind == WIRE_DIED && slot->box) {
        on_died(native, slot->box);
    }
}

/* 1 and an event, 0: none now, -1: the spawner is gone. */
static int receive(struct native *native, int flags, struct wire_event *ret,
                   int ret_fds[WIRE_CREATED_FDS])
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(WIRE_CREATED_FDS * sizeof(int))];
    } control;
    struct iovec part = { ret, sizeof(*ret) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    ssize_t n = recvmsg(native->started.wire, &message, flags | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    ret_fds[0] = ret_fds[1] = -1;
    struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len <= CMSG_LEN(WIRE_CREATED_FDS * sizeof(int)))
        memcpy(ret_fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    if (n == (ssize_t)sizeof(*ret)) {
        ret->step[sizeof(ret->step) - 1] = '\0';
        return 1;
    }
    for (int i = 0; i < WIRE_CREATED_FDS; i++)
        fd_closep(&ret_fds[i]);
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
    list_each (struct request, request, &native->requests, link)
        request_free(request);
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
    broker_shut(native->broker, &err);
    for (unsigned i = 0; i < native->started.slots; i++) {
        struct box *box = native->slots[i].box;
        if (!box || box->dead)
            continue;
        box->dead = true;
        list_add_tail(&native->dead, &box->link);
    }
    timer_start(native->tell_dead, 0);
}

static void on_wire(uv_poll_t *poll, int status, int events)
{
    struct native *native = poll->data;
    (void)events; /* receive() and send_queued() find out themselves */
    if (status < 0)
        native->events = 0; /* libuv has stopped it */
    struct wire_event event;
    int fds[WIRE_CREATED_FDS], r = 0;
    /* Bounded, so that clients get their turn; no handle is closed by a callback but in close(). */
    for (int i = 0; i < 64 && !native->lost && (r = receive(native, MSG_DONTWAIT, &event, fds)) > 0;
         i++)
        on_event(native, &event, fds);
    if (r < 0) {
        on_lost(native);
        return;
    }
    send_queued(native);
    broker_pump(native->broker);
}

/*** The interface ***/

static int native_list(const struct engine_options *options, json_t *ret, struct err *err)
{
    return instance_list(options->state_dir, ret, err);
}

static struct engine_pending *native_start(struct engine *engine, const struct sandbox_plan *plan,
                                           engine_started_fn *on_started, void *data)
{
    return broker_start(native_of(engine)->broker, plan, on_started, data);
}

static void native_cancel(struct engine_pending *pending)
{
    broker_cancel(native_of(pending->engine)->broker, pending);
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

static bool native_counts(struct sandbox *sandbox, struct sandbox_usage *ret)
{
    struct box *box = container_of(sandbox, struct box, base);
    uint64_t counts[CGROUP_COUNTERS];
    for (int i = 0; i < CGROUP_COUNTERS; i++)
        if (box->counters[i] < 0 ||
            !cgroup_read_counter(box->counters[i], (enum cgroup_counter)i, &counts[i])) {
            if (!box->asked_counters)
                ask(box->native, WIRE_COUNTERS, box->slot, NULL);
            box->asked_counters = true;
            return false;
        }
    *ret = (struct sandbox_usage){ .oom_kills = counts[CGROUP_OOM_KILLS],
                                   .pids_denied = counts[CGROUP_PIDS_DENIED] };
    return true;
}

static void learn(struct box *box, bool kernel)
{
    if (box->learned)
        return;
    box->learned = true;
    box->native->lately = (uint8_t)(box->native->lately << 1 | kernel);
}

/* 1: it has answered, with *ret_code; 0: not yet; -1: it has gone without a word. */
static int hear_lane(const struct box *box, int32_t *ret_code)
{
    ssize_t n = recv(box->lane, ret_code, sizeof(*ret_code), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return n == (ssize_t)sizeof(*ret_code) ? 1 : -1;
}

static void hear_lanes(void *data)
{
    struct native *native = data;
    struct list waiting = LIST_INIT(waiting);
    while (!list_empty(&native->on_lanes)) {
        struct box *box = list_first(struct box, &native->on_lanes, on_lane);
        int32_t code = EPIPE;
        list_remove(&box->on_lane);
        if (hear_lane(box, &code) == 0) {
            list_add_tail(&waiting, &box->on_lane);
            continue;
        }
        fd_closep(&box->lane);
        box->lane = -1;
        on_kernel(box, code ? -code : 0); /* may destroy it, or others */
    }
    while (!list_empty(&waiting)) {
        struct box *box = list_first(struct box, &waiting, on_lane);
        list_remove(&box->on_lane);
        list_add_tail(&native->on_lanes, &box->on_lane);
    }
    if (!list_empty(&native->on_lanes))
        timer_start(native->hear_lanes, LANE_MS);
}

/* True: its stand-in has been called upon. Else there is none, or it has ended with its zygote. */
static bool call_stand_in(struct box *box, uint32_t number, const int fds[WIRE_KERNEL_FDS])
{
    const struct zygote_call call = { .magic = ZYGOTE_MAGIC, .number = number };
    struct native *native = box->native;
    if (box->lane < 0)
        return false;
    if (sys_send_fds(box->lane, &call, sizeof(call), fds, WIRE_KERNEL_FDS,
                     MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        fd_closep(&box->lane);
        box->lane = -1;
        return false;
    }
    list_add_tail(&native->on_lanes, &box->on_lane);
    if (!timer_active(native->hear_lanes))
        timer_start(native->hear_lanes, LANE_MS);
    return true;
}

static void native_add_kernel(struct sandbox *sandbox, uint32_t number, struct link_pipes *theirs,
                              sandbox_added_fn *on_added, void *data)
{
    struct box *box = container_of(sandbox, struct box, base);
    assert(!box->on_added); /* one at a time */
    box->on_added = on_added;
    box->on_added_data = data;
    learn(box, true);
    struct request *request = request_new(WIRE_KERNEL, box->slot);
    request->wire.number = number;
    request->fds[0] = steal_fd(&theirs->out);
    request->fds[1] = steal_fd(&theirs->err);
    request->fds[2] = steal_fd(&theirs->channel);
    request->fds[3] = steal_fd(&theirs->said);
    if (call_stand_in(box, number, request->fds))
        request_free(request);
    else
        enqueue(box->native, request);
}

static void native_watch(struct sandbox *sandbox)
{
    struct box *box = container_of(sandbox, struct box, base);
    if (!box->dead || box->told)
        return;
    list_remove(&box->link);
    list_add_tail(&box->native->dead, &box->link);
    timer_start(box->native->tell_dead, 0);
}

static void native_destroy(struct sandbox *sandbox)
{
    struct box *box = container_of(sandbox, struct box, base);
    sandbox->engine->stats.sandboxes_open--;
    learn(box, false);
    if (sandbox->fd < 0 || box->dead || box->on_added) { /* or a kernel may be on its way into it */
        discard(sandbox);
        return;
    }
    box_disown(box);
    broker_retire(box->native->broker, sandbox);
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
    broker_free(native->broker);
    for (unsigned i = 0; i < native->started.slots; i++)
        if (native->slots[i].box)
            box_free(native->slots[i].box);
    timer_free(native->tell_dead);
    timer_free(native->hear_lanes);
    wait_for_keeper(native->started.keeper);
    free((char *)native->options.rootfs);
    free(native->slots);
    free(native);
}

/* The first sandbox, made before anything else: if it fails, no other would start. It goes into the
 * pool when there is one. */
static int try_one(struct native *native, struct err *err)
{
    struct wire_event event;
    int fds[WIRE_CREATED_FDS], r = broker_make(native->broker, err);
    if (r < 0)
        return r;
    while ((r = receive(native, 0, &event, fds)) == 0) {
        struct pollfd watched = { .fd = native->started.wire, .events = POLLIN };
        (void)poll(&watched, 1,
                   -1); /* the loop's poll has made the socket one that does not wait */
    }
    if (r < 0)
        return err_set(err, EIO, "the spawner died at its first sandbox");
    if (event.kind == WIRE_FAILED)
        return start_error(&event, err);
    on_event(native, &event, fds);
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
    list_init(&native->dead);
    list_init(&native->requests);
    list_init(&native->on_lanes);
    native->tell_dead = timer_new(loop, tell_dead, native);
    native->hear_lanes = timer_new(loop, hear_lanes, native);
    const struct broker_options pool = { .pooled = options->pool_enabled,
                                         .plan = options->pool_plan,
                                         .size = options->pool_size,
                                         .max_makings = options->pool_max_creations,
                                         .max_age_ms = options->pool_max_age_ms };
    const struct broker_maker maker = { .data = native, .make = make, .discard = discard };
    native->broker = broker_new(loop, &native->base, &pool, &maker);
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
    .list = native_list,
    .report = native_report,
    .start = native_start,
    .cancel = native_cancel,
    .watch = native_watch,
    .add_kernel = native_add_kernel,
    .usage = native_usage,
    .counts = native_counts,
    .destroy = native_destroy,
};
