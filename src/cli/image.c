/*
 * belljar image build: the image that the docker engine makes sandboxes from. What the engine says while
 * it builds goes to standard output as it comes, the image's id last.
 */
#include "cli/cli.h"
#include "cli/sandboxes.h"

#include "base/loop.h"
#include "engine/image.h"

#include <errno.h>
#include <stdio.h>

#define DEFAULT_BASE "python:3.12-slim-bookworm"
enum { STATUS_INTERRUPTED = 130 };

struct building {
    uv_loop_t loop;
    uv_signal_t signals[2];
    struct image_build *build;
    int status;
    struct err *err;
};

static void on_text(const char *text, size_t len, void *data)
{
    (void)data;
    (void)fwrite(text, 1, len, stdout); /* whoever reads may have left; the build goes on */
    (void)fflush(stdout);
}

static void on_built(const char *id, const struct err *err, void *data)
{
    struct building *building = data;
    if (id) {
        (void)printf("%s\n", id); /* as above */
    } else {
        *building->err = *err;
        building->status = -err->code;
    }
    uv_stop(&building->loop);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct building *building = handle->data;
    (void)number;
    building->status = STATUS_INTERRUPTED;
    uv_stop(&building->loop);
}

static int build_image(const struct image_recipe *recipe, struct err *err)
{
    static const struct image_events events = { .on_text = on_text, .on_built = on_built };
    struct building building = { .err = err };
    int r = loop_begin(&building.loop, err);
    if (r < 0)
        return r;
    r = loop_watch_signals(&building.loop, building.signals, on_signal, &building, err);
    if (r == 0)
        r = image_build_new(&building.loop, recipe, &events, &building, &building.build, err);
    if (r == 0) {
        uv_run(&building.loop, UV_RUN_DEFAULT);
        r = building.status;
    }
    image_build_free(building.build);
    loop_finish(&building.loop);
    return r;
}

static int check_network(const char *network, struct err *err)
{
    if (str_eq(network, "default") || str_eq(network, "host") || str_eq(network, "none"))
        return 0;
    return err_set(err, EINVAL, "--network: default, host or none, not %.100s", network);
}

static int run(const struct cli_args *args, struct err *err)
{
    const struct config *config = &args->config;
    const char *base = cli_given(args, "--from"), *rootfs = cli_given(args, "--from-rootfs");
    const char *name = cli_given(args, "--tag"), *network = cli_given(args, "--network");
    if (args->n_operands != 1 || !str_eq(args->operands[0], "build"))
        return err_set(err, EINVAL, "image: say what to do with it: belljar image build");
    if (base && rootfs)
        return err_set(err, EINVAL, "image build: begin with --from or --from-rootfs, not both");
    if (network && check_network(network, err) < 0)
        return -EINVAL;
    const struct engine_docker docker = docker_options(config);
    const struct image_recipe recipe = {
        .docker = &docker,
        .base = rootfs ? NULL
                : base ? base
                       : DEFAULT_BASE,
        .rootfs = rootfs,
        .name = name ? name : config->docker_image,
        .network = network ? network : "default",
        /* A build has no wheels but those of an index. */
        .index = str_eq(config->package_index, "none") ? "" : config->package_index,
        .trusted_hosts = (const char *const *)config->package_trusted_hosts.items,
        .n_trusted_hosts = config->package_trusted_hosts.count,
        .fresh = cli_given(args, "--no-cache"),
        .timeout_ms = config->docker_build_timeout_ms,
    };
    return build_image(&recipe, err);
}

const struct command command_image = {
    .name = "image",
    .summary = "Build the image that the docker engine makes sandboxes from",
    .operands = "build",
    .max_operands = 1,
    .flags_last = true,
    .configured = true,
    .switches = { { "--from",
                    "The image to begin with, of Debian's family, by name and tag or digest. Not "
                    "given: " DEFAULT_BASE ".",
                    "IMAGE" },
                  { "--from-rootfs",
                    "Begin with the tar of a root file system instead, where there is no registry.",
                    "TAR" },
                  { "--tag", "What to call the image. Not given: docker.image.", "NAME" },
                  { "--network",
                    "The network of the build: default, host or none. Not given: default.",
                    "NAME" },
                  { "--no-cache", "Do every step again.", NULL } },
    .run = run,
};
