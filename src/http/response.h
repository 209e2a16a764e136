/*
 * response: the text of response heads and chunks. Pure but for growing the buffer it is given.
 */
#ifndef BELLJAR_HTTP_RESPONSE_H
#define BELLJAR_HTTP_RESPONSE_H

#include "base/buf.h"
#include "http/http.h"

enum response_framing {
    RESPONSE_LENGTH, /* Content-Length: length */
    RESPONSE_CHUNKED,
    RESPONSE_TO_END,  /* the end of the connection ends the body */
    RESPONSE_NO_BODY, /* 204 and 304: neither body nor length */
};

struct response {
    int status;
    int minor; /* of the request's version */
    bool close;
    enum response_framing framing;
    size_t length;
    const struct http_field *fields; /* NULL: none */
    const char *more; /* further fields as text, from response_add_field(); or NULL */
    const char *date; /* NULL: no Date field */
};

/* Asserts that the fields are well-formed: they come from our own program. */
void response_add_head(struct buf *out, const struct response *response);

/* One field. Asserts that it is well-formed. */
void response_add_field(struct buf *out, const char *name, const char *value);

/* "1f\r\n": what stands before the data of a chunk. The data is followed by CR LF. */
enum { CHUNK_START_MAX = 20 };
size_t response_chunk_start(char out[static CHUNK_START_MAX], size_t len);
#define RESPONSE_CHUNKS_END "0\r\n\r\n"

/* Statuses whose responses never have a body. */
bool response_bodiless(int status);

#endif
