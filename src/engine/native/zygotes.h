/*
 * zygotes: the spawner's side of the zygote (zygote/zygote.h): it is started in the background, renewed by
 * age and number of forks, and replaced when it dies. At most two live at a time: one that serves, and one
 * that warms up to take over or, the other way round, finishes its orders and leaves.
 *
 * Nothing waits for a zygote. Where there is none, or it cannot be one, orders are refused at once, the
 * reason is logged once, and it is tried again after a pause that grows. One that does not answer an
 * order is killed.
 */
#ifndef BELLJAR_ENGINE_NATIVE_ZYGOTES_H
#define BELLJAR_ENGINE_NATIVE_ZYGOTES_H

#include "engine/native/host.h"
#include "zygote/zygote.h"

enum { ZYGOTES_MAX = 2, ZYGOTES_WATCHES = 2 * ZYGOTES_MAX, ZYGOTES_ORDERS_MAX = 256 };

struct zygotes_events {
    /* Exactly once for each order that was taken. */
    void (*on_forked)(unsigned slot, uint32_t ticket, int code, void *data);
    /* To be told by zygotes_ready(what) when it can be read. */
    void (*watch)(int fd, unsigned what, void *data);
    void (*unwatch)(int *fd, void *data); /* closes it too */
};

/* DEAD: children that it had not waited for are the spawner's now, and some of them live. */
enum zygote_state { ZYGOTE_NONE, ZYGOTE_WARMING, ZYGOTE_SERVING, ZYGOTE_LEAVING, ZYGOTE_DEAD };

struct zygote_process {
    enum zygote_state state;
    int control, pidfd;
    pid_t pid;
    unsigned generation;
    uint64_t since_ms; /* of the state */
    uint64_t forks;
    bool told; /* why it ends has been logged */
};

struct zygotes {
    const struct native_host *host;
    struct zygotes_events events;
    void *data;
    struct zygote_process all[ZYGOTES_MAX];
    unsigned generation, failures;
    uint64_t retry_ms; /* not before */
    bool complained;   /* since the last one that served */
    uint32_t ticket;
    size_t n_orders;
    struct {
        uint32_t ticket;
        unsigned slot;
        struct zygote_process *by;
        uint64_t since_ms;
    } orders[ZYGOTES_ORDERS_MAX];
};

void zygotes_init(struct zygotes *zygotes, const struct native_host *host,
                  const struct zygotes_events *events, void *data);
/* One would take an order now. */
bool zygotes_serve(struct zygotes *zygotes);
/* Fills in magic and ticket. The descriptors stay the caller's. 0, or -errno and no on_forked: -EAGAIN
 * where a zygote is on its way, -ENXIO where none is. */
int zygotes_order(struct zygotes *zygotes, unsigned slot, struct zygote_order *order,
                  const int *fds, size_t n_fds);
void zygotes_ready(struct zygotes *zygotes, unsigned what);
/* Does what is due; returns in how many milliseconds something will be, -1: not before an event. */
int zygotes_tick(struct zygotes *zygotes, uint64_t now_ms);

#endif
