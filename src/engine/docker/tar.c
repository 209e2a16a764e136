#include "engine/docker/tar.h"

#include <stdio.h>
#include <string.h>

/* POSIX ustar. Numbers are octal text. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "as POSIX has it");

static const char zeros[2 * TAR_BLOCK];
/* What eleven octal digits hold. */
static const uint64_t OCTAL_MAX = (UINT64_C(1) << 33) - 1;

/* The sum of its bytes, with blanks in the place of the sum. */
static void seal(struct header *header)
{
    unsigned sum = 0;
    memset(header->sum, ' ', sizeof(header->sum));
    for (size_t i = 0; i < sizeof(*header); i++)
        sum += ((const unsigned char *)header)[i];
    (void)snprintf(header->sum, sizeof(header->sum), "%06o", sum);
}

/* Larger ones as GNU has them: a bit, then the number itself, its highest byte first. */
static void put_number(char field[static 12], uint64_t value)
{
    if (value <= OCTAL_MAX) {
        (void)snprintf(field, 12, "%011llo", (unsigned long long)value);
        return;
    }
    field[0] = (char)0x80;
    for (size_t i = 11; i > 0; i--, value >>= 8)
        field[i] = (char)(value & 0xff);
}

static void put_header(struct buf *ret, const struct tar_entry *entry)
{
    struct header header = { .uid = "0000000",
                             .gid = "0000000",
                             .type = entry->type,
                             .magic = "ustar",
                             .version = { '0', '0' } };
    size_t len = strlen(entry->name);
    memcpy(header.name, entry->name, len < sizeof(header.name) ? len : sizeof(header.name));
    (void)snprintf(header.mode, sizeof(header.mode), "%07o", entry->mode & 07777);
    put_number(header.size, entry->size);
    put_number(header.mtime, entry->mtime > 0 ? (uint64_t)entry->mtime : 0);
    seal(&header);
    (void)buf_add(ret, &header, sizeof(header));
}

/* As GNU has it: an entry whose content is the name of the next. */
static void put_long_name(struct buf *ret, const char *name)
{
    size_t size = strlen(name) + 1;
    put_header(ret, &(struct tar_entry){ .name = "././@LongLink", .type = 'L', .size = size });
    (void)buf_add(ret, name, size);
    (void)buf_add(ret, zeros, tar_padding(size));
}

void tar_head(struct buf *ret, const struct tar_entry *entry)
{
    if (strlen(entry->name) > sizeof(((struct header *)0)->name))
        put_long_name(ret, entry->name);
    put_header(ret, entry);
}

size_t tar_padding(uint64_t size)
{
    return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

void tar_end(struct buf *ret)
{
    (void)buf_add(ret, zeros, sizeof(zeros));
}

void tar_program(struct buf *ret, const char *name, const void *bytes, size_t len)
{
    tar_head(ret, &(struct tar_entry){ .name = name, .type = '0', .mode = 0555, .size = len });
    (void)buf_add(ret, bytes, len);
    (void)buf_add(ret, zeros, tar_padding(len));
    tar_end(ret);
}
