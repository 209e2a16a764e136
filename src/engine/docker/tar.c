#include "engine/docker/tar.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 512 };

/* POSIX ustar. Numbers are octal text. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "as POSIX has it");

/* The sum of its bytes, with blanks in the place of the sum. */
static void seal(struct header *header)
{
    unsigned sum = 0;
    memset(header->sum, ' ', sizeof(header->sum));
    for (size_t i = 0; i < sizeof(*header); i++)
        sum += ((const unsigned char *)header)[i];
    (void)snprintf(header->sum, sizeof(header->sum), "%06o", sum);
}

void tar_program(struct buf *ret, const char *name, const void *bytes, size_t len)
{
    static const char zeros[2 * BLOCK];
    struct header header = { .mode = "0000555",
                             .uid = "0000000",
                             .gid = "0000000",
                             .mtime = "00000000000",
                             .type = '0',
                             .magic = "ustar",
                             .version = { '0', '0' } };
    (void)snprintf(header.name, sizeof(header.name), "%s", name);
    (void)snprintf(header.size, sizeof(header.size), "%011zo", len);
    seal(&header);
    (void)buf_add(ret, &header, sizeof(header));
    (void)buf_add(ret, bytes, len);
    (void)buf_add(ret, zeros, (BLOCK - len % BLOCK) % BLOCK);
    (void)buf_add(ret, zeros, sizeof(zeros));
}
