#include "base/base.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *checked(void *memory)
{
    if (!memory) {
        static const char msg[] = "belljar: out of memory\n";
        (void)!write(STDERR_FILENO, msg, sizeof(msg) - 1); /* nothing left to do if this fails */
        abort();
    }
    return memory;
}

void *xmalloc(size_t size)
{
    return checked(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return checked(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
    return checked(realloc(old, size ? size : 1));
}

char *xstrdup(const char *text)
{
    return checked(strdup(text));
}

char *xstrndup(const char *text, size_t len)
{
    return checked(strndup(text, len));
}

char *xvasprintf(const char *fmt, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    return checked(text);
}

char *xasprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    return text;
}

void memory_trim(size_t used)
{
    enum { WORTH_THE_CALL = 128 << 10 };
    if (used >= WORTH_THE_CALL)
        (void)malloc_trim(0); /* says only whether there was anything to give back */
}

void freep(void *slot)
{
    free(*(void **)slot);
}

void fd_closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

bool str_eq(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

bool str_has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}
