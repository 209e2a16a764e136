/* What an installer's sandbox returned: whatever it is, nothing is written outside of the directory. */
#include "packages/requirement.h"
#include "packages/unpack.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char outer[64];

static void remove_place(void)
{
    char inner[80];
    (void)snprintf(inner, sizeof(inner), "%s/inner", outer);
    (void)rmdir(inner); /* emptied after each input */
    (void)rmdir(outer);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type;
    return ftw->level == 0 ? 0 : remove(path);
}

/* A directory in a directory: what leaves the inner one is seen in the outer one. */
static int open_place(void)
{
    (void)snprintf(outer, sizeof(outer), "/tmp/belljar-fuzz-XXXXXX");
    char inner[80];
    if (!mkdtemp(outer))
        abort();
    (void)snprintf(inner, sizeof(inner), "%s/inner", outer);
    if (mkdir(inner, 0700) < 0)
        abort();
    return open(inner, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The same text as a name: what passes has a form that passes again and says the same. */
static void check_requirement(const uint8_t *data, size_t size)
{
    auto_free char *text = xstrndup((const char *)data, size);
    struct err err;
    auto_free char *once = requirement_normalise(text, &err);
    auto_free char *twice = once ? requirement_normalise(once, &err) : NULL;
    if (once && (!twice || strcmp(once, twice) != 0 || *once == '-' || strpbrk(once, " /@;\n")))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int inner = -1;
    struct err err;
    struct unpack unpack;
    struct stat st;
    if (inner < 0) {
        inner = open_place();
        (void)atexit(remove_place);
    }
    check_requirement(data, size);
    unpack_init(&unpack, inner, 1000, 20);
    size_t half = size / 2;
    if (unpack_feed(&unpack, (const char *)data, half, &err) == 0 &&
        unpack_feed(&unpack, (const char *)data + half, size - half, &err) == 0)
        (void)unpack_end(&unpack, &err);
    if (unpack.bytes > 1000)
        abort();
    unpack_done(&unpack);
    if (stat(outer, &st) < 0 || st.st_nlink != 3) /* itself, its name, `inner` */
        abort();
    char path[80];
    (void)snprintf(path, sizeof(path), "%s/inner", outer);
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
