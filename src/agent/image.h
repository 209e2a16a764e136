/*
 * image: the agent as a program, inside this one. It is static and needs nothing of the place it runs in:
 * an engine writes these bytes to a file or a memfd and executes that as pid 1 of a sandbox, with what
 * setup.h asks for. The mould (mould.h) is another, for an engine that makes many.
 */
#ifndef BELLJAR_AGENT_IMAGE_H
#define BELLJAR_AGENT_IMAGE_H

#include <stddef.h>

extern const unsigned char agent_image[];
extern const size_t agent_image_len;
extern const unsigned char mould_image[];
extern const size_t mould_image_len;

#endif
