/*
 * head: the request line and fields of one HTTP/1.x request, in memory. Pure: no allocation, no
 * system call.
 *
 *   1. head_scan()   with all bytes that are there, each time more came, until it finds the end
 *   2. head_parse()  cuts the head that was found into strings, in place
 *
 * Scanning refuses at once what no later byte can mend (bare CR or LF, control characters, too
 * long, too many fields), so that a client with the wrong line ends is told so instead of timing
 * out. Parsing then may trust that every CR is followed by LF and that there is no NUL.
 */
#ifndef BELLJAR_HTTP_HEAD_H
#define BELLJAR_HTTP_HEAD_H

#include "base/base.h"

#include <sys/types.h>

/* Why a request is refused: the status to answer and a sentence for the person who debugs it. */
struct fault {
    int status;
    const char *why; /* static text */
};

/* Fills *ret and returns -EBADMSG. */
int fault_set(struct fault *ret, int status, const char *why);

struct head_limits {
    size_t bytes; /* to the blank line and with it */
    size_t fields;
};

/* Where the search for the end stands; zero before the first byte of a request. */
struct head_scan {
    size_t pos;
    size_t lines; /* complete lines that are not empty: the request line and the fields */
};

struct head_field {
    const char *name;
    const char *value; /* without the blanks around it */
};

struct head {
    const char *method;
    const char *path;  /* before '?'; or "*" */
    const char *query; /* after '?', or NULL */
    int minor;         /* HTTP/1.minor */
    const struct head_field *fields;
    size_t n_fields;
    bool keep_alive;      /* the client's wish, by version and Connection */
    bool expect_continue; /* waits for "100 Continue" before it sends the body */
    bool chunked;
    uint64_t content_length; /* 0 when chunked or absent */
};

/* `text` starts where the request starts; bytes seen by an earlier call must not have changed.
 * Returns the length of the head with its blank line, 0 when more bytes are needed, or -EBADMSG.
 * One empty line before the request line is tolerated (RFC 9112, 2.2) and counts. */
ssize_t head_scan(struct head_scan *scan, const char *text, size_t len,
                  const struct head_limits *limits, struct fault *ret_fault);

/* `text` is a head as head_scan() measured it, `fields` has room for scan.lines - 1 rows. The
 * strings in *ret point into `text`, which is overwritten between them. 0 or -EBADMSG. */
int head_parse(char *text, struct head_field *fields, struct head *ret, struct fault *ret_fault);

/* The next field of that name, any case, from position *pos on, which moves past it. NULL: none. */
const char *head_find(const struct head *head, const char *name, size_t *pos);

#endif
