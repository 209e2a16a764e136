/* Work on files, through the real agent. How it is started: agent_box.h. */
#include "agent_box.h"
#include "check.h"

#include "agent/frame.h"
#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* What a guest does in its workspace. */
static void guest(struct box *box, const char *script)
{
    auto_result result = { 0 };
    box_run(box, &SH(script), &result);
    CHECK_STR(script, buf_str(&result.err), "");
    CHECK_INT(script, result.exit.code, 0);
}

static void clean(struct box *box)
{
    guest(box, "chmod -R u+rwx . ; find . -mindepth 1 -delete");
}

/*** content ***/

static void test_what_is_written_is_read(void **state)
{
    struct box *box = *state;
    size_t len = 1000 * 1000 + 13; /* below the file limit of the guest mode */
    auto_free char *bytes = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(i * 2654435761U >> 11);
    CHECK_INT("write", box_write(box, "deep/er/file.bin", bytes, len), 0);
    auto_answer answer = { 0 };
    CHECK_INT("read", box_read(box, "deep/er/file.bin", 0, len + 5, &answer), 0);
    CHECK_INT("length", answer.bytes.len, len);
    CHECK_INT("size", answer.size, len);
    assert_memory_equal(answer.bytes.data, bytes, len);

    auto_free char *absolute = xasprintf("%s//deep/./er/file.bin", box->workspace);
    CHECK_INT("a part, by its absolute name", box_read(box, absolute, 1000, 10, &answer), 0);
    CHECK_INT("length", answer.bytes.len, 10);
    assert_memory_equal(answer.bytes.data, bytes + 1000, 10);
    CHECK_INT("size", answer.size, len);
    CHECK_INT("behind the end", box_read(box, absolute, len, 10, &answer), 0);
    CHECK_INT("nothing", answer.bytes.len, 0);
    CHECK_INT("far behind the end", box_read(box, absolute, UINT64_MAX, 10, &answer), 0);
    CHECK_INT("nothing", answer.bytes.len, 0);

    CHECK_INT("empty", box_write(box, "deep/er/file.bin", "", 0), 0);
    CHECK_INT("read", box_read(box, "deep/er/file.bin", 0, 10, &answer), 0);
    CHECK_INT("size", answer.size, 0);
    clean(box);
}

static void test_a_file_belongs_to_the_guest_and_keeps_its_mode(void **state)
{
    struct box *box = *state;
    CHECK_INT("write", box_write(box, "f", "1", 1), 0);
    guest(box, "test -O f && test \"$(stat -c %a f)\" = 644 && chmod 750 f");
    CHECK_INT("again", box_write(box, "f", "2", 1), 0);
    guest(box, "test \"$(stat -c %a f)\" = 750 && test \"$(ls -A)\" = f");
    clean(box);
}

static void test_what_cannot_be_read_says_why(void **state)
{
    struct box *box = *state;
    guest(box, "mkdir d; mkfifo p; echo x > f; ln -s p to-p; ln -s loop loop; ln -s nowhere gone;"
               "echo x > secret; chmod 0 secret; truncate -s 1000000 sparse");
    auto_answer answer = { 0 };
    static const struct {
        const char *path;
        int want;
    } cases[] = {
        { "no", ENOENT },         { "d", EISDIR },     { "", EISDIR },
        { "p", EINVAL },          { "f/x", ENOTDIR },  { "..", EXDEV },
        { "/etc/passwd", EXDEV }, { "d/../f", EXDEV }, { "../workspace", EXDEV },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_INT(cases[i].path, box_read(box, cases[i].path, 0, 100, &answer), cases[i].want);
    if (!box_mode("old")) { /* follows no links at all */
        CHECK_INT("a link to a pipe", box_read(box, "to-p", 0, 100, &answer), EINVAL);
        CHECK_INT("a link to nothing", box_read(box, "gone", 0, 100, &answer), ENOENT);
    }
    CHECK_INT("a loop", box_read(box, "loop", 0, 100, &answer), ELOOP);
    CHECK_INT("mode 0", box_read(box, "secret", 0, 100, &answer), EACCES);
    CHECK_INT("sparse", box_read(box, "sparse", 999990, 100, &answer), 0);
    CHECK_INT("its end", answer.bytes.len, 10);

    char name[300];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    CHECK_INT("a long name", box_read(box, name, 0, 100, &answer), ENAMETOOLONG);
    clean(box);
}

static void test_a_sparse_giant_is_read_as_far_as_asked(void **state)
{
    struct box *box = *state;
    guest(box, "truncate -s 1T giant");
    auto_answer answer = { 0 };
    CHECK_INT("read", box_read(box, "giant", UINT64_C(1) << 39, 3 << 20, &answer), 0);
    CHECK_INT("length", answer.bytes.len, 3 << 20);
    CHECK_INT("size", answer.size == UINT64_C(1) << 40, true);
    clean(box);
}

static void test_a_socket_is_not_a_file(void **state)
{
    struct box *box = *state;
    CHECK_INT("ready", box->ready, true);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", box->workspace);
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    auto_answer answer = { 0 };
    CHECK_INT("read", box_read(box, "socket", 0, 100, &answer), EINVAL);
    clean(box);
}

/*** links ***/

static void test_links_are_followed_below_the_workspace_only(void **state)
{
    struct box *box = *state;
    guest(box, "mkdir -p a/b; echo inside > a/f; ln -s a/f good; ln -s ../f a/b/up;"
               "ln -s a dir; ln -s /etc/passwd abs; ln -s ../../../../../../etc/passwd rel;"
               "ln -s / root; ln -s .. parent; ln -s /proc/self/root magic;"
               "ln -s /proc/self/fd/5 fd; ln -s \"$PWD/a/f\" own");
    static const char *const inside[] = { "good", "a/b/up", "dir/f", "dir/b/up" };
    static const char *const outside[] = { "abs",           "rel",         "root/etc/passwd",
                                           "parent/run",    "own",         "magic/etc/passwd",
                                           "fd/etc/passwd", "parent/../x", "root" };
    auto_answer answer = { 0 };
    bool old = box_mode("old");
    for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
        int code = box_read(box, inside[i], 0, 100, &answer);
        CHECK(inside[i], code == (old ? code : 0));
        CHECK(inside[i], old ? code == ELOOP || code == ENOTDIR : answer.bytes.len == 7);
    }
    for (size_t i = 0; i < ARRAY_SIZE(outside); i++) {
        int code = box_read(box, outside[i], 0, 100, &answer);
        CHECK(outside[i], code == EXDEV || (old && (code == ELOOP || code == ENOTDIR)));
        CHECK_INT(outside[i], answer.bytes.len, 0);
        code = box_list(box, outside[i], true, 100, &answer);
        CHECK(outside[i], code == EXDEV || code == ELOOP || code == ENOTDIR);
    }
    clean(box);
}

static void test_a_write_replaces_a_link_and_does_not_follow_it(void **state)
{
    struct box *box = *state;
    guest(box, "echo old > f; ln -s f link; ln -s /tmp/nowhere dangling; mkdir d; ln -s d to-d;"
               "mkfifo p; ln -s / root");
    CHECK_INT("link", box_write(box, "link", "new", 3), 0);
    CHECK_INT("dangling", box_write(box, "dangling", "new", 3), 0);
    CHECK_INT("pipe", box_write(box, "p", "new", 3), 0);
    CHECK_INT("directory", box_write(box, "d", "new", 3), EISDIR);
    CHECK_INT("the workspace", box_write(box, "", "new", 3), EISDIR);
    guest(box, "test \"$(cat f)\" = old; test -f link -a ! -L link; test ! -e /tmp/nowhere;"
               "test -f p; test \"$(cat dangling p link)\" = newnewnew");
    int code = box_write(box, "root/tmp/nowhere", "new", 3);
    CHECK("through a link to the outside", code == EXDEV || code == ENOTDIR);
    code = box_write(box, "to-d/x", "new", 3);
    CHECK("through a link inside", code == (box_mode("old") ? ENOTDIR : 0));
    guest(box, "test -z \"$(find . -name '.belljar*')\"");
    clean(box);
}

static void test_links_swapped_meanwhile_lead_nowhere(void **state)
{
    struct box *box = *state;
    guest(box, "mkdir a; echo inside > a/f; ln -s /etc b; echo inside > b-f; true");
    auto_result result = { 0 };
    box_start(
        box,
        /* A write makes the directories that it misses, and one in the place of `a` is in the way. */
        &SH("ln -s /etc c; while :; do mv -T a x; mv -T c a; mv -T a c; "
            "mv -T x a || { rm -rf a; mv -T x a; }; sleep 0.005; done"),
        &result);
    auto_answer answer = { 0 };
    uint64_t end = clock_ms() + 1500;
    int seen = 0;
    while (clock_ms() < end ||
           (!seen && clock_ms() < end + 20000)) { /* longer if nobody is quick */
        int code = box_read(box, "a/f", 0, 100, &answer);
        CHECK("code",
              code == 0 || code == ENOENT || code == EXDEV || code == ENOTDIR || code == EAGAIN);
        seen += code == 0;
        (void)box_read(box, "a/passwd", 0, 100, &answer);
        CHECK_INT("host content", answer.bytes.len, 0);
        code = box_write(box, "a/belljar-test", "x", 1);
        CHECK("code", code == 0 || code == ENOENT || code == EXDEV || code == ENOTDIR ||
                          code == EEXIST || code == EAGAIN);
        CHECK("written to the host", access("/etc/belljar-test", F_OK) < 0);
    }
    CHECK("at times it was there", seen > 0);
    link_kill(box->link);
    box_wait(box, &result.done);
    clean(box);
}

/*** names ***/

static void test_lists_are_sorted_and_typed(void **state)
{
    struct box *box = *state;
    guest(box, "mkdir -p d/e; echo abc > b; touch d/x d/e/y; ln -s /etc l; mkfifo p; touch a.txt a;"
               "touch -d @1000000000 b; chmod 700 d");
    auto_answer flat = { 0 };
    CHECK_INT("list", box_list(box, "", false, 100, &flat), 0);
    static const struct {
        const char *name;
        enum link_file_type type;
    } want[] = { { "a", LINK_FILE },      { "a.txt", LINK_FILE }, { "b", LINK_FILE },
                 { "d", LINK_DIRECTORY }, { "l", LINK_SYMLINK },  { "p", LINK_OTHER } };
    CHECK_INT("count", flat.count, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        CHECK_STR("name", flat.entries[i].name, want[i].name);
        CHECK_INT(want[i].name, flat.entries[i].type, want[i].type);
    }
    CHECK_INT("size", flat.entries[2].size, 4);
    CHECK_INT("time", flat.entries[2].mtime_ns, 1000000000000000000);
    CHECK_INT("its change is later", flat.entries[2].ctime_ns > flat.entries[2].mtime_ns, true);
    CHECK_INT("mode", flat.entries[3].mode, 0700);
    CHECK_INT("more", flat.more, false);

    auto_answer all = { 0 };
    CHECK_INT("recursive", box_list(box, "", true, 100, &all), 0);
    CHECK_INT("count", all.count, 9);
    CHECK_STR("inner", all.entries[5].name, "d/e/y");
    CHECK_INT("cut", box_list(box, ".", true, 4, &all), 0);
    CHECK_INT("count", all.count, 4);
    CHECK_INT("more", all.more, true);
    CHECK_INT("exactly", box_list(box, "d", false, 2, &all), 0);
    CHECK_INT("more", all.more, false);
    CHECK_INT("not a directory", box_list(box, "b", false, 2, &all), ENOTDIR);
    clean(box);
}

static void test_names_are_bytes(void **state)
{
    struct box *box = *state;
    static const char *const names[] = { "a\nb", "\033[31m", "\377\376", " ",
                                         "-rf",  "\\",       "\xc3\xa4" };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        CHECK_INT(names[i], box_write(box, names[i], "x", 1), 0);
        auto_answer answer = { 0 };
        CHECK_INT(names[i], box_read(box, names[i], 0, 10, &answer), 0);
        CHECK_INT(names[i], answer.size, 1);
    }
    auto_answer list = { 0 };
    CHECK_INT("list", box_list(box, "", false, 100, &list), 0);
    CHECK_INT("count", list.count, ARRAY_SIZE(names));
    CHECK_STR("last", list.entries[6].name, "\377\376");
    clean(box);
}

static void test_ten_thousand_files_are_listed(void **state)
{
    struct box *box = *state;
    guest(box, "mkdir many; cd many; seq -f file-%06.0f 10000 | xargs touch");
    auto_answer list = { 0 };
    CHECK_INT("list", box_list(box, "many", false, 20000, &list), 0);
    CHECK_INT("count", list.count, 10000);
    CHECK_STR("first", list.entries[0].name, "file-000001");
    CHECK_STR("last", list.entries[9999].name, "file-010000");
    CHECK_INT("list", box_list(box, "", true, 2000, &list), 0);
    CHECK_INT("count", list.count, 2000);
    CHECK_INT("more", list.more, true);
    CHECK_STR("sorted before it is cut", list.entries[1999].name, "many/file-001999");
    CHECK_INT("delete", box_delete(box, "many", true), 0);
    CHECK_INT("gone", box_stat(box, "many", &list), ENOENT);
}

static void test_stat_looks_at_the_name_itself(void **state)
{
    struct box *box = *state;
    guest(box, "ln -s /etc link; mkdir d; echo abcd > d/f");
    auto_answer answer = { 0 };
    CHECK_INT("link", box_stat(box, "link", &answer), 0);
    CHECK_INT("type", answer.entries[0].type, LINK_SYMLINK);
    CHECK_INT("file", box_stat(box, "d/f", &answer), 0);
    CHECK_STR("name", answer.entries[0].name, "f");
    CHECK_INT("size", answer.entries[0].size, 5);
    CHECK_INT("workspace", box_stat(box, "", &answer), 0);
    CHECK_STR("name", answer.entries[0].name, ".");
    CHECK_INT("type", answer.entries[0].type, LINK_DIRECTORY);
    CHECK_INT("missing", box_stat(box, "d/g", &answer), ENOENT);
    clean(box);
}

static void test_delete_takes_what_it_is_told(void **state)
{
    struct box *box = *state;
    guest(box, "mkdir -p d/e/f/g; touch d/x d/e/y d/e/f/z; ln -s / d/e/root; mkdir empty; touch f;"
               "p=.; for i in $(seq 60); do p=$p/deeper; done; mkdir -p d/$p");
    CHECK_INT("full directory", box_delete(box, "d", false), ENOTEMPTY);
    CHECK_INT("empty directory", box_delete(box, "empty", false), 0);
    CHECK_INT("file", box_delete(box, "f", false), 0);
    CHECK_INT("missing", box_delete(box, "f", false), ENOENT);
    CHECK_INT("workspace", box_delete(box, "", true), EBUSY);
    CHECK_INT("tree", box_delete(box, "d", true), 0);
    guest(box, "test -z \"$(ls -A)\"");
    CHECK("a link is not followed", access("/etc/passwd", F_OK) == 0);
}

static void test_move_renames(void **state)
{
    struct box *box = *state;
    guest(box, "echo a > a; echo b > b; mkdir d; echo x > d/x");
    CHECK_INT("over another", box_move(box, "a", "b"), 0);
    CHECK_INT("into new directories", box_move(box, "b", "new/dir/c"), 0);
    CHECK_INT("a directory", box_move(box, "d", "new/d"), 0);
    CHECK_INT("missing", box_move(box, "nothing", "x/y"), ENOENT);
    CHECK_INT("outside", box_move(box, "new/dir/c", "/tmp/c"), EXDEV);
    CHECK_INT("outside", box_move(box, "/etc/passwd", "p"), EXDEV);
    CHECK_INT("into itself", box_move(box, "new", "new/d/n"), EINVAL);
    CHECK_INT("workspace", box_move(box, "", "n"), EBUSY);
    guest(box, "test \"$(cat new/dir/c)\" = a; test -f new/d/x; test ! -e x");
    clean(box);
}

static void test_space_is_told(void **state)
{
    struct box *box = *state;
    auto_answer answer = { .bytes = BUF_INIT(1) };
    CHECK_INT("asked", link_file_space(box->link, answer_data, &answer, NULL), 0);
    box_wait(box, &answer.done);
    CHECK_INT("code", answer.code, 0);
    CHECK("bytes", answer.size > 0);
    CHECK("inodes", answer.len > 0);
}

/*** beside runs ***/

static void test_a_write_is_the_old_file_or_the_new(void **state)
{
    struct box *box = *state;
    enum { LEN = 500000 };
    auto_free char *bytes = xmalloc(LEN);
    memset(bytes, 'a', LEN);
    CHECK_INT("write", box_write(box, "f", bytes, LEN), 0);
    auto_result result = { 0 };
    box_start(box,
              &SH("while [ ! -e stop ]; do tr -s ab < f; echo; wc -c < f; done | sort | uniq -c |"
                  "awk '{print $2}'"),
              &result);
    for (int i = 0; i < 100; i++) {
        memset(bytes, i % 2 ? 'a' : 'b', LEN);
        CHECK_INT("write", box_write(box, "f", bytes, LEN), 0);
    }
    CHECK_INT("stop", box_write(box, "stop", "", 0), 0);
    box_wait(box, &result.done);
    CHECK_STR("seen", buf_str(&result.out), "500000\na\nb\n");
    clean(box);
}

static void test_file_work_goes_on_beside_runs_and_over_their_end(void **state)
{
    struct box *box = *state;
    enum { AT_ONCE = 12, LEN = 300000 };
    auto_free char *bytes = xcalloc(1, LEN);
    CHECK_INT("write", box_write(box, "f", bytes, LEN), 0);
    for (int round = 0; round < 30; round++) {
        auto_result result = { 0 };
        box_start(box, &SH("sleep $MARK & echo done"), &result);
        struct answer answers[AT_ONCE] = { 0 };
        for (int i = 0; i < AT_ONCE; i++) {
            answers[i].bytes = BUF_INIT(BUF_NO_CEILING);
            int r = i % 3 == 0 ? link_file_write(box->link, "g", bytes, LEN, answer_plain,
                                                 &answers[i], NULL)
                    : i % 3 == 1
                        ? link_file_read(box->link, "f", 0, LEN, answer_data, &answers[i], NULL)
                        : link_file_list(box->link, "", true, 10, answer_list, &answers[i], NULL);
            CHECK_INT("asked", r, 0);
        }
        box_wait(box, &result.done);
        CHECK_STR("stdout", buf_str(&result.out), "done\n");
        for (int i = 0; i < AT_ONCE; i++) {
            box_wait(box, &answers[i].done);
            CHECK_INT("code", answers[i].code, 0);
            if (i % 3 == 1)
                CHECK_INT("length", answers[i].bytes.len, LEN);
            answer_done(&answers[i]);
        }
        CHECK_INT("left over", box_count(box), 0);
    }
    guest(box, "test -z \"$(find . -name '.belljar*')\"");
    clean(box);
}

/*** many at once ***/

static void add_part(struct buf *content, enum frame_entry_type type, const char *path,
                     uint64_t offset, const char *bytes, bool last)
{
    char head[FRAME_PART_SIZE + FRAME_PATH_MAX];
    const struct frame_part part = { .type = type,
                                     .program = path[0] == 'p',
                                     .mtime_ns = -1500000000,
                                     .offset = offset,
                                     .len = (uint32_t)strlen(bytes),
                                     .last = last,
                                     .path = path,
                                     .path_len = strlen(path) };
    frame_part_put(head, &part);
    (void)buf_add(content, head, FRAME_PART_SIZE + part.path_len);
    (void)buf_add_str(content, bytes);
}

static void test_many_files_are_written_at_once(void **state)
{
    struct box *box = *state;
    auto_buf content = BUF_INIT(BUF_NO_CEILING);
    add_part(&content, ENTRY_DIRECTORY, "d", 0, "", true);
    add_part(&content, ENTRY_FILE, "d/new/f\n", 0, "one ", false);
    add_part(&content, ENTRY_FILE, "d/new/f\n", 4, "two", true);
    add_part(&content, ENTRY_FILE, "program", 0, "", true);
    add_part(&content, ENTRY_SYMLINK, "link", 0, "../out", true);
    for (int i = 0; i < 2; i++) /* again, as after an attempt that was cut off */
        CHECK_INT("unpack", box_unpack(box, &content), 0);
    guest(box,
          "test -d d && test \"$(cat d/new/*)\" = 'one two' && test \"$(readlink link)\" = ../out");
    guest(box, "test -x program && test ! -s program && test ! -x d/new/f*");
    guest(box, "test $(stat -c %Y program) = -2 && test $(stat -c %Y link) = -2");
    clean(box);
}

static void test_what_cannot_be_written_at_once_says_why(void **state)
{
    struct box *box = *state;
    static const struct {
        const char *name, *path;
        enum frame_entry_type type;
        int want;
    } cases[] = {
        { "up", "../x", ENTRY_FILE, EXDEV },
        { "absolute", "/etc/x", ENTRY_FILE, EXDEV },
        { "through a link", "out/x", ENTRY_FILE, EXDEV },
        { "the workspace", ".", ENTRY_FILE, EBUSY },
        { "below a file", "f/x", ENTRY_FILE, ENOTDIR },
    };
    guest(box, "echo x >f; ln -s /tmp out");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_buf content = BUF_INIT(BUF_NO_CEILING);
        add_part(&content, cases[i].type, cases[i].path, 0, "x", true);
        int code = box_unpack(box, &content);
        if (code == ELOOP || code == ENOTDIR) /* a kernel without openat2() */
            code = cases[i].want;
        CHECK_INT(cases[i].name, code, cases[i].want);
    }
    auto_buf half = BUF_INIT(BUF_NO_CEILING);
    add_part(&half, ENTRY_FILE, "g", 0, "content", true);
    buf_cut(&half, half.len - 1);
    CHECK_INT("less than announced", box_unpack(box, &half), EPROTO);
    clean(box);
}

static void add_pick(struct buf *content, const char *path, uint64_t offset, uint32_t max)
{
    char head[FRAME_PICK_SIZE + FRAME_PATH_MAX];
    const struct frame_pick pick = { offset, max, path, strlen(path) };
    frame_pick_put(head, &pick);
    (void)buf_add(content, head, FRAME_PICK_SIZE + pick.path_len);
}

static uint32_t number_at(const struct buf *bytes, size_t at)
{
    uint32_t number;
    CHECK("long enough", at + sizeof(number) <= bytes->len);
    memcpy(&number, bytes->data + at, sizeof(number));
    return number;
}

/* "content" or "!errno" of each, one after the other. */
static char *show_pack(const struct buf *bytes)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    for (size_t at = 0; at < bytes->len;) {
        uint32_t len = number_at(bytes, at);
        at += 4;
        if (len == 0) {
            uint32_t code = number_at(bytes, at);
            (void)(code ? buf_printf(&text, "!%u;", code) : buf_add_str(&text, ";"));
            at += 4;
            continue;
        }
        (void)buf_add(&text, bytes->data + at, len);
        at += len;
    }
    return buf_steal(&text);
}

static void test_parts_of_many_files_are_read_at_once(void **state)
{
    struct box *box = *state;
    guest(box, "mkdir d; printf 0123456789 >d/f; : >e; ln -s d/f l; ln -s /etc/passwd p; mkfifo q");
    auto_buf content = BUF_INIT(BUF_NO_CEILING);
    add_pick(&content, "d/f", 0, 100);
    add_pick(&content, "d/f", 3, 4);
    add_pick(&content, "d/f", UINT64_MAX, 4);
    add_pick(&content, "e", 0, 100);
    add_pick(&content, "l", 0, 100);
    add_pick(&content, "p", 0, 100);
    add_pick(&content, "gone", 0, 100);
    add_pick(&content, "d", 0, 100);
    add_pick(&content, "q", 0, 100);
    auto_answer answer = { 0 };
    CHECK_INT("pack", box_pack(box, &content, 1000, &answer), 0);
    auto_free char *shown = show_pack(&answer.bytes);
    auto_free char *want = xasprintf("0123456789;3456;!%d;;d/f;/etc/passwd;!%d;!%d;!%d;", EINVAL,
                                     ENOENT, EISDIR, EINVAL);
    CHECK_STR("answers", shown, want);
    buf_clear(&content);
    add_pick(&content, "../x", 0, 1);
    CHECK_INT("outside", box_pack(box, &content, 1000, &answer), EXDEV);
    clean(box);
}

static void test_a_full_disk_leaves_the_old_file(void **state)
{
    struct box *box = *state;
    CHECK_INT("write", box_write(box, "f", "old", 3), 0);
    auto_free char *bytes = xcalloc(1, 3 << 20);
    CHECK_INT("too much", box_write(box, "f", bytes, 3 << 20), EFBIG);
    auto_answer answer = { 0 };
    CHECK_INT("read", box_read(box, "f", 0, 10, &answer), 0);
    CHECK_STR("content", buf_str(&answer.bytes), "old");
    guest(box, "test \"$(ls -A)\" = f");
    clean(box);
}

static void test_a_guest_cannot_touch_what_is_not_its_own(void **state)
{
    struct box *box = *state;
    auto_free char *path = xasprintf("%s/host", box->workspace);
    auto_fd fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK("made", fd >= 0);
    auto_answer answer = { 0 };
    CHECK_INT("read", box_read(box, "host", 0, 10, &answer), EACCES);
    CHECK_INT("delete", unlink(path), 0);
}

int main(void)
{
    static const struct box_test tests[] = {
        BOX_TEST(test_what_is_written_is_read),
        BOX_TEST(test_a_file_belongs_to_the_guest_and_keeps_its_mode),
        BOX_TEST(test_what_cannot_be_read_says_why),
        BOX_TEST(test_a_sparse_giant_is_read_as_far_as_asked, .modes = "plain old init"),
        BOX_TEST(test_a_socket_is_not_a_file, .modes = "plain old init"),
        BOX_TEST(test_links_are_followed_below_the_workspace_only),
        BOX_TEST(test_a_write_replaces_a_link_and_does_not_follow_it),
        BOX_TEST(test_links_swapped_meanwhile_lead_nowhere),
        BOX_TEST(test_lists_are_sorted_and_typed),
        BOX_TEST(test_names_are_bytes),
        BOX_TEST(test_ten_thousand_files_are_listed),
        BOX_TEST(test_stat_looks_at_the_name_itself),
        BOX_TEST(test_delete_takes_what_it_is_told),
        BOX_TEST(test_move_renames),
        BOX_TEST(test_space_is_told),
        BOX_TEST(test_a_write_is_the_old_file_or_the_new),
        BOX_TEST(test_file_work_goes_on_beside_runs_and_over_their_end),
        BOX_TEST(test_many_files_are_written_at_once),
        BOX_TEST(test_what_cannot_be_written_at_once_says_why),
        BOX_TEST(test_parts_of_many_files_are_read_at_once),
        BOX_TEST(test_a_full_disk_leaves_the_old_file, .modes = "guest"),
        BOX_TEST(test_a_guest_cannot_touch_what_is_not_its_own, .modes = "guest"),
    };
    return box_main(tests, ARRAY_SIZE(tests));
}
