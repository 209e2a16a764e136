/*
 * yaml: a configuration file taken apart into flat entries in the order of the file. It knows no
 * options, only form: one document, a map at its top, maps and lists of plain text inside. Text is
 * never guessed to be a number or a truth value; that is the option's business. Private to config.
 */
#ifndef BELLJAR_CONFIG_YAML_H
#define BELLJAR_CONFIG_YAML_H

#include "config/config.h"

enum { YAML_DEPTH_MAX = 8, YAML_ENTRIES_MAX = 10000 };

enum yaml_kind {
    YAML_VALUE,   /* one item */
    YAML_NOTHING, /* `key:` or `key: null` */
    YAML_LIST,
    YAML_SECTION, /* a map; what is in it follows as entries of their own */
};

struct yaml_entry {
    enum yaml_kind kind;
    char *key; /* the way to it, joined by dots */
    size_t line;
    struct config_list items;
};

struct yaml_file {
    struct yaml_entry *entries;
    size_t count;
};

/* -EINVAL: not YAML, or of a form that is not allowed (anchors, aliases, tags, several documents,
 * keys or lists that hold maps or lists). -E2BIG: too large, too deep, too many entries. err names
 * path and line. Equal keys are not noticed here. */
int yaml_read(const struct config_file *file, struct yaml_file *ret, struct err *err);
void yaml_done(struct yaml_file *file);

#endif
