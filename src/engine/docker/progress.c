#include "engine/docker/progress.h"

#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char IMAGE_PREFIX[] = "sha256:";
enum { IMAGE_LEN = 7 + 64 };

void progress_init(struct progress *progress,
                   void (*on_text)(const char *text, size_t len, void *data), void *data)
{
    *progress = (struct progress){
        .line = BUF_INIT(PROGRESS_LINE_MAX),
        .on_text = on_text,
        .data = data,
    };
}

void progress_done(struct progress *progress)
{
    buf_done(&progress->line);
}

/*** One message ***/

/* Lines stay lines; a carriage return before a newline is the engine's way to end one. */
static void add_shown(struct buf *out, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        char shown[TEXT_SHOWN_MAX];
        size_t taken = text_show_char(text + at, len - at, shown);
        bool plain = text[at] == '\n' || text[at] == '\t';
        if (plain)
            (void)buf_add_char(out, text[at]); /* there is no ceiling to meet */
        else if (text[at] != '\r')
            (void)buf_add_str(out, shown);
        at += taken;
    }
}

static void tell(struct progress *progress, const char *text)
{
    auto_buf shown = BUF_INIT(BUF_NO_CEILING);
    add_shown(&shown, text, strlen(text));
    if (shown.len && progress->on_text)
        progress->on_text(shown.data, shown.len, progress->data);
}

/* "sha256:" and 64 hexadecimal digits, as everything that takes an id expects. */
static bool is_image(const char *text)
{
    if (!text || !str_has_prefix(text, IMAGE_PREFIX) || strlen(text) != IMAGE_LEN)
        return false;
    const char *digits = text + strlen(IMAGE_PREFIX);
    return strspn(digits, "0123456789abcdef") == strlen(digits);
}

static void take_image(struct progress *progress, const char *text)
{
    if (is_image(text))
        (void)snprintf(progress->image, sizeof(progress->image), "%s", text); /* it fits */
}

/* The first one counts: what follows is its consequence. */
static void take_error(struct progress *progress, const char *words)
{
    auto_buf shown = BUF_INIT(BUF_NO_CEILING);
    if (progress->error[0])
        return;
    add_shown(&shown, words, strcspn(words, "\n"));
    (void)snprintf(progress->error, sizeof(progress->error), "%s",
                   shown.len ? shown.data : "the engine reports an error without words");
}

/* Pulls and imports: "Pulling from library/python", "3.12-slim"; a layer's bytes come by the
 * hundred and are left out. */
static void take_status(struct progress *progress, const json_t *message, const char *status)
{
    const char *layer = json_str(message, "id");
    take_image(progress, status);
    if (json_object_size(json_object_get(message, "progressDetail")) > 0)
        return;
    auto_free char *line = xasprintf("%s%s%s\n", layer ? layer : "", layer ? ": " : "", status);
    tell(progress, line);
}

static void take_message(struct progress *progress, const json_t *message)
{
    const char *text = json_str(message, "stream"), *status = json_str(message, "status");
    const char *error = json_str(message, "error");
    if (error)
        take_error(progress, error);
    if (text)
        tell(progress, text);
    if (status)
        take_status(progress, message, status);
    take_image(progress, json_str(json_object_get(message, "aux"), "ID"));
}

static int take_line(struct progress *progress, struct err *err)
{
    static const struct json_limits limits = { .depth = 16, .digits = 64, .nodes = 1000 };
    struct buf *line = &progress->line;
    while (line->len && (line->data[line->len - 1] == '\r' || line->data[line->len - 1] == ' '))
        buf_cut(line, line->len - 1);
    if (!line->len)
        return 0;
    auto_json *message = NULL;
    if (json_read(line->data, line->len, &limits, &message, err) < 0 || !json_is_object(message))
        return err_set(err, EBADMSG, "the engine's report of progress is not JSON");
    take_message(progress, message);
    buf_clear(line);
    return 0;
}

/*** The stream ***/

int progress_feed(struct progress *progress, const char *bytes, size_t len, struct err *err)
{
    while (len > 0) {
        const char *newline = memchr(bytes, '\n', len);
        size_t part = newline ? (size_t)(newline - bytes) : len;
        if (buf_add(&progress->line, bytes, part) < 0)
            return err_set(err, EMSGSIZE, "the engine reports progress in more than %d bytes",
                           PROGRESS_LINE_MAX);
        int r = newline ? take_line(progress, err) : 0;
        if (r < 0)
            return r;
        part += newline != NULL;
        bytes += part;
        len -= part;
    }
    return 0;
}

int progress_end(struct progress *progress, struct err *err)
{
    int r = take_line(progress, err);
    if (r == 0 && progress->error[0])
        r = err_set(err, EIO, "%s", progress->error);
    return r;
}
