/*
 * door: how a kernel that was forked outside comes to its place in a sandbox. No code; the agent and
 * the zygote's library (src/zygote) include it.
 *
 * The door is a SOCK_SEQPACKET pair. One end is the agent's (setup.h), the other is handed by the engine
 * to each process that it forks into the sandbox. Such a process has become the guest before it listens
 * at the door, holds nothing else, and has run no code of the guest's yet; it closes the door before it
 * does.
 *
 *   agent → process   struct door_order, then `env_len` bytes "NAME=value\0…", then `cwd_len` bytes: a
 *                     directory with its NUL. With it, by SCM_RIGHTS, DOOR_FDS descriptors: input,
 *                     output, errors and the channel, which become 0 to 3
 *   process → agent   struct door_reply, with the sender's pid by SCM_CREDENTIALS. code 0: it is the
 *                     kernel now. Otherwise it could not become the guest, and ends
 *
 * A process that finds the other end of its channel closed has taken an order that was given up, and
 * waits for another; after DOOR_WAIT_MS it ends. The agent gives an order up after DOOR_JOIN_MS.
 */
#ifndef BELLJAR_AGENT_DOOR_H
#define BELLJAR_AGENT_DOOR_H

#include <stdint.h>

enum {
    DOOR_MAGIC = 0x524f4f44, /* "DOOR", little endian */
    DOOR_FDS = 4,
    DOOR_ENV_MAX = 128 * 1024, /* bytes; with more the kernel is started by exec */
    DOOR_CWD_MAX = 4096,
    DOOR_JOIN_MS = 3000,
    DOOR_WAIT_MS = 15000,
};

struct door_order {
    uint32_t magic, number; /* of the kernel, as in its frames */
    uint32_t env_len, cwd_len;
};

struct door_reply {
    uint32_t magic, number; /* of the order; 0: it came to none */
    int32_t code;           /* errno */
    char step[60];
};

#endif
