/*
 * text: UTF-8, words for people, base64 and random names. Pure but for the random source.
 */
#ifndef BELLJAR_BASE_TEXT_H
#define BELLJAR_BASE_TEXT_H

#include "base/buf.h"

/* Strict: no overlong forms, surrogates or values over U+10FFFF. */
bool utf8_valid(const char *text, size_t len);

/* How many bytes at the start are valid; `len` when all are. */
size_t utf8_span(const char *text, size_t len);

/* The bytes of the first character (1 to 4) and, if asked for, its code point. 0: not valid. */
size_t utf8_char(const char *text, size_t len, uint32_t *ret_point);

/* Appends `text` with every invalid byte replaced by U+FFFD. */
int utf8_add_clean(struct buf *buf, const char *text, size_t len);

/* The first character of `text` as people may see it: itself; \n, \t or \u001b for what a terminal
 * would obey or hide; \xff for a byte that is not UTF-8. Returns the bytes that it stands for. */
enum { TEXT_SHOWN_MAX = 8 };
size_t text_show_char(const char *text, size_t len, char out[static TEXT_SHOWN_MAX]);

/* `text` in double quotes for a message, each character shown as above and quote and backslash
 * escaped; of a longer text the first `max` bytes and "...". Owned by the caller. */
char *text_quote(const char *text, size_t max);

/* Which of `names` was probably meant by the mistyped `word`; NULL when none is near. */
const char *text_nearest(const char *word, const char *const names[], size_t count);

/* Standard alphabet, padded, no line breaks. */
int base64_add(struct buf *buf, const void *data, size_t len);
char *base64_encode(const void *data, size_t len);

/* Appends the bytes. Canonical text only: right padding, no foreign character, unused bits zero.
 * -EINVAL, or -EMSGSIZE at the ceiling of `ret`; nothing is appended then. */
int base64_decode(const char *text, size_t len, struct buf *ret);

/* Bytes from the kernel's random source; ends the process if there is none. */
void random_bytes(void *out, size_t len);

/* A secret name: 22 URL-safe characters, 132 random bits, and a NUL. */
enum { RANDOM_ID_LEN = 22, RANDOM_ID_SIZE = 23 };
void random_id(char out[static RANDOM_ID_SIZE]);

/* Equal, in time that depends only on the lengths. */
bool secret_eq(const char *a, const char *b);

#endif
