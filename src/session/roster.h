/*
 * roster: what is known of sessions whose sandboxes can outlive the server, for the next one. One file for each,
 * `<state_dir>/kept/NAME`, of the server's user and for nobody else's eyes: ids are secrets. Its time is that of
 * the session's last use. A file is written beside and takes its name by a rename: whoever is killed when, it is
 * old or new. Several servers may share the directory; which of them a file is of stands in it.
 *
 * Functions block on the disk, shortly. What a file says is not believed but read with bounds: whoever has been
 * the server's user may have written it.
 */
#ifndef BELLJAR_SESSION_ROSTER_H
#define BELLJAR_SESSION_ROSTER_H

#include "base/err.h"
#include "base/json.h"

#include <sys/types.h>

struct roster;

/* `uid` is who the server will be: as root, the directory is given to it. `make`: the directory, unless it is
 * there; otherwise -ENOENT. */
int roster_open(const char *state_dir, bool make, uid_t uid, struct roster **ret, struct err *err);
void roster_close(struct roster *roster); /* NULL is fine */

/* All files, as an object of their names: what each says, an object, and the milliseconds since the session's last
 * use as its member "unused". What is no note is removed, and so is what somebody was writing: whoever still is
 * writes it again. A new reference. */
enum { ROSTER_MAX = 4096, ROSTER_FILE_MAX = 256 << 10 };
json_t *roster_read(const struct roster *roster);

/* Of a session that was last used so long ago. What does not work is logged: then the session ends with the
 * server. */
int roster_write(const struct roster *roster, const char *name, const json_t *note,
                 uint64_t unused_ms);
void roster_remove(const struct roster *roster, const char *name);
/* The session is being used. */
void roster_touch(const struct roster *roster, const char *name);

#endif
