/*
 * shape_tool: shapes as a filter, for comparison with another implementation of JSON Schema.
 *
 *     shape_tool            the names of the shapes, one a line
 *     shape_tool NAME       its schema on the first line; then for each line of input, a JSON
 *                           document, a line {"ok":true,"encoded":…} or {"ok":false,"error":"…"}
 *
 * Every optional number with a range has a preset or a flag, so that whatever is decoded obeys the
 * rules when it is encoded again.
 */
#include "mcp/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*** plain: every kind of value, without rules ***/

struct plain {
    const char *text;
    int64_t whole;
    double real;
    bool truth;
    const json_t *any;
    struct str_list texts;
};
static const struct field plain_fields[] = {
    FIELD_STR(struct plain, text, "Text."),
    FIELD_INT(struct plain, whole, "Whole number."),
    FIELD_REAL(struct plain, real, "Number."),
    FIELD_BOOL(struct plain, truth, "Truth value."),
    FIELD_JSON(struct plain, any, "Any object."),
    FIELD_STRS(struct plain, texts, "Texts."),
    FIELD_END,
};
static const struct shape plain_shape = SHAPE(struct plain, plain_fields);

/*** rules: every rule, at least once ***/

struct rules {
    const char *name;
    const char *choice;
    const char *any_case;
    const char *header;
    int64_t count;
    int64_t low;
    bool has_low;
    double share;
    bool has_share;
    double high;
    bool sure;
    struct str_list list;
    struct str_list choices;
};
static const char *const colours[] = { "red", "green", "blue", NULL };
static const struct field rules_fields[] = {
    FIELD_STR(struct rules, name, "Its name.", .required = true, .min_len = 1, .max_len = 12),
    FIELD_STR(struct rules, choice, "One of.", .choices = colours, .preset_str = "red"),
    FIELD_STR(struct rules, any_case, "One of, however written.", .choices = colours,
              .any_case = true),
    FIELD_STR(struct rules, header, "Long enough.", .min_len = 5, .mcp_header = "Header"),
    FIELD_INT(struct rules, count, "How many.", RANGE(1, 10), PRESET_INT(3), .mcp_header = "Count"),
    FIELD_INT(struct rules, low, "From.", .has_min = true, .min = -5,
              HAS_FLAG(struct rules, has_low)),
    FIELD_REAL(struct rules, share, "Of all.", RANGE_REAL(0, 1), HAS_FLAG(struct rules, has_share)),
    FIELD_REAL(struct rules, high, "Up to.", .has_max = true, .max_real = 99.5),
    FIELD_BOOL(struct rules, sure, "Really.", .required = true),
    FIELD_STRS(struct rules, list, "Short ones.", .required = true, .min_len = 1, .max_len = 3,
               .item_max_len = 4),
    FIELD_STRS(struct rules, choices, "Some of.", .choices = colours, .max_len = 4),
    FIELD_END,
};
static const struct shape rules_shape = SHAPE(struct rules, rules_fields);

/*** nested: structs in structs in lists ***/

struct leaf {
    const char *name;
    int64_t weight;
};
static const struct field leaf_fields[] = {
    FIELD_STR(struct leaf, name, NULL, .required = true, .max_len = 6),
    FIELD_INT(struct leaf, weight, NULL, RANGE(0, 100), PRESET_INT(50)),
    FIELD_END,
};
static const struct shape leaf_shape = SHAPE(struct leaf, leaf_fields);

struct branch {
    struct leaf first;
    bool has_first;
    struct obj_list leaves;
    struct str_list tags;
};
static const struct field branch_fields[] = {
    FIELD_OBJECT(struct branch, first, NULL, &leaf_shape, HAS_FLAG(struct branch, has_first)),
    FIELD_OBJECTS(struct branch, leaves, NULL, &leaf_shape, .max_len = 3),
    FIELD_STRS(struct branch, tags, NULL, .item_max_len = 5),
    FIELD_END,
};
static const struct shape branch_shape = SHAPE(struct branch, branch_fields);

struct nothing {
    char unused;
};
static const struct field nothing_fields[] = { FIELD_END };
static const struct shape nothing_shape = SHAPE(struct nothing, nothing_fields);

struct tree {
    struct branch trunk;
    struct obj_list branches;
    struct nothing empty;
};
static const struct field tree_fields[] = {
    FIELD_OBJECT(struct tree, trunk, "The main one.", &branch_shape, .required = true),
    FIELD_OBJECTS(struct tree, branches, "The others.", &branch_shape, .min_len = 1),
    FIELD_OBJECT(struct tree, empty, "Takes nothing.", &nothing_shape),
    FIELD_END,
};
static const struct shape tree_shape = SHAPE(struct tree, tree_fields);

/*** nullable: null is a value ***/

struct nullable {
    const char *text;
    const char *choice;
    double real;
    bool has_real;
    int64_t whole;
    bool has_whole;
    bool truth;
    bool has_truth;
    struct leaf leaf;
    bool has_leaf;
    struct str_list texts;
    struct obj_list leaves;
    const json_t *any;
};
static const struct field nullable_fields[] = {
    FIELD_STR(struct nullable, text, NULL, .required = true, .nullable = true, .max_len = 8),
    FIELD_STR(struct nullable, choice, NULL, .nullable = true, .choices = colours),
    FIELD_REAL(struct nullable, real, NULL, .required = true, .nullable = true, RANGE_REAL(-1, 1),
               HAS_FLAG(struct nullable, has_real)),
    FIELD_INT(struct nullable, whole, NULL, .nullable = true, RANGE(1, 3),
              HAS_FLAG(struct nullable, has_whole)),
    FIELD_BOOL(struct nullable, truth, NULL, .nullable = true,
               HAS_FLAG(struct nullable, has_truth)),
    FIELD_OBJECT(struct nullable, leaf, NULL, &leaf_shape, .required = true, .nullable = true,
                 HAS_FLAG(struct nullable, has_leaf)),
    FIELD_STRS(struct nullable, texts, NULL, .nullable = true, .min_len = 1),
    FIELD_OBJECTS(struct nullable, leaves, NULL, &leaf_shape, .nullable = true, .max_len = 2),
    FIELD_JSON(struct nullable, any, NULL, .nullable = true),
    FIELD_END,
};
static const struct shape nullable_shape = SHAPE(struct nullable, nullable_fields);

/*** the filter ***/

static const struct {
    const char *name;
    const struct shape *shape;
} shapes[] = {
    { "plain", &plain_shape },       { "rules", &rules_shape },     { "nested", &tree_shape },
    { "nullable", &nullable_shape }, { "nothing", &nothing_shape },
};

static const struct shape *find_shape(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        if (str_eq(shapes[i].name, name))
            return shapes[i].shape;
    return NULL;
}

/* Takes `json`. */
static void print_line(json_t *json)
{
    auto_json *owned = json;
    auto_free char *text = json_text(owned);
    puts(text);
}

static json_t *try_document(const struct shape *shape, const char *text, size_t len)
{
    json_t *verdict = json_object();
    auto_json *document = NULL;
    auto_free void *value = xmalloc(shape->size);
    struct err err = { 0 };
    int r = json_read(text, len, &JSON_LIMITS_DEFAULT, &document, &err);
    if (r == 0)
        r = shape_decode(shape, document, value, &err);
    json_put(verdict, "ok", json_boolean(r == 0));
    if (r == 0) {
        json_put(verdict, "encoded", shape_encode(shape, value));
        shape_done(shape, value);
    } else {
        json_put_str(verdict, "error", err.msg);
    }
    return verdict;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
            puts(shapes[i].name);
        return 0;
    }
    const struct shape *shape = find_shape(argv[1]);
    if (!shape) {
        (void)fprintf(stderr, "shape_tool: no shape %s\n", argv[1]);
        return 2;
    }
    print_line(shape_schema(shape));
    auto_free char *line = NULL;
    size_t cap = 0;
    for (ssize_t len; (len = getline(&line, &cap, stdin)) > 0;)
        print_line(try_document(shape, line, (size_t)len));
    return 0;
}
