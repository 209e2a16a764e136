/*
 * A zygote's memory as its children see it. What the kernel empties for children stays empty when the rest is frozen:
 * random generators keep their state there. What the zygote writes to later leaves the file, and nothing else does. What one
 * child writes to, others can copy at once.
 */
#include "check.h"

#include "zygote/pages.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8 /* Linux 6.11 */
#endif

enum { PAGE_BYTES = 4096, DRAWN = 16, ROW = 5 };

/* What the C library asks of the kernel for getrandom() without a call of the system. */
struct state_params {
    uint32_t size, protection, flags, reserved[13];
};
typedef ssize_t draw_fn(void *out, size_t len, unsigned flags, void *state, size_t state_len);

static struct {
    unsigned char *ordinary, *wiped, *droppable; /* the last is NULL where the kernel has none */
    unsigned char *row;                          /* of ROW pages */
    draw_fn *draw;
    void *state;
    size_t state_len;
} memory;

struct seen {
    unsigned char ordinary, wiped, droppable, drawn[DRAWN];
    bool frozen;
};

static unsigned char *new_pages(int flags, size_t count)
{
    size_t len = count * PAGE_BYTES;
    unsigned char *pages = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    memset(pages, 0xab, len);
    return pages;
}

static void open_generator(void)
{
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = vdso ? dlsym(vdso, "__vdso_getrandom") : NULL;
    struct state_params params = { 0 };
    if (!found)
        return;
    memcpy(&memory.draw, &found, sizeof(found));
    if (memory.draw(NULL, 0, 0, &params, ~(size_t)0) < 0) {
        memory.draw = NULL;
        return;
    }
    memory.state_len = params.size;
    memory.state = mmap(NULL, PAGE_BYTES, (int)params.protection, (int)params.flags, -1, 0);
    assert_true(memory.state != MAP_FAILED);
    unsigned char drawn[DRAWN];
    (void)memory.draw(drawn, sizeof(drawn), 0, memory.state, memory.state_len);
}

/* Mappings of the file; `page`: that one is in, or of all. */
static int count_of_the_file(const void *page)
{
    unsigned long begin, end;
    char line[512];
    int found = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "%lx-%lx", &begin, &end) == 2 &&
            (!page || ((unsigned long)page >= begin && (unsigned long)page < end)))
            found += strstr(line, "memfd:belljar-zygote") != NULL;
    if (file)
        (void)fclose(file);
    return found;
}

static bool is_of_the_file(const void *page)
{
    return count_of_the_file(page) > 0;
}

/* Pages of no file that children find empty. */
static unsigned long count_wiped(void)
{
    unsigned long begin, end, bytes = 0, total = 0;
    char line[512];
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            bytes = end - begin;
        else if (strstr(line, "VmFlags:") && strstr(line, " wf "))
            total += bytes;
    }
    if (file)
        (void)fclose(file);
    return total / PAGE_BYTES;
}

/* In a child, made as a zygote makes them: without the C library's knowledge. */
static struct seen look(void)
{
    struct seen seen = { 0 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        seen.ordinary = *memory.ordinary;
        seen.wiped = *memory.wiped;
        seen.droppable = memory.droppable ? *memory.droppable : 0;
        seen.frozen = is_of_the_file(memory.ordinary);
        if (memory.draw)
            (void)memory.draw(seen.drawn, DRAWN, 0, memory.state, memory.state_len);
        _exit(write(ends[1], &seen, sizeof(seen)) == (ssize_t)sizeof(seen) ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(read(ends[0], &seen, sizeof(seen)), sizeof(seen));
    assert_int_equal(waitpid((pid_t)pid, NULL, 0), pid);
    close(ends[0]);
    close(ends[1]);
    return seen;
}

static void what_the_kernel_empties_is_not_frozen(void **state)
{
    (void)state;
    memory.ordinary = new_pages(MAP_PRIVATE, 1);
    memory.wiped = new_pages(MAP_PRIVATE, 1);
    memory.droppable = new_pages(MAP_DROPPABLE, 1);
    memory.row = new_pages(MAP_PRIVATE, ROW);
    assert_true(memory.ordinary && memory.wiped && memory.row);
    assert_int_equal(madvise(memory.wiped, PAGE_BYTES, MADV_WIPEONFORK), 0);
    open_generator();
    pages_gather();
    unsigned long wiped = count_wiped();
    pages_freeze(/* huge= */ false);
    CHECK("its own notes, a map of all, are not frozen", wiped > 256 && count_wiped() == wiped);
    struct seen one = look(), other = look();
    CHECK("the rest is", one.frozen);
    CHECK_INT("and is the same", one.ordinary, 0xab);
    CHECK_INT("a page to be wiped", one.wiped, 0);
    CHECK_INT("a page to be dropped", one.droppable, 0);
    if (memory.draw)
        CHECK("two children draw what differs", memcmp(one.drawn, other.drawn, DRAWN) != 0);
    CHECK_INT("it is its own still", *memory.wiped, 0xab);
}

/* What the child finds there, or -1. */
static int of_a_child(const unsigned char *at)
{
    int status;
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(*at);
    assert_int_equal(waitpid((pid_t)pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Of the memory that the other test has frozen. */
static void what_is_written_to_leaves_the_file(void **state)
{
    (void)state;
    unsigned char *written[] = { memory.row + PAGE_BYTES, memory.row + 3 * PAGE_BYTES };
    for (size_t i = 0; i < ROW; i++)
        assert_true(is_of_the_file(memory.row + i * PAGE_BYTES));
    pages_settle(); /* what this program has written to besides */
    int mappings = count_of_the_file(NULL);
    for (int again = 0; again < 2; again++) {
        *written[0] = (unsigned char)(0xc0 + again);
        *written[1] = (unsigned char)(0xd0 + again);
        pages_settle();
        CHECK("one is not of it", !is_of_the_file(written[0]));
        CHECK("nor is the other", !is_of_the_file(written[1]));
        CHECK("what is beside them is", is_of_the_file(memory.row) &&
                                            is_of_the_file(memory.row + 2 * PAGE_BYTES) &&
                                            is_of_the_file(memory.row + 4 * PAGE_BYTES));
        CHECK_INT("its value", *written[0], 0xc0 + again);
        CHECK_INT("the other's", of_a_child(written[1]), 0xd0 + again);
        CHECK_INT("behind it", written[0][1], 0xab);
        CHECK_INT("and between", of_a_child(memory.row + 2 * PAGE_BYTES), 0xab);
    }
    CHECK_INT("nothing else has left it", count_of_the_file(NULL), mappings + 2);
    memory.row[2 * PAGE_BYTES] = 1;
    CHECK_INT("what is left can be written to", of_a_child(memory.row + 2 * PAGE_BYTES), 1);
}

/* A child that has written to `page`, if there is one, and waits until `ends` is closed. */
static pid_t child_that_wrote(unsigned char *page, int ends[2])
{
    char byte = 0;
    int told[2] = { -1, -1 };
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(told), 0);
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        if (page)
            *page = 0x11;
        close(ends[1]);
        _exit(write(told[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(read(told[0], &byte, 1), 1);
    close(told[0]);
    close(told[1]);
    return (pid_t)pid;
}

static bool has(const struct pages_written *written, const void *page)
{
    for (size_t i = 0; i < written->n; i++)
        if (written->at[i] == (uintptr_t)page)
            return true;
    return false;
}

static struct pages_written learn_of_child(unsigned char *page)
{
    struct pages_written written = { 0 };
    int ends[2] = { -1, -1 }, status;
    pid_t pid = child_that_wrote(page, ends);
    pages_learn(pid, &written);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    CHECK_INT("the child ends well", status, 0);
    return written;
}

static void what_a_child_writes_to_is_learnt_and_copied_by_others(void **state)
{
    (void)state;
    unsigned char *page = memory.row + 4 * PAGE_BYTES;
    struct pages_written without = learn_of_child(NULL), with = learn_of_child(page);
    CHECK("it is known which page that was", has(&with, page) && !has(&without, page));
    CHECK("not the one beside it",
          !has(&with, page + PAGE_BYTES) && !has(&with, page - PAGE_BYTES));
    CHECK_INT("and no other", with.n, without.n + 1);

    const struct pages_written one = { .n = 1, .at = { (uintptr_t)page } };
    int status;
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        struct pages_written own = { 0 };
        pages_copy(&one);
        pages_learn(getpid(), &own);
        _exit((has(&own, page) ? 0 : 1) | (*page == 0xab ? 0 : 2));
    }
    assert_int_equal(waitpid((pid_t)pid, &status, 0), pid);
    CHECK_INT("its copy is the same", status, 0);
    CHECK_INT("ours is as it was", *page, 0xab);

    pages_learn(/* child= */ 0, &with);
    CHECK_INT("nobody, nothing", with.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_kernel_empties_is_not_frozen),
        cmocka_unit_test(what_is_written_to_leaves_the_file),
        cmocka_unit_test(what_a_child_writes_to_is_learnt_and_copied_by_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
