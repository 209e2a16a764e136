/*
 * Values: from text and back, by type. Everything the types differ in is here.
 */
#include "base/num.h"
#include "base/text.h"
#include "config/option.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void *slot_of(const struct option *option, void *target)
{
    return (char *)target + option->offset;
}

static const void *value_of(const struct option *option, const void *target)
{
    return (const char *)target + option->offset;
}

/*** Text ***/

/* One line of UTF-8: what can be printed, logged and put in a header as it is. */
static bool is_printable(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
    return utf8_valid(text, strlen(text));
}

static int set_string(const struct option *option, char **slot, const char *text)
{
    size_t len = strlen(text);
    if (!is_printable(text) || len < (size_t)option->min || len > (size_t)option->max)
        return -EINVAL;
    if (option->check && !option->check(text))
        return -EINVAL;
    free(*slot);
    *slot = xstrdup(text);
    return 0;
}

static int set_enum(const struct option *option, int *slot, const char *text)
{
    for (int i = 0; option->names[i]; i++) {
        if (strcasecmp(option->names[i], text) == 0) {
            *slot = i;
            return 0;
        }
    }
    return -EINVAL;
}

/*** Lists ***/

void config_list_clear(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){ 0 };
}

void config_list_add(struct config_list *list, const char *item)
{
    list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
    list->items[list->count++] = xstrdup(item);
}

struct config_list config_list_split(const char *text)
{
    static const char blanks[] = " \t";
    struct config_list list = { 0 };
    if (!*text)
        return list;
    for (;;) {
        text += strspn(text, blanks);
        size_t len = strcspn(text, ",");
        size_t used = len;
        while (used && strchr(blanks, text[used - 1]))
            used--;
        auto_free char *item = xstrndup(text, used);
        config_list_add(&list, item);
        if (!text[len])
            return list;
        text += len + 1;
    }
}

char *config_list_join(const struct config_list *list)
{
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < list->count; i++)
        (void)buf_printf(&buf, "%s%s", i ? "," : "", list->items[i]); /* no ceiling to reach */
    return buf_steal(&buf);
}

bool option_item_allowed(const struct option *option, const char *item)
{
    return *item && is_printable(item) && (!option->check || option->check(item));
}

int option_set_items(const struct option *option, void *target, const struct config_list *items,
                     bool add)
{
    struct config_list *list = slot_of(option, target);
    if (items->count + (add ? list->count : 0) > (size_t)option->max)
        return -EINVAL;
    for (size_t i = 0; i < items->count; i++)
        if (!option_item_allowed(option, items->items[i]))
            return -EINVAL;
    if (!add)
        config_list_clear(list);
    for (size_t i = 0; i < items->count; i++)
        config_list_add(list, items->items[i]);
    return 0;
}

static int set_list(const struct option *option, void *target, const char *text)
{
    auto_list items = config_list_split(text);
    return option_set_items(option, target, &items, /* add= */ false);
}

/*** By type ***/

int option_set(const struct option *option, void *target, const char *text)
{
    void *slot = slot_of(option, target);
    int64_t min = (int64_t)option->min, max = (int64_t)option->max, number = 0;
    int r = -EINVAL;
    switch (option->type) {
    case OPTION_STRING:
        r = set_string(option, slot, text);
        break;
    case OPTION_ENUM:
        r = set_enum(option, slot, text);
        break;
    case OPTION_BOOL:
        r = num_parse_bool(text, slot);
        break;
    case OPTION_INT:
        r = num_parse_int(text, min, max, slot);
        break;
    case OPTION_SIZE:
        r = num_parse_size(text, min, max, &number);
        if (r == 0)
            *(size_t *)slot = (size_t)number;
        break;
    case OPTION_DURATION:
        r = num_parse_duration(text, min, max, &number);
        if (r == 0)
            *(uint64_t *)slot = (uint64_t)number;
        break;
    case OPTION_REAL:
        r = num_parse_real(text, option->min, option->max, slot);
        break;
    case OPTION_LIST:
        r = set_list(option, target, text);
        break;
    }
    return r < 0 ? -EINVAL : 0;
}

void option_set_default(const struct option *option, void *target)
{
    if (option->type == OPTION_STRING) {
        *(char **)slot_of(option, target) = xstrdup(option->fallback);
        return;
    }
    int r = option_set(option, target, option->fallback);
    assert(r == 0);
    (void)r;
}

void option_release(const struct option *option, void *target)
{
    void *slot = slot_of(option, target);
    if (option->type == OPTION_STRING) {
        free(*(char **)slot);
        *(char **)slot = NULL;
    } else if (option->type == OPTION_LIST) {
        config_list_clear(slot);
    }
}

/*** For people ***/

struct unit {
    const char *name;
    uint64_t factor;
};

/* In the largest unit that divides it: what num.h reads back as the same number. */
static char *with_unit(uint64_t value, const struct unit *units, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (value && value % units[i].factor == 0)
            return xasprintf("%ju%s", (uintmax_t)(value / units[i].factor), units[i].name);
    return xasprintf("%ju", (uintmax_t)value);
}

static char *size_text(uint64_t bytes)
{
    static const struct unit units[] = {
        { "t", 1ull << 40 }, { "g", 1ull << 30 }, { "m", 1ull << 20 }, { "k", 1ull << 10 }
    };
    return with_unit(bytes, units, ARRAY_SIZE(units));
}

static char *duration_text(uint64_t ms)
{
    static const struct unit units[] = {
        { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 }, { "ms", 1 }
    };
    return with_unit(ms, units, ARRAY_SIZE(units));
}

static char *real_text(double value)
{
    char text[NUM_REAL_MAX];
    num_format_real(value, text);
    return xstrdup(text);
}

char *option_text(const struct option *option, const void *target)
{
    const void *value = value_of(option, target);
    switch (option->type) {
    case OPTION_STRING:
        return xstrdup(*(char *const *)value);
    case OPTION_ENUM:
        return xstrdup(option->names[*(const int *)value]);
    case OPTION_BOOL:
        return xstrdup(*(const bool *)value ? "true" : "false");
    case OPTION_INT:
        return xasprintf("%jd", (intmax_t) * (const int64_t *)value);
    case OPTION_SIZE:
        return size_text(*(const size_t *)value);
    case OPTION_DURATION:
        return duration_text(*(const uint64_t *)value);
    case OPTION_REAL:
        return real_text(*(const double *)value);
    case OPTION_LIST:
        break;
    }
    return config_list_join(value);
}

/* Whole seconds as an integer, for most durations are. */
static json_t *seconds_json(uint64_t ms)
{
    if (ms % 1000 == 0)
        return json_integer((json_int_t)(ms / 1000));
    return json_real((double)ms / 1000);
}

static json_t *list_json(const struct config_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_push(array, json_text_value(list->items[i], strlen(list->items[i])));
    return array;
}

json_t *option_json(const struct option *option, const void *target)
{
    const void *value = value_of(option, target);
    auto_free char *text = option_text(option, target);
    if (option->secret)
        return *text ? json_string("(set)") : json_null();
    switch (option->type) {
    case OPTION_BOOL:
        return json_boolean(*(const bool *)value);
    case OPTION_INT:
        return json_integer(*(const int64_t *)value);
    case OPTION_SIZE:
        return json_integer((json_int_t) * (const size_t *)value);
    case OPTION_DURATION:
        return seconds_json(*(const uint64_t *)value);
    case OPTION_REAL:
        return json_real(*(const double *)value);
    case OPTION_LIST:
        return list_json(value);
    case OPTION_STRING:
    case OPTION_ENUM:
        break;
    }
    return json_text_value(text, strlen(text));
}

static char *range(const char *what, char *min, char *max)
{
    char *text = xasprintf("%s from %s to %s", what, min, max);
    free(min);
    free(max);
    return text;
}

static char *string_allowed(const struct option *option)
{
    if (option->allowed)
        return xstrdup(option->allowed);
    if (option->min == 0)
        return xasprintf("one line of at most %.0f bytes", option->max);
    return xasprintf("one line of %.0f to %.0f bytes", option->min, option->max);
}

static char *names_allowed(const struct option *option)
{
    auto_buf buf = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; option->names[i]; i++)
        (void)buf_printf(&buf, "%s%s", i ? ", " : "one of ", option->names[i]);
    return buf_steal(&buf);
}

char *option_allowed(const struct option *option)
{
    switch (option->type) {
    case OPTION_STRING:
        return string_allowed(option);
    case OPTION_ENUM:
        return names_allowed(option);
    case OPTION_BOOL:
        return xstrdup("true or false");
    case OPTION_INT:
        return xasprintf("an integer from %.0f to %.0f", option->min, option->max);
    case OPTION_SIZE:
        return range("a size", size_text((uint64_t)option->min), size_text((uint64_t)option->max));
    case OPTION_DURATION:
        return range("a duration", duration_text((uint64_t)option->min),
                     duration_text((uint64_t)option->max));
    case OPTION_REAL:
        return range("a number", real_text(option->min), real_text(option->max));
    case OPTION_LIST:
        break;
    }
    return xasprintf("at most %.0f %s", option->max, option->allowed ? option->allowed : "items");
}
