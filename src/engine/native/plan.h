/*
 * plan: the constants of a native sandbox that no option changes.
 */
#ifndef BELLJAR_ENGINE_NATIVE_PLAN_H
#define BELLJAR_ENGINE_NATIVE_PLAN_H

/* The guest's user as it sees itself; the agent is 0 where it has a uid of its own. */
enum { PLAN_GUEST_UID = 1000, PLAN_AGENT_UID = 0 };

/* /run/belljar holds the code of a run. */
enum { PLAN_RUN_DIR_BYTES = 24 << 20, PLAN_RUN_DIR_INODES = 64 };
/* The agent, and what it forks before a guest has entered its own cgroup. */
enum { PLAN_AGENT_PIDS = 32 };
/* A file in /dev/shm for each semaphore and the like. */
enum { PLAN_SHM_INODES = 4096 };
/* Terminals of one sandbox. */
enum { PLAN_PTYS = 16 };

#define PLAN_HOSTNAME "belljar"

#endif
