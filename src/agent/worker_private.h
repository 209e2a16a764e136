/* worker_private: what the files of a worker share. */
#ifndef BELLJAR_AGENT_WORKER_PRIVATE_H
#define BELLJAR_AGENT_WORKER_PRIVATE_H

#include "agent/frame.h"
#include "agent/guest.h"
#include "agent/path.h"
#include "agent/sys.h"

#include <sys/stat.h>

struct work {
    uint32_t number;
    const struct frame_file *request;
    char path[PATH_BYTES], target[PATH_BYTES]; /* clean */
    uint64_t give_up_ns;
    struct frame_file_end end;
    size_t out_len;      /* of out, behind the header */
    char out[FRAME_MAX]; /* the frame being filled */
};

/* Room for the next payload bytes, and sending the frame they fill. */
char *work_room(struct work *work, size_t *ret_len);
void work_add(struct work *work, size_t len);
void work_flush(struct work *work);
bool work_late(const struct work *work);

/* All of the bytes, or -errno. */
int work_write_all(int fd, const char *bytes, size_t len, off_t offset);
/* A regular file for reading, and what it is; or -errno: -EISDIR, -EINVAL for what is no file. */
int work_open_regular(const char *clean, enum path_links links, struct stat *ret);

/* Opens the directory that holds the last name of a clean path; makes it and its parents if asked.
 * -EBUSY for the workspace itself, which has no name. */
int work_parent(const char *clean, bool make, const char **ret_name);

/* The entries of an open directory, one by one, without "." and "..". One at a time: the entry and
 * what is not read yet are in one buffer of the worker's. 1: there is one; 0: there are no more; or
 * -errno. */
struct work_entries {
    int dir;
    ssize_t at, len;
};
int work_next_entry(struct work_entries *entries, const struct sys_dirent **ret);

/* Each fills work->end and returns 0 or -errno. */
int work_read(struct work *work);   /* worker_data.c */
int work_write(struct work *work);  /* worker_data.c */
int work_list(struct work *work);   /* worker_list.c */
int work_stat(struct work *work);   /* worker_list.c */
int work_delete(struct work *work); /* worker_names.c */
int work_move(struct work *work);   /* worker_names.c */
int work_space(struct work *work);  /* worker_names.c */
int work_pack(struct work *work);   /* worker_many.c */
int work_unpack(struct work *work); /* worker_many.c */

#endif
