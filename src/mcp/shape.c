/*
 * Decoding and encoding of shapes, and the words of errors. The schema is in shape_schema.c; where
 * the two must agree on a rule, tests/differential/ compares them on generated documents.
 */
#include "mcp/shape.h"
#include "base/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* How much of a refused value an error repeats, and how much room lists of names get. */
enum { SHOWN_VALUE_MAX = 40, SHOWN_NAMES_MAX = 300, NAME_FOLDED_MAX = 64 };

/*** words ***/

/* Where in the document we are: a chain of frames on the stack, printed only when something is
 * wrong. */
struct place {
    const struct place *outer;
    const char *name; /* a member; NULL: item `index` */
    size_t index;
};

static void add_place(struct buf *buf, const struct place *place)
{
    if (!place)
        return;
    add_place(buf, place->outer);
    if (place->name)
        (void)buf_printf(buf, "%s%s", buf->len ? "." : "", place->name);
    else
        (void)buf_printf(buf, "[%zu]", place->index);
}

static int refuse(struct err *err, const struct place *place, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

static int refuse(struct err *err, const struct place *place, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    auto_free char *what = xvasprintf(fmt, args);
    va_end(args);
    auto_buf where = BUF_INIT(BUF_NO_CEILING);
    add_place(&where, place);
    return err_set(err, EINVAL, "%s%s%s", buf_str(&where), where.len ? ": " : "", what);
}

/* `text` in quotes, escaped as in JSON, its tail replaced by "…" when it is long. */
static void add_quoted(struct buf *buf, const char *text, size_t len)
{
    size_t shown = len;
    if (len > SHOWN_VALUE_MAX)
        shown = utf8_span(text, SHOWN_VALUE_MAX);
    auto_json *string = json_text_value(text, shown);
    (void)json_write(buf, string);
    if (shown < len) {
        buf_cut(buf, buf->len - 1);
        (void)buf_add_str(buf, "…\"");
    }
}

/* The value that was given, or what kind of thing it was. */
static void add_given(struct buf *buf, const json_t *value)
{
    if (json_is_array(value)) {
        (void)buf_printf(buf, "an array of %zu", json_array_size(value));
    } else if (json_is_object(value)) {
        (void)buf_add_str(buf, "an object");
    } else if (json_is_string(value)) {
        const char *text = json_string_value(value);
        size_t len = json_string_length(value);
        add_quoted(buf, text, len);
        bool ascii = true;
        for (size_t i = 0; i < len && ascii; i++)
            ascii = (unsigned char)text[i] < 0x80;
        if (len > SHOWN_VALUE_MAX || !ascii) /* limits are in bytes, and one cannot see these */
            (void)buf_printf(buf, " (%zu bytes)", len);
    } else {
        (void)json_write(buf, value);
    }
}

/* " of 1 to 5 bytes", or the half of it that there is a rule for. */
static void add_lengths(struct buf *buf, size_t min, size_t max, const char *unit)
{
    const char *plural = (max ? max : min) == 1 ? "" : "s";
    if (min && max)
        (void)buf_printf(buf, " of %zu to %zu %s%s", min, max, unit, plural);
    else if (max)
        (void)buf_printf(buf, " of at most %zu %s%s", max, unit, plural);
    else if (min)
        (void)buf_printf(buf, " of at least %zu %s%s", min, unit, plural);
}

static void add_bound(struct buf *buf, const struct field *field, bool upper)
{
    auto_json *bound = field->type == FIELD_TYPE_INT
                           ? json_integer(upper ? field->max : field->min)
                           : json_real(upper ? field->max_real : field->min_real);
    (void)json_write(buf, bound);
}

static void add_range(struct buf *buf, const struct field *field)
{
    if (field->has_min) {
        (void)buf_add_str(buf, field->has_max ? " from " : " of at least ");
        add_bound(buf, field, /* upper= */ false);
    }
    if (field->has_max) {
        (void)buf_add_str(buf, field->has_min ? " to " : " of at most ");
        add_bound(buf, field, /* upper= */ true);
    }
}

static void add_choices(struct buf *buf, const char *const *choices)
{
    size_t end = buf->len + SHOWN_NAMES_MAX;
    (void)buf_add_str(buf, "one of ");
    for (size_t i = 0; choices[i]; i++) {
        if (buf->len > end) {
            (void)buf_add_str(buf, ", …");
            return;
        }
        (void)buf_printf(buf, "%s\"%s\"", i ? ", " : "", choices[i]);
    }
}

/* What the row allows. */
static void add_allowed(struct buf *buf, const struct field *field)
{
    switch (field->type) {
    case FIELD_TYPE_STR:
        if (field->choices) {
            add_choices(buf, field->choices);
            break;
        }
        (void)buf_add_str(buf, "a string");
        add_lengths(buf, field->min_len, field->max_len, "byte");
        break;
    case FIELD_TYPE_INT:
        (void)buf_add_str(buf, "an integer");
        add_range(buf, field);
        break;
    case FIELD_TYPE_REAL:
        (void)buf_add_str(buf, "a number");
        add_range(buf, field);
        break;
    case FIELD_TYPE_BOOL:
        (void)buf_add_str(buf, "true or false");
        break;
    case FIELD_TYPE_STRS:
    case FIELD_TYPE_OBJECTS: {
        const char *unit = field->type == FIELD_TYPE_STRS ? "string" : "object";
        (void)buf_add_str(buf, "an array");
        add_lengths(buf, field->min_len, field->max_len, unit);
        if (!field->min_len && !field->max_len)
            (void)buf_printf(buf, " of %ss", unit);
        break;
    }
    case FIELD_TYPE_JSON:
    case FIELD_TYPE_OBJECT:
    case FIELD_TYPE_END:
        (void)buf_add_str(buf, "an object");
        break;
    }
    if (field->nullable)
        (void)buf_add_str(buf, " or null");
}

static int refuse_value(const struct field *field, const json_t *value, const struct place *place,
                        struct err *err)
{
    auto_buf allowed = BUF_INIT(BUF_NO_CEILING);
    auto_buf given = BUF_INIT(BUF_NO_CEILING);
    add_allowed(&allowed, field);
    add_given(&given, value);
    return refuse(err, place, "expected %s, got %s", buf_str(&allowed), buf_str(&given));
}

static int refuse_missing(const struct field *field, const struct place *place, struct err *err)
{
    auto_buf allowed = BUF_INIT(BUF_NO_CEILING);
    add_allowed(&allowed, field);
    return refuse(err, place, "missing; expected %s", buf_str(&allowed));
}

/* Lower case without separators, so that sessionId, session-id and session_id are neighbours. */
static size_t fold_name(const char *name, char out[static NAME_FOLDED_MAX])
{
    size_t len = 0;
    for (; *name && len < NAME_FOLDED_MAX; name++)
        if (*name != '_' && *name != '-')
            out[len++] = (char)tolower((unsigned char)*name);
    return len;
}

/* Levenshtein distance of the folded names. */
static size_t name_distance(const char *a, const char *b)
{
    char left[NAME_FOLDED_MAX], right[NAME_FOLDED_MAX];
    size_t left_len = fold_name(a, left), right_len = fold_name(b, right);
    size_t row[NAME_FOLDED_MAX + 1];
    for (size_t j = 0; j <= right_len; j++)
        row[j] = j;
    for (size_t i = 0; i < left_len; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < right_len; j++) {
            size_t replaced = diagonal + (left[i] != right[j]);
            size_t shorter = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[right_len];
}

/* The field the sender most likely meant, or NULL. */
static const struct field *nearest_field(const struct shape *shape, const char *name)
{
    const struct field *nearest = NULL;
    size_t len = strnlen(name, NAME_FOLDED_MAX);
    size_t limit = len < 3 ? 0 : (len + 2) / 3; /* a third of the letters may be wrong */
    for (const struct field *field = shape->fields; field->type; field++) {
        size_t distance = name_distance(name, field->name);
        if (distance < limit || (!nearest && distance == limit)) {
            nearest = field;
            limit = distance;
        }
    }
    return nearest;
}

static int refuse_unknown(const struct shape *shape, const char *name, const struct place *place,
                          struct err *err)
{
    auto_buf known = BUF_INIT(SHOWN_NAMES_MAX);
    for (const struct field *field = shape->fields; field->type; field++) {
        if (buf_printf(&known, "%s%s", known.len ? ", " : "", field->name) < 0)
            break;
    }
    auto_buf quoted = BUF_INIT(BUF_NO_CEILING);
    add_quoted(&quoted, name, strlen(name));
    const struct field *nearest = nearest_field(shape, name);
    if (!known.len)
        return refuse(err, place, "unknown member %s; none is taken", buf_str(&quoted));
    if (!nearest)
        return refuse(err, place, "unknown member %s; known are %s", buf_str(&quoted),
                      buf_str(&known));
    return refuse(err, place, "unknown member %s, did you mean \"%s\"? Known are %s",
                  buf_str(&quoted), nearest->name, buf_str(&known));
}

/*** decoding ***/

static const struct field no_fields[] = { FIELD_END };
static const struct shape empty_shape = { .fields = no_fields };

static void *at_offset(void *value, size_t offset)
{
    return (char *)value + offset;
}

static const void *at_offset_const(const void *value, size_t offset)
{
    return (const char *)value + offset;
}

/* The rules for one item of a list are a row of their own. */
static struct field item_field(const struct field *list)
{
    if (list->type == FIELD_TYPE_OBJECTS)
        return (struct field){ .type = list->nested ? FIELD_TYPE_OBJECT : FIELD_TYPE_JSON,
                               .nested = list->nested };
    return (struct field){ .type = FIELD_TYPE_STR,
                           .max_len = list->item_max_len,
                           .choices = list->choices,
                           .any_case = list->any_case };
}

static size_t item_size(const struct field *list)
{
    return list->nested ? list->nested->size : sizeof(const void *);
}

static int decode_object(const struct shape *shape, const json_t *object, void *ret,
                         const struct place *place, struct err *err);
static int decode_value(const struct field *field, const json_t *value, void *ret,
                        const struct place *place, struct err *err);

static bool fits_length(const struct field *field, size_t len)
{
    return len >= field->min_len && (!field->max_len || len <= field->max_len);
}

static const char *find_choice(const struct field *field, const char *text)
{
    for (size_t i = 0; field->choices[i]; i++)
        if (field->any_case ? strcasecmp(field->choices[i], text) == 0
                            : strcmp(field->choices[i], text) == 0)
            return field->choices[i];
    return NULL;
}

static int decode_str(const struct field *field, const json_t *value, const char **ret,
                      const struct place *place, struct err *err)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (!text || !fits_length(field, len))
        return refuse_value(field, value, place, err);
    if (memchr(text, '\0', len)) {
        auto_buf given = BUF_INIT(BUF_NO_CEILING);
        add_given(&given, value);
        return refuse(err, place, "expected a string without NUL bytes, got %s", buf_str(&given));
    }
    if (field->choices)
        text = find_choice(field, text); /* in the spelling of the table */
    if (!text)
        return refuse_value(field, value, place, err);
    *ret = text;
    return 0;
}

/* An integer; 1.0 is one. */
static bool get_int(const json_t *value, int64_t *ret)
{
    if (json_is_integer(value)) {
        *ret = json_integer_value(value);
        return true;
    }
    double real = json_real_value(value);
    if (!json_is_real(value) || real < -0x1p63 || real >= 0x1p63)
        return false;
    *ret = (int64_t)real;
    return (double)*ret == real;
}

static bool fits_int(const struct field *field, int64_t number)
{
    return (!field->has_min || number >= field->min) && (!field->has_max || number <= field->max);
}

static bool fits_real(const struct field *field, double number)
{
    return (!field->has_min || number >= field->min_real) &&
           (!field->has_max || number <= field->max_real);
}

static void free_items(const struct field *list, void *items, size_t count)
{
    if (list->nested)
        for (size_t i = 0; i < count; i++)
            shape_done(list->nested, at_offset(items, i * list->nested->size));
    free(items);
}

/* The items of an array, one after the other; *ret_count of them in *ret, which is never NULL. */
static int decode_items(const struct field *list, const json_t *array, void **ret,
                        size_t *ret_count, const struct place *place, struct err *err)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array) || !fits_length(list, count))
        return refuse_value(list, array, place, err);

    struct field item = item_field(list);
    char *items = xcalloc(count, item_size(list));
    for (size_t i = 0; i < count; i++) {
        struct place here = { .outer = place, .index = i };
        int r =
            decode_value(&item, json_array_get(array, i), items + i * item_size(list), &here, err);
        if (r < 0) {
            free_items(list, items, i);
            return r;
        }
    }
    *ret = items;
    *ret_count = count;
    return 0;
}

/* `ret` is zeroed, and zero again after a failure. */
static int decode_value(const struct field *field, const json_t *value, void *ret,
                        const struct place *place, struct err *err)
{
    switch (field->type) {
    case FIELD_TYPE_STR:
        return decode_str(field, value, ret, place, err);
    case FIELD_TYPE_INT: {
        int64_t number;
        if (!get_int(value, &number) || !fits_int(field, number))
            return refuse_value(field, value, place, err);
        *(int64_t *)ret = number;
        return 0;
    }
    case FIELD_TYPE_REAL:
        if (!json_is_number(value) || !fits_real(field, json_number_value(value)))
            return refuse_value(field, value, place, err);
        *(double *)ret = json_number_value(value);
        return 0;
    case FIELD_TYPE_BOOL:
        if (!json_is_boolean(value))
            return refuse_value(field, value, place, err);
        *(bool *)ret = json_is_true(value);
        return 0;
    case FIELD_TYPE_JSON:
        if (!json_is_object(value))
            return refuse_value(field, value, place, err);
        *(const json_t **)ret = value;
        return 0;
    case FIELD_TYPE_STRS: {
        struct str_list *list = ret;
        void *items = NULL;
        int r = decode_items(field, value, &items, &list->count, place, err);
        if (r == 0)
            list->items = items;
        return r;
    }
    case FIELD_TYPE_OBJECT:
        return decode_object(field->nested, value, ret, place, err);
    case FIELD_TYPE_OBJECTS: {
        struct obj_list *list = ret;
        return decode_items(field, value, &list->items, &list->count, place, err);
    }
    case FIELD_TYPE_END:
        break;
    }
    assert(!"a field has a type");
    return -EINVAL;
}

/* What a member holds that was not given. Of a nested struct, the presets of its own rows. */
static void set_preset(const struct field *field, void *ret)
{
    switch (field->type) {
    case FIELD_TYPE_STR:
        *(const char **)ret = field->preset_str;
        break;
    case FIELD_TYPE_INT:
        *(int64_t *)ret = field->has_preset ? field->preset_int : 0;
        break;
    case FIELD_TYPE_REAL:
        *(double *)ret = field->has_preset ? field->preset_real : 0;
        break;
    case FIELD_TYPE_BOOL:
        *(bool *)ret = field->has_preset && field->preset_bool;
        break;
    case FIELD_TYPE_OBJECT:
        for (const struct field *inner = field->nested->fields; inner->type; inner++)
            set_preset(inner, at_offset(ret, inner->offset));
        break;
    case FIELD_TYPE_JSON:
    case FIELD_TYPE_STRS:
    case FIELD_TYPE_OBJECTS:
    case FIELD_TYPE_END:
        break;
    }
}

static const struct field *find_field(const struct shape *shape, const char *name)
{
    for (const struct field *field = shape->fields; field->type; field++)
        if (str_eq(field->name, name))
            return field;
    return NULL;
}

static void clear(const struct shape *shape, void *value)
{
    if (shape->size) /* else there may be no value */
        memset(value, 0, shape->size);
}

/* First, because a mistyped name explains the missing member that it leaves behind. */
static int check_names(const struct shape *shape, const json_t *object, const struct place *place,
                       struct err *err)
{
    json_t *members = (json_t *)object; /* jansson's iterators take no const; nothing is changed */
    for (void *i = json_object_iter(members); i; i = json_object_iter_next(members, i))
        if (!find_field(shape, json_object_iter_key(i)))
            return refuse_unknown(shape, json_object_iter_key(i), place, err);
    return 0;
}

static int decode_member(const struct field *field, const json_t *object, void *ret,
                         const struct place *place, struct err *err)
{
    const json_t *value = json_object_get(object, field->name);
    bool is_null = json_is_null(value) && (!field->required || field->nullable);
    if (!value && field->required)
        return refuse_missing(field, place, err);
    if (!value || is_null) {
        set_preset(field, at_offset(ret, field->offset));
        return 0;
    }
    int r = decode_value(field, value, at_offset(ret, field->offset), place, err);
    if (r == 0 && field->has_offset)
        *(bool *)at_offset(ret, field->has_offset - 1) = true;
    return r;
}

static int decode_object(const struct shape *shape, const json_t *object, void *ret,
                         const struct place *place, struct err *err)
{
    static const struct field any_object = { .type = FIELD_TYPE_JSON };
    if (!json_is_object(object))
        return refuse_value(&any_object, object, place, err);
    int r = check_names(shape, object, place, err);
    for (const struct field *field = shape->fields; r == 0 && field->type; field++) {
        struct place here = { .outer = place, .name = field->name };
        r = decode_member(field, object, ret, &here, err);
    }
    if (r < 0) {
        shape_done(shape, ret);
        clear(shape, ret);
    }
    return r;
}

int shape_decode(const struct shape *shape, const json_t *object, void *ret, struct err *err)
{
    if (!shape)
        shape = &empty_shape;
    clear(shape, ret);
    return decode_object(shape, object, ret, /* place= */ NULL, err);
}

void shape_done(const struct shape *shape, void *value)
{
    for (const struct field *field = shape ? shape->fields : no_fields; field->type; field++) {
        void *member = at_offset(value, field->offset);
        if (field->type == FIELD_TYPE_STRS) {
            struct str_list *list = member;
            free_items(field, list->items, list->count);
            *list = (struct str_list){ 0 };
        } else if (field->type == FIELD_TYPE_OBJECTS) {
            struct obj_list *list = member;
            free_items(field, list->items, list->count);
            *list = (struct obj_list){ 0 };
        } else if (field->type == FIELD_TYPE_OBJECT) {
            shape_done(field->nested, member);
        }
    }
}

/*** encoding ***/

static json_t *encode_value(const struct field *field, const void *value);

/* NULL: there is no list. A list that must be there is empty instead. */
static json_t *encode_items(const struct field *list, const void *items, size_t count)
{
    if (!items && !list->required)
        return NULL;
    struct field item = item_field(list);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_push(array, encode_value(&item, at_offset_const(items, i * item_size(list))));
    return array;
}

/* NULL: there is no value. */
static json_t *encode_value(const struct field *field, const void *value)
{
    switch (field->type) {
    case FIELD_TYPE_STR: {
        const char *text = *(const char *const *)value;
        return text ? json_text_value(text, strlen(text)) : NULL;
    }
    case FIELD_TYPE_INT:
        return json_integer(*(const int64_t *)value);
    case FIELD_TYPE_REAL:
        return json_real(*(const double *)value); /* NULL for what JSON has no number for */
    case FIELD_TYPE_BOOL:
        return json_boolean(*(const bool *)value);
    case FIELD_TYPE_JSON:
        return json_incref(*(json_t *const *)value);
    case FIELD_TYPE_STRS: {
        const struct str_list *list = value;
        return encode_items(field, list->items, list->count);
    }
    case FIELD_TYPE_OBJECT:
        return shape_encode(field->nested, value);
    case FIELD_TYPE_OBJECTS: {
        const struct obj_list *list = value;
        return encode_items(field, list->items, list->count);
    }
    case FIELD_TYPE_END:
        break;
    }
    return NULL;
}

json_t *shape_encode(const struct shape *shape, const void *value)
{
    json_t *object = json_object();
    for (const struct field *field = shape ? shape->fields : no_fields; field->type; field++) {
        bool given =
            !field->has_offset || *(const bool *)at_offset_const(value, field->has_offset - 1);
        json_t *member = given ? encode_value(field, at_offset_const(value, field->offset)) : NULL;
        if (!member && field->nullable)
            member = json_null();
        assert(member || !field->required);
        if (member)
            json_put(object, field->name, member);
    }
    return object;
}
