/*
 * stay: how the agent of a container outlives its server. When it has been told to (FRAME_KEEP), it listens
 * at an abstract socket of the container's own network namespace. The next server has the engine start a
 * second process in the container, this program with AGENT_JOIN: the *helper*. It hands its standard input
 * and output to pid 1, which takes them as its new stream, and then only waits: an engine closes the
 * streams of a process that has exited.
 *
 *   next server ══ engine ══ helper's 0 and 1 ──(SCM_RIGHTS)──▶ pid 1
 *
 * No guest can take either part. Guests have the agent's user id, can get no other, and the helper has
 * another: who connects is known by it, as the system vouches for it, and everybody else is turned away. For
 * the same reason no guest can signal or trace the helper. The helper in turn speaks to pid 1 only, whoever
 * else may have bound the name. A guest that floods the socket harms its own session.
 */
#ifndef BELLJAR_AGENT_STAY_H
#define BELLJAR_AGENT_STAY_H

#include "agent/config.h"
#include "agent/frame.h"
#include "agent/pollset.h"

/* One who has connected, until the server behind it has said something on its streams: an engine may be late with
 * the helper of a server that is dead, and such a one must not take another's place. */
struct candidate {
    int fd, in_fd, out_fd; /* -1: none; the latter two are its streams */
    short ready, in_ready;
};

enum { STAY_CANDIDATES = 4 };
struct stay {
    bool wanted; /* it has been told to, and can */
    struct frame_keep keep;
    int listen_fd, helper_fd; /* -1: none; the helper of the stream that there is */
    short listen_ready, helper_ready;
    struct candidate candidates[STAY_CANDIDATES]; /* the oldest first */
};

void stay_init(struct stay *stay);
/* Listens, unless it does. If that fails the agent ends with its stream, as ever. */
void stay_keep(struct stay *stay, const struct frame_keep *keep);
void stay_poll(struct stay *stay, struct pollset *set);
/* The helper of the stream that there is has ended. */
bool stay_lost(struct stay *stay);
/* True: somebody has come, and been greeted; two descriptors for the stream, ours to close. The stream before is
 * over, and its helper may go. */
bool stay_step(struct stay *stay, const struct config *config, int *ret_in, int *ret_out);
/* The stream has ended: its helper may go. */
void stay_dismiss(struct stay *stay);

/* The helper; returns an exit status. */
int stay_help(void);

#endif
