/*
 * stream: what comes over an attached connection, as bytes. Pure: no allocation, no system call; what is
 * found points into the caller's bytes.
 *
 * First the head of the answer; then, of a container without a terminal, pieces of its two output
 * streams, each behind 8 bytes: u8 stream, 3 bytes 0, u32 length, big endian.
 */
#ifndef BELLJAR_ENGINE_DOCKER_STREAM_H
#define BELLJAR_ENGINE_DOCKER_STREAM_H

#include <stddef.h>
#include <stdint.h>

enum { DOCKER_HEAD_MAX = 16 * 1024 };

/* The head of an answer, with the blank line behind it: its bytes, and the status; 0: need more; -EPROTO
 * when it is none, -EMSGSIZE when it would be longer than DOCKER_HEAD_MAX. */
int docker_head_parse(const char *data, size_t len, int *ret_status);

struct docker_demux {
    uint8_t header[8];
    size_t have;   /* of it */
    uint32_t left; /* of the piece behind it */
};

enum docker_stream { DOCKER_STDIN = 0, DOCKER_STDOUT = 1, DOCKER_STDERR = 2 };
struct docker_piece {
    enum docker_stream stream;
    const char *bytes; /* a part of what one side wrote; may be empty */
    size_t len;
};

/* Takes as much as makes one piece. The bytes consumed, 1 or more of a `len` that is not 0; -EPROTO for a
 * stream that does not exist. */
int docker_demux_next(struct docker_demux *demux, const char *data, size_t len,
                      struct docker_piece *ret);

#endif
