#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    int fd;
    enum log_format format;
    enum log_level level;
} state = { STDERR_FILENO, LOG_TEXT, LOG_INFO };

static const char *const level_names[] = {
    [LOG_ERROR] = "error",
    [LOG_WARNING] = "warning",
    [LOG_INFO] = "info",
    [LOG_DEBUG] = "debug",
};

void log_init(int fd, enum log_format format, enum log_level level)
{
    state.fd = fd;
    state.format = format;
    state.level = level;
}

bool log_wants(enum log_level level)
{
    return level <= state.level;
}

/* How one character is written. Returns the bytes of `text` that it stands for. JSON knows no \xff
 * and needs its own two escapes; a backslash that is an escape already must stay single. */
static size_t next_piece(const char *text, size_t len, enum log_format format,
                         char piece[static TEXT_SHOWN_MAX])
{
    size_t used = text_show_char(text, len, piece);
    if (format == LOG_JSON && str_has_prefix(piece, "\\x"))
        (void)snprintf(piece, TEXT_SHOWN_MAX, "\\ufffd");
    else if (format == LOG_JSON && (*text == '"' || *text == '\\'))
        (void)snprintf(piece, TEXT_SHOWN_MAX, "\\%c", *text);
    return used;
}

/* Appends `text`, escaped, up to `room` bytes in all; what is cut off leaves dots. */
static size_t add_escaped(char *line, size_t at, size_t room, enum log_format format,
                          const char *text, size_t len)
{
    static const char dots[] = "...";
    size_t keep = at; /* where the dots would go: the last place that leaves room for them */
    while (len) {
        char piece[TEXT_SHOWN_MAX];
        size_t used = next_piece(text, len, format, piece);
        size_t piece_len = strlen(piece);
        if (at + piece_len > room) {
            memcpy(line + keep, dots, sizeof(dots) - 1);
            return keep + sizeof(dots) - 1;
        }
        memcpy(line + at, piece, piece_len);
        at += piece_len;
        if (at + sizeof(dots) - 1 <= room)
            keep = at;
        text += used;
        len -= used;
    }
    return at;
}

/* RFC 3339, UTC, milliseconds: 24 characters. */
static void format_time(char out[static 32])
{
    struct timespec now;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* always there on Linux */
    (void)gmtime_r(&now.tv_sec, &tm);
    size_t len = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + len, 32 - len, ".%03uZ", (unsigned)(now.tv_nsec / 1000000) % 1000);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (!log_wants(level))
        return;

    char msg[LOG_LINE_MAX]; /* what does not fit here does not fit the line either */
    va_list args;
    va_start(args, fmt);
    int want = vsnprintf(msg, sizeof(msg), fmt, args);
    va_end(args);
    if (want < 0)
        return;

    char time[32];
    format_time(time);
    bool json = state.format == LOG_JSON;
    const char *tail = json ? "\"}\n" : "\n";
    char line[LOG_LINE_MAX];
    size_t at = (size_t)snprintf(line, sizeof(line), "%s%s%s%s%s", json ? "{\"ts\":\"" : "", time,
                                 json ? "\",\"level\":\"" : " ", level_names[level],
                                 json ? "\",\"msg\":\"" : " ");
    at = add_escaped(line, at, sizeof(line) - strlen(tail), state.format, msg, strlen(msg));
    memcpy(line + at, tail, strlen(tail));
    at += strlen(tail);
    (void)!write(state.fd, line, at); /* one call, so lines never mix; no one to tell if it fails */
}
