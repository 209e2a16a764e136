/*
 * The first program of a sandbox, for which a process waits (agent/understudy.h). Each test has an agent
 * of its own. How it is started: agent_box.h.
 */
#include "agent_box.h"
#include "check.h"

#include "base/loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/*** looking from outside ***/

/* 0: it has none. */
static pid_t first_child(pid_t pid)
{
    auto_free char *path = xasprintf("/proc/%d/task/%d/children", (int)pid, (int)pid);
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    char list[100] = "";
    if (fd < 0 || read(fd, list, sizeof(list) - 1) <= 0)
        return 0;
    return (pid_t)strtol(list, NULL, 10);
}

static pid_t agent_of(const struct box *box)
{
    return box_mode("init") || box_mode("guest") ? first_child(box->pid) : box->pid;
}

/* A word of its status file: "State: S (sleeping)". */
static char *status_line(pid_t pid, const char *key)
{
    auto_free char *path = xasprintf("/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    char line[200] = "", *ret = NULL;
    while (file && !ret && fgets(line, sizeof(line), file))
        if (str_has_prefix(line, key))
            ret = xstrdup(line);
    if (file)
        fclose(file);
    return ret ? ret : xstrdup("");
}

static bool is_waiting(pid_t pid)
{
    auto_free char *filtered = status_line(pid, "Seccomp:");
    auto_free char *state = status_line(pid, "State:");
    return strstr(state, "S (sleeping)") && (!box_mode("guest") || strstr(filtered, "2"));
}

/* The process that waits; it takes a moment to get there. */
static pid_t understudy_of(struct box *box)
{
    pid_t pid = 0;
    for (int i = 0; i < 500; i++) {
        pid = first_child(agent_of(box));
        if (pid && is_waiting(pid))
            break;
        box_sleep(box, 10);
    }
    CHECK("somebody waits", pid > 0 && is_waiting(pid));
    return pid;
}

static void expect_childless(struct box *box)
{
    for (int i = 0; i < 500 && first_child(agent_of(box)); i++)
        box_sleep(box, 10);
    CHECK_INT("children of the agent", first_child(agent_of(box)), 0);
}

/*** who waits ***/

static void test_who_waits_is_a_guest_already(void **state)
{
    struct box *box = *state;
    pid_t pid = understudy_of(box);
    static const struct {
        const char *key, *want;
    } lines[] = {
        { "Uid:", "Uid:\t61234\t61234\t61234\t61234\n" },
        { "Gid:", "Gid:\t61234\t61234\t61234\t61234\n" },
        { "CapPrm:", "CapPrm:\t0000000000000000\n" },
        { "CapBnd:", "CapBnd:\t0000000000000000\n" },
        { "NoNewPrivs:", "NoNewPrivs:\t1\n" },
        { "Seccomp:", "Seccomp:\t2\n" },
        { "SigBlk:", "SigBlk:\t0000000000000000\n" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        auto_free char *line = status_line(pid, lines[i].key);
        CHECK_STR(lines[i].key, line, lines[i].want);
    }
    auto_free char *fds = xasprintf("/proc/%d/fd", (int)pid);
    struct stat st;
    CHECK_INT("stat", stat(fds, &st), 0);
    CHECK_INT("undumpable: its files there are not its own", st.st_uid, 0);
    DIR *dir = opendir(fds);
    assert_non_null(dir);
    auto_buf seen = BUF_INIT(1000);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            (void)buf_add(&seen, entry->d_name, strlen(entry->d_name));
    closedir(dir);
    CHECK_STR("stdin, stdout, stderr, the order", buf_str(&seen), "0123");
}

static void test_the_first_run_is_who_waited_and_no_other(void **state)
{
    struct box *box = *state;
    pid_t waited = understudy_of(box);
    auto_result result = { 0 };
    box_start(box, &SH("echo hi; exec cat"), &result); /* of /dev/null: it ends */
    box_wait_output(box, &result);
    auto_free char *name = status_line(waited, "Name:");
    CHECK("it is the program now", result.done || !strstr(name, "agent"));
    box_wait(box, &result.done);
    CHECK_STR("stdout", buf_str(&result.out), "hi\n");
    expect_childless(box);

    auto_result next = { 0 };
    box_run(box, &SH("echo again"), &next);
    CHECK_STR("the next run", buf_str(&next.out), "again\n");
    expect_childless(box);
}

static void test_the_first_run_is_like_any_other(void **state)
{
    struct box *box = *state;
    (void)understudy_of(box);
    static const char script[] =
        "pwd; echo $A; ls /proc/self/fd; id -u; ulimit -n; umask; readlink /proc/self/fd/0;"
        "grep -E '^(NoNewPrivs|Cap|Sig(Blk|Ign)|Seccomp:|Groups)' /proc/self/status;"
        "[ \"$(cut -d' ' -f5,6 /proc/$$/stat)\" = \"$$ $$\" ] && echo leads;"
        "cat /proc/self/oom_score_adj";
    struct link_run_spec spec = SH(script);
    spec.env = (const char *const[]){ "A=1", NULL };
    spec.cwd = "/tmp";
    auto_result first = { 0 };
    box_run(box, &spec, &first);
    auto_result second = { 0 };
    box_run(box, &spec, &second);
    CHECK("the directory", str_has_prefix(buf_str(&first.out), "/tmp\n1\n0\n1\n2\n3\n"));
    CHECK("its session", strstr(buf_str(&first.out), "leads\n1000\n"));
    CHECK_STR("by fork", buf_str(&second.out), buf_str(&first.out));
    CHECK_STR("stderr", buf_str(&second.err), buf_str(&first.err));
}

static void test_what_cannot_start_first_says_why(void **state)
{
    struct box *box = *state;
    (void)understudy_of(box);
    auto_result result = { 0 };
    struct link_run_spec spec = SH("");
    spec.argv = (const char *const[]){ "no-such-program", NULL };
    box_run(box, &spec, &result);
    CHECK_STR("failure", result.exit.failure, "no-such-program: No such file or directory");
    expect_childless(box);
}

static void test_a_first_directory_that_is_none_is_told(void **state)
{
    auto_result result = { 0 };
    struct link_run_spec spec = SH("echo here");
    spec.cwd = "nowhere";
    box_run(*state, &spec, &result);
    CHECK_STR("failure", result.exit.failure, "enter directory: No such file or directory");
}

/*** who is not wanted ***/

static void test_a_first_run_with_input_reads_it(void **state)
{
    struct box *box = *state;
    (void)understudy_of(box);
    auto_result result = { 0 };
    struct link_run_spec spec = SH("cat");
    spec.input = "words";
    spec.input_len = 5;
    box_run(box, &spec, &result);
    CHECK_STR("stdout", buf_str(&result.out), "words");
    expect_childless(box);
}

static void test_a_first_run_may_have_many_words(void **state)
{
    struct box *box = *state;
    (void)understudy_of(box);
    /* 64 KiB with NULs, script and mark is more than the one who waits would take; half is not. */
    for (size_t len = 64 * 1024; len > 0; len = len > 1024 ? 1024 : 0) {
        auto_free char *word = xcalloc(1, len + 1);
        memset(word, 'x', len);
        struct link_run_spec spec = SH("");
        spec.argv =
            (const char *const[]){ "sh", "-c", "printf %s \"$1\" | wc -c", "sh", word, NULL };
        auto_result result = { 0 };
        box_run(box, &spec, &result);
        CHECK_INT("length", strtol(buf_str(&result.out), NULL, 10), len);
        expect_childless(box);
    }
}

static void test_a_first_run_at_the_limit_of_words(void **state)
{
    struct box *box = *state;
    (void)understudy_of(box);
    /* "sh", "-c", script, "sh", word, the mark and an empty directory make 64 KiB exactly. */
    static const char script[] = "printf %s \"$1\" | wc -c";
    size_t len = 64 * 1024 - 3 - 3 - sizeof(script) - 3 - 1 - strlen(box->mark) - 1 - 1;
    auto_free char *word = xcalloc(1, len + 1);
    memset(word, 'x', len);
    struct link_run_spec spec = SH("");
    spec.argv = (const char *const[]){ "sh", "-c", script, "sh", word, NULL };
    auto_result result = { 0 };
    box_run(box, &spec, &result);
    CHECK_INT("length", strtol(buf_str(&result.out), NULL, 10), len);
}

static void test_a_run_is_started_when_who_waited_has_died(void **state)
{
    struct box *box = *state;
    CHECK_INT("kill", kill(understudy_of(box), SIGKILL), 0);
    expect_childless(box);
    auto_result result = { 0 };
    box_run(box, &SH("echo hi"), &result);
    CHECK_STR("stdout", buf_str(&result.out), "hi\n");
    CHECK_INT("status", result.exit.code, 0);
}

static void test_a_kill_reaches_who_does_not_start(void **state)
{
    struct box *box = *state;
    CHECK_INT("stop", kill(understudy_of(box), SIGSTOP), 0);
    auto_result result = { 0 };
    box_start(box, &SH("echo hi"), &result);
    box_sleep(box, 50);
    CHECK_INT("it hangs", result.done, false);
    link_kill(box->link);
    box_wait(box, &result.done);
    CHECK_INT("signal", result.exit.code, SIGKILL);
    expect_childless(box);

    auto_result next = { 0 };
    box_run(box, &SH("echo next"), &next);
    CHECK_STR("stdout", buf_str(&next.out), "next\n");
}

static void on_kernel_exit(const struct link_exit *exit, void *data)
{
    CHECK("an exit", exit);
    *(bool *)data = true;
}

static void test_nobody_waits_beside_a_kernel(void **state)
{
    struct box *box = *state;
    pid_t waited = understudy_of(box);
    const struct link_kernel_spec spec = {
        .argv = (const char *const[]){ "sh", "-c", "read line <&3", NULL }, .cwd = ""
    };
    static const struct link_kernel_events events = { .on_exit = on_kernel_exit };
    struct err err;
    bool over = false;
    CHECK_INT("start", link_kernel_start(box->link, &spec, &events, &over, &err), 0);
    for (int i = 0; i < 500 && kill(waited, 0) == 0; i++)
        box_sleep(box, 10);
    CHECK("it is gone", kill(waited, 0) < 0);
    CHECK_INT("the kernel goes on", over, false);

    auto_result result = { 0 };
    box_run(box, &SH("echo beside"), &result);
    CHECK_STR("stdout", buf_str(&result.out), "beside\n");
    link_kernel_kill(box->link);
    box_wait(box, &over);
    expect_childless(box);
}

int main(void)
{
    static const struct box_test tests[] = {
        BOX_TEST(test_who_waits_is_a_guest_already, .modes = "guest"),
        BOX_TEST(test_the_first_run_is_who_waited_and_no_other),
        BOX_TEST(test_the_first_run_is_like_any_other),
        BOX_TEST(test_what_cannot_start_first_says_why),
        BOX_TEST(test_a_first_directory_that_is_none_is_told),
        BOX_TEST(test_a_first_run_with_input_reads_it),
        BOX_TEST(test_a_first_run_may_have_many_words),
        BOX_TEST(test_a_first_run_at_the_limit_of_words),
        BOX_TEST(test_a_run_is_started_when_who_waited_has_died),
        BOX_TEST(test_a_kill_reaches_who_does_not_start),
        BOX_TEST(test_nobody_waits_beside_a_kernel),
    };
    return box_main_each(tests, ARRAY_SIZE(tests));
}
