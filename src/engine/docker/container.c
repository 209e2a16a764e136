#include "engine/docker/container.h"

#include "agent/setup.h"
#include "engine/engine.h"
#include "engine/native/plan.h"
#include "engine/native/seccomp.h"

#include <stdio.h>
#include <string.h>

enum { HELPER_UID = 65533 }; /* of no guest: ranges end below, and docker.user is looked at */

/* As the OCI's list has it, and what else tells about the host. Of /sys only the sandbox's own cgroup is
 * left, by which the agent sees what the kernel has counted: a mount over all of /sys would hide that, too. */
static const char *const masked[] = {
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/driver",
    "/proc/fs",
    "/proc/irq",
    "/proc/scsi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/sysrq-trigger",
    "/proc/kallsyms",
    "/proc/config.gz",
    "/proc/cmdline",
    "/proc/interrupts",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/firmware",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
    "/sys/fs/afs",
    "/sys/fs/aufs",
    "/sys/fs/bcachefs",
    "/sys/fs/bpf",
    "/sys/fs/btrfs",
    "/sys/fs/ecryptfs",
    "/sys/fs/erofs",
    "/sys/fs/ext4",
    "/sys/fs/f2fs",
    "/sys/fs/fuse",
    "/sys/fs/gfs2",
    "/sys/fs/nfs",
    "/sys/fs/nilfs2",
    "/sys/fs/ocfs2",
    "/sys/fs/orangefs",
    "/sys/fs/pstore",
    "/sys/fs/resctrl",
    "/sys/fs/selinux",
    "/sys/fs/smackfs",
    "/sys/fs/tmpfs",
    "/sys/fs/ubifs",
    "/sys/fs/virtiofs",
    "/sys/fs/xfs",
    "/sys/fs/zonefs",
};
static const char *const read_only[] = { "/proc/sys" };

static json_t *texts(const char *const *items, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_push(array, json_string(items[i]));
    return array;
}

static json_t *number(uint64_t value)
{
    return json_integer(value < INT64_MAX ? (json_int_t)value : INT64_MAX);
}

/*** Parts ***/

/* An empty directory. */
#define NOTHING "ro,nosuid,nodev,noexec,size=4096,mode=555"

/* Podman takes neither numbers of files nor owners; U makes the user of the container the owner. */
static void put_tmpfs(json_t *tmpfs, const struct container_plan *plan, const char *path,
                      uint64_t bytes, uint64_t inodes, unsigned mode)
{
    auto_free char *text =
        plan->facts->podman
            ? xasprintf("rw,exec,nosuid,nodev,size=%llu,mode=%o,U", (unsigned long long)bytes, mode)
            : xasprintf("rw,exec,nosuid,nodev,size=%llu,nr_inodes=%llu,mode=%o,uid=%u,gid=%u",
                        (unsigned long long)bytes, (unsigned long long)inodes, mode, plan->uid,
                        plan->gid);
    json_put_str(tmpfs, path, text);
}

static json_t *tmpfs(const struct container_plan *plan)
{
    const struct sandbox_limits *limits = &plan->limits;
    json_t *json = json_object();
    put_tmpfs(json, plan, AGENT_WORKSPACE, limits->workspace_bytes, limits->workspace_inodes, 0700);
    put_tmpfs(json, plan, "/tmp", limits->tmp_bytes, limits->tmp_inodes, 01777);
    put_tmpfs(json, plan, "/dev/shm", limits->shm_bytes, PLAN_SHM_INODES, 01777);
    put_tmpfs(json, plan, AGENT_RUN_DIR, PLAN_RUN_DIR_BYTES, PLAN_RUN_DIR_INODES, 0700);
    json_put_str(json, "/dev/mqueue", NOTHING); /* else the engine mounts one that can be written */
    return json;
}

static json_t *volume(const char *name, const char *target, bool writable)
{
    return json_pack("{s:s,s:s,s:s,s:b,s:{s:b}}", "Type", "volume", "Source", name, "Target",
                     target, "ReadOnly", !writable, "VolumeOptions", "NoCopy", 1);
}

/* The one thing of a host that is ever mounted, for an installer, where the operator has named it. */
static json_t *wheels(const struct container_plan *plan)
{
    return json_pack("{s:s,s:s,s:s,s:b}", "Type", "bind", "Source", plan->wheels, "Target",
                     ENGINE_WHEELS, "ReadOnly", 1);
}

/* A volume that the image declares would be a directory on the engine's disk, without any limit. */
static void hide_volumes(const struct container_plan *plan, json_t *mounts)
{
    size_t i;
    const json_t *path;
    json_array_foreach(plan->image->volumes, i, path)
    {
        json_push(mounts, json_pack("{s:s,s:s,s:{s:o,s:i}}", "Type", "tmpfs", "Target",
                                    json_string_value(path), "TmpfsOptions", "SizeBytes",
                                    number(plan->limits.tmp_bytes), "Mode", 01777));
    }
}

static json_t *security(const struct container_plan *plan)
{
    json_t *options = json_array();
    json_push(options, json_string("no-new-privileges"));
    if (plan->facts->podman)
        return options; /* it wants a file of its own host; there the agent loads the whole list */
    auto_free char *seccomp = xasprintf("seccomp=%s", plan->seccomp);
    json_push(options, json_string(seccomp));
    return options;
}

static json_t *ulimits(void)
{
    json_t *list = json_array();
    json_push(list, json_pack("{s:s,s:i,s:i}", "Name", "core", "Soft", 0, "Hard", 0));
    return list;
}

static json_t *labels(const struct container_plan *plan)
{
    return json_pack("{s:s,s:s}", CONTAINER_LABEL_INSTANCE, plan->instance, CONTAINER_LABEL_SANDBOX,
                     plan->sandbox);
}

/* The engine refuses more than there are. */
static uint64_t nano_cpus(const struct container_plan *plan)
{
    uint64_t wanted = plan->limits.cpu_millis * 1000000,
             most = plan->facts->cpus * UINT64_C(1000000000);
    return wanted < most ? wanted : most;
}

static json_t *host_config(const struct container_plan *plan)
{
    const struct sandbox_limits *limits = &plan->limits;
    uint64_t memory = limits->memory_bytes + AGENT_MEMORY;
    json_t *json = json_object(), *mounts = json_array();
    json_push(mounts, volume(plan->volume, CONTAINER_AGENT_DIR, /* writable= */ false));
    if (*plan->packages)
        json_push(mounts, volume(plan->packages, ENGINE_PACKAGES, /* writable= */ false));
    if (*plan->wheels)
        json_push(mounts, wheels(plan));
    hide_volumes(plan, mounts);
    json_put_str(json, "NetworkMode", *plan->network ? plan->network : "none");
    json_put_str(json, "IpcMode", "private");
    json_put_str(json, "CgroupnsMode", "private");
    json_put(json, "Memory", number(memory));
    json_put(json, "MemorySwap", number(memory)); /* the same: no swap */
    json_put(json, "NanoCpus", number(nano_cpus(plan)));
    json_put(json, "PidsLimit", number(limits->pids + 1)); /* and the agent */
    json_put(json, "ShmSize", number(limits->shm_bytes));
    json_put(json, "ReadonlyRootfs", json_true());
    json_put(json, "Tmpfs", tmpfs(plan));
    json_put(json, "Mounts", mounts);
    json_put(json, "CapDrop", json_pack("[s]", "ALL"));
    json_put(json, "Privileged", json_false());
    json_put(json, "SecurityOpt", security(plan));
    json_put(json, "MaskedPaths", texts(masked, ARRAY_SIZE(masked)));
    json_put(json, "ReadonlyPaths", texts(read_only, ARRAY_SIZE(read_only)));
    if (!plan->facts->podman) /* it would then raise others, too, and may not everywhere */
        json_put(json, "Ulimits", ulimits());
    json_put(json, "Init", json_false()); /* the agent is pid 1 */
    json_put(json, "AutoRemove", json_true());
    json_put(json, "RestartPolicy", json_pack("{s:s}", "Name", "no"));
    json_put(json, "LogConfig", json_pack("{s:s}", "Type", "none")); /* else its disk fills */
    if (*plan->runtime)
        json_put_str(json, "Runtime", plan->runtime);
    return json;
}

/*** The whole ***/

json_t *container_json(const struct container_plan *plan)
{
    char user[32];
    json_t *json = json_object();
    (void)snprintf(user, sizeof(user), "%u:%u", plan->uid, plan->gid);
    json_put_str(json, "Image", plan->image->id);
    json_put_str(json, "User", user);
    json_put_str(json, "Hostname", PLAN_HOSTNAME);
    json_put_str(json, "WorkingDir", *plan->working_dir ? plan->working_dir : "/");
    json_put(json, "Entrypoint",
             json_pack("[s,s]", CONTAINER_AGENT_DIR "/" CONTAINER_AGENT_NAME, AGENT_STDIO));
    json_put(json, "Cmd", json_array());
    /* The image's own would be started beside the guest, outside of every run. */
    json_put(json, "Healthcheck", json_pack("{s:[s]}", "Test", "NONE"));
    json_put(json, "NetworkDisabled", json_boolean(!*plan->network));
    json_put(json, "Tty", json_false());
    json_put(json, "OpenStdin", json_true());
    json_put(json, "StdinOnce",
             json_true()); /* with the connection the agent's input ends, and it */
    json_put(json, "AttachStdin", json_true());
    json_put(json, "AttachStdout", json_true());
    json_put(json, "AttachStderr", json_true());
    json_put(json, "Labels", labels(plan));
    json_put(json, "HostConfig", host_config(plan));
    return json;
}

json_t *container_helper_json(const struct container_plan *plan, const char *name,
                              const char *target)
{
    json_t *host = json_object();
    json_put_str(host, "NetworkMode", "none");
    json_put(host, "Mounts", json_pack("[o]", volume(name, target, /* writable= */ true)));
    json_t *json = json_object();
    json_put_str(json, "Image", plan->image->id);
    json_put(json, "Entrypoint", json_pack("[s]", CONTAINER_AGENT_DIR "/" CONTAINER_AGENT_NAME));
    json_put(json, "Labels", labels(plan));
    json_put(json, "HostConfig", host);
    return json;
}

json_t *container_helper_exec_json(uint32_t guest_uid)
{
    char user[32];
    uint32_t uid = guest_uid == HELPER_UID ? HELPER_UID - 1 : HELPER_UID;
    (void)snprintf(user, sizeof(user), "%u:%u", uid, uid);
    return json_pack("{s:b,s:b,s:b,s:b,s:s,s:[s,s]}", "AttachStdin", 1, "AttachStdout", 1,
                     "AttachStderr", 1, "Tty", 0, "User", user, "Cmd",
                     CONTAINER_AGENT_DIR "/" CONTAINER_AGENT_NAME, AGENT_JOIN);
}

/*** The agent's set-up ***/

static bool has_variable(const struct buf *env, const char *variable)
{
    size_t name = strcspn(variable, "=") + 1;
    for (size_t at = 0; at < env->len; at += strlen(env->data + at) + 1)
        if (strncmp(env->data + at, variable, name) == 0)
            return true;
    return false;
}

/* Those of `env`, "NAME=value\0…", that are not there yet. */
static void add_variables(struct buf *ret, const char *env, size_t len)
{
    for (size_t at = 0; at < len; at += strlen(env + at) + 1)
        if (!has_variable(ret, env + at))
            (void)buf_add(ret, env + at, strlen(env + at) + 1);
}

/* What the image says, but for its home: that is the workspace. The user has no name in the image. */
static void make_env(const struct docker_image *image, struct buf *ret)
{
    static const char ours[] = "HOME=" AGENT_WORKSPACE "\0USER=guest\0LOGNAME=guest";
    static const char defaults[] = AGENT_DEFAULT_ENV;
    add_variables(ret, ours, sizeof(ours));
    add_variables(ret, image->env.data, image->env.len);
    add_variables(ret, defaults, sizeof(defaults));
}

void container_setup(const struct container_plan *plan, const struct seccomp_program *filter,
                     struct buf *ret)
{
    auto_buf env = BUF_INIT(AGENT_ENV_MAX); /* reply.h has bounded the image's part */
    make_env(plan->image, &env);
    const struct agent_setup setup = {
        .magic = AGENT_SETUP_MAGIC,
        .version = AGENT_SETUP_VERSION,
        .guest_uid = plan->uid,
        .guest_gid = plan->gid,
        .cgroup = AGENT_CGROUP_NONE,
        .n_filter = filter->len,
        .env_len = (uint32_t)env.len,
        .limit_nofile = plan->limits.nofile,
        .limit_file_bytes = plan->limits.file_bytes,
        .limit_nproc = AGENT_LIMIT_KEEP,
        .limit_address_space = AGENT_LIMIT_KEEP,
        .limit_stack = AGENT_LIMIT_KEEP,
    };
    (void)buf_add(ret, &setup, sizeof(setup));
    (void)buf_add(ret, filter->code, filter->len * sizeof(*filter->code));
    (void)buf_add(ret, env.data, env.len);
}
