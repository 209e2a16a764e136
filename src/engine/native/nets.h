/*
 * nets: network namespaces that are used again. Making one and having it cleaned up takes the kernel more time than
 * anything else in a sandbox's life, and most sandboxes never touch theirs.
 *
 * What a guest without any right can leave in one is not to be listed: counters, flow labels, keys, timers of groups
 * that it has left, and what the next kernel brings. So nothing of that is looked at. A namespace is as new when
 * nobody who lived in it has ever made a socket but of AF_UNIX: all of that is done through one. The kernel itself
 * tells: a filter that the spawner loads, and that every process below it inherits, stops socket(2) with any other family
 * until the spawner has noted whose namespace it is, and then lets it go on. Which families there are at all other
 * filters decide; the strictest counts.
 *
 * Sockets of AF_UNIX leave nothing when they are gone. That they are, also those on their way in others, the
 * mould looks at when it enters the namespace again (agent/mould.h).
 *
 *   1. nets_init(), nets_listen()    last of all that prepares the spawner
 *   2. nets_hear(), nets_answer()    when the listener can be read; in between the caller notes it
 *   3. nets_keep(), nets_take()      when a sandbox is wholly gone; for the next one
 *
 * Where there is no listener (an old kernel, or somebody above us has one) nothing is kept.
 */
#ifndef BELLJAR_ENGINE_NATIVE_NETS_H
#define BELLJAR_ENGINE_NATIVE_NETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    NETS_SPARE = 32, /* namespaces of dead sandboxes that are kept for others */
    /* Guests can make us do something for each socket of theirs; so many in a millisecond, of all together. The
     * others wait for the next. */
    NETS_CALLS_PER_MS = 8,
};

struct nets {
    int listener; /* -1: none */
    ino_t home;   /* the spawner's own namespace, and the zygote's */
    size_t n_spare;
    int spare[NETS_SPARE];
    uint64_t heard_ms; /* when the last call was, and how many were in that millisecond */
    unsigned heard;
};

/* A process that waits to make a socket. */
struct net_call {
    uint64_t id;
    ino_t net; /* where; 0: it cannot be told */
};

void nets_init(struct nets *nets);
/* Loads the filter into this process, which may never make such a socket again. 0, also where there can be no listener;
 * or -errno: what else the kernel refuses is not as it should be. */
int nets_listen(struct nets *nets);

/* 0; -EAGAIN: nobody waits any more; another -errno: nothing will ever be heard. */
int nets_hear(struct nets *nets, uint64_t now_ms, struct net_call *ret);
void nets_answer(struct nets *nets, const struct net_call *call);
/* There have been enough in this millisecond. */
bool nets_weary(const struct nets *nets, uint64_t now_ms);

/* Takes the descriptor of a namespace that is as new but for sockets that are on their way. */
void nets_keep(struct nets *nets, int net);
/* One that has been kept, or -1. */
int nets_take(struct nets *nets);

#endif
