#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/*** UTF-8 ***/

/* How many continuation bytes follow `lead`, and the bounds of the first of them: the bounds are
 * what excludes overlong forms, surrogates and values over U+10FFFF (Unicode, table 3-7). */
struct utf8_form {
    unsigned char lead_min, lead_max;
    unsigned char next_min, next_max;
    unsigned char tail;
    unsigned char lead_mask;
};

static const struct utf8_form utf8_forms[] = {
    { 0xc2, 0xdf, 0x80, 0xbf, 1, 0x1f }, { 0xe0, 0xe0, 0xa0, 0xbf, 2, 0x0f },
    { 0xe1, 0xec, 0x80, 0xbf, 2, 0x0f }, { 0xed, 0xed, 0x80, 0x9f, 2, 0x0f }, /* no surrogates */
    { 0xee, 0xef, 0x80, 0xbf, 2, 0x0f }, { 0xf0, 0xf0, 0x90, 0xbf, 3, 0x07 },
    { 0xf1, 0xf3, 0x80, 0xbf, 3, 0x07 }, { 0xf4, 0xf4, 0x80, 0x8f, 3, 0x07 }, /* up to U+10FFFF */
};

static const struct utf8_form *find_form(unsigned char lead)
{
    for (size_t i = 0; i < ARRAY_SIZE(utf8_forms); i++)
        if (lead >= utf8_forms[i].lead_min && lead <= utf8_forms[i].lead_max)
            return &utf8_forms[i];
    return NULL;
}

size_t utf8_char(const char *text, size_t len, uint32_t *ret_point)
{
    if (!len)
        return 0;
    const unsigned char *bytes = (const unsigned char *)text;
    uint32_t point = bytes[0];
    size_t tail = 0;
    if (bytes[0] >= 0x80) {
        const struct utf8_form *form = find_form(bytes[0]);
        if (!form || len <= form->tail || bytes[1] < form->next_min || bytes[1] > form->next_max)
            return 0;
        tail = form->tail;
        point = bytes[0] & form->lead_mask;
        for (size_t i = 1; i <= tail; i++) {
            if ((bytes[i] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (bytes[i] & 0x3f);
        }
    }
    if (ret_point)
        *ret_point = point;
    return tail + 1;
}

/* Eight bytes at a time: most of what we read is ASCII. */
static size_t ascii_span(const char *text, size_t len)
{
    size_t at = 0;
    for (uint64_t word; len - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, text + at, sizeof(word));
        if (word & UINT64_C(0x8080808080808080))
            break;
    }
    while (at < len && !(text[at] & 0x80))
        at++;
    return at;
}

size_t utf8_span(const char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        size_t ascii = ascii_span(text + at, len - at);
        size_t wide = utf8_char(text + at + ascii, len - at - ascii, NULL);
        at += ascii + wide;
        if (!wide)
            break;
    }
    return at;
}

bool utf8_valid(const char *text, size_t len)
{
    return utf8_span(text, len) == len;
}

int utf8_add_clean(struct buf *buf, const char *text, size_t len)
{
    size_t before = buf->len;
    for (size_t at = 0; at < len;) {
        size_t good = utf8_span(text + at, len - at);
        int r = buf_add(buf, text + at, good);
        at += good;
        if (r == 0 && at < len) {
            r = buf_add_str(buf, "\xef\xbf\xbd");
            at++;
        }
        if (r < 0) {
            buf_cut(buf, before);
            return r;
        }
    }
    return 0;
}

/*** Words for people ***/

/* C0, DEL, C1 (0x9b starts a terminal sequence), line separators, and the marks that reorder what
 * a reader sees. */
static bool needs_escape(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point <= 0x9f) || point == 0x2028 || point == 0x2029 ||
           (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

size_t text_show_char(const char *text, size_t len, char out[static TEXT_SHOWN_MAX])
{
    uint32_t point;
    size_t used = utf8_char(text, len, &point);
    if (!used)
        (void)snprintf(out, TEXT_SHOWN_MAX, "\\x%02x", (unsigned char)*text);
    else if (point == '\n' || point == '\t')
        (void)snprintf(out, TEXT_SHOWN_MAX, "\\%c", point == '\n' ? 'n' : 't');
    else if (needs_escape(point))
        (void)snprintf(out, TEXT_SHOWN_MAX, "\\u%04x", point);
    else
        (void)snprintf(out, TEXT_SHOWN_MAX, "%.*s", (int)used, text);
    return used ? used : 1;
}

char *text_quote(const char *text, size_t max)
{
    auto_buf quoted = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add_char(&quoted, '"'); /* no ceiling to reach, here and below */
    size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        if (at >= max) {
            (void)buf_add_str(&quoted, "...");
            break;
        }
        char shown[TEXT_SHOWN_MAX];
        if (text[at] == '"' || text[at] == '\\')
            (void)buf_add_char(&quoted, '\\');
        at += text_show_char(text + at, len - at, shown);
        (void)buf_add_str(&quoted, shown);
    }
    (void)buf_add_char(&quoted, '"');
    return buf_steal(&quoted);
}

enum { NEAR_WORD_MAX = 64 };

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Letters added, left out, changed, or swapped with their neighbour (optimal string alignment).
 * Both words are at most NEAR_WORD_MAX long. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][NEAR_WORD_MAX + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *oldest = before;
        before = above, above = row, row = oldest;
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t change = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min3(above[j] + 1, row[j - 1] + 1, change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min3(row[j], before[j - 2] + 1, row[j]);
        }
    }
    return row[b_len];
}

const char *text_nearest(const char *word, const char *const names[], size_t count)
{
    size_t len = strlen(word);
    if (len > NEAR_WORD_MAX)
        return NULL;
    size_t best = 1 + (len < 12 ? len / 4 : 3); /* one slip, and one more for every four letters */
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t name_len = strlen(names[i]);
        size_t longer = name_len > len ? name_len - len : len - name_len;
        if (name_len > NEAR_WORD_MAX || longer > best) /* each letter more is a slip */
            continue;
        size_t slips = distance(word, len, names[i], name_len);
        if (slips < best || (slips == best && !nearest)) {
            best = slips;
            nearest = names[i];
        }
    }
    return nearest;
}

/*** base64 ***/

static const char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static size_t base64_len(size_t len)
{
    return len / 3 * 4 + (len % 3 ? 4 : 0);
}

/* Four characters from one to three bytes. */
static void encode_group(const unsigned char *in, size_t len, char *out)
{
    uint32_t bits = (uint32_t)in[0] << 16;
    if (len > 1)
        bits |= (uint32_t)in[1] << 8;
    if (len > 2)
        bits |= in[2];
    out[0] = base64_alphabet[bits >> 18];
    out[1] = base64_alphabet[bits >> 12 & 63];
    out[2] = len > 1 ? base64_alphabet[bits >> 6 & 63] : '=';
    out[3] = len > 2 ? base64_alphabet[bits & 63] : '=';
}

int base64_add(struct buf *buf, const void *data, size_t len)
{
    if (len > BUF_NO_CEILING / 2)
        return -EMSGSIZE;
    char *out = buf_room(buf, base64_len(len));
    if (!out)
        return -EMSGSIZE;
    const unsigned char *in = data;
    for (size_t at = 0; at < len; at += 3, out += 4)
        encode_group(in + at, len - at < 3 ? len - at : 3, out);
    buf_added(buf, base64_len(len));
    return 0;
}

char *base64_encode(const void *data, size_t len)
{
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    (void)base64_add(&buf, data, len); /* no ceiling to reach */
    return buf_steal(&buf);
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* One to three bytes from two to four characters, the padding taken off. */
static int decode_group(const char *in, size_t len, char *out)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < len; i++) {
        int value = base64_value(in[i]);
        if (value < 0)
            return -EINVAL;
        bits |= (uint32_t)value << (18 - 6 * i);
    }
    uint32_t unused = len == 2 ? 0xffff : len == 3 ? 0xff : 0;
    if (bits & unused)
        return -EINVAL;
    for (size_t i = 0; i + 1 < len; i++)
        out[i] = (char)(bits >> (16 - 8 * i) & 0xff);
    return 0;
}

int base64_decode(const char *text, size_t len, struct buf *ret)
{
    if (len % 4)
        return -EINVAL;
    if (!len)
        return 0;
    size_t padding = text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    size_t size = len / 4 * 3 - padding;
    char *out = buf_room(ret, size);
    if (!out)
        return -EMSGSIZE;
    for (size_t at = 0; at < len; at += 4, out += 3) {
        int r = decode_group(text + at, at + 4 < len ? 4 : 4 - padding, out);
        if (r < 0) {
            buf_cut(ret, ret->len); /* restores the NUL that we wrote over */
            return r;
        }
    }
    buf_added(ret, size);
    return 0;
}

/*** secrets ***/

void random_bytes(void *out, size_t len)
{
    char *at = out;
    while (len) {
        ssize_t got = getrandom(at, len, 0);
        if (got < 0 && errno != EINTR) {
            static const char msg[] = "belljar: the kernel gives no random bytes\n";
            (void)!write(STDERR_FILENO, msg,
                         sizeof(msg) - 1); /* nothing left to do if this fails */
            abort();
        }
        if (got > 0) {
            at += got;
            len -= (size_t)got;
        }
    }
}

void random_id(char out[static RANDOM_ID_SIZE])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char bytes[17]; /* 136 bits, of which 22 * 6 = 132 are used */
    random_bytes(bytes, sizeof(bytes));
    uint32_t bits = 0;
    unsigned held = 0;
    size_t next = 0;
    for (size_t i = 0; i < RANDOM_ID_LEN; i++) {
        if (held < 6) {
            bits = bits << 8 | bytes[next++];
            held += 8;
        }
        held -= 6;
        out[i] = alphabet[bits >> held & 63];
    }
    out[RANDOM_ID_LEN] = '\0';
}

bool secret_eq(const char *a, const char *b)
{
    size_t len = strlen(a);
    if (len != strlen(b))
        return false;
    volatile unsigned char differ = 0; /* volatile: no early exit, whatever the optimiser thinks */
    for (size_t i = 0; i < len; i++)
        differ = (unsigned char)(differ | (a[i] ^ b[i]));
    return differ == 0;
}
