#include "packages/requirement.h"

#include "base/buf.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 16 }; /* extras, or specifiers, of one requirement */

static const char LETTERS_AND_DIGITS[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

struct parts {
    char *items[PARTS_MAX];
    size_t count;
};

static void parts_done(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        free(parts->items[i]);
}

/*** What is wrong, in words ***/

static int refuse(struct err *err, const char *text, const char *why)
{
    auto_free char *quoted = text_quote(text, 80);
    return err_set(err, EINVAL,
                   "packages: %s: %s; write a package's name as on the index, optionally with "
                   "[extras] and versions, such as \"requests>=2.31\"",
                   quoted, why);
}

/* What people and attackers send instead of a name deserves its own answer. */
static const char *foreign(const char *text)
{
    if (!*text)
        return "the name is empty";
    if (strlen(text) > REQUIREMENT_MAX)
        return "longer than 200 characters";
    if (*text == '-')
        return "options are not accepted";
    if (strstr(text, "://") || strchr(text, '@'))
        return "URLs are not accepted";
    if (strchr(text, '/') || strchr(text, '\\') || *text == '.' || *text == '~')
        return "paths are not accepted";
    if (strchr(text, ';'))
        return "environment markers are not accepted";
    return NULL;
}

/*** Reading ***/

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* Letters and digits at both ends, dots, dashes and underscores between them. 0: none here. */
static size_t name_len(const char *at)
{
    size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    bool good = len > 0 && isalnum((unsigned char)at[0]) && isalnum((unsigned char)at[len - 1]);
    return good ? len : 0;
}

/* PEP 503: lower case, and each run of separators one dash. */
static char *normal_name(const char *at, size_t len)
{
    auto_buf name = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < len; i++) {
        bool separator = !isalnum((unsigned char)at[i]);
        if (!separator)
            (void)buf_add_char(&name, (char)tolower((unsigned char)at[i]));
        else if (name.data[name.len - 1] != '-')
            (void)buf_add_char(&name, '-');
    }
    return buf_steal(&name);
}

static const char *read_extras(const char *at, struct parts *ret, const char **ret_why)
{
    if (*at != '[')
        return at;
    at = skip_blanks(at + 1);
    while (*at != ']') {
        size_t len = name_len(at);
        if (!len || ret->count == PARTS_MAX) {
            *ret_why = len ? "more than 16 extras" : "the extras in brackets are not names";
            return NULL;
        }
        ret->items[ret->count++] = normal_name(at, len);
        at = skip_blanks(at + len);
        if (*at == ',')
            at = skip_blanks(at + 1);
        else if (*at != ']')
            at = ""; /* an end without a bracket: no name there */
    }
    return skip_blanks(at + 1);
}

static const char *operator_at(const char *at)
{
    static const char *const operators[] = { "===", "~=", "==", "!=", "<=", ">=", "<", ">" };
    for (size_t i = 0; i < ARRAY_SIZE(operators); i++)
        if (str_has_prefix(at, operators[i]))
            return operators[i];
    return NULL;
}

/* PEP 440's alphabet; the installer knows the rest. A star ends a version after == or !=. */
static size_t version_len(const char *at, const char *operator)
{
    size_t len = strspn(at, LETTERS_AND_DIGITS);
    if (len == 0)
        return 0;
    len += strspn(at + len, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+!_-");
    bool prefix = str_eq(operator, "==") || str_eq(operator, "!=");
    if (prefix && at[len] == '*' && at[len - 1] == '.')
        return len + 1;
    return isalnum((unsigned char)at[len - 1]) ? len : 0;
}

static const char *read_versions(const char *at, struct parts *ret, const char **ret_why)
{
    bool parenthesis = *at == '(';
    if (parenthesis)
        at = skip_blanks(at + 1);
    while (*at && *at != ')') {
        const char *operator= operator_at(at);
        const char *version = operator? skip_blanks(at + strlen(operator)) : at;
        size_t len = operator? version_len(version, operator) : 0;
        if (!operator|| !len || ret->count == PARTS_MAX) {
            *ret_why = !operator? "what follows the name is no version such as ==1.2 or >=1,<2"
                       : !len   ? "a version is missing or malformed"
                                : "more than 16 versions";
            return NULL;
        }
        ret->items[ret->count++] = xasprintf("%s%.*s", operator,(int) len, version);
        at = skip_blanks(version + len);
        if (*at == ',' && operator_at(skip_blanks(at + 1)))
            at = skip_blanks(at + 1);
        else if (*at && *at != ')') {
            *ret_why = "versions are separated by commas";
            return NULL;
        }
    }
    if (parenthesis != (*at == ')')) {
        *ret_why = "a parenthesis is missing";
        return NULL;
    }
    return parenthesis ? skip_blanks(at + 1) : at;
}

/*** Writing ***/

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_parts(struct buf *buf, struct parts *parts)
{
    qsort(parts->items, parts->count, sizeof(parts->items[0]), by_text);
    bool first = true;
    for (size_t i = 0; i < parts->count; i++) {
        if (i && str_eq(parts->items[i], parts->items[i - 1]))
            continue;
        (void)buf_printf(buf, "%s%s", first ? "" : ",", parts->items[i]);
        first = false;
    }
}

char *requirement_normalise(const char *text, struct err *err)
{
    __attribute__((cleanup(parts_done))) struct parts extras = { 0 }, versions = { 0 };
    const char *begin = skip_blanks(text), *why = foreign(begin);
    size_t len = why ? 0 : name_len(begin);
    if (!why && !len)
        why = "that is no name of a package";
    const char *at = why ? NULL : skip_blanks(begin + len);
    at = at ? read_extras(at, &extras, &why) : NULL;
    at = at ? read_versions(at, &versions, &why) : NULL;
    if (at && *at)
        why = "something follows the versions";
    if (why) {
        (void)refuse(err, text, why);
        return NULL;
    }
    auto_buf normal = BUF_INIT(BUF_NO_CEILING);
    auto_free char *name = normal_name(begin, len);
    (void)buf_add_str(&normal, name);
    if (extras.count) {
        (void)buf_add_char(&normal, '[');
        add_parts(&normal, &extras);
        (void)buf_add_char(&normal, ']');
    }
    add_parts(&normal, &versions);
    return buf_steal(&normal);
}

void requirements_free(char **requirements, size_t n)
{
    for (size_t i = 0; requirements && i < n; i++)
        free(requirements[i]);
    free(requirements);
}

char **requirements_normalise(const char *const *texts, size_t n, size_t *ret_n, struct err *err)
{
    char **all = xcalloc(n + 1, sizeof(*all));
    for (size_t i = 0; i < n; i++) {
        all[i] = requirement_normalise(texts[i], err);
        if (!all[i]) {
            requirements_free(all, i);
            return NULL;
        }
    }
    qsort(all, n, sizeof(*all), by_text);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept && str_eq(all[i], all[kept - 1]))
            free(all[i]);
        else
            all[kept++] = all[i];
    }
    *ret_n = kept;
    return all;
}
