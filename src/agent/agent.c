/*
 * The agent: pid 1 of a sandbox. It starts what the server tells it to start, passes bytes between
 * guest and server, works on files, reaps, and kills.
 *
 *     server ══ stream (fd 3) ══ agent (pid 1) ─┬─ main process of the run ─ whatever it starts
 *                                               ├─ the kernel ─ whatever it starts
 *                                               └─ workers, one for each piece of file work
 *
 * One process, one loop, no allocation: every buffer is in `agent` below and has a fixed size. Each turn
 * does a bounded amount of work, whatever the guest does. Nothing blocks: pipes and stream are polled,
 * and what could hang in a file system is done by workers.
 *
 * It outlives its guest. A signal from inside the pid namespace does not reach pid 1 unless pid 1 asked
 * for it, and it asks for none (SIGCHLD is blocked and read from a descriptor); it is undumpable, so
 * nobody traces it; it has its own cgroup and its own descriptor table. When the stream ends it exits,
 * and with pid 1 the kernel ends everything in the namespace: that is how sandboxes die with a server
 * that is killed.
 *
 * Unless it has been told to stay (stay.h). Then it is *alone* for a while. What is said to nobody is dropped;
 * what runs is interrupted, and killed after a grace; a kernel that was told or was saying something that
 * nobody can complete is killed, too. Whoever joins hears that all is quiet before anything else, and where
 * the numbers go on.
 *
 * The end of a run kills everything else in the namespace: kill(-1) goes to every process there is under
 * one lock, so neither double forks nor stopped or signal-proof processes escape it, and a process that
 * is forking at that moment finds the signal before it has a child. File workers would die too. They
 * get GRACE_MS to finish, no new one is started meanwhile, and who is cut off all the same hears
 * EAGAIN, on which the server asks again. Then children are reaped until there are none.
 *
 * Where one of run and kernel ends and the other is to live, kill(-1) is not for us: procs.h tells
 * who belongs to whom, those are killed one by one, and that is repeated until a look at /proc finds
 * none. A run that outruns this for STUBBORN_MS, or a sandbox without /proc, costs the kernel its life:
 * that nothing of a run stays is worth more. In the other direction it is not: a kernel that ends
 * beside a run takes with it what was below it when it was killed, or when it ended by itself what is
 * in its session; others that it has sent away on their own are found when the run ends.
 */
#include "agent/agent.h"
#include "agent/clock.h"
#include "agent/counts.h"
#include "agent/file.h"
#include "agent/kernel.h"
#include "agent/procs.h"
#include "agent/run.h"
#include "agent/signals.h"
#include "agent/stay.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum {
    GRACE_MS = 250,
    REAP_PER_TURN = 256, /* a flood of zombies does not keep us from the server */
    RETRY_MS = 20,       /* between attempts to kill what had no parent in sight */
    LOOKS_PER_TURN = 4,  /* at /proc */
    LOOK_AGAIN_MS = 2,
    STUBBORN_MS = 2000,
    JOINED_GRACE_MS = 5000, /* for what runs, at most, once somebody waits */
};

/* Where the server is in its messages to the kernel. */
struct talk {
    uint64_t cells; /* begun */
    bool in_cell;   /* something has been said since the last began */
    struct frame_follow said;
};

static struct {
    bool greeted;         /* the server has said hello */
    bool count_asked;     /* and FRAME_COUNTS is due */
    uint32_t last_number; /* of run or kernel */

    struct stay stay;
    uint64_t alone_ns;    /* since when; 0: it is not */
    uint64_t patience_ns; /* alone, or joined: what runs then is killed; 0: nothing is to */
    bool had_kernel;      /* when it was left alone */
    bool idle_due;        /* somebody has joined, and FRAME_IDLE is to be sent */
    struct talk talk;

    int signal_fd;
    short signal_ready;
    bool reap_more; /* last turn stopped at REAP_PER_TURN */
    bool childless;
    uint64_t end_ns; /* since when something is being ended; 0: nothing is */
    bool ends_all;   /* file workers included */

    struct config config;
    struct wire wire;
    struct run run;
    struct kernel kernel;
    struct files files;
} agent;

static _Noreturn void die(const char *what, int code)
{
    char line[200];
    int n = snprintf(line, sizeof(line), "belljar agent: %s: %s\n", what, strerror(code));
    if (n > 0)
        (void)!write(STDERR_FILENO, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
    _exit(1);
}

/*** the dead ***/

/* The next of them; 0: none; -1: nobody is left. */
static pid_t next_dead(void)
{
    siginfo_t info = { 0 };
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ? -1 : info.si_pid;
}

static void reap(void)
{
    agent.reap_more = true;
    for (int i = 0; i < REAP_PER_TURN; i++) {
        int status;
        struct rusage usage;
        pid_t pid = next_dead();
        if (pid <= 0) {
            agent.childless = pid < 0;
            agent.reap_more = false;
            return;
        }
        if (kernel_may_know(&agent.kernel, pid))
            return; /* the next turn knows */
        if (wait4(pid, &status, WNOHANG, &usage) != pid)
            return; /* cannot be */
        if (!files_reaped(&agent.files, pid) && !kernel_reaped(&agent.kernel, pid, status, &usage))
            run_reaped(&agent.run, pid, status, &usage);
    }
}

/*** ends ***/

/* Our children, as the kernel lists them; for an agent that is not pid 1. Killing them makes theirs
 * ours, so that repeating it comes to an end. */
static void kill_children(void)
{
    char path[64];
    static char list[16 * 1024];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("list children", errno);
    ssize_t n = read(fd, list, sizeof(list) - 1);
    close(fd);
    list[n > 0 ? n : 0] = '\0';
    for (char *at = list, *next; *at; at = next) {
        long pid = strtol(at, &next, 10);
        if (next == at || *next != ' ')
            break; /* a number that was cut; it is read whole next time */
        next++;
        (void)kill((pid_t)pid, SIGKILL);
    }
}

static void kill_everything(void)
{
    if (!agent.config.is_init)
        kill_children();
    else if (kill(-1, SIGKILL) < 0 && errno != ESRCH)
        die("kill", errno);
}

/* Everybody. True when nobody is left. */
static bool end_all(struct pollset *set, uint64_t now)
{
    if (agent.childless)
        return true;
    uint64_t grace_end = agent.end_ns + GRACE_MS * NS_PER_MS;
    if (files_working(&agent.files) && now < grace_end) {
        pollset_wake(set, grace_end);
        return false;
    }
    files_cut(&agent.files);
    kill_everything();
    pollset_wake(set, now + RETRY_MS * NS_PER_MS);
    return false;
}

/* Of a few looks the last result; 0 when one found nobody. */
static int kill_some(enum procs_target target, pid_t kernel)
{
    int left = 1;
    for (int i = 0; i < LOOKS_PER_TURN && left > 0; i++) {
        left = procs_kill(target, &agent.config, kernel, &agent.files);
        reap();
    }
    return left;
}

/* The run, beside a kernel that goes on. */
static bool end_run(struct pollset *set, uint64_t now)
{
    int left = kill_some(PROCS_RUN, agent.kernel.pid);
    if (left == 0)
        return true;
    if (left < 0)
        kernel_give_up(&agent.kernel, -left, "tell the kernel from a run that ends");
    else if (now > agent.end_ns + STUBBORN_MS * NS_PER_MS)
        kernel_give_up(&agent.kernel, EBUSY, "end a run beside the kernel");
    pollset_wake(set, now + LOOK_AGAIN_MS * NS_PER_MS);
    return false;
}

/* The kernel, beside a run that goes on. Stopped first, it starts nobody else and its orphans are its
 * own until it dies as the last. */
static bool end_kernel(struct pollset *set, uint64_t now)
{
    struct kernel *kernel = &agent.kernel;
    bool patient = now < agent.end_ns + STUBBORN_MS * NS_PER_MS;
    pollset_wake(set, now + LOOK_AGAIN_MS * NS_PER_MS);
    if (!kernel->pid)
        return !kernel->session || kill_some(PROCS_SESSION, kernel->session) <= 0 || !patient;
    (void)kill(kernel->pid, SIGSTOP);
    bool last = kill_some(PROCS_BELOW, kernel->pid) <= 0 || !patient;
    if (last && kernel->pid) /* it may have been reaped just now, and 0 would be all of our group */
        (void)kill(kernel->pid, SIGKILL);
    return false;
}

static bool something_ends(void)
{
    return agent.run.state == RUN_ENDING || agent.kernel.state == KERNEL_ENDING;
}

static void end_step(struct pollset *set)
{
    agent.ends_all = false;
    if (!something_ends()) {
        agent.end_ns = 0;
        return;
    }
    uint64_t now = clock_ns();
    if (!agent.end_ns)
        agent.end_ns = now;
    reap();
    bool run_ends = agent.run.state == RUN_ENDING;
    bool kernel_ends = agent.kernel.state == KERNEL_ENDING;
    bool over;
    if (agent.run.state == RUN_GOING)
        over = end_kernel(set, now);
    else if (agent.kernel.state == KERNEL_GOING)
        over = end_run(set, now);
    else
        agent.ends_all = !(over = end_all(set, now));
    if (over && run_ends)
        run_alone(&agent.run);
    if (over && kernel_ends)
        kernel_alone(&agent.kernel);
    if (over && something_ends())
        pollset_wake(set, 0); /* the other has died while we were at it */
}

/*** alone, and in company again ***/

static _Noreturn void end_with_server(void)
{
    /* Outside a pid namespace nobody else ends them. */
    if (!agent.config.is_init)
        while (kill_children(), waitpid(-1, NULL, 0) > 0)
            ;
    _exit(0);
}

static bool kernel_is_quiet(void)
{
    const struct kernel *kernel = &agent.kernel;
    if (kernel->state != KERNEL_GOING)
        return kernel->state == KERNEL_NONE;
    return kernel->pid && kernel->relay.cell == CELL_OUTSIDE && !kernel->relay.said_left &&
           !kernel->relay.said.head_len && !kernel->talk.len && !kernel->talk.ask;
}

static bool is_quiet(void)
{
    if (agent.run.state != RUN_IDLE || !kernel_is_quiet())
        return false;
    for (size_t i = 0; i < FILE_SLOTS; i++)
        if (agent.files.slots[i].state != FILE_FREE)
            return false;
    return true;
}

static void interrupt_kernel(void)
{
    struct kernel *kernel = &agent.kernel;
    if (kernel->state == KERNEL_TAKING) {
        order_fail(&kernel->order, ECANCELED, "the server is gone");
        kernel->state = KERNEL_ENDING;
    } else if (agent.talk.said.head_len) { /* nobody will say the rest of that message */
        kernel_kill(kernel);
    } else if (kernel->state == KERNEL_GOING && kernel->relay.cell != CELL_OUTSIDE) {
        kernel_interrupt(kernel);
        if (!agent.talk.in_cell && kernel->relay.cell != CELL_CLOSING)
            (void)kernel_cell_end(kernel); /* of a cell that was never said */
    }
}

static void leave_stream(void)
{
    wire_mute(&agent.wire, false);
    wire_close(&agent.wire);
    agent.count_asked = agent.idle_due = false;
    agent.alone_ns = clock_ns();
    agent.patience_ns = agent.alone_ns + agent.stay.keep.grace_ms * NS_PER_MS;
    agent.had_kernel = agent.kernel.state != KERNEL_NONE;
    run_abandon(&agent.run);
    run_interrupt(&agent.run);
    interrupt_kernel();
}

static void be_alone(void)
{
    stay_dismiss(&agent.stay);
    leave_stream();
}

/* The latest stream is the one that counts: an engine may be late to tell of another's end. It has been
 * greeted. */
static void be_joined(int in_fd, int out_fd)
{
    if (!agent.alone_ns)
        leave_stream();
    int r = wire_init(&agent.wire, in_fd, out_fd);
    if (r < 0)
        die("stream", -r);
    uint64_t most = clock_ns() + JOINED_GRACE_MS * NS_PER_MS;
    if (agent.patience_ns > most)
        agent.patience_ns = most;
    agent.alone_ns = 0;
    agent.greeted = false;
    agent.idle_due = true;
    wire_mute(&agent.wire, true);
}

static void tell_idle(void)
{
    char payload[FRAME_IDLE_SIZE];
    bool kernel = agent.kernel.state == KERNEL_GOING;
    if (!agent.idle_due || !agent.greeted || !is_quiet())
        return;
    wire_mute(&agent.wire, false);
    frame_idle_put(payload, &(struct frame_idle){ .program = agent.last_number,
                                                  .file = agent.files.last_number,
                                                  .kernel = kernel ? agent.kernel.number : 0,
                                                  .cells = kernel ? agent.talk.cells : 0,
                                                  .lost = agent.had_kernel && !kernel });
    if (!wire_say(&agent.wire, FRAME_IDLE, 0, payload, sizeof(payload)))
        return;
    agent.idle_due = false;
    agent.patience_ns = 0;
}

/* Between two servers. */
static void stay_alive(struct pollset *set)
{
    int in_fd, out_fd;
    if (stay_lost(&agent.stay) && !agent.alone_ns)
        be_alone(); /* an engine closes the stream of a helper that has ended, soon */
    if (stay_step(&agent.stay, &agent.config, &in_fd, &out_fd))
        be_joined(in_fd, out_fd);
    uint64_t now = clock_ns();
    if (agent.alone_ns) {
        uint64_t end_ns = agent.alone_ns + agent.stay.keep.keep_ms * NS_PER_MS;
        if (now >= end_ns)
            end_with_server();
        pollset_wake(set, end_ns);
    }
    if (!agent.patience_ns)
        return;
    if (is_quiet()) {
        agent.patience_ns = agent.idle_due ? agent.patience_ns : 0;
    } else if (now < agent.patience_ns) {
        pollset_wake(set, agent.patience_ns);
    } else {
        run_kill(&agent.run);
        if (!kernel_is_quiet())
            kernel_kill(&agent.kernel);
    }
}

/*** frames from the server ***/

static int take_hello(const struct frame *frame)
{
    struct frame_hello hello;
    if (agent.greeted || frame_hello_get(frame, &hello) < 0 || hello.magic != FRAME_MAGIC ||
        hello.version != FRAME_VERSION)
        return -EPROTO;
    agent.greeted = true;
    return 0;
}

static int take_ping(const struct frame *frame)
{
    if (frame->len > 8)
        return -EPROTO;
    return wire_say(&agent.wire, FRAME_PONG, 0, frame->payload, frame->len) ? 0 : -ENOBUFS;
}

static int take_count(const struct frame *frame)
{
    if (frame->number != 0 || frame->len != 0 || agent.count_asked)
        return -EPROTO;
    agent.count_asked = true;
    return 0;
}

static void tell_counts(void)
{
    char payload[FRAME_COUNTS_SIZE];
    struct frame_counts counts;
    if (!agent.count_asked)
        return;
    counts_read(&counts);
    frame_counts_put(payload, &counts);
    agent.count_asked = !wire_say(&agent.wire, FRAME_COUNTS, 0, payload, sizeof(payload));
}

static int take_keep(const struct frame *frame)
{
    struct frame_keep keep;
    if (frame->number != 0 || frame_keep_get(frame, &keep) < 0)
        return -EPROTO;
    stay_keep(&agent.stay, &keep);
    return 0;
}

static int take_announcement(const struct frame *frame)
{
    struct frame_run spec;
    if (frame_run_get(frame, &spec) < 0 || frame->number <= agent.last_number)
        return -EPROTO;
    agent.last_number = frame->number;
    if (frame->type == FRAME_RUN) {
        kernel_dismiss_stand_in(&agent.kernel);
        return run_announce(&agent.run, frame->number, &spec);
    }
    run_unprepare(&agent.run);
    agent.talk = (struct talk){ 0 };
    return kernel_announce(&agent.kernel, frame->number, &spec);
}

static int take_file(const struct frame *frame)
{
    struct frame_file request;
    int r = frame_file_get(frame, &request);
    return r < 0 ? r : files_request(&agent.files, frame->number, &request);
}

static int take_for_run(const struct frame *frame)
{
    switch (frame->type) {
    case FRAME_ARGS:
        return run_args(&agent.run, frame->payload, frame->len);
    case FRAME_CODE:
        return run_code(&agent.run, frame->payload, frame->len);
    case FRAME_START:
        return run_start(&agent.run);
    case FRAME_INPUT:
        return run_input(&agent.run, frame->payload, frame->len);
    case FRAME_INTERRUPT:
        run_interrupt(&agent.run);
        return 0;
    case FRAME_KILL:
        run_kill(&agent.run);
        return 0;
    default:
        return -EPROTO;
    }
}

static int take_cell(const struct frame *frame)
{
    struct frame_cell limits;
    int r = frame_cell_get(frame, &limits);
    agent.talk.cells++;
    agent.talk.in_cell = false;
    return r < 0 ? r : kernel_cell(&agent.kernel, &limits);
}

static int take_talk(const struct frame *frame)
{
    const char *at = frame->payload;
    size_t left = frame->len;
    uint32_t unused;
    agent.talk.in_cell = true;
    while (frame_follow(&agent.talk.said, &at, &left, &unused))
        ;
    return kernel_talk(&agent.kernel, frame->payload, frame->len);
}

static int take_for_kernel(const struct frame *frame)
{
    switch (frame->type) {
    case FRAME_ARGS:
        return kernel_args(&agent.kernel, frame->payload, frame->len);
    case FRAME_CODE:
        return kernel_code(&agent.kernel, frame->payload, frame->len);
    case FRAME_START:
        return kernel_start(&agent.kernel);
    case FRAME_TALK:
        return take_talk(frame);
    case FRAME_CELL:
        return take_cell(frame);
    case FRAME_CELL_END:
        return kernel_cell_end(&agent.kernel);
    case FRAME_INTERRUPT:
        kernel_interrupt(&agent.kernel);
        return 0;
    case FRAME_KILL:
        kernel_kill(&agent.kernel);
        return 0;
    default:
        return -EPROTO;
    }
}

/* These belong to the run or kernel that is named. To one that has just ended they come too late; its
 * end is under way to the server. */
static int take_for_program(const struct frame *frame)
{
    if (agent.run.state != RUN_IDLE && frame->number == agent.run.number)
        return take_for_run(frame);
    if (agent.kernel.state != KERNEL_NONE && frame->number == agent.kernel.number)
        return take_for_kernel(frame);
    return frame->number <= agent.last_number ? 0 : -EPROTO;
}

static int take_work(const struct frame *frame)
{
    switch (frame->type) {
    case FRAME_COUNT:
        return take_count(frame);
    case FRAME_KEEP:
        return take_keep(frame);
    case FRAME_RUN:
    case FRAME_KERNEL:
        return take_announcement(frame);
    case FRAME_ARGS:
    case FRAME_CODE:
    case FRAME_START:
    case FRAME_INPUT:
    case FRAME_INTERRUPT:
    case FRAME_KILL:
    case FRAME_TALK:
    case FRAME_CELL:
    case FRAME_CELL_END:
        return take_for_program(frame);
    case FRAME_FILE:
        return take_file(frame);
    case FRAME_FILE_PUT:
        return files_put(&agent.files, frame->number, frame->payload, frame->len);
    default:
        return -EPROTO;
    }
}

/* Whoever has joined waits until all is quiet. */
static int take(const struct frame *frame)
{
    if (!agent.greeted && frame->type != FRAME_HELLO)
        return -EPROTO;
    switch (frame->type) {
    case FRAME_HELLO:
        return take_hello(frame);
    case FRAME_PING:
        return take_ping(frame);
    default:
        return agent.idle_due ? -EPROTO : take_work(frame);
    }
}

static void take_frames(void)
{
    int r = wire_read(&agent.wire);
    if ((r == -EPIPE || r == -ECONNRESET) && agent.stay.wanted) {
        be_alone();
        return;
    }
    if (r == -EPIPE || r == -ECONNRESET)
        end_with_server();
    struct frame frame;
    while (r == 0 && (r = wire_next(&agent.wire, &frame)) > 0)
        r = take(&frame);
    if (r < 0)
        die("stream", -r);
}

/*** the loop ***/

static int timeout_ms(const struct pollset *set)
{
    if (set->wake_ns == UINT64_MAX)
        return -1;
    uint64_t now = clock_ns();
    if (set->wake_ns <= now)
        return 0;
    uint64_t ms = (set->wake_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

static void wait_for_something(struct pollset *set)
{
    wire_poll(&agent.wire, set);
    pollset_add(set, agent.signal_fd, POLLIN, &agent.signal_ready);
    run_poll(&agent.run, set);
    kernel_poll(&agent.kernel, set);
    files_poll(&agent.files, set);
    stay_poll(&agent.stay, set);
    if (agent.reap_more)
        pollset_wake(set, 0);
    if (poll(set->fds, set->count, timeout_ms(set)) < 0)
        return; /* EINTR, or the kernel is short of memory: look again */
    for (size_t i = 0; i < set->count; i++)
        *set->ret_ready[i] = set->fds[i].revents;
}

static _Noreturn void serve(void)
{
    struct pollset set = { .wake_ns = UINT64_MAX };
    for (;;) {
        wait_for_something(&set);
        set = (struct pollset){ .wake_ns = UINT64_MAX };

        if (agent.signal_ready) {
            struct signalfd_siginfo info;
            (void)!read(agent.signal_fd, &info, sizeof(info)); /* wait4() knows more */
        }
        if (agent.wire.ready & (POLLIN | POLLHUP | POLLERR))
            take_frames();
        stay_alive(&set);
        tell_counts();
        if (agent.signal_ready || agent.reap_more)
            reap();
        run_step(&agent.run);
        kernel_step(&agent.kernel);
        end_step(&set);
        if (agent.run.state == RUN_FLUSHING)
            run_step(&agent.run); /* not a turn later */
        if (agent.kernel.state == KERNEL_FLUSHING)
            kernel_step(&agent.kernel);
        files_step(&agent.files, !agent.ends_all);
        tell_idle();
        int r = wire_flush(&agent.wire);
        if (r < 0 && r != -EPIPE && r != -ECONNRESET)
            die("stream", -r); /* of a closed one the read tells */
    }
}

static int set_signals(void)
{
    sigset_t mask;
    /* Only SIGCHLD is blocked: others are ignored by nature of pid 1, where blocked ones would queue
     * up at a guest's will. */
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signals_default(sig); /* guests inherit; KILL and STOP refuse, and need it not */
    (void)signal(SIGPIPE, SIG_IGN);
    return sigprocmask(SIG_SETMASK, &mask, NULL) < 0 ? -errno : 0;
}

static void say_hello(void)
{
    char hello[FRAME_HELLO_SIZE];
    frame_hello_put(hello, &(struct frame_hello){ .magic = FRAME_MAGIC, .version = FRAME_VERSION });
    (void)wire_say(&agent.wire, FRAME_READY, 0, hello, sizeof(hello)); /* it is empty */
    (void)wire_flush(&agent.wire); /* of a closed stream the read tells */
}

/* What is the same for all agents of a mould; of its memory a child copies what it writes to. */
static void lay_out(void)
{
    run_init(&agent.run, &agent.config, &agent.wire);
    kernel_init(&agent.kernel, &agent.config, &agent.wire);
    files_init(&agent.files, &agent.config, &agent.wire);
    stay_init(&agent.stay);
    agent.childless = true;
}

/* With a configuration that is loaded. */
static int begin(const char **ret_step)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    *ret_step = "signals";
    agent.signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    if (agent.signal_fd < 0)
        return -errno;
    *ret_step = "stream";
    return wire_init(&agent.wire, AGENT_STREAM_FD, agent.config.out_fd);
}

int agent_cast(const struct sys_filter *filter, uint32_t n_filter)
{
    lay_out();
    int r = set_signals();
    return r < 0 ? r : config_cast(&agent.config, filter, n_filter);
}

int agent_begin(const struct agent_setup *setup, const char **ret_step)
{
    agent.config.setup = *setup;
    int r = config_load(&agent.config, CONFIG_CAST, AGENT_WORKSPACE, AGENT_RUN_DIR, ret_step);
    return r < 0 ? r : begin(ret_step);
}

void agent_serve(void)
{
    say_hello();
    if (!agent.config.setup.no_understudy)
        run_prepare(&agent.run);
    serve();
}

int agent_main(int argc, char **argv)
{
    const char *step;
    if (argc > 1 && strcmp(argv[1], AGENT_JOIN) == 0)
        return stay_help();
    enum config_source source = argc < 2                               ? CONFIG_GIVEN
                                : strcmp(argv[1], AGENT_STDIO) == 0    ? CONFIG_STDIO
                                : strcmp(argv[1], AGENT_DEFAULTS) == 0 ? CONFIG_DEFAULTS
                                                                       : CONFIG_GIVEN;
    argc -= source != CONFIG_GIVEN;
    argv += source != CONFIG_GIVEN;
    int r = config_load(&agent.config, source, argc > 1 ? argv[1] : AGENT_WORKSPACE,
                        argc > 2 ? argv[2] : AGENT_RUN_DIR, &step);
    if (r == 0) {
        step = "signals";
        r = set_signals();
    }
    lay_out();
    if (r == 0)
        r = begin(&step);
    if (r < 0)
        die(step, -r);
    agent_serve();
}
