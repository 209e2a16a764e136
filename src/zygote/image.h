/* The zygote's two files, embedded at build time (embed.S). */
#ifndef BELLJAR_ZYGOTE_IMAGE_H
#define BELLJAR_ZYGOTE_IMAGE_H

#include <stddef.h>

extern const char zygote_library[], zygote_source[];
extern const size_t zygote_library_len, zygote_source_len;

#endif
