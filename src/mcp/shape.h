/*
 * shape: one table per struct, from which come its JSON Schema, its decoding with validation, its
 * encoding, and the words of every error. The two sides cannot disagree because there is one.
 *
 *     struct greet_args { const char *name; int64_t times; };
 *     static const struct field greet_fields[] = {
 *         FIELD_STR(struct greet_args, name, "Whom to greet.", .required = true, .max_len = 100),
 *         FIELD_INT(struct greet_args, times, "How often.", RANGE(1, 10), PRESET_INT(1)),
 *         FIELD_END,
 *     };
 *     static const struct shape greet_shape = SHAPE(struct greet_args, greet_fields);
 *
 * Decoding fills a zeroed struct from a JSON object. Strings and nested values point into the
 * object, which must stay alive; lists are allocated and released by shape_done(). An absent or
 * null optional member keeps its preset (or stays zero/NULL and its `has` flag false); an absent
 * nested struct holds the presets of its own rows. Unknown members are refused by name.
 *
 * The schema never forbids what decoding takes from a client that follows it. Decoding is more
 * lenient in two ways (null for any optional member, any_case) and stricter in three that JSON
 * Schema cannot say: lengths of strings are bytes, a string has no NUL, an integer has 64 bits.
 *
 * The macros check at compile time that the member has the type the row says.
 */
#ifndef BELLJAR_MCP_SHAPE_H
#define BELLJAR_MCP_SHAPE_H

#include "base/err.h"
#include "base/json.h"

enum field_type {
    FIELD_TYPE_END,
    FIELD_TYPE_STR,     /* const char *; without NUL bytes */
    FIELD_TYPE_INT,     /* int64_t */
    FIELD_TYPE_REAL,    /* double */
    FIELD_TYPE_BOOL,    /* bool */
    FIELD_TYPE_JSON,    /* const json_t *: an object, any members */
    FIELD_TYPE_STRS,    /* struct str_list: array of strings */
    FIELD_TYPE_OBJECT,  /* nested struct with its own shape */
    FIELD_TYPE_OBJECTS, /* struct obj_list: array of nested structs, or see there */
};

struct str_list {
    const char **items;
    size_t count;
};

struct obj_list {
    /* `count` structs of the nested shape's size, one after the other; where there is no such shape,
     * const json_t *: objects, any members. */
    void *items;
    size_t count;
};

struct shape;

struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    const char *help;

    /* Everything below is optional; zero means "no such rule". */
    bool required;
    bool nullable;          /* null is a value; output: a NULL string or absent object is null */
    size_t has_offset;      /* offset + 1 of a bool set when the member was given */
    const char *preset_str; /* default, shown in the schema */
    int64_t preset_int;     /* used when has_preset */
    double preset_real;
    bool preset_bool;
    bool has_preset;       /* for int, real and bool presets */
    bool has_min, has_max; /* int: min/max; real: min_real/max_real */
    int64_t min, max;
    double min_real, max_real;
    size_t min_len, max_len;    /* strings: bytes; lists: items */
    size_t item_max_len;        /* STRS: bytes of one item */
    const char *const *choices; /* strings, or items of STRS: NULL-terminated enum */
    bool any_case;              /* choices match in any case; decoded in the spelling given here */
    const char *mcp_header;     /* x-mcp-header: clients mirror the argument in Mcp-Param-… */
    const struct shape *nested;
};

struct shape {
    const struct field *fields; /* ends with FIELD_END */
    size_t size;                /* of the struct */
};

/* The member's offset, if it has the C type that the row needs; a compile error otherwise. */
#define FIELD_AT(S, member, ctype)                                                                 \
    (offsetof(S, member) + 0 * sizeof(char[_Generic(((S *)0)->member, ctype : 1, default : -1)]))

#define FIELD_STR(S, member, help_, ...)                                                           \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_STR, .offset = FIELD_AT(S, member, const char *),      \
        .help = (help_), __VA_ARGS__                                                               \
    }
#define FIELD_INT(S, member, help_, ...)                                                           \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_INT, .offset = FIELD_AT(S, member, int64_t),           \
        .help = (help_), __VA_ARGS__                                                               \
    }
#define FIELD_REAL(S, member, help_, ...)                                                          \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_REAL, .offset = FIELD_AT(S, member, double),           \
        .help = (help_), __VA_ARGS__                                                               \
    }
#define FIELD_BOOL(S, member, help_, ...)                                                          \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_BOOL, .offset = FIELD_AT(S, member, bool),             \
        .help = (help_), __VA_ARGS__                                                               \
    }
#define FIELD_JSON(S, member, help_, ...)                                                          \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_JSON, .offset = FIELD_AT(S, member, const json_t *),   \
        .help = (help_), __VA_ARGS__                                                               \
    }
#define FIELD_STRS(S, member, help_, ...)                                                          \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_STRS, .offset = FIELD_AT(S, member, struct str_list),  \
        .help = (help_), __VA_ARGS__                                                               \
    }
#define FIELD_OBJECT(S, member, help_, nested_, ...)                                               \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_OBJECT, .offset = offsetof(S, member),                 \
        .help = (help_), .nested = (nested_), __VA_ARGS__                                          \
    }
#define FIELD_OBJECTS(S, member, help_, nested_, ...)                                              \
    {                                                                                              \
        .name = #member, .type = FIELD_TYPE_OBJECTS,                                               \
        .offset = FIELD_AT(S, member, struct obj_list), .help = (help_), .nested = (nested_),      \
        __VA_ARGS__                                                                                \
    }
#define FIELD_END                                                                                  \
    {                                                                                              \
        .type = FIELD_TYPE_END                                                                     \
    }
#define SHAPE(S, fields_)                                                                          \
    {                                                                                              \
        .fields = (fields_), .size = sizeof(S)                                                     \
    }

/* Rules that take more than one member. */
#define RANGE(lo, hi) .has_min = true, .has_max = true, .min = (lo), .max = (hi)
#define RANGE_REAL(lo, hi) .has_min = true, .has_max = true, .min_real = (lo), .max_real = (hi)
#define PRESET_INT(value) .has_preset = true, .preset_int = (value)
#define PRESET_REAL(value) .has_preset = true, .preset_real = (value)
#define PRESET_BOOL(value) .has_preset = true, .preset_bool = (value)
#define HAS_FLAG(S, member) .has_offset = FIELD_AT(S, member, bool) + 1

/* JSON Schema (2020-12 dialect, root "type":"object", additionalProperties false); a new
 * reference. NULL stands for a shape without fields. */
json_t *shape_schema(const struct shape *shape);

/* Fills *ret (shape->size bytes) from `object`. -EINVAL and err names the field, what is allowed
 * and what was given. On failure there is nothing to release. */
int shape_decode(const struct shape *shape, const json_t *object, void *ret, struct err *err);

/* Releases the lists that decoding made. */
void shape_done(const struct shape *shape, void *value);

/* The JSON object of a struct; a new reference. Text that is not UTF-8 is made so. Optional members
 * that are NULL (or whose `has` flag is false) are left out, or null when nullable. So is a number
 * that is not finite. A required list may be NULL (it is written empty), any other required member
 * must be there. Ranges, lengths and choices are the caller's promise and not checked here. */
json_t *shape_encode(const struct shape *shape, const void *value);

#endif
