/*
 * Sessions over the native engine of this very host, as profiles use them: ids that callers choose,
 * variables that go in and come out, environment and import policy of a session's own. As root
 * everything is done as root, and again as an ordinary user.
 */
#include "check.h"
#include "scratch.h"

#include "base/loop.h"
#include "base/text.h"
#include "session/session.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UID_BASE = 1879113728, UID_COUNT = 4096, ORDINARY_UID = 65534, WAIT_MS = 60000 };
enum { STATE_BYTES = 4096 };

/*** Sessions, and one run at a time in them ***/

static struct {
    uv_loop_t loop;
    struct engine *engine;
    struct sessions *sessions;
    char state_dir[64], instance[40];
    json_t *env, *blocked;

    /* Of the last run, or of the last session that was opened. */
    bool done;
    enum outcome outcome;
    char id[SESSION_ID_MAX + 1];
    char *error, *printed, *value;
    json_t *state, *skipped;
} rig;

static const struct sandbox_limits limits = {
    .memory_bytes = 256 << 20,
    .pids = 32,
    .cpu_millis = 2000,
    .nofile = 256,
    .file_bytes = 32 << 20,
    .workspace_bytes = 16 << 20,
    .workspace_inodes = 1000,
    .tmp_bytes = 16 << 20,
    .tmp_inodes = 1000,
    .shm_bytes = 8 << 20,
};

static int rig_open(void **state)
{
    (void)state;
    char random[RANDOM_ID_SIZE];
    random_id(random);
    (void)snprintf(rig.instance, sizeof(rig.instance), "test-%.12s", random);
    (void)snprintf(rig.state_dir, sizeof(rig.state_dir), "/tmp/belljar-test-XXXXXX");
    assert_non_null(mkdtemp(rig.state_dir));
    assert_int_equal(uv_loop_init(&rig.loop), 0);
    struct engine_options engine = {
        .state_dir = rig.state_dir,
        .instance = rig.instance,
        .rootfs = "",
        .uid_base = UID_BASE,
        .uid_count = UID_COUNT,
        .pool_max_creations = 2,
        .pool_plan.limits = limits,
        .allow_missing = LAYER_MEMORY_LIMIT | LAYER_PIDS_LIMIT | LAYER_CPU_LIMIT,
    };
    struct err err = { 0 };
    if (engine_open(&rig.loop, "native", &engine, &rig.engine, &err) < 0)
        FAIL("engine_open: %s", err.msg);
    rig.env = json_literal("{\"SERVER\": \"all\", \"BOTH\": \"server\"}");
    rig.blocked = json_literal("[\"socket\"]");
    const struct session_options options = {
        .idle_timeout_ms = 600000,
        .max_sessions = 10,
        .max_sessions_per_owner = 8,
        .max_queue = 4,
        .run_timeout_ms = 30000,
        .run_timeout_max_ms = 30000,
        .interrupt_grace_ms = 1000,
        .kill_grace_ms = 5000,
        .output_bytes = 1 << 16,
        .flood_bytes = 1 << 20,
        .display_bytes = 1 << 20,
        .strip_ansi = true,
        .state_bytes = STATE_BYTES,
        .python = "python3",
        .env = rig.env,
        .blocked_modules = rig.blocked,
        .limits = limits,
    };
    rig.sessions = sessions_new(&rig.loop, rig.engine, &options);
    return 0;
}

static void forget(void)
{
    free(rig.error);
    free(rig.printed);
    free(rig.value);
    json_decref(rig.state);
    json_decref(rig.skipped);
    rig.error = rig.printed = rig.value = NULL;
    rig.state = rig.skipped = NULL;
    rig.done = false;
}

static int rig_close(void **state)
{
    (void)state;
    sessions_free(rig.sessions);
    engine_close(rig.engine);
    loop_finish(&rig.loop);
    json_decref(rig.env);
    json_decref(rig.blocked);
    forget();
    (void)scratch_remove(rig.state_dir);
    return 0;
}

static void rig_wait(const char *what)
{
    uint64_t start = clock_ms();
    struct timer *wake = timer_new(&rig.loop, (timer_fn *)uv_update_time, &rig.loop);
    timer_repeat(wake, 10);
    while (!rig.done && clock_ms() - start < WAIT_MS)
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    timer_free(wake);
    if (!rig.done)
        FAIL("%s: nothing within %d ms", what, WAIT_MS);
}

static void on_done(const struct run_result *result, void *data)
{
    (void)data;
    auto_buf printed = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < result->n_output; i++)
        (void)buf_add(&printed, result->output[i].text, result->output[i].len);
    const char *value = json_str(json_object_get(result->done, "result"), "text/plain");
    rig.outcome = result->outcome;
    (void)snprintf(rig.id, sizeof(rig.id), "%s", result->session_id);
    rig.error = xstrdup(result->error ? result->error : "");
    rig.printed = xstrdup(buf_str(&printed));
    rig.value = xstrdup(value ? value : "");
    rig.state = json_deep_copy(result->state);
    rig.skipped = json_deep_copy(result->state_skipped);
    rig.done = true;
}

static int begin(const struct run_spec *spec, struct err *err)
{
    static const struct run_events events = { .on_done = on_done };
    struct run *run;
    forget();
    return session_run(rig.sessions, spec, &events, NULL, &run, err);
}

static void run(struct run_spec spec)
{
    struct err err = { 0 };
    spec.owner = spec.owner ? spec.owner : "me";
    spec.code_len = strlen(spec.code);
    if (begin(&spec, &err) < 0)
        FAIL("%s: %s", spec.code, err.msg);
    rig_wait(spec.code);
}
#define RUN(language_, code_, ...)                                                                 \
    run((struct run_spec){ .language = (language_), .code = (code_), __VA_ARGS__ })

static void check_state(const char *state, const char *skipped)
{
    auto_free char *got = rig.state ? json_text(rig.state) : xstrdup("none");
    auto_free char *left = rig.skipped ? json_text(rig.skipped) : xstrdup("none");
    CHECK_STR("state", got, state);
    CHECK_STR("skipped", left, skipped);
}

/*** Ids ***/

static void on_open(const char *session_id, const struct err *err, void *data)
{
    (void)data;
    (void)err;
    (void)snprintf(rig.id, sizeof(rig.id), "%s", session_id ? session_id : "");
    rig.done = true;
}

static int open_session(const struct session_plan *plan, struct err *err)
{
    forget();
    int r = session_open(rig.sessions, "me", plan, on_open, NULL, err);
    if (r == 0)
        rig_wait("session_open");
    return r;
}

static void an_id_may_be_chosen_and_belongs_to_its_owner(void **state)
{
    (void)state;
    const struct session_plan plan = { .id = "my_math.session-1" };
    RUN("sh", "echo mine >f; pwd", .plan = &plan);
    CHECK_STR("id", rig.id, plan.id);
    RUN("sh", "cat f", .plan = &plan); /* the same, as it is there */
    CHECK_STR("mine", rig.printed, "mine\n");
    RUN("sh", "cat f", .session_id = plan.id);
    CHECK_STR("mine", rig.printed, "mine\n");
    RUN("sh", "ls", .plan = &plan, .owner = "other");
    CHECK_STR("not theirs", rig.printed, "");

    struct err err = { 0 };
    assert_int_equal(open_session(&plan, &err), -EEXIST);
    assert_int_equal(session_close(rig.sessions, "me", plan.id), 0);
    assert_int_equal(open_session(&plan, &err), 0);
    CHECK_STR("id", rig.id, plan.id);
    RUN("sh", "ls", .session_id = plan.id);
    CHECK_STR("a new one", rig.printed, "");
    assert_int_equal(session_close(rig.sessions, "me", plan.id), 0);
    assert_int_equal(session_close(rig.sessions, "other", plan.id), 0);
}

static void an_id_that_cannot_be_is_refused(void **state)
{
    (void)state;
    auto_free char *longest = xmalloc(SESSION_ID_MAX + 2);
    memset(longest, 'x', SESSION_ID_MAX + 1);
    longest[SESSION_ID_MAX + 1] = '\0';
    const char *const ids[] = { "", "a b", "a/b", "../x", "\xc3\xa4", "a\n", longest };
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        const struct session_plan plan = { .id = ids[i] };
        struct err err = { 0 };
        CHECK_INT(ids[i], open_session(&plan, &err), -EINVAL);
        assert_non_null(strstr(err.msg, "session_id: use 1 to 64"));
    }
    const struct session_plan plan = { .id = longest + 1 };
    struct err err = { 0 };
    CHECK_INT("64 characters", open_session(&plan, &err), 0);
    CHECK_STR("64 characters", rig.id, longest + 1);
    assert_int_equal(session_close(rig.sessions, "me", longest + 1), 0);
}

static void a_random_id_is_as_long_as_asked(void **state)
{
    (void)state;
    static const size_t lens[][2] = { { 0, 22 }, { 16, 16 }, { 22, 22 } };
    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        const struct session_plan plan = { .id_len = lens[i][0] };
        struct err err = { 0 };
        CHECK_INT("open", open_session(&plan, &err), 0);
        CHECK_INT("length", strlen(rig.id), lens[i][1]);
        assert_int_equal(session_close(rig.sessions, "me", rig.id), 0);
    }
    const struct session_plan guessable = { .id_len = 8 };
    struct err err = { 0 };
    assert_int_equal(open_session(&guessable, &err), -EINVAL);
}

/*** Variables ***/

static void variables_go_in_and_come_out(void **state)
{
    (void)state;
    auto_json *given = json_literal("{\"x\": 20, \"words\": [\"a\", null, {\"k\": 1.5}]}");
    RUN("python", "import math\ny = 2 * x + 2\nbad = {1}\ny", .state = given, .want_state = true,
        .transient = true);
    CHECK_STR("value", rig.value, "42");
    check_state("{\"x\":20,\"words\":[\"a\",null,{\"k\":1.5}],\"y\":42}", "[\"bad\"]");
}

static void variables_are_told_only_when_wanted(void **state)
{
    (void)state;
    RUN("python", "x = 1", .transient = true);
    check_state("none", "none");
    RUN("sh", "x=1", .want_state = true, .transient = true);
    check_state("none", "none");
}

static void variables_that_are_too_many_are_refused_or_left_out(void **state)
{
    (void)state;
    auto_free char *long_text = xmalloc(STATE_BYTES + 1);
    memset(long_text, 'x', STATE_BYTES);
    long_text[STATE_BYTES] = '\0';
    auto_json *given = json_object();
    json_put_str(given, "x", long_text);
    struct run_spec spec = {
        .owner = "me", .language = "python", .code = "1", .code_len = 1, .state = given
    };
    struct err err = { 0 };
    assert_int_equal(begin(&spec, &err), -EFBIG);
    assert_non_null(strstr(err.msg, "state: more than 4096 bytes"));
    auto_json *list = json_array();
    spec.state = list;
    assert_int_equal(begin(&spec, &err), -EINVAL);
    RUN("python", "big = 'x' * 5000\nsmall = 1", .want_state = true, .transient = true);
    check_state("{\"small\":1}", "[\"big\"]");
}

/* The guest shares its process with the kernel, and may say what it likes in its name. */
static void forged_variables_are_dropped(void **state)
{
    (void)state;
    static const char *const forged[] = {
        "'x'",
        "{'x': 'y' * 5000}",
        "{}, 'state_skipped': 5",
        "{}, 'state_skipped': [1]",
        "{}, 'state_skipped': ['']",
        "{}, 'state_skipped': ['n' * 2000]",
        "{}, 'state_skipped': ['n'] * 1001",
    };
    static const char code[] = "kernel = __import__('builtins').display.__globals__['KERNEL']\n"
                               "run = kernel.run.id\n"
                               "kernel.channel.send({'op': 'done', 'id': run, 'status': 'ok', "
                               "'state_skipped': [], 'state': %s})";
    for (size_t i = 0; i < ARRAY_SIZE(forged); i++) {
        auto_free char *text = xasprintf(code, forged[i]);
        RUN("python", text, .want_state = true, .transient = true);
        check_state("none", "none");
    }
    auto_free char *text = xasprintf(code, "{'x': 1}");
    RUN("python", text, .want_state = true, .transient = true);
    check_state("{\"x\":1}", "[]"); /* about its own run it may lie */
}

/*** Environment and imports ***/

static void every_language_sees_the_variables_of_its_session(void **state)
{
    (void)state;
    (void)setenv("BELLJAR_TEST_SECRET", "of the server", 1);
    auto_json *env = json_literal("{\"BOTH\": \"session\", \"OWN\": \"a b=\\u00e4\"}");
    const struct session_plan plan = { .id = "env", .env = env };
    static const struct {
        const char *language, *code;
    } runs[] = {
        { "bash", "echo $SERVER $BOTH \"$OWN\" $BELLJAR_TEST_SECRET" },
        { "sh", "echo $SERVER $BOTH \"$OWN\" $BELLJAR_TEST_SECRET" },
        { "python", "import os; e = os.environ.get\n"
                    "print(e('SERVER'), e('BOTH'), e('OWN'), *filter(None, "
                    "[e('BELLJAR_TEST_SECRET')]))" },
        { "python", "import os; os._exit(1)" }, /* a new kernel knows them, too */
        { "python", "import subprocess; subprocess.run(['sh', '-c', 'echo $SERVER $BOTH $OWN'])" },
        { "node", "const e = process.env; console.log(e.SERVER, e.BOTH, e.OWN)" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        if (str_eq(runs[i].language, "node") && access("/usr/bin/node", X_OK) < 0)
            continue;
        RUN(runs[i].language, runs[i].code, .plan = &plan);
        if (rig.outcome != OUTCOME_KERNEL_DIED)
            CHECK_STR(runs[i].language, rig.printed, "all session a b=\xc3\xa4\n");
    }
    assert_int_equal(session_close(rig.sessions, "me", "env"), 0);
    RUN("sh", "echo $SERVER $BOTH $OWN", .transient = true);
    CHECK_STR("another session", rig.printed, "all server\n");
}

static void a_plan_with_variables_or_modules_that_cannot_be_is_refused(void **state)
{
    (void)state;
    auto_json *reserved = json_literal("{\"LD_PRELOAD\": \"x\"}");
    auto_json *modules = json_literal("[\"a b\"]");
    const struct session_plan plans[] = {
        { .env = reserved },
        { .env = modules },
        { .allowed_modules = modules },
        { .blocked_modules = modules },
    };
    for (size_t i = 0; i < ARRAY_SIZE(plans); i++) {
        struct err err = { 0 };
        CHECK_INT("refused", open_session(&plans[i], &err), -EINVAL);
        CHECK_INT("said", err.msg[0] != '\0', true);
    }
}

static void server_and_session_must_both_allow_an_import(void **state)
{
    (void)state;
    auto_json *allowed = json_literal("[\"math\", \"socket\"]");
    const struct session_plan plan = { .id = "policy", .allowed_modules = allowed };
    static const struct {
        const char *code, *words;
    } cases[] = {
        { "import math", "" },
        { "import socket", "blocked_modules of this server" },
        { "import json", "allowed_modules of this session: math, socket" },
    };
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            RUN("python", cases[i].code, .plan = &plan);
            if (!strstr(rig.error, cases[i].words))
                FAIL("%s: \"%s\" does not say \"%s\"", cases[i].code, rig.error, cases[i].words);
            CHECK_INT(cases[i].code, rig.outcome == OUTCOME_OK, !*cases[i].words);
        }
        /* A policy and no wall: whoever wants to, gets at os. The next kernel has the same policy. */
        RUN("python",
            "[c for c in object.__subclasses__() if c.__name__ == '_wrap_close'][0]"
            ".__init__.__globals__['_exit'](0)",
            .plan = &plan);
        CHECK_INT("the kernel's end", rig.outcome, OUTCOME_KERNEL_DIED);
    }
    assert_int_equal(session_close(rig.sessions, "me", "policy"), 0);
    RUN("python", "import json", .transient = true);
    CHECK_INT("another session", rig.outcome, OUTCOME_OK);
}

/*** All ***/

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_may_be_chosen_and_belongs_to_its_owner),
        cmocka_unit_test(an_id_that_cannot_be_is_refused),
        cmocka_unit_test(a_random_id_is_as_long_as_asked),
        cmocka_unit_test(variables_go_in_and_come_out),
        cmocka_unit_test(variables_are_told_only_when_wanted),
        cmocka_unit_test(variables_that_are_too_many_are_refused_or_left_out),
        cmocka_unit_test(forged_variables_are_dropped),
        cmocka_unit_test(every_language_sees_the_variables_of_its_session),
        cmocka_unit_test(a_plan_with_variables_or_modules_that_cannot_be_is_refused),
        cmocka_unit_test(server_and_session_must_both_allow_an_import),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}

/* In a child, whose plan must not stand among ours. */
static int run_all_as_ordinary_user(void)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(0, NULL) < 0 || setresgid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID) < 0 ||
            setresuid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID) < 0 ||
            prctl(PR_SET_DUMPABLE, 1) < 0)
            _exit(99);
        (void)dup2(STDERR_FILENO, STDOUT_FILENO);
        _exit(run_all());
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(void)
{
    int failed = geteuid() == 0 ? run_all_as_ordinary_user() : 0;
    return run_all() + failed;
}
