/*
 * store: workspaces on disk. A session that is kept here works in its sandbox's own /workspace, in
 * memory and within its limits, like any other; what it has there is copied to a directory of its own
 * when a run has ended, and from there into a new sandbox when the session is asked for again. So no
 * sandbox ever sees a directory of the host, the limit is that of the workspace, and it is the same for
 * every engine and without any right of root's.
 *
 *   <workspace_dir>/total                     bytes of all together; locked while it changes
 *                   trash/ID/                 being removed
 *                   <profile>/<owner>/<id>/   one session
 *                       info                  its bytes; its time is that of the last use; locked by the
 *                                             server that has the session
 *                       files/                what was in /workspace
 *                       new/                  files that have not taken their names yet
 *
 * An owner's name is made of his with a hash unless it is a plain word; an id is as the client knows it,
 * but for a dot at its beginning (%2E). Whoever has another owner's name cannot write it so that it leads
 * here, and nobody but the server's user can look in.
 *
 * In files/ there are only directories (0700) and plain files (0600, programs 0700). A symbolic link is
 * a plain file that holds what the link says and has the sticky bit: a link of a guest's is nothing that
 * any program of the host should stumble over. What is neither file, directory nor link is not kept.
 *
 * A file is written beside and takes its name by a rename: whoever is killed when, a file is old or new.
 * Several servers may share one directory; a session is one server's at a time.
 *
 * Functions block on the disk. Those marked so may take long and are for worker threads; one at a time
 * for each `struct stored`.
 */
#ifndef BELLJAR_SESSION_STORE_H
#define BELLJAR_SESSION_STORE_H

#include "base/err.h"

#include <sys/types.h>

struct store;
struct stored; /* one session's files, held by us */

struct store_options {
    const char *dir;     /* made if need be */
    const char *profile; /* sessions of one profile are not those of another */
    uid_t uid;           /* who the server will be: as root, what is made is given to it */
    uint64_t max_bytes;  /* of all sessions of all profiles together */
    uint64_t max_age_ms; /* after so long without use they are removed */
};
int store_open(const struct store_options *options, struct store **ret, struct err *err);
/* The server ends: workers that are at something long come to an end. From any thread. */
void store_stop(struct store *store);
/* Whoever holds something goes first. NULL is fine. */
void store_close(struct store *store);

bool store_has(const struct store *store, const char *owner, const char *id);
/* Every id of an owner's, in no order. */
void store_ids(const struct store *store, const char *owner,
               void (*each)(const char *id, void *data), void *data);

/* 0; -ENOENT: there is none and `make` is false; -EBUSY: another server has it. Counts as use. */
int store_hold(struct store *store, const char *owner, const char *id, bool make,
               struct stored **ret, struct err *err);
void stored_release(struct stored *stored); /* NULL is fine */
/* False: somebody has removed it behind our back. */
bool stored_in_place(const struct stored *stored);
/* Gone from sight at once, also while a worker is at it; store_clean() gives the space back. It is still
 * to be released. */
void stored_remove(struct stored *stored);
/* The same for one that we do not hold. 0, -ENOENT, -EBUSY. */
int store_remove(struct store *store, const char *owner, const char *id);
/* Worker. Removes what was removed, and what was not used for too long; counts the rest. */
void store_clean(const struct store *store);

/*** What there is ***/

enum store_type { STORE_FILE, STORE_DIRECTORY, STORE_LINK, STORE_OTHER };
struct store_entry {
    char *path; /* raw bytes, relative */
    enum store_type type;
    bool program;
    uint64_t size;
    int64_t mtime_ns;
};
struct store_tree {
    struct store_entry
        *items; /* sorted by path as strcmp() has it: a directory before what is in it */
    size_t count;
};
enum { STORE_ENTRIES_MAX = 100 * 1000 };
void store_tree_add(struct store_tree *tree, const char *path, const struct store_entry *like);
void store_tree_done(struct store_tree *tree);

/* Worker. Of one that need not be held. 0, -ENOENT, or other and err. */
int store_list(const struct store *store, const char *owner, const char *id, struct store_tree *ret,
               struct err *err);
/* Worker. */
int stored_list(const struct stored *stored, struct store_tree *ret, struct err *err);
/* Worker. Of a file, or what a link says: bytes read, 0 at its end, or negative and err. */
ssize_t stored_read(const struct stored *stored, const char *path, uint64_t offset, char *to,
                    size_t len, struct err *err);

/*** Saving ***/

struct store_save {
    struct store_tree
        wanted;         /* what there shall be; filled in by the caller, STORE_OTHER left out */
    uint64_t max_bytes; /* of it, in whole pages */
    size_t *fetch;      /* which of them are new or other than here */
    size_t n_fetch;
    struct store_tree old;
    bool *goes;   /* of each in `old` */
    bool *failed; /* of each in `wanted`: it could not be fetched, and stays as it is here */
    uint64_t bytes;
};
void store_save_done(struct store_save *save);
/* Worker. Says what is to be fetched, and sees that there is room: -EFBIG, -EDQUOT. */
int stored_plan(struct stored *stored, struct store_save *save, struct err *err);
/* Worker. A part of wanted.items[index]; the first part has offset 0. */
int stored_put(struct stored *stored, size_t index, uint64_t offset, const char *bytes, size_t len,
               struct err *err);
/* Worker. Everything was fetched: from now on it is what there is. */
int stored_apply(struct stored *stored, struct store_save *save, struct err *err);

#endif
