/*
 * progress: what a Docker engine says while it builds, pulls or imports an image: JSON objects, one
 * a line. Pure: bytes in, lines for a person out. What builds print is anybody's text, so whatever a
 * terminal would obey is shown instead (text_show_char()).
 *
 *   1. progress_init()
 *   2. progress_feed()   the body of the answer, in pieces of any size
 *   3. progress_end()    did it succeed? which image did it make?
 *   4. progress_done()
 *
 * An error that the engine reports comes after a status that said success; it is kept, and told by
 * progress_end().
 */
#ifndef BELLJAR_ENGINE_DOCKER_PROGRESS_H
#define BELLJAR_ENGINE_DOCKER_PROGRESS_H

#include "base/buf.h"
#include "base/err.h"

enum { PROGRESS_LINE_MAX = 1 << 20, PROGRESS_IMAGE_SIZE = 80 };

struct progress {
    struct buf line;                 /* the part of a message that has come so far */
    char error[400];                 /* the engine's own words; "" : none */
    char image[PROGRESS_IMAGE_SIZE]; /* "sha256:…" once it was told */
    /* One line or a part of one, ends with a newline where the engine's does. */
    void (*on_text)(const char *text, size_t len, void *data);
    void *data;
};

void progress_init(struct progress *progress,
                   void (*on_text)(const char *text, size_t len, void *data), void *data);

/* -EBADMSG: not what an engine says; -EMSGSIZE: a message of more than PROGRESS_LINE_MAX bytes. */
int progress_feed(struct progress *progress, const char *bytes, size_t len, struct err *err);

/* No more comes. -EIO with the engine's words if it reported an error. */
int progress_end(struct progress *progress, struct err *err);
void progress_done(struct progress *progress);

#endif
