/*
 * Loading: each source offers texts for options; the strongest one that has a text wins, all are
 * checked. Order of application does not matter, for an offer knows how strong it is; that lets the
 * names and defaults of a profile come last, when it is known.
 */
#include "base/num.h"
#include "base/text.h"
#include "config/option.h"
#include "config/origin.h"
#include "config/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_VALUE_MAX = 60, SHOWN_KEY_MAX = 80 };

/*** One offer ***/

static struct config_origin *origin_of(const struct config *config, const struct option *option)
{
    return &config->origins[option - config_options];
}

static int refuse(const struct option *option, const struct config_origin *origin, const char *text,
                  struct err *err)
{
    auto_free char *from = origin_text(origin);
    auto_free char *allowed = option_allowed(option);
    auto_free char *value = option->secret
                                ? xasprintf("the value (%zu bytes, not shown)", strlen(text))
                                : text_quote(text, SHOWN_VALUE_MAX);
    return err_set(err, EINVAL, "%s: %s: %s is not allowed; expected %s", from, option->key, value,
                   allowed);
}

static int refuse_items(const struct option *option, const struct config_origin *origin,
                        const struct config_list *items, struct err *err)
{
    for (size_t i = 0; i < items->count; i++)
        if (!option_item_allowed(option, items->items[i]))
            return refuse(option, origin, items->items[i], err);
    auto_free char *all = config_list_join(items); /* each is fine, but they are too many */
    return refuse(option, origin, all, err);
}

/* `items` is one text unless the option is a list. */
static int set_value(const struct option *option, void *target, const struct config_origin *origin,
                     const struct config_list *items, bool add, struct err *err)
{
    if (option->type == OPTION_LIST)
        return option_set_items(option, target, items, add) < 0
                   ? refuse_items(option, origin, items, err)
                   : 0;
    return option_set(option, target, items->items[0]) < 0
               ? refuse(option, origin, items->items[0], err)
               : 0;
}

static int offer_items(struct config *config, const struct option *option,
                       enum config_source source, const char *where,
                       const struct config_list *items, struct err *err)
{
    struct config_origin *current = origin_of(config, option);
    struct config_origin origin = { source, (char *)where };
    if (source < current->source) { /* overridden, but a mistake in it is still a mistake */
        struct config unused = { 0 };
        int r = set_value(option, &unused, &origin, items, /* add= */ false, err);
        option_release(option, &unused);
        return r;
    }
    /* A list's flag may be given several times; elsewhere the later value replaces the earlier. */
    bool add = source == FROM_FLAG && current->source == FROM_FLAG;
    int r = set_value(option, config, &origin, items, add, err);
    if (r < 0)
        return r;
    free(current->where);
    *current = (struct config_origin){ source, xstrdup(where) };
    return 0;
}

static int offer(struct config *config, const struct option *option, enum config_source source,
                 const char *where, const char *text, struct err *err)
{
    auto_list items = { 0 };
    if (option->type == OPTION_LIST)
        items = config_list_split(text);
    else
        config_list_add(&items, text);
    return offer_items(config, option, source, where, &items, err);
}

/*** Files ***/

static int refuse_key(const char *where, const char *key, struct err *err)
{
    const struct option *nearest = option_nearest(key);
    auto_free char *shown = text_quote(key, SHOWN_KEY_MAX);
    return err_set(err, EINVAL, "%s: there is no option %s%s%s%s", where, shown,
                   nearest ? "; did you mean \"" : "", nearest ? nearest->key : "",
                   nearest ? "\"?" : "");
}

/* Equal keys: only known keys come this far, so there are few to compare with. */
static int check_first(const char *path, const struct yaml_file *file, size_t at, struct err *err)
{
    const struct yaml_entry *entry = &file->entries[at];
    for (size_t i = 0; i < at; i++)
        if (str_eq(file->entries[i].key, entry->key))
            return err_set(err, EINVAL, "%s:%zu: %s: is set twice, first on line %zu", path,
                           entry->line, entry->key, file->entries[i].line);
    return 0;
}

static int check_kind(const struct yaml_entry *entry, const struct option *option,
                      const char *where, struct err *err)
{
    if (entry->kind == YAML_VALUE || (entry->kind == YAML_LIST && option->type == OPTION_LIST))
        return 0;
    auto_free char *allowed = option_allowed(option);
    const char *what = entry->kind == YAML_LIST      ? "a list is not allowed"
                       : entry->kind == YAML_SECTION ? "a map is not allowed"
                                                     : "has no value";
    return err_set(err, EINVAL, "%s: %s: %s; expected %s", where, entry->key, what, allowed);
}

static int apply_entry(struct config *config, const char *path, const struct yaml_entry *entry,
                       struct err *err)
{
    auto_free char *where = xasprintf("%s:%zu", path, entry->line);
    const struct option *option = option_find(entry->key);
    if (!option && option_is_section(entry->key)) {
        if (entry->kind == YAML_SECTION || entry->kind == YAML_NOTHING)
            return 0;
        return err_set(err, EINVAL, "%s: %s: expected options of its own, indented below it", where,
                       entry->key);
    }
    if (!option)
        return refuse_key(where, entry->key, err);
    int r = check_kind(entry, option, where, err);
    if (r < 0)
        return r;
    if (entry->kind == YAML_LIST)
        return offer_items(config, option, FROM_FILE, where, &entry->items, err);
    return offer(config, option, FROM_FILE, where, entry->items.items[0], err);
}

static int apply_file(struct config *config, const struct config_file *file, struct err *err)
{
    struct yaml_file yaml;
    int r = yaml_read(file, &yaml, err);
    if (r < 0)
        return r;
    for (size_t i = 0; r == 0 && i < yaml.count; i++) {
        r = apply_entry(config, file->path, &yaml.entries[i], err);
        if (r == 0)
            r = check_first(file->path, &yaml, i, err);
    }
    yaml_done(&yaml);
    return r;
}

/*** Environment ***/

static const char *variable_value(char *const *environment, const char *name)
{
    size_t len = strlen(name);
    for (; environment && *environment; environment++)
        if (str_has_prefix(*environment, name) && (*environment)[len] == '=')
            return *environment + len + 1;
    return NULL;
}

/*
 * Not every BELLJAR_ variable is ours (Kubernetes makes BELLJAR_PORT for a service of that name),
 * so unknown ones are let pass; but one that almost names an option is a mistake, and a mistyped
 * BELLJAR_TOKEN must not leave the door open.
 */
static int check_variable(const char *assignment, struct err *err)
{
    auto_free char *name = xstrndup(assignment, strcspn(assignment, "="));
    auto_free char *key = xstrdup(name + strlen(VARIABLE_PREFIX));
    for (char *c = key; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    const struct option *nearest = option_nearest(key);
    if (!nearest)
        return 0;
    auto_free char *meant = option_variable(nearest);
    if (str_eq(meant, name))
        return 0;
    auto_free char *shown = text_quote(name, SHOWN_KEY_MAX);
    return err_set(err, EINVAL,
                   "environment variable %s: there is no such option; did you mean %s?", shown,
                   meant);
}

static int apply_variables(struct config *config, char *const *environment, struct err *err)
{
    for (char *const *at = environment; at && *at; at++) {
        int r = str_has_prefix(*at, VARIABLE_PREFIX) ? check_variable(*at, err) : 0;
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < config_options_count; i++) {
        auto_free char *name = option_variable(&config_options[i]);
        const char *text = variable_value(environment, name);
        int r = text ? offer(config, &config_options[i], FROM_VARIABLE, name, text, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

/*** What belongs to the profile: defaults, and the names of the program that it replaces ***/

static void warn(struct config *config, const char *from, const char *text, const char *why)
{
    auto_free char *shown = text_quote(text, SHOWN_VALUE_MAX);
    auto_free char *warning = xasprintf("%s: %s is not used: %s", from, shown, why);
    config_list_add(&config->warnings, warning);
}

static int apply_fallbacks(struct config *config, const char *profile, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < config_options_count; i++) {
        const struct option_alias *alias = option_alias(&config_options[i], profile);
        if (alias && alias->fallback)
            r = offer(config, &config_options[i], FROM_PROFILE, profile, alias->fallback, err);
    }
    return r;
}

static int apply_alias(struct config *config, const struct option *option,
                       const struct option_alias *alias, char *const *environment, struct err *err)
{
    const char *given = alias->name ? variable_value(environment, alias->name) : NULL;
    const char *text = given && alias->translate ? alias->translate(given) : given;
    if (!text)
        return 0;
    int r = offer(config, option, FROM_ALIAS, alias->name, text, err);
    if (r == 0 || !alias->lenient)
        return r;
    auto_free char *allowed = option_allowed(option);
    auto_free char *why = xasprintf("expected %s", allowed);
    warn(config, alias->name, given, why);
    return 0;
}

/* Do the two say the same, be it a switch or a text? */
static bool same_value(const char *text, const char *expected)
{
    bool one, other;
    if (num_parse_bool(text, &one) == 0 && num_parse_bool(expected, &other) == 0)
        return one == other;
    return str_eq(text, expected);
}

static void check_unused(struct config *config, const struct option_unused *unused,
                         const char *from, const char *text)
{
    for (size_t i = 0; i < ARRAY_SIZE(unused->expected); i++)
        if (unused->expected[i] && same_value(text, unused->expected[i]))
            return;
    warn(config, from, text, unused->why);
}

/* Two variables make one option. */
static int apply_listen(struct config *config, char *const *environment, struct err *err)
{
    const char *host = variable_value(environment, "MCP_HOST");
    const char *port = variable_value(environment, "MCP_PORT");
    if (!str_eq(config->profile, "mcp-codemode") || (!host && !port))
        return 0;
    if (!host)
        host = config_default_host(config);
    bool bare = strchr(host, ':') && host[0] != '['; /* IPv6 */
    auto_free char *address =
        xasprintf("%s%s%s:%s", bare ? "[" : "", host, bare ? "]" : "", port ? port : "8000");
    return offer(config, option_find("http"), FROM_ALIAS, "MCP_HOST and MCP_PORT", address, err);
}

static int apply_names(struct config *config, char *const *environment, struct err *err)
{
    int r = apply_listen(config, environment, err);
    for (size_t i = 0; r == 0 && i < config_options_count; i++) {
        const struct option *option = &config_options[i];
        for (size_t j = 0; r == 0 && j < ARRAY_SIZE(option->aliases); j++)
            if (str_eq(option->aliases[j].profile, config->profile) ||
                str_eq(option->aliases[j].profile, "*"))
                r = apply_alias(config, option, &option->aliases[j], environment, err);
    }
    for (const struct option_unused *unused = config_unused; r == 0 && unused->profile; unused++) {
        const char *text = unused->name && str_eq(unused->profile, config->profile)
                               ? variable_value(environment, unused->name)
                               : NULL;
        if (text)
            check_unused(config, unused, unused->name, text);
    }
    return r;
}

/*** The file of the program that the profile replaces ***/

static const struct option_unused *find_unused(const char *profile, const char *key)
{
    for (const struct option_unused *unused = config_unused; unused->profile; unused++)
        if (str_eq(unused->profile, profile) && str_eq(unused->key, key))
            return unused;
    return NULL;
}

static int apply_foreign_entry(struct config *config, const char *path,
                               const struct yaml_entry *entry, struct err *err)
{
    auto_free char *where = xasprintf("%s:%zu", path, entry->line);
    if (entry->kind == YAML_SECTION || entry->kind == YAML_NOTHING)
        return 0;
    const struct option_unused *unused = find_unused(config->profile, entry->key);
    const struct option *option = option_find_foreign(config->profile, entry->key);
    const char *text = entry->items.count ? entry->items.items[0] : "";
    auto_free char *from = xasprintf("%s: %s", where, entry->key);
    if (unused)
        check_unused(config, unused, from, text);
    else if (!option) /* that program let unknown keys pass */
        warn(config, from, text, "there is no such key");
    if (unused || !option)
        return 0;
    int r = check_kind(entry, option, where, err);
    if (r == 0 && entry->kind == YAML_LIST)
        return offer_items(config, option, FROM_FOREIGN, where, &entry->items, err);
    return r < 0 ? r : offer(config, option, FROM_FOREIGN, where, text, err);
}

static int apply_foreign(struct config *config, const struct config_file *file, struct err *err)
{
    struct yaml_file yaml;
    int r = yaml_read(file, &yaml, err);
    if (r < 0)
        return r;
    for (size_t i = 0; r == 0 && i < yaml.count; i++)
        r = apply_foreign_entry(config, file->path, &yaml.entries[i], err);
    yaml_done(&yaml);
    return r;
}

/*** Flags and the program's name ***/

static int apply_flags(struct config *config, const struct config_flag *flags, size_t count,
                       struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        auto_free char *name = option_flag(flags[i].option);
        int r = offer(config, flags[i].option, FROM_FLAG, name, flags[i].value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int apply_program(struct config *config, const char *profile, struct err *err)
{
    if (!profile)
        return 0;
    auto_free char *name = xasprintf("belljar-%s", profile);
    auto_free char *where = text_quote(name, SHOWN_VALUE_MAX);
    return offer(config, option_find("profile"), FROM_PROGRAM, where, profile, err);
}

/*** Options that depend on each other ***/

static bool is_set(const struct config *config, const char *key)
{
    auto_free char *text = option_text(option_find(key), config);
    return *text != '\0';
}

static int check_pairs(const struct config *config, struct err *err)
{
    static const struct {
        const char *set, *other;
        bool wanted; /* the other one, too */
        const char *why;
    } rules[] = {
        { "tls_cert", "tls_key", true, "needs tls_key as well" },
        { "tls_key", "tls_cert", true, "needs tls_cert as well" },
        { "token", "token_file", false, "is set together with token_file; use one of them" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        if (!is_set(config, rules[i].set) || is_set(config, rules[i].other) == rules[i].wanted)
            continue;
        auto_free char *from = origin_text(origin_of(config, option_find(rules[i].set)));
        return err_set(err, EINVAL, "%s: %s: %s", from, rules[i].set, rules[i].why);
    }
    return 0;
}

/*** The whole ***/

/* Now that the profile is known. */
static int apply_chosen(struct config *config, const struct config_sources *sources,
                        struct err *err)
{
    int r = apply_fallbacks(config, config->profile, err);
    if (r == 0 && sources->foreign)
        r = apply_foreign(config, sources->foreign, err);
    return r < 0 ? r : apply_names(config, sources->environment, err);
}

static int apply_sources(struct config *config, const struct config_sources *sources,
                         struct err *err)
{
    int r = apply_program(config, sources->profile, err);
    for (size_t i = 0; r == 0 && i < sources->n_files; i++)
        r = apply_file(config, &sources->files[i], err);
    if (r == 0)
        r = apply_variables(config, sources->environment, err);
    if (r == 0)
        r = apply_flags(config, sources->flags, sources->n_flags, err);
    if (r == 0 && sources->endpoint)
        r = apply_fallbacks(config, sources->endpoint, err);
    else if (r == 0)
        r = apply_chosen(config, sources, err);
    return r < 0 ? r : check_pairs(config, err);
}

int config_load(const struct config_sources *sources, struct config *ret, struct err *err)
{
    auto_config config = { 0 };
    config.origins = xcalloc(config_options_count, sizeof(*config.origins));
    for (size_t i = 0; i < config_options_count; i++)
        option_set_default(&config_options[i], &config);
    int r = apply_sources(&config, sources, err);
    if (r < 0)
        return r;
    *ret = config;
    config = (struct config){ 0 };
    return 0;
}

const char *config_default_host(const struct config *config)
{
    bool guarded = *config->token || *config->token_file || config->allow_unauthenticated;
    return guarded ? "0.0.0.0" : "127.0.0.1";
}

char *config_origin_of(const struct config *config, const char *option)
{
    return origin_text(origin_of(config, option_find(option)));
}

int config_use_token_file(struct config *config, const char *text, size_t len, struct err *err)
{
    const struct option *option = option_find("token");
    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    auto_free char *token = xstrndup(text, len);
    if (strlen(token) < len)
        return err_set(err, EINVAL, "%s: token: a NUL character is not allowed",
                       config->token_file);
    return offer(config, option, FROM_FILE, config->token_file, token, err);
}

void config_done(struct config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config_options_count; i++) {
        option_release(&config_options[i], config);
        if (config->origins)
            free(config->origins[i].where);
    }
    free(config->origins);
    config_list_clear(&config->warnings);
    *config = (struct config){ 0 };
}
