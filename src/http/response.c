#include "http/response.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *text;
} statuses[] = {
    { 100, "Continue" },
    { 200, "OK" },
    { 201, "Created" },
    { 202, "Accepted" },
    { 204, "No Content" },
    { 301, "Moved Permanently" },
    { 302, "Found" },
    { 304, "Not Modified" },
    { 307, "Temporary Redirect" },
    { 308, "Permanent Redirect" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 406, "Not Acceptable" },
    { 408, "Request Timeout" },
    { 409, "Conflict" },
    { 410, "Gone" },
    { 411, "Length Required" },
    { 412, "Precondition Failed" },
    { 413, "Content Too Large" },
    { 415, "Unsupported Media Type" },
    { 417, "Expectation Failed" },
    { 421, "Misdirected Request" },
    { 422, "Unprocessable Content" },
    { 426, "Upgrade Required" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 502, "Bad Gateway" },
    { 503, "Service Unavailable" },
    { 504, "Gateway Timeout" },
};

const char *http_status_text(int status)
{
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        if (statuses[i].status == status)
            return statuses[i].text;
    }
    return "Unknown";
}

bool response_bodiless(int status)
{
    return status < 200 || status == 204 || status == 304;
}

/* A line end in a value would let whoever wrote the value write our response. */
static bool field_ok(const char *name, const char *value)
{
    for (const char *c = name; *c; c++) {
        if (*c <= ' ' || *c == ':' || *c == 0x7f)
            return false;
    }
    for (const char *c = value; *c; c++) {
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
            return false;
    }
    return *name != '\0';
}

/* The pieces are the program's own and short: the buffer has no ceiling they could reach. */
static void add(struct buf *out, const char *text)
{
    (void)buf_add_str(out, text);
}

static void add_field(struct buf *out, const char *name, const char *value)
{
    add(out, name);
    add(out, ": ");
    add(out, value);
    add(out, "\r\n");
}

void response_add_field(struct buf *out, const char *name, const char *value)
{
    assert(field_ok(name, value));
    add_field(out, name, value);
}

static void add_status_line(struct buf *out, int status)
{
    const char code[] = { (char)('0' + status / 100), (char)('0' + status / 10 % 10),
                          (char)('0' + status % 10), ' ', '\0' };
    add(out, "HTTP/1.1 ");
    add(out, code);
    add(out, http_status_text(status));
    add(out, "\r\n");
}

static void add_framing(struct buf *out, const struct response *response)
{
    char length[24];
    switch (response->framing) {
    case RESPONSE_LENGTH:
        (void)snprintf(length, sizeof(length), "%zu", response->length); /* 20 digits at most */
        add_field(out, "Content-Length", length);
        break;
    case RESPONSE_CHUNKED:
        add_field(out, "Transfer-Encoding", "chunked");
        break;
    case RESPONSE_TO_END:
    case RESPONSE_NO_BODY:
        break;
    }
}

void response_add_head(struct buf *out, const struct response *response)
{
    assert(response->status >= 100 && response->status <= 599);
    add_status_line(out, response->status);
    for (const struct http_field *field = response->fields; field && field->name; field++)
        response_add_field(out, field->name, field->value);
    if (response->more)
        add(out, response->more);
    add_framing(out, response);
    if (response->date)
        add_field(out, "Date", response->date);
    if (response->close)
        add_field(out, "Connection", "close");
    else if (response->minor == 0)
        add_field(out, "Connection", "keep-alive");
    add(out, "\r\n");
}

size_t response_chunk_start(char out[static CHUNK_START_MAX], size_t len)
{
    int n = snprintf(out, CHUNK_START_MAX, "%zx\r\n", len); /* 16 digits and 2 at most */
    return (size_t)n;
}
