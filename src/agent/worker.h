/*
 * worker: does one piece of file work and ends. It runs as the guest's user in the guest's cgroup,
 * undumpable, with nothing open but a pipe in each direction and the workspace.
 *
 * It trusts no name twice: what it acts on is the descriptor it has opened and looked at. Whatever a
 * guest changes meanwhile, the worker stays below the workspace; it reads regular files only, never
 * waits for one, and gives up by itself before the agent does.
 */
#ifndef BELLJAR_AGENT_WORKER_H
#define BELLJAR_AGENT_WORKER_H

#include "agent/config.h"
#include "agent/frame.h"

/* in_fd: the content to write, or -1. out_fd: gets FRAME_FILE_DATA and one FRAME_FILE_END. */
_Noreturn void worker_main(const struct config *config, uint32_t number,
                           const struct frame_file *request, int in_fd, int out_fd);

#endif
