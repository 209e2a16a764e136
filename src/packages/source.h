/* The source of installer.py, embedded at build time (embed.S). */
#ifndef BELLJAR_PACKAGES_SOURCE_H
#define BELLJAR_PACKAGES_SOURCE_H

#include <stddef.h>

extern const char installer_source[];
extern const size_t installer_source_len;

#endif
