#include "agent_box.h"
#include "check.h"
#include "scratch.h"

#include "agent/image.h"
#include "agent/setup.h"
#include "base/loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000, GUEST_ID = 61234 };

static const char *our_mode(void)
{
    const char *mode = getenv("AGENT_MODE");
    return mode ? mode : "plain";
}

bool box_mode(const char *mode)
{
    return str_has_prefix(our_mode(), mode); /* guest2 is a guest */
}

/*** starting the agent ***/

#define REFUSE(number, code)                                                                       \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),                         \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                       \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (code)),                                     \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter no_openat2[] = { REFUSE(SYS_openat2, ENOSYS) };
static struct sock_filter no_personality[] = { REFUSE(SYS_personality, EUCLEAN) };
static const char guest_env[] = "PATH=/usr/bin:/bin\0GREETING=from the set-up\0HOME=/workspace";

static void place(int fd, int want)
{
    if (fd != want && dup2(fd, want) < 0)
        _exit(99);
    fcntl(want, F_SETFD, 0);
}

static char *make_cgroup(void)
{
    static const char *const v1[] = { "/sys/fs/cgroup/pids", NULL };
    static const char *const v2[] = { "/sys/fs/cgroup/unified", "/sys/fs/cgroup", NULL };
    for (const char *const *base = box_mode("guest2") ? v2 : v1; *base; base++) {
        auto_free char *controllers = xasprintf("%s/cgroup.controllers", *base);
        auto_free char *dir = xasprintf("%s/belljar-test-%d", *base, (int)getpid());
        if ((access(controllers, F_OK) == 0) == box_mode("guest2") && mkdir(dir, 0755) == 0)
            return steal_ptr(&dir);
    }
    return NULL;
}

static int open_cgroup(const char *dir)
{
    auto_free char *tasks = xasprintf("%s/tasks", dir);
    return box_mode("guest2") ? open(dir, O_PATH | O_DIRECTORY) : open(tasks, O_WRONLY);
}

/* What the agent would take by default, told. */
static void send_setup(int stream)
{
    const struct agent_setup setup = {
        .magic = AGENT_SETUP_MAGIC,
        .version = AGENT_SETUP_VERSION,
        .guest_uid = getuid(),
        .guest_gid = getgid(),
        .limit_nofile = 1024,
        .limit_file_bytes = AGENT_LIMIT_KEEP,
        .limit_nproc = AGENT_LIMIT_KEEP,
        .limit_address_space = AGENT_LIMIT_KEEP,
        .limit_stack = AGENT_LIMIT_KEEP,
    };
    if (write(stream, &setup, sizeof(setup)) != (ssize_t)sizeof(setup))
        abort();
}

static int make_setup(const struct box *box)
{
    struct agent_setup setup = {
        .magic = AGENT_SETUP_MAGIC,
        .version = AGENT_SETUP_VERSION,
        .guest_uid = GUEST_ID,
        .guest_gid = GUEST_ID,
        .cgroup = !box->cgroup         ? AGENT_CGROUP_NONE
                  : box_mode("guest2") ? AGENT_CGROUP_V2
                                       : AGENT_CGROUP_V1,
        .n_cgroups = box->cgroup ? 1 : 0,
        .n_filter = ARRAY_SIZE(no_personality),
        .env_len = sizeof(guest_env),
        .has_door = 1,
        .limit_nofile = 77,
        .limit_file_bytes = 1 << 20,
        .limit_nproc = AGENT_LIMIT_KEEP,
        .limit_address_space = AGENT_LIMIT_KEEP,
        .limit_stack = AGENT_LIMIT_KEEP,
    };
    int fd = memfd_create("setup", 0);
    if (fd < 0 || write(fd, &setup, sizeof(setup)) < 0 ||
        write(fd, no_personality, sizeof(no_personality)) < 0 ||
        write(fd, guest_env, sizeof(guest_env)) < 0)
        _exit(99);
    return fd;
}

static int program(void)
{
    const char *path = getenv("AGENT_BIN");
    int fd = path ? open(path, O_RDONLY) : memfd_create("agent", 0);
    if (!path && write(fd, agent_image, agent_image_len) != (ssize_t)agent_image_len)
        _exit(99);
    return fd;
}

_Noreturn static void become_agent(struct box *box, int stream, int at_agent)
{
    int door = box_mode("guest") ? fcntl(at_agent, F_DUPFD, 200) : -1;
    int high = fcntl(stream, F_DUPFD, 200);
    int exe = fcntl(program(), F_DUPFD, 200);
    int setup = box_mode("guest") ? fcntl(make_setup(box), F_DUPFD, 200) : -1;
    int cgroup = box->cgroup ? fcntl(open_cgroup(box->cgroup), F_DUPFD, 200) : -1;
    if (box_mode("stdio")) {
        place(high, STDIN_FILENO);
        place(high, STDOUT_FILENO);
    } else {
        place(high, AGENT_STREAM_FD);
    }
    if (cgroup >= 0)
        place(cgroup, AGENT_CGROUP_FD);
    if (door >= 0)
        place(door, AGENT_CGROUP_FD + (cgroup >= 0));
    if (setup >= 0)
        place(setup, AGENT_SETUP_FD);
    else
        close(AGENT_SETUP_FD);
    if (box_mode("old")) {
        struct sock_fprog filter = { ARRAY_SIZE(no_openat2), no_openat2 };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
            _exit(99);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto_free char *run_dir = xasprintf("%s/run", box->dir);
    char word[] = AGENT_DEFAULTS, stdio[] = AGENT_STDIO;
    char *const argv[] = { (char[]){ "agent" }, box_mode("stdio") ? stdio : word, box->workspace,
                           run_dir, NULL };
    char *const without[] = { argv[0], argv[2], argv[3], NULL };
    fexecve(exe, setup < 0 || box_mode("stdio") ? argv : without, (char *const[]){ NULL });
    _exit(98);
}

static void write_file(const char *path, const char *text)
{
    auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        _exit(99);
}

/* A pid and a mount namespace; without privilege in a user namespace that knows one user, us. */
static bool enter_namespaces(void)
{
    auto_free char *uids = xasprintf("%d %d 1", (int)geteuid(), (int)geteuid());
    auto_free char *gids = xasprintf("%d %d 1", (int)getegid(), (int)getegid());
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) == 0)
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) < 0)
        return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", uids);
    write_file("/proc/self/gid_map", gids);
    return true;
}

/* A pid namespace is for children: the middle process makes it and ends with the agent's status. */
static pid_t start_agent(struct box *box, int stream, int door)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (!box_mode("init") && !box_mode("guest"))
        become_agent(box, stream, door);
    if (!enter_namespaces())
        _exit(99);
    pid_t inner = fork();
    if (inner == 0) {
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("proc", "/proc", "proc", 0, NULL) < 0)
            _exit(99);
        become_agent(box, stream, door);
    }
    (void)syscall(SYS_close_range, 3, ~0U, 0); /* the test's end of the stream among them */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status;
    if (inner < 0 || waitpid(inner, &status, 0) < 0 || !WIFEXITED(status))
        _exit(97);
    _exit(WEXITSTATUS(status));
}

static void on_ready(void *data)
{
    ((struct box *)data)->ready = true;
}

static void on_broken(const char *why, void *data)
{
    struct box *box = data;
    box->broken = true;
    (void)snprintf(box->why, sizeof(box->why), "%s", why);
}

const struct link_events box_events = { on_ready, on_broken };

static int box_open(void **state)
{
    struct box *box = xcalloc(1, sizeof(*box));
    *state = box;
    (void)snprintf(box->mark, sizeof(box->mark), "MARK=77%07d", (int)getpid());
    box->dir = xstrdup("/tmp/belljar-agent-XXXXXX");
    if (!mkdtemp(box->dir))
        return -1;
    box->workspace = xasprintf("%s/workspace", box->dir);
    box->code = xasprintf("%s/run/code", box->dir);
    if (chmod(box->dir, 0755) < 0 || mkdir(box->workspace, 0755) < 0)
        return -1;
    if (box_mode("guest") && chown(box->workspace, GUEST_ID, GUEST_ID) < 0)
        return -1;
    if (box_mode("guest"))
        box->cgroup = make_cgroup();
    int ends[2], door[2];
    if (uv_loop_init(&box->loop) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) < 0)
        return -1;
    box->pid = start_agent(box, ends[1], door[1]);
    close(ends[1]);
    close(door[1]);
    box->door = door[0];
    if (box_mode("stdio"))
        send_setup(ends[0]);
    box->link = link_new(&box->loop, ends[0], &box_events, box);
    while (!box->ready && !box->broken)
        uv_run(&box->loop, UV_RUN_ONCE);
    return box->ready ? 0 : -1;
}

static int box_close(void **state)
{
    struct box *box = *state;
    link_free(box->link);
    close(box->door);
    loop_finish(&box->loop);
    int status = 0;
    if (waitpid(box->pid, &status, 0) > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        fprintf(stderr, "the agent ended with status %x\n", (unsigned)status);
    if (box->cgroup && rmdir(box->cgroup) < 0)
        fprintf(stderr, "%s: %s\n", box->cgroup, strerror(errno));
    free(box->cgroup);
    (void)scratch_remove(box->dir);
    free(box->dir);
    free(box->workspace);
    free(box->code);
    free(box);
    return 0;
}

/*** the tests of a program ***/

/* In a child: namespaces cannot be left again. */
static bool can_be_init(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter_namespaces() ? 0 : 1);
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool runs_in(const char *modes)
{
    for (; modes && *modes; modes += strspn(modes, " ")) {
        size_t len = strcspn(modes, " ");
        if (strncmp(our_mode(), modes, len) == 0)
            return true;
        modes += len;
    }
    return !modes;
}

static int run_group(const struct box_test *tests, size_t count, bool each)
{
    if (box_mode("guest") && geteuid() != 0) {
        printf("1..0 # SKIP another user takes root\n");
        return 0;
    }
    bool namespaced = box_mode("init") || box_mode("guest");
    if (namespaced && !can_be_init()) {
        printf("1..0 # SKIP no pid namespaces here\n");
        return 0;
    }
    auto_free struct CMUnitTest *chosen = xcalloc(count, sizeof(*chosen));
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (runs_in(tests[i].modes))
            chosen[n++] = (struct CMUnitTest){ .name = tests[i].name,
                                               .test_func = tests[i].run,
                                               .setup_func = each ? box_open : NULL,
                                               .teardown_func = each ? box_close : NULL };
    return _cmocka_run_group_tests("agent", chosen, n, each ? NULL : box_open,
                                   each ? NULL : box_close);
}

int box_main(const struct box_test *tests, size_t count)
{
    return run_group(tests, count, /* each= */ false);
}

int box_main_each(const struct box_test *tests, size_t count)
{
    return run_group(tests, count, /* each= */ true);
}

/*** waiting ***/

static void too_late(void *data)
{
    ((struct box *)data)->late = true;
}

void box_wait(struct box *box, const bool *flag)
{
    struct timer *timer = timer_new(&box->loop, too_late, box);
    timer_start(timer, PATIENCE_MS);
    while (!*flag && !box->late)
        uv_run(&box->loop, UV_RUN_ONCE);
    timer_free(timer);
    if (!*flag)
        fail_msg("nothing happened within %d ms (%s)", PATIENCE_MS, box->why);
}

static void set_flag(void *data)
{
    *(bool *)data = true;
}

void box_sleep(struct box *box, uint64_t ms)
{
    bool over = false;
    struct timer *timer = timer_new(&box->loop, set_flag, &over);
    timer_start(timer, ms);
    box_wait(box, &over);
    timer_free(timer);
}

int count_processes(const char *text)
{
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(proc));) {
        char line[4096] = "";
        auto_free char *path = xasprintf("/proc/%s/cmdline", entry->d_name);
        auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t len = fd < 0 ? -1 : read(fd, line, sizeof(line));
        count += len > 0 && memmem(line, (size_t)len, text, strlen(text));
    }
    closedir(proc);
    return count;
}

int box_count(const struct box *box)
{
    return count_processes(strchr(box->mark, '=') + 1);
}

/*** runs ***/

void result_done(struct result *result)
{
    buf_done(&result->out);
    buf_done(&result->err);
}

static struct buf *stream_of(struct result *result, enum link_stream stream)
{
    return stream == LINK_STDOUT ? &result->out : &result->err;
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    (void)buf_add(stream_of(data, stream), bytes, len);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    struct result *result = data;
    result->gap[stream] = bytes;
    result->before_gap[stream] = stream_of(result, stream)->len;
}

static void on_exit_frame(const struct link_exit *exit, void *data)
{
    struct result *result = data;
    result->done = true;
    result->failed = !exit;
    if (exit)
        result->exit = *exit;
}

void box_start(struct box *box, const struct link_run_spec *spec, struct result *ret)
{
    static const struct link_run_events events = { on_output, on_gap, on_exit_frame };
    *ret = (struct result){ .out = BUF_INIT(BUF_NO_CEILING), .err = BUF_INIT(BUF_NO_CEILING) };
    struct link_run_spec marked = *spec;
    const char *const env[] = { box->mark, NULL };
    if (!marked.env)
        marked.env = env;
    struct err err;
    if (link_run(box->link, &marked, &events, ret, &err) < 0)
        fail_msg("link_run: %s", err.msg);
}

void box_wait_output(struct box *box, const struct result *result)
{
    while (!result->out.len && !result->done)
        uv_run(&box->loop, UV_RUN_ONCE);
    CHECK("output", result->out.len > 0);
}

void box_run(struct box *box, const struct link_run_spec *spec, struct result *ret)
{
    box_start(box, spec, ret);
    box_wait(box, &ret->done);
    if (ret->failed)
        fail_msg("the stream broke: %s", box->why);
}

/*** files ***/

void answer_done(struct answer *answer)
{
    buf_done(&answer->bytes);
    for (size_t i = 0; i < answer->count; i++)
        free((void *)(uintptr_t)answer->entries[i].name);
    free(answer->entries);
}

void answer_plain(int code, void *data)
{
    struct answer *answer = data;
    answer->done = true;
    answer->code = code;
}

void answer_data(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    struct answer *answer = data;
    answer->done = true;
    answer->code = code;
    answer->size = size;
    answer->len = len;
    if (bytes)
        (void)buf_add(&answer->bytes, bytes, len);
}

void answer_list(int code, const struct link_entry *entries, size_t count, bool more, void *data)
{
    struct answer *answer = data;
    answer->done = true;
    answer->code = code;
    answer->more = more;
    answer->count = count;
    answer->entries = xcalloc(count, sizeof(*entries));
    for (size_t i = 0; i < count; i++) {
        answer->entries[i] = entries[i];
        answer->entries[i].name = xstrdup(entries[i].name);
    }
}

static int wait_answer(struct box *box, struct answer *answer, int r)
{
    if (r < 0)
        fail_msg("refused: %d", r);
    box_wait(box, &answer->done);
    return answer->code;
}

static void fresh(struct answer *answer)
{
    *answer = (struct answer){ .bytes = BUF_INIT(BUF_NO_CEILING) };
}

int box_write(struct box *box, const char *path, const char *bytes, size_t len)
{
    auto_answer answer = { 0 };
    fresh(&answer);
    int r = link_file_write(box->link, path, bytes, len, answer_plain, &answer, NULL);
    return wait_answer(box, &answer, r);
}

int box_delete(struct box *box, const char *path, bool recursive)
{
    auto_answer answer = { 0 };
    fresh(&answer);
    int r = link_file_delete(box->link, path, recursive, answer_plain, &answer, NULL);
    return wait_answer(box, &answer, r);
}

int box_move(struct box *box, const char *from, const char *to)
{
    auto_answer answer = { 0 };
    fresh(&answer);
    int r = link_file_move(box->link, from, to, answer_plain, &answer, NULL);
    return wait_answer(box, &answer, r);
}

int box_read(struct box *box, const char *path, uint64_t offset, uint64_t max, struct answer *ret)
{
    answer_done(ret);
    fresh(ret);
    int r = link_file_read(box->link, path, offset, max, answer_data, ret, NULL);
    return wait_answer(box, ret, r);
}

int box_list(struct box *box, const char *path, bool recursive, size_t max, struct answer *ret)
{
    answer_done(ret);
    fresh(ret);
    int r = link_file_list(box->link, path, recursive, max, answer_list, ret, NULL);
    return wait_answer(box, ret, r);
}

int box_stat(struct box *box, const char *path, struct answer *ret)
{
    answer_done(ret);
    fresh(ret);
    int r = link_file_stat(box->link, path, answer_list, ret, NULL);
    return wait_answer(box, ret, r);
}

int box_pack(struct box *box, const struct buf *content, uint64_t max, struct answer *ret)
{
    answer_done(ret);
    fresh(ret);
    int r = link_file_pack(box->link, content->data, content->len, max, answer_data, ret, NULL);
    return wait_answer(box, ret, r);
}

int box_unpack(struct box *box, const struct buf *content)
{
    auto_answer answer = { 0 };
    fresh(&answer);
    int r = link_file_unpack(box->link, content->data, content->len, answer_plain, &answer, NULL);
    return wait_answer(box, &answer, r);
}
