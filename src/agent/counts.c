#include "agent/counts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "name number" on a line of its own. False: no such file, or no such line. */
static bool read_count(const char *path, const char *name, uint64_t *ret)
{
    char text[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    size_t len = strlen(name);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, name, len) != 0 || line[len] != ' ')
            continue;
        *ret = strtoull(line + len + 1, NULL, 10);
        return true;
    }
    return false;
}

/* v2, then v1. */
static const struct {
    const char *memory, *pids;
} places[] = {
    { "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/pids.events" },
    { "/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/pids/pids.events" },
};

void counts_read(struct frame_counts *ret)
{
    *ret = (struct frame_counts){ 0 };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !ret->known; i++) {
        ret->known = read_count(places[i].memory, "oom_kill", &ret->oom_kills);
        if (ret->known)
            (void)read_count(places[i].pids, "max", &ret->pids_denied); /* else 0: not told apart */
    }
}
