/*
 * json: jansson behind one door. Everything that reads or writes JSON text goes through here, so
 * that the bounds on hostile text and the form of what we emit are decided in one place.
 *
 * Reading: UTF-8 only, no duplicate keys, nesting, number length and node count bounded before
 * anything is built (jansson's tree takes about twelve times the text). Numbers keep 64-bit integers
 * exact; an integer beyond int64 and a fraction beyond double are refused, not rounded.
 *
 * Writing: compact, members in insertion order, shortest decimal that reads back as the same
 * double, control characters escaped.
 */
#ifndef BELLJAR_BASE_JSON_H
#define BELLJAR_BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

struct json_limits {
    size_t depth;  /* nested arrays and objects */
    size_t digits; /* characters of one number */
    size_t nodes;  /* values and keys in the whole text */
};
#define JSON_LIMITS_DEFAULT ((struct json_limits){ .depth = 128, .digits = 512, .nodes = 200000 })

/* `auto_json *json = NULL;` is released at the end of the scope (json_decrefp() is jansson's). */
#define auto_json __attribute__((cleanup(json_decrefp))) json_t

/* Any JSON value. -EBADMSG: not JSON. -E2BIG: JSON, but beyond a limit. err says what and where. */
int json_read(const char *text, size_t len, const struct json_limits *limits, json_t **ret,
              struct err *err);

/* Appends the text of `json`. -EMSGSIZE when the buffer's ceiling is reached: the buffer then ends
 * with what was there before. */
int json_write(struct buf *buf, const json_t *json);

/* How many bytes json_write() makes of these inside a string; what is no UTF-8 counts as it is. */
size_t json_escaped_len(const char *text, size_t len);

/* The text of `json`, owned by the caller; for values that the program itself made. */
char *json_text(const json_t *json);

/* A string from bytes that may be anything: invalid UTF-8 becomes U+FFFD. */
json_t *json_text_value(const char *text, size_t len);

/* Member `key` as a string without NUL bytes; NULL when absent, another type, or with a NUL. */
const char *json_str(const json_t *object, const char *key);

/* For JSON literals in our own source: must parse. Takes ownership of nothing; never NULL. */
json_t *json_literal(const char *text);

/* object[key] = value, taking over `value`; the program's own keys, so it cannot fail. */
void json_put(json_t *object, const char *key, json_t *value);
void json_put_str(json_t *object, const char *key, const char *text);
void json_push(json_t *array, json_t *value);

#endif
