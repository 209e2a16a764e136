#include "zygote/pages.h"

#include "zygote/blocks.h"

#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8 /* Linux 6.3 */
#endif

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)
#define RANGE ((size_t)1 << 30)
#define FREEZE_MAX ((size_t)256 << 20) /* one mapping of unknown purpose */
#define LARGE ((size_t)4 << 20)
#define FILE_NAME "belljar-zygote"
#define SIGNAL_BYTES ((uintptr_t)8) /* of a set of signals, as the kernel has it */
#define ARENA                                                                                      \
    ((size_t)1 << 20) /* of Python since 3.10; smaller ones, and stacks of frames, are left alone */

/*** reading the map ***/

enum { MAPS_MAX = 8192, MAPS_BYTES = 1 << 20 };

struct map {
    uintptr_t begin, end, offset;
    bool readable, writable, executable, private, file;
    bool named, heap; /* named: [heap], [stack] and the like */
    bool frozen;      /* of the file that pages_freeze() makes */
    bool emptied;     /* for children, by the kernel */
};

enum { ENTRIES = HUGE / PAGE, WRITTEN_MAX = 64, GOES_MAX = 2048 };

struct span {
    uintptr_t begin, end;
};

/* What is needed for a moment. In a mapping of its own that children find empty: it is neither frozen, as all that is there
 * at the start would be, nor copied by forks. */
struct scratch {
    char text[MAPS_BYTES];
    struct map maps[MAPS_MAX];
    uint64_t entries[ENTRIES];
    struct span written[WRITTEN_MAX]; /* pages that the zygote has copies of */
    struct span goes[GOES_MAX];       /* what a child gives back */
    size_t n_goes;
};
static PAGES_TOGETHER struct scratch *scratch;
static PAGES_TOGETHER struct map *maps;

static bool have_scratch(void)
{
    if (scratch)
        return true;
    void *room = mmap(NULL, sizeof(*scratch), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED || madvise(room, sizeof(*scratch), MADV_WIPEONFORK) < 0)
        return false;
    scratch = room;
    maps = scratch->maps;
    return true;
}

static void forget_scratch(void)
{
    (void)madvise(scratch, sizeof(*scratch), MADV_DONTNEED);
}

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
    map.executable = at[3] == 'x';
    map.private = at[4] == 'p';
    at = strchr(at + 1, ' ') + 1;
    map.offset = number(&at);
    at = strchr(at + 1, ' '); /* behind the device */
    map.file = at[1] != '0';
    map.frozen = strstr(at, "/memfd:" FILE_NAME) != NULL;
    map.named = strchr(at, '[') != NULL;
    map.heap = strstr(at, "[heap]") != NULL;
    return map;
}

/* How many there are, by address; 0 when they cannot be read whole. Nothing is mapped while they are: that would
 * be among what is read. */
static size_t read_maps(void)
{
    if (!have_scratch())
        return 0;
    char *text = scratch->text;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t len = 0, count = 0;
    ssize_t n = -1;
    while (fd >= 0 && len < MAPS_BYTES - 1 && (n = read(fd, text + len, MAPS_BYTES - 1 - len)) > 0)
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

/* "VmFlags: rd wr mr mw me ac wf ": MADV_WIPEONFORK; dp: MAP_DROPPABLE; dc: MADV_DONTFORK. */
static bool is_emptied(const char *flags)
{
    return strstr(flags, " wf ") || strstr(flags, " dp ") || strstr(flags, " dc ");
}

/* Says of each of maps[] whether it is, by a list that has more lines about each. False: it cannot be read whole, or
 * has others. */
static bool note_emptied(size_t count)
{
    static char text[1 << 15]; /* longer than any line */
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    size_t len = 0, seen = 0;
    ssize_t n = -1;
    bool same = true;
    while (fd >= 0 && same && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0) {
        text[len + (size_t)n] = '\0';
        char *line = text;
        for (char *end; same && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            if (*line < 'A' || *line > 'Z')
                same = seen < count && parse(line).begin == maps[seen++].begin;
            else if (seen && strncmp(line, "VmFlags:", 8) == 0)
                maps[seen - 1].emptied = is_emptied(line);
        }
        len = strlen(line);
        memmove(text, line, len);
    }
    if (fd >= 0)
        close(fd);
    return n == 0 && same && seen == count;
}

/*** the C library's blocks ***/

/* The C library gets a mapping for each block from 128 KiB on; once a larger one has been freed, only for those
 * that are larger still. Such mappings cannot be frozen. */
static void prefer_heap(void)
{
    void *volatile block = malloc(LARGE);
    free(block);
}

/*** whose memory ***/

enum { KNOWN_MAX = 2048 };

/* That of libraries, of Python's first arenas, and of the loader. */
static struct span known[KNOWN_MAX];
static size_t n_known;

static void note_known(uintptr_t begin, uintptr_t end)
{
    if (n_known < KNOWN_MAX && begin < end) {
        known[n_known].begin = begin;
        known[n_known++].end = end;
    }
}

static bool is_known(const void *ptr)
{
    uintptr_t at = (uintptr_t)ptr;
    for (size_t i = 0; i < n_known; i++)
        if (at >= known[i].begin && at < known[i].end)
            return true;
    return false;
}

/* The size of a block of the C library's with a mapping of its own that begins here; 0: none does. */
static size_t block_at(uintptr_t at, uintptr_t end)
{
    /* What is before it, nothing; and its size, whose lowest bits say that it is a mapping. */
    size_t head[2];
    memcpy(head, (void *)at, sizeof(head));
    size_t size = head[1] & ~(size_t)7;
    return head[0] == 0 && (head[1] & 7) == 2 && size % PAGE == 0 && size <= end - at ? size : 0;
}

/* How many such blocks there are in it. */
static size_t note_around_blocks(const struct map *map)
{
    size_t found = 0, size;
    uintptr_t begin = map->begin;
    for (uintptr_t at = begin; at < map->end; at += size ? size : PAGE) {
        size = block_at(at, map->end);
        if (!size)
            continue;
        note_known(begin, at);
        begin = at + size;
        found++;
    }
    note_known(begin, map->end);
    return found;
}

/* At the start, when nobody but the interpreter and the C library can have asked for memory. */
static void note_early(void)
{
    struct heap_facts facts;
    size_t count = blocks_ask_heap(&facts) ? read_maps() : 0, found = 0;
    for (size_t i = 0; i < count; i++)
        if (maps[i].private && maps[i].writable && maps[i].readable && !maps[i].file &&
            !maps[i].named)
            found += note_around_blocks(&maps[i]);
    if (count && found != facts.hblks)
        n_known = 0; /* they do not look as we think */
}

/*** Python's objects ***/

/* As in CPython's pymem.h. */
struct arena_allocator {
    void *ctx;
    void *(*alloc)(void *ctx, size_t size);
    void (*free)(void *ctx, void *ptr, size_t size);
};

enum { EARLY_MAX = 64 }; /* arenas from before there was a range */

static struct {
    char *begin, *end;  /* of the range; address space only, until it is used */
    char *usable, *top; /* up to where it is memory, and where the next arena begins */
    bool closed;
    void *unused[RANGE / ARENA + EARLY_MAX]; /* freed arenas */
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

static void *new_arena(size_t size)
{
    void *arena = size == ARENA ? from_range() : NULL;
    if (arena)
        return arena;
    arena = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return arena == MAP_FAILED ? NULL : arena;
}

static void *alloc_arena(void *ctx, size_t size)
{
    (void)ctx;
    void *arena = new_arena(size);
    if (arena)
        blocks_note_arena(arena, size);
    return arena;
}

static void free_arena(void *ctx, void *ptr, size_t size)
{
    (void)ctx;
    if (!in_range(ptr) && !is_known(ptr))
        (void)munmap(ptr, size);
    else if (size == ARENA && range.n_unused < RANGE / ARENA + EARLY_MAX)
        range.unused[range.n_unused++] = ptr; /* the address stays Python's: see note_early() */
}

void pages_gather(void)
{
    note_early();
    prefer_heap();
    void (*set)(struct arena_allocator *) = NULL;
    blocks_look_up("PyObject_SetArenaAllocator", &set);
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
}

/*** one file of it all ***/

enum { PIECES_MAX = 2048 };

/* What becomes one mapping. */
struct piece {
    uintptr_t begin, end;
    size_t first, last; /* of maps[]: where its bytes are now */
    bool library;       /* may be text */
    uintptr_t offset;   /* in the file; from the last huge page it is as far as the address */
};

static struct piece pieces[PIECES_MAX];
static size_t n_pieces;

static int note_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type != PT_LOAD)
            continue;
        begin = from < begin ? from : begin;
        end = to > end ? to : end;
    }
    if (begin < end) /* it has any */
        note_known(begin / PAGE * PAGE, (end + PAGE - 1) / PAGE * PAGE);
    return 0;
}

/* Of memory of no file: up to where we know whose it is. */
static uintptr_t known_end(const struct map *map)
{
    for (size_t i = 0; i < n_known; i++)
        if (known[i].begin <= map->begin && known[i].end > map->begin)
            return known[i].end < map->end ? known[i].end : map->end;
    return map->begin;
}

/* What was mapped later, next to it, can have become one with memory that we know: cuts where that begins. */
static size_t cut_at_known(size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < n_known && !maps[i].file && !maps[i].named; k++) {
            uintptr_t at = known[k].begin;
            if (at <= maps[i].begin || at >= maps[i].end || count + 1 >= MAPS_MAX)
                continue;
            memmove(&maps[i + 1], &maps[i], (count - i) * sizeof(maps[0]));
            maps[i].end = maps[i + 1].begin = at;
            count++;
        }
    return count;
}

/* Large, and nobody has written to it: it would only cost memory. */
static bool is_untouched(const struct map *map)
{
    static unsigned char present[FREEZE_MAX / PAGE];
    size_t len = map->end - map->begin;
    return !map->file && len >= HUGE && mincore((void *)map->begin, len, present) == 0 &&
           !memchr(present, 1, len / PAGE);
}

/* Up to where a mapping can be frozen; its beginning: not at all. Memory that we do not know is left out: the C
 * library gets large blocks as mappings, and makes them larger by mremap(2), which in a file would lead
 * beyond its end. So is what children must not have: the state of random generators. */
static uintptr_t freezable(const struct map *map)
{
    if (map->emptied)
        return map->begin;
    if (map->heap || in_range((void *)map->begin))
        return map->writable ? map->end : map->begin;
    if (!map->private || map->named || map->end - map->begin > FREEZE_MAX || is_untouched(map))
        return map->begin;
    return map->file ? map->end : known_end(map);
}

static void add_piece(size_t i, uintptr_t end)
{
    bool library = !maps[i].heap && !in_range((void *)maps[i].begin);
    struct piece *last = n_pieces ? &pieces[n_pieces - 1] : NULL;
    if (last && last->library && library && last->last + 1 == i && last->end == maps[i - 1].end &&
        maps[i].begin - last->end < HUGE) {
        last->last = i;
        last->end = end;
    } else if (n_pieces < PIECES_MAX) {
        pieces[n_pieces++] = (struct piece){ maps[i].begin, end, i, i, library, 0 };
    }
}

static uintptr_t round_up(uintptr_t address)
{
    return (address + HUGE - 1) / HUGE * HUGE;
}

/* To the limits of huge pages, where nothing is in the way. The heap grows upwards by itself. */
static void widen(struct piece *piece, size_t count)
{
    uintptr_t begin = piece->begin / HUGE * HUGE, end = round_up(piece->end);
    uintptr_t low = piece->first > 0 ? maps[piece->first - 1].end : HUGE;
    uintptr_t high = piece->last + 1 < count ? maps[piece->last + 1].begin : 0;
    if (piece->end - piece->begin < HUGE / 4)
        return;
    if (begin >= low)
        piece->begin = begin;
    if (end <= high && piece->library && piece->end == maps[piece->last].end)
        piece->end = end;
}

/* The size of the file. */
static uintptr_t choose_pieces(void)
{
    (void)dl_iterate_phdr(note_library, NULL);
    size_t count = read_maps();
    count = note_emptied(count) ? cut_at_known(count) : 0;
    uintptr_t size = 0;
    for (size_t i = 0; i < count; i++) {
        uintptr_t end = freezable(&maps[i]);
        if (end > maps[i].begin)
            add_piece(i, end);
    }
    for (struct piece *piece = pieces; piece < pieces + n_pieces; piece++) {
        widen(piece, count);
        piece->offset = size + piece->begin % HUGE;
        size = round_up(piece->offset + (piece->end - piece->begin));
    }
    return size;
}

/* Puts the file in the place of what it has a copy of, in one step. Until then nothing is written to but the
 * stack, or it would be lost: what is exchanged can be this library, or the C library with its errno. */
static bool exchange(const struct piece *piece, char *view, int fd)
{
    size_t len = piece->end - piece->begin;
    char *copy = view + piece->offset;
    /* No holes: a child that touched one would put a page into the file of all. */
    if (fallocate(fd, 0, (off_t)piece->offset, (off_t)len) < 0)
        return false;
    for (size_t i = piece->first; i <= piece->last; i++) {
        uintptr_t end = maps[i].end < piece->end ? maps[i].end : piece->end;
        if (maps[i].readable)
            memcpy(copy + (maps[i].begin - piece->begin), (void *)maps[i].begin,
                   end - maps[i].begin);
    }
    int protection = PROT_READ | PROT_WRITE | (piece->library ? PROT_EXEC : 0);
    const void *at = mmap((void *)piece->begin, len, protection, MAP_PRIVATE | MAP_FIXED, fd,
                          (off_t)piece->offset);
    return at != MAP_FAILED;
}

static void make_huge(const struct piece *piece, char *view)
{
    uintptr_t end = piece->offset + (piece->end - piece->begin);
    for (uintptr_t at = round_up(piece->offset); at + HUGE <= end; at += HUGE)
        (void)madvise(view + at, HUGE, MADV_COLLAPSE);
}

/* The file, with a huge page's room on either side that widen() may have taken. */
static char *map_whole(int fd, size_t size, int protection, int flags)
{
    size_t len = size + 4 * HUGE;
    char *room = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    char *view =
        mmap((char *)round_up((uintptr_t)room + HUGE), size, protection, flags | MAP_FIXED, fd, 0);
    if (view == MAP_FAILED) {
        (void)munmap(room, len);
        return NULL;
    }
    (void)munmap(room, (size_t)(view - room));
    (void)munmap(view + size, (size_t)(room + len - (view + size)));
    return view;
}

static int open_file(void)
{
    int fd = memfd_create(FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    return fd < 0 ? memfd_create(FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

/* All of the file, to compare with; NULL: there is none. Nobody writes to it. */
static struct {
    char *begin;
    size_t size;
    int fd; /* the file, sealed; in the zygote only */
} original PAGES_TOGETHER = { .fd = -1 };

void pages_freeze(bool huge)
{
    uintptr_t size = choose_pieces();
    int fd = open_file();
    char *view = NULL;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
        view = map_whole(fd, size, PROT_READ | PROT_WRITE, MAP_SHARED);
    if (view) {
        original.begin = map_whole(fd, size, PROT_READ, MAP_PRIVATE);
        original.size = size;
    }
    range.closed = true; /* before it is in the file */
    for (const struct piece *piece = pieces; view && piece < pieces + n_pieces; piece++)
        if (exchange(piece, view, fd) && huge)
            make_huge(piece, view);
    if (view)
        (void)munmap(view, size);
    if (fd >= 0) {
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
        original.fd = fd;
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
        if (in_range((void *)map->begin))
            (void)madvise((void *)map->begin, map->end - map->begin, MADV_NOHUGEPAGE);
    }
    if (!range.closed) /* else it may be in the file by now */
        range.closed = true;
    if (count)
        forget_scratch();
}

/*** who has copies of what ***/

/* What /proc/self/pagemap says of a page. */
#define PRESENT (UINT64_C(1) << 63)
#define OF_A_FILE (UINT64_C(1) << 61)

static bool is_copied(uintptr_t at)
{
    uint64_t entry = scratch->entries[at % HUGE / PAGE];
    return (entry & PRESENT) && !(entry & OF_A_FILE);
}

static bool is_frozen(const struct map *map)
{
    return map->frozen && map->private && map->writable &&
           map->offset + (map->end - map->begin) <= original.size;
}

/* From `at` on, up to the end of its huge page or of the mapping, which is returned; 0: it cannot be known. */
static uintptr_t look(int pagemap, const struct map *map, uintptr_t at)
{
    uintptr_t next = (at / HUGE + 1) * HUGE, end = next < map->end ? next : map->end;
    size_t len = (end - at) / PAGE * sizeof(uint64_t);
    bool whole = pread(pagemap, &scratch->entries[at % HUGE / PAGE], len,
                       (off_t)(at / PAGE * sizeof(uint64_t))) == (ssize_t)len;
    return whole ? end : 0;
}

/*** settling ***/

/* The number of pages that the zygote has copies of in a mapping, where they are side by side as one; WRITTEN_MAX: too many, or it cannot be known. */
static size_t note_written(int pagemap, const struct map *map)
{
    size_t n = 0;
    for (uintptr_t at = map->begin, end; at < map->end && n < WRITTEN_MAX; at = end) {
        end = look(pagemap, map, at);
        if (!end)
            return WRITTEN_MAX;
        for (uintptr_t page = at; page < end && n < WRITTEN_MAX; page += PAGE) {
            if (!is_copied(page))
                continue;
            if (!n || scratch->written[n - 1].end != page)
                scratch->written[n++].begin = page;
            scratch->written[n - 1].end = page + PAGE;
        }
    }
    return n;
}

/* In one step, with nothing in between that writes: it can be our own memory, or the C library's. */
static bool leave_file(uintptr_t begin, uintptr_t end)
{
    size_t len = end - begin;
    char *copy =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (copy == MAP_FAILED)
        return false;
    memcpy(copy, (void *)begin, len);
    return mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)begin) != MAP_FAILED;
}

/* As it was mapped before anything was written to it. */
static bool map_again(const struct map *map, uintptr_t begin, uintptr_t end)
{
    int protection = PROT_READ | PROT_WRITE | (map->executable ? PROT_EXEC : 0);
    if (begin == end)
        return true;
    const void *at = mmap((void *)begin, end - begin, protection, MAP_PRIVATE | MAP_FIXED,
                          original.fd, (off_t)(map->offset + (begin - map->begin)));
    return at != MAP_FAILED;
}

static void settle(const struct map *map, size_t n_written)
{
    uintptr_t at = map->begin;
    for (size_t i = 0; i < n_written; i++)
        if (!leave_file(scratch->written[i].begin, scratch->written[i].end))
            return; /* forks stay dearer */
    for (size_t i = 0; i < n_written; i++) {
        if (!map_again(map, at, scratch->written[i].begin))
            return;
        at = scratch->written[i].end;
    }
    (void)map_again(map, at, map->end);
}

void pages_settle(void)
{
    int pagemap = original.fd < 0 ? -1 : open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    size_t count = pagemap < 0 ? 0 : read_maps();
    for (size_t i = 0; i < count; i++) {
        size_t n = is_frozen(&maps[i]) ? note_written(pagemap, &maps[i]) : 0;
        if (n > 0 && n < WRITTEN_MAX)
            settle(&maps[i], n);
    }
    if (pagemap < 0)
        return;
    close(pagemap);
    forget_scratch();
}

/*** what children write to ***/

/* Of a mapping. False: it cannot be known. */
static bool learn_of(int pagemap, const struct map *map, struct pages_written *ret)
{
    for (uintptr_t at = map->begin, end; at < map->end; at = end) {
        end = look(pagemap, map, at);
        if (!end)
            return false;
        for (uintptr_t page = at; page < end; page += PAGE)
            if (is_copied(page) && ret->n < PAGES_WRITTEN_MAX)
                ret->at[ret->n++] = page;
    }
    return true;
}

void pages_learn(pid_t child, struct pages_written *ret)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)child);
    int pagemap = open(path, O_RDONLY | O_CLOEXEC);
    size_t count = pagemap < 0 ? 0 : read_maps();
    bool seen = count > 0;
    ret->n = 0;
    for (size_t i = 0; i < count && seen; i++)
        seen = !is_frozen(&maps[i]) || learn_of(pagemap, &maps[i], ret);
    if (!seen)
        ret->n = 0;
    if (pagemap < 0)
        return;
    close(pagemap);
    forget_scratch();
}

/* Each becomes what it was. The compiler is not to know that, or it would only read. */
void pages_copy(const struct pages_written *written)
{
    static const volatile char nothing;
    char zero = nothing;
    for (size_t i = 0; i < written->n; i++)
        (void)__atomic_fetch_or((char *)written->at[i], zero, __ATOMIC_RELAXED);
}

/*** giving back ***/

/* All is noted before anything goes. Nothing writes meanwhile to pages that do not stay: no code of ours, no other thread. */
static bool stays(const struct map *map, uintptr_t at, uintptr_t kept)
{
    if (at + PAGE >= kept && at <= kept + PAGE)
        return true;
    return is_copied(at) &&
           memcmp((void *)at, original.begin + map->offset + (at - map->begin), PAGE) != 0;
}

static void note_going(uintptr_t begin, uintptr_t end)
{
    if (begin < end && scratch->n_goes < GOES_MAX)
        scratch->goes[scratch->n_goes++] = (struct span){ begin, end };
}

/* From `begin` to `end`, which are in one huge page. Where something of it was copied, the rest is mapped in small
 * pages, and that goes as well: whoever has to find all users of the huge page (threads of the kernel's, which hold what
 * forks and faults need meanwhile) would have to look at hundreds of entries in each of a thousand idle kernels. */
static void note_unchanged(const struct map *map, uintptr_t begin, uintptr_t end, uintptr_t kept)
{
    bool any = false;
    for (uintptr_t at = begin; at < end; at += PAGE)
        any |= is_copied(at);
    if (!any)
        return;
    uintptr_t first = begin;
    for (uintptr_t at = begin; at < end; at += PAGE)
        if (stays(map, at, kept)) {
            note_going(first, at);
            first = at + PAGE;
        }
    note_going(first, end); /* if that is all, the page table goes with it, since Linux 6.14 */
}

/* Others could write to a page between our look at it and its end. */
static bool is_alone(void)
{
    int fd = have_scratch() ? open("/proc/self/status", O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    ssize_t n = read(fd, scratch->text, MAPS_BYTES - 1);
    close(fd);
    scratch->text[n > 0 ? n : 0] = '\0';
    return strstr(scratch->text, "\nThreads:\t1\n") != NULL;
}

/* What is below us on the stack: nobody's any more, but for what a call may keep right below it. */
static void note_stack(const struct map *map)
{
    uintptr_t end = ((uintptr_t)__builtin_frame_address(0) - PAGE) / PAGE * PAGE;
    if (end < map->end)
        note_going(map->begin, end);
}

/* A system call that touches nothing but this function's caller. */
static inline long call(long number, uintptr_t first, uintptr_t second, uintptr_t third,
                        uintptr_t fourth, uintptr_t fifth)
{
#if defined(__x86_64__)
    register uintptr_t in_r10 __asm__("r10") = fourth;
    register uintptr_t in_r8 __asm__("r8") = fifth;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(first), "S"(second), "d"(third), "r"(in_r10), "r"(in_r8)
                     : "rcx", "r11", "memory", "cc");
    return number;
#elif defined(__aarch64__)
    register uintptr_t x0 __asm__("x0") = first;
    register uintptr_t x1 __asm__("x1") = second;
    register uintptr_t x2 __asm__("x2") = third;
    register uintptr_t x3 __asm__("x3") = fourth;
    register uintptr_t x4 __asm__("x4") = fifth;
    register long x8 __asm__("x8") = number;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x8)
                     : "memory", "cc");
    return (long)x0;
#else
    return syscall(number, first, second, third, fourth, fifth);
#endif
}

/* Without the C library: what it runs would be mapped again, and with a page of it the huge page that it is in. */
static __attribute__((noinline)) void let_go_and_wait(int until, const sigset_t *mask)
{
    for (size_t i = 0; i < scratch->n_goes; i++)
        (void)call(SYS_madvise, scratch->goes[i].begin,
                   scratch->goes[i].end - scratch->goes[i].begin, MADV_DONTNEED, 0, 0);
    (void)call(SYS_madvise, (uintptr_t)original.begin, original.size, MADV_DONTNEED, 0, 0);
    (void)call(SYS_madvise, (uintptr_t)scratch, sizeof(*scratch), MADV_DONTNEED, 0, 0);
    struct pollfd next = { .fd = until, .events = POLLIN };
    (void)call(SYS_ppoll, (uintptr_t)&next, 1, 0, (uintptr_t)mask, SIGNAL_BYTES);
}

void pages_give_back(const void *kept, int until, const sigset_t *mask)
{
    int fd = -1;
    if (original.begin && is_alone())
        fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    size_t count = fd >= 0 ? read_maps() : 0;
    for (size_t i = 0; i < count; i++) {
        const struct map *map = &maps[i];
        if (map->named)
            note_stack(map);
        if (!is_frozen(map))
            continue;
        for (uintptr_t at = map->begin, end; at < map->end && (end = look(fd, map, at)); at = end)
            note_unchanged(map, at, end, (uintptr_t)kept / PAGE * PAGE);
    }
    if (fd < 0)
        return;
    close(fd);
    let_go_and_wait(until, mask);
}
