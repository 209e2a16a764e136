/*
 * Headers repeat parts of the body so that intermediaries can route and filter without reading it.
 * The body is what we act on; but if the two differed, the intermediary would have judged another
 * request than the one we serve. Hence every disagreement is refused, and so is every header that
 * two readers could read differently: sent twice, with characters outside ASCII, with base64 that
 * has more than one spelling.
 */
#include "mcp/header_rules.h"
#include "base/text.h"
#include "mcp/mcp.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define SENTINEL_START "=?base64?"
#define SENTINEL_END "?="

/*** values ***/

/* Characters a header carries as they are; everything else travels as base64. */
static bool is_header_text(const char *value)
{
    for (; *value; value++)
        if (*value != '\t' && (*value < 0x20 || *value > 0x7e))
            return false;
    return true;
}

int header_rules_decode(const char *value, struct buf *ret)
{
    size_t len = strlen(value);
    const size_t start = strlen(SENTINEL_START), end = strlen(SENTINEL_END);
    bool encoded = len >= start + end && str_has_prefix(value, SENTINEL_START) &&
                   strcmp(value + len - end, SENTINEL_END) == 0;
    if (!encoded)
        return is_header_text(value) && buf_add(ret, value, len) == 0 ? 0 : -EINVAL;

    size_t before = ret->len;
    if (base64_decode(value + start, len - start - end, ret) < 0)
        return -EINVAL;
    if (!utf8_valid(buf_str(ret) + before, ret->len - before)) {
        buf_cut(ret, before);
        return -EINVAL;
    }
    return 0;
}

bool header_rules_is_stateless(const char *version)
{
    return version && strcmp(version, revision_name(REVISION_FIRST_STATELESS)) >= 0;
}

/*** refusals ***/

static int refuse(struct rpc_error *error, const char *header, const char *what)
{
    rpc_error_set(error, MCP_HEADER_MISMATCH, "Header mismatch: %s %s", header, what);
    error->data = json_object();
    json_put_str(error->data, "header", header);
    return -EBADMSG;
}

static int refuse_missing(struct rpc_error *error, const char *header)
{
    return refuse(error, header, "is required");
}

/* Both sides go into the data, where nothing needs to be shortened. */
static int refuse_difference(struct rpc_error *error, const char *header, const char *value,
                             const char *body, size_t body_len)
{
    (void)refuse(error, header, "differs from the body");
    json_t *mismatch = json_object();
    json_put_str(mismatch, "header", value);
    json_put(mismatch, "body", json_text_value(body, body_len));
    json_put(error->data, "mismatch", mismatch);
    return -EBADMSG;
}

/* 0, and *ret_value NULL when there is no such header. */
static int look_up(const char *header, header_lookup_fn *lookup, const void *data,
                   const char **ret_value, struct rpc_error *error)
{
    struct mirrored found = lookup(header, data);
    if (found.count > 1)
        return refuse(error, header, "was sent more than once");
    *ret_value = found.value;
    return 0;
}

/* The header, decoded, says exactly `body`. */
static int compare_decoded(const char *header, const char *value, const char *body, size_t body_len,
                           struct rpc_error *error)
{
    auto_buf decoded = BUF_INIT(BUF_NO_CEILING);
    if (header_rules_decode(value, &decoded) < 0)
        return refuse(error, header, "is neither plain ASCII nor valid =?base64?…?=");
    if (decoded.len != body_len || memcmp(buf_str(&decoded), body, body_len) != 0)
        return refuse_difference(error, header, value, body, body_len);
    return 0;
}

/*** the standard headers ***/

static int check_literal(const char *header, const char *body, header_lookup_fn *lookup,
                         const void *data, bool required, struct rpc_error *error)
{
    const char *value;
    int r = look_up(header, lookup, data, &value, error);
    if (r < 0)
        return r;
    if (!value)
        return required ? refuse_missing(error, header) : 0;
    return str_eq(value, body) ? 0 : refuse_difference(error, header, value, body, strlen(body));
}

int header_rules_agree(const struct rpc_message *message, const char *claimed_version,
                       header_lookup_fn *lookup, const void *data, struct rpc_error *error)
{
    int r = check_literal("MCP-Protocol-Version", claimed_version, lookup, data,
                          /* required= */ false, error);
    if (r < 0 || !message->method)
        return r;
    return check_literal("Mcp-Method", message->method, lookup, data, /* required= */ false, error);
}

/* Which member of params Mcp-Name repeats. */
static const char *name_source(const char *method)
{
    static const struct {
        const char *method, *member;
    } sources[] = {
        { "tools/call", "name" },  { "prompts/get", "name" },    { "resources/read", "uri" },
        { "tasks/get", "taskId" }, { "tasks/update", "taskId" }, { "tasks/cancel", "taskId" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
        if (str_eq(sources[i].method, method))
            return sources[i].member;
    return NULL;
}

static int check_name(const struct rpc_message *message, header_lookup_fn *lookup, const void *data,
                      struct rpc_error *error)
{
    const char *source = name_source(message->method);
    const json_t *body = source ? json_object_get(message->params, source) : NULL;
    if (!source)
        return 0;
    const char *value;
    int r = look_up("Mcp-Name", lookup, data, &value, error);
    if (r < 0)
        return r;
    if (!json_is_string(body)) /* the check of the params refuses that, in better words */
        return 0;
    if (!value)
        return refuse_missing(error, "Mcp-Name");
    return compare_decoded("Mcp-Name", value, json_string_value(body), json_string_length(body),
                           error);
}

int header_rules_required(const struct rpc_message *message, header_lookup_fn *lookup,
                          const void *data, struct rpc_error *error)
{
    if (message->kind != RPC_REQUEST) /* the specification says nothing about notifications */
        return 0;
    const char *version = json_str(json_object_get(message->params, "_meta"), META_VERSION);
    int r = check_literal("MCP-Protocol-Version", version ? version : "", lookup, data,
                          /* required= */ true, error);
    if (r == 0)
        r = check_literal("Mcp-Method", message->method, lookup, data, /* required= */ true, error);
    return r < 0 ? r : check_name(message, lookup, data, error);
}

/*** arguments of tools ***/

/* A number as JSON writes it, nothing around it; NULL otherwise. A new reference. */
static json_t *parse_number(const char *text, size_t len)
{
    static const struct json_limits limits = { .depth = 1, .digits = 64, .nodes = 1 };
    json_t *number = NULL;
    bool bare = len && (*text == '-' || (*text >= '0' && *text <= '9')) && text[len - 1] >= '0' &&
                text[len - 1] <= '9';
    return bare && json_read(text, len, &limits, &number, NULL) == 0 ? number : NULL;
}

/* Exact: an integer is not rounded to be compared with a real. */
static bool numbers_equal(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    if (json_is_real(a) && json_is_real(b))
        return json_real_value(a) == json_real_value(b);
    double real = json_is_real(a) ? json_real_value(a) : json_real_value(b);
    json_int_t whole = json_is_real(a) ? json_integer_value(b) : json_integer_value(a);
    return real >= -0x1p63 && real < 0x1p63 && (double)(json_int_t)real == real &&
           (json_int_t)real == whole;
}

/* JavaScript clients have no header for an integer they cannot hold exactly. */
static bool is_unsafe_number(const json_t *body)
{
    double number = json_number_value(body);
    return json_is_number(body) && (number > 0x1p53 - 1 || number < -(0x1p53 - 1));
}

static int compare_number(const char *header, const char *value, const json_t *body,
                          struct rpc_error *error)
{
    auto_buf decoded = BUF_INIT(BUF_NO_CEILING);
    auto_json *number = NULL;
    if (header_rules_decode(value, &decoded) == 0)
        number = parse_number(buf_str(&decoded), decoded.len);
    if (number && numbers_equal(number, body))
        return 0;
    auto_free char *text = json_text(body);
    return refuse_difference(error, header, value, text, strlen(text));
}

static int check_param(const char *header, const json_t *body, header_lookup_fn *lookup,
                       const void *data, struct rpc_error *error)
{
    const char *value;
    int r = look_up(header, lookup, data, &value, error);
    if (r < 0 || (!value && is_unsafe_number(body)))
        return r;
    switch (body ? json_typeof(body) : JSON_NULL) {
    case JSON_NULL:
        return value ? refuse(error, header, "has no counterpart in the body") : 0;
    case JSON_OBJECT:
    case JSON_ARRAY:
        return 0; /* has no text form; the check of the arguments refuses it, in better words */
    default:
        break;
    }
    if (!value)
        return refuse_missing(error, header);
    if (json_is_number(body))
        return compare_number(header, value, body, error);
    if (json_is_string(body))
        return compare_decoded(header, value, json_string_value(body), json_string_length(body),
                               error);
    const char *truth = json_is_true(body) ? "true" : "false";
    return compare_decoded(header, value, truth, strlen(truth), error);
}

int header_rules_params(const json_t *schema, const json_t *arguments, header_lookup_fn *lookup,
                        const void *data, struct rpc_error *error)
{
    /* jansson's iterators take no const; nothing is changed */
    json_t *properties = json_object_get(schema, "properties");
    for (void *i = json_object_iter(properties); i; i = json_object_iter_next(properties, i)) {
        const json_t *property = json_object_iter_value(i);
        const json_t *argument = json_object_get(arguments, json_object_iter_key(i));
        const char *suffix = json_str(property, "x-mcp-header");
        int r = 0;
        if (suffix) {
            auto_free char *header = xasprintf("Mcp-Param-%s", suffix);
            r = check_param(header, argument, lookup, data, error);
        }
        if (r == 0)
            r = header_rules_params(property, argument, lookup, data, error);
        if (r < 0)
            return r;
    }
    return 0;
}

/*** media types ***/

static const char *skip_space(const char *text)
{
    return text + strspn(text, " \t");
}

/* The length of an RFC 9110 token at the start of `text`. */
static size_t token_span(const char *text)
{
    return strspn(text, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

/* The length of a quoted string with its quotes; 0 when it does not end. */
static size_t quoted_span(const char *text)
{
    size_t at = 1;
    for (; text[at] && text[at] != '"'; at++)
        if (text[at] == '\\' && text[at + 1])
            at++;
    return text[at] == '"' ? at + 1 : 0;
}

struct slice {
    const char *text;
    size_t len;
};

static bool slice_is(struct slice slice, const char *text)
{
    return slice.len == strlen(text) && strncasecmp(slice.text, text, slice.len) == 0;
}

/* Reads "; name=value" at *at and moves behind it. The value comes without quotes. False: there is
 * no further parameter, or it is malformed; *at then stands before it. */
static bool next_parameter(const char **at, struct slice *ret_name, struct slice *ret_value)
{
    const char *text = skip_space(*at);
    if (*text != ';')
        return false;
    text = skip_space(text + 1);
    size_t name_len = token_span(text);
    const char *value = text + name_len + 1;
    if (!name_len || text[name_len] != '=')
        return false;
    bool quoted = *value == '"';
    size_t value_len = quoted ? quoted_span(value) : token_span(value);
    if (!value_len)
        return false;
    *ret_name = (struct slice){ text, name_len };
    *ret_value = (struct slice){ value + quoted, value_len - (quoted ? 2 : 0) };
    *at = value + value_len;
    return true;
}

bool header_rules_is_json(const char *content_type)
{
    static const char json[] = "application/json";
    if (!content_type || strncasecmp(content_type, json, strlen(json)) != 0)
        return false;
    const char *at = content_type + strlen(json);
    struct slice name, value;
    while (next_parameter(&at, &name, &value))
        if (slice_is(name, "charset") && !slice_is(value, "utf-8") && !slice_is(value, "utf8"))
            return false;
    return !*skip_space(at);
}

/* How closely a media range names the type: 3 exactly, 2 by its main type, 1 as anything, 0 not. */
static int range_rank(struct slice range, const char *media_type)
{
    size_t main_len = strcspn(media_type, "/") + 1;
    if (slice_is(range, media_type))
        return 3;
    if (slice_is(range, "*/*"))
        return 1;
    bool by_main = range.len == main_len + 1 && range.text[main_len] == '*' &&
                   strncasecmp(range.text, media_type, main_len) == 0;
    return by_main ? 2 : 0;
}

/* "q=0", "q=0.000" */
static bool is_zero_weight(struct slice name, struct slice value)
{
    if (!slice_is(name, "q") || !value.len || value.text[0] != '0')
        return false;
    for (size_t i = 1; i < value.len; i++)
        if (value.text[i] != '.' && value.text[i] != '0')
            return false;
    return true;
}

/* The closest range decides (RFC 9110, 12.5.1). Elements that are malformed count for nothing. */
bool header_rules_accepts(const char *accept, const char *media_type)
{
    if (!accept)
        return true;
    int best = 0;
    bool allowed = false;
    while (*accept) {
        const char *at = skip_space(accept);
        struct slice range = { at, token_span(at) };
        if (at[range.len] == '/')
            range.len += 1 + token_span(at + range.len + 1);
        at += range.len;

        bool zero = false;
        struct slice name, value;
        while (next_parameter(&at, &name, &value))
            zero |= is_zero_weight(name, value);
        at = skip_space(at);
        bool well_formed = !*at || *at == ',';
        int rank = well_formed ? range_rank(range, media_type) : 0;
        if (rank > best || (rank && rank == best && !zero)) {
            allowed = !zero;
            best = rank;
        }
        at += strcspn(at, ",");
        accept = *at ? at + 1 : at;
    }
    return allowed;
}
