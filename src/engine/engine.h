/*
 * engine: makes and destroys sandboxes. Nothing above this header knows which engine it is.
 *
 *   1. engine_open()       pick one by name; probes the host, fails closed
 *   2. engine_start()      plan → a sandbox with a connected agent; asynchronous, cancellable
 *   3. sandbox_fd()        the byte stream to the agent: the caller speaks agent/frame.h over it
 *   4. sandbox_add_kernel() puts a warm Python into it
 *   5. engine_show_packages() lets all sandboxes see packages that came later
 *   6. sandbox_usage()     counters that the host itself keeps
 *   7. sandbox_destroy()   kills everything inside and removes every trace; cannot fail
 *      sandbox_retire()    the same for one in which nothing runs; there is no hurry
 *   8. engine_close()      destroys what is left
 *
 * Some engines' sandboxes can outlive their server (engine_keeps()): sandbox_note() and sandbox_leave(), then
 * engine_adopt() in the next.
 *
 * Promises: after engine_start() fails or is cancelled the host is as it was before. A sandbox that
 * dies by itself is reported once through on_died and still has to be destroyed by its owner. All
 * callbacks come from the loop, never from inside a call made here. A stdio server's sandboxes do
 * not outlive it, however it dies.
 */
#ifndef BELLJAR_ENGINE_H
#define BELLJAR_ENGINE_H

#include "base/err.h"
#include "base/json.h"

#include <uv.h>

struct engine;
struct sandbox;

/* Limits of one sandbox. 0 never means "no limit": a plan is complete. */
struct sandbox_limits {
    uint64_t memory_bytes; /* processes and files in memory together; no swap */
    uint64_t pids;
    uint64_t cpu_millis; /* 1000: one core */
    uint64_t nofile;
    uint64_t file_bytes; /* largest file */
    uint64_t workspace_bytes, workspace_inodes;
    uint64_t tmp_bytes, tmp_inodes;
    uint64_t shm_bytes;
};

struct sandbox_plan {
    struct sandbox_limits limits;
    uint64_t image; /* which of engine_docker.images; other engines have one, 0 */
};

/* What the host enforces; the engine's own words for people are in engine_report(). */
enum engine_layer {
    LAYER_USER_NS = 1 << 0,
    LAYER_MOUNT_NS = 1 << 1,
    LAYER_PID_NS = 1 << 2,
    LAYER_NET_NS = 1 << 3,
    LAYER_IPC_NS = 1 << 4,
    LAYER_UTS_NS = 1 << 5,
    LAYER_CGROUP_NS = 1 << 6,
    LAYER_SECCOMP = 1 << 7,
    LAYER_OWN_UID = 1 << 8,      /* one outside uid per sandbox */
    LAYER_MEMORY_LIMIT = 1 << 9, /* by cgroup: the sum over all processes */
    LAYER_PIDS_LIMIT = 1 << 10,
    LAYER_CPU_LIMIT = 1 << 11,
    LAYER_LANDLOCK = 1 << 12,
};
enum { ENGINE_LAYERS = 13 }; /* how many there are: 1 << 0 to 1 << 12 */

#define ENGINE_RUNTIME "/opt/belljar/runtime"
#define ENGINE_PACKAGES "/opt/belljar/packages"
#define ENGINE_WHEELS "/opt/belljar/wheels"
/* With a network: where the names of /etc/resolv.conf and /etc/hosts lead, for whoever runs there to
 * write. They change while a server lives, and what was there at its start may be stale. */
#define ENGINE_NETWORK_FILES "/workspace/.network"

/*
 * An engine whose sandboxes are in the host's network, for programs of ours that fetch something;
 * never for code of clients. It is an engine of its own, so that the one that makes sandboxes for
 * guests has no network it could give away. Abstract sockets of the host are out of reach: no socket
 * of that family can be made. On Linux 6.7 and later TCP goes to these ports only, and none is bound.
 *
 * Few clients need it, so engine_open() does not wait until it is ready; what is wrong with it is
 * logged then, and told by engine_start().
 */
enum { ENGINE_PORTS_MAX = 32 };
struct engine_network {
    /* For whose sandboxes things are fetched, so that what fits here fits there: containers are of the same
     * image. It is of the same kind, and is closed later. */
    struct engine *guests;
    const char *wheels; /* directory shown at ENGINE_WHEELS, read-only; "" : none */
    uint16_t ports[ENGINE_PORTS_MAX];
    size_t n_ports;
};

/* Containers of an engine that speaks Docker's interface, perhaps on another machine. */
struct engine_docker {
    const char *host;          /* as DOCKER_HOST; "" : the usual socket */
    const char *cert_path;     /* of ca.pem, cert.pem and key.pem; "" : without TLS */
    const char *const *images; /* what a plan may ask for; the first must be there */
    size_t n_images;
    const char *runtime;     /* "" : the engine's own choice */
    const char *working_dir; /* where code begins; made if it is not there; "" : nowhere special */
    const char *user;        /* "UID" or "UID:GID"; "" : each sandbox has a uid of its own */
    const char *install_network; /* with engine_network: of which network of the engine's */
    uint64_t timeout_ms;         /* of one request */
};

/* Packages for Python that sandboxes can be shown. Sets are directories that appear whole and do not change;
 * who knows the name of one may use it. */
struct engine_packages {
    const char *dir; /* of the sets; cannot be listed; NULL, "" : none */
    const char
        *copies; /* a directory where an engine notes what it has copied to where sandboxes are */
    const char *id; /* tells these from others; letters, digits, '-', '_'; not a secret */
};

struct engine_options {
    const char *state_dir; /* what must be found again after a crash; exists */
    const char *instance;  /* names what is ours */
    const json_t *kept;  /* array of sandbox_note(), of dead servers' sandboxes that may be adopted;
                         * NULL: none */
    bool adopts;         /* false: these are spared, and left to another server */
    const char *rootfs;  /* "" : the host's own /usr, read-only */
    const char *runtime; /* directory shown at ENGINE_RUNTIME, read-only; "" : none */
    struct engine_packages packages;      /* shown below ENGINE_PACKAGES, read-only */
    const struct engine_network *network; /* NULL: every sandbox has a network of its own, empty */
    struct {
        const char *python;         /* as sandboxes see it; "" : no kernels are made ahead */
        const char *const *preload; /* names of modules */
        size_t n_preload;
        uint64_t memory_bytes;          /* of the process that they are forked from */
        uint64_t max_forks, max_age_ms; /* after which it is renewed */
        bool huge_pages, freeze;        /* for its memory, and its libraries: forks are quicker */
    } kernels;
    struct engine_docker docker;
    uint32_t uid_base; /* as root: first outside uid of the range */
    uint32_t uid_count;
    unsigned allow_missing; /* enum engine_layer: go on without these */
    bool pool_enabled;
    size_t pool_size;
    uint64_t pool_max_age_ms;
    size_t pool_max_creations;     /* at once */
    struct sandbox_plan pool_plan; /* what is made ahead; other plans are made on demand */
};

/* Probes, and starts what the engine needs. `name` is "native" or "docker". On refusal err says what is missing
 * and how to get it. Must be called before the process has threads or has dropped privileges. */
int engine_open(uv_loop_t *loop, const char *name, const struct engine_options *options,
                struct engine **ret, struct err *err);
void engine_close(struct engine *engine); /* NULL is fine */

/* To be called once everything that needs privilege is open (ports, keys), before the first byte of a
 * client is read: afterwards this process has no capability and cannot get one. As root it also
 * becomes `uid` and `gid`, which must not be in the sandboxes' range; otherwise they are ignored. */
enum { ENGINE_DEFAULT_UID = 65534 };
int engine_drop_privileges(const struct engine *engine, uint32_t uid, uint32_t gid,
                           struct err *err);

/* What the server still needs of this host's files when clients speak to it. */
struct engine_reach {
    const char *const *dirs; /* that it reads and writes with all below; NULL at the end */
    bool names;              /* and how names become addresses: it reads files below /etc */
};
/* From now on this process and its threads-to-be open and make no other files, start no program, and make
 * no TCP connection but to the engine (Linux 6.7), no signal and no abstract socket reaches others (6.12).
 * What is open stays open. Where the kernel has no Landlock (5.19) nothing changes. To be called before
 * engine_drop_privileges(), which may take the way to `dirs`, by the only thread. */
int engine_confine(const struct engine *engine, const struct engine_reach *reach, struct err *err);

/* One fact about this host that decides what engines can do; for people and for `doctor`. */
enum engine_verdict { ENGINE_OK, ENGINE_WARNING, ENGINE_PROBLEM };
struct engine_check {
    const char *name;
    enum engine_verdict verdict; /* a warning: works, but less is enforced */
    char detail[200];
    char remedy[300]; /* "" when there is nothing to do */
};
enum { ENGINE_CHECKS_MAX = 16 };
/* Looks, and tries in short-lived children what can only be tried; changes nothing. Returns how
 * many rows it has filled. Of the options only uid_base, uid_count, rootfs, runtime and docker count. */
size_t engine_checks(const char *name, const struct engine_options *options,
                     struct engine_check ret[ENGINE_CHECKS_MAX]);

/* What there is of sandboxes, of all servers that use this container engine, or this state directory with the
 * native engine, for people: adds an object to the array `ret` for each. "sandbox" is its name, "instance" the
 * server's; "server" says whether that is "running", "gone", or "unknown" for its state is elsewhere. Of the
 * options only state_dir and docker count. Looks, and changes nothing. */
int engine_list(const char *name, const struct engine_options *options, json_t *ret,
                struct err *err);

/* Layers that are active. */
unsigned engine_layers(const struct engine *engine);
/* {"engine": "native", "layers": {"user namespace": true, …}, "cgroup": "v1", …}; a new reference. */
json_t *engine_report(const struct engine *engine);
const char *engine_layer_name(enum engine_layer layer); /* "memory_limit" …, as in allow_missing */
bool engine_layer_parse(const char *name, enum engine_layer *ret);

struct engine_pending; /* a start under way */
typedef void engine_started_fn(struct sandbox *sandbox, const struct err *err, void *data);

/* Exactly one call of on_started follows, unless cancelled: with a sandbox (owned by the receiver),
 * or with NULL and why. */
struct engine_pending *engine_start(struct engine *engine, const struct sandbox_plan *plan,
                                    engine_started_fn *on_started, void *data);
void engine_start_cancel(struct engine_pending *pending);

/* A stream socket to the agent; belongs to the receiver of this call, which may be made once. */
int sandbox_take_fd(struct sandbox *sandbox);
const char *sandbox_id(const struct sandbox *sandbox); /* for logs; not a secret */

void sandbox_on_died(struct sandbox *sandbox, void (*on_died)(struct sandbox *sandbox, void *data),
                     void *data);

/* Puts a process into the sandbox that has a Python interpreter with the preloaded modules in it, as a
 * guest like any other, to be the kernel of this number (link_kernel_start() with `joined`, before). It
 * gets `theirs`, which are closed here in any case. What is said to it may wait in the channel already.
 * Exactly one call of on_added follows, unless the sandbox is destroyed before: 0, or a negative errno
 * when there is none to be had now, and the caller starts a kernel the long way (link_kernel_absent()); -EAGAIN: there will be
 * soon, for a caller that has time. One at a time. */
struct link_pipes; /* agent/link.h */
typedef void sandbox_added_fn(int code, void *data);
void sandbox_add_kernel(struct sandbox *sandbox, uint32_t number, struct link_pipes *theirs,
                        sandbox_added_fn *on_added, void *data);

/* Makes a set of options.packages visible to every sandbox of the engine, those that are there already among
 * them, and to remain so for as long as the caller keeps it from being removed. NULL: it is visible, at
 * ENGINE_PACKAGES and its name. Otherwise exactly one call of on_shown follows, within `timeout_ms` or not
 * much later, unless cancelled: with the path by which sandboxes see it, or NULL and why. What is half
 * copied nobody is shown. Sets that have been removed meanwhile go from where they were copied to. */
struct engine_showing;
typedef void engine_shown_fn(const char *path, const struct err *err, void *data);
struct engine_showing *engine_show_packages(struct engine *engine, const char *name,
                                            uint64_t timeout_ms, engine_shown_fn *on_shown,
                                            void *data);
void engine_show_cancel(struct engine_showing *showing); /* NULL is fine */
/* What the programs of new sandboxes come from, by the number of the image, as packages must fit it: another
 * text when it is another. "" : from this host. Valid until the loop goes on. */
const char *engine_origin(const struct engine *engine, uint64_t image);

struct sandbox_usage {
    uint64_t memory_bytes, memory_peak_bytes;
    uint64_t cpu_ns;
    uint64_t pids;
    uint64_t oom_kills;   /* since the start of the sandbox, from the cgroup */
    uint64_t pids_denied; /* forks refused by the limit */
};
typedef void sandbox_usage_fn(const struct sandbox_usage *usage, void *data); /* NULL: unknown */
/* Exactly one call of on_usage follows, unless the sandbox is destroyed before. */
void sandbox_usage(struct sandbox *sandbox, sandbox_usage_fn *on_usage, void *data);
/* oom_kills and pids_denied at once, and nothing else. False: not now, ask by sandbox_usage(); the first time
 * it is always that. */
bool sandbox_counts(struct sandbox *sandbox, struct sandbox_usage *ret);
/* False: this engine does not learn of oom_kills and pids_denied, which are 0 then; the agent reads them
 * where its cgroup shows them (link_count()). */
bool sandbox_tells_counts(const struct sandbox *sandbox);

void sandbox_destroy(struct sandbox *sandbox); /* NULL is fine */
/* As sandbox_destroy(), with the stream that was taken, by somebody who knows that nothing runs in there
 * (link_retire()): while others come for sandboxes its end may wait, some tenths of a second at most. Takes
 * `fd`; -1: as sandbox_destroy(). */
void sandbox_retire(struct sandbox *sandbox, int fd);

/* --- sandboxes that outlive their server ------------------------------------------------------ */

/* The agent is told by its own protocol to stay (link_keep()); the engine sees that the next one finds it. */
bool engine_keeps(const struct engine *engine);
/* What the next server has to know, for engine_options.kept; a new reference. Only where engine_keeps(). */
json_t *sandbox_note(const struct sandbox *sandbox);
/* Instead of sandbox_destroy(), at the end of a server: it stays. */
void sandbox_leave(struct sandbox *sandbox);
/* Whether engine_adopt() is worth trying: it is there, its server is dead, it was made as this engine would make
 * it, and nobody has adopted it yet. */
bool engine_has_kept(const struct engine *engine, const json_t *note,
                     const struct sandbox_plan *plan);
/* As engine_start(), with one of these; over its stream goes link_resume(). What cannot be adopted is destroyed. */
struct engine_pending *engine_adopt(struct engine *engine, const json_t *note,
                                    const struct sandbox_plan *plan, engine_started_fn *on_started,
                                    void *data);
/* Instead of engine_start_cancel(), at the end of a server: it stays. */
void engine_adopt_leave(struct engine_pending *pending);
/* Destroys those that nobody has asked for. Without this call they are left to the next server. */
void engine_drop_kept(struct engine *engine);
/* A note that is of no living server's sandbox. */
bool engine_is_stale(const struct engine *engine, const json_t *note);

struct engine_stats {
    uint64_t sandboxes_open, sandboxes_total, pool_ready, pool_hits, pool_misses, failures_total;
};
void engine_stats(const struct engine *engine, struct engine_stats *ret);

#endif
