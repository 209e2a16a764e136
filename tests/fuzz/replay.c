/*
 * replay: stands in for libFuzzer's main() in ordinary builds. Feeds every file of the directories
 * and files on the command line to the harness once; a crash is the failure.
 */
#include "base/base.h"
#include "base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_MAX = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(int fd)
{
    auto_buf input = BUF_INIT(INPUT_MAX);
    for (;;) {
        char *room = buf_room(&input, 65536);
        ssize_t got = room ? read(fd, room, 65536) : -1;
        if (got < 0)
            return room ? -errno : -EFBIG;
        if (got == 0)
            break;
        buf_added(&input, (size_t)got);
    }
    /* An exact copy on the heap, so that a sanitizer sees one byte too far. */
    auto_free uint8_t *data = xmalloc(input.len);
    if (input.len)
        memcpy(data, input.data, input.len);
    (void)LLVMFuzzerTestOneInput(data, input.len);
    return 0;
}

/* The number of inputs under `path`, or -errno. */
static int replay(int at, const char *path)
{
    auto_fd fd = openat(at, path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode)) {
        int r = replay_file(fd);
        return r < 0 ? r : 1;
    }
    DIR *dir = fdopendir(fd);
    if (!dir)
        return -errno;
    int here = steal_fd(&fd); /* closedir() closes it */
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        int r = replay(here, entry->d_name);
        count = r < 0 ? r : count + r;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = replay(AT_FDCWD, argv[i]);
        if (count < 0) {
            fprintf(stderr, "replay %s: %s\n", argv[i], strerror(-count));
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], count);
    }
    return 0;
}
