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

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)
#define RANGE ((size_t)1 << 30)
#define FREEZE_MAX ((size_t)256 << 20) /* one mapping */
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

/*** reading the map ***/

enum { MAPS_MAX = 8192, MAPS_BYTES = 1 << 20 };

struct map {
    uintptr_t begin, end;
    bool readable, writable, private, file;
    bool named, heap; /* named: [heap], [stack] and the like */
};

static struct map maps[MAPS_MAX];

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

/* "begin-end rwxp offset device inode   name" */
static struct map parse(const char *line)
{
    struct map map = { 0 };
    const char *at = line;
    map.begin = number(&at);
    at++;
    map.end = number(&at);
    map.readable = at[1] == 'r';
    map.writable = at[2] == 'w';
    map.private = at[4] == 'p';
    for (int field = 0; field < 3; field++) /* to device, by way of flags and offset, to inode */
        at = strchr(at + 1, ' ');
    map.file = at[1] != '0';
    map.named = strchr(at, '[') != NULL;
    map.heap = strstr(at, "[heap]") != NULL;
    return map;
}

/* How many there are, by address; 0 when they cannot be read whole. Nothing is mapped for it: that would
 * be among what is read. */
static size_t read_maps(void)
{
    static char text[MAPS_BYTES];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t len = 0, count = 0;
    ssize_t n = -1;
    while (fd >= 0 && len < sizeof(text) - 1 &&
           (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    if (fd >= 0)
        close(fd);
    text[len] = '\0';
    char *line = text;
    for (char *end; n == 0 && count < MAPS_MAX && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        maps[count++] = parse(line);
    }
    return count < MAPS_MAX ? count : 0;
}

/*** libraries ***/

static bool can_freeze(const struct map *map, uintptr_t keep)
{
    return map->private && !map->named && (map->readable || map->file) &&
           !in_range((void *)map->begin) && !(keep >= map->begin && keep < map->end) &&
           map->end - map->begin <= FREEZE_MAX;
}

static uintptr_t round_up(uintptr_t address)
{
    return (address + HUGE - 1) / HUGE * HUGE;
}

/* Memory of no file that nobody has touched, room for stacks and matrices above all, stays untouched: else
 * it would be in the page tables of each child. */
static void copy_map(const struct map *map, char *to)
{
    static unsigned char present[FREEZE_MAX / PAGE];
    const char *from = (const char *)map->begin;
    size_t len = map->end - map->begin;
    if (map->file || mincore((void *)map->begin, len, present) < 0) {
        memcpy(to, from, len);
        return;
    }
    for (size_t at = 0; at < len; at += PAGE)
        if (present[at / PAGE] & 1)
            memcpy(to + at, from + at, PAGE);
}

/* Replaces maps[first] to maps[last] and what is free between and around them, between `low` and `high`,
 * by one copy. Until the last call everything is as it was; it exchanges all in one step. */
static void freeze(size_t first, size_t last, uintptr_t low, uintptr_t high)
{
    uintptr_t begin = maps[first].begin / HUGE * HUGE, end = round_up(maps[last].end);
    begin = begin < low ? maps[first].begin : begin;
    end = end > high ? maps[last].end : end;
    size_t len = end - begin;
    char *room = mmap(NULL, len + 2 * HUGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return; /* a host that wants no memory that is writable and executable */
    /* At the same distance from a huge page, so that the kernel can move page tables whole. */
    char *copy = room + (HUGE - (uintptr_t)room % HUGE) % HUGE + begin % HUGE;
    (void)munmap(room, (size_t)(copy - room));
    (void)munmap(copy + len, (size_t)(room + len + 2 * HUGE - (copy + len)));
    for (size_t i = first; i <= last; i++)
        if (maps[i].readable)
            copy_map(&maps[i], copy + (maps[i].begin - begin));
    if (mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)begin) == MAP_FAILED)
        (void)munmap(copy, len);
}

void pages_freeze(const void *keep)
{
    size_t count = read_maps();
    for (size_t first = 0, last; first < count; first = last + 1) {
        last = first;
        if (!can_freeze(&maps[first], (uintptr_t)keep))
            continue;
        bool file = maps[first].file;
        while (last + 1 < count && can_freeze(&maps[last + 1], (uintptr_t)keep) &&
               maps[last + 1].begin - maps[last].end < HUGE)
            file |= maps[++last].file;
        uintptr_t low = first > 0 ? maps[first - 1].end : maps[first].begin;
        uintptr_t high = last + 1 < count ? maps[last + 1].begin : maps[last].end;
        if (file)
            freeze(first, last, low, high);
    }
}

/*** what is large ***/

void pages_collapse(void)
{
    size_t count = read_maps();
    for (size_t i = 0; i < count; i++) {
        const struct map *map = &maps[i];
        if (!map->private || !map->writable || map->file || (map->named && !map->heap))
            continue;
        for (uintptr_t at = round_up(map->begin); at + HUGE <= map->end; at += HUGE)
            if (madvise((void *)at, HUGE, MADV_COLLAPSE) == 0)
                (void)madvise((void *)at, HUGE, MADV_NOHUGEPAGE);
    }
    range.closed = true;
    if (range.begin)
        (void)madvise(range.begin, (size_t)(range.usable - range.begin), MADV_NOHUGEPAGE);
}
