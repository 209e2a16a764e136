/*
 * The parts of packages that need no sandbox: which names pass, what an installer's result may hold,
 * and the shelf.
 */
#include "check.h"
#include "scratch.h"

#include "base/buf.h"
#include "packages/requirement.h"
#include "packages/shelf.h"
#include "packages/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*** Requirements ***/

static void test_good_requirements_have_one_form(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "requests", "requests" },
        { "Requests", "requests" },
        { "  six\t", "six" },
        { "zope.interface", "zope-interface" },
        { "A__b..C-_-d", "a-b-c-d" },
        { "x", "x" },
        { "7zip", "7zip" },
        { "requests[socks]", "requests[socks]" },
        { "requests [ Socks , use_chardet ] >= 2 , < 3", "requests[socks,use-chardet]<3,>=2" },
        { "pandas[excel,excel]", "pandas[excel]" },
        { "pandas[]", "pandas" },
        { "numpy==1.26.*", "numpy==1.26.*" },
        { "numpy != 1.0.*", "numpy!=1.0.*" },
        { "numpy~=1.26", "numpy~=1.26" },
        { "numpy (>=1.0,<2)", "numpy<2,>=1.0" },
        { "torch==2.1.0+cpu", "torch==2.1.0+cpu" },
        { "a==1!2.0.post1.dev3", "a==1!2.0.post1.dev3" },
        { "a===1.0-foo", "a===1.0-foo" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = { 0 };
        auto_free char *normal = requirement_normalise(cases[i][0], &err);
        CHECK_STR(cases[i][0], normal ? normal : err.msg, cases[i][1]);
    }
}

static void test_all_else_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "", "empty" },
        { "   ", "empty" },
        { "--index-url=http://evil", "options" },
        { "-r requirements.txt", "options" },
        { "-e .", "options" },
        { "https://example.org/x.whl", "URLs" },
        { "six @ https://example.org/six.whl", "URLs" },
        { "git+ssh://git@example.org/x", "URLs" },
        { "file:///etc/passwd", "URLs" },
        { "six@1", "URLs" },
        { "./local", "paths" },
        { "../local", "paths" },
        { "/etc/passwd", "paths" },
        { "a/b", "paths" },
        { "C:\\x", "paths" },
        { "~/x", "paths" },
        { ".", "paths" },
        { "six; python_version > '3'", "markers" },
        { "six requests", "version" },
        { "six --no-deps", "version" },
        { "six\n--index-url", "version" },
        { "six\rx", "version" },
        { "_six", "no name" },
        { "six-", "no name" },
        { "s\xc3\xadx", "version" },
        { "\xff", "no name" },
        { "six==", "malformed" },
        { "six==1.0,", "commas" },
        { "six==1.0 2.0", "commas" },
        { "six>=*", "malformed" },
        { "six>=1.*", "malformed" },
        { "six==$(id)", "malformed" },
        { "six==`id`", "malformed" },
        { "six=1", "version" },
        { "six[", "extras" },
        { "six[a", "extras" },
        { "six[a b]", "extras" },
        { "six[-x]", "extras" },
        { "six(>=1", "parenthesis" },
        { "six>=1)", "parenthesis" },
        { "six(>=1)x", "follows" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = { 0 };
        auto_free char *normal = requirement_normalise(cases[i][0], &err);
        CHECK(cases[i][0], normal == NULL);
        CHECK_INT(cases[i][0], err.code, EINVAL);
        if (!strstr(err.msg, cases[i][1]))
            FAIL("%s: not the words \"%s\": %s", cases[i][0], cases[i][1], err.msg);
    }
}

static void test_length_is_bounded(void **state)
{
    (void)state;
    char text[REQUIREMENT_MAX + 2];
    memset(text, 'a', sizeof(text));
    text[REQUIREMENT_MAX] = '\0';
    struct err err = { 0 };
    auto_free char *longest = requirement_normalise(text, &err);
    assert_non_null(longest);
    text[REQUIREMENT_MAX] = 'a';
    text[REQUIREMENT_MAX + 1] = '\0';
    assert_null(requirement_normalise(text, &err));
    assert_non_null(strstr(err.msg, "longer"));
}

static void test_a_set_has_no_order(void **state)
{
    (void)state;
    static const char *const names[] = { "six", "Requests", "requests", "idna<4" };
    struct err err = { 0 };
    size_t n = 0;
    char **set = requirements_normalise(names, ARRAY_SIZE(names), &n, &err);
    assert_int_equal(n, 3);
    assert_string_equal(set[0], "idna<4");
    assert_string_equal(set[1], "requests");
    assert_string_equal(set[2], "six");
    requirements_free(set, n);
    static const char *const bad[] = { "six", "-x" };
    assert_null(requirements_normalise(bad, ARRAY_SIZE(bad), &n, &err));
}

/*** A directory for each of the rest ***/

struct place {
    char path[64];
    int dir;
};

static struct place place_new(void)
{
    struct place place = { .path = "/tmp/belljar-packages-XXXXXX" };
    assert_non_null(mkdtemp(place.path));
    place.dir = open(place.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(place.dir >= 0);
    return place;
}

static void place_done(struct place *place)
{
    close(place->dir);
    (void)scratch_remove(place->path);
}

static bool exists(const struct place *place, const char *path)
{
    struct stat st;
    return fstatat(place->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/*** Unpacking ***/

static void add_number(struct buf *buf, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        (void)buf_add_char(buf, (char)(value >> (8 * i)));
}

static void add_entry(struct buf *buf, char kind, const char *path, const char *content)
{
    (void)buf_add_char(buf, kind);
    add_number(buf, strlen(path), 2);
    add_number(buf, strlen(content), 8);
    (void)buf_add_str(buf, path);
    (void)buf_add_str(buf, content);
}

static struct buf archive(void)
{
    struct buf buf = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_str(&buf, "BJPKG1\n");
    return buf;
}

/* In pieces of `step` bytes. */
static int unpack_all(const struct place *place, const struct buf *text, size_t step,
                      uint64_t max_bytes, uint64_t max_files, struct err *err)
{
    struct unpack unpack;
    unpack_init(&unpack, place->dir, max_bytes, max_files);
    int r = 0;
    for (size_t at = 0; at < text->len && r == 0; at += step)
        r = unpack_feed(&unpack, text->data + at, text->len - at < step ? text->len - at : step,
                        err);
    if (r == 0)
        r = unpack_end(&unpack, err);
    unpack_done(&unpack);
    return r;
}

static void test_files_come_out_as_they_went_in(void **state)
{
    (void)state;
    for (size_t step = 1; step < 40; step += 6) {
        struct place place = place_new();
        auto_buf text = archive();
        struct err err = { 0 };
        add_entry(&text, 'd', "pkg", "");
        add_entry(&text, 'f', "pkg/__init__.py", "x = 1\n");
        add_entry(&text, 'f', "pkg/empty", "");
        add_entry(&text, 'x', "bin/tool", "#!/bin/sh\n");
        add_entry(&text, 'f', "deep/er/and/deeper/file", "y");
        add_entry(&text, 'e', "", "");
        if (unpack_all(&place, &text, step, 100, 100, &err) < 0)
            FAIL("step %zu: %s", step, err.msg);
        char content[16] = "";
        int fd = openat(place.dir, "pkg/__init__.py", O_RDONLY);
        assert_int_equal(read(fd, content, sizeof(content)), 6);
        close(fd);
        assert_string_equal(content, "x = 1\n");
        struct stat st;
        assert_int_equal(fstatat(place.dir, "pkg/empty", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0644);
        assert_int_equal(fstatat(place.dir, "bin/tool", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0755);
        assert_true(exists(&place, "deep/er/and/deeper/file"));
        place_done(&place);
    }
}

static void test_nothing_leaves_the_directory(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "../evil", "a/../../evil", "/evil", "a//evil", "./evil", "..", ".", "a/", "a/..", "/",
    };
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct place place = place_new();
        auto_buf text = archive();
        struct err err = { 0 };
        add_entry(&text, 'f', paths[i], "evil");
        add_entry(&text, 'e', "", "");
        CHECK_INT(paths[i], unpack_all(&place, &text, 1000, 100, 100, &err), -EBADMSG);
        CHECK(paths[i], !exists(&place, "../evil"));
        place_done(&place);
    }
}

static void test_links_are_not_followed_and_nothing_is_overwritten(void **state)
{
    (void)state;
    struct place place = place_new();
    struct err err = { 0 };
    assert_int_equal(symlinkat("/tmp", place.dir, "link"), 0);
    auto_buf text = archive();
    add_entry(&text, 'f', "link/evil", "evil");
    add_entry(&text, 'e', "", "");
    assert_true(unpack_all(&place, &text, 1000, 100, 100, &err) < 0);
    auto_buf twice = archive();
    add_entry(&twice, 'f', "once", "a");
    add_entry(&twice, 'f', "once", "b");
    add_entry(&twice, 'e', "", "");
    assert_int_equal(unpack_all(&place, &twice, 1000, 100, 100, &err), -EEXIST);
    place_done(&place);
}

static void test_malformed_results_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *bytes;
        size_t len;
    } cases[] = {
        { "nothing", "", 0 },
        { "other magic", "BJPKG2\nxxxxxxxxxxx", 18 },
        { "no end", "BJPKG1\n", 7 },
        { "half a head", "BJPKG1\nf\1", 9 },
        { "unknown kind", "BJPKG1\nl\1\0\0\0\0\0\0\0\0\0a", 19 },
        { "no name", "BJPKG1\nf\0\0\0\0\0\0\0\0\0\0", 18 },
        { "long name", "BJPKG1\nf\xff\xff\0\0\0\0\0\0\0\0a", 19 },
        { "NUL in the name", "BJPKG1\nf\2\0\0\0\0\0\0\0\0\0a\0", 20 },
        { "directory with bytes", "BJPKG1\nd\1\0\1\0\0\0\0\0\0\0ab", 20 },
        { "file cut short", "BJPKG1\nf\1\0\5\0\0\0\0\0\0\0ab", 20 },
        { "after the end", "BJPKG1\ne\0\0\0\0\0\0\0\0\0\0x", 19 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct place place = place_new();
        struct err err = { 0 };
        auto_buf text = BUF_INIT(BUF_NO_CEILING);
        (void)buf_add(&text, cases[i].bytes, cases[i].len);
        CHECK_INT(cases[i].name, unpack_all(&place, &text, 1000, 100, 100, &err), -EBADMSG);
        place_done(&place);
    }
}

static void test_limits_hold_at_their_edge(void **state)
{
    (void)state;
    auto_buf text = archive();
    add_entry(&text, 'd', "a", "");
    add_entry(&text, 'f', "a/b", "12345");
    add_entry(&text, 'f', "a/c", "67890");
    add_entry(&text, 'e', "", "");
    static const struct {
        uint64_t bytes, files;
        int want;
    } cases[] = { { 10, 3, 0 }, { 9, 3, -E2BIG }, { 10, 2, -E2BIG } };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct place place = place_new();
        struct err err = { 0 };
        CHECK_INT("limits", unpack_all(&place, &text, 7, cases[i].bytes, cases[i].files, &err),
                  cases[i].want);
        place_done(&place);
    }
}

/*** The shelf ***/

struct shelf_rig {
    struct place place;
    struct shelf shelf;
};

static void shelf_rig_open(struct shelf_rig *rig)
{
    struct err err = { 0 };
    rig->place = place_new();
    if (shelf_open(rig->place.path, geteuid(), &rig->shelf, &err) < 0)
        FAIL("shelf_open: %s", err.msg);
}

static void shelf_rig_close(struct shelf_rig *rig)
{
    shelf_close(&rig->shelf);
    assert_int_equal(fchmodat(rig->place.dir, "sets", 0755, 0), 0);
    place_done(&rig->place);
}

static void name_of(const struct shelf *shelf, const char *text, char *ret)
{
    shelf_name(shelf, text, strlen(text), ret);
}

/* With one file of the set's own name in it. Returns the hold. */
static int put(const struct shelf *shelf, const char *text, uint64_t bytes)
{
    struct err err = { 0 };
    struct shelf_stage stage;
    char name[SHELF_NAME_SIZE];
    name_of(shelf, text, name);
    assert_int_equal(shelf_stage(shelf, &stage, &err), 0);
    close(openat(stage.dir, text, O_CREAT | O_WRONLY, 0644));
    int hold = shelf_publish(shelf, &stage, name, bytes, &err);
    if (hold < 0)
        FAIL("publish: %s", err.msg);
    return hold;
}

static bool has(const struct shelf *shelf, const char *text)
{
    char name[SHELF_NAME_SIZE];
    name_of(shelf, text, name);
    int hold = shelf_hold(shelf, name);
    if (hold >= 0)
        close(hold);
    return hold >= 0;
}

static void test_a_set_is_there_whole_or_not_at_all(void **state)
{
    (void)state;
    struct shelf_rig rig;
    struct err err = { 0 };
    shelf_rig_open(&rig);
    assert_false(has(&rig.shelf, "one"));
    struct shelf_stage stage;
    assert_int_equal(shelf_stage(&rig.shelf, &stage, &err), 0);
    close(openat(stage.dir, "half", O_CREAT | O_WRONLY, 0644));
    shelf_discard(&rig.shelf, &stage);
    close(put(&rig.shelf, "one", 5));
    assert_true(has(&rig.shelf, "one"));
    close(put(&rig.shelf, "one", 5)); /* somebody was quicker */
    char name[SHELF_NAME_SIZE], path[128];
    name_of(&rig.shelf, "one", name);
    (void)snprintf(path, sizeof(path), "sets/%s/one", name);
    assert_true(exists(&rig.place, path));
    shelf_rig_close(&rig);
}

static void test_nothing_but_sets_stays(void **state)
{
    (void)state;
    struct shelf_rig rig;
    struct err err = { 0 };
    struct shelf second;
    struct shelf_stage stage;
    shelf_rig_open(&rig);
    assert_int_equal(shelf_stage(&rig.shelf, &stage, &err), 0);
    char path[64];
    (void)snprintf(path, sizeof(path), "stage/%s", stage.id);
    assert_int_equal(shelf_open(rig.place.path, geteuid(), &second, &err), 0);
    assert_true(exists(&rig.place, path)); /* a living server's */
    shelf_close(&second);
    close(stage.dir); /* as a kill does */
    assert_int_equal(shelf_open(rig.place.path, geteuid(), &second, &err), 0);
    assert_false(exists(&rig.place, path));
    assert_memory_equal(rig.shelf.secret, second.secret, sizeof(second.secret));
    shelf_close(&second);
    shelf_rig_close(&rig);
}

static void test_the_longest_unused_goes_first_and_none_in_use(void **state)
{
    (void)state;
    struct shelf_rig rig;
    shelf_rig_open(&rig);
    int held = put(&rig.shelf, "held", 100);
    const char *const others[] = { "old", "older", "new" };
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        close(put(&rig.shelf, others[i], 100));
    static const struct {
        const char *text;
        time_t when;
    } uses[] = { { "held", 1 }, { "older", 2 }, { "old", 3 }, { "new", 4 } };
    for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
        char name[SHELF_NAME_SIZE];
        name_of(&rig.shelf, uses[i].text, name);
        const struct timespec times[2] = { { uses[i].when, 0 }, { uses[i].when, 0 } };
        assert_int_equal(utimensat(rig.shelf.index, name, times, 0), 0);
    }
    shelf_trim(&rig.shelf, 400);
    char name[SHELF_NAME_SIZE];
    name_of(&rig.shelf, "older", name);
    assert_true(faccessat(rig.shelf.index, name, F_OK, 0) == 0); /* just fits */
    shelf_trim(&rig.shelf, 399);
    assert_false(has(&rig.shelf, "older"));
    assert_true(has(&rig.shelf, "held") && has(&rig.shelf, "old") && has(&rig.shelf, "new"));
    shelf_trim(&rig.shelf, 0);
    assert_true(has(&rig.shelf, "held"));
    assert_false(has(&rig.shelf, "old") || has(&rig.shelf, "new"));
    close(held);
    shelf_trim(&rig.shelf, 0);
    assert_false(has(&rig.shelf, "held"));
    shelf_rig_close(&rig);
}

static void test_names_are_secret(void **state)
{
    (void)state;
    struct shelf_rig one, other;
    char first[SHELF_NAME_SIZE], second[SHELF_NAME_SIZE];
    shelf_rig_open(&one);
    shelf_rig_open(&other);
    name_of(&one.shelf, "six", first);
    name_of(&other.shelf, "six", second);
    assert_string_not_equal(first, second);
    assert_int_equal(strlen(first), SHELF_NAME_LEN);
    struct stat st;
    assert_int_equal(fstatat(one.place.dir, "sets", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0311);
    assert_int_equal(fstatat(one.place.dir, "secret", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    shelf_rig_close(&one);
    shelf_rig_close(&other);
}

static void test_a_foreign_directory_is_refused(void **state)
{
    (void)state;
    struct place place = place_new();
    struct shelf shelf;
    struct err err = { 0 };
    assert_int_equal(chmod(place.path, 0777), 0);
    assert_int_equal(shelf_open(place.path, geteuid(), &shelf, &err), -EPERM);
    assert_non_null(strstr(err.msg, "package_dir"));
    place_done(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_requirements_have_one_form),
        cmocka_unit_test(test_all_else_is_refused_by_name),
        cmocka_unit_test(test_length_is_bounded),
        cmocka_unit_test(test_a_set_has_no_order),
        cmocka_unit_test(test_files_come_out_as_they_went_in),
        cmocka_unit_test(test_nothing_leaves_the_directory),
        cmocka_unit_test(test_links_are_not_followed_and_nothing_is_overwritten),
        cmocka_unit_test(test_malformed_results_are_refused),
        cmocka_unit_test(test_limits_hold_at_their_edge),
        cmocka_unit_test(test_a_set_is_there_whole_or_not_at_all),
        cmocka_unit_test(test_nothing_but_sets_stays),
        cmocka_unit_test(test_the_longest_unused_goes_first_and_none_in_use),
        cmocka_unit_test(test_names_are_secret),
        cmocka_unit_test(test_a_foreign_directory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
