/*
 * wire: the bytes of one TCP connection on the loop, plain or through TLS. Its owner embeds it and
 * is called back; what the bytes mean is the owner's business.
 *
 * Writing goes to the kernel at once as far as it takes it; the rest is copied and waits. The
 * owner looks at wire_unsent() to bound what waits and is told when nothing does any more.
 *
 * Idle, a wire holds no buffer: reading goes through memory that all wires share.
 */
#ifndef BELLJAR_HTTP_WIRE_H
#define BELLJAR_HTTP_WIRE_H

#include "base/buf.h"
#include "http/tls.h"

#include <uv.h>

struct wire;

/* All are called from the loop, never from inside a wire_…() call. */
struct wire_owner {
    /* Bytes came. They are gone after the call. */
    void (*on_bytes)(struct wire *wire, char *data, size_t len);
    /* TLS is agreed on; not called without TLS. */
    void (*on_ready)(struct wire *wire);
    /* No more will come: 0 for an orderly end, else what broke (-errno). Called once. */
    void (*on_end)(struct wire *wire, int error);
    /* Everything written has been taken by the kernel, and it had to wait. */
    void (*on_drained)(struct wire *wire);
    /* After wire_close(): the memory of the wire may go. */
    void (*on_closed)(struct wire *wire);
};

/* Memory to read into, one for all wires of a loop: callbacks do not overlap. */
enum { WIRE_READ_SIZE = 64 * 1024, WIRE_PLAIN_SIZE = 16 * 1024 };
struct wire_scratch {
    char raw[WIRE_READ_SIZE];
    char plain[WIRE_PLAIN_SIZE];
};

struct wire {
    uv_tcp_t tcp;
    const struct wire_owner *owner;
    struct wire_scratch *scratch;
    struct tls *tls;       /* NULL: plain */
    struct flight *flight; /* what libuv is writing, or NULL */
    struct buf pending;    /* what comes after it */
    uint64_t given;        /* bytes ever handed to the kernel or queued */
    bool reading;
    bool ended;
    bool closed;
};

/* Takes over `fd`, a connected socket, on success and on failure. identity NULL: no TLS. After a
 * failure the wire must still be closed with wire_close(). */
int wire_init(struct wire *wire, uv_loop_t *loop, int fd, struct tls_identity *identity,
              const struct wire_owner *owner, struct wire_scratch *scratch);

/* Stop and go on reading; both may be repeated. A wire starts paused. */
void wire_pause(struct wire *wire);
void wire_resume(struct wire *wire);

/* Writes all of it, now or later. -errno when the connection is broken; on_end does not follow. */
int wire_send(struct wire *wire, const uv_buf_t *bufs, unsigned n_bufs);

/* Bytes that wait for the kernel, and how many it has taken so far. */
size_t wire_unsent(const struct wire *wire);
uint64_t wire_taken(const struct wire *wire);

/* Says that no more will be sent. Only while nothing is unsent. */
void wire_end(struct wire *wire);

/* Gives back the memory of past traffic. */
void wire_trim(struct wire *wire);

/* Drops what is unsent and closes; `reset` also drops what the kernel has not delivered, for
 * clients that do not read. Only on_closed follows. May be repeated. */
void wire_close(struct wire *wire, bool reset);

#endif
