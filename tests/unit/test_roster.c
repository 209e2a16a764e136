/* Notes of sessions that outlive their server: what is read back, what is not, and whose the directory is. */
#include "check.h"
#include "scratch.h"

#include "session/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[64];

static int make_top(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof(top), "/tmp/belljar-roster-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    return scratch_remove(top);
}

static struct roster *open_it(void)
{
    struct roster *roster = NULL;
    struct err err = { 0 };
    if (roster_open(top, /* make= */ true, geteuid(), &roster, &err) < 0)
        FAIL("roster_open: %s", err.msg);
    return roster;
}

static void put(const char *name, const char *text, size_t len)
{
    auto_free char *path = xasprintf("%s/kept/%s", top, name);
    auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
}

static void test_a_note_comes_back_with_its_age(void **state)
{
    (void)state;
    struct roster *roster = open_it();
    auto_json *note = json_pack("{s:s}", "id", "secret");
    CHECK_INT("written", roster_write(roster, "one", note, 90 * 1000), 0);
    CHECK_INT("once more", roster_write(roster, "one", note, 90 * 1000), 0);
    roster_close(roster);
    roster = open_it(); /* the next server */
    auto_json *all = roster_read(roster);
    const json_t *one = json_object_get(all, "one");
    json_int_t unused = json_integer_value(json_object_get(one, "unused"));
    CHECK_INT("one", json_object_size(all), 1);
    CHECK_STR("what it said", json_str(one, "id"), "secret");
    CHECK("how old", unused >= 89 * 1000 && unused < 150 * 1000);
    roster_touch(roster, "one");
    auto_json *later = roster_read(roster);
    CHECK("used",
          json_integer_value(json_object_get(json_object_get(later, "one"), "unused")) < 60 * 1000);
    roster_remove(roster, "one");
    roster_remove(roster, "one"); /* it may be gone already */
    auto_json *none = roster_read(roster);
    CHECK_INT("none", json_object_size(none), 0);
    roster_close(roster);
}

static void test_nobody_else_can_read_it(void **state)
{
    (void)state;
    struct roster *roster = open_it();
    struct stat st;
    auto_json *note = json_object();
    auto_free char *dir = xasprintf("%s/kept", top), *path = xasprintf("%s/kept/one", top);
    CHECK_INT("written", roster_write(roster, "one", note, 0), 0);
    assert_int_equal(stat(path, &st), 0);
    CHECK_INT("file", st.st_mode & 0777, 0600);
    assert_int_equal(stat(dir, &st), 0);
    CHECK_INT("directory", st.st_mode & 0777, 0700);
    roster_close(roster);
    assert_int_equal(chmod(dir, 0750), 0);
    struct err err = { 0 };
    CHECK_INT("open to others", roster_open(top, true, geteuid(), &roster, &err), -EPERM);
    CHECK("named", strstr(err.msg, "kept"));
}

static void test_what_is_no_note_is_removed(void **state)
{
    (void)state;
    struct roster *roster = open_it();
    auto_free char *big = xcalloc(1, ROSTER_FILE_MAX + 1);
    auto_free char *link = xasprintf("%s/kept/link", top), *fifo = xasprintf("%s/kept/fifo", top);
    auto_free char *new = xasprintf("%s/kept/two.new", top);
    memset(big, ' ', ROSTER_FILE_MAX + 1);
    put("empty", "", 0);
    put("half", "{\"id\":", 6);
    put("list", "[]", 2);
    put("long", big, ROSTER_FILE_MAX + 1);
    big[0] = '{';
    big[1] = '}';
    put("longest", big, ROSTER_FILE_MAX);
    put("two.new", "{}", 2); /* whose writer was killed */
    put("two.newer", "{}", 2);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    auto_json *all = roster_read(roster);
    CHECK_INT("two are notes", json_object_size(all), 2);
    CHECK("the longest", json_object_get(all, "longest"));
    CHECK("a name that only looks new", json_object_get(all, "two.newer"));
    struct stat st;
    CHECK("none that was not finished", lstat(new, &st) < 0);
    CHECK("no link", lstat(link, &st) < 0);
    CHECK("no FIFO", lstat(fifo, &st) < 0);
    roster_close(roster);
}

static void test_servers_that_begin_do_not_keep_others_from_writing(void **state)
{
    (void)state;
    struct roster *roster = open_it();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* nothing but servers that begin */
        for (;;)
            json_decref(roster_read(roster));
    }
    int failed = 0;
    for (json_int_t i = 1; i <= 1000; i++) {
        auto_json *note = json_pack("{s:I}", "number", i);
        failed += roster_write(roster, "one", note, 0) < 0;
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    CHECK_INT("not written", failed, 0);
    auto_json *all = roster_read(roster);
    const json_t *one = json_object_get(all, "one");
    CHECK_INT("the last", json_integer_value(json_object_get(one, "number")), 1000);
    roster_close(roster);
}

static void test_a_note_that_cannot_be_opened_now_stays(void **state)
{
    (void)state;
    struct roster *roster = open_it();
    auto_json *note = json_object();
    CHECK_INT("written", roster_write(roster, "one", note, 0), 0);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int next = dup(0);
    assert_true(next >= 0);
    close(next);
    struct rlimit few = { (rlim_t)next + 1, limit.rlim_max }; /* enough for the directory */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    auto_json *none = roster_read(roster);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_INT("not read", json_object_size(none), 0);
    auto_json *all = roster_read(roster);
    CHECK_INT("still there", json_object_size(all), 1);
    roster_close(roster);
}

static void test_a_note_may_not_be_too_long(void **state)
{
    (void)state;
    struct roster *roster = open_it();
    auto_free char *text = xcalloc(1, ROSTER_FILE_MAX);
    memset(text, 'x', ROSTER_FILE_MAX - 1);
    auto_json *note = json_pack("{s:s}", "id", text);
    CHECK("refused", roster_write(roster, "one", note, 0) < 0);
    auto_json *all = roster_read(roster);
    CHECK_INT("nothing", json_object_size(all), 0);
    roster_close(roster);
}

static void test_without_a_directory_there_is_none_unless_asked_for(void **state)
{
    (void)state;
    struct roster *roster = NULL;
    struct err err = { 0 };
    auto_free char *dir = xasprintf("%s/kept", top);
    struct stat st;
    CHECK_INT("none", roster_open(top, /* make= */ false, geteuid(), &roster, &err), -ENOENT);
    CHECK("not made", stat(dir, &st) < 0);
    roster_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_note_comes_back_with_its_age, make_top, remove_top),
        cmocka_unit_test_setup_teardown(test_nobody_else_can_read_it, make_top, remove_top),
        cmocka_unit_test_setup_teardown(test_what_is_no_note_is_removed, make_top, remove_top),
        cmocka_unit_test_setup_teardown(test_servers_that_begin_do_not_keep_others_from_writing,
                                        make_top, remove_top),
        cmocka_unit_test_setup_teardown(test_a_note_that_cannot_be_opened_now_stays, make_top,
                                        remove_top),
        cmocka_unit_test_setup_teardown(test_a_note_may_not_be_too_long, make_top, remove_top),
        cmocka_unit_test_setup_teardown(test_without_a_directory_there_is_none_unless_asked_for,
                                        make_top, remove_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
