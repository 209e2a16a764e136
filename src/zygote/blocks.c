#include "zygote/blocks.h"

#include "zygote/pages.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILL_MAX ((size_t)64 << 20)
#define FILL_LARGEST ((size_t)96 << 10)

void blocks_look_up(const char *name, void *ret_function)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(ret_function, &found, sizeof(found));
}

bool blocks_ask_heap(struct heap_facts *ret)
{
    struct heap_facts (*ask)(void) = NULL;
    blocks_look_up("mallinfo2", &ask);
    if (ask)
        *ret = ask();
    return ask != NULL;
}

static struct {
    char *begin, *end;
} newest; /* arena */

void blocks_note_arena(char *begin, size_t size)
{
    newest.begin = begin;
    newest.end = begin + size;
}

/*** gaps ***/

/* A list of blocks: each begins with the address of the one before. */
static void chain(void **list, void *block)
{
    memcpy(block, list, sizeof(*list));
    *list = block;
}

/* Takes all blocks that are free below where the heap ended when this was done first. */
static void fill_heap(void)
{
    static void *kept;
    static const char *end;
    struct heap_facts facts;
    if (!blocks_ask_heap(&facts) || facts.fordblks - facts.keepcost > FILL_MAX)
        return;
    const char *top = (char *)sbrk(0) - facts.keepcost; /* from there on all is free */
    end = end ? end : top;
    void *above = NULL, *block;
    size_t filled = 0;
    for (size_t size = FILL_LARGEST; size > 16; size -= size > 2048 ? size / 16 : 16) {
        while ((block = malloc(size)) && (char *)block < top && (filled += size) < FILL_MAX)
            chain((char *)block < end ? &kept : &above, block);
        free(block);
    }
    while ((block = above)) {
        memcpy(&above, block, sizeof(above));
        free(block);
    }
}

/* Python's own blocks have these sizes. Those of one size are in pools, and a pool is in an arena. */
enum { SMALLEST = 16, LARGEST = 512, POOL = 1 << 14, POOL_HEAD = 64, HELD_MAX = 4096 };

/* Is Python's own allocator in use, with nothing around it? Hooks for debugging write before and behind blocks. */
static bool is_plain(void)
{
    const char *(*name)(void) = NULL;
    blocks_look_up("_PyMem_GetCurrentAllocatorName", &name);
    const char *told = name ? name() : NULL;
    return newest.begin && told && strcmp(told, "pymalloc") == 0;
}

static bool is_newest(const void *block)
{
    return (const char *)block >= newest.begin && (const char *)block < newest.end;
}

/* Takes all blocks of this size that are free, up to the first of a new pool. Those in the newest arena are given
 * back, the lowest last: it is the first to be given out again, and the others follow side by side. */
static void fill_size(void *(*get)(size_t), void (*put)(void *), size_t size)
{
    static char *held[HELD_MAX];
    size_t n = 0, filled = 0;
    char *block;
    while (filled < FILL_MAX && n < HELD_MAX && (block = get(size))) {
        if (!is_newest(block)) {
            filled += size;
            continue;
        }
        size_t i = n++;
        for (; i > 0 && held[i - 1] > block; i--)
            held[i] = held[i - 1];
        held[i] = block;
        if ((uintptr_t)block % POOL < POOL_HEAD)
            break;
    }
    while (n > 0)
        put(held[--n]);
}

static void fill_objects(bool new_arena_first)
{
    void *(*get)(size_t) = NULL;
    void (*put)(void *) = NULL;
    blocks_look_up("PyObject_Malloc", &get);
    blocks_look_up("PyObject_Free", &put);
    if (!get || !put || !is_plain())
        return;
    const char *before = newest.begin;
    for (size_t filled = 0; new_arena_first && newest.begin == before; filled += LARGEST)
        if (filled > FILL_MAX || !get(LARGEST))
            return;
    for (size_t size = SMALLEST; size <= LARGEST; size += SMALLEST)
        fill_size(get, put, size);
}

void pages_fill(void)
{
    static bool filled;
    fill_heap();
    fill_objects(/* new_arena_first= */ !filled);
    filled = true;
}

/*** side by side ***/

/* As in CPython's pymem.h. */
struct allocator {
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t count, size_t size);
    void *(*realloc)(void *ctx, void *ptr, size_t size);
    void (*free)(void *ctx, void *ptr);
};

enum { DOMAIN_MEM = 1, DOMAIN_OBJ = 2 };
/* Bytes: functions and code, but not the lesser things that come and go while they are made. */
enum { LEAST = 144 };

static void *any_malloc(void *ctx, size_t size)
{
    const struct allocator *own = ctx;
    return size < LEAST ? own->malloc(own->ctx, size) : malloc(size);
}

static void *any_calloc(void *ctx, size_t count, size_t size)
{
    const struct allocator *own = ctx;
    return count < LEAST && size < LEAST ? own->calloc(own->ctx, count, size) : calloc(count, size);
}

static void *any_realloc(void *ctx, void *ptr, size_t size)
{
    const struct allocator *own = ctx;
    return own->realloc(own->ctx, ptr, size);
}

static void any_free(void *ctx, void *ptr)
{
    const struct allocator *own = ctx;
    own->free(own->ctx, ptr);
}

void pages_side_by_side(bool on)
{
    static struct allocator own[DOMAIN_OBJ + 1];
    void (*get)(int domain, struct allocator *) = NULL;
    void (*set)(int domain, struct allocator *) = NULL;
    blocks_look_up("PyMem_GetAllocator", &get);
    blocks_look_up("PyMem_SetAllocator", &set);
    if (!get || !set || (on ? !is_plain() : !own[DOMAIN_OBJ].malloc))
        return;
    for (int domain = DOMAIN_MEM; domain <= DOMAIN_OBJ; domain++) {
        struct allocator any = { &own[domain], any_malloc, any_calloc, any_realloc, any_free };
        if (on)
            get(domain, &own[domain]);
        set(domain, on ? &any : &own[domain]);
    }
}
