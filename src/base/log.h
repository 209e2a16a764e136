/*
 * log: one line an event, on stderr. Standard output belongs to the protocol.
 *
 *   error    we gave up            warning  we went on, and say what we ignored
 *   info     for operators         debug    for us
 *
 * Text that came from clients or guests may be passed with %s: control characters and invalid
 * UTF-8 are escaped, and a line never exceeds LOG_LINE_MAX bytes.
 */
#ifndef BELLJAR_BASE_LOG_H
#define BELLJAR_BASE_LOG_H

#include "base/base.h"

enum { LOG_LINE_MAX = 4096 };

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_TEXT, LOG_JSON };

/* Until this is called: stderr, text, info. `fd` is borrowed. */
void log_init(int fd, enum log_format format, enum log_level level);
bool log_wants(enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_wants(LOG_DEBUG))                                                                  \
            log_line(LOG_DEBUG, __VA_ARGS__);                                                      \
    } while (0)

#endif
