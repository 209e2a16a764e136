#include "agent/config.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const char default_env[] = AGENT_DEFAULT_ENV;

static const struct agent_setup default_setup = {
    .magic = AGENT_SETUP_MAGIC,
    .version = AGENT_SETUP_VERSION,
    .limit_nofile = 1024,
    .limit_file_bytes = AGENT_LIMIT_KEEP,
    .limit_nproc = AGENT_LIMIT_KEEP,
    .limit_address_space = AGENT_LIMIT_KEEP,
    .limit_stack = AGENT_LIMIT_KEEP,
};

/*** the set-up ***/

/* Where it comes from: a file, which is closed then, or the beginning of the stream. */
struct source {
    int fd;
    bool is_stream;
    off_t at;
};

static int read_exactly(struct source *source, void *ret, size_t len)
{
    for (size_t done = 0; done < len;) {
        char *to = (char *)ret + done;
        ssize_t n = source->is_stream ? read(source->fd, to, len - done)
                                      : pread(source->fd, to, len - done, source->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EINVAL;
        done += (size_t)n;
        source->at += n;
    }
    return 0;
}

static int check_cgroups(const struct agent_setup *setup)
{
    uint32_t count = setup->n_cgroups;
    if ((setup->cgroup == AGENT_CGROUP_NONE && count != 0) ||
        (setup->cgroup == AGENT_CGROUP_V1 && (count < 1 || count > AGENT_CGROUPS_MAX)) ||
        (setup->cgroup == AGENT_CGROUP_V2 && count != 1) || setup->cgroup > AGENT_CGROUP_V2)
        return -EINVAL;
    for (uint32_t i = 0; i < count; i++)
        if (fcntl(AGENT_CGROUP_FD + (int)i, F_SETFD, FD_CLOEXEC) < 0)
            return -errno;
    return 0;
}

/* The kernel's word for who replies at the door, and none that we wait for. */
static int open_door(struct config *config)
{
    int fd = AGENT_CGROUP_FD + (int)config->setup.n_cgroups, on = 1;
    if (!config->setup.has_door)
        return 0;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
        return -errno;
    config->door_fd = fd;
    return 0;
}

static int read_parts(struct config *config, struct source *source)
{
    struct agent_setup *setup = &config->setup;
    int r = read_exactly(source, setup, sizeof(*setup));
    if (r < 0)
        return r;
    if (setup->magic != AGENT_SETUP_MAGIC || setup->version != AGENT_SETUP_VERSION ||
        setup->n_filter > AGENT_FILTER_MAX || setup->env_len > AGENT_ENV_MAX ||
        setup->has_door > 1 || setup->no_understudy > 1)
        return -EINVAL;
    /* Their descriptors cannot come along. */
    if (source->is_stream && (setup->n_cgroups || setup->has_door))
        return -EINVAL;
    r = read_exactly(source, config->filter, setup->n_filter * sizeof(struct sys_filter));
    if (r == 0)
        r = read_exactly(source, config->env_bytes, setup->env_len);
    config->program =
        (struct sys_program){ .len = (uint16_t)setup->n_filter, .filter = config->filter };
    return r;
}

static int read_setup(struct config *config, enum config_source from)
{
    bool stdio = from == CONFIG_STDIO;
    struct source source = { stdio ? AGENT_STREAM_FD : AGENT_SETUP_FD, .is_stream = stdio };
    config->door_fd = -1;
    if (from == CONFIG_DEFAULTS) {
        config->setup = default_setup;
        config->setup.guest_uid = getuid();
        config->setup.guest_gid = getgid();
        return 0;
    }
    int r = from == CONFIG_CAST ? 0 : read_parts(config, &source);
    if (r < 0)
        return r;
    if (from == CONFIG_GIVEN)
        close(AGENT_SETUP_FD);
    r = check_cgroups(&config->setup);
    return r < 0 ? r : open_door(config);
}

/* Input and output become the stream, and nothing in their place: who is forked from here on must not
 * find it there. */
static int take_stdio(void)
{
    if (dup2(STDIN_FILENO, AGENT_STREAM_FD) < 0 || dup2(STDOUT_FILENO, AGENT_OUT_FD) < 0)
        return -errno;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC); /* closed with the rest */
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        return -errno;
    return 0;
}

static int split_env(struct config *config)
{
    size_t len = config->setup.env_len;
    if (!len) {
        len = sizeof(default_env);
        memcpy(config->env_bytes, default_env, len);
    }
    if (config->env_bytes[len - 1] != '\0')
        return -EINVAL;
    size_t count = 0;
    for (size_t at = 0; at < len; at += strlen(config->env_bytes + at) + 1) {
        if (count == AGENT_ENV_COUNT_MAX || !strchr(config->env_bytes + at, '='))
            return -EINVAL;
        config->env[count++] = config->env_bytes + at;
    }
    return 0;
}

int config_cast(struct config *config, const struct sys_filter *filter, uint32_t n_filter)
{
    config->program = (struct sys_program){ .len = (uint16_t)n_filter, .filter = filter };
    return split_env(config);
}

static int close_the_rest(struct config *config)
{
    unsigned kept = config->setup.n_cgroups + config->setup.has_door;
    return sys_close_range(kept ? AGENT_CGROUP_FD + kept : (unsigned)config->out_fd + 1, ~0U);
}

/*** directories ***/

static int open_directories(struct config *config, const char *workspace, const char *run_dir)
{
    config->workspace = workspace;
    config->workspace_fd = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (config->workspace_fd < 0)
        return -errno;
    if (mkdir(run_dir, 0755) < 0 && errno != EEXIST)
        return -errno;
    config->run_dir_fd = open(run_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return config->run_dir_fd < 0 ? -errno : 0;
}

/*** privileges ***/

#define CAP_BIT(cap) (UINT32_C(1) << (cap))

/* To end a guest that is another user, and to become it. */
static const uint32_t kept_caps =
    CAP_BIT(SYS_CAP_KILL) | CAP_BIT(SYS_CAP_SETGID) | CAP_BIT(SYS_CAP_SETUID);

static int shed_privileges(struct config *config)
{
    config->other_user = config->setup.guest_uid != getuid() || config->setup.guest_gid != getgid();
    struct sys_caps caps;
    int r = sys_capget(&caps);
    if (r < 0)
        return r;
    config->may_bound = caps.word[0].effective & CAP_BIT(SYS_CAP_SETPCAP);
    uint32_t kept = caps.word[0].permitted & kept_caps;
    if (config->other_user && (kept != kept_caps || !config->may_bound))
        return -EPERM;
    caps = (struct sys_caps){ 0 };
    caps.word[0].permitted = caps.word[0].effective =
        kept | (config->may_bound ? CAP_BIT(SYS_CAP_SETPCAP) : 0);
    r = sys_capset(&caps);
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    /* Undumpable: no ptrace and no /proc/1/mem for a guest with the same uid. */
    return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}

int config_load(struct config *config, enum config_source source, const char *workspace,
                const char *run_dir, const char **ret_step)
{
    bool stdio = source == CONFIG_STDIO;
    config->is_init = getpid() == 1;
    config->out_fd = stdio ? AGENT_OUT_FD : AGENT_STREAM_FD;
    *ret_step = "take the stream";
    int r = stdio ? take_stdio() : 0;
    if (r < 0)
        return r;
    *ret_step = "set-up";
    r = read_setup(config, source);
    if (r < 0)
        return r;
    *ret_step = "environment";
    r = source == CONFIG_CAST ? 0 : split_env(config);
    if (r < 0)
        return r;
    *ret_step = "close descriptors";
    r = close_the_rest(config);
    if (r < 0)
        return r;
    *ret_step = "open directories";
    r = open_directories(config, workspace, run_dir);
    if (r < 0)
        return r;
    *ret_step = "shed privileges";
    r = shed_privileges(config);
    if (r < 0)
        return r;
    /* Orphans of a guest come to us even where we are not pid 1. */
    *ret_step = "become subreaper";
    return !config->is_init && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ? -errno : 0;
}
