/*
 * installer: the packages as the configuration wants them: the shelf, the engine with a network, and
 * what of this process's environment the installer is to know.
 *
 *   1. installer_prepare()   makes the shelf; the engine for guests is opened with its directory
 *   2. installer_start()     the second engine, with what the first was opened with
 *   3. installer_close()     before the first engine is closed
 *
 * A server that cannot install packages still runs code, so neither step fails: a warning says why,
 * as does `failure`, and `packages` is NULL.
 */
#ifndef BELLJAR_CLI_INSTALLER_H
#define BELLJAR_CLI_INSTALLER_H

#include "config/config.h"
#include "packages/packages.h"

struct installer {
    struct packages *packages; /* NULL: there is none */
    struct engine *engine;
    struct engine_network network;
    char *dir, *interpreter, *certificates;
    char **env;
    size_t n_env;
    struct err failure; /* code 0: none */
};

/* `config`, `state_dir` and `python` outlive it. */
void installer_prepare(struct installer *ret, uv_loop_t *loop, const struct config *config,
                       const char *state_dir, const char *python);
/* What engine_options.packages should be. */
struct engine_packages installer_shown(const struct installer *installer);
/* Takes its user ids from the end of the range in `base`, which has less of them afterwards: to be
 * called first. */
void installer_take_ids(const struct installer *installer, struct engine_options *base,
                        struct engine_options *ret);
void installer_start(struct installer *installer, uv_loop_t *loop, const struct config *config,
                     struct engine *guests, const struct engine_options *options);
void installer_close(struct installer *installer);

#endif
