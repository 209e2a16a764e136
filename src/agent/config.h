/*
 * config: what the agent knows for its whole life: the engine's set-up (setup.h) or the defaults,
 * checked, and the directories it works in.
 */
#ifndef BELLJAR_AGENT_CONFIG_H
#define BELLJAR_AGENT_CONFIG_H

#include "agent/setup.h"
#include "agent/sys.h"

#include <stdbool.h>

struct config {
    bool is_init;          /* pid 1: everything else in sight is the guest's */
    bool other_user;       /* the guest is not who we are */
    bool may_bound;        /* we hold CAP_SETPCAP: guest_fork() */
    const char *workspace; /* as guests see it */
    int workspace_fd, run_dir_fd;
    int out_fd;  /* of the stream; AGENT_STREAM_FD where that goes both ways */
    int door_fd; /* -1: none */
    struct agent_setup setup;
    struct sys_program program; /* the guest's filter; len 0: none */
    const char *env[AGENT_ENV_COUNT_MAX + 1];
    struct sys_filter filter[AGENT_FILTER_MAX];
    char env_bytes[AGENT_ENV_MAX];
};

/* Where the set-up comes from, as setup.h says. */
enum config_source { CONFIG_GIVEN, CONFIG_STDIO, CONFIG_DEFAULTS, CONFIG_CAST };

/* In the mould: the filter and the environment that all its agents have. 0 or -errno. */
int config_cast(struct config *config, const struct sys_filter *filter, uint32_t n_filter);

/* Reads the set-up, checks that it can be honoured, opens the directories, gives up every privilege
 * that is not needed, and becomes undumpable. CONFIG_CAST: config->setup is there already, and what
 * config_cast() has put there. 0; or -errno and what failed in *ret_step. */
int config_load(struct config *config, enum config_source source, const char *workspace,
                const char *run_dir, const char **ret_step);

#endif
