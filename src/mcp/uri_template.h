/*
 * uri_template: matches URIs against the part of RFC 6570 that resources use: literal text, {name}
 * (one segment: no '/', '?', '#'), {+name} (anything); both take at least one character. There is
 * literal text between two variables, and {+name} comes last. Pure.
 */
#ifndef BELLJAR_MCP_URI_TEMPLATE_H
#define BELLJAR_MCP_URI_TEMPLATE_H

#include "base/err.h"

enum { URI_TEMPLATE_MAX_VARS = 8, URI_MAX = 4096 };

struct uri_match {
    size_t count;
    char *values[URI_TEMPLATE_MAX_VARS]; /* percent-decoded, NUL-free, valid UTF-8; owned */
};

/* Is this a template we can match? For registration. */
int uri_template_check(const char *templ, struct err *err);

/* 0 and *ret filled (release with uri_match_done()), or -ENOENT. Never backtracks. The segments are
 * those of the URI as written: the value of {name} holds a '/' when it was written %2F. */
int uri_template_match(const char *templ, const char *uri, struct uri_match *ret);
void uri_match_done(struct uri_match *match);

/* Is `name` a variable of the template? */
bool uri_template_has_var(const char *templ, const char *name);

/* An absolute URI: scheme, ':', then characters of RFC 3986 only; at most URI_MAX bytes. */
bool uri_valid(const char *uri);

/* Does `uri` equal `parent`, or lie below it (parent is a prefix that ends at a '/')? */
bool uri_is_under(const char *uri, const char *parent);

#endif
