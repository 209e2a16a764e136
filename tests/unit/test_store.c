/* The store of workspaces: names, saving, what a killed server leaves, limits, several servers. */
#include "check.h"
#include "scratch.h"

#include "base/buf.h"
#include "session/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[64];

static int make_top(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof(top), "/tmp/belljar-store-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    return scratch_remove(top);
}

static struct store *open_store(uint64_t max_bytes, uint64_t max_age_ms)
{
    auto_free char *dir = xasprintf("%s/a/b", top);
    const struct store_options options = { .dir = dir,
                                           .profile = "p",
                                           .uid = geteuid(),
                                           .max_bytes = max_bytes,
                                           .max_age_ms = max_age_ms };
    struct store *store = NULL;
    struct err err = { 0 };
    if (store_open(&options, &store, &err) < 0)
        FAIL("store_open: %s", err.msg);
    return store;
}

static struct store *open_usual(void)
{
    return open_store(1 << 30, 1 << 30);
}

static struct stored *hold(struct store *store, const char *owner, const char *id)
{
    struct stored *stored = NULL;
    struct err err = { 0 };
    if (store_hold(store, owner, id, /* make= */ true, &stored, &err) < 0)
        FAIL("store_hold: %s", err.msg);
    return stored;
}

/* What a workspace has, as "path=content" (a file), "path/" (a directory), "path>target" (a link); with
 * the same time each unless the content has changed. */
struct item {
    const char *path;
    enum store_type type;
    const char *content;
    int64_t mtime_ns;
};

static int save_items(struct stored *stored, const struct item *items, size_t count,
                      size_t *ret_fetched, struct err *err)
{
    struct store_save save = { .max_bytes = 1 << 20 };
    for (size_t i = 0; i < count; i++) {
        const struct store_entry like = { .type = items[i].type,
                                          .size = items[i].content ? strlen(items[i].content) : 0,
                                          .mtime_ns = items[i].mtime_ns };
        store_tree_add(&save.wanted, items[i].path, &like);
    }
    int r = stored_plan(stored, &save, err);
    for (size_t i = 0; r == 0 && i < save.n_fetch; i++) {
        const char *content = items[save.fetch[i]].content;
        r = stored_put(stored, save.fetch[i], 0, content, strlen(content), err);
    }
    if (ret_fetched)
        *ret_fetched = save.n_fetch;
    if (r == 0)
        r = stored_apply(stored, &save, err);
    store_save_done(&save);
    return r;
}

static size_t save(struct stored *stored, const struct item *items, size_t count)
{
    struct err err = { 0 };
    size_t fetched = 0;
    if (save_items(stored, items, count, &fetched, &err) < 0)
        FAIL("save: %s", err.msg);
    return fetched;
}

/* "a/ a/b=text c>target", sorted. */
static char *show(struct stored *stored)
{
    static const char marks[] = { [STORE_FILE] = '=', [STORE_DIRECTORY] = '/', [STORE_LINK] = '>' };
    struct store_tree tree;
    struct err err = { 0 };
    struct buf text = BUF_INIT(BUF_NO_CEILING);
    if (stored_list(stored, &tree, &err) < 0)
        FAIL("list: %s", err.msg);
    for (size_t i = 0; i < tree.count; i++) {
        char content[64] = "";
        if (tree.items[i].type != STORE_DIRECTORY &&
            stored_read(stored, tree.items[i].path, 0, content, sizeof(content) - 1, &err) < 0)
            FAIL("read: %s", err.msg);
        (void)buf_printf(&text, "%s%s%c%s", i ? " " : "", tree.items[i].path,
                         marks[tree.items[i].type], content);
    }
    store_tree_done(&tree);
    return text.len ? buf_steal(&text) : xstrdup("");
}

#define CHECK_SHOWN(name, stored, want)                                                            \
    do {                                                                                           \
        auto_free char *shown_ = show(stored);                                                     \
        CHECK_STR(name, shown_, want);                                                             \
    } while (0)

/*** Saving ***/

static void test_what_is_saved_is_there_and_only_changes_are_fetched(void **state)
{
    (void)state;
    struct store *store = open_usual();
    struct stored *stored = hold(store, "stdio", "s");
    static const struct item first[] = {
        { "a", STORE_FILE, "one", 5 },        { "d", STORE_DIRECTORY, NULL, 0 },
        { "d/e", STORE_FILE, "", 7 },         { "l", STORE_LINK, "d/e", 8 },
        { "n\n\xff", STORE_FILE, "odd", -9 },
    };
    CHECK_INT("all but the directory", save(stored, first, ARRAY_SIZE(first)), 4);
    CHECK_SHOWN("first", stored, "a=one d/ d/e= l>d/e n\n\xff=odd");
    CHECK_INT("nothing has changed", save(stored, first, ARRAY_SIZE(first)), 0);
    static const struct item second[] = {
        { "a", STORE_FILE, "two", 6 },
        { "d", STORE_FILE, "was a directory", 1 },
        { "n\n\xff", STORE_DIRECTORY, NULL, 0 },
        { "n\n\xff/x", STORE_FILE, "x", 1 },
    };
    CHECK_INT("three files", save(stored, second, ARRAY_SIZE(second)), 3);
    CHECK_SHOWN("second", stored, "a=two d=was a directory n\n\xff/ n\n\xff/x=x");
    CHECK_INT("none", save(stored, NULL, 0), 0);
    CHECK_SHOWN("empty", stored, "");
    stored_release(stored);
    store_close(store);
}

static void test_a_link_is_no_link_here_and_nothing_is_executable_by_others(void **state)
{
    (void)state;
    struct store *store = open_usual();
    struct stored *stored = hold(store, "stdio", "s");
    static const struct item items[] = { { "l", STORE_LINK, "/etc/passwd", 1 } };
    (void)save(stored, items, 1);
    auto_free char *path = xasprintf("%s/a/b/p/stdio/s/files/l", top);
    struct stat st;
    CHECK_INT("it is there", lstat(path, &st), 0);
    CHECK("a plain file", S_ISREG(st.st_mode));
    CHECK_INT("its mode", st.st_mode & 0077, 0);
    stored_release(stored);
    store_close(store);
}

static void test_a_save_that_was_cut_off_leaves_the_old_files(void **state)
{
    (void)state;
    struct store *store = open_usual();
    struct stored *stored = hold(store, "stdio", "s");
    static const struct item old[] = { { "a", STORE_FILE, "old", 1 } };
    (void)save(stored, old, 1);
    struct store_save cut = { .max_bytes = 1 << 20 };
    struct err err = { 0 };
    const struct store_entry like = { .type = STORE_FILE, .size = 8, .mtime_ns = 2 };
    store_tree_add(&cut.wanted, "a", &like);
    CHECK_INT("plan", stored_plan(stored, &cut, &err), 0);
    CHECK_INT("half of it", stored_put(stored, 0, 0, "half", 4, &err), 0);
    store_save_done(&cut);
    stored_release(stored); /* as if killed here */
    stored = hold(store, "stdio", "s");
    CHECK_SHOWN("old", stored, "a=old");
    static const struct item new[] = { { "a", STORE_FILE, "new", 3 } };
    (void)save(stored, new, 1);
    CHECK_SHOWN("new", stored, "a=new");
    stored_release(stored);
    store_close(store);
}

static void test_zeros_take_no_space(void **state)
{
    (void)state;
    struct store *store = open_usual();
    struct stored *stored = hold(store, "stdio", "s");
    struct store_save sparse = { .max_bytes = 1 << 20 };
    struct err err = { 0 };
    static char zeros[1 << 19];
    const struct store_entry like = { .type = STORE_FILE, .size = 1 << 20, .mtime_ns = 2 };
    store_tree_add(&sparse.wanted, "z", &like);
    CHECK_INT("plan", stored_plan(stored, &sparse, &err), 0);
    CHECK_INT("first", stored_put(stored, 0, 0, zeros, sizeof(zeros), &err), 0);
    CHECK_INT("second", stored_put(stored, 0, sizeof(zeros), zeros, sizeof(zeros), &err), 0);
    CHECK_INT("apply", stored_apply(stored, &sparse, &err), 0);
    store_save_done(&sparse);
    auto_free char *path = xasprintf("%s/a/b/p/stdio/s/files/z", top);
    struct stat st;
    CHECK_INT("it is there", stat(path, &st), 0);
    CHECK_INT("size", st.st_size, 1 << 20);
    CHECK("few blocks", st.st_blocks <= 16);
    stored_release(stored);
    store_close(store);
}

/*** Limits ***/

static void test_a_session_has_as_much_as_a_workspace(void **state)
{
    (void)state;
    struct store *store = open_usual();
    struct stored *stored = hold(store, "stdio", "s");
    static const struct {
        uint64_t sizes[2];
        int want;
    } cases[] = {
        { { 1 << 20, 0 }, 0 },
        { { (1 << 20) - 4096, 1 }, 0 }, /* whole pages count */
        { { (1 << 20) - 4095, 1 }, -EFBIG },
        { { (1 << 20) + 1, 0 }, -EFBIG },
        { { UINT64_MAX, UINT64_MAX }, -EFBIG },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct store_save plan = { .max_bytes = 1 << 20 };
        struct err err = { 0 };
        for (size_t j = 0; j < 2; j++) {
            const struct store_entry like = { .type = STORE_FILE, .size = cases[i].sizes[j] };
            store_tree_add(&plan.wanted, j ? "b" : "a", &like);
        }
        CHECK_INT("plan", stored_plan(stored, &plan, &err), cases[i].want);
        store_save_done(&plan);
    }
    stored_release(stored);
    store_close(store);
}

static void test_all_together_have_a_limit_and_what_goes_makes_room(void **state)
{
    (void)state;
    enum { ONE = 4096 + 1024 }; /* what a small file counts */
    struct store *store = open_store(2 * ONE, 1 << 30);
    struct stored *one = hold(store, "stdio", "one"), *two = hold(store, "stdio", "two");
    static const struct item small[] = { { "a", STORE_FILE, "x", 1 }, { "b", STORE_FILE, "y", 1 } };
    struct err err = { 0 };
    (void)save(one, small, 1);
    CHECK_INT("one more", save_items(two, small, 2, NULL, &err), -EDQUOT);
    CHECK("says which option", strstr(err.msg, "workspace_dir_size") != NULL);
    (void)save(two, small, 1);
    CHECK_INT("full", save_items(two, small, 2, NULL, &err), -EDQUOT);
    CHECK_SHOWN("what was there stays", two, "a=x");
    stored_release(one);
    CHECK_INT("remove", store_remove(store, "stdio", "one"), 0);
    store_clean(store);
    (void)save(two, small, 2);
    CHECK_SHOWN("now it fits", two, "a=x b=y");
    (void)save(two, NULL, 0);
    stored_release(two);
    one = hold(store, "stdio", "three");
    (void)save(one, small, 2);
    stored_release(one);
    store_close(store);
}

/*** Who finds what ***/

static void count_one(const char *id, void *data)
{
    (void)id;
    ++*(size_t *)data;
}

static void test_an_owner_finds_his_own_and_no_name_leads_elsewhere(void **state)
{
    (void)state;
    struct store *store = open_usual();
    static const struct item items[] = { { "a", STORE_FILE, "x", 1 } };
    static const char *const owners[] = { "stdio",  "a", "../stdio",
                                          "~",      "",  "QUIVOXlTbmV0aW5nIGVsc2U",
                                          "stdio/s" };
    static const char *const ids[] = { ".", "..", "...", "s", "S", "-", ".s" };
    for (size_t i = 0; i < ARRAY_SIZE(owners); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(ids); j++) {
            CHECK("not yet", !store_has(store, owners[i], ids[j]));
            struct stored *stored = hold(store, owners[i], ids[j]);
            (void)save(stored, items, 1);
            stored_release(stored);
            CHECK("there", store_has(store, owners[i], ids[j]));
        }
        size_t count = 0;
        store_ids(store, owners[i], count_one, &count);
        CHECK_INT(owners[i], count, ARRAY_SIZE(ids));
    }
    static const char *const bad[] = {
        "",
        "a/b",
        "../s",
        "s/",
        "s\n",
        "%2E",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct stored *stored = NULL;
        struct store_tree tree;
        struct err err = { 0 };
        CHECK(bad[i], !store_has(store, "stdio", bad[i]));
        CHECK(bad[i], store_hold(store, "stdio", bad[i], true, &stored, &err) < 0);
        CHECK(bad[i], store_list(store, "stdio", bad[i], &tree, &err) < 0);
        CHECK(bad[i], store_remove(store, "stdio", bad[i]) < 0);
    }
    store_close(store);
}

static void test_one_server_at_a_time_has_a_session(void **state)
{
    (void)state;
    struct store *one = open_usual(), *two = open_usual();
    struct stored *held = hold(one, "stdio", "s"), *other = NULL;
    struct err err = { 0 };
    CHECK_INT("held", store_hold(two, "stdio", "s", true, &other, &err), -EBUSY);
    CHECK_INT("not removed either", store_remove(two, "stdio", "s"), -EBUSY);
    stored_release(held);
    CHECK_INT("free", store_hold(two, "stdio", "s", false, &other, &err), 0);
    stored_release(other);
    CHECK_INT("none", store_hold(two, "stdio", "t", false, &other, &err), -ENOENT);
    store_close(one);
    store_close(two);
}

static void test_what_nobody_has_used_goes_and_what_somebody_has_stays(void **state)
{
    (void)state;
    struct store *store = open_store(1 << 30, /* max_age_ms= */ 60000);
    static const char *const ids[] = { "old", "used", "held" };
    static const struct item items[] = { { "a", STORE_FILE, "x", 1 } };
    static const struct timespec long_ago[2] = { { 1000, 0 }, { 1000, 0 } };
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct stored *stored = hold(store, "stdio", ids[i]);
        (void)save(stored, items, 1);
        stored_release(stored);
    }
    struct stored *held = hold(store, "stdio", "held");
    for (size_t i = 0; i < ARRAY_SIZE(ids); i += 2) {
        auto_free char *info = xasprintf("%s/a/b/p/stdio/%s/info", top, ids[i]);
        CHECK_INT("age", utimensat(AT_FDCWD, info, long_ago, 0), 0);
    }
    store_clean(store);
    CHECK("old", !store_has(store, "stdio", "old"));
    CHECK("used", store_has(store, "stdio", "used"));
    CHECK("held", store_has(store, "stdio", "held"));
    stored_release(held);
    store_close(store);
}

static void test_a_directory_of_somebody_else_is_refused(void **state)
{
    (void)state;
    auto_free char *dir = xasprintf("%s/open", top);
    struct store *store = NULL;
    struct err err = { 0 };
    const struct store_options options = { .dir = dir, .profile = "p", .uid = geteuid() };
    CHECK_INT("mkdir", mkdir(dir, 0700), 0);
    CHECK_INT("chmod", chmod(dir, 0777), 0);
    CHECK_INT("writable for all", store_open(&options, &store, &err), -EPERM);
    CHECK("names it", strstr(err.msg, dir) != NULL);
    if (geteuid() == 0) {
        const struct store_options other = { .dir = dir, .profile = "p", .uid = 12345 };
        auto_free char *file = xasprintf("%s/file", dir);
        CHECK_INT("chmod", chmod(dir, 0755), 0);
        CHECK_INT("a file", close(open(file, O_CREAT | O_WRONLY, 0600)), 0);
        CHECK_INT("root's, with something in it", store_open(&other, &store, &err), -EPERM);
        struct stat st;
        CHECK_INT("stat", stat(dir, &st), 0);
        CHECK_INT("and still root's", st.st_uid, 0);
    }
}

static void test_what_others_put_there_is_not_followed(void **state)
{
    (void)state;
    struct store *store = open_usual();
    struct stored *stored = hold(store, "stdio", "s");
    static const struct item items[] = { { "d", STORE_DIRECTORY, NULL, 0 },
                                         { "d/a", STORE_FILE, "x", 1 } };
    (void)save(stored, items, 2);
    auto_free char *outside = xasprintf("%s/outside", top);
    auto_free char *link = xasprintf("%s/a/b/p/stdio/s/files/link", top);
    auto_free char *inside = xasprintf("%s/outside/a", top);
    CHECK_INT("mkdir", mkdir(outside, 0700), 0);
    CHECK_INT("symlink", symlink(outside, link), 0);
    CHECK_SHOWN("not listed", stored, "d/ d/a=x");
    struct err err = { 0 };
    char byte;
    CHECK("not read through", stored_read(stored, "link/a", 0, &byte, 1, &err) < 0);
    static const struct item through[] = { { "link", STORE_DIRECTORY, NULL, 0 },
                                           { "link/a", STORE_FILE, "x", 1 } };
    (void)save(stored, through, 2);
    CHECK_INT("not written through", access(inside, F_OK), -1);
    CHECK_SHOWN("replaced", stored, "link/ link/a=x");
    stored_release(stored);
    store_close(store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_top, remove_top)
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_saved_is_there_and_only_changes_are_fetched),
        TEST(test_a_link_is_no_link_here_and_nothing_is_executable_by_others),
        TEST(test_a_save_that_was_cut_off_leaves_the_old_files),
        TEST(test_zeros_take_no_space),
        TEST(test_a_session_has_as_much_as_a_workspace),
        TEST(test_all_together_have_a_limit_and_what_goes_makes_room),
        TEST(test_an_owner_finds_his_own_and_no_name_leads_elsewhere),
        TEST(test_one_server_at_a_time_has_a_session),
        TEST(test_what_nobody_has_used_goes_and_what_somebody_has_stays),
        TEST(test_a_directory_of_somebody_else_is_refused),
        TEST(test_what_others_put_there_is_not_followed),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
