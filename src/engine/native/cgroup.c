/*
 * The two leaves of one sandbox. Everything is reached by a name relative to the instance's
 * directory, and the name is a number: nothing here depends on text from outside.
 */
#include "engine/native/cgroup.h"

#include "agent/mould.h"
#include "engine/native/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_ = MOULD_LEAF_NAME_MAX };
#define GUEST MOULD_GUEST_LEAF
#define KEPT MOULD_KEPT_LEAF
#define AGENT MOULD_AGENT_LEAF

static void leaf_name(char out[static NAME_MAX_], const struct cgroups *cgroups, unsigned number,
                      enum mould_leaf leaf, const char *file)
{
    mould_leaf_name(out, cgroups->kind == CGROUP_V2 ? AGENT_CGROUP_V2 : AGENT_CGROUP_V1, number,
                    leaf, file);
}

/* The agent's leaf exists where it protects something: in v1's cpu hierarchies the agent stays
 * with the server, lest it wait for the guest's quota. */
static bool has_leaf(const struct cgroups *cgroups, const struct cgroup_tree *tree,
                     enum mould_leaf leaf)
{
    return leaf != AGENT || cgroups->kind == CGROUP_V2 ||
           (tree->controllers & (CGROUP_MEMORY | CGROUP_PIDS));
}

/* Memory's are not, as such: they are called by the sandbox's slot while it lives, for it is there that one
 * sees which sandboxes there are (instance.c); and what was charged may outlive who it was charged for. */
static bool is_kept(const struct cgroups *cgroups, const struct cgroup_tree *tree)
{
    return cgroups->kind == CGROUP_V1 && (cgroups->controllers & CGROUP_MEMORY) &&
           !(tree->controllers & CGROUP_MEMORY);
}

static void guest_name(char out[static NAME_MAX_], const struct cgroups *cgroups,
                       const struct cgroup_tree *tree, struct cgroup_names names, const char *file)
{
    bool kept = is_kept(cgroups, tree);
    leaf_name(out, cgroups, kept ? names.leaf : names.slot, kept ? KEPT : GUEST, file);
}

/* A number: the whole text, or behind `key` at the start of a line. 0 when it is not there. */
static uint64_t number_in(const char *text, const char *key)
{
    const char *at = text;
    while (key && at && !(str_has_prefix(at, key) && at[strlen(key)] == ' ')) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return at ? strtoull(at + (key ? strlen(key) + 1 : 0), NULL, 10) : 0;
}

static int write_at(int dir, const char *name, const char *text)
{
    ssize_t n;
    auto_fd fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    do /* a limit of memory is set by reclaiming, which a tracer's signal interrupts */
        n = write(fd, text, strlen(text));
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static const struct cgroup_tree *tree_of(const struct cgroups *cgroups, unsigned controller)
{
    for (size_t i = 0; i < cgroups->n; i++)
        if (cgroups->trees[i].controllers & controller)
            return &cgroups->trees[i];
    return NULL;
}

/* Writes one limit where its controller is; a controller that is missing was reported at start. */
static int limit(const struct cgroups *cgroups, struct cgroup_names names, enum mould_leaf leaf,
                 unsigned controller, const char *v1_file, const char *v2_file, const char *value)
{
    const struct cgroup_tree *tree = tree_of(cgroups, controller);
    const char *file = cgroups->kind == CGROUP_V2 ? v2_file : v1_file;
    if (!tree || !file || !has_leaf(cgroups, tree, leaf))
        return 0;
    char name[NAME_MAX_];
    if (leaf == GUEST)
        guest_name(name, cgroups, tree, names, file);
    else
        leaf_name(name, cgroups, names.leaf, leaf, file);
    return write_at(tree->dir, name, value);
}

static int limit_memory(const struct cgroups *cgroups, struct cgroup_names names,
                        enum mould_leaf leaf, uint64_t bytes)
{
    char value[32], swap[32];
    (void)snprintf(value, sizeof(value), "%" PRIu64, bytes);
    /* No swap: v1 bounds the sum with swap, v2 swap itself. */
    (void)snprintf(swap, sizeof(swap), "%s", cgroups->kind == CGROUP_V2 ? "0" : value);
    int r =
        limit(cgroups, names, leaf, CGROUP_MEMORY, "memory.limit_in_bytes", "memory.max", value);
    /* In v1 it may never be the higher one of the two: where it grows, the sum grows first. */
    bool grows = r == -EINVAL && cgroups->kind == CGROUP_V1;
    if (r < 0 && !grows)
        return r;
    r = limit(cgroups, names, leaf, CGROUP_MEMORY, "memory.memsw.limit_in_bytes", "memory.swap.max",
              swap);
    /* A kernel without swap accounting lacks the file; then v1 can still be told not to swap this group. */
    if (r == -ENOENT)
        r = limit(cgroups, names, leaf, CGROUP_MEMORY, "memory.swappiness", NULL, "0");
    if (r == 0 && grows)
        r = limit(cgroups, names, leaf, CGROUP_MEMORY, "memory.limit_in_bytes", NULL, value);
    return r;
}

static int limit_pids(const struct cgroups *cgroups, struct cgroup_names names,
                      enum mould_leaf leaf, uint64_t pids)
{
    char value[32];
    (void)snprintf(value, sizeof(value), "%" PRIu64, pids);
    return limit(cgroups, names, leaf, CGROUP_PIDS, "pids.max", "pids.max", value);
}

/* In a leaf that had another guest this also gives back what that had used of its share. */
static int limit_cpu(const struct cgroups *cgroups, struct cgroup_names names, uint64_t millis)
{
    char value[48]; /* microseconds in each 100 ms, the default period of both versions */
    (void)snprintf(value, sizeof(value),
                   cgroups->kind == CGROUP_V2 ? "%" PRIu64 " 100000" : "%" PRIu64, millis * 100);
    return limit(cgroups, names, GUEST, CGROUP_CPU, "cpu.cfs_quota_us", "cpu.max", value);
}

/* Nobody but us writes limits, so those that a leaf has are not written to it again; but that of processor time
 * is, for what else that does. `memory_again`: memory's leaf is the one that was used before. */
static int limit_guest(const struct cgroups *cgroups, struct cgroup_names names,
                       const struct sandbox_limits *limits, bool memory_again)
{
    const struct sandbox_limits *before = names.before;
    const struct cgroup_tree *pids = tree_of(cgroups, CGROUP_PIDS);
    bool has_memory = memory_again && before->memory_bytes == limits->memory_bytes;
    bool has_pids = before && pids && is_kept(cgroups, pids) && before->pids == limits->pids;
    int r = has_memory ? 0 : limit_memory(cgroups, names, GUEST, limits->memory_bytes);
    if (r == 0 && !has_pids)
        r = limit_pids(cgroups, names, GUEST, limits->pids);
    return r < 0 ? r : limit_cpu(cgroups, names, limits->cpu_millis);
}

static int limit_agent(const struct cgroups *cgroups, struct cgroup_names names)
{
    int r = limit_memory(cgroups, names, AGENT, AGENT_MEMORY + PLAN_RUN_DIR_BYTES);
    return r < 0 ? r : limit_pids(cgroups, names, AGENT, PLAN_AGENT_PIDS);
}

static int give(const struct cgroup_tree *tree, const char *name, uid_t uid)
{
    return uid != (uid_t)-1 && fchownat(tree->dir, name, uid, (gid_t)-1, 0) < 0 ? -errno : 0;
}

/* v2: the directory that holds both leaves. */
static int make_holder(const struct cgroup_tree *tree, unsigned slot, uid_t agent_uid)
{
    char name[NAME_MAX_];
    (void)snprintf(name, sizeof(name), "%u", slot);
    if (mkdirat(tree->dir, name, 0755) < 0)
        return -errno;
    (void)snprintf(name, sizeof(name), "%u/cgroup.subtree_control", slot);
    char controllers[64];
    (void)snprintf(controllers, sizeof(controllers), "%s%s%s",
                   tree->controllers & CGROUP_MEMORY ? "+memory " : "",
                   tree->controllers & CGROUP_PIDS ? "+pids " : "",
                   tree->controllers & CGROUP_CPU ? "+cpu" : "");
    int r = write_at(tree->dir, name, controllers);
    if (r < 0)
        return r;
    (void)snprintf(name, sizeof(name), "%u/cgroup.procs", slot);
    return give(tree, name, agent_uid);
}

static int make_leaf(const struct cgroups *cgroups, const struct cgroup_tree *tree, unsigned number,
                     enum mould_leaf leaf)
{
    char name[NAME_MAX_];
    leaf_name(name, cgroups, number, leaf, "");
    return has_leaf(cgroups, tree, leaf) && mkdirat(tree->dir, name, 0755) < 0 ? -errno : 0;
}

/* A number in a file of a leaf that is to be used again; UINT64_MAX when it cannot be read. */
static uint64_t kept_number(const struct cgroups *cgroups, unsigned leaf,
                            const struct cgroup_tree *tree, const char *file, const char *key)
{
    char name[NAME_MAX_], text[128];
    leaf_name(name, cgroups, leaf, KEPT, file);
    auto_fd fd = openat(tree->dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (len <= 0)
        return UINT64_MAX;
    text[len] = '\0';
    return number_in(text, key);
}

/* Nothing is charged there, which also says that nobody is in it, and nobody was killed for it; and its
 * highest is set back to that. */
static bool is_memory_new(const struct cgroups *cgroups, const struct cgroup_tree *tree,
                          unsigned leaf)
{
    char name[NAME_MAX_];
    leaf_name(name, cgroups, leaf, KEPT, "memory.max_usage_in_bytes");
    /* Memory and swap; where swap is not counted there is memory. */
    uint64_t used = kept_number(cgroups, leaf, tree, "memory.memsw.usage_in_bytes", NULL);
    if (used == UINT64_MAX && errno == ENOENT)
        used = kept_number(cgroups, leaf, tree, "memory.usage_in_bytes", NULL);
    return used == 0 && kept_number(cgroups, leaf, tree, "memory.oom_control", "oom_kill") == 0 &&
           write_at(tree->dir, name, "0") == 0;
}

/* v1: what is charged to a dead guest is given back within some milliseconds, if nothing of it stays. What is
 * clean by the time that its number is used again takes the new name, and 1 is returned; what is not is removed. */
static int make_memory(const struct cgroups *cgroups, const struct cgroup_tree *tree,
                       struct cgroup_names names)
{
    char kept[NAME_MAX_], name[NAME_MAX_];
    leaf_name(kept, cgroups, names.leaf, KEPT, "");
    leaf_name(name, cgroups, names.slot, GUEST, "");
    if (names.before && is_memory_new(cgroups, tree, names.leaf) &&
        renameat(tree->dir, kept, tree->dir, name) == 0)
        return 1;
    if (names.before && unlinkat(tree->dir, kept, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return -errno;
    return make_leaf(cgroups, tree, names.slot, GUEST);
}

/* 0; 1: memory's leaf, and it is used again. */
static int make_guest(const struct cgroups *cgroups, const struct cgroup_tree *tree,
                      struct cgroup_names names, uid_t agent_uid)
{
    bool v2 = cgroups->kind == CGROUP_V2;
    int r = v2 ? make_holder(tree, names.slot, agent_uid) : 0;
    if (r == 0 && !v2 && (tree->controllers & CGROUP_MEMORY))
        r = make_memory(cgroups, tree, names);
    else if (r == 0 && !is_kept(cgroups, tree))
        r = make_leaf(cgroups, tree, names.slot, GUEST);
    if (r == 0 && v2)
        r = make_leaf(cgroups, tree, names.slot, AGENT);
    /* What is kept has been theirs since it was made. */
    if (r != 0 || is_kept(cgroups, tree))
        return r;
    char name[NAME_MAX_];
    guest_name(name, cgroups, tree, names, v2 ? "cgroup.procs" : "tasks");
    return give(tree, name, agent_uid);
}

int cgroup_make(const struct cgroups *cgroups, struct cgroup_names names,
                const struct sandbox_limits *limits, uid_t agent_uid)
{
    int r = 0;
    bool memory_again = false;
    for (size_t i = 0; i < cgroups->n && r >= 0; i++) {
        r = make_guest(cgroups, &cgroups->trees[i], names, agent_uid);
        memory_again |= r == 1;
    }
    if (r >= 0)
        r = limit_guest(cgroups, names, limits, memory_again);
    if (r == 0 && cgroups->kind == CGROUP_V2)
        r = limit_agent(cgroups, names);
    if (r < 0)
        (void)cgroup_remove(cgroups, names.slot); /* empty, so it succeeds */
    return r;
}

static int remove_leaf(const struct cgroups *cgroups, const struct cgroup_tree *tree,
                       unsigned number, enum mould_leaf leaf)
{
    char name[NAME_MAX_];
    leaf_name(name, cgroups, number, leaf, "");
    return unlinkat(tree->dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int cgroup_make_leaf(const struct cgroups *cgroups, unsigned leaf, uid_t agent_uid)
{
    int r = 0;
    if (cgroups->kind != CGROUP_V1)
        return 0;
    for (size_t i = 0; i < cgroups->n && r == 0; i++) {
        const struct cgroup_tree *tree = &cgroups->trees[i];
        r = make_leaf(cgroups, tree, leaf, AGENT);
        if (r < 0 || !is_kept(cgroups, tree))
            continue;
        char name[NAME_MAX_];
        leaf_name(name, cgroups, leaf, KEPT, "tasks");
        r = make_leaf(cgroups, tree, leaf, KEPT);
        r = r < 0 ? r : give(tree, name, agent_uid);
    }
    if (r == 0)
        r = limit_agent(cgroups, (struct cgroup_names){ .leaf = leaf });
    if (r < 0)
        (void)cgroup_remove_leaf(cgroups, leaf);
    return r;
}

int cgroup_remove_leaf(const struct cgroups *cgroups, unsigned leaf)
{
    int r = 0;
    for (size_t i = 0; i < cgroups->n && cgroups->kind == CGROUP_V1; i++) {
        const struct cgroup_tree *tree = &cgroups->trees[i];
        int agent = remove_leaf(cgroups, tree, leaf, AGENT);
        int kept = remove_leaf(cgroups, tree, leaf, KEPT);
        r = agent < 0 ? agent : kept < 0 ? kept : r;
    }
    return r;
}

int cgroup_renew_leaf(const struct cgroups *cgroups, unsigned leaf)
{
    const struct cgroup_tree *pids = tree_of(cgroups, CGROUP_PIDS);
    const struct cgroup_tree *cpuacct = tree_of(cgroups, CGROUP_CPUACCT);
    if (cgroups->kind != CGROUP_V1)
        return 0;
    if (pids && is_kept(cgroups, pids)) {
        if (kept_number(cgroups, leaf, pids, "pids.current", NULL) != 0)
            return -EBUSY;
        if (kept_number(cgroups, leaf, pids, "pids.events", "max") != 0)
            return -ESTALE;
    }
    char name[NAME_MAX_];
    leaf_name(name, cgroups, leaf, KEPT, "cpuacct.usage");
    if (cpuacct && is_kept(cgroups, cpuacct) && write_at(cpuacct->dir, name, "0") < 0)
        return -ESTALE;
    return 0;
}

int cgroup_keep(const struct cgroups *cgroups, struct cgroup_names names)
{
    const struct cgroup_tree *tree = tree_of(cgroups, CGROUP_MEMORY);
    char kept[NAME_MAX_], name[NAME_MAX_];
    if (cgroups->kind != CGROUP_V1 || !tree)
        return cgroup_remove(cgroups, names.slot);
    leaf_name(kept, cgroups, names.leaf, KEPT, "");
    leaf_name(name, cgroups, names.slot, GUEST, "");
    return renameat(tree->dir, name, tree->dir, kept) < 0 ? cgroup_remove(cgroups, names.slot) : 0;
}

uint32_t cgroup_kept_trees(const struct cgroups *cgroups)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < cgroups->n; i++)
        bits |= (uint32_t)is_kept(cgroups, &cgroups->trees[i]) << i;
    return bits;
}

uint32_t cgroup_agent_leaves(const struct cgroups *cgroups)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < cgroups->n; i++)
        bits |= (uint32_t)has_leaf(cgroups, &cgroups->trees[i], AGENT) << i;
    return bits;
}

int cgroup_open_guest(const struct cgroups *cgroups, struct cgroup_names names,
                      int ret_fds[CGROUP_TREES_MAX])
{
    int n = 0;
    for (size_t i = 0; i < cgroups->n; i++) {
        char name[NAME_MAX_];
        guest_name(name, cgroups, &cgroups->trees[i], names,
                   cgroups->kind == CGROUP_V2 ? "" : "tasks");
        int fd =
            openat(cgroups->trees[i].dir, name,
                   (cgroups->kind == CGROUP_V2 ? O_RDONLY | O_DIRECTORY : O_WRONLY) | O_CLOEXEC);
        if (fd < 0) {
            int code = errno;
            while (n > 0)
                close(ret_fds[--n]);
            return -code;
        }
        ret_fds[n++] = fd;
    }
    return n;
}

int cgroup_remove(const struct cgroups *cgroups, unsigned slot)
{
    int r = 0;
    for (size_t i = 0; i < cgroups->n; i++) {
        const struct cgroup_tree *tree = &cgroups->trees[i];
        int removed = is_kept(cgroups, tree) ? 0 : remove_leaf(cgroups, tree, slot, GUEST);
        if (cgroups->kind == CGROUP_V2 && removed == 0)
            removed = remove_leaf(cgroups, tree, slot, AGENT);
        char name[NAME_MAX_];
        (void)snprintf(name, sizeof(name), "%u", slot);
        if (cgroups->kind == CGROUP_V2 && removed == 0 &&
            unlinkat(tree->dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            removed = -errno;
        r = removed < 0 ? removed : r;
    }
    return r;
}

/*** The zygote's ***/

static void zygote_name(char out[static NAME_MAX_], unsigned generation, const char *file)
{
    (void)snprintf(out, NAME_MAX_, "zygote-%u%s%s", generation, *file ? "/" : "", file);
}

int cgroup_make_zygote(const struct cgroups *cgroups, unsigned generation, uint64_t bytes)
{
    const struct cgroup_tree *tree = tree_of(cgroups, CGROUP_MEMORY);
    bool v2 = cgroups->kind == CGROUP_V2;
    char name[NAME_MAX_], value[32];
    if (!tree)
        return -ENOENT;
    zygote_name(name, generation, "");
    if (mkdirat(tree->dir, name, 0755) < 0)
        return -errno;
    (void)snprintf(value, sizeof(value), "%" PRIu64, bytes);
    zygote_name(name, generation, v2 ? "memory.max" : "memory.limit_in_bytes");
    int r = write_at(tree->dir, name, value), fd = -1;
    zygote_name(name, generation, v2 ? "" : "tasks");
    if (r == 0) {
        int flags = v2 ? O_RDONLY | O_DIRECTORY : O_WRONLY;
        fd = openat(tree->dir, name, flags | O_CLOEXEC);
        r = fd < 0 ? -errno : 0;
    }
    if (r < 0)
        cgroup_remove_zygote(cgroups, generation);
    return r < 0 ? r : fd;
}

void cgroup_remove_zygote(const struct cgroups *cgroups, unsigned generation)
{
    const struct cgroup_tree *tree = tree_of(cgroups, CGROUP_MEMORY);
    char name[NAME_MAX_];
    zygote_name(name, generation, "");
    if (tree)
        (void)unlinkat(tree->dir, name, AT_REMOVEDIR); /* the keeper removes what stays */
}

/*** Counters ***/

static int open_file(const struct cgroups *cgroups, struct cgroup_names names, unsigned controller,
                     const char *v1_file, const char *v2_file)
{
    const struct cgroup_tree *tree = tree_of(cgroups, controller);
    const char *file = cgroups->kind == CGROUP_V2 ? v2_file : v1_file;
    if (!tree || !file)
        return -ENOENT;
    char name[NAME_MAX_];
    guest_name(name, cgroups, tree, names, file);
    int fd = openat(tree->dir, name, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static const struct {
    unsigned controller;
    const char *v1_file, *v2_file, *key;
} counters[CGROUP_COUNTERS] = {
    [CGROUP_OOM_KILLS] = { CGROUP_MEMORY, "memory.oom_control", "memory.events", "oom_kill" },
    [CGROUP_PIDS_DENIED] = { CGROUP_PIDS, "pids.events", "pids.events", "max" },
};

int cgroup_open_counter(const struct cgroups *cgroups, struct cgroup_names names,
                        enum cgroup_counter which)
{
    return open_file(cgroups, names, counters[which].controller, counters[which].v1_file,
                     counters[which].v2_file);
}

bool cgroup_read_counter(int fd, enum cgroup_counter which, uint64_t *ret)
{
    char text[1024];
    ssize_t len = pread(fd, text, sizeof(text) - 1, 0);
    if (len <= 0)
        return false;
    text[len] = '\0';
    *ret = number_in(text, counters[which].key);
    return true;
}

static uint64_t counter(const struct cgroups *cgroups, struct cgroup_names names,
                        unsigned controller, const char *v1_file, const char *v2_file,
                        const char *key)
{
    char text[4096];
    auto_fd fd = open_file(cgroups, names, controller, v1_file, v2_file);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (len < 0)
        return 0;
    text[len] = '\0';
    return number_in(text, key);
}

bool cgroup_usage(const struct cgroups *cgroups, struct cgroup_names names,
                  struct sandbox_usage *ret)
{
    if (cgroups->n == 0)
        return false;
    bool v2 = cgroups->kind == CGROUP_V2;
    *ret = (struct sandbox_usage){
        .memory_bytes =
            counter(cgroups, names, CGROUP_MEMORY, "memory.usage_in_bytes", "memory.current", NULL),
        .memory_peak_bytes = counter(cgroups, names, CGROUP_MEMORY, "memory.max_usage_in_bytes",
                                     "memory.peak", NULL), /* v2: Linux 5.19 */
        .cpu_ns = v2 ? 1000 * counter(cgroups, names, CGROUP_CPU, NULL, "cpu.stat", "usage_usec")
                     : counter(cgroups, names, CGROUP_CPUACCT, "cpuacct.usage", NULL, NULL),
        .pids = counter(cgroups, names, CGROUP_PIDS, "pids.current", "pids.current", NULL),
        .oom_kills = counter(cgroups, names, CGROUP_MEMORY, "memory.oom_control", "memory.events",
                             "oom_kill"),
        .pids_denied = counter(cgroups, names, CGROUP_PIDS, "pids.events", "pids.events", "max"),
    };
    if (ret->memory_peak_bytes < ret->memory_bytes)
        ret->memory_peak_bytes = ret->memory_bytes;
    return true;
}
