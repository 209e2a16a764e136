#include "check.h"

#include "agent/frame.h"
#include "agent/path.h"

#include <errno.h>
#include <stdlib.h>

/*** frames ***/

static void test_every_prefix_of_a_frame_waits_for_the_rest(void **state)
{
    (void)state;
    char wire[FRAME_HEADER + 5];
    frame_put_header(wire, FRAME_STDOUT, 0x01020304, 5);
    memcpy(wire + FRAME_HEADER, "hello", 5);
    for (size_t len = 0; len < sizeof(wire); len++) {
        /* On the heap and no longer than it says: a sanitizer sees a byte too much. */
        auto_free char *prefix = xmalloc(len);
        memcpy(prefix, wire, len);
        struct frame frame;
        CHECK_INT("prefix", frame_parse(prefix, len, &frame), 0);
    }
    struct frame frame;
    CHECK_INT("whole", frame_parse(wire, sizeof(wire), &frame), sizeof(wire));
    CHECK_INT("type", frame.type, FRAME_STDOUT);
    CHECK_INT("number", frame.number, 0x01020304);
    CHECK_INT("len", frame.len, 5);
    assert_memory_equal(frame.payload, "hello", 5);
}

static void test_the_bytes_are_little_endian_and_fixed(void **state)
{
    (void)state;
    char wire[FRAME_HEADER];
    frame_put_header(wire, 0x94, 0x01020304, 0x0506);
    assert_memory_equal(wire, "\x06\x05\x00\x00\x94\x04\x03\x02\x01", FRAME_HEADER);
}

static void test_a_frame_that_is_too_long_is_refused_at_its_length(void **state)
{
    (void)state;
    struct frame frame;
    CHECK_INT("longest, header only", frame_parse("\x00\x00\x01\x00", 4, &frame), 0);
    CHECK_INT("one more", frame_parse("\x01\x00\x01\x00", 4, &frame), -EMSGSIZE);
    CHECK_INT("all ones", frame_parse("\xff\xff\xff\xff", 4, &frame), -EMSGSIZE);
}

/*** payloads ***/

static struct frame payload(const char *bytes, size_t len)
{
    return (struct frame){ .payload = bytes, .len = len };
}

static void test_payloads_come_back_as_they_went(void **state)
{
    (void)state;
    char wire[FRAME_MAX];

    struct frame_run run = { 1, 2, UINT64_MAX, 4, 5, 60, 7, 8, true, false }, run2;
    frame_run_put(wire, &run);
    struct frame frame = payload(wire, FRAME_RUN_SIZE);
    CHECK_INT("run", frame_run_get(&frame, &run2), FRAME_RUN_SIZE);
    CHECK_INT("run flood", run2.flood_bytes == UINT64_MAX, 1);
    CHECK_INT("run argc", run2.argc, 7);
    CHECK_INT("run code", run2.has_code, true);
    CHECK_INT("run joined", run2.joined, false);
    run = (struct frame_run){ .joined = true };
    frame_run_put(wire, &run);
    CHECK_INT("run of one who joins", frame_run_get(&frame, &run2), FRAME_RUN_SIZE);
    CHECK_INT("run joined", run2.joined, true);

    struct frame_exit exit = { .signaled = true, .flooded = true, .code = 9, .cpu_ns = 77 }, exit2;
    frame_exit_put(wire, &exit);
    frame = payload(wire, FRAME_EXIT_SIZE);
    CHECK_INT("exit", frame_exit_get(&frame, &exit2), FRAME_EXIT_SIZE);
    CHECK_INT("exit flooded", exit2.flooded, true);
    CHECK_INT("exit cpu", exit2.cpu_ns, 77);

    struct frame_file file = {
        .op = FILE_MOVE, .path = "ab", .path_len = 2, .target = "c", .target_len = 1
    };
    struct frame_file file2;
    frame_file_put(wire, &file);
    frame = payload(wire, FRAME_FILE_SIZE + 3);
    CHECK_INT("file", frame_file_get(&frame, &file2), FRAME_FILE_SIZE + 3);
    assert_memory_equal(file2.path, "abc", 3);
    CHECK_INT("file target", file2.target_len, 1);

    struct frame_entry entry = { ENTRY_SYMLINK, 0777, 5, -1, 7, "a\nb\xff", 4 }, entry2;
    frame_entry_put(wire, &entry);
    CHECK_INT("entry", frame_entry_get(wire, sizeof(wire), &entry2), FRAME_ENTRY_SIZE + 4);
    CHECK_INT("entry time", entry2.mtime_ns, -1);
    CHECK_INT("entry change", entry2.ctime_ns, 7);
    assert_memory_equal(entry2.name, "a\nb\xff", 4);

    struct frame_pick pick = { 1ull << 40, 7, "p", 1 }, pick2;
    frame_pick_put(wire, &pick);
    CHECK_INT("pick", frame_pick_get(wire, &pick2), 0);
    CHECK_INT("pick offset", pick2.offset, 1ll << 40);
    CHECK_INT("pick max", pick2.max, 7);
    CHECK_INT("pick path", pick2.path_len, 1);
    struct frame_part part = { ENTRY_FILE, true, -7, 1ull << 40, 9, true, "pp", 2 }, part2;
    frame_part_put(wire, &part);
    CHECK_INT("part", frame_part_get(wire, &part2), 0);
    CHECK("part flags", part2.program && part2.last && part2.type == ENTRY_FILE);
    CHECK_INT("part time", part2.mtime_ns, -7);
    CHECK_INT("part offset", part2.offset, 1ll << 40);
    CHECK_INT("part length", part2.len, 9);
    CHECK_INT("part path", part2.path_len, 2);
    wire[0] = ENTRY_OTHER;
    CHECK_INT("part of another type", frame_part_get(wire, &part2), -EPROTO);
    memset(wire, 0, FRAME_PART_SIZE);
    CHECK_INT("part without a path", frame_part_get(wire, &part2), -EPROTO);
    CHECK_INT("pick without a path", frame_pick_get(wire, &pick2), -EPROTO);

    struct frame_file_end end = { 2, 3, 4, true }, end2;
    frame_file_end_put(wire, &end);
    frame = payload(wire, FRAME_FILE_END_SIZE);
    CHECK_INT("end", frame_file_end_get(&frame, &end2), FRAME_FILE_END_SIZE);
    CHECK_INT("end more", end2.more, true);
}

static int keep_of(uint64_t keep_ms, uint64_t grace_ms)
{
    char wire[FRAME_KEEP_SIZE];
    struct frame_keep out = { 0 };
    frame_keep_put(wire, &(struct frame_keep){ keep_ms, grace_ms });
    const struct frame frame = payload(wire, sizeof(wire));
    int r = frame_keep_get(&frame, &out);
    CHECK("as it went", r < 0 || (out.keep_ms == keep_ms && out.grace_ms == grace_ms));
    return r;
}

static int idle_of(const struct frame_idle *idle)
{
    char wire[FRAME_IDLE_SIZE];
    struct frame_idle out = { 0 };
    frame_idle_put(wire, idle);
    const struct frame frame = payload(wire, sizeof(wire));
    int r = frame_idle_get(&frame, &out);
    CHECK("as it went", r < 0 || (out.program == idle->program && out.file == idle->file &&
                                  out.kernel == idle->kernel && out.cells == idle->cells &&
                                  out.lost == idle->lost));
    return r;
}

static void test_what_goes_from_stream_to_stream_is_bounded(void **state)
{
    (void)state;
    CHECK_INT("least", keep_of(1, 0), FRAME_KEEP_SIZE);
    CHECK_INT("most", keep_of(FRAME_KEEP_MAX_MS, FRAME_KEEP_MAX_MS), FRAME_KEEP_SIZE);
    CHECK_INT("not at all", keep_of(0, 1), -EPROTO);
    CHECK_INT("too long", keep_of(FRAME_KEEP_MAX_MS + 1, 1), -EPROTO);
    CHECK_INT("too much grace", keep_of(1, FRAME_KEEP_MAX_MS + 1), -EPROTO);

    CHECK_INT("nothing yet", idle_of(&(struct frame_idle){ 0 }), FRAME_IDLE_SIZE);
    CHECK_INT("a kernel", idle_of(&(struct frame_idle){ 7, 9, 3, 5, false }), FRAME_IDLE_SIZE);
    CHECK_INT("lost", idle_of(&(struct frame_idle){ 7, 9, 0, 0, true }), FRAME_IDLE_SIZE);
    CHECK_INT("later than the last", idle_of(&(struct frame_idle){ 7, 9, 8, 5, false }), -EPROTO);
    CHECK_INT("cells of none", idle_of(&(struct frame_idle){ 7, 9, 0, 5, false }), -EPROTO);
    CHECK_INT("lost and there", idle_of(&(struct frame_idle){ 7, 9, 3, 5, true }), -EPROTO);
    CHECK_INT("cells", idle_of(&(struct frame_idle){ 7, 9, 3, UINT64_MAX, false }), -EPROTO);
}

/* Each decoder, given every length from nothing to a byte too much. */
static void test_a_payload_of_another_length_is_refused(void **state)
{
    (void)state;
    static const char zeros[256];
    for (size_t len = 0; len < sizeof(zeros); len++) {
        auto_free char *bytes = xcalloc(1, len);
        struct frame frame = payload(bytes, len);
        union {
            struct frame_hello hello;
            struct frame_run run;
            struct frame_gap gap;
            struct frame_exit exit;
            struct frame_file file;
            struct frame_entry entry;
            struct frame_file_end end;
            struct frame_keep keep;
            struct frame_idle idle;
        } out;
        CHECK_INT("keep of nothing", frame_keep_get(&frame, &out.keep), -EPROTO);
        CHECK_INT("idle", frame_idle_get(&frame, &out.idle) > 0, len == FRAME_IDLE_SIZE);
        CHECK_INT("hello", frame_hello_get(&frame, &out.hello) > 0, len == FRAME_HELLO_SIZE);
        CHECK_INT("run of nothing", frame_run_get(&frame, &out.run), -EPROTO);
        CHECK_INT("gap of nothing", frame_gap_get(&frame, &out.gap), -EPROTO);
        CHECK_INT("exit", frame_exit_get(&frame, &out.exit) > 0, len == FRAME_EXIT_SIZE);
        CHECK_INT("file of no kind", frame_file_get(&frame, &out.file), -EPROTO);
        CHECK_INT("entry without name", frame_entry_get(bytes, len, &out.entry), -EPROTO);
        CHECK_INT("end", frame_file_end_get(&frame, &out.end) > 0, len == FRAME_FILE_END_SIZE);
    }
}

static void test_values_that_nobody_may_send_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct frame_run run;
        int want;
    } runs[] = {
        { "joined", { .joined = true }, FRAME_RUN_SIZE },
        { "joined with arguments", { .args_len = 3, .argc = 1, .joined = true }, -EPROTO },
        { "joined with a variable", { .envc = 1, .joined = true }, -EPROTO },
        { "joined with code", { .has_code = true, .joined = true }, -EPROTO },
        { "plain", { .args_len = 3, .argc = 1, .envc = 1 }, FRAME_RUN_SIZE },
        { "no argument", { .args_len = 3, .envc = 1 }, -EPROTO },
        { "fewer bytes than NULs", { .args_len = 2, .argc = 1, .envc = 1 }, -EPROTO },
        { "too many", { .args_len = 9999, .argc = FRAME_ARGS_COUNT_MAX + 1 }, -EPROTO },
        { "too many variables", { .args_len = 9999, .argc = 1, .envc = 1025 }, -EPROTO },
        { "too long", { .args_len = FRAME_ARGS_MAX + 1, .argc = 1 }, -EPROTO },
        { "tail", { .args_len = 3, .argc = 1, .tail_bytes = FRAME_TAIL_MAX + 1 }, -EPROTO },
        { "code without code", { .args_len = 3, .argc = 1, .code_len = 1 }, -EPROTO },
        { "code",
          { .args_len = 3, .argc = 1, .code_len = FRAME_CODE_MAX + 1, .has_code = true },
          -EPROTO },
    };
    char wire[FRAME_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        struct frame_run out;
        frame_run_put(wire, &runs[i].run);
        struct frame frame = payload(wire, FRAME_RUN_SIZE);
        CHECK_INT(runs[i].name, frame_run_get(&frame, &out), runs[i].want);
    }

    static const struct {
        const char *name;
        struct frame_exit exit;
        size_t words;
        bool good;
    } exits[] = {
        { "status", { .code = 255 }, 0, true },
        { "no such status", { .code = 256 }, 0, false },
        { "no such signal", { .signaled = true, .code = 65 }, 0, false },
        { "signal 0", { .signaled = true }, 0, false },
        { "failure without words", { .failed = true, .code = 2 }, 0, false },
        { "words without failure", { .code = 2 }, 4, false },
        { "failure", { .failed = true, .code = 2 }, FRAME_FAILURE_MAX, true },
        { "too many words", { .failed = true, .code = 2 }, FRAME_FAILURE_MAX + 1, false },
        { "absent", { .failed = true, .absent = true, .code = 2 }, 4, true },
        { "absent and well", { .absent = true }, 0, false },
        { "failed and signaled", { .failed = true, .signaled = true, .code = 2 }, 4, false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(exits); i++) {
        struct frame_exit out;
        memset(wire, 'x', sizeof(wire));
        frame_exit_put(wire, &exits[i].exit);
        struct frame frame = payload(wire, FRAME_EXIT_SIZE + exits[i].words);
        CHECK_INT(exits[i].name, frame_exit_get(&frame, &out) > 0, exits[i].good);
    }

    struct frame_file file = { .op = FILE_READ, .path = "a\0b", .path_len = 3 }, out;
    frame_file_put(wire, &file);
    struct frame frame = payload(wire, FRAME_FILE_SIZE + 3);
    CHECK_INT("NUL in a path", frame_file_get(&frame, &out), -EPROTO);
    file.path = "abc";
    frame_file_put(wire, &file);
    CHECK_INT("path", frame_file_get(&frame, &out), FRAME_FILE_SIZE + 3);
    frame.len--;
    CHECK_INT("path cut", frame_file_get(&frame, &out), -EPROTO);
}

/*** paths ***/

static void test_paths_are_made_clean_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want; /* NULL: leads outside */
    } cases[] = {
        { "", "" },
        { ".", "" },
        { "/workspace", "" },
        { "/workspace/", "" },
        { "a", "a" },
        { "a/b", "a/b" },
        { "./a//b/./c/", "a/b/c" },
        { "/workspace/a", "a" },
        { "/workspace//a", "a" },
        { "...", "..." },
        { "..a/b..", "..a/b.." },
        { "a b\n\xff", "a b\n\xff" },
        { "..", NULL },
        { "a/..", NULL },
        { "a/../b", NULL },
        { "/workspace/../etc/passwd", NULL },
        { "/", NULL },
        { "/etc/passwd", NULL },
        { "/workspaces/a", NULL },
        { "/workspac", NULL },
        { "//workspace/a", NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[PATH_BYTES] = "?";
        int r = path_clean("/workspace", cases[i].in, strlen(cases[i].in), out);
        CHECK_INT(cases[i].in, r, cases[i].want ? 0 : -EXDEV);
        CHECK_STR(cases[i].in, out, cases[i].want ? cases[i].want : "?");
    }
}

static void test_long_names_are_refused_at_the_limit(void **state)
{
    (void)state;
    char in[PATH_BYTES + 10], out[PATH_BYTES];
    memset(in, 'a', sizeof(in));
    CHECK_INT("255", path_clean("/workspace", in, 255, out), 0);
    CHECK_INT("256", path_clean("/workspace", in, 256, out), -ENAMETOOLONG);
    for (size_t i = 200; i < sizeof(in); i += 201)
        in[i] = '/';
    CHECK_INT("4094", path_clean("/workspace", in, 4094, out), 0);
    CHECK_INT("4096", path_clean("/workspace", in, 4096, out), -ENAMETOOLONG);
    /* Slashes count for nothing. */
    memset(in, '/', sizeof(in));
    memcpy(in, "./", 2);
    CHECK_INT("slashes", path_clean("/workspace", in, sizeof(in), out), 0);
    CHECK_STR("slashes", out, "");
}

static void test_the_last_name_is_split_off(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    CHECK_STR("name", path_split("a/b/c", dir), "c");
    CHECK_STR("directory", dir, "a/b");
    CHECK_STR("name", path_split("c", dir), "c");
    CHECK_STR("directory", dir, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_prefix_of_a_frame_waits_for_the_rest),
        cmocka_unit_test(test_the_bytes_are_little_endian_and_fixed),
        cmocka_unit_test(test_a_frame_that_is_too_long_is_refused_at_its_length),
        cmocka_unit_test(test_payloads_come_back_as_they_went),
        cmocka_unit_test(test_what_goes_from_stream_to_stream_is_bounded),
        cmocka_unit_test(test_a_payload_of_another_length_is_refused),
        cmocka_unit_test(test_values_that_nobody_may_send_are_refused),
        cmocka_unit_test(test_paths_are_made_clean_or_refused),
        cmocka_unit_test(test_long_names_are_refused_at_the_limit),
        cmocka_unit_test(test_the_last_name_is_split_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
