/*
 * packages: Python packages for sandboxes that have no network. The server has them installed in a
 * sandbox of another engine, one that has a network and never runs code of clients, and keeps each set
 * of packages on a shelf (shelf.h) that all sandboxes see, read-only. The same set again costs nothing.
 *
 *   1. packages_open()       the shelf, while there is still the right to make it
 *   2. packages_start()      with the guests' engine, and one whose sandboxes have a network
 *   3. packages_install()    names → a set; asynchronous, cancellable; equal requests share one sandbox
 *   4. package_set_path()    goes on Python's path in the session that asked
 *   5. package_set_release() when the session ends; packages_free()
 *
 * What comes out of the installer's sandbox is fetched by us in pieces, checked and written by us
 * (unpack.h), in worker threads: no sandbox can write to a directory of the host, what is on the shelf
 * belongs to the server's user, and an install that fails leaves nothing.
 */
#ifndef BELLJAR_PACKAGES_H
#define BELLJAR_PACKAGES_H

#include "engine/engine.h"

struct packages;
struct package_set;
struct package_wait; /* an install that somebody waits for */

enum package_installer { PACKAGE_INSTALLER_AUTO, PACKAGE_INSTALLER_UV, PACKAGE_INSTALLER_PIP };

/* Texts are borrowed until packages_free(). */
struct packages_options {
    const char *dir;         /* of the shelf; absolute */
    uint32_t uid;            /* who the server will be */
    const char *python;      /* the interpreter, as sandboxes see it */
    const char *interpreter; /* what changes when that is another; part of a set's name */
    enum package_installer installer;
    const char *index; /* a URL, "" : the installer's default, "none" */
    const char *const *trusted_hosts;
    size_t n_trusted_hosts;
    const char *wheels;            /* directory that the engine shows at ENGINE_WHEELS; "" : none */
    const char *const *env;        /* "NAME=value" for the installer: proxies; NULL-terminated */
    const char *certificates;      /* PEM to trust instead of the system's; "" */
    bool allow_source;             /* build what has no wheel: runs code of the package's author */
    uint64_t max_bytes, max_files; /* of one set, unpacked */
    size_t max_count;              /* names in one request */
    uint64_t timeout_ms;           /* of one install */
    uint64_t max_age_ms;           /* after which a set is made anew */
    uint64_t cache_bytes;          /* of all sets that nobody uses */
    size_t max_parallel, max_queue;
};

int packages_open(uv_loop_t *loop, const struct packages_options *options, struct packages **ret,
                  struct err *err);
/* What an engine for guests is to show. Valid as long as the packages. */
struct engine_packages packages_shown(const struct packages *packages);
/* Both outlive the packages; `guests` was opened with packages_shown(). */
void packages_start(struct packages *packages, struct engine *guests, struct engine *installers);
/* Installs under way end; nobody is told. NULL is fine. */
void packages_free(struct packages *packages);

struct package_stats {
    uint64_t installs_total; /* sets that were made */
    uint64_t hits_total;     /* requests that found theirs on the shelf */
    uint64_t failures_total; /* installs that came to nothing */
    uint64_t bytes_total;    /* of the sets that were made, unpacked */
    uint64_t running, waiting;
};
/* NULL packages: all zero. */
void packages_stats(const struct packages *packages, struct package_stats *ret);
/* What is on the shelf. Blocks on the disk. */
void packages_kept(const struct packages *packages, size_t *ret_sets, uint64_t *ret_bytes);

/* Valid during the callback. */
struct package_result {
    struct package_set *set; /* belongs to the receiver; NULL: it failed */
    const char *error;       /* why, NULL when there is a set */
    const char *output;      /* what the installer said, its end at least */
    size_t output_len;
    bool cached;
};
struct package_events {
    void (*on_output)(const char *bytes, size_t len, void *data); /* may be NULL */
    void (*on_done)(const struct package_result *result, void *data);
};

/* Of the sandboxes that are to use what is installed: it is installed in one of the same. */
struct package_image {
    uint64_t number;  /* as struct sandbox_plan counts them */
    const char *name; /* for people; NULL: there are no images, all is in the runtime */
};

/* Whether packages_install() would take these names: 0, or -EINVAL and err. */
int packages_check(const struct packages *packages, const char *const *names, size_t n,
                   struct err *err);
/* 0, and exactly one on_done follows unless cancelled; or -EINVAL a bad name or too many, -EAGAIN the
 * queue is full, and err. */
int packages_install(struct packages *packages, const struct package_image *image,
                     const char *const *names, size_t n, const struct package_events *events,
                     void *data, struct package_wait **ret, struct err *err);
/* No callback afterwards. The last who waits ends the install. */
void packages_cancel(struct package_wait *wait);

const char *package_set_path(const struct package_set *set); /* as sandboxes see it */
const char *package_set_name(const struct package_set *set);
/* One that a sandbox of an earlier server's sees at this path, by its name. NULL: it is gone from the shelf. */
struct package_set *packages_hold(struct packages *packages, const char *name, const char *path);
void package_set_release(struct package_set *set); /* NULL is fine */

#endif
