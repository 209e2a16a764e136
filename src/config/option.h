/*
 * option: one row of the table, and what can be done with it whatever its type. Private to config.
 */
#ifndef BELLJAR_CONFIG_OPTION_H
#define BELLJAR_CONFIG_OPTION_H

#include "base/buf.h"
#include "base/json.h"
#include "config/config.h"

enum option_type {
    OPTION_STRING,   /* char *               bounds: length */
    OPTION_ENUM,     /* an enum, by name     */
    OPTION_BOOL,     /* bool                 */
    OPTION_INT,      /* int64_t              bounds: value */
    OPTION_SIZE,     /* size_t               bounds: bytes */
    OPTION_DURATION, /* uint64_t             bounds: milliseconds */
    OPTION_REAL,     /* double               bounds: value */
    OPTION_LIST,     /* struct config_list   bounds: number of items */
};

/* What a replaced program calls the same thing, and its default. It counts only in the profile that
 * replaces it, for names like LOG_LEVEL are in many environments and not meant for us. Profile "*": in all, for names
 * that mean the same everywhere. */
struct option_alias {
    const char *profile;
    const char *name;     /* environment variable; NULL: none */
    const char *key;      /* in that program's own file; NULL: none */
    const char *fallback; /* the default in this profile; NULL: as everywhere */
    /* From its way of writing to ours, static; NULL: the text says nothing. NULL: written alike. */
    const char *(*translate)(const char *text);
    bool
        lenient; /* a bad value of the variable is passed over with a warning, as that program did */
};

/* What a replaced program could be told and belljar does otherwise: accepted, with a warning that
 * says so unless the value is `expected`. */
struct option_unused {
    const char *profile;
    const char *name, *key; /* as above */
    const char *expected[2];
    const char *why;
};
extern const struct option_unused config_unused[]; /* ends with a row without profile */

struct option {
    const char *section;
    const char *key; /* a dot is a nested map in YAML */
    enum option_type type;
    size_t offset;        /* of the member that holds the value */
    const char *fallback; /* the default, as a user would write it; not held to the bounds */
    double min, max;
    const char *const *names; /* enum: by value, ends with NULL */
    const char *placeholder;  /* what --help calls the value; NULL: by type */
    const char *help;         /* one or two sentences */
    /* For strings and items of lists, on top of the bounds; `allowed` says in words what passes. */
    bool (*check)(const char *text);
    const char *allowed;
    bool secret;
    struct option_alias aliases[5];
};

extern const struct option config_options[];
extern const size_t config_options_count;

/* NULL: no such key. */
const struct option *option_find(const char *key);
/* The row of this profile; NULL: the option has none. */
const struct option_alias *option_alias(const struct option *option, const char *profile);
/* By the key in that profile's own file; NULL: none. */
const struct option *option_find_foreign(const char *profile, const char *key);
/* Is `key` the parent of a dotted key? */
bool option_is_section(const char *key);

/* Which option a mistyped key probably meant; NULL when none is near. */
const struct option *option_nearest(const char *key);

/* --- names derived from the key; owned by the caller */
#define VARIABLE_PREFIX "BELLJAR_"
char *option_variable(const struct option *option); /* BELLJAR_LOG_LEVEL */
char *option_flag(const struct option *option);     /* --log-level */

/* --- values; `target` is the struct that option->offset belongs to */

/* Sets the default; the member must hold nothing. */
void option_set_default(const struct option *option, void *target);

/* Sets the value, replacing what was there. -EINVAL: not allowed, and nothing has changed. */
int option_set(const struct option *option, void *target, const char *text);

/* A list's items, behind those already there if `add`. Same promise. */
int option_set_items(const struct option *option, void *target, const struct config_list *items,
                     bool add);
bool option_item_allowed(const struct option *option, const char *item);

void option_release(const struct option *option, void *target);

/* What may be written, for messages and the manual: "a size from 1k to 1g". */
char *option_allowed(const struct option *option);
/* The value as a user would write it (a list: items between commas). */
char *option_text(const struct option *option, const void *target);
/* As JSON: sizes in bytes, durations in seconds; a secret is "(set)" or null. */
json_t *option_json(const struct option *option, const void *target);

/* --- lists */

/* The items between commas, blanks around them dropped; none in an empty text. */
struct config_list config_list_split(const char *text);
void config_list_add(struct config_list *list, const char *item);
char *config_list_join(const struct config_list *list);
void config_list_clear(struct config_list *list);
#define auto_list __attribute__((cleanup(config_list_clear))) struct config_list

#endif
