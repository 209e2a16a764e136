#include "http/wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One uv_write() at a time, with the bytes it writes. */
struct flight {
    uv_write_t req;
    char *data;
};

static uv_stream_t *stream(const struct wire *wire)
{
    return (uv_stream_t *)&wire->tcp;
}

static int fileno_of(const struct wire *wire)
{
    uv_os_fd_t fd = -1;
    (void)uv_fileno((const uv_handle_t *)&wire->tcp, &fd); /* -1 stays when it has none */
    return fd;
}

static void end_once(struct wire *wire, int error)
{
    if (wire->ended || wire->closed)
        return;
    wire->ended = true;
    wire_pause(wire);
    wire->owner->on_end(wire, error);
}

/*** Writing ***/

static int launch(struct wire *wire, char *data, size_t len);

static void flight_free(struct flight *flight)
{
    free(flight->data);
    free(flight);
}

static void on_written(uv_write_t *req, int status)
{
    struct flight *flight = container_of(req, struct flight, req);
    struct wire *wire = req->data;
    flight_free(flight);
    wire->flight = NULL;
    if (wire->closed)
        return;
    if (status == 0 && wire->pending.len > 0) {
        size_t len = wire->pending.len;
        status = launch(wire, buf_steal(&wire->pending), len);
        if (status == 0)
            return;
    }
    if (status < 0)
        end_once(wire, status);
    else
        wire->owner->on_drained(wire);
}

/* Takes over `data`. */
static int launch(struct wire *wire, char *data, size_t len)
{
    struct flight *flight = xcalloc(1, sizeof(*flight));
    flight->data = data;
    flight->req.data = wire;
    uv_buf_t buf = uv_buf_init(data, (unsigned)len);
    int r = uv_write(&flight->req, stream(wire), &buf, 1, on_written);
    if (r < 0)
        flight_free(flight);
    else
        wire->flight = flight;
    return r;
}

static void append(struct buf *out, const uv_buf_t *bufs, unsigned n_bufs, size_t skip)
{
    for (unsigned i = 0; i < n_bufs; i++) {
        size_t from = skip < bufs[i].len ? skip : bufs[i].len;
        skip -= from;
        (void)buf_add(out, bufs[i].base + from, bufs[i].len - from); /* no ceiling */
    }
}

static int send_raw(struct wire *wire, const uv_buf_t *bufs, unsigned n_bufs)
{
    size_t total = 0;
    for (unsigned i = 0; i < n_bufs; i++)
        total += bufs[i].len;
    wire->given += total;
    if (wire->flight) {
        append(&wire->pending, bufs, n_bufs, /* skip= */ 0);
        return 0;
    }

    int n = uv_try_write(stream(wire), bufs, n_bufs);
    if (n == UV_EAGAIN)
        n = 0;
    if (n < 0)
        return n;
    if ((size_t)n == total)
        return 0;
    struct buf rest = BUF_INIT(BUF_NO_CEILING);
    append(&rest, bufs, n_bufs, (size_t)n);
    size_t len = rest.len;
    return launch(wire, buf_steal(&rest), len);
}

static int send_tls_output(struct wire *wire)
{
    const char *data;
    size_t len = tls_output(wire->tls, &data);
    if (len == 0)
        return 0;
    uv_buf_t buf = uv_buf_init((char *)data, (unsigned)len);
    int r = send_raw(wire, &buf, 1);
    tls_output_taken(wire->tls);
    return r;
}

/* Joins small pieces, since each tls_write() makes at least one record of its own. */
static int encrypt(struct tls *tls, const uv_buf_t *bufs, unsigned n_bufs)
{
    char record[16 * 1024]; /* the most a record can hold */
    size_t used = 0;
    int r = 0;
    for (unsigned i = 0; i < n_bufs && r == 0; i++) {
        if (bufs[i].len <= sizeof(record) - used) {
            memcpy(record + used, bufs[i].base, bufs[i].len);
            used += bufs[i].len;
            continue;
        }
        r = tls_write(tls, record, used);
        used = 0;
        if (r == 0)
            r = tls_write(tls, bufs[i].base, bufs[i].len);
    }
    return r < 0 ? r : tls_write(tls, record, used);
}

int wire_send(struct wire *wire, const uv_buf_t *bufs, unsigned n_bufs)
{
    if (wire->closed)
        return -ECONNRESET;
    if (!wire->tls)
        return send_raw(wire, bufs, n_bufs);
    int r = encrypt(wire->tls, bufs, n_bufs);
    return r < 0 ? r : send_tls_output(wire);
}

size_t wire_unsent(const struct wire *wire)
{
    return uv_stream_get_write_queue_size(stream(wire)) + wire->pending.len;
}

uint64_t wire_taken(const struct wire *wire)
{
    return wire->given - wire_unsent(wire);
}

/*** Reading ***/

/* Decrypts what came, until nothing is left or the owner closes the wire. */
static void read_tls(struct wire *wire, const char *data, size_t len)
{
    bool was_ready = tls_ready(wire->tls);
    tls_receive(wire->tls, data, len);
    ssize_t n = 0;
    do {
        n = tls_read(wire->tls, wire->scratch->plain, sizeof(wire->scratch->plain));
        int r = send_tls_output(wire); /* handshake messages, alerts */
        if (r < 0)
            n = r;
        if (!was_ready && tls_ready(wire->tls)) {
            was_ready = true;
            wire->owner->on_ready(wire);
        }
        if (n > 0 && !wire->closed)
            wire->owner->on_bytes(wire, wire->scratch->plain, (size_t)n);
    } while (n > 0 && !wire->closed);
    if (n < 0)
        end_once(wire, n == -ECONNRESET ? 0 : (int)n);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct wire *wire = container_of((uv_tcp_t *)handle, struct wire, tcp);
    *ret = uv_buf_init(wire->scratch->raw, sizeof(wire->scratch->raw));
}

static void on_read(uv_stream_t *from, ssize_t n, const uv_buf_t *buf)
{
    struct wire *wire = container_of((uv_tcp_t *)from, struct wire, tcp);
    if (n < 0)
        end_once(wire, n == UV_EOF ? 0 : (int)n);
    else if (n > 0 && wire->tls)
        read_tls(wire, buf->base, (size_t)n);
    else if (n > 0)
        wire->owner->on_bytes(wire, buf->base, (size_t)n);
}

void wire_pause(struct wire *wire)
{
    if (!wire->reading)
        return;
    wire->reading = false;
    (void)uv_read_stop(stream(wire)); /* documented never to fail */
}

void wire_resume(struct wire *wire)
{
    if (wire->reading || wire->ended || wire->closed)
        return;
    wire->reading = true;
    int r = uv_read_start(stream(wire), on_alloc, on_read);
    assert(r == 0); /* fails on handles that are closing or reading already */
    (void)r;
}

/*** Life ***/

int wire_init(struct wire *wire, uv_loop_t *loop, int fd, struct tls_identity *identity,
              const struct wire_owner *owner, struct wire_scratch *scratch)
{
    *wire = (struct wire){
        .owner = owner,
        .scratch = scratch,
        .tls = identity ? tls_new(identity) : NULL,
        .pending = BUF_INIT(BUF_NO_CEILING), /* the owner watches wire_unsent() */
    };
    (void)uv_tcp_init(loop, &wire->tcp); /* makes no socket yet, so it cannot fail */
    int r = uv_tcp_open(&wire->tcp, fd);
    if (r < 0)
        (void)close(fd);
    return r;
}

void wire_end(struct wire *wire)
{
    if (wire->tls) {
        tls_end(wire->tls);
        (void)send_tls_output(wire); /* a client that is gone needs no goodbye */
    }
    /* Rather than uv_shutdown(): with nothing queued it needs no request and no callback. */
    if (wire_unsent(wire) == 0)
        (void)shutdown(fileno_of(wire), SHUT_WR); /* fails when the client is gone already */
}

void wire_trim(struct wire *wire)
{
    if (wire->tls)
        tls_trim(wire->tls);
}

static void on_close(uv_handle_t *handle)
{
    struct wire *wire = container_of((uv_tcp_t *)handle, struct wire, tcp);
    tls_free(wire->tls);
    buf_done(&wire->pending);
    wire->owner->on_closed(wire);
}

void wire_close(struct wire *wire, bool reset)
{
    if (wire->closed)
        return;
    wire->closed = true;
    wire->reading = false;
    int fd = fileno_of(wire);
    if (reset && fd >= 0) {
        const struct linger linger = { .l_onoff = 1, .l_linger = 0 };
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)); /* best effort */
    }
    uv_close((uv_handle_t *)&wire->tcp, on_close);
}
