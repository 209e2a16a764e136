/*
 * path: names of files as clients write them, made safe. path_clean() is pure; path_open() walks.
 *
 * A path is relative to the workspace or absolute inside it. `..` is refused rather than computed:
 * with symbolic links in between, text cannot say where it leads. Links are followed where they stay
 * below the workspace and are relative; absolute ones count as leading outside.
 */
#ifndef BELLJAR_AGENT_PATH_H
#define BELLJAR_AGENT_PATH_H

#include <stdbool.h>
#include <stddef.h>

enum { PATH_BYTES = 4096 }; /* with the NUL */

/* Writes "a/b/c", or "" for the workspace itself. 0, -EXDEV (leads outside), -ENAMETOOLONG. */
int path_clean(const char *workspace, const char *path, size_t len, char ret[PATH_BYTES]);

/* Splits a clean path: its directory ("" at the top) and where the last name begins. */
const char *path_split(const char *clean, char ret_dir[PATH_BYTES]);

enum path_links { PATH_NO_LINKS, PATH_LINKS_BENEATH };
/* A descriptor, or -errno. Every open has O_CLOEXEC, O_NONBLOCK and O_NOCTTY. Where the kernel has no
 * openat2() the path is walked name by name, and no link is followed at all (-ELOOP, -ENOTDIR). */
int path_open(int root, const char *clean, int flags, enum path_links links);

#endif
