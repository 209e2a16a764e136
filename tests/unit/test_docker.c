/*
 * The docker engine's pure parts: where the engine is, what its answers mean, what is asked of it.
 */
#include "check.h"

#include "agent/setup.h"
#include "engine/docker/container.h"
#include "engine/docker/copies.h"
#include "engine/docker/stream.h"
#include "engine/docker/tar.h"
#include "engine/docker/tree.h"
#include "engine/native/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static struct docker_reply reply_of(int status, const char *body)
{
    return (struct docker_reply){ .status = status, .body = body, .len = strlen(body) };
}

/*** Where it is ***/

static void hosts_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *host, *url, *socket; /* url NULL: refused */
    } cases[] = {
        { "", "http://docker", "/var/run/docker.sock" },
        { "unix:///run/user/1000/podman.sock", "http://docker", "/run/user/1000/podman.sock" },
        { "tcp://10.0.0.1:2375", "http://10.0.0.1:2375", NULL },
        { "tcp://[::1]:2375/", "http://[::1]:2375", NULL },
        { "https://engine:2376", "https://engine:2376", NULL },
        { "unix://relative", NULL, NULL },
        { "tcp://", NULL, NULL },
        { "tcp://host:1/path", NULL, NULL },
        { "tcp://user@host:1", NULL, NULL },
        { "ssh://host", NULL, NULL },
        { "npipe:////./pipe/docker_engine", NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct docker_target *target = NULL;
        struct err err = { 0 };
        const struct engine_docker options = { .host = cases[i].host, .cert_path = "" };
        int r = docker_target_new(&options, &target, &err);
        CHECK_INT(cases[i].host, r, cases[i].url ? 0 : -EINVAL);
        if (r == 0) {
            CHECK_STR(cases[i].host, target->url, cases[i].url);
            CHECK(cases[i].host,
                  cases[i].socket ? str_eq(target->socket, cases[i].socket) : !target->socket);
        } else {
            CHECK(cases[i].host, strstr(err.msg, "docker.host"));
        }
        docker_target_unref(target);
    }
}

static void missing_certificates_are_named(void **state)
{
    (void)state;
    struct docker_target *target = NULL;
    struct err err = { 0 };
    const struct engine_docker options = { .host = "tcp://h:1", .cert_path = "/nonexistent" };
    CHECK_INT("refused", docker_target_new(&options, &target, &err), -ENOENT);
    CHECK("named", strstr(err.msg, "/nonexistent/ca.pem"));
}

/*** What it answers ***/

static void a_process_has_a_name_of_digits(void **state)
{
    (void)state;
    static const struct {
        const char *name, *body;
        int want;
    } cases[] = {
        { "one", "{\"Id\":\"00ffab12\"}", 0 },
        { "longest",
          "{\"Id\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}", 0 },
        { "too long",
          "{\"Id\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0\"}",
          -EPROTO },
        { "empty", "{\"Id\":\"\"}", -EPROTO },
        { "a path", "{\"Id\":\"ab/../cd\"}", -EPROTO },
        { "a line", "{\"Id\":\"ab\\r\\nX: y\"}", -EPROTO },
        { "none", "{}", -EPROTO },
        { "a number", "{\"Id\":7}", -EPROTO },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char id[DOCKER_EXEC_ID];
        struct err err = { 0 };
        const struct docker_reply reply = reply_of(201, cases[i].body);
        CHECK_INT(cases[i].name, docker_read_exec(&reply, id, &err), cases[i].want);
    }
}

static void a_helper_is_never_who_guests_are(void **state)
{
    (void)state;
    static const uint32_t guests[] = { 1000, 65532, 65533, 65534, 524288 };
    for (size_t i = 0; i < ARRAY_SIZE(guests); i++) {
        auto_json *json = container_helper_exec_json(guests[i]);
        auto_free char *guest = xasprintf("%u:%u", guests[i], guests[i]);
        CHECK("somebody", json_str(json, "User") && !str_has_prefix(json_str(json, "User"), "0:"));
        CHECK(guest, !str_eq(json_str(json, "User"), guest));
    }
}

static void the_interface_is_what_both_know(void **state)
{
    (void)state;
    static const struct {
        const char *name, *body, *api;
        int want;
    } cases[] = {
        { "older than ours", "{\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\"}", "1.41", 0 },
        { "newer than ours", "{\"ApiVersion\":\"1.52\",\"MinAPIVersion\":\"1.44\"}", "1.48", 0 },
        { "without an oldest", "{\"ApiVersion\":\"1.40\"}", "1.40", 0 },
        { "too old", "{\"ApiVersion\":\"1.37\"}", NULL, -EPROTONOSUPPORT },
        { "too new", "{\"ApiVersion\":\"1.60\",\"MinAPIVersion\":\"1.49\"}", NULL,
          -EPROTONOSUPPORT },
        { "another major", "{\"ApiVersion\":\"2.0\"}", NULL, -EPROTO },
        { "none", "{}", NULL, -EPROTO },
        { "a page", "<html></html>", NULL, -EPROTO },
        { "a list", "[]", NULL, -EPROTO },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct docker_facts facts = { 0 };
        struct err err = { 0 };
        const struct docker_reply reply = reply_of(200, cases[i].body);
        CHECK_INT(cases[i].name, docker_read_version(&reply, &facts, &err), cases[i].want);
        if (cases[i].api)
            CHECK_STR(cases[i].name, facts.api, cases[i].api);
    }
}

static void facts_are_read(void **state)
{
    (void)state;
    struct docker_facts facts = { 0 };
    struct err err;
    const struct docker_reply reply =
        reply_of(200, "{\"NCPU\":4,\"DefaultRuntime\":\"runc\",\"CgroupDriver\":\"systemd\","
                      "\"CgroupVersion\":\"2\",\"Driver\":\"overlay2\",\"MemoryLimit\":true,"
                      "\"PidsLimit\":true,\"CpuCfsQuota\":true,\"SecurityOptions\":["
                      "\"name=seccomp,profile=builtin\",\"name=rootless\"]}");
    CHECK_INT("read", docker_read_info(&reply, &facts, &err), 0);
    CHECK("all of it", facts.cpus == 4 && facts.cgroup_version == 2 && facts.memory_limit &&
                           !facts.swap_limit && facts.pids_limit && facts.cpu_limit &&
                           facts.seccomp && facts.rootless && !facts.userns);
    CHECK_STR("driver", facts.cgroup_driver, "systemd");
    const struct docker_reply strange =
        reply_of(200, "{\"NCPU\":-1,\"DefaultRuntime\":\"a\\u001bb\",\"CgroupDriver\":7}");
    CHECK_INT("read", docker_read_info(&strange, &facts, &err), 0);
    CHECK("bounded", facts.cpus == 1 && !facts.memory_limit);
    CHECK_STR("nothing that a terminal obeys", facts.runtime, "a");
    CHECK_STR("not a text", facts.cgroup_driver, "");
}

static void refusals_have_words_and_remedies(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body, *words;
        int want;
    } cases[] = {
        { 404, "{\"message\":\"No such image: x\"}", "No such image: x", -ENOENT },
        { 409, "{\"message\":\"removal is already in progress\"}", "in progress", -EBUSY },
        { 500, "{\"message\":\"mkdir /x: no space left on device\"}", "make room", -ENOSPC },
        { 500, "{\"message\":\"\\u001b[31mred\"}", "\\u001b[31mred", -EIO },
        { 502, "<html>bad</html>", "<html>bad", -EIO },
        { 500, "", "answered 500", -EIO },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = { 0 };
        const struct docker_reply reply = reply_of(cases[i].status, cases[i].body);
        CHECK_INT(cases[i].body, docker_expect(&reply, "try it", &err), cases[i].want);
        CHECK(cases[i].body, strstr(err.msg, cases[i].words) && strstr(err.msg, "try it"));
    }
    struct docker_reply none = { .body = "" };
    struct err err = { 0 };
    (void)err_set(&none.err, ECONNREFUSED, "nobody there");
    CHECK_INT("no answer", docker_expect(&none, "try it", &err), -ECONNREFUSED);
    CHECK_STR("no answer", err.msg, "try it: nobody there");
}

static void only_containers_with_our_label_are_ours(void **state)
{
    (void)state;
    auto_json *names = json_object();
    struct err err;
    const struct docker_reply reply =
        reply_of(200, "[{\"Names\":[\"/ours\"],\"Labels\":{\"i\":\"1\"}},"
                      "{\"Names\":[\"/other\"],\"Labels\":{\"i\":\"2\"}},"
                      "{\"Names\":[\"/none\"],\"Labels\":null},{\"Names\":null},"
                      "{\"Names\":[\"odd\"],\"Labels\":{\"i\":\"1\"}}]");
    CHECK_INT("read", docker_read_names(&reply, "i", "1", names, &err), 0);
    auto_free char *text = json_text(names);
    CHECK_STR("ours", text, "{\"ours\":false}");
}

static void a_list_has_what_can_be_shown(void **state)
{
    (void)state;
    auto_json *rows = json_array();
    struct err err;
    const struct docker_reply reply =
        reply_of(200, "[{\"Names\":[\"/one\"],\"Labels\":{\"i\":\"1\"},\"Image\":\"a\","
                      "\"State\":\"\\u001b[2J\",\"Created\":7},"
                      "{\"Names\":[\"/two\"],\"Labels\":{\"i\":\"../1\"}},"
                      "{\"Names\":[\"/thr ee\"],\"Labels\":{\"i\":\"1\"}},7]");
    CHECK_INT("read", docker_read_list(&reply, "i", rows, &err), 0);
    auto_free char *text = json_text(rows);
    CHECK_STR("rows", text,
              "[{\"sandbox\":\"one\",\"instance\":\"1\",\"image\":\"a\",\"state\":\"?\","
              "\"created\":7}]");
}

/*** The stream ***/

static void heads_are_judged_when_they_are_whole(void **state)
{
    (void)state;
    static const char head[] = "HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n";
    int status = 0;
    for (size_t len = 0; len < sizeof(head) - 1; len++)
        CHECK_INT("a part", docker_head_parse(head, len, &status), 0);
    CHECK_INT("the whole", docker_head_parse(head, sizeof(head) - 1, &status), sizeof(head) - 1);
    CHECK_INT("status", status, 101);
    static const char *const bad[] = { "HTTP/2 101 x\r\n\r\n", "HTTP/1.1 1a1 x\r\n\r\n", "\r\n\r\n",
                                       "SSH-2.0-OpenSSH_9.2 x\r\n\r\n" };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(bad[i], docker_head_parse(bad[i], strlen(bad[i]), &status), -EPROTO);
    auto_free char *endless = xmalloc(DOCKER_HEAD_MAX);
    memset(endless, 'x', DOCKER_HEAD_MAX);
    CHECK_INT("endless", docker_head_parse(endless, DOCKER_HEAD_MAX, &status), -EMSGSIZE);
}

static void pieces_are_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static const char bytes[] = "\1\0\0\0\0\0\0\3abc\2\0\0\0\0\0\0\2xy\1\0\0\0\0\0\0\0"
                                "\1\0\0\0\0\0\0\2de";
    for (size_t step = 1; step < sizeof(bytes); step++) {
        struct docker_demux demux = { 0 };
        auto_buf out = BUF_INIT(100), err = BUF_INIT(100);
        for (size_t at = 0; at < sizeof(bytes) - 1;) {
            size_t left = sizeof(bytes) - 1 - at;
            struct docker_piece piece;
            int n = docker_demux_next(&demux, bytes + at, left < step ? left : step, &piece);
            assert_in_range(n, 1, left);
            (void)buf_add(piece.stream == DOCKER_STDERR ? &err : &out, piece.bytes, piece.len);
            at += (size_t)n;
        }
        CHECK_STR("out", buf_str(&out), "abcde");
        CHECK_STR("err", buf_str(&err), "xy");
    }
    struct docker_demux demux = { 0 };
    struct docker_piece piece;
    CHECK_INT("a stream that is none", docker_demux_next(&demux, "\3\0\0\0\0\0\0\1x", 9, &piece),
              -EPROTO);
}

/*** What is asked for ***/

static struct container_plan some_plan(const struct docker_facts *facts,
                                       const struct docker_image *image)
{
    return (struct container_plan){
        .facts = facts,
        .image = image,
        .runtime = "runsc",
        .working_dir = "",
        .volume = "v",
        .packages = "",
        .network = "",
        .wheels = "",
        .instance = "i",
        .sandbox = "s",
        .seccomp = "{}",
        .uid = 5001,
        .gid = 5002,
        .limits = { .memory_bytes = 512 << 20,
                    .pids = 100,
                    .cpu_millis = 8000,
                    .nofile = 77,
                    .file_bytes = 1 << 20,
                    .workspace_bytes = 1 << 20,
                    .workspace_inodes = 10,
                    .tmp_bytes = 2 << 20,
                    .tmp_inodes = 20,
                    .shm_bytes = 1 << 16 },
    };
}

static json_int_t number_at(const json_t *json, const char *key)
{
    return json_integer_value(json_object_get(json, key));
}

static void a_container_is_shut_in(void **state)
{
    (void)state;
    const struct docker_facts facts = { .cpus = 2 };
    const struct docker_image image = { .id = "sha256:ab", .volumes = json_pack("[s]", "/data") };
    const struct container_plan plan = some_plan(&facts, &image);
    auto_json *json = container_json(&plan);
    const json_t *host = json_object_get(json, "HostConfig");
    static const char *const yes[] = { "ReadonlyRootfs", "AutoRemove" };
    static const char *const no[] = { "Privileged", "Init" };
    static const char *const absent[] = { "Binds", "CapAdd", "Devices", "PidMode", "UsernsMode" };
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        CHECK(yes[i], json_is_true(json_object_get(host, yes[i])));
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        CHECK(no[i], json_is_false(json_object_get(host, no[i])));
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
        CHECK(absent[i], !json_object_get(host, absent[i]));
    CHECK_STR("network", json_str(host, "NetworkMode"), "none");
    CHECK_STR("user", json_str(json, "User"), "5001:5002");
    CHECK_STR("runtime", json_str(host, "Runtime"), "runsc");
    CHECK_STR("no log on its disk", json_str(json_object_get(host, "LogConfig"), "Type"), "none");
    CHECK_INT("memory and no swap", number_at(host, "Memory"), number_at(host, "MemorySwap"));
    CHECK_INT("memory and the agent's", number_at(host, "Memory"), (512 << 20) + AGENT_MEMORY);
    CHECK_INT("processors there are", number_at(host, "NanoCpus"), 2000000000);
    CHECK_INT("processes and the agent", number_at(host, "PidsLimit"), 101);
    auto_free char *text = json_text(json);
    static const char *const wanted[] = {
        "\"CapDrop\":[\"ALL\"]",
        "\"SecurityOpt\":[\"no-new-privileges\",\"seccomp={}\"]",
        "size=1048576,nr_inodes=10,mode=700,uid=5001,gid=5002\"",
        "\"/workspace\":\"rw,exec,nosuid,nodev,",
        "\"Healthcheck\":{\"Test\":[\"NONE\"]}",
        "\"Labels\":{\"belljar.instance\":\"i\",\"belljar.sandbox\":\"s\"}",
        "\"ReadOnly\":true",
        "\"/dev/mqueue\":\"ro,",
        "{\"Type\":\"tmpfs\",\"Target\":\"/data\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        CHECK(wanted[i], strstr(text, wanted[i]));
    CHECK("nothing of the host", !strstr(text, "\"bind\""));
    json_decref(image.volumes);
}

/* The same, but for the network and the wheels. */
static void only_an_installer_has_a_network(void **state)
{
    (void)state;
    const struct docker_facts facts = { .cpus = 2 };
    const struct docker_image image = { .id = "sha256:ab", .volumes = json_array() };
    struct container_plan plan = some_plan(&facts, &image);
    plan.packages = "packages-volume";
    auto_json *guest = container_json(&plan);
    plan.network = "bridge";
    plan.wheels = "/srv/wheels";
    plan.packages = "";
    auto_json *installer = container_json(&plan);
    auto_free char *one = json_text(guest), *two = json_text(installer);
    static const char packages[] = "{\"Type\":\"volume\",\"Source\":\"packages-volume\",\"Target\":"
                                   "\"/opt/belljar/packages\",\"ReadOnly\":true";
    static const char wheels[] = "{\"Type\":\"bind\",\"Source\":\"/srv/wheels\",\"Target\":"
                                 "\"/opt/belljar/wheels\",\"ReadOnly\":true}";
    CHECK("the guest's packages", strstr(one, packages) && !strstr(one, "\"bind\""));
    CHECK("no network",
          strstr(one, "\"NetworkMode\":\"none\"") && strstr(one, "\"NetworkDisabled\":true"));
    CHECK("wheels", strstr(two, wheels) && !strstr(two, "packages-volume"));
    CHECK("a network",
          strstr(two, "\"NetworkMode\":\"bridge\"") && strstr(two, "\"NetworkDisabled\":false"));
    CHECK("as shut in", strstr(two, "\"CapDrop\":[\"ALL\"]") && strstr(two, "no-new-privileges") &&
                            strstr(two, "\"ReadonlyRootfs\":true"));
    json_decref(image.volumes);
}

static void the_set_up_is_one_that_the_agent_takes(void **state)
{
    (void)state;
    struct sock_filter code[2] = { { 6, 0, 0, 1 }, { 6, 0, 0, 2 } };
    const struct seccomp_program filter = { code, 2 };
    struct docker_facts facts = { 0 };
    struct docker_image image = { .env = BUF_INIT(1000) };
    static const char env[] = "PATH=/opt/bin\0HOME=/root\0X=y";
    (void)buf_add(&image.env, env, sizeof(env));
    const struct container_plan plan = some_plan(&facts, &image);
    auto_buf bytes = BUF_INIT(10000);
    container_setup(&plan, &filter, &bytes);
    struct agent_setup setup;
    memcpy(&setup, bytes.data, sizeof(setup));
    CHECK_INT("magic", setup.magic, AGENT_SETUP_MAGIC);
    CHECK("user", setup.guest_uid == 5001 && setup.guest_gid == 5002);
    CHECK("neither cgroups nor door", !setup.n_cgroups && !setup.has_door);
    size_t before = sizeof(setup) + sizeof(code);
    CHECK_INT("length", bytes.len, before + setup.env_len);
    CHECK_INT("filter", memcmp(bytes.data + sizeof(setup), code, sizeof(code)), 0);
    auto_buf shown = BUF_INIT(10000);
    for (size_t at = before; at < bytes.len; at += strlen(bytes.data + at) + 1)
        (void)buf_printf(&shown, "%s;", bytes.data + at);
    CHECK_STR("environment", buf_str(&shown),
              "HOME=/workspace;USER=guest;LOGNAME=guest;PATH=/opt/bin;X=y;LANG=C.UTF-8;TERM=dumb;");
    buf_done(&image.env);
}

/* What is taken from guests later must be there for the agent, and nothing of the spawner's. */
static void the_profile_is_the_table(void **state)
{
    (void)state;
    auto_json *profile = seccomp_profile(SECCOMP_AGENT);
    auto_free char *text = json_text(profile);
    CHECK_STR("default", json_str(profile, "defaultAction"), "SCMP_ACT_ERRNO");
    static const char *const there[] = {
        "\"execve\"",
        "\"seccomp\"",
        "\"capset\"",
        "\"futex\"",
        "\"names\":[\"clone\"],\"action\":\"SCMP_ACT_ALLOW\",\"args\"",
        "\"names\":[\"socket\"]"
    };
    static const char *const not_there[] = { "\"mount\"",     "\"unshare\"", "\"setns\"",
                                             "\"bpf\"",       "\"keyctl\"",  "\"ptrace\"",
                                             "io_uring_setup" };
    for (size_t i = 0; i < ARRAY_SIZE(there); i++)
        CHECK(there[i], strstr(text, there[i]));
    for (size_t i = 0; i < ARRAY_SIZE(not_there); i++)
        CHECK(not_there[i], !strstr(text, not_there[i]));
    auto_json *installers = seccomp_profile(SECCOMP_AGENT_NETWORK);
    size_t all = json_array_size(json_object_get(profile, "syscalls"));
    CHECK_INT("without sockets of the host's programs",
              json_array_size(json_object_get(installers, "syscalls")), all - 1);
}

static void an_archive_is_one_that_tar_reads(void **state)
{
    (void)state;
    auto_buf tar = BUF_INIT(10000);
    tar_program(&tar, "name", "hello", 5);
    CHECK_INT("blocks", tar.len, 4 * 512);
    CHECK_STR("name", tar.data, "name");
    CHECK_STR("size", tar.data + 124, "00000000005");
    unsigned sum = 0;
    for (size_t i = 0; i < 512; i++)
        sum += i >= 148 && i < 156 ? ' ' : (unsigned char)tar.data[i];
    CHECK_INT("sum", strtoul(tar.data + 148, NULL, 8), sum);
    CHECK_INT("content", memcmp(tar.data + 512, "hello\0", 6), 0);
}

static void long_names_and_large_sizes_are_told_as_gnu_does(void **state)
{
    (void)state;
    char name[140];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    static const struct {
        size_t len, blocks;
    } cases[] = { { 100, 1 }, { 101, 3 } };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_buf tar = BUF_INIT(10000);
        tar_head(&tar, &(struct tar_entry){ .name = name + sizeof(name) - 1 - cases[i].len,
                                            .type = '5' });
        CHECK_INT("blocks", tar.len, cases[i].blocks * TAR_BLOCK);
    }
    auto_buf tar = BUF_INIT(10000);
    tar_head(&tar,
             &(struct tar_entry){ .name = "x", .type = '0', .size = (UINT64_C(1) << 33) - 1 });
    CHECK_STR("octal", tar.data + 124, "77777777777");
    buf_clear(&tar);
    tar_head(&tar, &(struct tar_entry){ .name = "x", .type = '0', .size = UINT64_C(1) << 33 });
    CHECK_INT("a number", memcmp(tar.data + 124, "\x80\0\0\0\0\0\0\x02\0\0\0\0", 12), 0);
    CHECK_INT("padding of nothing", tar_padding(0), 0);
    CHECK_INT("padding of one", tar_padding(1), TAR_BLOCK - 1);
    CHECK_INT("padding of a block", tar_padding(TAR_BLOCK), 0);
}

/*** Copies of directories ***/

struct place {
    char path[64];
    int dir;
};

static struct place place_new(void)
{
    struct place place = { .path = "/tmp/belljar-test-XXXXXX" };
    assert_non_null(mkdtemp(place.path));
    place.dir = open(place.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return place;
}

static void place_done(struct place *place)
{
    auto_free char *command = xasprintf("rm -r %s", place->path);
    fd_closep(&place->dir);
    CHECK_INT("removed", system(command), 0); /* NOLINT(cert-env33-c): a name of ours */
}

static void put_file(const struct place *place, const char *name, const char *text, mode_t mode)
{
    auto_fd fd = openat(place->dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    CHECK_INT(name, write(fd, text, strlen(text)), strlen(text));
}

/* Read in pieces of `size`. */
static void read_all(const struct tree_plan *plan, size_t size, struct buf *ret)
{
    struct tree tree;
    ssize_t n;
    char room[4096];
    tree_init(&tree, plan);
    CHECK("something is there to rewind", tree_read(&tree, room, size) > 0);
    tree_rewind(&tree);
    while ((n = tree_read(&tree, room, size)) > 0)
        (void)buf_add(ret, room, (size_t)n);
    CHECK_INT("to its end", n, 0);
    CHECK_INT("for good", tree_read(&tree, room, size), 0);
    tree_done(&tree);
}

#define LONG_NAME                                                                                  \
    "a_module_whose_name_is_longer_than_most_because_it_has_to_be_long_enough_for_this.py"

static void a_directory_is_an_archive_that_tar_reads(void **state)
{
    (void)state;
    struct place place = place_new(), out = place_new();
    auto_buf before = BUF_INIT(10000), whole = BUF_INIT(BUF_NO_CEILING);
    tar_head(&before, &(struct tar_entry){ .name = "7", .type = '5', .mode = 0711 });
    CHECK_INT("mkdir", mkdirat(place.dir, "package", 0755), 0);
    CHECK_INT("mkdir", mkdirat(place.dir, "empty", 0700), 0);
    put_file(&place, "module.py", "x = 1\n", 0600);
    put_file(&place, "package/" LONG_NAME, "long\n", 0644);
    put_file(&place, "package/program", "", 0755);
    CHECK_INT("link", symlinkat("/etc/passwd", place.dir, "link"), 0);
    const struct tree_plan plan = {
        .root = place.dir, .before = &before, .prefix = "7/set", .last = ".last"
    };
    read_all(&plan, 4096, &whole);
    for (size_t size = 1; size < 1000; size += 333) {
        auto_buf again = BUF_INIT(BUF_NO_CEILING);
        read_all(&plan, size, &again);
        CHECK("the same in other pieces",
              again.len == whole.len && memcmp(again.data, whole.data, whole.len) == 0);
    }
    auto_free char *command = xasprintf("tar --extract --directory %s", out.path);
    FILE *tar = popen(command, "w"); /* NOLINT(cert-env33-c): names of ours */
    CHECK_INT("written", fwrite(whole.data, 1, whole.len, tar), whole.len);
    CHECK_INT("read", pclose(tar), 0);
    static const struct {
        const char *path;
        mode_t mode;
        off_t size;
    } wanted[] = {
        { "7", S_IFDIR | 0711, -1 },
        { "7/set/empty", S_IFDIR | 0755, -1 },
        { "7/set/module.py", S_IFREG | 0644, 6 },
        { "7/set/package/" LONG_NAME, S_IFREG | 0644, 5 },
        { "7/set/package/program", S_IFREG | 0755, 0 },
        { "7/set/.last", S_IFREG | 0444, 0 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct stat st = { 0 };
        CHECK_INT(wanted[i].path, fstatat(out.dir, wanted[i].path, &st, AT_SYMLINK_NOFOLLOW), 0);
        CHECK_INT(wanted[i].path, st.st_mode, wanted[i].mode);
        CHECK(wanted[i].path, wanted[i].size < 0 || st.st_size == wanted[i].size);
    }
    CHECK_INT("no link", faccessat(out.dir, "7/set/link", F_OK, AT_SYMLINK_NOFOLLOW), -1);
    const char *last = whole.data + whole.len - 3 * (size_t)TAR_BLOCK;
    CHECK_STR("the last is the last", last, "7/set/.last");
    place_done(&place);
    place_done(&out);
}

struct notebook {
    struct place sets, notes;
    struct copies copies;
};

static void notebook_open(struct notebook *book)
{
    struct err err;
    book->sets = place_new();
    book->notes = place_new();
    const struct engine_packages packages = { .dir = book->sets.path, .copies = book->notes.path };
    CHECK_INT("opened", copies_open(&packages, &book->copies, &err), 0);
}

static void notebook_done(struct notebook *book)
{
    copies_close(&book->copies);
    place_done(&book->sets);
    place_done(&book->notes);
}

/* Notes it where it is to be; the number of stale places, -1 if it was noted before. */
static int note_set(struct notebook *book, const char *name, unsigned place)
{
    struct copies_plan plan;
    struct err err;
    CHECK_INT(name, copies_plan(&book->copies, name, &plan, &err), 0);
    CHECK_INT(name, plan.place, place);
    int r = plan.noted ? -1 : (int)plan.n_stale;
    for (size_t i = 0; i < plan.n_stale; i++)
        CHECK_INT("emptied", copies_note(&book->copies, plan.stale[i], "", &err), 0);
    CHECK_INT(name, copies_note(&book->copies, plan.place, plan.set, &err), 0);
    copies_plan_done(&plan);
    return r;
}

static void places_are_used_again_and_stale_ones_are_known(void **state)
{
    (void)state;
    struct notebook book;
    struct copies_plan plan;
    struct err err = { 0 };
    notebook_open(&book);
    CHECK_INT("none", copies_plan(&book.copies, "one", &plan, &err), -ENOENT);
    static const char *const names[] = { "one", "two", "three" };
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
        CHECK_INT(names[i], mkdirat(book.sets.dir, names[i], 0755), 0);
        CHECK_INT(names[i], note_set(&book, names[i], i), 0);
        CHECK_INT("noted", note_set(&book, names[i], i), -1);
    }
    /* Two go, one of them comes back, which makes it another. */
    CHECK_INT("gone", unlinkat(book.sets.dir, "one", AT_REMOVEDIR), 0);
    CHECK_INT("gone", unlinkat(book.sets.dir, "two", AT_REMOVEDIR), 0);
    CHECK_INT("anew", mkdirat(book.sets.dir, "two", 0755), 0);
    CHECK_INT("both are stale", note_set(&book, "two", 0), 2);
    CHECK_INT("mkdir", mkdirat(book.sets.dir, "four", 0755), 0);
    CHECK_INT("nothing is", note_set(&book, "four", 1), 0);
    CHECK_INT("still", note_set(&book, "three", 2), -1);
    /* What nobody has noted, and what is half written, is not believed. */
    put_file(&book.notes, "junk", "three.0", 0600);
    put_file(&book.notes, "3", "../../etc.0", 0600);
    CHECK_INT("mkdir", mkdirat(book.sets.dir, "five", 0755), 0);
    CHECK_INT("stale", note_set(&book, "five", 3), 1);
    notebook_done(&book);
}

static void one_at_a_time_has_the_notes(void **state)
{
    (void)state;
    struct notebook book;
    struct err err = { 0 };
    atomic_bool cancelled = false;
    notebook_open(&book);
    auto_fd other = open(book.notes.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT("locked", flock(other, LOCK_EX | LOCK_NB), 0);
    CHECK_INT("in vain", copies_lock(&book.copies, 0, &cancelled, &err), -ETIMEDOUT);
    atomic_store(&cancelled, true);
    CHECK_INT("nobody waits", copies_lock(&book.copies, UINT64_MAX, &cancelled, &err), -ECANCELED);
    CHECK_INT("free", flock(other, LOCK_UN), 0);
    CHECK_INT("mine", copies_lock(&book.copies, 0, &cancelled, &err), 0);
    CHECK("not the other's", flock(other, LOCK_EX | LOCK_NB) < 0);
    notebook_done(&book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_taken_apart),
        cmocka_unit_test(missing_certificates_are_named),
        cmocka_unit_test(a_process_has_a_name_of_digits),
        cmocka_unit_test(a_helper_is_never_who_guests_are),
        cmocka_unit_test(the_interface_is_what_both_know),
        cmocka_unit_test(facts_are_read),
        cmocka_unit_test(refusals_have_words_and_remedies),
        cmocka_unit_test(only_containers_with_our_label_are_ours),
        cmocka_unit_test(a_list_has_what_can_be_shown),
        cmocka_unit_test(heads_are_judged_when_they_are_whole),
        cmocka_unit_test(pieces_are_the_same_however_they_are_cut),
        cmocka_unit_test(a_container_is_shut_in),
        cmocka_unit_test(only_an_installer_has_a_network),
        cmocka_unit_test(the_set_up_is_one_that_the_agent_takes),
        cmocka_unit_test(the_profile_is_the_table),
        cmocka_unit_test(an_archive_is_one_that_tar_reads),
        cmocka_unit_test(long_names_and_large_sizes_are_told_as_gnu_does),
        cmocka_unit_test(a_directory_is_an_archive_that_tar_reads),
        cmocka_unit_test(places_are_used_again_and_stale_ones_are_known),
        cmocka_unit_test(one_at_a_time_has_the_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
