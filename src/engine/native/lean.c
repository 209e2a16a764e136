#include "engine/native/lean.h"

#include "base/base.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Named, not "all but the C library": what a sanitizer or a preloaded library does in a child is its own. */
static const char *const unneeded[] = { "/libcrypto.so", "/libssl.so",     "/libuv.so",
                                        "/libyaml-",     "/libjansson.so", "/libseccomp.so" };

static struct {
    void *start;
    size_t len;
} heap;

static bool is_unneeded(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(unneeded); i++)
        if (strstr(name, unneeded[i]))
            return true;
    return false;
}

/* One line of /proc/self/maps. */
static void look_at(const char *line)
{
    uintptr_t start, end;
    int name = 0;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &start, &end, &name) != 2 ||
        end <= start || !name)
        return;
    if (strcmp(line + name, "[heap]") == 0) {
        heap.start = (void *)start;
        heap.len = end - start;
        lean_heap(false);
    } else if (is_unneeded(line + name)) {
        (void)madvise((void *)start, end - start, MADV_DONTFORK);
    }
}

void lean_begin(void)
{
    static char maps[64 * 1024]; /* about a hundred lines; what does not fit is copied as before */
    auto_fd fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    for (ssize_t n = 1; fd >= 0 && n > 0 && len<sizeof(maps) - 1; len += n> 0 ? (size_t)n : 0)
        n = read(fd, maps + len, sizeof(maps) - 1 - len);
    maps[len] = '\0';
    for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        look_at(line);
    }
    (void)madvise(maps, sizeof(maps), MADV_DONTNEED);
}

void lean_heap(bool copied)
{
    if (heap.len)
        (void)madvise(heap.start, heap.len, copied ? MADV_DOFORK : MADV_DONTFORK);
}
