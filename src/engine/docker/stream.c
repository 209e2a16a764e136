#include "engine/docker/stream.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

/*** The head ***/

/* "HTTP/1.1 101 UPGRADED"; `line` is at least as long as that without the word. */
static int parse_status(const char *line)
{
    static const char begin[] = "HTTP/1.";
    enum { STATUS_AT = sizeof("HTTP/1.1 ") - 1 };
    if (memcmp(line, begin, sizeof(begin) - 1) != 0 || (line[7] != '0' && line[7] != '1') ||
        line[8] != ' ')
        return -EPROTO;
    int status = 0;
    for (int i = 0; i < 3; i++) {
        if (!isdigit((unsigned char)line[STATUS_AT + i]))
            return -EPROTO;
        status = status * 10 + (line[STATUS_AT + i] - '0');
    }
    char next = line[STATUS_AT + 3];
    return status >= 100 && (next == ' ' || next == '\r') ? status : -EPROTO;
}

int docker_head_parse(const char *data, size_t len, int *ret_status)
{
    static const char end[] = "\r\n\r\n";
    const char *found = memmem(data, len, end, sizeof(end) - 1);
    if (!found)
        return len < DOCKER_HEAD_MAX ? 0 : -EMSGSIZE;
    size_t head = (size_t)(found - data) + sizeof(end) - 1;
    if (head > DOCKER_HEAD_MAX)
        return -EMSGSIZE;
    if (head < sizeof("HTTP/1.1 101\r\n\r\n") - 1)
        return -EPROTO;
    int status = parse_status(data);
    if (status < 0)
        return status;
    *ret_status = status;
    return (int)head;
}

/*** The pieces ***/

static int take_header(struct docker_demux *demux, const char *data, size_t len)
{
    size_t n = sizeof(demux->header) - demux->have;
    if (n > len)
        n = len;
    memcpy(demux->header + demux->have, data, n);
    demux->have += n;
    if (demux->have < sizeof(demux->header))
        return (int)n;
    const uint8_t *header = demux->header;
    if (header[0] > DOCKER_STDERR || header[1] || header[2] || header[3])
        return -EPROTO;
    demux->left = (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 |
                  header[7];
    if (!demux->left)
        demux->have = 0;
    return (int)n;
}

int docker_demux_next(struct docker_demux *demux, const char *data, size_t len,
                      struct docker_piece *ret)
{
    if (len > INT_MAX)
        len = INT_MAX;
    *ret = (struct docker_piece){ .bytes = data };
    if (!demux->left)
        return take_header(demux, data, len);
    size_t n = demux->left < len ? demux->left : len;
    *ret = (struct docker_piece){ (enum docker_stream)demux->header[0], data, n };
    demux->left -= (uint32_t)n;
    if (!demux->left)
        demux->have = 0;
    return (int)n;
}
