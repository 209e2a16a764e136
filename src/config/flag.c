#include "base/text.h"
#include "config/option.h"

#include <errno.h>
#include <string.h>

enum { SHOWN_FLAG_MAX = 80 };

/* `name` as a key, but for dots, which flags write as dashes like underscores. */
static char *as_key(const char *name)
{
    char *key = xstrdup(name + strlen("--"));
    for (char *c = key; *c; c++)
        if (*c == '-')
            *c = '_';
    return key;
}

static const struct option *find(const char *name)
{
    for (size_t i = 0; i < config_options_count; i++) {
        auto_free char *flag = option_flag(&config_options[i]);
        if (str_eq(flag, name))
            return &config_options[i];
    }
    return NULL;
}

/* The switch that `--no-key` turns off. */
static const struct option *find_negated(const char *name)
{
    if (!str_has_prefix(name, "--no-"))
        return NULL;
    auto_free char *positive = xasprintf("--%s", name + strlen("--no-"));
    const struct option *option = find(positive);
    return option && option->type == OPTION_BOOL ? option : NULL;
}

static int refuse_name(const char *name, struct err *err)
{
    auto_free char *shown = text_quote(name, SHOWN_FLAG_MAX);
    if (!str_has_prefix(name, "--"))
        return err_set(err, EINVAL, "%s is not a flag", shown);
    auto_free char *key = as_key(name);
    const struct option *nearest = option_nearest(key);
    if (!nearest)
        return err_set(err, EINVAL, "there is no flag %s", shown);
    auto_free char *meant = option_flag(nearest);
    return err_set(err, EINVAL, "there is no flag %s; did you mean %s?", shown, meant);
}

int config_flag_next(char *const args[], struct config_flag *ret, struct err *err)
{
    if (str_eq(args[0], "--debug")) { /* as python-docker-mcp has it */
        *ret = (struct config_flag){ option_find("log_level"), "debug" };
        return 1;
    }
    const char *equals = strchr(args[0], '=');
    auto_free char *name =
        equals ? xstrndup(args[0], (size_t)(equals - args[0])) : xstrdup(args[0]);

    const struct option *negated = equals ? NULL : find_negated(name);
    if (negated) {
        *ret = (struct config_flag){ negated, "false" };
        return 1;
    }
    const struct option *option = find(name);
    if (!option)
        return refuse_name(name, err);
    if (equals || option->type == OPTION_BOOL) {
        *ret = (struct config_flag){ option, equals ? equals + 1 : "true" };
        return 1;
    }
    /* "--http --stdio" is a forgotten value, not an address; "--http=--stdio" is what it says. */
    if (!args[1] || str_has_prefix(args[1], "--")) {
        auto_free char *allowed = option_allowed(option);
        return err_set(err, EINVAL, "flag %s: %s: needs a value; expected %s", name, option->key,
                       allowed);
    }
    *ret = (struct config_flag){ option, args[1] };
    return 2;
}
