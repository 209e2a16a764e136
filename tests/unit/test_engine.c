/*
 * The native engine on this very host: what a sandbox looks like from inside, that its limits hold
 * and are counted, and that nothing of it stays, however it, the spawner or the server ends. As root
 * everything is done as root, and the essentials again as an ordinary user.
 */
#include "check.h"
#include "scratch.h"

#include "agent/link.h"
#include "base/buf.h"
#include "base/loop.h"
#include "base/text.h"
#include "engine/engine.h"
#include "engine/native/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UID_BASE = 1879048192, UID_COUNT = 4096, ORDINARY_UID = 65534, WAIT_MS = 20000 };

/*** One engine and what runs in it ***/

struct rig {
    uv_loop_t loop;
    struct engine *engine;
    struct engine_options options;
    char state_dir[64];
    char instance[40];
};

static const struct sandbox_limits limits = {
    .memory_bytes = 64 << 20,
    .pids = 32,
    .cpu_millis = 1000,
    .nofile = 256,
    .file_bytes = 32 << 20,
    .workspace_bytes = 16 << 20,
    .workspace_inodes = 1000,
    .tmp_bytes = 16 << 20,
    .tmp_inodes = 1000,
    .shm_bytes = 8 << 20,
};

static void rig_prepare(struct rig *rig)
{
    *rig = (struct rig){ 0 };
    char random[RANDOM_ID_SIZE];
    random_id(random);
    (void)snprintf(rig->instance, sizeof(rig->instance), "test-%.12s", random);
    (void)snprintf(rig->state_dir, sizeof(rig->state_dir), "/tmp/belljar-test-XXXXXX");
    assert_non_null(mkdtemp(rig->state_dir));
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    rig->options = (struct engine_options){
        .state_dir = rig->state_dir,
        .instance = rig->instance,
        .rootfs = "",
        .uid_base = UID_BASE,
        .uid_count = UID_COUNT,
        .pool_max_creations = 4,
        .pool_plan.limits = limits,
    };
    /* An ordinary user may have no cgroup of its own; that refusal has its own test. */
    if (geteuid() != 0)
        rig->options.allow_missing = LAYER_MEMORY_LIMIT | LAYER_PIDS_LIMIT | LAYER_CPU_LIMIT;
}

static void rig_open(struct rig *rig)
{
    rig_prepare(rig);
    struct err err = { 0 };
    if (engine_open(&rig->loop, "native", &rig->options, &rig->engine, &err) < 0)
        FAIL("engine_open: %s", err.msg);
}

static void rig_close(struct rig *rig)
{
    engine_close(rig->engine);
    loop_finish(&rig->loop);
    (void)scratch_remove(rig->state_dir);
}

/* Runs the loop until *done, or fails. */
static void rig_wait(struct rig *rig, const bool *done, const char *what)
{
    uint64_t start = clock_ms();
    struct timer *wake = timer_new(&rig->loop, (timer_fn *)uv_update_time, &rig->loop);
    timer_repeat(wake, 10);
    while (!*done && clock_ms() - start < WAIT_MS)
        (void)uv_run(&rig->loop, UV_RUN_ONCE);
    timer_free(wake);
    if (!*done)
        FAIL("%s: nothing within %d ms", what, WAIT_MS);
}

/* Runs the loop for a while. */
static void rig_idle(struct rig *rig, uint64_t ms)
{
    for (uint64_t start = clock_ms(); clock_ms() - start < ms; uv_sleep(1))
        (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
}

/* Runs the loop until the pool holds `count`. */
static void rig_wait_pool(struct rig *rig, uint64_t count)
{
    struct engine_stats stats = { 0 };
    for (uint64_t start = clock_ms(); clock_ms() - start < WAIT_MS; rig_idle(rig, 10)) {
        engine_stats(rig->engine, &stats);
        if (stats.pool_ready == count)
            return;
    }
    FAIL("expected %d sandboxes in the pool, got %d", (int)count, (int)stats.pool_ready);
}

struct guest {
    struct rig *rig;
    struct sandbox *sandbox;
    struct link *link;
    struct buf output; /* stdout and stderr of the last run */
    struct link_exit exit;
    struct sandbox_usage usage;
    struct err err;
    bool started, ready, exited, used, died;
};

static void on_started(struct sandbox *sandbox, const struct err *err, void *data)
{
    struct guest *guest = data;
    guest->started = true;
    guest->sandbox = sandbox;
    if (err)
        guest->err = *err;
}

static void on_died(struct sandbox *sandbox, void *data)
{
    struct guest *guest = data;
    assert_ptr_equal(sandbox, guest->sandbox);
    assert_false(guest->died);
    guest->died = true;
}

static void on_ready(void *data)
{
    ((struct guest *)data)->ready = true;
}

static void on_broken(const char *why, void *data)
{
    (void)why, (void)data; /* seen as the end of the run, or as a death */
}

static void on_output(enum link_stream stream, const char *bytes, size_t len, void *data)
{
    (void)stream;
    (void)buf_add(&((struct guest *)data)->output, bytes, len);
}

static void on_gap(enum link_stream stream, uint64_t bytes, void *data)
{
    (void)stream, (void)bytes, (void)data;
}

static void on_exit_(const struct link_exit *exit, void *data)
{
    struct guest *guest = data;
    guest->exited = true;
    guest->exit = exit ? *exit : (struct link_exit){ .code = -1 };
}

static void on_usage(const struct sandbox_usage *usage, void *data)
{
    struct guest *guest = data;
    guest->used = true;
    guest->usage = usage ? *usage : (struct sandbox_usage){ 0 };
}

static void guest_begin(struct guest *guest, struct rig *rig)
{
    *guest = (struct guest){ .rig = rig, .output = BUF_INIT(1 << 20) };
    (void)engine_start(rig->engine, &rig->options.pool_plan, on_started, guest);
    assert_false(guest->started); /* never from inside the call */
}

static void guest_finish_start(struct guest *guest)
{
    static const struct link_events events = { on_ready, on_broken };
    rig_wait(guest->rig, &guest->started, "start");
    if (!guest->sandbox)
        FAIL("start: %s", guest->err.msg);
    sandbox_on_died(guest->sandbox, on_died, guest);
    guest->link = link_new(&guest->rig->loop, sandbox_take_fd(guest->sandbox), &events, guest);
    rig_wait(guest->rig, &guest->ready, "hello of the agent");
}

static void guest_start(struct guest *guest, struct rig *rig)
{
    guest_begin(guest, rig);
    guest_finish_start(guest);
}

static void guest_begin_run(struct guest *guest, const char *script)
{
    static const struct link_run_events events = { on_output, on_gap, on_exit_ };
    const char *const argv[] = { "/bin/sh", "-c", script, NULL };
    struct link_run_spec spec = { .argv = argv,
                                  .cwd = "",
                                  .head_bytes = 1 << 18,
                                  .tail_bytes = 1 << 18,
                                  .flood_bytes = 1 << 30 };
    struct err err = { 0 };
    buf_clear(&guest->output);
    guest->exited = false;
    if (link_run(guest->link, &spec, &events, guest, &err) < 0)
        FAIL("run: %s", err.msg);
}

/* Runs a shell script; its output is in guest->output. */
static const char *guest_run(struct guest *guest, const char *script)
{
    guest_begin_run(guest, script);
    rig_wait(guest->rig, &guest->exited, script);
    return buf_str(&guest->output);
}

static void guest_count(struct guest *guest)
{
    guest->used = false;
    sandbox_usage(guest->sandbox, on_usage, guest);
    rig_wait(guest->rig, &guest->used, "usage");
}

static void guest_end(struct guest *guest)
{
    int stream = link_retire(guest->link);
    sandbox_retire(guest->sandbox, stream);
    buf_done(&guest->output);
}

/*** What is left on the host ***/

static int count_named;
static const char *counted_name;
static int count_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    count_named += type == FTW_D && strstr(path, counted_name) != NULL;
    return 0;
}

/* Directories of the instance below /sys/fs/cgroup. */
static int cgroups_left(const char *instance)
{
    count_named = 0;
    counted_name = instance;
    (void)nftw("/sys/fs/cgroup", count_entry, 16, FTW_PHYS);
    return count_named;
}

/* Processes of the range of outside uids. */
static int processes_left(void)
{
    int count = 0;
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[280];
        struct stat st;
        (void)snprintf(path, sizeof(path), "/proc/%s", entry->d_name);
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && stat(path, &st) == 0)
            count += st.st_uid >= UID_BASE && st.st_uid < UID_BASE + UID_COUNT;
    }
    if (dir)
        (void)closedir(dir);
    return count;
}

static int count_lines(const char *path)
{
    int count = 0;
    FILE *file = fopen(path, "re");
    for (int c; file && (c = fgetc(file)) != EOF;)
        count += c == '\n';
    if (file)
        (void)fclose(file);
    return count;
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        (void)closedir(dir);
    return count;
}

static bool nothing_left(const struct rig *rig)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/instances/%s", rig->state_dir, rig->instance);
    return cgroups_left(rig->instance) == 0 && processes_left() == 0 && access(path, F_OK) != 0;
}

static void wait_for_nothing(const struct rig *rig, const char *after, uint64_t ms)
{
    for (uint64_t start = clock_ms(); clock_ms() - start < ms; uv_sleep(20))
        if (nothing_left(rig))
            return;
    FAIL("%s: %d cgroups, %d processes left after %d ms", after, cgroups_left(rig->instance),
         processes_left(), (int)ms);
}

/*** As an ordinary user ***/

/* Runs a test again in a child that is nobody special. */
static void as_ordinary_user(void (*test)(void **))
{
    if (geteuid() != 0)
        return; /* everything is run as one already */
    pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(0, NULL) < 0 || setresgid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID) < 0 ||
            setresuid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID) < 0 ||
            prctl(PR_SET_DUMPABLE, 1) < 0)
            _exit(99);
        const struct CMUnitTest one[] = { { "as an ordinary user", test, NULL, NULL, NULL } };
        (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* the plan on stdout is the parent's */
        _exit(cmocka_run_group_tests(one, NULL, NULL));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/*** Tests ***/

static void layers_have_names(void **state)
{
    (void)state;
    for (unsigned bit = 1; bit <= LAYER_LANDLOCK; bit <<= 1) {
        enum engine_layer layer;
        assert_true(engine_layer_parse(engine_layer_name(bit), &layer));
        assert_int_equal(layer, bit);
    }
    enum engine_layer none;
    assert_false(engine_layer_parse("memory", &none));
}

static void check_line(const char *text, const char *line)
{
    if (!strstr(text, line))
        FAIL("expected \"%s\" in:\n%s", line, text);
}

static void sandbox_is_closed(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    guest_start(&guest, &rig);

    const char *text = guest_run(&guest, "cat /proc/self/status; ls /proc/self/fd; id; pwd; env");
    static const char *const lines[] = {
        "\nNoNewPrivs:\t1\n",
        "\nSeccomp:\t2\n",
        "\nUid:\t1000\t1000\t1000\t1000\n",
        "\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n",
        "\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n",
        "\n0\n1\n2\n3\nuid=1000(guest) gid=1000(guest)", /* 3 is ls itself reading */
        "\n/workspace\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        check_line(text, lines[i]);

    static const char *const spaces[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
    for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
        char path[64], script[96], ours[64] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
        (void)snprintf(script, sizeof(script), "readlink %s", path);
        assert_true(readlink(path, ours, sizeof(ours) - 1) > 0);
        text = guest_run(&guest, script);
        assert_int_equal(strncmp(text, spaces[i], strlen(spaces[i])), 0);
        assert_int_not_equal(strncmp(text, ours, strlen(ours)), 0);
    }

    /* Each of these must fail; what succeeds is printed. */
    text = guest_run(
        &guest, "for f in /etc/shadow /root /var/lib /proc/1/environ /proc/1/mem "
                "/boot /sys/kernel; do head -c1 $f "
                ">/dev/null 2>&1 && echo read $f; ls $f/* 2>/dev/null; done\n"
                "for f in /proc/kcore /proc/sysrq-trigger; do " /* empty, where the host has them */
                "head -c1 $f 2>/dev/null | grep -q '' && echo read $f; done\n"
                "for f in /x /usr/x /etc/x /dev/x /proc/sys/kernel/hostname /run/x; do (echo "
                "1 >$f) 2>/dev/null && echo wrote $f; done\n"
                "kill -9 1 2>/dev/null; mount -t tmpfs x /tmp 2>/dev/null && echo mounted\n"
                "unshare -U true 2>/dev/null && echo unshared; true");
    assert_string_equal(text, "");
    text =
        guest_run(&guest, "find /home -mindepth 1 -printf '%p %l\\n'"); /* of the host's: nothing */
    assert_string_equal(text, "/home/user \n/home/user/session /workspace\n");
    text = guest_run(&guest, "for d in /workspace /tmp /dev/shm; do echo 1 >$d/x || echo $d; done; "
                             "cat /sys/devices/system/cpu/online >/dev/null; cat /proc/net/dev");
    check_line(text, "lo:");
    guest_end(&guest);
    rig_close(&rig);
}

static void sandbox_is_closed_to_users_too(void **state)
{
    (void)state;
    as_ordinary_user(sandbox_is_closed);
}

/* A socket that listens on a free port of loopback. */
static int listen_somewhere(uint16_t *ret_port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

/* An installer's sandbox: in the host's network, but not in reach of its programs. */
static void installers_reach_what_they_need(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    struct err err = { 0 };
    uint16_t good, other;
    int listeners[] = { listen_somewhere(&good), listen_somewhere(&other) };
    rig_prepare(&rig);
    const struct engine_network network = { .wheels = "/usr/share",
                                            .ports = { good },
                                            .n_ports = 1 };
    rig.options.network = &network;
    if (engine_open(&rig.loop, "native", &rig.options, &rig.engine, &err) < 0)
        FAIL("engine_open: %s", err.msg);
    guest_start(&guest, &rig);

    char ours[64] = "", script[512];
    assert_true(readlink("/proc/self/ns/net", ours, sizeof(ours) - 1) > 0);
    check_line(guest_run(&guest, "readlink /proc/self/ns/net"), ours);
    (void)snprintf(script, sizeof(script),
                   "for p in %u %u; do bash -c \"exec 3<>/dev/tcp/127.0.0.1/$p\" 2>/dev/null && "
                   "echo reached $p; done; true",
                   good, other);
    char reached[32];
    (void)snprintf(reached, sizeof(reached), "reached %u\n", good);
    const char *text = guest_run(&guest, script);
    check_line(text, reached);
    (void)snprintf(reached, sizeof(reached), "reached %u\n", other);
    bool by_port = sys_landlock_abi() >= 4;
    CHECK("other ports are closed where the kernel can", !by_port || !strstr(text, reached));
    text = guest_run(&guest, "python3 -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1");
    check_line(text, "not permitted");
    text = guest_run(&guest, "ls /opt/belljar/wheels; touch /opt/belljar/wheels/x 2>&1; "
                             "ls -d /root /var/lib 2>&1; readlink /etc/resolv.conf");
    check_line(text, "Read-only");
    check_line(text, ENGINE_NETWORK_FILES "/resolv.conf\n");
    check_line(text, "'/root': No such file");
    check_line(text, "'/var/lib': No such file");
    guest_end(&guest);
    rig_close(&rig);
    for (size_t i = 0; i < ARRAY_SIZE(listeners); i++)
        close(listeners[i]);
}

static void installers_of_users_too(void **state)
{
    (void)state;
    as_ordinary_user(installers_reach_what_they_need);
}

/* Its failure is told by the first start: nobody waited for it. */
static void installers_that_cannot_be_are_told(void **state)
{
    (void)state;
    struct rig rig;
    struct err err = { 0 };
    struct guest guest;
    rig_prepare(&rig);
    const struct engine_network network = { .wheels = "/no/such/directory" };
    rig.options.network = &network;
    assert_int_equal(engine_open(&rig.loop, "native", &rig.options, &rig.engine, &err), 0);
    guest_begin(&guest, &rig);
    rig_wait(&rig, &guest.started, "a start");
    assert_null(guest.sandbox);
    bool early = strstr(guest.err.msg, "the spawner has died") != NULL;
    CHECK(guest.err.msg, early || strstr(guest.err.msg, "/no/such/directory"));
    rig_close(&rig);
    CHECK("nothing left", nothing_left(&rig));
}

static void outside_uids_are_unique(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* one user has one uid */
    struct rig rig;
    struct guest a, b;
    rig_open(&rig);
    assert_true(engine_layers(rig.engine) & LAYER_OWN_UID);
    guest_start(&a, &rig);
    guest_start(&b, &rig);
    const char *ours = guest_run(&a, "cat /proc/self/uid_map");
    const char *theirs = guest_run(&b, "cat /proc/self/uid_map");
    unsigned long agents[2], guests[2];
    assert_int_equal(sscanf(ours, " 0 %lu 1 1000 %lu 1", &agents[0], &guests[0]), 2);
    assert_int_equal(sscanf(theirs, " 0 %lu 1 1000 %lu 1", &agents[1], &guests[1]), 2);
    /* As the spawner's namespace counts: not its own 0, and all four different. */
    unsigned long ids[] = { agents[0], guests[0], agents[1], guests[1] };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j <= i; j++)
            assert_true(ids[i] != 0 && (i == j || ids[i] != ids[j]));
    guest_end(&a);
    guest_end(&b);
    rig_close(&rig);
}

static void limits_hold_and_are_counted(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    if (!(engine_layers(rig.engine) & LAYER_MEMORY_LIMIT)) {
        rig_close(&rig);
        skip(); /* no cgroup for this user */
    }
    guest_start(&guest, &rig);

    (void)guest_run(&guest, "head -c 200m /dev/zero | tail -c 200m >/dev/null");
    guest_count(&guest);
    CHECK("memory kills", guest.usage.oom_kills >= 1);
    CHECK("peak is the limit", guest.usage.memory_peak_bytes > limits.memory_bytes / 2 &&
                                   guest.usage.memory_peak_bytes <= limits.memory_bytes);
    CHECK_STR("the agent lives on", guest_run(&guest, "echo yes"), "yes\n");

    (void)guest_run(&guest, "i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); done 2>/dev/null");
    guest_count(&guest);
    CHECK("forks denied", guest.usage.pids_denied >= 1);
    CHECK_STR("the agent lives on", guest_run(&guest, "echo yes"), "yes\n");

    (void)guest_run(&guest, "dd if=/dev/zero of=/workspace/big bs=1M count=40 2>/dev/null");
    CHECK_STR("workspace is full", guest_run(&guest, "stat -c %s /workspace/big"), "16777216\n");
    guest_count(&guest);
    CHECK("files in memory count", guest.usage.memory_bytes >= 16 << 20);
    CHECK("cpu is counted", guest.usage.cpu_ns > 1000000);
    CHECK("a full disk kills nobody", !guest.died);
    guest_end(&guest);
    rig_close(&rig);
}

/* One that reaches its limits; then many, in whose cgroups others have been. */
static void nobody_sees_counters_of_another(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    if (!(engine_layers(rig.engine) & LAYER_MEMORY_LIMIT)) {
        rig_close(&rig);
        skip(); /* no cgroup for this user */
    }
    for (int i = 0; i < COUNT; i++) {
        guest_start(&guest, &rig);
        guest_count(&guest);
        CHECK_INT("memory kills", guest.usage.oom_kills, 0);
        CHECK_INT("forks denied", guest.usage.pids_denied, 0);
        CHECK("nothing has run yet", guest.usage.cpu_ns < 50 * 1000000);
        CHECK("nothing was needed yet", guest.usage.memory_peak_bytes < 4 << 20);
        if (i % 8 == 0)
            (void)guest_run(&guest, "head -c 200m /dev/zero | tail -c 200m >/dev/null");
        if (i % 8 == 1)
            (void)guest_run(&guest, "i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); done");
        if (i % 8 == 2)
            (void)guest_run(&guest, "head -c 30m /dev/zero > /tmp/x; i=0; while [ $i -lt 99999 ];"
                                    " do i=$((i+1)); done");
        guest_count(&guest);
        CHECK("it counts", i % 8 != 0 || guest.usage.oom_kills > 0);
        CHECK("it counts", i % 8 != 1 || guest.usage.pids_denied > 0);
        CHECK("it counts", i % 8 != 2 || guest.usage.cpu_ns > 10 * 1000000);
        guest_end(&guest);
        if (i % 16 == 15)
            rig_idle(&rig, 250);
    }
    rig_close(&rig);
}

/* Some sandboxes, one after the other; whether they may have this much is checked in each. */
static void use_leaves(struct rig *rig, uint64_t pids, uint64_t memory_bytes, bool enough)
{
    enum { COUNT = 4 };
    struct guest guest;
    rig->options.pool_plan.limits.pids = pids;
    rig->options.pool_plan.limits.memory_bytes = memory_bytes;
    for (int i = 0; i < COUNT; i++) {
        guest_start(&guest, rig);
        (void)guest_run(&guest, "i=0; while [ $i -lt 30 ]; do sleep 9 & i=$((i+1)); done");
        (void)guest_run(&guest, "head -c 90m /dev/zero | tail -c 90m >/dev/null");
        guest_count(&guest);
        CHECK("forks denied", (guest.usage.pids_denied == 0) == enough);
        CHECK("memory kills", (guest.usage.oom_kills == 0) == enough);
        guest_end(&guest);
    }
    rig_idle(rig, 300); /* then others use them again */
}

static void limits_are_those_of_now(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    if (!(engine_layers(rig.engine) & LAYER_MEMORY_LIMIT)) {
        rig_close(&rig);
        skip(); /* no cgroup for this user */
    }
    use_leaves(&rig, 50, 160 << 20, true);
    use_leaves(&rig, 50, 160 << 20, true);
    use_leaves(&rig, 20, 64 << 20, false);
    use_leaves(&rig, 50, 160 << 20, true);
    rig_close(&rig);
}

static void many_leave_no_trace(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    struct rig rig;
    static struct guest guests[COUNT];
    rig_open(&rig);
    guest_start(&guests[0], &rig); /* what libuv opens once is open now */
    guest_end(&guests[0]);
    rig_idle(&rig, 200);
    int mounts = count_lines("/proc/self/mountinfo"), descriptors = count_descriptors();

    for (int i = 0; i < COUNT; i++)
        guest_begin(&guests[i], &rig);
    for (int i = 0; i < COUNT; i++)
        guest_finish_start(&guests[i]);
    struct engine_stats stats;
    engine_stats(rig.engine, &stats);
    assert_int_equal(stats.sandboxes_open, COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK_STR("each answers", guest_run(&guests[i], "echo here"), "here\n");
    for (int i = 0; i < COUNT; i++)
        guest_end(&guests[i]);

    for (int i = 0; i < COUNT; i++) {
        guest_start(&guests[0], &rig);
        CHECK_STR("one after the other", guest_run(&guests[0], "echo here"), "here\n");
        guest_end(&guests[0]);
    }
    for (int i = 0; i < 100 && geteuid() == 0 && processes_left() > 2; i++)
        rig_idle(&rig, 30);
    rig_idle(&rig, 300);
    engine_stats(rig.engine, &stats);
    assert_int_equal(stats.sandboxes_open, 0);
    assert_int_equal(count_lines("/proc/self/mountinfo"), mounts);
    assert_int_equal(count_descriptors(), descriptors);
    if (geteuid() == 0)
        assert_in_range(processes_left(), 2, 2); /* the spawner and its mould */
    /* Its own directories, and of leaves that are used again some that wait for others. */
    assert_in_range(cgroups_left(rig.instance), 0, 4 + (2 + 4) * 32);
    engine_close(rig.engine);
    rig.engine = NULL;
    wait_for_nothing(&rig, "close", 1000);
    rig_close(&rig);
}

static void many_of_a_user_leave_no_trace(void **state)
{
    (void)state;
    as_ordinary_user(many_leave_no_trace);
}

static void pool_is_used_and_refilled(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_prepare(&rig);
    rig.options.pool_enabled = true;
    rig.options.pool_size = 3;
    rig.options.pool_max_age_ms = 60000;
    struct err err;
    assert_int_equal(engine_open(&rig.loop, "native", &rig.options, &rig.engine, &err), 0);
    struct engine_stats stats;
    rig_wait_pool(&rig, 3);
    guest_start(&guest, &rig);
    rig_wait_pool(&rig, 3);
    engine_stats(rig.engine, &stats);
    assert_int_equal(stats.pool_hits, 1);
    assert_int_equal(stats.sandboxes_open, 1);
    guest_end(&guest);

    /* Another plan does not come from the pool. */
    rig.options.pool_plan.limits.pids++;
    guest_start(&guest, &rig);
    engine_stats(rig.engine, &stats);
    assert_int_equal(stats.pool_misses, 1);
    guest_end(&guest);

    /* A start that is given up leaves nothing but a fuller pool. */
    struct engine_pending *pending =
        engine_start(rig.engine, &rig.options.pool_plan, on_started, &guest);
    engine_start_cancel(pending);
    rig_wait_pool(&rig, 3);
    engine_stats(rig.engine, &stats);
    assert_int_equal(stats.sandboxes_open, 0);
    rig_close(&rig);
}

/* Processes of guests that are `sleep` with this word. */
static int sleepers(const char *word)
{
    int count = 0;
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[280], line[256] = "";
        (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "re");
        size_t len = file ? fread(line, 1, sizeof(line) - 1, file) : 0;
        count += len && str_eq(line, "sleep") && str_eq(line + strlen("sleep") + 1, word);
        if (file)
            (void)fclose(file);
    }
    if (dir)
        (void)closedir(dir);
    return count;
}

/* The loop is not run meanwhile: whatever the broker has put off does not happen. */
static void wait_for_no_sleepers(const char *word)
{
    uint64_t start = clock_ms();
    while (sleepers(word) && clock_ms() - start < WAIT_MS)
        uv_sleep(5);
    CHECK_INT(word, sleepers(word), 0);
}

static void ends_wait_only_where_nothing_runs(void **state)
{
    (void)state;
    struct rig rig;
    struct guest quiet, busy;
    rig_prepare(&rig);
    rig.options.pool_enabled = true;
    rig.options.pool_size = 8;
    rig.options.pool_max_age_ms = 60000;
    struct err err;
    assert_int_equal(engine_open(&rig.loop, "native", &rig.options, &rig.engine, &err), 0);
    rig_wait_pool(&rig, 8);
    guest_start(&quiet, &rig);
    (void)guest_run(&quiet, "setsid sleep 31415 & echo");
    CHECK_INT("nothing runs after a run", sleepers("31415"), 0);
    guest_start(&busy, &rig);
    guest_begin_run(&busy, "setsid sleep 31416 & sleep 31416");
    for (int i = 0; i < 1000 && sleepers("31416") < 2; i++)
        rig_idle(&rig, 5);
    CHECK_INT("they run", sleepers("31416"), 2);
    guest_end(&quiet);
    guest_end(&busy);
    wait_for_no_sleepers("31416");

    struct engine_stats stats;
    engine_stats(rig.engine, &stats);
    assert_int_equal(stats.sandboxes_open, 0);
    rig_wait_pool(&rig, 8);
    for (int i = 0; i < 200 && geteuid() == 0 && processes_left() > 2 + 2 * 8; i++)
        rig_idle(&rig, 10);
    if (geteuid() == 0) /* spawner and mould, and agent and understudy of each that is ready */
        assert_in_range(processes_left(), 2, 2 + 2 * 8);
    rig_close(&rig);
}

static void death_is_told_once(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    guest_start(&guest, &rig);
    /* The agent ends when its stream does. */
    link_free(guest.link);
    guest.link = NULL;
    rig_wait(&rig, &guest.died, "death");
    guest_count(&guest); /* counters outlive it */
    rig_idle(&rig, 50);
    guest_end(&guest);
    rig_close(&rig);
}

/* The child of the keeper, itself a child of ours. */
static pid_t find_named_child(pid_t parent, const char *name)
{
    pid_t found = -1;
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    while (dir && found < 0 && (entry = readdir(dir))) {
        char path[280], line[256] = "", comm[32] = "";
        int pid = 0, ppid = 0;
        (void)snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file && fgets(line, sizeof(line), file) &&
            sscanf(line, "%d (%31[^)]) %*c %d", &pid, comm, &ppid) == 3 && ppid == parent &&
            strcmp(comm, name) == 0)
            found = pid;
        if (file)
            (void)fclose(file);
    }
    if (dir)
        (void)closedir(dir);
    return found;
}

static pid_t find_spawner(void)
{
    return find_named_child(find_named_child(getpid(), "belljar-keeper"), "belljar-spawner");
}

/* What a process has mapped: of a file, the image that it was cast from and nothing else. */
static void check_maps(pid_t pid, const char *whose)
{
    char path[32], line[512], foreign[512] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        FAIL("%s of the %s: %s", path, whose, strerror(errno));
    int seen = 0;
    while (fgets(line, sizeof(line), file)) {
        const char *name = strchr(line, '/');
        seen += name != NULL;
        if (name && !str_has_prefix(name, "/memfd:belljar-mould"))
            (void)snprintf(foreign, sizeof(foreign), "%s", line);
    }
    bool broken = ferror(file) != 0;
    (void)fclose(file);
    CHECK_STR(whose, foreign, "");
    if (seen == 0) /* it has ended, or could not be read */
        FAIL("%s of the %s: no program%s", path, whose, broken ? ", and an error" : "");
}

/* 0-2, the stream, the door, signals, two directories; and the guest's cgroups. */
static void check_descriptors(pid_t pid, int most)
{
    auto_free char *path = xasprintf("/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    struct dirent *entry;
    int count = 0;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    (void)closedir(dir);
    assert_in_range(count, 1, most);
}

static void agents_begin_with_nothing_of_the_servers(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    guest_start(&guest, &rig);
    CHECK_STR("it runs", guest_run(&guest, "echo here"), "here\n");
    pid_t spawner = find_spawner(), agent = find_named_child(spawner, "belljar-agent");
    pid_t mould = find_named_child(spawner, "belljar-mould");
    assert_true(agent > 0 && mould > 0);
    check_maps(mould, "mould");
    check_maps(agent, "agent");
    check_descriptors(agent, 3 + 1 + 1 + 1 + 2 + 4);
    guest_end(&guest);
    rig_close(&rig);
}

static void added(int code, void *data)
{
    (void)code; /* there is no zygote */
    *(bool *)data = true;
}

/* One that has ended is there until it is reaped, and must not be taken for the next. */
static void wait_for_no_agent(struct rig *rig)
{
    for (uint64_t start = clock_ms(); clock_ms() - start < WAIT_MS; rig_idle(rig, 5))
        if (find_named_child(find_spawner(), "belljar-agent") < 0)
            return;
    FAIL("an agent is left after %d ms", WAIT_MS);
}

/* Within so long. */
static bool somebody_waits(struct rig *rig, uint64_t ms)
{
    struct guest guest;
    wait_for_no_agent(rig);
    guest_start(&guest, rig);
    pid_t agent = find_named_child(find_spawner(), "belljar-agent");
    assert_true(agent > 0);
    bool found = false;
    for (uint64_t start = clock_ms(); !found && clock_ms() - start < ms; rig_idle(rig, 5))
        found = find_named_child(agent, "belljar-agent") > 0;
    CHECK("the agent lives", find_named_child(find_spawner(), "belljar-agent") == agent);
    bool done = false;
    struct link_pipes ours, theirs;
    struct err err;
    CHECK_INT("pipes", link_pipes_open(&ours, &theirs, &err), 0);
    sandbox_add_kernel(guest.sandbox, 1, &theirs, added, &done);
    rig_wait(rig, &done, "an answer about a kernel");
    link_pipes_close(&ours);
    guest_end(&guest);
    return found;
}

static void nobody_waits_where_kernels_are_first(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    for (int i = 0; i < 8; i++)
        CHECK("as long as that is not known", somebody_waits(&rig, WAIT_MS));
    CHECK("nobody after so many kernels", !somebody_waits(&rig, 100));
    guest_start(&guest, &rig);
    CHECK_STR("a program", guest_run(&guest, "echo here"), "here\n");
    guest_end(&guest);
    CHECK("again after a program", somebody_waits(&rig, WAIT_MS));
    rig_close(&rig);
}

static void mould_death_ends_everything(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    guest_start(&guest, &rig);
    pid_t mould = find_named_child(find_spawner(), "belljar-mould");
    assert_true(mould > 0);
    assert_int_equal(kill(mould, SIGKILL), 0);
    rig_wait(&rig, &guest.died, "death of the sandbox");
    guest_end(&guest);
    wait_for_nothing(&rig, "the mould's death", 3000);
    rig_close(&rig);
}

static void a_mould_that_does_not_answer_ends_everything(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    rig_open(&rig);
    pid_t mould = find_named_child(find_spawner(), "belljar-mould");
    assert_true(mould > 0);
    assert_int_equal(kill(mould, SIGSTOP), 0);
    guest_begin(&guest, &rig);
    rig_wait(&rig, &guest.started, "refusal");
    assert_null(guest.sandbox);
    buf_done(&guest.output);
    wait_for_nothing(&rig, "the mould's silence", 3000);
    rig_close(&rig);
}

/* Puts so many descriptors on their way; all of them are gone with the sockets. */
static void send_descriptors(const int sockets[2], int count)
{
    enum { AT_ONCE = 100 };
    int fds[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++)
        fds[i] = STDERR_FILENO;
    for (int sent = 0; sent < count; sent += AT_ONCE) {
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(sizeof(fds))];
        } control = { 0 };
        struct iovec part = { (char[1]){ 'x' }, 1 };
        struct msghdr message = { .msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = &control,
                                  .msg_controllen = sizeof(control) };
        control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fds)),
                                           .cmsg_level = SOL_SOCKET,
                                           .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.header), fds, sizeof(fds));
        CHECK_INT("send", sendmsg(sockets[0], &message, MSG_DONTWAIT), 1);
    }
}

static void too_many_descriptors_on_their_way(void **state)
{
    (void)state;
    enum { FEW = 200 };
    struct rig rig;
    struct guest before, refused, after;
    struct rlimit files = { FEW, FEW };
    int sockets[2];
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    rig_open(&rig);
    guest_start(&before, &rig);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    send_descriptors(sockets, FEW + 100);
    guest_begin(&refused, &rig);
    rig_wait(&rig, &refused.started, "refusal");
    assert_null(refused.sandbox);
    CHECK("it says why", strstr(refused.err.msg, strerror(ETOOMANYREFS)));
    buf_done(&refused.output);
    close(sockets[0]);
    close(sockets[1]);
    guest_start(&after, &rig);
    CHECK_STR("one that was there", guest_run(&before, "echo here"), "here\n");
    CHECK_STR("the next", guest_run(&after, "echo here"), "here\n");
    guest_end(&before);
    guest_end(&after);
    rig_close(&rig);
}

static void descriptors_on_their_way_fail_one_start_only(void **state)
{
    (void)state;
    as_ordinary_user(too_many_descriptors_on_their_way);
}

static void spawner_death_ends_everything(void **state)
{
    (void)state;
    struct rig rig;
    struct guest a, b;
    rig_open(&rig);
    guest_start(&a, &rig);
    pid_t spawner = find_spawner();
    assert_true(spawner > 0);
    assert_int_equal(kill(spawner, SIGKILL), 0);
    rig_wait(&rig, &a.died, "death of the sandbox");
    guest_begin(&b, &rig);
    rig_wait(&rig, &b.started, "refusal");
    assert_null(b.sandbox);
    assert_int_equal(b.err.code, EPIPE);
    guest_end(&a);
    wait_for_nothing(&rig, "the spawner's death", 3000);
    rig_close(&rig);
}

static void keeper_death_ends_everything(void **state)
{
    (void)state;
    /* Empty cgroup directories are left to the next start, of another instance or of the same. */
    for (int same = 0; same <= 1; same++) {
        struct rig rig, next;
        struct guest guest;
        rig_open(&rig);
        guest_start(&guest, &rig);
        assert_int_equal(kill(find_named_child(getpid(), "belljar-keeper"), SIGKILL), 0);
        rig_wait(&rig, &guest.died, "death of the sandbox");
        guest_end(&guest);
        engine_close(rig.engine);
        rig.engine = NULL;
        if (geteuid() == 0)
            CHECK("leftovers to be found", cgroups_left(rig.instance) > 0);
        uint64_t end = clock_ms() + 10000;
        while (processes_left() > 0 && clock_ms() < end) /* who is still dying holds them */
            uv_sleep(20);

        rig_prepare(&next);
        next.options.state_dir = rig.state_dir;
        next.options.instance = same ? rig.instance : next.instance;
        struct err err;
        int r;
        end = clock_ms() + 10000; /* the lock is free when the last that held it is gone */
        while ((r = engine_open(&next.loop, "native", &next.options, &next.engine, &err)) < 0 &&
               strstr(err.msg, "runs already") && clock_ms() < end)
            uv_sleep(20);
        if (r < 0)
            FAIL("open after a crash: %s", err.msg);
        if (!same)
            CHECK_INT("removed by the next start", cgroups_left(rig.instance), 0);
        engine_close(next.engine);
        next.engine = NULL;
        CHECK_INT("removed by the next end", cgroups_left(rig.instance), 0);
        rig_close(&next);
        rig_close(&rig);
    }
}

static void server_kill_leaves_nothing(void **state)
{
    (void)state;
    struct rig rig;
    int up[2];
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    rig_prepare(&rig);
    pid_t server = fork();
    if (server == 0) {
        struct err err;
        struct guest guests[3];
        if (engine_open(&rig.loop, "native", &rig.options, &rig.engine, &err) < 0)
            _exit(1);
        for (size_t i = 0; i < ARRAY_SIZE(guests); i++)
            guest_start(&guests[i], &rig);
        (void)guest_run(&guests[0], "(setsid sleep 1000 &) ; sleep 0.1");
        (void)!write(up[1], "", 1);
        for (;;)
            pause();
    }
    close(up[1]);
    char byte;
    assert_int_equal(read(up[0], &byte, 1), 1);
    close(up[0]);
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(waitpid(server, NULL, 0), server);
    wait_for_nothing(&rig, "kill -9 of the server", 5000);
    rig_close(&rig);
}

static void server_of_a_user_leaves_nothing(void **state)
{
    (void)state;
    as_ordinary_user(server_kill_leaves_nothing);
}

static void dropped_privileges_are_gone(void **state)
{
    (void)state;
    struct rig rig;
    struct guest guest;
    pid_t pid = fork(); /* the test itself still needs them */
    if (pid == 0) {
        rig_open(&rig);
        struct err err;
        int r = engine_drop_privileges(rig.engine, ENGINE_DEFAULT_UID, ENGINE_DEFAULT_UID, &err);
        char status[4096] = "";
        int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
        bool read_all = fd >= 0 && read(fd, status, sizeof(status) - 1) > 0;
        bool none = strstr(status, "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000") &&
                    strstr(status, "NoNewPrivs:\t1") && getuid() != 0;
        guest_start(&guest, &rig); /* and sandboxes still start */
        guest_end(&guest);
        engine_close(rig.engine);
        _exit(r == 0 && read_all && none ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void refusals_are_clear_and_leave_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *name, *want;
        const char *rootfs, *instance;
        uint32_t uid_count;
    } cases[] = {
        { "rootfs", "/nonexistent", .rootfs = "/nonexistent" },
        { "instance name", "instance name", .instance = "../x" },
        { "uid range", "uid range", .uid_count = 2 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct rig rig;
        struct err err = { 0 };
        rig_prepare(&rig);
        if (cases[i].rootfs)
            rig.options.rootfs = cases[i].rootfs;
        if (cases[i].instance)
            rig.options.instance = cases[i].instance;
        if (cases[i].uid_count)
            rig.options.uid_count = cases[i].uid_count;
        if (cases[i].uid_count && geteuid() != 0) { /* users have no range */
            rig_close(&rig);
            continue;
        }
        CHECK(cases[i].name, engine_open(&rig.loop, "native", &rig.options, &rig.engine, &err) < 0);
        check_line(err.msg, cases[i].want);
        CHECK(cases[i].name, nothing_left(&rig));
        rig_close(&rig);
    }
}

/* Unless the operator says so, no limit is dropped in silence. */
static void no_cgroup_no_start(void **state)
{
    (void)state;
    struct rig rig;
    rig_prepare(&rig);
    rig.options.allow_missing = 0;
    struct err err = { 0 };
    int r = engine_open(&rig.loop, "native", &rig.options, &rig.engine, &err);
    if (r < 0) {
        assert_int_equal(r, -ENOTSUP);
        check_line(err.msg, "memory_limit");
        check_line(err.msg, "allow_missing");
        CHECK("nothing left", nothing_left(&rig));
    } else {
        assert_true(engine_layers(rig.engine) & LAYER_MEMORY_LIMIT);
    }
    rig_close(&rig);
}

static void no_cgroup_no_start_for_users(void **state)
{
    (void)state;
    as_ordinary_user(no_cgroup_no_start);
}

static void checks_and_report_say_something(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    struct engine_check checks[ENGINE_CHECKS_MAX];
    size_t n = engine_checks("native", &rig.options, checks);
    assert_in_range(n, 5, ENGINE_CHECKS_MAX);
    for (size_t i = 0; i < n; i++) {
        CHECK(checks[i].name, checks[i].detail[0] != '\0');
        CHECK(checks[i].name, checks[i].verdict == ENGINE_OK || checks[i].remedy[0] != '\0');
    }
    auto_json *report = engine_report(rig.engine);
    CHECK_STR("engine", json_str(report, "engine"), "native");
    CHECK("layers", json_is_true(json_object_get(json_object_get(report, "layers"), "seccomp")));
    rig_close(&rig);
}

/* What a test that failed has left would fail those after it too. */
static int end_what_is_left(void **state)
{
    (void)state;
    pid_t keeper;
    while ((keeper = find_named_child(getpid(), "belljar-keeper")) > 0) {
        (void)kill(keeper, SIGKILL);
        (void)waitpid(keeper, NULL, 0);
        for (int i = 0; i < 250 && processes_left() > 0; i++)
            uv_sleep(20);
    }
    return 0;
}

#define TEST(function) cmocka_unit_test_teardown(function, end_what_is_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(layers_have_names),
        TEST(sandbox_is_closed),
        TEST(sandbox_is_closed_to_users_too),
        TEST(installers_reach_what_they_need),
        TEST(installers_of_users_too),
        TEST(installers_that_cannot_be_are_told),
        TEST(outside_uids_are_unique),
        TEST(limits_hold_and_are_counted),
        TEST(nobody_sees_counters_of_another),
        TEST(limits_are_those_of_now),
        TEST(many_leave_no_trace),
        TEST(many_of_a_user_leave_no_trace),
        TEST(pool_is_used_and_refilled),
        TEST(ends_wait_only_where_nothing_runs),
        TEST(death_is_told_once),
        TEST(agents_begin_with_nothing_of_the_servers),
        TEST(nobody_waits_where_kernels_are_first),
        TEST(mould_death_ends_everything),
        TEST(a_mould_that_does_not_answer_ends_everything),
        TEST(descriptors_on_their_way_fail_one_start_only),
        TEST(spawner_death_ends_everything),
        TEST(keeper_death_ends_everything),
        TEST(server_kill_leaves_nothing),
        TEST(server_of_a_user_leaves_nothing),
        TEST(dropped_privileges_are_gone),
        TEST(refusals_are_clear_and_leave_nothing),
        TEST(no_cgroup_no_start),
        TEST(no_cgroup_no_start_for_users),
        TEST(checks_and_report_say_something),
    };
    /* Another build's test of this name would count our processes, and we its. */
    const char *root = getenv("SOURCE_ROOT");
    auto_fd alone = open(root ? root : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (alone < 0 || flock(alone, LOCK_EX) < 0)
        return 99; /* an error, as TAP and Meson have it */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
