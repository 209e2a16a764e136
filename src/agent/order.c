#include "agent/order.h"
#include "agent/door.h"
#include "agent/guest.h"
#include "agent/pipes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void close_slot(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void order_init(struct order *order, const struct config *config, const char *code_name)
{
    order->config = config;
    order->code_name = code_name;
    order->code_fd = order->failure_fd = -1;
}

void order_fail(struct order *order, int code, const char *what)
{
    if (order->failure_code)
        return;
    order->failure_code = code;
    (void)snprintf(order->failure, sizeof(order->failure), "%s: %s", what, strerror(code));
}

void order_absent(struct order *order, int code, const char *what)
{
    order->absent |= !order->failure_code;
    order_fail(order, code, what);
}

/*** what arrives ***/

/* A new file each time: an old one may be linked, open or being executed somewhere. The guest may read
 * it and, being somebody else in the native engine, not change it. */
static void make_code(struct order *order)
{
    int dir = order->config->run_dir_fd;
    if (unlinkat(dir, order->code_name, 0) < 0 && errno != ENOENT) {
        order_fail(order, errno, "replace code");
        return;
    }
    order->code_fd =
        openat(dir, order->code_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (order->code_fd < 0 || fchmod(order->code_fd, 0444) < 0)
        order_fail(order, errno, "make code");
}

void order_begin(struct order *order, const struct frame_run *spec)
{
    order->spec = *spec;
    order->args_len = 0;
    order->code_len = 0;
    order->failure_code = 0;
    order->absent = false;
    if (spec->has_code)
        make_code(order);
}

int order_args(struct order *order, const char *bytes, size_t len)
{
    if (len > order->spec.args_len - order->args_len)
        return -EPROTO;
    memcpy(order->args + order->args_len, bytes, len);
    order->args_len += (uint32_t)len;
    return 0;
}

int order_code(struct order *order, const char *bytes, size_t len)
{
    if (len > order->spec.code_len - order->code_len)
        return -EPROTO;
    order->code_len += len;
    for (size_t done = 0; done < len && !order->failure_code;) {
        ssize_t n = write(order->code_fd, bytes + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            order_fail(order, n < 0 ? errno : EIO, "write code");
        else
            done += (size_t)n;
    }
    return 0;
}

/* The next string of `args`, or NULL when they end. */
static const char *next_string(struct order *order, size_t *at)
{
    char *end = memchr(order->args + *at, '\0', order->args_len - *at);
    if (!end)
        return NULL;
    const char *text = order->args + *at;
    *at = (size_t)(end - order->args) + 1;
    return text;
}

static bool same_name(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");
    return strncmp(a, b, len + 1) == 0;
}

static void set_env(struct order *order, size_t *count, const char *var)
{
    for (size_t i = 0; i < *count; i++)
        if (same_name(order->env[i], var)) {
            order->env[i] = var;
            return;
        }
    order->env[(*count)++] = var;
}

static int split_args(struct order *order)
{
    size_t at = 0, env_count = 0;
    for (uint32_t i = 0; i < order->spec.argc; i++)
        if (!(order->argv[i] = next_string(order, &at)))
            return -EPROTO;
    order->argv[order->spec.argc] = NULL;
    for (const char *const *var = order->config->env; *var; var++)
        set_env(order, &env_count, *var);
    for (uint32_t i = 0; i < order->spec.envc; i++) {
        const char *var = next_string(order, &at);
        if (!var || !strchr(var, '='))
            return -EPROTO;
        set_env(order, &env_count, var);
    }
    order->env[env_count] = NULL;
    order->cwd = next_string(order, &at);
    return order->cwd && at == order->spec.args_len ? 0 : -EPROTO;
}

int order_complete(struct order *order)
{
    if (order->args_len != order->spec.args_len || order->code_len != order->spec.code_len)
        return -EPROTO;
    close_slot(&order->code_fd); /* before the fork: a file open for writing is not executed */
    return order->spec.joined ? 0 : split_args(order);
}

/*** start ***/

/* A kernel lets SIGINT in when it has a handler: an interrupt that comes before must wait, from the
 * fork on. */
static pid_t fork_holding_interrupts(const struct config *config)
{
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    if (sigprocmask(SIG_BLOCK, &interrupt, &before) < 0)
        return -errno;
    pid_t pid = guest_fork(config);
    if (pid != 0)
        (void)sigprocmask(SIG_SETMASK, &before, NULL); /* that it could be set has been seen */
    return pid;
}

bool order_launch(struct order *order, bool with_channel, struct process *ret)
{
    struct pipes pipes;
    int r = pipes_open(&pipes, (order->spec.input_len > 0 ? PIPES_INPUT : 0u) |
                                   (with_channel ? PIPES_CHANNEL : 0u));
    if (r < 0) {
        order_fail(order, -r, "make pipes");
        return false;
    }
    pid_t pid = with_channel ? fork_holding_interrupts(order->config) : guest_fork(order->config);
    if (pid == 0) {
        const struct guest_program program = { order->argv, order->env, order->cwd };
        struct guest_fds fds = {
            .stdio = { pipes.in[0], pipes.out[1], pipes.err[1] },
            .channel_fd = pipes.channel[1],
            .failure_fd = pipes.failure[1],
        };
        guest_exec(order->config, &fds, &program);
    }
    if (pid < 0) {
        pipes_close(&pipes);
        order_fail(order, -pid, "start process");
        return false;
    }
    order->failure_fd = pipes.failure[0];
    *ret = (struct process){
        .pid = pid,
        .in_fd = pipes.in[1],
        .out_fd = pipes.out[0],
        .err_fd = pipes.err[0],
        .channel_fd = pipes.channel[0],
    };
    pipes.failure[0] = pipes.out[0] = pipes.err[0] = pipes.in[1] = pipes.channel[0] = -1;
    pipes_close(&pipes);
    return true;
}

/*** the door ***/

bool order_hear(const struct order *order, struct visitor *ret)
{
    struct door_note note;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } control = { .space = { 0 } };
    struct iovec part = { &note, sizeof(note) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    ssize_t n = recvmsg(order->config->door_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0) /* the engine holds the other end for as long as there is a sandbox */
        return false;
    *ret = (struct visitor){ .code = EPROTO, .step = "hear from the door" };
    if (n == (ssize_t)sizeof(note) && note.magic == DOOR_STAND_IN)
        ret->stand_in = (pid_t)note.number;
    if (n != (ssize_t)sizeof(note) || note.magic != DOOR_MAGIC)
        return true;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    struct ucred who = { 0 };
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_CREDENTIALS)
        memcpy(&who, CMSG_DATA(header), sizeof(who));
    note.step[sizeof(note.step) - 1] = '\0';
    ret->pid = who.pid;
    ret->number = note.number;
    ret->code = note.code;
    _Static_assert(sizeof(ret->step) == sizeof(note.step), "copied whole");
    memcpy(ret->step, note.step, sizeof(ret->step));
    return true;
}

bool order_is_child(pid_t pid)
{
    siginfo_t info;
    return pid > 1 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool order_joined(struct order *order, const struct visitor *visitor)
{
    if (visitor->code)
        order_absent(order, visitor->code > 0 ? visitor->code : EPROTO, visitor->step);
    else if (!order_is_child(visitor->pid))
        order_absent(order, ESRCH, "join as a stranger");
    return !order->failure_code;
}

/*** the end ***/

void order_check_child(struct order *order)
{
    struct guest_failure failure;
    if (order->failure_fd >= 0 &&
        read(order->failure_fd, &failure, sizeof(failure)) == (ssize_t)sizeof(failure)) {
        failure.step[sizeof(failure.step) - 1] = '\0';
        order_fail(order, failure.code, failure.step);
    }
    close_slot(&order->failure_fd);
}

bool order_send_exit(const struct order *order, struct wire *wire, uint32_t number, int status,
                     struct frame_exit *exit)
{
    exit->failed = order->failure_code != 0;
    exit->absent = order->absent;
    exit->signaled = !exit->failed && WIFSIGNALED(status);
    exit->code = exit->failed     ? (uint32_t)order->failure_code
                 : exit->signaled ? (uint32_t)WTERMSIG(status)
                                  : (uint32_t)WEXITSTATUS(status);
    char payload[FRAME_EXIT_SIZE + FRAME_FAILURE_MAX];
    frame_exit_put(payload, exit);
    size_t words = exit->failed ? strlen(order->failure) : 0;
    memcpy(payload + FRAME_EXIT_SIZE, order->failure, words);
    return wire_say(wire, FRAME_EXIT, number, payload, FRAME_EXIT_SIZE + words);
}

void order_end(struct order *order)
{
    if (order->spec.has_code)
        (void)unlinkat(order->config->run_dir_fd, order->code_name, 0); /* gives its memory back */
}
