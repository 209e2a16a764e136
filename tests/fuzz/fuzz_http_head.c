/*
 * A stream of requests through the head and body decoders, once in one piece and once in pieces
 * whose sizes come from the input's first byte. Both must come to the same end: a parser whose
 * answer depends on how packets were cut can be made to disagree with itself.
 */
#include "base/buf.h"
#include "http/body.h"
#include "http/head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 4096 };
static const struct head_limits limits = { .bytes = 2048, .fields = 16 };

static void check(bool condition)
{
    if (!condition)
        abort();
}

/* What became of a stream. */
struct outcome {
    unsigned requests;
    int status; /* of the refusal, or 0 */
    size_t used;
    uint64_t digest;
};

static void digest(struct outcome *o, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        o->digest = (o->digest ^ (unsigned char)text[i]) * 0x100000001b3u;
    o->digest = (o->digest ^ len) * 0x100000001b3u;
}

static void check_text(const char *text)
{
    for (; *text; text++)
        check((unsigned char)*text >= ' ' || *text == '\t');
}

/* What every accepted head promises to those who use it. */
static void check_head(const struct head *head, struct outcome *o)
{
    check(*head->method && (head->path[0] == '/' || strcmp(head->path, "*") == 0));
    check(head->minor == 0 || head->minor == 1);
    check(!head->chunked || head->content_length == 0);
    check_text(head->method);
    check_text(head->path);
    digest(o, head->path, strlen(head->path));
    size_t hosts = 0, lengths = 0, codings = 0, pos;
    for (pos = 0; head_find(head, "host", &pos);)
        hosts++;
    for (pos = 0; head_find(head, "content-length", &pos);)
        lengths++;
    for (pos = 0; head_find(head, "transfer-encoding", &pos);)
        codings++;
    check(hosts <= 1 && hosts + (head->minor == 0) >= 1);
    check(lengths + codings <= 1 && codings == head->chunked);
    for (size_t i = 0; i < head->n_fields; i++) {
        check_text(head->fields[i].name);
        check_text(head->fields[i].value);
        digest(o, head->fields[i].value, strlen(head->fields[i].value));
    }
}

/* A reader as the server has one, in the least number of lines. */
struct reader {
    struct buf in;
    struct head_scan scan;
    bool in_body;
    struct body body;
    struct buf content;
    struct outcome outcome;
};

static bool refuse(struct reader *r, const struct fault *fault)
{
    check(fault->status >= 400 && fault->status < 600 && fault->why && *fault->why);
    r->outcome.status = fault->status;
    return false;
}

static bool read_head(struct reader *r)
{
    struct fault fault;
    ssize_t len = head_scan(&r->scan, buf_str(&r->in), r->in.len, &limits, &fault);
    if (len <= 0)
        return len == 0 ? false : refuse(r, &fault);
    check((size_t)len <= r->in.len && (size_t)len <= limits.bytes);
    check(r->scan.lines >= 1 && r->scan.lines - 1 <= limits.fields);
    auto_free struct head_field *fields = xcalloc(r->scan.lines - 1, sizeof(*fields));
    auto_free char *text = xmalloc((size_t)len); /* exact: a byte too far is seen */
    memcpy(text, r->in.data, (size_t)len);
    struct head head;
    if (head_parse(text, fields, &head, &fault) < 0)
        return refuse(r, &fault);
    check(head.n_fields == r->scan.lines - 1);
    check_head(&head, &r->outcome);
    r->outcome.requests++;
    r->outcome.used += (size_t)len;
    buf_drop(&r->in, (size_t)len);
    r->scan = (struct head_scan){ 0 };
    body_init(&r->body, &head);
    if (body_set_max(&r->body, BODY_MAX, &fault) < 0)
        return refuse(r, &fault);
    r->in_body = true;
    return true;
}

static bool read_body(struct reader *r)
{
    struct fault fault;
    ssize_t used = body_feed(&r->body, buf_str(&r->in), r->in.len, &r->content, &fault);
    if (used < 0)
        return refuse(r, &fault);
    check((size_t)used <= r->in.len && r->content.len <= BODY_MAX);
    r->outcome.used += (size_t)used;
    buf_drop(&r->in, (size_t)used);
    if (!body_done(&r->body)) {
        check(r->in.len == 0);
        return false;
    }
    digest(&r->outcome, buf_str(&r->content), r->content.len);
    buf_clear(&r->content);
    r->in_body = false;
    return true;
}

static struct outcome read_all(const char *data, size_t size, size_t step)
{
    struct reader r = { .in = BUF_INIT(BUF_NO_CEILING), .content = BUF_INIT(BODY_MAX) };
    for (size_t at = 0; at < size && !r.outcome.status;) {
        size_t n = size - at < step ? size - at : step;
        check(buf_add(&r.in, data + at, n) == 0);
        at += n;
        while (r.in_body ? read_body(&r) : read_head(&r))
            ;
    }
    buf_done(&r.in);
    buf_done(&r.content);
    return r.outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *text = (const char *)data + 1;
    struct outcome whole = read_all(text, size - 1, size);
    struct outcome pieces = read_all(text, size - 1, 1u + data[0] % 32u);
    check(whole.requests == pieces.requests && whole.status == pieces.status);
    /* A refused body counts what came in whole pieces before; only what was accepted must agree. */
    check(whole.status || (whole.used == pieces.used && whole.digest == pieces.digest));
    return 0;
}
