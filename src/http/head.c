#include "http/head.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/*** Characters ***/

enum { V = 1, T = 2, K = 4, H = 8 }; /* field value, target, token, host name */

static const unsigned char classes[256] = {
    ['\t'] = V,
    [' '] = V,
    ['!'] = V | T | K,
    ['"'] = V | T,
    ['#'] = V | K, /* a fragment is never sent */
    ['$' ... '\''] = V | T | K,
    ['(' ... ')'] = V | T,
    ['*' ... '+'] = V | T | K,
    [','] = V | T,
    ['-' ... '.'] = V | T | K | H,
    ['/'] = V | T,
    ['0' ... '9'] = V | T | K | H,
    [':' ... '@'] = V | T,
    ['A' ... 'Z'] = V | T | K | H,
    ['[' ... ']'] = V | T,
    ['^'] = V | T | K,
    ['_'] = V | T | K | H,
    ['`'] = V | T | K,
    ['a' ... 'z'] = V | T | K | H,
    ['{'] = V | T,
    ['|'] = V | T | K,
    ['}'] = V | T,
    ['~'] = V | T | K | H,
    [0x80 ... 0xff] = V,
};

static bool is(char c, unsigned class)
{
    return classes[(unsigned char)c] & class;
}

/* Of a string: no class holds NUL. */
static size_t span(const char *text, unsigned class)
{
    size_t len = 0;
    while (is(text[len], class))
        len++;
    return len;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int fault_set(struct fault *ret, int status, const char *why)
{
    *ret = (struct fault){ .status = status, .why = why };
    return -EBADMSG;
}

/*** Finding the end ***/

static int refuse_byte(char c, struct fault *ret_fault)
{
    if (c == '\n')
        return fault_set(ret_fault, 400, "line feed without carriage return in the head");
    return fault_set(ret_fault, 400, "control character in the head");
}

ssize_t head_scan(struct head_scan *scan, const char *text, size_t len,
                  const struct head_limits *limits, struct fault *ret_fault)
{
    size_t end = len < limits->bytes ? len : limits->bytes;
    size_t i = scan->pos;
    while (i < end) {
        if (is(text[i], V)) {
            i++;
            continue;
        }
        if (text[i] != '\r')
            return refuse_byte(text[i], ret_fault);
        if (i + 1 == end)
            break;
        if (text[i + 1] != '\n')
            return fault_set(ret_fault, 400, "carriage return without line feed in the head");

        bool empty = i == 0 || text[i - 1] == '\n';
        if (empty && scan->lines > 0)
            return (ssize_t)i + 2;
        if (empty && i > 0)
            return fault_set(ret_fault, 400, "empty lines before the request line");
        if (!empty && scan->lines++ > limits->fields)
            return fault_set(ret_fault, 431, "too many header fields");
        i += 2;
    }
    scan->pos = i;
    if (len >= limits->bytes)
        return fault_set(ret_fault, 431, "request head too large");
    return 0;
}

/*** The request line ***/

static int parse_target(struct head *head, char *target, struct fault *ret_fault)
{
    bool asterisk = strcmp(target, "*") == 0 && strcmp(head->method, "OPTIONS") == 0;
    if (target[0] != '/' && !asterisk)
        return fault_set(ret_fault, 400, "request target must be a path");

    char *mark = strchr(target, '?');
    if (mark)
        *mark = '\0';
    head->path = target;
    head->query = mark ? mark + 1 : NULL;
    return 0;
}

static int parse_request_line(struct head *head, char *line, struct fault *ret_fault)
{
    char *method_end = line + span(line, K);
    if (method_end == line || *method_end != ' ')
        return fault_set(ret_fault, 400, "malformed method in the request line");
    char *target = method_end + 1;
    char *target_end = target + span(target, T);
    if (target_end == target || *target_end != ' ')
        return fault_set(ret_fault, 400, "malformed target in the request line");
    const char *version = target_end + 1;
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return fault_set(ret_fault, 400, "version must be HTTP/1.1 or HTTP/1.0");

    *method_end = '\0';
    *target_end = '\0';
    head->method = line;
    head->minor = version[7] - '0';
    return parse_target(head, target, ret_fault);
}

/*** Fields that decide framing ***/

/* What the fields said, before it is weighed as a whole. */
struct facts {
    unsigned hosts;
    unsigned lengths;
    unsigned codings;
    unsigned expects;
    bool close;
    bool keep_alive;
};

static bool port_ok(const char *port)
{
    unsigned value = 0;
    size_t digits = 0;
    for (; digits < 6 && is_digit(port[digits]); digits++)
        value = value * 10 + (unsigned)(port[digits] - '0');
    return digits > 0 && port[digits] == '\0' && value <= 65535;
}

/* A name, an IPv4 address or an IPv6 address in brackets; then a port or nothing. Narrower than
 * RFC 3986: no percent-encoding, no sub-delimiters, no user, no empty port. */
static bool host_ok(const char *host)
{
    const char *rest = host;
    if (*rest == '[') {
        rest += 1 + strspn(rest + 1, "0123456789abcdefABCDEF:.");
        if (*rest != ']' || rest == host + 1)
            return false;
        rest++;
    } else {
        rest += span(rest, H);
        if (rest == host)
            return false;
    }
    return *rest == '\0' || (*rest == ':' && port_ok(rest + 1));
}

static int take_host(struct head *head, struct facts *facts, const char *value,
                     struct fault *ret_fault)
{
    (void)head;
    if (facts->hosts++)
        return fault_set(ret_fault, 400, "more than one Host field");
    return host_ok(value) ? 0 : fault_set(ret_fault, 400, "malformed Host field");
}

static int take_length(struct head *head, struct facts *facts, const char *value,
                       struct fault *ret_fault)
{
    if (facts->lengths++)
        return fault_set(ret_fault, 400, "more than one Content-Length field");
    uint64_t length = 0;
    const char *c = value;
    for (; is_digit(*c); c++) {
        if (__builtin_mul_overflow(length, 10, &length) ||
            __builtin_add_overflow(length, (uint64_t)(*c - '0'), &length))
            return fault_set(ret_fault, 400, "Content-Length out of range");
    }
    if (c == value || *c)
        return fault_set(ret_fault, 400, "malformed Content-Length field");
    head->content_length = length;
    return 0;
}

static int take_coding(struct head *head, struct facts *facts, const char *value,
                       struct fault *ret_fault)
{
    if (facts->codings++)
        return fault_set(ret_fault, 400, "more than one Transfer-Encoding field");
    if (!*value)
        return fault_set(ret_fault, 400, "empty Transfer-Encoding field");
    if (strcasecmp(value, "chunked") != 0)
        return fault_set(ret_fault, 501, "Transfer-Encoding must be exactly \"chunked\"");
    head->chunked = true;
    return 0;
}

static int take_expect(struct head *head, struct facts *facts, const char *value,
                       struct fault *ret_fault)
{
    if (facts->expects++ || strcasecmp(value, "100-continue") != 0)
        return fault_set(ret_fault, 417, "only \"Expect: 100-continue\" is understood");
    head->expect_continue = true;
    return 0;
}

static bool option_is(const char *option, size_t len, const char *name)
{
    return len == strlen(name) && strncasecmp(option, name, len) == 0;
}

/* A list of options: "keep-alive, Upgrade". Unknown ones and empty places are no concern of ours. */
static int take_connection(struct head *head, struct facts *facts, const char *value,
                           struct fault *ret_fault)
{
    (void)head;
    (void)ret_fault;
    while (*value) {
        value += strspn(value, ", \t");
        size_t len = strcspn(value, ", \t");
        if (option_is(value, len, "close"))
            facts->close = true;
        else if (option_is(value, len, "keep-alive"))
            facts->keep_alive = true;
        value += len;
    }
    return 0;
}

#define FIELD(name) name, sizeof(name) - 1
static const struct known_field {
    const char *name;
    size_t len;
    int (*take)(struct head *head, struct facts *facts, const char *value, struct fault *ret_fault);
} known_fields[] = {
    { FIELD("Host"), take_host },
    { FIELD("Content-Length"), take_length },
    { FIELD("Transfer-Encoding"), take_coding },
    { FIELD("Connection"), take_connection },
    { FIELD("Expect"), take_expect },
};

static int take_field(struct head *head, struct facts *facts, const struct head_field *field,
                      size_t name_len, struct fault *ret_fault)
{
    for (size_t i = 0; i < ARRAY_SIZE(known_fields); i++) {
        const struct known_field *known = &known_fields[i];
        if (known->len == name_len && strncasecmp(known->name, field->name, name_len) == 0)
            return known->take(head, facts, field->value, ret_fault);
    }
    return 0;
}

/* What two fields together, or a field and the version, make wrong. The mixtures refused here are
 * those by which two servers in a row can be made to disagree about where a request ends. */
static int weigh(struct head *head, const struct facts *facts, struct fault *ret_fault)
{
    if (facts->hosts == 0 && head->minor == 1)
        return fault_set(ret_fault, 400, "no Host field");
    if (facts->lengths && facts->codings)
        return fault_set(ret_fault, 400, "both Content-Length and Transfer-Encoding");
    if (facts->codings && head->minor == 0)
        return fault_set(ret_fault, 400, "Transfer-Encoding in an HTTP/1.0 request");

    head->keep_alive = !facts->close && (head->minor == 1 || facts->keep_alive);
    if (head->minor == 0)
        head->expect_continue = false; /* RFC 9110, 10.1.1: ignore it */
    return 0;
}

/*** The whole ***/

static int parse_field(char *line, struct head_field *ret, size_t *ret_name_len,
                       struct fault *ret_fault)
{
    if (is_blank(*line))
        return fault_set(ret_fault, 400, "folded header field");
    size_t name_len = span(line, K);
    if (name_len == 0 || line[name_len] != ':')
        return fault_set(ret_fault, 400, "malformed header field name");
    line[name_len] = '\0';

    char *value = line + name_len + 1;
    while (is_blank(*value))
        value++;
    char *end = value + strlen(value);
    while (end > value && is_blank(end[-1]))
        end--;
    *end = '\0';

    *ret = (struct head_field){ .name = line, .value = value };
    *ret_name_len = name_len;
    return 0;
}

/* The line at *cursor as a string, and *cursor behind its end. */
static char *next_line(char **cursor)
{
    char *line = *cursor;
    char *end = rawmemchr(line, '\r'); /* there is one: head_scan() saw the blank line */
    *end = '\0';
    *cursor = end + 2;
    return line;
}

int head_parse(char *text, struct head_field *fields, struct head *ret, struct fault *ret_fault)
{
    struct head head = { .fields = fields };
    struct facts facts = { 0 };
    char *cursor = *text == '\r' ? text + 2 : text;
    int r = parse_request_line(&head, next_line(&cursor), ret_fault);
    while (r == 0 && *cursor != '\r') {
        struct head_field *field = &fields[head.n_fields++];
        size_t name_len = 0;
        r = parse_field(next_line(&cursor), field, &name_len, ret_fault);
        if (r == 0)
            r = take_field(&head, &facts, field, name_len, ret_fault);
    }
    if (r == 0)
        r = weigh(&head, &facts, ret_fault);
    if (r == 0)
        *ret = head;
    return r;
}

const char *head_find(const struct head *head, const char *name, size_t *pos)
{
    while (*pos < head->n_fields) {
        const struct head_field *field = &head->fields[(*pos)++];
        if (strcasecmp(field->name, name) == 0)
            return field->value;
    }
    return NULL;
}
