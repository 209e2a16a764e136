/* Runs, through the real agent. How it is started: agent_box.h. */
#include "agent_box.h"
#include "check.h"

#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/*** what comes back ***/

static void test_a_program_answers_on_both_streams(void **state)
{
    auto_result result = { 0 };
    box_run(*state, &SH("echo hi; echo oh >&2"), &result);
    CHECK_STR("stdout", buf_str(&result.out), "hi\n");
    CHECK_STR("stderr", buf_str(&result.err), "oh\n");
    CHECK_STR("failure", result.exit.failure, "");
    CHECK_INT("status", result.exit.code, 0);
    CHECK_INT("stdout bytes", result.exit.stdout_bytes, 3);
    CHECK("time passes", result.exit.wall_ns > 0 && result.exit.wall_ns < 10000000000U);
}

static void test_exit_status_and_signal_are_told_apart(void **state)
{
    auto_result status = { 0 };
    box_run(*state, &SH("exit 42"), &status);
    CHECK_INT("status", status.exit.code, 42);
    CHECK_INT("by signal", status.exit.signaled, false);

    auto_result killed = { 0 };
    box_run(*state, &SH("kill -SEGV $$"), &killed);
    CHECK_INT("signal", killed.exit.code, SIGSEGV);
    CHECK_INT("by signal", killed.exit.signaled, true);
}

static void test_bytes_come_back_exactly(void **state)
{
    auto_result result = { 0 };
    box_run(*state, &SH("printf 'a\\000b\\377\\n\\033[31m'"), &result);
    CHECK_INT("length", result.out.len, 10);
    assert_memory_equal(result.out.data, "a\0b\377\n\033[31m", 10);
}

static void test_cpu_time_of_children_is_counted(void **state)
{
    auto_result result = { 0 };
    box_run(*state, &SH("(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait"), &result);
    CHECK("some milliseconds", result.exit.cpu_ns > 5000000);
    CHECK("not more than there was", result.exit.cpu_ns < 2 * result.exit.wall_ns);
}

/*** what is given ***/

static void test_input_arrives_whole(void **state)
{
    struct box *box = *state;
    size_t len = 3 * 1000 * 1000 + 7;
    auto_free char *input = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        input[i] = (char)(i * 2654435761U >> 13);
    auto_result result = { 0 };
    struct link_run_spec spec = SH("cat");
    spec.input = input;
    spec.input_len = len;
    spec.head_bytes = 8 << 20;
    box_run(box, &spec, &result);
    CHECK_INT("length", result.out.len, len);
    assert_memory_equal(result.out.data, input, len);
}

static void test_input_that_nobody_reads_does_no_harm(void **state)
{
    auto_free char *input = xcalloc(1, 1 << 20);
    auto_result result = { 0 };
    struct link_run_spec spec = SH("exec <&-; sleep 0.1; echo done");
    spec.input = input;
    spec.input_len = 1 << 20;
    box_run(*state, &spec, &result);
    CHECK_STR("stdout", buf_str(&result.out), "done\n");

    auto_result next = { 0 };
    box_run(*state, &SH("cat; echo next"), &next);
    CHECK_STR("the next run has its own", buf_str(&next.out), "next\n");
}

static void test_code_is_a_file_that_the_guest_can_read(void **state)
{
    struct box *box = *state;
    size_t len = 5 * 1000 * 1000;
    auto_free char *code = xmalloc(len);
    memset(code, '#', len);
    memcpy(code, "echo first\n", 11);
    memcpy(code + len - 10, "\necho last", 10);
    auto_result result = { 0 };
    struct link_run_spec spec = SH("");
    spec.argv = (const char *const[]){ "sh", box->code, NULL };
    spec.code = code;
    spec.code_len = len;
    box_run(box, &spec, &result);
    CHECK_STR("stderr", buf_str(&result.err), "");
    CHECK_STR("stdout", buf_str(&result.out), "first\nlast\n");

    auto_result empty = { 0 };
    spec.code_len = 0;
    box_run(box, &spec, &empty);
    CHECK_INT("empty code", empty.exit.code, 0);
    CHECK("the file goes with its run", access(box->code, F_OK) < 0);
}

static void test_environment_and_directory_are_as_said(void **state)
{
    struct box *box = *state;
    auto_result result = { 0 };
    struct link_run_spec spec = SH("pwd; echo $A $PATH; env | wc -l");
    spec.env = (const char *const[]){ "A=1", "PATH=/usr/bin:/bin:/nowhere", "A=2", NULL };
    box_run(box, &spec, &result);
    auto_free char *want =
        xasprintf("%s\n2 /usr/bin:/bin:/nowhere\n%d\n", box->workspace,
                  box_mode("guest") ? 5 : 6 /* list, A, PWD; the shell adds nothing else */);
    CHECK_STR("stdout", buf_str(&result.out), want);

    auto_result elsewhere = { 0 };
    spec = SH("pwd");
    spec.cwd = "/tmp";
    box_run(box, &spec, &elsewhere);
    CHECK_STR("stdout", buf_str(&elsewhere.out), "/tmp\n");
}

/*** failures to start ***/

static void test_what_cannot_start_says_why(void **state)
{
    struct box *box = *state;
    static const struct {
        const char *program, *cwd, *want;
    } cases[] = {
        { "no-such-program", "", "no-such-program: No such file or directory" },
        { "/etc/passwd", "", "/etc/passwd: Permission denied" },
        { "true", "/no/such/place", "enter directory: No such file or directory" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_result result = { 0 };
        struct link_run_spec spec = SH("");
        spec.argv = (const char *const[]){ cases[i].program, NULL };
        spec.cwd = cases[i].cwd;
        box_run(box, &spec, &result);
        CHECK_STR("failure", result.exit.failure, cases[i].want);
        CHECK_INT("status", result.exit.code, 127);
    }
    auto_result result = { 0 };
    box_run(box, &SH("echo still here"), &result);
    CHECK_STR("stdout", buf_str(&result.out), "still here\n");
}

static void test_one_run_at_a_time(void **state)
{
    struct box *box = *state;
    auto_result result = { 0 };
    box_start(box, &SH("sleep 0.2"), &result);
    struct link_run_events none = { 0 };
    CHECK_INT("second", link_run(box->link, &SH("true"), &none, NULL, NULL), -EBUSY);
    box_wait(box, &result.done);
}

/*** much output ***/

static void test_long_output_keeps_head_and_tail(void **state)
{
    auto_result result = { 0 };
    struct link_run_spec spec = SH("seq 1000000; seq 10 >&2"); /* 6,888,896 bytes */
    spec.head_bytes = 100000;
    spec.tail_bytes = 50000;
    box_run(*state, &spec, &result);
    CHECK_INT("total", result.exit.stdout_bytes, 6888896);
    CHECK_INT("kept", result.out.len, 150000);
    CHECK_INT("gap", result.gap[LINK_STDOUT], 6888896 - 150000);
    CHECK_INT("gap is where the head ends", result.before_gap[LINK_STDOUT], 100000);
    CHECK("begins", str_has_prefix(result.out.data, "1\n2\n3\n"));
    CHECK_STR("ends", result.out.data + result.out.len - 15, "999999\n1000000\n");
    CHECK_INT("no gap on the other stream", result.gap[LINK_STDERR], 0);
}

static void test_output_up_to_the_cap_has_no_gap(void **state)
{
    for (int extra = -1; extra <= 1; extra++) {
        auto_result result = { 0 };
        auto_free char *script = xasprintf("head -c %d /dev/zero", 3000 + extra);
        struct link_run_spec spec = SH(script);
        spec.head_bytes = 2000;
        spec.tail_bytes = 1000;
        box_run(*state, &spec, &result);
        CHECK_INT("kept", result.out.len, extra > 0 ? 3000 : 3000 + extra);
        CHECK_INT("gap", result.gap[LINK_STDOUT], extra > 0 ? extra : 0);
    }
}

static void test_nothing_may_be_kept_at_all(void **state)
{
    auto_result result = { 0 };
    struct link_run_spec spec = SH("seq 100000");
    spec.head_bytes = spec.tail_bytes = 0;
    box_run(*state, &spec, &result);
    CHECK_INT("kept", result.out.len, 0);
    CHECK_INT("gap", result.gap[LINK_STDOUT], 588895);
}

static void test_a_large_tail_comes_whole(void **state)
{
    auto_result result = { 0 };
    struct link_run_spec spec = SH("seq 1000000");
    spec.head_bytes = 10;
    spec.tail_bytes = 3 << 20; /* more than the agent's ring: the head takes the rest */
    box_run(*state, &spec, &result);
    CHECK_INT("kept", result.out.len, (3 << 20) + 10);
    CHECK_STR("ends", result.out.data + result.out.len - 8, "1000000\n");
}

static void test_a_flood_is_killed(void **state)
{
    auto_result result = { 0 };
    struct link_run_spec spec = SH("yes >&2");
    spec.flood_bytes = 20 * 1000 * 1000;
    box_run(*state, &spec, &result);
    CHECK_INT("flooded", result.exit.flooded, true);
    CHECK_INT("signal", result.exit.code, SIGKILL);
    CHECK("not much more", result.exit.stderr_bytes < 22 * 1000 * 1000);
}

/*** the end takes everything with it ***/

static void check_nothing_left(struct box *box)
{
    auto_result result = { 0 };
    box_run(box, &SH("echo alive"), &result);
    CHECK_STR("stdout", buf_str(&result.out), "alive\n");
    CHECK_INT("left over", box_count(box), 0);
}

static void test_what_is_left_behind_dies_with_the_main_process(void **state)
{
    static const char *const scripts[] = {
        "sleep $MARK & echo out",
        "(sleep $MARK &) ; echo out",
        "setsid sh -c '(setsid sleep $MARK &)'; echo out",
        "sleep $MARK & kill -STOP $!; echo out",
        "sh -c 'trap \"\" TERM INT HUP; sleep $MARK; sleep $MARK' & echo out",
        "for i in 1 2 3 4 5; do (setsid sh -c 'sleep $MARK & sleep $MARK' &) ; done; echo out",
        "(exec >&- 2>&-; sleep $MARK) & echo out",
    };
    struct box *box = *state;
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        auto_result result = { 0 };
        box_run(box, &SH(scripts[i]), &result);
        CHECK_STR("stdout", buf_str(&result.out), "out\n");
        CHECK_INT("status", result.exit.code, 0);
        CHECK("at once", result.exit.wall_ns < 2000000000U);
        check_nothing_left(box);
    }
}

static void test_a_fork_bomb_ends(void **state)
{
    struct box *box = *state;
    auto_result result = { 0 };
    struct link_run_spec spec = SH("ulimit -u 500; b() { b | b & }; b; sleep $MARK");
    box_start(box, &spec, &result);
    box_sleep(box, 300);
    link_kill(box->link);
    box_wait(box, &result.done);
    check_nothing_left(box);
}

static void test_interrupt_is_a_signal_and_kill_is_the_end(void **state)
{
    struct box *box = *state;
    auto_result polite = { 0 };
    box_start(box, &SH("trap 'echo bye; exit 3' INT; echo hi; sleep $MARK & wait"), &polite);
    box_wait_output(box, &polite);
    link_interrupt(box->link);
    box_wait(box, &polite.done);
    CHECK_STR("stdout", buf_str(&polite.out), "hi\nbye\n");
    CHECK_INT("status", polite.exit.code, 3);

    auto_result rude = { 0 };
    box_start(box, &SH("trap '' INT; echo hi; while :; do sleep 0.05; done"), &rude);
    box_wait_output(box, &rude);
    link_interrupt(box->link);
    box_sleep(box, 100);
    CHECK_INT("goes on", rude.done, false);
    link_kill(box->link);
    box_wait(box, &rude.done);
    CHECK_INT("signal", rude.exit.code, SIGKILL);
    CHECK_STR("what was written is there", buf_str(&rude.out), "hi\n");
    check_nothing_left(box);
}

static void test_a_kill_right_behind_the_start_works(void **state)
{
    struct box *box = *state;
    for (int i = 0; i < 20; i++) {
        auto_result result = { 0 };
        box_start(box, &SH("sleep $MARK"), &result);
        link_kill(box->link);
        box_wait(box, &result.done);
        CHECK("dead", result.exit.signaled);
    }
    link_kill(box->link); /* nothing is there: nothing happens */
    link_interrupt(box->link);
    check_nothing_left(box);
}

static void test_the_guest_cannot_hurt_the_agent(void **state)
{
    struct box *box = *state;
    auto_result result = { 0 };
    box_run(box,
            &SH("for s in 1 2 3 9 15 17 19 20; do kill -$s 1; done; kill -9 -1;"
                "for f in 0 1 2 3 4 5 6 7 8 9; do echo junk >&$f; done; echo over"),
            &result);
    check_nothing_left(box);
    CHECK_INT("broken", box->broken, false);
}

static void test_no_descriptor_of_ours_is_open_inside(void **state)
{
    auto_result result = { 0 };
    struct link_run_spec spec = SH("");
    spec.argv = (const char *const[]){ "ls", "/proc/self/fd", NULL };
    box_run(*state, &spec, &result);
    CHECK_STR("stdin, stdout, stderr, the directory itself", buf_str(&result.out), "0\n1\n2\n3\n");
}

static void test_privileges_are_gone(void **state)
{
    struct box *box = *state;
    auto_result result = { 0 };
    box_run(box,
            &SH("grep -E '^(NoNewPrivs|Cap(Inh|Prm|Eff|Amb)|SigBlk|SigIgn)' /proc/self/status"),
            &result);
    CHECK_STR("status", buf_str(&result.out),
              "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
              "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
              "CapAmb:\t0000000000000000\nNoNewPrivs:\t1\n");
}

static void test_the_set_up_is_honoured(void **state)
{
    struct box *box = *state;
    auto_result result = { 0 };
    box_run(
        box,
        &SH("id -u; id -g; id -G; echo $GREETING; ulimit -n; ulimit -f; ulimit -c;"
            "grep -E '^(CapBnd|Seccomp:)' /proc/self/status; setarch -R true 2>&1 | grep -o clean;"
            "touch x && stat -c %u x; echo > ../run/x; cat /proc/self/oom_score_adj"),
        &result);
    CHECK_STR("stdout", buf_str(&result.out),
              "61234\n61234\n61234\nfrom the set-up\n77\n2048\n0\n"
              "CapBnd:\t0000000000000000\nSeccomp:\t2\nclean\n61234\n1000\n");
}

static void test_guests_and_nobody_else_are_in_their_cgroup(void **state)
{
    struct box *box = *state;
    if (!box->cgroup) {
        print_message("# no cgroup can be made here\n");
        return;
    }
    auto_result result = { 0 };
    box_run(box, &SH("cat /proc/self/cgroup"), &result);
    const char *name = strrchr(box->cgroup, '/');
    CHECK("inside", strstr(buf_str(&result.out), name));
    auto_free char *tasks = xasprintf("%s/cgroup.procs", box->cgroup);
    auto_fd fd = open(tasks, O_RDONLY | O_CLOEXEC);
    char left[100];
    CHECK_INT("left over", read(fd, left, sizeof(left)), 0);
}

/*** small and fast ***/

static void test_a_thousand_runs_leave_nothing(void **state)
{
    struct box *box = *state;
    uint64_t start = clock_ms();
    for (int i = 0; i < 1000; i++) {
        auto_result result = { 0 };
        struct link_run_spec spec = SH("");
        spec.argv = (const char *const[]){ "/bin/true", NULL };
        box_run(box, &spec, &result);
        CHECK_STR("complaint", buf_str(&result.err), "");
        CHECK_INT("status", result.exit.code, 0);
    }
    print_message("# %llu us a run\n", (unsigned long long)(clock_ms() - start));
    CHECK_INT("broken", box->broken, false);
}

struct counted {
    bool told, known;
    struct link_counts counts;
};

static void on_counts(const struct link_counts *counts, void *data)
{
    struct counted *counted = data;
    CHECK("counts are told once", !counted->told);
    counted->told = true;
    counted->known = counts;
    if (counts)
        counted->counts = *counts;
}

/* Whether there is a cgroup to look at is the machine's business; that they do not fall is not. */
static void test_counts_are_told_when_asked_for(void **state)
{
    struct box *box = *state;
    struct counted before = { 0 }, after = { 0 };
    CHECK_INT("asked", link_count(box->link, on_counts, &before), 0);
    CHECK_INT("asked twice", link_count(box->link, on_counts, &after), -EBUSY);
    box_wait(box, &before.told);
    CHECK_INT("asked again", link_count(box->link, on_counts, &after), 0);
    box_wait(box, &after.told);
    CHECK_INT("known", after.known, before.known);
    CHECK("they grow", after.counts.oom_kills >= before.counts.oom_kills &&
                           after.counts.pids_denied >= before.counts.pids_denied);
}

/* Last: it ends the agent. */
static void test_the_agent_dies_with_the_server(void **state)
{
    struct box *box = *state;
    auto_result result = { 0 };
    box_start(box, &SH("(setsid sleep $MARK &); echo hi; sleep $MARK"), &result);
    box_wait_output(box, &result);
    link_free(box->link);
    box->link = NULL;
    CHECK_INT("the run ended", result.done, true);
    CHECK_INT("without an exit", result.failed, true);
    int status = -1;
    for (int i = 0; i < 500 && waitpid(box->pid, &status, WNOHANG) == 0; i++)
        box_sleep(box, 20);
    CHECK_INT("the agent's status", status, 0);
    for (int i = 0; i < 500 && box_count(box) > 0; i++)
        box_sleep(box, 20);
    CHECK_INT("left over", box_count(box), 0);
}

int main(void)
{
    static const struct box_test tests[] = {
        BOX_TEST(test_a_program_answers_on_both_streams),
        BOX_TEST(test_exit_status_and_signal_are_told_apart),
        BOX_TEST(test_bytes_come_back_exactly),
        BOX_TEST(test_cpu_time_of_children_is_counted),
        BOX_TEST(test_input_arrives_whole),
        BOX_TEST(test_input_that_nobody_reads_does_no_harm),
        BOX_TEST(test_code_is_a_file_that_the_guest_can_read),
        BOX_TEST(test_environment_and_directory_are_as_said),
        BOX_TEST(test_what_cannot_start_says_why),
        BOX_TEST(test_one_run_at_a_time),
        BOX_TEST(test_long_output_keeps_head_and_tail),
        BOX_TEST(test_output_up_to_the_cap_has_no_gap),
        BOX_TEST(test_nothing_may_be_kept_at_all),
        BOX_TEST(test_a_large_tail_comes_whole),
        BOX_TEST(test_a_flood_is_killed),
        BOX_TEST(test_what_is_left_behind_dies_with_the_main_process),
        BOX_TEST(test_a_fork_bomb_ends, .modes = "guest"), /* root is not held by ulimit -u */
        BOX_TEST(test_interrupt_is_a_signal_and_kill_is_the_end),
        BOX_TEST(test_a_kill_right_behind_the_start_works),
        BOX_TEST(test_the_guest_cannot_hurt_the_agent, .modes = "init guest"),
        BOX_TEST(test_no_descriptor_of_ours_is_open_inside),
        BOX_TEST(test_privileges_are_gone),
        BOX_TEST(test_the_set_up_is_honoured, .modes = "guest"),
        BOX_TEST(test_guests_and_nobody_else_are_in_their_cgroup, .modes = "guest"),
        BOX_TEST(test_counts_are_told_when_asked_for),
        BOX_TEST(test_a_thousand_runs_leave_nothing),
        BOX_TEST(test_the_agent_dies_with_the_server),
    };
    return box_main(tests, ARRAY_SIZE(tests));
}
