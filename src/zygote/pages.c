#include "zygote/pages.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE ((size_t)2 << 20)
#define RANGE ((size_t)1 << 30)
#define ARENA                                                                                      \
    ((size_t)1 << 20) /* of Python since 3.10; smaller ones, and stacks of frames, are left alone */

/*** Python's objects ***/

/* As in CPython's pymem.h. */
struct arena_allocator {
    void *ctx;
    void *(*alloc)(void *ctx, size_t size);
    void (*free)(void *ctx, void *ptr, size_t size);
};

static struct {
    char *begin, *end;  /* of the range; address space only, until it is used */
    char *usable, *top; /* up to where it is memory, and where the next arena begins */
    bool closed;
    void *unused[RANGE / ARENA]; /* freed arenas */
    size_t n_unused;
} range;

static bool in_range(const void *ptr)
{
    return (const char *)ptr >= range.begin && (const char *)ptr < range.end;
}

static void *from_range(void)
{
    if (range.n_unused)
        return range.unused[--range.n_unused];
    if (range.closed || !range.begin)
        return NULL;
    if (range.top == range.usable) {
        if (range.usable == range.end || mprotect(range.usable, HUGE, PROT_READ | PROT_WRITE) < 0)
            return NULL;
        (void)madvise(range.usable, HUGE, MADV_HUGEPAGE);
        range.usable += HUGE;
    }
    void *arena = range.top;
    range.top += ARENA;
    return arena;
}

static void *alloc_arena(void *ctx, size_t size)
{
    (void)ctx;
    void *arena = size == ARENA ? from_range() : NULL;
    if (arena)
        return arena;
    arena = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return arena == MAP_FAILED ? NULL : arena;
}

static void free_arena(void *ctx, void *ptr, size_t size)
{
    (void)ctx;
    if (in_range(ptr))
        range.unused[range.n_unused++] = ptr;
    else
        (void)munmap(ptr, size);
}

void pages_gather(void)
{
    void (*set)(struct arena_allocator *) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
    memcpy(&set, &found, sizeof(set));
    if (!set)
        return;
    char *at =
        mmap(NULL, RANGE + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return;
    range.begin = at + (HUGE - (uintptr_t)at % HUGE) % HUGE;
    range.end = range.begin + RANGE;
    range.usable = range.top = range.begin;
    set(&(struct arena_allocator){ NULL, alloc_arena, free_arena });
    /* Arenas from before stay where they are, and are freed by us if ever: as they were got, by mmap. */
}

/*** the rest ***/

static uintptr_t number(const char **at)
{
    uintptr_t value = 0;
    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uintptr_t)(c - 'a') + 10;
        else
            return value;
    }
}

/* A line of /proc/self/maps: "begin-end rw-p offset dev inode name". */
static void collapse_line(const char *line)
{
    const char *at = line;
    uintptr_t begin = number(&at);
    at++;
    uintptr_t end = number(&at);
    if (strncmp(at, " rw-p 00000000 00:00 0 ", 23) != 0 || strstr(at, "[stack"))
        return;
    begin = (begin + HUGE - 1) / HUGE * HUGE;
    for (; begin + HUGE <= end; begin += HUGE)
        if (madvise((void *)begin, HUGE, MADV_COLLAPSE) == 0 && !in_range((void *)begin))
            (void)madvise((void *)begin, HUGE, MADV_NOHUGEPAGE);
}

void pages_collapse(void)
{
    static char maps[512 * 1024];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n;
    while (fd >= 0 && len < sizeof(maps) - 1 &&
           (n = read(fd, maps + len, sizeof(maps) - 1 - len)) > 0)
        len += (size_t)n;
    if (fd >= 0)
        close(fd);
    maps[len] = '\0';
    char *line = maps;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        collapse_line(line);
    }
    range.closed = true;
    if (range.begin)
        (void)madvise(range.begin, (size_t)(range.usable - range.begin), MADV_NOHUGEPAGE);
}
