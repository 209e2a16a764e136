#include "config/yaml.h"
#include "base/text.h"
#include "config/option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <yaml.h>

#define auto_event __attribute__((cleanup(yaml_event_delete))) yaml_event_t

struct reader {
    const char *path;
    yaml_parser_t parser;
    struct yaml_file *file;
    size_t budget; /* entries and items that may still come */
    struct err *err;
};

void yaml_done(struct yaml_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        free(file->entries[i].key);
        config_list_clear(&file->entries[i].items);
    }
    free(file->entries);
    *file = (struct yaml_file){ 0 };
}

/*** Events ***/

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

static int refuse(const struct reader *reader, const yaml_event_t *event, const char *what)
{
    return err_set(reader->err, EINVAL, "%s:%zu: %s", reader->path, line_of(event), what);
}

/* libyaml's own words; the byte reader's errors have an offset and no line. */
static int parse_error(const struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *problem = parser->problem ? parser->problem : "not YAML";
    if (parser->error == YAML_READER_ERROR)
        return err_set(reader->err, EINVAL, "%s: byte %zu: %s", reader->path,
                       parser->problem_offset, problem);
    return err_set(reader->err, EINVAL, "%s:%zu: %s", reader->path, parser->problem_mark.line + 1,
                   problem);
}

static bool has_nul(const yaml_event_t *event)
{
    return event->type == YAML_SCALAR_EVENT &&
           memchr(event->data.scalar.value, '\0', event->data.scalar.length);
}

/* Anchors and tags sit on each kind of node in a place of its own. */
static bool is_adorned(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor || event->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor || event->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor || event->data.mapping_start.tag;
    default:
        return event->type == YAML_ALIAS_EVENT;
    }
}

static int next_event(struct reader *reader, yaml_event_t *event)
{
    if (!yaml_parser_parse(&reader->parser, event))
        return parse_error(reader);
    if (is_adorned(event))
        return refuse(reader, event, "anchors, aliases and tags are not allowed");
    if (has_nul(event))
        return refuse(reader, event, "a NUL character is not allowed");
    return 0;
}

static const char *text_of(const yaml_event_t *event)
{
    return (const char *)event->data.scalar.value;
}

/* `key:`, `key: ~` and `key: null` say that there is no value; in quotes they are text. */
static bool is_nothing(const yaml_event_t *event)
{
    const char *text = text_of(event);
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

/*** Entries ***/

static int spend(struct reader *reader, const yaml_event_t *event)
{
    if (!reader->budget)
        return err_set(reader->err, E2BIG, "%s:%zu: more than %d entries", reader->path,
                       line_of(event), YAML_ENTRIES_MAX);
    reader->budget--;
    return 0;
}

static int add_entry(struct reader *reader, const char *key, const yaml_event_t *event,
                     enum yaml_kind kind)
{
    int r = spend(reader, event);
    if (r < 0)
        return r;
    struct yaml_file *file = reader->file;
    file->entries = xrealloc(file->entries, (file->count + 1) * sizeof(*file->entries));
    file->entries[file->count++] =
        (struct yaml_entry){ .kind = kind, .key = xstrdup(key), .line = line_of(event) };
    return 0;
}

static int read_list(struct reader *reader)
{
    for (;;) {
        auto_event event = { 0 };
        int r = next_event(reader, &event);
        if (r < 0 || event.type == YAML_SEQUENCE_END_EVENT)
            return r;
        if (event.type != YAML_SCALAR_EVENT || is_nothing(&event))
            return refuse(reader, &event, "a list may hold plain values only");
        r = spend(reader, &event);
        if (r < 0)
            return r;
        config_list_add(&reader->file->entries[reader->file->count - 1].items, text_of(&event));
    }
}

static int read_map(struct reader *reader, const char *prefix, unsigned depth);

/* The value behind `key`. */
static int read_value(struct reader *reader, const char *key, size_t key_line, unsigned depth)
{
    auto_event event = { 0 };
    int r = next_event(reader, &event);
    if (r < 0)
        return r;
    event.start_mark.line = key_line - 1; /* people look for the key */
    switch (event.type) {
    case YAML_SCALAR_EVENT:
        r = add_entry(reader, key, &event, is_nothing(&event) ? YAML_NOTHING : YAML_VALUE);
        if (r == 0)
            config_list_add(&reader->file->entries[reader->file->count - 1].items, text_of(&event));
        return r;
    case YAML_SEQUENCE_START_EVENT:
        r = add_entry(reader, key, &event, YAML_LIST);
        return r < 0 ? r : read_list(reader);
    default: /* a map: nothing else can follow a key */
        r = add_entry(reader, key, &event, YAML_SECTION);
        return r < 0 ? r : read_map(reader, key, depth + 1);
    }
}

static int read_map(struct reader *reader, const char *prefix, unsigned depth)
{
    for (;;) {
        auto_event event = { 0 };
        int r = next_event(reader, &event);
        if (r < 0 || event.type == YAML_MAPPING_END_EVENT)
            return r;
        if (event.type != YAML_SCALAR_EVENT)
            return refuse(reader, &event, "a key must be plain text");
        if (depth > YAML_DEPTH_MAX)
            return err_set(reader->err, E2BIG, "%s:%zu: nested more than %d deep", reader->path,
                           line_of(&event), YAML_DEPTH_MAX);
        auto_free char *key = xasprintf("%s%s%s", prefix, *prefix ? "." : "", text_of(&event));
        r = read_value(reader, key, line_of(&event), depth);
        if (r < 0)
            return r;
    }
}

/*** The file ***/

static int read_root(struct reader *reader)
{
    auto_event event = { 0 };
    int r = next_event(reader, &event);
    if (r < 0)
        return r;
    if (event.type == YAML_MAPPING_START_EVENT)
        return read_map(reader, "", 1);
    if (event.type == YAML_SCALAR_EVENT && is_nothing(&event))
        return 0;
    return refuse(reader, &event, "expected lines of the form key: value");
}

/* STREAM-START ( DOCUMENT-START root DOCUMENT-END )? STREAM-END */
static int read_stream(struct reader *reader)
{
    bool seen_root = false;
    for (;;) {
        auto_event event = { 0 };
        int r = next_event(reader, &event);
        if (r < 0 || event.type == YAML_STREAM_END_EVENT)
            return r;
        if (event.type != YAML_DOCUMENT_START_EVENT)
            continue;
        if (seen_root)
            return refuse(reader, &event, "a second document is not allowed");
        seen_root = true;
        r = read_root(reader);
        if (r < 0)
            return r;
    }
}

int yaml_read(const struct config_file *file, struct yaml_file *ret, struct err *err)
{
    if (file->len > CONFIG_FILE_MAX)
        return err_set(err, E2BIG, "%s: more than %d bytes", file->path, CONFIG_FILE_MAX);
    *ret = (struct yaml_file){ 0 };
    struct reader reader = {
        .path = file->path, .file = ret, .budget = YAML_ENTRIES_MAX, .err = err
    };
    if (!yaml_parser_initialize(&reader.parser))
        return err_set(err, ENOMEM, "%s: libyaml does not start", file->path);
    /* or it would guess UTF-16 from the first bytes */
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)file->text, file->len);
    int r = read_stream(&reader);
    yaml_parser_delete(&reader.parser);
    if (r < 0)
        yaml_done(ret);
    return r;
}
