/*
 * A configuration from hostile words: YAML, then, each behind a NUL, flags (with two dashes) and
 * environment variables. Beyond "does not crash": an error has words without control characters,
 * and what is accepted, printed and read again is the same.
 */
#include "base/buf.h"
#include "config/config.h"
#include "config/option.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS_MAX = 16 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_error(const struct err *err)
{
    must(err->code > 0 && err->msg[0]);
    for (const char *c = err->msg; *c; c++)
        must((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* The words behind the YAML: flags to *args, the others to *env; both end with NULL. */
static void split(const char *at, const char *end, char **env, char **args)
{
    for (size_t n = 0; at < end && n < WORDS_MAX; n++) {
        size_t len = strnlen(at, (size_t)(end - at));
        char **list = len > 2 && memcmp(at, "--", 2) == 0 ? args : env;
        while (*list)
            list++;
        *list = xstrndup(at, len);
        at += len + 1;
    }
}

static int load(const char *yaml, size_t len, char **env, char **args, struct config *ret,
                struct err *err)
{
    struct config_flag flags[WORDS_MAX];
    struct config_file file = { "fuzz.yaml", yaml, len };
    struct config_sources sources = {
        .files = &file, .n_files = 1, .environment = env, .flags = flags
    };
    while (*args) {
        int used = config_flag_next(args, &flags[sources.n_flags++], err);
        if (used < 0)
            return used;
        args += used;
    }
    return config_load(&sources, ret, err);
}

static void check_reprint(const struct config *config)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING), json = BUF_INIT(BUF_NO_CEILING);
    config_print(&text, config);
    config_print_json(&json, config);
    auto_config again = { 0 };
    char *none[] = { NULL };
    must(load(buf_str(&text), text.len, none, none, &again, NULL) == 0);
    for (size_t i = 0; i < config_options_count; i++) {
        auto_free char *first = option_text(&config_options[i], config);
        auto_free char *second = option_text(&config_options[i], &again);
        must(config_options[i].secret || str_eq(first, second));
    }
}

static void free_words(char **words)
{
    for (; *words; words++)
        free(*words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t yaml = size ? strnlen(text, size) : 0;
    char *env[WORDS_MAX + 1] = { NULL }, *args[WORDS_MAX + 1] = { NULL };
    if (yaml < size)
        split(text + yaml + 1, text + size, env, args);

    auto_config config = { 0 };
    struct err err = { 0 };
    if (load(text, yaml, env, args, &config, &err) < 0) {
        check_error(&err);
    } else {
        /* files that pairs of options leave out of the print would not load again */
        if (!*config.token)
            check_reprint(&config);
        if (*config.token_file)
            (void)config_use_token_file(&config, text, size, &err);
    }
    free_words(env);
    free_words(args);
    return 0;
}
