/*
 * wire: what the server and the spawner say to each other, over one SOCK_SEQPACKET pair. A message
 * is one fixed struct, whole or not at all; there is no text of clients in it and nothing to parse.
 *
 * A sandbox is named by its slot, a small number that the server chooses and the spawner checks: it
 * must be free. Outside uids and the names of cgroups follow from it, or from a number that the spawner
 * gives (leaves.h), so two live sandboxes cannot share them. A slot is free again after WIRE_GONE, never before.
 *
 *   server → spawner                spawner → server
 *   WIRE_CREATE  slot, limits       WIRE_CREATED  slot, with the stream to the agent, and the lane to a stand-in
 *                                                 where one waits for a kernel (zygote/zygote.h)
 *                                   WIRE_FAILED   slot, step, code; WIRE_GONE follows
 *   WIRE_USAGE   slot               WIRE_USED     slot, usage
 *   WIRE_COUNTERS slot              WIRE_COUNTER  slot, which of them, with a descriptor to read it; one for
 *                                                 each that there is
 *   WIRE_KERNEL  slot, number,      WIRE_KERNEL_ADDED   slot: a process is on its way to the agent's door, or
 *                with its channel   has been for some milliseconds: nobody waits for this word
 *                and pipes
 *                                   WIRE_KERNEL_FAILED  slot, code: there is none to be had
 *   WIRE_DESTROY slot               WIRE_GONE     slot
 *                                   WIRE_DIED     slot: by itself; still to be destroyed
 *
 * First of all the spawner sends WIRE_READY, or WIRE_FAILED, about itself.
 */
#ifndef BELLJAR_ENGINE_NATIVE_WIRE_H
#define BELLJAR_ENGINE_NATIVE_WIRE_H

#include "engine/engine.h"

enum { WIRE_SLOTS_MAX = 4096, WIRE_STEP_MAX = 320 };

enum wire_request_kind { WIRE_CREATE = 1, WIRE_USAGE, WIRE_KERNEL, WIRE_DESTROY, WIRE_COUNTERS };

struct wire_request {
    uint32_t kind;
    uint32_t slot;
    /* Of WIRE_CREATE: the first to run there will probably be a kernel, not a program. */
    uint32_t for_kernel;
    uint32_t stand_in;            /* of WIRE_CREATE: and there is time to have one for it */
    uint32_t number;              /* of WIRE_KERNEL: of the kernel, as the agent knows it */
    struct sandbox_limits limits; /* of WIRE_CREATE */
};
/* With WIRE_KERNEL, by SCM_RIGHTS: what becomes its descriptors 1 to 4. With WIRE_CREATED: one, or two. */
enum { WIRE_KERNEL_FDS = 4, WIRE_CREATED_FDS = 2 };

enum wire_event_kind {
    WIRE_READY = 1,
    WIRE_CREATED,
    WIRE_FAILED,
    WIRE_USED,
    WIRE_KERNEL_ADDED,
    WIRE_KERNEL_FAILED,
    WIRE_DIED,
    WIRE_GONE,
    WIRE_COUNTER
};

struct wire_event {
    uint32_t kind;
    uint32_t slot;
    int32_t code;   /* of WIRE_FAILED and WIRE_KERNEL_FAILED: an errno value, 0: none applies;
                       of WIRE_COUNTER: an enum cgroup_counter */
    uint32_t known; /* of WIRE_USED: 0 when there are no counters */
    char step[WIRE_STEP_MAX]; /* of WIRE_FAILED: what was being done */
    struct sandbox_usage usage;
};

#endif
