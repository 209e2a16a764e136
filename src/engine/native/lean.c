#include "engine/native/lean.h"

#include "base/base.h"

#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a child may run code of: the C library and its loader, and what a sanitizer brings along. All else
 * came with the server's own libraries, whichever those need. */
static const char *const needed[] = { "/libc.", "/ld-",       "/libm.",      "/libgcc_s.",
                                      "san.",   "/libstdc++", "/libpthread." };

static struct {
    void *start;
    size_t len;
} heap;

/*** Libraries ***/

static bool is_needed(const char *name)
{
    if (!strchr(name, '/'))
        return true; /* the program itself, or the kernel's own */
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
        if (strstr(name, needed[i]))
            return true;
    return false;
}

static int leave_out(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    uintptr_t page = *(const uintptr_t *)data;
    if (is_needed(object->dlpi_name))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;
        start &= ~(page - 1);
        end = (end + page - 1) & ~(page - 1);
        if (segment->p_type == PT_LOAD)
            (void)madvise((void *)start, end - start, MADV_DONTFORK);
    }
    return 0;
}

/*** The heap ***/

/* One line of /proc/self/maps. */
static void look_at(const char *line)
{
    uintptr_t start, end;
    int name = 0;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &start, &end, &name) != 2 ||
        end <= start || !name || strcmp(line + name, "[heap]") != 0)
        return;
    heap.start = (void *)start;
    heap.len = end - start;
    lean_heap(false);
}

static void find_heap(void)
{
    char maps[4096]; /* it comes right behind the program */
    auto_fd fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, maps, sizeof(maps) - 1);
    maps[len > 0 ? len : 0] = '\0';
    for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        look_at(line);
    }
}

void lean_begin(void)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (!getenv("LD_PRELOAD")) /* else calls may lead anywhere */
        (void)dl_iterate_phdr(leave_out, &page);
    find_heap();
}

void lean_heap(bool copied)
{
    if (heap.len)
        (void)madvise(heap.start, heap.len, copied ? MADV_DOFORK : MADV_DONTFORK);
}
