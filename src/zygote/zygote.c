/*
 * The zygote's part in C. It is loaded by an interpreter of any build and links against nothing: what it
 * calls is found in the C library that is there already. After the set-up nothing here allocates.
 *
 * The parent's side stays out of Python so that no page of it changes, and so that no fork hook runs: with
 * one thread there is nothing for them to mend but what kernel.py mends itself (after_fork()).
 */
#include "zygote/zygote.h"

#include "agent/door.h"
#include "agent/guest.h"
#include "zygote/pages.h"
#include "zygote/stand_in.h"
#include "zygote/trial.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *zygote_open(void);
EXPORT void zygote_seed(void *random_state, void *numpy_state);
EXPORT void zygote_fill(void);
EXPORT void zygote_side_by_side(int on);
EXPORT void zygote_prepare(const char *imported, const char *request, int request_len);
EXPORT int zygote_serve(void);
EXPORT void zygote_give_back(int channel);

/* What a child of zygote_serve() has still to do; zygote.py has the same. */
enum { NOT_HIDDEN = 1 };
enum { YIELDS = 100 };                       /* to somebody who has nothing left to do but exit */
enum { KERNEL_FDS = 1 + ZYGOTE_KERNEL_FDS }; /* input, output, errors; then the channel's two */
enum { CHANNEL = 3 };                        /* requests; behind it, what it says */
enum { HIDDEN = 1000 };                      /* kernel.py: copies of all of them */
enum { IDLE_US = 300000 }; /* without a request; then kernel.py gives memory back */
enum { LANDING = 1024 };   /* bytes of stack, to come to zygote_serve() */
enum { SETTLED_EARLY = 2, SETTLED_LATE = 64 }; /* after so many orders pages_settle() */
enum { MT_WORDS = 624 }; /* of a Mersenne twister; when all are used up it makes new ones of them */

/* Linked first (meson.build), so that its beginning is in the page of what is PAGES_TOGETHER. */
static struct {
    struct zygote_setup setup;
    pid_t pid;
    int own_pid_ns;
    char name[16];
    uint64_t data_bytes;   /* private and writable, which a child has from the beginning */
    uint64_t frozen_bytes; /* that freezing has added to them */
    /* What glibc's fork() would see to. */
    int *tid_address;
    void *robust_list;
    size_t robust_len;

    /* Generators whose state each child fills anew; NULL: none. */
    struct {
        uint32_t position, words[MT_WORDS];
    } * random_state;
    struct {
        uint32_t words[MT_WORDS], position;
    } * numpy_state;

    const char *imported; /* of zygote_prepare() */
    struct trial trial;
    const struct pages_written *written; /* by each kernel */

    volatile int forked; /* by C1, which shares this memory: a pid or -errno */

    int life;       /* for stand-ins; -1: there are none */
    jmp_buf kernel; /* where their children go on */

    struct config config; /* what guest.c needs of it; long, and written to at its beginning only */
} zygote;

/*** at the start ***/

static bool read_setup(void)
{
    size_t head = sizeof(zygote.setup);
    if (pread(ZYGOTE_SETUP_FD, &zygote.setup, head, 0) != (ssize_t)head ||
        zygote.setup.magic != ZYGOTE_MAGIC || zygote.setup.version != ZYGOTE_VERSION ||
        zygote.setup.n_filter < 1 || zygote.setup.n_filter > AGENT_FILTER_MAX)
        return false;
    size_t len = zygote.setup.n_filter * sizeof(struct sys_filter);
    if (pread(ZYGOTE_SETUP_FD, zygote.config.filter, len, (off_t)head) != (ssize_t)len)
        return false;
    zygote.config.program = (struct sys_program){ .len = (uint16_t)zygote.setup.n_filter,
                                                  .filter = zygote.config.filter };
    zygote.config.workspace = AGENT_WORKSPACE;
    zygote.config.other_user = zygote.setup.other_user;
    return close(ZYGOTE_SETUP_FD) == 0;
}

/* Pages of data and stack: the sixth number of /proc/self/statm. */
static uint64_t own_data(void)
{
    char text[200];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *at = text;
    for (int i = 0; i < 5 && at; i++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    uint64_t pages = 0;
    for (; at && *at >= '0' && *at <= '9'; at++)
        pages = pages * 10 + (uint64_t)(*at - '0');
    return pages * 4096;
}

/* NULL, or why this interpreter cannot be a zygote. */
const char *zygote_open(void)
{
    if (!read_setup())
        return "its set-up cannot be read";
    /* musl keeps another number where glibc keeps a thread's, and has no name for the latter. */
    if (!dlsym(RTLD_DEFAULT, "gnu_get_libc_version"))
        return "the C library is not glibc";
    if (prctl(PR_GET_TID_ADDRESS, &zygote.tid_address) < 0 || !zygote.tid_address ||
        *zygote.tid_address != (int)syscall(SYS_gettid))
        return "the kernel does not tell where the C library keeps its thread id";
    if (syscall(SYS_get_robust_list, 0, &zygote.robust_list, &zygote.robust_len) < 0)
        return "the list of robust locks is not to be had";
    zygote.own_pid_ns = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (zygote.own_pid_ns < 0)
        return "its pid namespace cannot be opened";
    zygote.pid = getpid();
    if (prctl(PR_GET_NAME, zygote.name) < 0 || prctl(PR_SET_NAME, "belljar-zygote") < 0)
        return "prctl";
    if (zygote.setup.huge_pages)
        pages_gather();
    return NULL;
}

/* Where Python's and numpy's own generators keep their state. zygote.py has looked. */
void zygote_seed(void *random_state, void *numpy_state)
{
    zygote.random_state = random_state;
    zygote.numpy_state = numpy_state;
}

/* The last before zygote_serve(), which has no arguments because each child would free Python's copies of them.
 * `imported`: words for the log. `request`: for a trial (trial.h). Both stay where they are. */
void zygote_prepare(const char *imported, const char *request, int request_len)
{
    zygote.imported = imported;
    zygote.trial = (struct trial){ request, (size_t)request_len, zygote.tid_address };
    pages_fill();
}

/* zygote.py makes what children write to anew, and calls these before, while and after it does. */
void zygote_fill(void)
{
    pages_fill();
}

void zygote_side_by_side(int on)
{
    pages_side_by_side(on != 0);
}

/*** the child ***/

/* Two numbers of the kernel's become a state, by mixing them with a count. As many of its numbers as there are words
 * take as long as entering a sandbox does, and nobody gets a secret from these generators. */
static int fill(uint32_t words[static MT_WORDS])
{
    uint64_t keys[2];
    if (syscall(SYS_getrandom, keys, sizeof(keys), 0) != (long)sizeof(keys))
        return -errno; /* so few are not interrupted */
    for (size_t i = 0; i < MT_WORDS; i += 2) {
        uint64_t word = (keys[0] + i * UINT64_C(0x9e3779b97f4a7c15)) ^ keys[1];
        word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
        word ^= word >> 31;
        words[i] = (uint32_t)word;
        words[i + 1] = (uint32_t)(word >> 32);
    }
    return 0;
}

static int seed_generators(void)
{
    int r = 0;
    if (zygote.random_state) {
        r = fill(zygote.random_state->words);
        zygote.random_state->position = MT_WORDS;
    }
    if (r == 0 && zygote.numpy_state) {
        r = fill(zygote.numpy_state->words);
        zygote.numpy_state->position = MT_WORDS;
    }
    return r;
}

static bool leave_note(int door, uint32_t number, int code, const char *step)
{
    struct door_note note = { .magic = DOOR_MAGIC, .number = number, .code = code };
    strncpy(note.step, step, sizeof(note.step) - 1);
    return send(door, &note, sizeof(note), MSG_NOSIGNAL) == (ssize_t)sizeof(note);
}

/* Stands in for a cgroup where there is none. What freezing has made of text and constants comes on top: they
 * were no data, and are as little a guest's doing as before. */
static int limit_data(uint64_t bytes)
{
    struct rlimit limit = { bytes + zygote.frozen_bytes, bytes + zygote.frozen_bytes };
    return bytes == AGENT_LIMIT_KEEP || setrlimit(RLIMIT_DATA, &limit) == 0 ? 0 : -errno;
}

/* What an order brings, in this order; the kernel's or the lane, then cgroups. */
enum { AGENT_PIDFD, DOOR, REST };
enum { KERNEL_OUT = REST, KERNEL_ERR, KERNEL_CHANNEL, KERNEL_SAID };
enum { LANE = REST };

static int cgroups_at(const struct zygote_order *order)
{
    return REST + (order->stand_in ? 1 : ZYGOTE_KERNEL_FDS);
}

/* The kernel's own descriptors, and the door behind them. Where the latter was stays as it was if this fails. */
static int place_kernel(const int *fds, int null, int *door)
{
    const int placed[KERNEL_FDS + 1] = {
        null, fds[KERNEL_OUT], fds[KERNEL_ERR], fds[KERNEL_CHANNEL], fds[KERNEL_SAID], fds[DOOR]
    };
    int r = guest_place(placed, KERNEL_FDS + 1, 0);
    *door = r < 0 ? *door : KERNEL_FDS;
    return r;
}

static int place_stand_in(const int *fds, int null, int *door)
{
    const int placed[STAND_IN_FDS] = { null, null, null, fds[LANE], fds[DOOR], zygote.life };
    int r = guest_place(placed, STAND_IN_FDS, 0);
    *door = r < 0 ? *door : STAND_IN_DOOR;
    return r;
}

static int place_descriptors(const struct zygote_order *order, const int *fds, int *door)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0)
        return -errno;
    return order->stand_in ? place_stand_in(fds, null, door) : place_kernel(fds, null, door);
}

/* From a process of the zygote's to a guest of the sandbox, with nothing open but what it is to have and *door. */
static int become_guest(const struct zygote_order *order, const int *fds, int *door,
                        const char **ret_step)
{
    *ret_step = "signals"; /* for the zygote they end without a trace */
    if (signal(SIGCHLD, SIG_DFL) == SIG_ERR)
        return -errno;
    /* The opener of `tasks` is the spawner, whose uid is still ours: v1 wants that. */
    const int *cgroups = &fds[cgroups_at(order)];
    *ret_step = "join cgroup";
    for (uint32_t i = 0; order->setup.cgroup == AGENT_CGROUP_V1 && i < order->setup.n_cgroups; i++)
        if (write(cgroups[i], "0", 1) != 1)
            return -errno;
    *ret_step = "enter namespaces";
    if (setns(fds[AGENT_PIDFD], (int)zygote.setup.namespaces) < 0)
        return -errno;
    *ret_step = "landlock";
    if (zygote.setup.has_landlock && syscall(SYS_landlock_restrict_self, ZYGOTE_LANDLOCK_FD, 0) < 0)
        return -errno;
    *ret_step = "descriptors";
    int r = place_descriptors(order, fds, door);
    if (r < 0)
        return r;
    *ret_step = "limits";
    r = limit_data(order->limit_data);
    return r < 0 ? r : guest_join(&zygote.config, ret_step);
}

/* What is each kernel's own. */
static int be_one(const char **ret_step)
{
    const struct timeval longest = { .tv_usec = IDLE_US };
    (void)syscall(SYS_set_robust_list, zygote.robust_list, zygote.robust_len);
    pages_copy(zygote.written);
    *ret_step = "tell from the zygote"; /* some detect a fork by comparing numbers */
    if (getpid() == zygote.pid)
        return -EEXIST;
    *ret_step = "descriptors";
    if (setsockopt(CHANNEL, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest)) < 0)
        return -errno;
    int r = guest_lead(&zygote.config, ret_step);
    if (r < 0)
        return r;
    *ret_step = "seed generators";
    return seed_generators();
}

static int take_fds(const struct msghdr *message, int *ret, size_t max)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > max)
        return -1; /* there was no room for so many: not ours to close */
    memcpy(ret, CMSG_DATA(header), count * sizeof(int));
    return (int)count;
}

/* A server that has given up has closed its end of the channel. What it had said must not be done then. */
static bool is_awaited(void)
{
    struct pollfd channel = { .fd = CHANNEL };
    return poll(&channel, 1, 0) == 0;
}

/* C1 or the stand-in until that has ended, and then the agent, which knows its own children only. And while the first
 * lives, which shares the zygote's memory, nothing of a guest's may run. */
static void wait_for_parent(void)
{
    for (int i = 0; getppid() != 1; i++)
        (void)(i < YIELDS ? sched_yield() : poll(NULL, 0, 1));
}

/* `r`: what has failed at `step`, or 0. */
static void be_kernel(uint32_t number, int door, int r, const char *step)
{
    if (r == 0)
        r = be_one(&step);
    wait_for_parent();
    if (r < 0)
        (void)leave_note(door, number, -r, step); /* nobody listens any more: fine */
    if (r < 0 || !is_awaited() || !leave_note(door, number, 0, ""))
        _exit(127);
    (void)sys_close_range(KERNEL_FDS, ~0U); /* the door, and the lane of a stand-in's child */
    /* As exec would leave it; there is nothing to protect any more. */
    (void)prctl(PR_SET_DUMPABLE, 1);
    (void)prctl(PR_SET_NAME, zygote.name);
}

/* As kernel.py would do it. Not where the limit of descriptors is too low for these numbers. */
static bool hide_descriptors(void)
{
    for (int fd = KERNEL_FDS - 1; fd >= 0; fd--)
        if (dup3(fd, HIDDEN + fd, O_CLOEXEC) < 0)
            return false; /* the first, or none */
    return sys_close_range(CHANNEL, KERNEL_FDS - 1) == 0;
}

/* kernel.py calls it when it has had nothing to do for IDLE_US. It returns when there is a request, or a signal; at once
 * where nothing can be given back. */
void zygote_give_back(int channel)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, &before) < 0)
        return;
    pages_give_back(zygote.tid_address, channel, &before);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/*** the parent ***/

/* What is asked for. */
struct asked {
    const struct zygote_order *order;
    const int *fds;
};

/* v2: the leaf to be born in; -1: none. */
static int birthplace(const struct zygote_order *order, const int *fds)
{
    return order->setup.cgroup == AGENT_CGROUP_V2 ? fds[cgroups_at(order)] : -1;
}

/* True in C2 only; the parent finds the result in zygote.forked. */
static bool fork_into(const struct zygote_order *order, const int *fds)
{
    zygote.forked = -ECHILD;
    /* The parent is to wait, and C1 to share its memory: nothing else forks without copying it twice. */
    pid_t between = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork)
    if (between == 0) {
        pid_t pid = sys_fork_with_tid(zygote.tid_address,
                                      birthplace(order, fds)); // NOLINT(clang-analyzer-unix.Vfork)
        if (pid == 0)
            return true; /* on a copy of this stack, as in its own memory everything is a copy */
        zygote.forked = pid; // NOLINT(clang-analyzer-unix.Vfork)
        _exit(0);
    }
    if (between < 0) {
        zygote.forked = -errno;
        return false;
    }
    while (waitpid(between, NULL, __WALL) < 0 && errno == EINTR)
        ; /* until there is no such child */
    return false;
}

/* In the stand-in, before it waits. */
static int be_stand_in(void *data)
{
    const struct asked *asked = data;
    const char *step = "";
    int door = asked->fds[DOOR];
    (void)prctl(PR_SET_NAME, "belljar-standin");
    int r = become_guest(asked->order, asked->fds, &door, &step);
    const struct door_note note = { .magic = DOOR_STAND_IN, .number = (uint32_t)getpid() };
    if (r == 0 && send(door, &note, sizeof(note), MSG_NOSIGNAL) != (ssize_t)sizeof(note))
        r = -errno; /* whom the agent does not know must not be */
    return r;
}

static int make_stand_in(const struct zygote_order *order, const int *fds)
{
    struct asked asked = { order, fds };
    const struct stand_in_plan plan = { .cgroup = birthplace(order, fds),
                                        .prepare = be_stand_in,
                                        .data = &asked };
    return stand_in_make(&plan);
}

static void tell(uint32_t kind, uint32_t ticket, int code, const char *text)
{
    struct zygote_event event = { .kind = kind, .ticket = ticket, .code = code };
    strncpy(event.text, text, sizeof(event.text) - 1);
    while (send(ZYGOTE_CONTROL_FD, &event, sizeof(event), MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            _exit(0);
}

/* The number of descriptors; does not come back when the spawner has gone. */
static int next_order(struct zygote_order *ret, int fds[ZYGOTE_FDS_MAX])
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(ZYGOTE_FDS_MAX * sizeof(int))];
    } control;
    for (;;) {
        struct iovec part = { ret, sizeof(*ret) };
        struct msghdr message = { .msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = &control,
                                  .msg_controllen = sizeof(control.space) };
        ssize_t n = recvmsg(ZYGOTE_CONTROL_FD, &message, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        int count = n == (ssize_t)sizeof(*ret) ? take_fds(&message, fds, ZYGOTE_FDS_MAX) : -1;
        if (count < 0 || ret->magic != ZYGOTE_MAGIC || ret->setup.n_cgroups > AGENT_CGROUPS_MAX ||
            count != cgroups_at(ret) + (int)ret->setup.n_cgroups)
            _exit(0); /* the spawner's end, or not the spawner */
        return count;
    }
}

/* Nothing else is opened here, so they are in a row. */
static void close_all(const int *fds, int count)
{
    bool row = fds[count - 1] - fds[0] == count - 1;
    if (row && sys_close_range((unsigned)fds[0], (unsigned)fds[count - 1]) == 0)
        return;
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* True in a kernel only. */
static bool obey(const struct zygote_order *order, const int *fds)
{
    zygote.forked = -ENOSYS;
    if (order->stand_in && zygote.life < 0)
        return false;
    zygote.forked = -ENOMEM;
    if (order->limit_data != AGENT_LIMIT_KEEP && order->limit_data < 2 * zygote.data_bytes)
        return false; /* what was imported alone would use up the limit */
    zygote.config.setup = order->setup;
    if (setns(fds[AGENT_PIDFD], CLONE_NEWPID) < 0) {
        zygote.forked = -errno;
        return false;
    }
    if (order->stand_in)
        zygote.forked = make_stand_in(order, fds);
    else if (fork_into(order, fds))
        return true;
    (void)setns(zygote.own_pid_ns, CLONE_NEWPID); /* or the sandbox's would outlive it */
    return false;
}

static void serve(void)
{
    struct zygote_order order;
    int fds[ZYGOTE_FDS_MAX];
    int count = next_order(&order, fds);
    for (unsigned orders = 1; !obey(&order, fds); orders++) {
        close_all(fds, count);
        if (orders == SETTLED_EARLY || orders == SETTLED_LATE)
            pages_settle();
        tell(ZYGOTE_FORKED, order.ticket, zygote.forked < 0 ? -zygote.forked : 0, "");
        count = next_order(&order, fds);
    }
    const char *step = "";
    int door = fds[DOOR];
    int r = become_guest(&order, fds, &door, &step);
    be_kernel(order.number, door, r, step);
}

/* In a kernel that is no guest. */
static void be_tried(int channel)
{
    const int placed[KERNEL_FDS] = { STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, channel, channel };
    const char *step;
    if (guest_place(placed, KERNEL_FDS, 0) < 0 || be_one(&step) < 0)
        _exit(1);
    (void)prctl(PR_SET_DUMPABLE, 1); /* or nobody could look at its memory */
}

/* Returns in children only, as kernels that have not run anything. */
int zygote_serve(void)
{
    struct pages_written written = { 0 };
    zygote.written = &written;
    zygote.data_bytes = own_data();
    if (zygote.setup.freeze)
        pages_freeze(zygote.setup.huge_pages);
    if (zygote.setup.huge_pages)
        pages_collapse();
    int channel = zygote.setup.freeze ? trial_fork(&zygote.trial, &written) : -1;
    if (channel >= 0) {
        be_tried(channel);
        return hide_descriptors() ? 0 : NOT_HIDDEN;
    }
    /* Of this frame, which stays: in a stand-in's child nobody else uses it. */
    _Alignas(16) char landing[LANDING];
    const struct stand_in_kernels kernels = { zygote.kernel, landing + sizeof(landing),
                                              zygote.tid_address };
    if (stand_ins_open(&kernels, &zygote.life) < 0)
        zygote.life = -1;
    uint64_t data = own_data();
    zygote.frozen_bytes = data > zygote.data_bytes ? data - zygote.data_bytes : 0;
    (void)signal(SIGCHLD, SIG_IGN); /* or who was a stand-in would wait to be reaped */
    tell(ZYGOTE_READY, 0, 0, zygote.imported);
    if (_setjmp(zygote.kernel))
        be_kernel(stand_in_number(), KERNEL_FDS, 0, "");
    else
        serve();
    return hide_descriptors() ? 0 : NOT_HIDDEN;
}
