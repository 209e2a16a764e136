#include "session/tidy.h"

enum {
    BEL = 0x07,
    BS = 0x08,
    LF = 0x0a,
    CR = 0x0d,
    CAN = 0x18,
    SUB = 0x1a,
    ESC = 0x1b,
};

static bool is_control(unsigned char c)
{
    return c == BEL || c == BS || c == LF || c == CR || c == ESC;
}

/*** The line ***/

/* A character is about to come: what was said about the line before takes effect. */
static void prepare_line(struct tidy *tidy, const struct tidy_sink *sink, void *data)
{
    if (tidy->returned) {
        sink->erase_line(data);
        tidy->rewritten = true;
    } else if (tidy->back) {
        sink->drop_chars(tidy->back, data);
    }
    tidy->returned = false;
    tidy->back = 0;
}

static void erase_line(struct tidy *tidy, const struct tidy_sink *sink, void *data)
{
    sink->erase_line(data);
    tidy->rewritten = true;
    tidy->returned = false;
    tidy->back = 0;
}

/* Programs pad a line that they rewrite with spaces over what was longer before. */
static void finish_line(struct tidy *tidy, const struct tidy_sink *sink, void *data)
{
    if (tidy->rewritten)
        sink->drop_spaces(data);
    tidy->returned = tidy->rewritten = false;
    tidy->back = 0;
}

static void control(struct tidy *tidy, unsigned char c, const struct tidy_sink *sink, void *data)
{
    switch (c) {
    case LF:
        finish_line(tidy, sink, data);
        sink->line_end(data);
        break;
    case CR:
        tidy->returned = true;
        break;
    case BS:
        tidy->back++;
        break;
    case ESC:
        tidy->state = TIDY_ESCAPE;
        tidy->sequence = 0;
        break;
    default: /* a bell */
        break;
    }
}

/*** Sequences ***/

/* ESC [ K after a carriage return, ESC [ 2 K anywhere. */
static void end_csi(struct tidy *tidy, unsigned char final, const struct tidy_sink *sink,
                    void *data)
{
    bool to_end = tidy->first == '\0' || tidy->first == '0', all = tidy->first == '2';
    tidy->state = TIDY_TEXT;
    if (final == 'K' && !tidy->more && (all || (to_end && tidy->returned)))
        erase_line(tidy, sink, data);
}

static void after_escape(struct tidy *tidy, unsigned char c)
{
    if (c == '[') {
        tidy->state = TIDY_CSI;
        tidy->first = '\0';
        tidy->more = false;
    } else if (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_') {
        tidy->state = TIDY_STRING;
    } else if (c >= 0x20 && c <= 0x2f) {
        tidy->state = TIDY_INTERMEDIATE;
    } else {
        tidy->state = TIDY_TEXT; /* of two characters; the second is this one */
    }
}

static void in_csi(struct tidy *tidy, unsigned char c, const struct tidy_sink *sink, void *data)
{
    if (c >= 0x40) {
        end_csi(tidy, c, sink, data);
    } else if (tidy->first == '\0') {
        tidy->first = (char)c;
    } else {
        tidy->more = true;
    }
}

/* True: the byte belongs to the sequence. False: the sequence is over, and the byte is none of it. */
static bool in_sequence(struct tidy *tidy, unsigned char c, const struct tidy_sink *sink,
                        void *data)
{
    bool string = tidy->state == TIDY_STRING;
    if (++tidy->sequence > TIDY_SEQUENCE_MAX || c == LF || c == ESC ||
        (!string && (c < 0x20 || c > 0x7e))) {
        tidy->state = TIDY_TEXT;
        return false;
    }
    switch (tidy->state) {
    case TIDY_ESCAPE:
        after_escape(tidy, c);
        break;
    case TIDY_INTERMEDIATE:
        if (c >= 0x30)
            tidy->state = TIDY_TEXT;
        break;
    case TIDY_CSI:
        in_csi(tidy, c, sink, data);
        break;
    case TIDY_STRING: /* its other end, ESC \, begins a new sequence of two characters */
        if (c == BEL || c == CAN || c == SUB)
            tidy->state = TIDY_TEXT;
        break;
    case TIDY_TEXT:
        break;
    }
    return true;
}

/*** All ***/

void tidy_feed(struct tidy *tidy, const char *bytes, size_t len, const struct tidy_sink *sink,
               void *data)
{
    for (size_t at = 0; at < len;) {
        unsigned char c = (unsigned char)bytes[at];
        if (tidy->state != TIDY_TEXT && in_sequence(tidy, c, sink, data)) {
            at++;
        } else if (is_control(c)) {
            control(tidy, c, sink, data);
            at++;
        } else {
            size_t end = at + 1;
            while (end < len && !is_control((unsigned char)bytes[end]))
                end++;
            prepare_line(tidy, sink, data);
            sink->add(bytes + at, end - at, data);
            at = end;
        }
    }
}

void tidy_end(struct tidy *tidy, const struct tidy_sink *sink, void *data)
{
    finish_line(tidy, sink, data);
    *tidy = (struct tidy){ 0 };
}

size_t tidy_chars_len(const char *text, size_t len, size_t *count)
{
    size_t at = len;
    for (; at > 0 && *count > 0; (*count)--) {
        at--;
        while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
    }
    return len - at;
}
