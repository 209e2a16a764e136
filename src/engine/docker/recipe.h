/* What an image is built from, as a tar, embedded at build time (embed.S). */
#ifndef BELLJAR_ENGINE_DOCKER_RECIPE_H
#define BELLJAR_ENGINE_DOCKER_RECIPE_H

#include <stddef.h>

#define RECIPE_DOCKERFILE "packaging/image/Dockerfile"
extern const char recipe_tar[];
extern const size_t recipe_tar_len;

#endif
