/*
 * tidy: what a terminal would show in the end of what a program wrote to it. Escape sequences are
 * taken out, a line that was rewritten after a carriage return (a progress bar) is kept in its last
 * state, a backspace takes back a character. One state machine for each stream, fed with chunks that may end
 * anywhere; it keeps no text itself but tells a sink what to do with the text that the sink holds.
 *
 *     struct tidy tidy = { 0 };
 *     tidy_feed(&tidy, bytes, len, &sink, data);      again and again
 *     tidy_end(&tidy, &sink, data);
 *
 * Bytes that are no control characters pass unchanged, UTF-8 or not. A sequence that does not end
 * within TIDY_SEQUENCE_MAX bytes, or before the end of its line, is over: it cannot hide what follows.
 */
#ifndef BELLJAR_SESSION_TIDY_H
#define BELLJAR_SESSION_TIDY_H

#include "base/base.h"

enum { TIDY_SEQUENCE_MAX = 4096 };

enum tidy_state {
    TIDY_TEXT,
    TIDY_ESCAPE,       /* after ESC */
    TIDY_INTERMEDIATE, /* ESC and one of space to '/' */
    TIDY_CSI,          /* ESC [ */
    TIDY_STRING,       /* ESC ] and others, until BEL or ESC \ */
};

struct tidy {
    enum tidy_state state;
    size_t sequence; /* bytes of it so far */
    char first;      /* parameter of a CSI: its first byte, and whether there were more */
    bool more;
    bool returned;  /* a carriage return came: the next character replaces the line */
    bool rewritten; /* the current line has replaced another */
    size_t back;    /* backspaces that the next character honours */
};

/* What holds the text. The current line is what came since the last line_end. */
struct tidy_sink {
    void (*add)(const char *bytes, size_t len, void *data); /* to the current line */
    void (*line_end)(void *data);                           /* a newline, which is not in `add` */
    void (*erase_line)(void *data);                         /* the current line is empty again */
    void (*drop_chars)(size_t count, void *data);           /* from the end of the current line */
    void (*drop_spaces)(void *data);                        /* all at the end of the current line */
};

void tidy_feed(struct tidy *tidy, const char *bytes, size_t len, const struct tidy_sink *sink,
               void *data);
/* Nothing more comes, or something was left out here: the next bytes begin anew. */
void tidy_end(struct tidy *tidy, const struct tidy_sink *sink, void *data);

/* For sinks: how many bytes at the end of `text` the last `*count` characters take; *count is lowered
 * by as many as there were. */
size_t tidy_chars_len(const char *text, size_t len, size_t *count);

#endif
