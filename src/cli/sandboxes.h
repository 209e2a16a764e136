/*
 * sandboxes: engine, sessions and toolbox as the configuration wants them, for the commands that run
 * code.
 */
#ifndef BELLJAR_CLI_SANDBOXES_H
#define BELLJAR_CLI_SANDBOXES_H

#include "config/config.h"
#include "tools/toolbox.h"

struct sandboxes {
    struct engine *engine;
    struct sessions *sessions;
    struct toolbox toolbox;
    json_t *env, *allowed_modules, *blocked_modules; /* what the sessions' options refer to */
};

/* `strict`: what require_limits "auto" means. Must come before the process drops privileges. On
 * failure nothing is left. */
int sandboxes_open(struct sandboxes *ret, uv_loop_t *loop, const struct config *config, bool strict,
                   struct err *err);
/* Ends every session. A zeroed struct is fine. */
void sandboxes_close(struct sandboxes *sandboxes);

#endif
