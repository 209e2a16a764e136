/*
 * container: what is asked of the engine for one sandbox, as JSON. Pure. Every setting that isolates stands
 * here and nowhere else.
 */
#ifndef BELLJAR_ENGINE_DOCKER_CONTAINER_H
#define BELLJAR_ENGINE_DOCKER_CONTAINER_H

#include "engine/docker/reply.h"

#define CONTAINER_LABEL_INSTANCE "belljar.instance"
#define CONTAINER_LABEL_SANDBOX "belljar.sandbox"
/* The agent's volume, and the file in it. */
#define CONTAINER_AGENT_DIR "/opt/belljar/agent"
#define CONTAINER_AGENT_NAME "belljar-agent"

struct container_plan {
    const struct docker_facts *facts;
    const struct docker_image *image;
    const char *runtime;     /* "" : the engine's own choice */
    const char *working_dir; /* made if it is not there; "" : none */
    const char *volume;
    const char *packages; /* the volume that is shown at ENGINE_PACKAGES; "" : none */
    const char *network;  /* of an installer; "" : none, as for everybody else */
    const char *wheels;   /* of an installer: a directory of the engine's host; "" : none */
    const char *instance, *sandbox;
    const char *seccomp; /* the profile, as JSON */
    uint32_t uid, gid;   /* of agent and guests */
    struct sandbox_limits limits;
};

/* The body of POST /containers/create; a new reference. */
json_t *container_json(const struct container_plan *plan);
/* Of a container that is never started: files are put into a volume through it, below `target`. Of the plan
 * only the image and the labels count. */
json_t *container_helper_json(const struct container_plan *plan, const char *volume,
                              const char *target);

/* The body of POST /containers/NAME/exec: the agent's helper (agent/stay.h), in a container whose guests have
 * this uid; a new reference. */
json_t *container_helper_exec_json(uint32_t guest_uid);

/* What the agent reads first (agent/setup.h): `filter` is for its guests. */
struct seccomp_program;
void container_setup(const struct container_plan *plan, const struct seccomp_program *filter,
                     struct buf *ret);

#endif
