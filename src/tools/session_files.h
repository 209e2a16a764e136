/*
 * session_files: the files of a session as clients are shown them, in lists, as resources and in
 * notices of change: regular files below /workspace by path, without what lies in directories that
 * programs keep for themselves (.name, __pycache__, node_modules, site-packages; the overflow of
 * session.h is in such a one), without names that are no UTF-8 or too long to be part of a URI.
 */
#ifndef BELLJAR_TOOLS_SESSION_FILES_H
#define BELLJAR_TOOLS_SESSION_FILES_H

#include "tools/toolbox.h"

/* kernel://SESSION/PATH */
#define SESSION_URI_TEMPLATE "kernel://{session_id}/{+path}"

struct session_file {
    const char *path; /* relative to /workspace */
    const char *type; /* as its name says; never NULL */
    int64_t size;
    int64_t mtime_ns;
};

/* Sorted by path; at most `max`, `more` when there are others. code: an errno value, then no files. */
typedef void session_files_fn(int code, const struct session_file *files, size_t count, bool more,
                              void *data);
/* As session_list(): also of a session that is on the disk only. */
int session_files(struct sessions *sessions, const char *owner, const char *session_id, bool uses,
                  size_t max, session_files_fn *on_files, void *data, struct err *err);

/* Whether a file of that path is among them. */
bool session_file_is_shown(const char *path);

/* Percent-encodes what a URI cannot hold; slashes stay. Owned by the caller. */
char *session_file_uri(const char *session_id, const char *path);
/* Takes one apart again; false when it is none. The caller owns both. */
bool session_file_uri_parse(const char *uri, char **ret_session_id, char **ret_path);

/* A file in a structured result. */
struct file_entry {
    const char *uri;
    const char *name;
    const char *mime_type;
    int64_t size;
};
extern const struct shape file_entry_shape;

/* A call that lists the files of a session, also of one that is on the disk only. */
struct session_listing {
    const char *session_id;
    struct file_entry *files; /* sorted by name */
    size_t count;
    bool more;         /* than are here */
    int code;          /* an errno value, then no files; ENOENT: there is no such session */
    const char *error; /* in words, NULL when there is none */
};
/* Finishes the call. The listing is valid during it. */
typedef void session_listed_fn(struct mcp_call *call, const struct toolbox *box,
                               const struct session_listing *listing);
/* Defers the call. session_id must live as long as it, as arguments do. */
void session_list_for_call(struct mcp_call *call, const struct toolbox *box, const char *session_id,
                           session_listed_fn *on_listed);

#endif
