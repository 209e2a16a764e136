/*
 * Text that clients put into URIs and headers. The input is lines: a template, a URI, a header
 * value. Beyond "does not crash": what a match yields is clean text, a short URI matches exactly
 * when a matcher that tries everything finds a way, and decoding a header leaves nothing behind
 * when it fails.
 */
#include "base/text.h"
#include "mcp/header_rules.h"
#include "mcp/uri_template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert(): the promise is checked in every build. */
static void must(bool promise)
{
    if (!promise)
        abort();
}

/*** the matcher that tries everything ***/

enum { SLOW_URI_MAX = 40 };

static bool is_clean(const char *text, size_t len)
{
    char plain[SLOW_URI_MAX];
    size_t plain_len = 0;
    for (size_t i = 0; i < len; i++) {
        char digits[3] = { 0 };
        if (text[i] == '%') {
            if (len - i < 3)
                return false;
            memcpy(digits, text + i + 1, 2);
            i += 2;
        }
        plain[plain_len++] = *digits ? (char)strtol(digits, NULL, 16) : text[i];
    }
    return utf8_valid(plain, plain_len) && !memchr(plain, '\0', plain_len);
}

static bool slow_match(const char *templ, const char *uri)
{
    size_t literal = strcspn(templ, "{");
    if (strncmp(templ, uri, literal) != 0)
        return false;
    templ += literal;
    uri += literal;
    if (!*templ)
        return !*uri;
    bool rest = templ[1] == '+';
    const char *behind = strchr(templ, '}') + 1;
    size_t most = rest ? strlen(uri) : strcspn(uri, "/?#");
    for (size_t len = 1; len <= most; len++)
        if (is_clean(uri, len) && slow_match(behind, uri + len))
            return true;
    return false;
}

/*** the promises ***/

static void try_uri(const char *templ, const char *uri)
{
    struct uri_match match;
    bool usable = uri_template_check(templ, NULL) == 0;
    bool valid = uri_valid(uri);
    bool matches = uri_template_match(templ, uri, &match) == 0;
    if (usable && valid && strlen(uri) <= SLOW_URI_MAX)
        must(matches == slow_match(templ, uri));
    for (size_t i = 0; matches && i < match.count; i++) {
        must(match.values[i][0]);
        must(utf8_valid(match.values[i], strlen(match.values[i])));
    }
    if (matches)
        uri_match_done(&match);
    (void)uri_template_has_var(templ, uri);
    must(!*uri || uri_is_under(uri, uri));
    (void)uri_is_under(uri, templ);
}

static void try_header(const char *value)
{
    auto_buf decoded = BUF_INIT(64);
    must(buf_add_str(&decoded, "before") == 0);
    int r = header_rules_decode(value, &decoded);
    must(str_has_prefix(decoded.data, "before"));
    must(r == 0 ? utf8_valid(decoded.data, decoded.len) : decoded.len == strlen("before"));
    (void)header_rules_is_json(value);
    (void)header_rules_is_stateless(value);
    (void)header_rules_accepts(value, "text/event-stream");
    bool json = header_rules_accepts(value, "application/json");
    auto_free char *refused = xasprintf("application/json;q=0, %s", value);
    must(json || !header_rules_accepts(refused, "application/json"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *input = xstrndup((const char *)data, size);
    char none[] = "";
    char *lines[3] = { input, none, none };
    for (size_t i = 1; i < ARRAY_SIZE(lines); i++) {
        char *newline = strchr(lines[i - 1], '\n');
        if (!newline)
            break;
        *newline = '\0';
        lines[i] = newline + 1;
    }
    try_uri(lines[0], lines[1]);
    try_header(lines[2]);
    return 0;
}
