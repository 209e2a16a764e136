/*
 * target: where the container engine is, as DOCKER_HOST says it, and how it is spoken to.
 *
 *   unix:///var/run/docker.sock     a socket of this host
 *   tcp://host:port                 plain without certificates, else TLS, always verified
 */
#ifndef BELLJAR_ENGINE_DOCKER_TARGET_H
#define BELLJAR_ENGINE_DOCKER_TARGET_H

#include "base/buf.h"
#include "base/err.h"
#include "engine/engine.h"

#include <curl/curl.h>

#define DOCKER_DEFAULT_HOST "unix:///var/run/docker.sock"

struct docker_target {
    unsigned refs;
    char *shown;  /* as it was said */
    char *url;    /* what paths are put behind, without a slash at its end */
    char *socket; /* NULL: url says where */
    bool tls;
    struct buf ca, cert, key; /* PEM; read once, for the files may be out of reach later */
};

/* Reads the certificates; connects nowhere. Nothing in it changes afterwards, so that threads may share it;
 * its references belong to the loop's. */
int docker_target_new(const struct engine_docker *options, struct docker_target **ret,
                      struct err *err);
struct docker_target *docker_target_ref(struct docker_target *target);
void docker_target_unref(struct docker_target *target); /* NULL is fine */

/* Where it listens; 0: on a socket of this host. */
uint16_t docker_target_port(const struct docker_target *target);

/* Everything about a transfer that the target decides. */
void docker_target_apply(const struct docker_target *target, CURL *easy);

/* What it means that a transfer failed, with a remedy where there is one. Returns -errno. */
int docker_target_explain(const struct docker_target *target, CURL *easy, CURLcode code,
                          const char *words, struct err *err);

#endif
