/*
 * door: how a kernel that was forked outside comes to its place in a sandbox. No code; the agent and
 * the zygote's library (src/zygote) include it.
 *
 * The door is a SOCK_SEQPACKET pair. One end is the agent's (setup.h), the other is handed by the engine
 * to each process that it forks into the sandbox, with the kernel's ends of channel and pipes, at whose other
 * ends is the server. Such a process becomes the guest, and then leaves one struct door_note, with its pid by
 * SCM_CREDENTIALS. code 0: it is the kernel from here on, and does not wait for an answer. Otherwise it could
 * not become the guest, and ends. It has run no code of the guest's yet, and closes the door before it does.
 *
 * The server tells the agent first (FRAME_KERNEL, joined) and has the process made then; but the note may
 * be there before the frames are read, and the process dead. The agent gives up after DOOR_JOIN_MS. A process
 * that comes later finds the other end of its channel closed and ends, or is killed.
 *
 * Where a kernel is expected to be first, the engine may have a *stand-in* made before anybody has the sandbox
 * (zygote/stand_in.h): a process that is the guest already, and has the kernel as its child when there is an order
 * for one. It is announced by a note with DOOR_STAND_IN, whose number is its pid. It shares memory with the process that
 * kernels are forked from, and must not live beside anything of the guest's: before anything else of that is
 * started the agent kills it and waits for its end. When it has forked it exits; the kernel comes after that.
 */
#ifndef BELLJAR_AGENT_DOOR_H
#define BELLJAR_AGENT_DOOR_H

#include <stdint.h>

enum {
    DOOR_MAGIC = 0x524f4f44,    /* "DOOR", little endian */
    DOOR_STAND_IN = 0x54494157, /* "WAIT" */
    DOOR_JOIN_MS = 3000,
};

struct door_note {
    uint32_t magic, number; /* of the kernel, as in its frames; or the pid of a stand-in */
    int32_t code;           /* errno */
    char step[60];
};

#endif
