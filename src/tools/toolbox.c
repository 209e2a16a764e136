#include "tools/toolbox.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct field session_arg_fields[] = {
    FIELD_STR(struct session_arg, session_id, "The session, as execute_code returned it.",
              .required = true, .min_len = 1, .max_len = SESSION_ID_MAX),
    FIELD_END,
};
const struct shape session_arg_input = SHAPE(struct session_arg, session_arg_fields);

static const struct field session_cleared_fields[] = {
    FIELD_BOOL(struct session_cleared, success, "The session is gone.", .required = true),
    FIELD_STR(struct session_cleared, message, "In words.", .required = true),
    FIELD_END,
};
const struct shape session_cleared_output = SHAPE(struct session_cleared, session_cleared_fields);

void toolbox_add_text(struct buf *buf, const char *bytes, size_t len)
{
    while (len > 0) {
        const char *nul = memchr(bytes, '\0', len);
        size_t part = nul ? (size_t)(nul - bytes) : len;
        (void)utf8_add_clean(buf, bytes, part);
        if (!nul)
            return;
        (void)buf_add_str(buf, "\xef\xbf\xbd");
        bytes += part + 1;
        len -= part + 1;
    }
}

char *toolbox_line(const char *bytes)
{
    auto_buf line = BUF_INIT(BUF_NO_CEILING);
    for (size_t len = strlen(bytes), at = 0; at < len;) {
        char shown[TEXT_SHOWN_MAX];
        at += text_show_char(bytes + at, len - at, shown);
        (void)buf_add_str(&line, shown);
    }
    return buf_steal(&line);
}

static size_t char_len(char c)
{
    return json_escaped_len(&c, 1);
}

size_t toolbox_json_len(const char *text)
{
    return json_escaped_len(text, strlen(text));
}

static bool is_inside_char(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80; /* of a UTF-8 sequence, but not its first */
}

bool toolbox_cut(char **text, size_t budget)
{
    enum { NOTE_LEN = 64 };
    const char *head = *text, *tail = *text + strlen(*text);
    if (toolbox_json_len(*text) <= budget)
        return false;
    size_t half = budget > NOTE_LEN ? (budget - NOTE_LEN) / 2 : 0, used = 0;
    while (used + char_len(*head) <= half)
        used += char_len(*head++);
    while (head > *text && is_inside_char(*head))
        head--;
    used = 0;
    while (used + char_len(tail[-1]) <= half)
        used += char_len(*--tail);
    while (is_inside_char(*tail))
        tail++;
    auto_buf cut = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add(&cut, *text, (size_t)(head - *text));
    (void)buf_printf(&cut, "\n[… %zu bytes left out …]\n", (size_t)(tail - head));
    (void)buf_add_str(&cut, tail);
    free(*text);
    *text = buf_steal(&cut);
    return true;
}

bool toolbox_cut_chars(char *text, size_t max)
{
    size_t count = 0;
    for (char *at = text; *at; at++) {
        if (is_inside_char(*at) || count++ < max)
            continue;
        *at = '\0';
        return true;
    }
    return false;
}

char *toolbox_strip(const struct buf *text)
{
    static const char blank[] = " \t\r\n\v\f";
    const char *begin = buf_str(text) + strspn(buf_str(text), blank);
    size_t len = strlen(begin);
    while (len && strchr(blank, begin[len - 1]))
        len--;
    return xstrndup(begin, len);
}

void toolbox_uuid(char ret[TOOLBOX_UUID_SIZE])
{
    unsigned char bytes[16];
    random_bytes(bytes, sizeof(bytes));
    bytes[6] = (unsigned char)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (unsigned char)((bytes[8] & 0x3f) | 0x80);
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *ret++ = '-';
        *ret++ = digits[bytes[i] >> 4];
        *ret++ = digits[bytes[i] & 0x0f];
    }
    *ret = '\0';
}

void toolbox_add_str(struct str_list *list, char *text)
{
    list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
    list->items[list->count++] = text;
}

void toolbox_free_strs(struct str_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((char *)list->items[i]);
    free(list->items);
    *list = (struct str_list){ 0 };
}

char *toolbox_not_saved(const char *why)
{
    return xasprintf("The server's copy of this session's files, which outlives it, is not up to "
                     "date: %s.",
                     why);
}

char *toolbox_expired(const struct toolbox *box, const char *session_id)
{
    return xasprintf("Session %s not found or has expired. Sessions expire after %g minutes of "
                     "inactivity.",
                     session_id, (double)box->session_timeout_ms / 60000);
}
