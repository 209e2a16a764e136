/*
 * Reading takes two passes. jansson parses by recursion and builds as it goes, so the bounds are
 * checked before it sees the text: one linear pass that knows strings, brackets and runs of other
 * characters, keeps a few counters and no stack. It accepts every text that is JSON within the
 * limits; what else is wrong is left to jansson to find and name.
 */
#include "base/json.h"
#include "base/num.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values come from json_read(), whose depth is bounded, and from our own code. */
enum { WRITE_DEPTH_MAX = 4096 };

/* jansson must keep base.h's promise about memory too: its constructors then never return NULL for
 * want of it, and nobody needs to ask. */
__attribute__((constructor)) static void use_checked_memory(void)
{
    json_set_alloc_funcs(xmalloc, free);
}

/*** Reading ***/

struct scan {
    const char *text;
    size_t len;
    size_t at;
    size_t depth;
    size_t nodes;
    const struct json_limits *limits;
};

static int too_big(const struct scan *scan, const char *what, size_t limit, struct err *err)
{
    return err_set(err, E2BIG, "byte %zu: %s (the limit is %zu)", scan->at, what, limit);
}

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':';
}

static bool ends_plain(char c)
{
    return is_separator(c) || c == '"' || c == '[' || c == ']' || c == '{' || c == '}';
}

/* From behind the opening quote to behind the closing one, or to the end of an unclosed string. */
static void skip_string(struct scan *scan)
{
    while (scan->at < scan->len) {
        char c = scan->text[scan->at++];
        if (c == '"')
            return;
        if (c == '\\')
            scan->at++;
    }
    scan->at = scan->len; /* a backslash may have been the last byte */
}

/* A number, a literal, or anything that is neither: up to the next structural character. */
static int skip_plain(struct scan *scan, struct err *err)
{
    size_t start = scan->at;
    bool number =
        scan->text[start] == '-' || (scan->text[start] >= '0' && scan->text[start] <= '9');
    while (scan->at < scan->len && !ends_plain(scan->text[scan->at]))
        scan->at++;
    if (number && scan->at - start > scan->limits->digits) {
        scan->at = start;
        return too_big(scan, "a number is too long", scan->limits->digits, err);
    }
    return 0;
}

/* One token. Only tokens that make a value or a key are counted as nodes. */
static int scan_token(struct scan *scan, struct err *err)
{
    char c = scan->text[scan->at];
    if (is_separator(c)) {
        scan->at++;
        return 0;
    }
    if (c == ']' || c == '}') {
        if (!scan->depth)
            return err_set(err, EBADMSG, "byte %zu: '%c' closes nothing", scan->at, c);
        scan->depth--;
        scan->at++;
        return 0;
    }
    if (++scan->nodes > scan->limits->nodes)
        return too_big(scan, "too many values and keys", scan->limits->nodes, err);
    if (c == '[' || c == '{') {
        if (++scan->depth > scan->limits->depth)
            return too_big(scan, "nested too deeply", scan->limits->depth, err);
        scan->at++;
        return 0;
    }
    if (c == '"') {
        scan->at++;
        skip_string(scan);
        return 0;
    }
    return skip_plain(scan, err);
}

static int check_bounds(const char *text, size_t len, const struct json_limits *limits,
                        struct err *err)
{
    const char *nul = len ? memchr(text, '\0', len) : NULL;
    if (nul)
        return err_set(err, EBADMSG, "byte %zu: a NUL byte", (size_t)(nul - text));
    size_t valid = utf8_span(text, len);
    if (valid < len)
        return err_set(err, EBADMSG, "byte %zu: not UTF-8", valid);

    struct scan scan = { .text = text, .len = len, .limits = limits };
    while (scan.at < len) {
        int r = scan_token(&scan, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* jansson's words, with its place; they quote the text, so a control character may be in them. */
static int parse_error(json_error_t *error, struct err *err)
{
    enum json_error_code code = json_error_code(error);
    if (code == json_error_numeric_overflow)
        return err_set(err, E2BIG, "line %d column %d: a number is out of range", error->line,
                       error->column);
    for (char *c = error->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    return err_set(err, code == json_error_stack_overflow ? E2BIG : EBADMSG,
                   "line %d column %d: %s", error->line, error->column, error->text);
}

int json_read(const char *text, size_t len, const struct json_limits *limits, json_t **ret,
              struct err *err)
{
    int r = check_bounds(text, len, limits, err);
    if (r < 0)
        return r;
    json_error_t error;
    json_t *json = json_loadb(text ? text : "", len,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!json)
        return parse_error(&error, err);
    *ret = json;
    return 0;
}

/*** Writing ***/

static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
}

static const char short_forms[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* character, letter */

size_t json_escaped_len(const char *text, size_t len)
{
    size_t escaped = len;
    for (size_t i = 0; i < len; i++) {
        if (is_plain(text[i]))
            continue;
        bool is_short = false;
        for (const char *form = short_forms; *form && !is_short; form += 2)
            is_short = *form == text[i];
        escaped += is_short ? 1 : 5;
    }
    return escaped;
}

static int write_escape(struct buf *buf, char c)
{
    for (const char *form = short_forms; *form; form += 2)
        if (*form == c)
            return buf_add(buf, (char[]){ '\\', form[1] }, 2);
    return buf_printf(buf, "\\u%04x", (unsigned char)c);
}

static int write_string(struct buf *buf, const char *text, size_t len)
{
    int r = buf_add_char(buf, '"');
    for (size_t at = 0; r == 0 && at < len;) {
        size_t plain = 0;
        while (at + plain < len && is_plain(text[at + plain]))
            plain++;
        r = buf_add(buf, text + at, plain);
        at += plain;
        if (r == 0 && at < len)
            r = write_escape(buf, text[at++]);
    }
    return r < 0 ? r : buf_add_char(buf, '"');
}

/* A real stays a real for whoever reads it: 1.0 is not written as 1. */
static int write_real(struct buf *buf, double value)
{
    char text[NUM_REAL_MAX];
    num_format_real(value, text);
    return buf_printf(buf, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static int write_value(struct buf *buf, const json_t *json, unsigned depth);

static int write_array(struct buf *buf, const json_t *array, unsigned depth)
{
    int r = buf_add_char(buf, '[');
    for (size_t i = 0; r == 0 && i < json_array_size(array); i++) {
        if (i)
            r = buf_add_char(buf, ',');
        if (r == 0)
            r = write_value(buf, json_array_get(array, i), depth);
    }
    return r < 0 ? r : buf_add_char(buf, ']');
}

static int write_member(struct buf *buf, void *iter, unsigned depth)
{
    int r = write_string(buf, json_object_iter_key(iter), json_object_iter_key_len(iter));
    if (r == 0)
        r = buf_add_char(buf, ':');
    return r < 0 ? r : write_value(buf, json_object_iter_value(iter), depth);
}

static int write_object(struct buf *buf, const json_t *json, unsigned depth)
{
    json_t *object =
        (json_t *)json; /* jansson's iterators take no const; reading changes nothing */
    int r = buf_add_char(buf, '{');
    void *first = json_object_iter(object);
    for (void *iter = first; r == 0 && iter; iter = json_object_iter_next(object, iter)) {
        if (iter != first)
            r = buf_add_char(buf, ',');
        if (r == 0)
            r = write_member(buf, iter, depth);
    }
    return r < 0 ? r : buf_add_char(buf, '}');
}

static int write_value(struct buf *buf, const json_t *json, unsigned depth)
{
    if (depth > WRITE_DEPTH_MAX)
        return -EMSGSIZE;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return write_object(buf, json, depth + 1);
    case JSON_ARRAY:
        return write_array(buf, json, depth + 1);
    case JSON_STRING:
        return write_string(buf, json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        return buf_printf(buf, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
    case JSON_REAL:
        return write_real(buf, json_real_value(json));
    case JSON_TRUE:
        return buf_add_str(buf, "true");
    case JSON_FALSE:
        return buf_add_str(buf, "false");
    case JSON_NULL:
        break;
    }
    return buf_add_str(buf, "null");
}

int json_write(struct buf *buf, const json_t *json)
{
    size_t before = buf->len;
    int r = write_value(buf, json, /* depth= */ 0);
    if (r < 0)
        buf_cut(buf, before);
    return r;
}

char *json_text(const json_t *json)
{
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    int r = json_write(&buf, json);
    assert(r == 0);
    (void)r;
    return buf_steal(&buf);
}

/*** Making and looking up ***/

json_t *json_text_value(const char *text, size_t len)
{
    if (utf8_valid(text, len))
        return json_stringn_nocheck(text, len);
    auto_buf clean = BUF_INIT(BUF_NO_CEILING);
    (void)utf8_add_clean(&clean, text, len); /* no ceiling to reach */
    return json_stringn_nocheck(buf_str(&clean), clean.len);
}

const char *json_str(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

/* What only a mistake in our own source can make false. */
static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "belljar: bug: json: %s\n", what);
    abort();
}

json_t *json_literal(const char *text)
{
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    must(json, text);
    return json;
}

void json_put(json_t *object, const char *key, json_t *value)
{
    must(json_object_set_new(object, key, value) == 0, key);
}

void json_put_str(json_t *object, const char *key, const char *text)
{
    json_put(object, key, json_text_value(text, strlen(text)));
}

void json_push(json_t *array, json_t *value)
{
    must(json_array_append_new(array, value) == 0, "push");
}
