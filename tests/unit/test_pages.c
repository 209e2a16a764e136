/*
 * A zygote's memory as its children see it. What the kernel empties for children stays empty when the rest is frozen:
 * random generators keep their state there. What the zygote writes to later leaves the file, and nothing else does.
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

static bool is_of_the_file(const void *page)
{
    unsigned long begin, end;
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && (unsigned long)page >= begin &&
            (unsigned long)page < end)
            found = strstr(line, "memfd:belljar-zygote") != NULL;
    if (file)
        (void)fclose(file);
    return found;
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
    pages_freeze(/* huge= */ false);
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
    unsigned char *written[] = { memory.row + PAGE_BYTES, memory.row + (ROW - 1) * PAGE_BYTES };
    for (size_t i = 0; i < ROW; i++)
        assert_true(is_of_the_file(memory.row + i * PAGE_BYTES));
    for (int again = 0; again < 2; again++) {
        *written[0] = (unsigned char)(0xc0 + again);
        *written[1] = (unsigned char)(0xd0 + again);
        pages_settle();
        CHECK("one is not of it", !is_of_the_file(written[0]));
        CHECK("nor is the other", !is_of_the_file(written[1]));
        CHECK("what is beside them is", is_of_the_file(memory.row) &&
                                            is_of_the_file(memory.row + 2 * PAGE_BYTES) &&
                                            is_of_the_file(memory.row + 3 * PAGE_BYTES));
        CHECK_INT("its value", *written[0], 0xc0 + again);
        CHECK_INT("the other's", of_a_child(written[1]), 0xd0 + again);
        CHECK_INT("behind it", written[0][1], 0xab);
        CHECK_INT("and between", of_a_child(memory.row + 2 * PAGE_BYTES), 0xab);
    }
    memory.row[2 * PAGE_BYTES] = 1;
    CHECK_INT("what is left can be written to", of_a_child(memory.row + 2 * PAGE_BYTES), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_kernel_empties_is_not_frozen),
        cmocka_unit_test(what_is_written_to_leaves_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
