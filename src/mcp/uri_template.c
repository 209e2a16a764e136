/*
 * Why matching needs no backtracking: two variables always have text between them, and {+name} is
 * the last one. So the text behind a {name} may be taken where it first occurs (had a later place
 * led to a match, the earlier one does too: the next variable just begins sooner, in the same
 * segment), and text at the end of the template is simply the end of the URI. An escape is one
 * character in all this: no place is looked for inside %20. tests/fuzz/fuzz_uri.c compares with a
 * matcher that tries everything.
 */
#include "mcp/uri_template.h"
#include "base/buf.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define SCHEME_CHARS LETTERS DIGITS "+-."
#define NAME_CHARS LETTERS DIGITS "_."
/* RFC 3986: unreserved, gen-delims but for brackets, sub-delims. '%' is looked at apart. */
#define URI_CHARS LETTERS DIGITS "-._~:/?#@!$&'()*+,;="

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_escape(const char *text)
{
    return text[0] == '%' && hex_value(text[1]) >= 0 && hex_value(text[2]) >= 0;
}

/* What an escape stands for. */
static char escaped_char(const char *text)
{
    return (char)((unsigned)hex_value(text[1]) << 4 | (unsigned)hex_value(text[2]));
}

/* The length of "scheme:" at the start, 0 when there is none. */
static size_t scheme_span(const char *text)
{
    size_t len = *text ? strspn(text, SCHEME_CHARS) : 0;
    return len && strchr(LETTERS, *text) && text[len] == ':' ? len + 1 : 0;
}

/* The text without escapes, owned by the caller; NULL when it is not clean text. */
static char *unescape(const char *text, size_t len)
{
    auto_buf value = BUF_INIT(URI_MAX);
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '%') {
            if (len - i < 3 || !is_escape(text + i))
                return NULL;
            c = escaped_char(text + i);
            i += 2;
        }
        if (!c || buf_add_char(&value, c) < 0)
            return NULL;
    }
    return utf8_valid(buf_str(&value), value.len) ? buf_steal(&value) : NULL;
}

/*** templates ***/

/* Literal text, and the variable behind it unless the template ends there. */
struct part {
    const char *literal;
    size_t literal_len;
    const char *name; /* NULL: none */
    size_t name_len;
    bool rest; /* {+name} */
};

/* Reads the part at *at and moves behind it. False: a brace is out of place, or a name is empty or
 * has a foreign character. */
static bool next_part(const char **at, struct part *ret)
{
    *ret = (struct part){ .literal = *at, .literal_len = strcspn(*at, "{}") };
    const char *text = *at + ret->literal_len;
    if (*text == '{') {
        ret->rest = text[1] == '+';
        ret->name = text + 1 + ret->rest;
        ret->name_len = strspn(ret->name, NAME_CHARS);
        text = ret->name + ret->name_len;
        if (!ret->name_len || *text != '}')
            return false;
        text++;
    } else if (*text == '}') {
        return false;
    }
    *at = text;
    return true;
}

static bool part_is(const struct part *part, const char *name)
{
    return part->name_len == strlen(name) && strncmp(part->name, name, part->name_len) == 0;
}

bool uri_template_has_var(const char *templ, const char *name)
{
    struct part part;
    while (next_part(&templ, &part) && part.name)
        if (part_is(&part, name))
            return true;
    return false;
}

/* Characters of URIs only, and what is escaped are whole UTF-8 characters: then a literal never
 * begins within a character of a value. */
static bool is_literal(const struct part *part)
{
    for (size_t i = 0; i < part->literal_len; i++)
        if (!strchr(URI_CHARS, part->literal[i]) && !is_escape(part->literal + i))
            return false;
    auto_free char *text = unescape(part->literal, part->literal_len);
    return text;
}

/* Is the variable of `part` in the template before it already? */
static bool is_repeated(const char *templ, const struct part *part)
{
    struct part before;
    while (next_part(&templ, &before) && before.name && before.name < part->name)
        if (before.name_len == part->name_len &&
            strncmp(before.name, part->name, part->name_len) == 0)
            return true;
    return false;
}

int uri_template_check(const char *templ, struct err *err)
{
    if (!scheme_span(templ))
        return err_set(err, EINVAL, "URI template %s: it must begin with a scheme", templ);
    const char *at = templ;
    bool after_rest = false;
    for (size_t vars = 0;; vars++) {
        const char *here = at;
        struct part part;
        if (!next_part(&at, &part))
            return err_set(err, EINVAL, "URI template %s: only {name} and {+name} are known, at %s",
                           templ, here);
        if (!is_literal(&part))
            return err_set(err, EINVAL, "URI template %s: a character is not of URIs, at %s", templ,
                           here);
        if (!part.name)
            return 0;
        if (vars == URI_TEMPLATE_MAX_VARS)
            return err_set(err, EINVAL, "URI template %s: more than %d variables", templ,
                           URI_TEMPLATE_MAX_VARS);
        if (vars && !part.literal_len)
            return err_set(err, EINVAL, "URI template %s: two variables touch", templ);
        if (after_rest)
            return err_set(err, EINVAL, "URI template %s: {+name} must be the last variable",
                           templ);
        if (is_repeated(templ, &part))
            return err_set(err, EINVAL, "URI template %s: %.*s occurs twice", templ,
                           (int)part.name_len, part.name);
        after_rest = part.rest;
    }
}

/*** matching ***/

static const char *next_char(const char *uri)
{
    return uri + (is_escape(uri) ? 3 : 1);
}

/* Where the variable in front of `next` ends in `uri`; NULL when `next` does not follow. */
static const char *find_end(const char *uri, const struct part *next)
{
    size_t len = strlen(uri);
    if (len < next->literal_len + 1)
        return NULL;
    const char *last = uri + len - next->literal_len;
    const char *at = next->name ? next_char(uri) : last;
    for (; at <= last; at = next_char(at))
        if (memcmp(at, next->literal, next->literal_len) == 0)
            return at;
    return NULL;
}

static bool match_parts(const char *templ, const char *uri, struct uri_match *match)
{
    struct part part, next;
    if (!next_part(&templ, &part) || strncmp(uri, part.literal, part.literal_len) != 0)
        return false;
    uri += part.literal_len;
    for (; part.name; part = next) {
        if (match->count == URI_TEMPLATE_MAX_VARS || !next_part(&templ, &next))
            return false;
        const char *end = find_end(uri, &next);
        if (!end)
            return false;
        size_t len = (size_t)(end - uri);
        if (!part.rest && strcspn(uri, "/?#") < len)
            return false;
        char *value = unescape(uri, len);
        if (!value)
            return false;
        match->values[match->count++] = value;
        uri = end + next.literal_len;
    }
    return !*uri;
}

int uri_template_match(const char *templ, const char *uri, struct uri_match *ret)
{
    struct uri_match match = { 0 };
    if (strnlen(uri, URI_MAX + 1) > URI_MAX || !match_parts(templ, uri, &match)) {
        uri_match_done(&match);
        return -ENOENT;
    }
    *ret = match;
    return 0;
}

void uri_match_done(struct uri_match *match)
{
    for (size_t i = 0; i < match->count; i++)
        free(match->values[i]);
    *match = (struct uri_match){ 0 };
}

/*** URIs ***/

bool uri_valid(const char *uri)
{
    size_t scheme = scheme_span(uri);
    if (!scheme || strnlen(uri, URI_MAX + 1) > URI_MAX)
        return false;
    const char *at = uri + scheme;
    bool in_authority = str_has_prefix(at, "//"); /* the only place for brackets, of IPv6 */
    bool in_fragment = false;
    for (at += in_authority ? 2 : 0; *at; at++) {
        if (strchr("/?#", *at))
            in_authority = false;
        if (*at == '#' && in_fragment)
            return false;
        in_fragment |= *at == '#';
        bool bracket = in_authority && (*at == '[' || *at == ']');
        if (!strchr(URI_CHARS, *at) && !bracket && !is_escape(at))
            return false;
    }
    return true;
}

bool uri_is_under(const char *uri, const char *parent)
{
    size_t len = strlen(parent);
    if (!len || strncmp(uri, parent, len) != 0)
        return false;
    return !uri[len] || uri[len] == '/' || parent[len - 1] == '/';
}
