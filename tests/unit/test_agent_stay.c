/*
 * An agent that outlives its stream, and whoever joins it; how it is started: agent_box.h. In a network namespace of
 * its own, whose abstract sockets are nobody else's.
 */
#include "agent_box.h"
#include "check.h"

#include "agent/frame.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEEP_MS = 20000, GRACE_MS = 300, OTHER_ID = 65533 };

/*** who joins ***/

/* Connects as this user and hands over `stream`, twice: as a helper does. */
_Noreturn static void help(uid_t uid, int stream)
{
    static const char name[] = "\0belljar-agent";
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fds[2] = { stream, stream };
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(fds))];
    } control = { 0 };
    struct iovec part = { &(char){ 0 }, 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    /* Streams of others, which would not end. */
    (void)syscall(SYS_close_range, 3, stream - 1, 0);
    (void)syscall(SYS_close_range, stream + 1, ~0U, 0);
    memcpy(address.sun_path, name, sizeof(name) - 1);
    control.head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                                     .cmsg_type = SCM_RIGHTS,
                                     .cmsg_len = CMSG_LEN(sizeof(fds)) };
    memcpy(CMSG_DATA(&control.head), fds, sizeof(fds));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(name) - 1);
    if (setresuid(uid, uid, uid) < 0 || connect(fd, (struct sockaddr *)&address, len) < 0)
        _exit(1);
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    close(stream);
    char byte;
    _exit(sent == 1 && read(fd, &byte, 1) == 0 ? 0 : 2); /* until the agent lets go of us */
}

static pid_t join_as(uid_t uid, int *ret_stream)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    if (pid == 0)
        help(uid, ends[1]);
    assert_true(pid > 0);
    close(ends[1]);
    *ret_stream = ends[0];
    return pid;
}

static pid_t resume(struct box *box)
{
    int stream;
    pid_t helper = join_as(OTHER_ID, &stream);
    box->ready = box->broken = false;
    box->link = link_resume(&box->loop, stream, &box_events, box);
    box_wait(box, &box->ready);
    return helper;
}

static void leave(struct box *box)
{
    link_free(box->link);
    box->link = NULL;
    for (int i = 0; i < 5; i++)
        uv_run(&box->loop, UV_RUN_NOWAIT);
}

static void keep(struct box *box, uint64_t keep_ms)
{
    auto_result result = { 0 };
    link_keep(box->link, keep_ms, GRACE_MS);
    box_run(box, &SH("true"), &result); /* what came before it has been heard */
}

static void expect_helper_gone(pid_t helper)
{
    int status = -1;
    assert_int_equal(waitpid(helper, &status, 0), helper);
    CHECK_INT("the helper ends with its stream", status, 0);
}

/* Ends it with its sandbox, so that the box can be closed. */
static void end(struct box *box)
{
    link_keep(box->link, /* keep_ms= */ 1, GRACE_MS);
}

/*** tests ***/

static void test_the_next_stream_goes_on(void **state)
{
    struct box *box = *state;
    pid_t before = 0;
    keep(box, KEEP_MS);
    for (int i = 0; i < 3; i++) {
        leave(box);
        if (before)
            expect_helper_gone(before);
        before = resume(box);
        auto_result result = { 0 };
        box_run(box, &SH("echo x >> f; wc -l < f"), &result);
        CHECK_INT("lines", buf_str(&result.out)[0], '1' + i);
    }
    end(box);
}

static void test_what_ran_is_interrupted_or_killed(void **state)
{
    struct box *box = *state;
    static const char *const scripts[] = { "echo begun; sleep 100",
                                           "trap '' INT; echo begun; while :; do sleep 1; done",
                                           "echo begun; yes" };
    keep(box, KEEP_MS);
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        auto_result lost = { 0 };
        box_start(box, &SH(scripts[i]), &lost);
        box_wait_output(box, &lost);
        leave(box);
        CHECK("its link is gone", lost.done && lost.failed);
        (void)resume(box);
        auto_result result = { 0 };
        box_run(box, &SH("echo quiet"), &result);
        CHECK_STR(scripts[i], buf_str(&result.out), "quiet\n");
    }
    end(box);
}

static void put_hello(int stream)
{
    char frame[FRAME_HEADER + FRAME_HELLO_SIZE];
    frame_put_header(frame, FRAME_HELLO, 0, FRAME_HELLO_SIZE);
    frame_hello_put(frame + FRAME_HEADER, &(struct frame_hello){ FRAME_MAGIC, FRAME_VERSION });
    assert_int_equal(write(stream, frame, sizeof(frame)), sizeof(frame));
}

/* A server that dies in the middle of a frame, and of a run's announcement. */
static void test_half_a_frame_is_forgotten(void **state)
{
    struct box *box = *state;
    keep(box, KEEP_MS);
    leave(box);
    char frame[FRAME_HEADER + FRAME_RUN_SIZE];
    const struct frame_run run = {
        .code_len = 1000, .has_code = true, .args_len = 4, .argc = 1, .flood_bytes = 9
    };
    frame_put_header(frame, FRAME_RUN, 100, FRAME_RUN_SIZE);
    frame_run_put(frame + FRAME_HEADER, &run);
    for (size_t len = sizeof(frame) - 20; len <= sizeof(frame); len += 20) {
        int stream;
        char heard[FRAME_HEADER * 2 + FRAME_HELLO_SIZE + FRAME_IDLE_SIZE];
        pid_t helper = join_as(OTHER_ID, &stream);
        put_hello(stream);
        assert_int_equal(recv(stream, heard, sizeof(heard), MSG_WAITALL), sizeof(heard));
        CHECK_INT("hello", (unsigned char)heard[4], FRAME_READY);
        CHECK_INT("quiet", (unsigned char)heard[FRAME_HEADER + FRAME_HELLO_SIZE + 4], FRAME_IDLE);
        assert_int_equal(write(stream, frame, len), len);
        close(stream);
        expect_helper_gone(helper);
    }
    (void)resume(box);
    auto_result result = { 0 };
    box_run(box, &SH("echo whole"), &result);
    CHECK_STR("out", buf_str(&result.out), "whole\n");
    end(box);
}

static void test_who_is_a_guest_may_not_join(void **state)
{
    struct box *box = *state;
    int stream;
    char byte;
    keep(box, KEEP_MS);
    pid_t guest = join_as(getuid(), &stream);
    int status = -1;
    assert_int_equal(waitpid(guest, &status, 0), guest);
    CHECK("turned away", WIFEXITED(status));
    CHECK_INT("nothing is said", recv(stream, &byte, 1, 0), 0);
    close(stream);
    auto_result result = { 0 };
    box_run(box, &SH("echo still here"), &result);
    CHECK_STR("out", buf_str(&result.out), "still here\n");
    end(box);
}

static void test_the_latest_stream_counts(void **state)
{
    struct box *box = *state;
    keep(box, KEEP_MS);
    struct link *old = box->link;
    (void)resume(box);
    auto_result result = { 0 };
    box_run(box, &SH("echo later"), &result);
    CHECK_STR("out", buf_str(&result.out), "later\n");
    link_free(old);
    auto_result again = { 0 };
    box_run(box, &SH("echo still"), &again);
    CHECK_STR("out", buf_str(&again.out), "still\n");
    end(box);
}

/* An engine may start the helper of a server that is dead, late. */
static void test_a_stream_on_which_nothing_is_said_takes_nobodys_place(void **state)
{
    struct box *box = *state;
    keep(box, KEEP_MS);
    leave(box);
    pid_t ours = resume(box);
    for (int i = 0; i < 10; i++) {
        int stream;
        pid_t late = join_as(OTHER_ID, &stream);
        if (i % 2) { /* it may hear the agent's hello, and say nothing */
            char hello[FRAME_HEADER + FRAME_HELLO_SIZE];
            assert_int_equal(recv(stream, hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
        }
        close(stream);
        expect_helper_gone(late);
        auto_result result = { 0 };
        box_run(box, &SH("echo undisturbed"), &result);
        CHECK_STR("out", buf_str(&result.out), "undisturbed\n");
    }
    int silent[6]; /* more than may wait: the oldest are given up */
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        (void)join_as(OTHER_ID, &silent[i]);
    leave(box);
    expect_helper_gone(ours);
    (void)resume(box);
    auto_result result = { 0 };
    box_run(box, &SH("echo found"), &result);
    CHECK_STR("out", buf_str(&result.out), "found\n");
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        close(silent[i]);
    end(box);
}

static void test_alone_for_too_long_it_ends(void **state)
{
    struct box *box = *state;
    keep(box, 300);
    leave(box);
    siginfo_t info = { 0 };
    assert_int_equal(waitid(P_PID, (id_t)box->pid, &info, WEXITED | WNOWAIT), 0);
    CHECK_INT("exited", info.si_code, CLD_EXITED);
    CHECK_INT("status", info.si_status, 0);
}

static void test_without_being_told_it_ends_at_once(void **state)
{
    struct box *box = *state;
    leave(box);
    siginfo_t info = { 0 };
    assert_int_equal(waitid(P_PID, (id_t)box->pid, &info, WEXITED | WNOWAIT), 0);
    CHECK_INT("status", info.si_status, 0);
}

/*** with a kernel ***/

static struct {
    bool said, exited;
    size_t len;
} kernel;

static void on_message(const char *json, size_t len, void *data)
{
    (void)json, (void)data;
    kernel.said = true;
    kernel.len = len;
}

static void on_kernel_exit(const struct link_exit *exit, void *data)
{
    (void)data;
    kernel.exited = exit != NULL;
}

static const struct link_kernel_events kernel_events = { .on_message = on_message,
                                                         .on_exit = on_kernel_exit };

/* Says what it is told. */
static void start_echo(struct box *box)
{
    const struct link_kernel_spec spec = {
        .argv = (const char *const[]){ "sh", "-c", "exec cat <&3 >&3", NULL }, .cwd = ""
    };
    struct err err = { 0 };
    kernel.said = kernel.exited = false;
    if (link_kernel_start(box->link, &spec, &kernel_events, box, &err) < 0)
        fail_msg("%s", err.msg);
}

static void expect_echo(struct box *box, size_t len)
{
    auto_free char *text = xcalloc(1, len);
    struct err err = { 0 };
    kernel.said = false;
    memset(text, 'x', len);
    if (link_kernel_send(box->link, text, len, &err) < 0)
        fail_msg("%s", err.msg);
    box_wait(box, &kernel.said);
    CHECK_INT("length", kernel.len, len);
}

static void test_the_kernel_stays_between_messages(void **state)
{
    struct box *box = *state;
    uint64_t cells = 99;
    keep(box, KEEP_MS);
    start_echo(box);
    expect_echo(box, LINK_KERNEL_IDLE_MAX);
    leave(box);
    (void)resume(box);
    CHECK_INT("there", link_kernel_resume(box->link, &kernel_events, box, &cells), 0);
    CHECK_INT("cells", cells, 0);
    expect_echo(box, LINK_KERNEL_IDLE_MAX);
    link_kernel_kill(box->link);
    box_wait(box, &kernel.exited);
    end(box);
}

static void test_a_kernel_in_the_middle_of_a_message_is_lost(void **state)
{
    struct box *box = *state;
    uint64_t cells;
    struct err err = { 0 };
    auto_free char *text = xcalloc(1, 10 << 20);
    keep(box, KEEP_MS);
    start_echo(box);
    expect_echo(box, 10);
    assert_int_equal(link_kernel_send(box->link, text, 10 << 20, &err), 0); /* in many pieces */
    leave(box);
    (void)resume(box);
    CHECK_INT("lost", link_kernel_resume(box->link, &kernel_events, box, &cells), -ESRCH);
    start_echo(box);
    expect_echo(box, 10);
    link_kernel_kill(box->link);
    box_wait(box, &kernel.exited);
    end(box);
}

int main(void)
{
    static const struct box_test tests[] = {
        BOX_TEST(test_the_next_stream_goes_on),
        BOX_TEST(test_what_ran_is_interrupted_or_killed),
        BOX_TEST(test_half_a_frame_is_forgotten),
        BOX_TEST(test_who_is_a_guest_may_not_join, .modes = "plain old stdio init"),
        BOX_TEST(test_the_latest_stream_counts),
        BOX_TEST(test_a_stream_on_which_nothing_is_said_takes_nobodys_place),
        BOX_TEST(test_alone_for_too_long_it_ends),
        BOX_TEST(test_without_being_told_it_ends_at_once),
        BOX_TEST(test_the_kernel_stays_between_messages),
        BOX_TEST(test_a_kernel_in_the_middle_of_a_message_is_lost),
    };
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0) {
        printf("1..0 # SKIP another user and a network namespace take root\n");
        return 0;
    }
    return box_main_each(tests, ARRAY_SIZE(tests));
}
