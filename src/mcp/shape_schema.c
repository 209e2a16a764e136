/*
 * The JSON Schema of a shape: what shape.c accepts, in the words of the 2020-12 vocabulary. It never
 * forbids what decoding takes. Where it cannot say a rule it says the nearest weaker one: our string
 * lengths are bytes, JSON Schema's are characters, and a character has one to four bytes.
 */
#include "mcp/shape.h"

#include <assert.h>

static const char *const type_names[] = {
    [FIELD_TYPE_STR] = "string",    [FIELD_TYPE_INT] = "integer",   [FIELD_TYPE_REAL] = "number",
    [FIELD_TYPE_BOOL] = "boolean",  [FIELD_TYPE_JSON] = "object",   [FIELD_TYPE_STRS] = "array",
    [FIELD_TYPE_OBJECT] = "object", [FIELD_TYPE_OBJECTS] = "array",
};

static void put_size(json_t *schema, const char *key, size_t size)
{
    if (size)
        json_put(schema, key, json_integer((json_int_t)size));
}

static void put_lengths(json_t *schema, size_t min_bytes, size_t max_bytes)
{
    put_size(schema, "minLength", (min_bytes + 3) / 4);
    put_size(schema, "maxLength", max_bytes);
}

static void put_type(json_t *schema, const struct field *field)
{
    json_t *type = json_string(type_names[field->type]);
    if (field->nullable) {
        json_t *types = json_array();
        json_push(types, type);
        json_push(types, json_string("null"));
        type = types;
    }
    json_put(schema, "type", type);
}

static void put_choices(json_t *schema, const char *const *choices, bool nullable)
{
    if (!choices)
        return;
    json_t *values = json_array();
    for (size_t i = 0; choices[i]; i++)
        json_push(values, json_string(choices[i]));
    if (nullable)
        json_push(values, json_null());
    json_put(schema, "enum", values);
}

static json_t *preset(const struct field *field)
{
    if (field->type == FIELD_TYPE_STR && field->preset_str)
        return json_string(field->preset_str);
    if (!field->has_preset)
        return NULL;
    switch (field->type) {
    case FIELD_TYPE_INT:
        return json_integer(field->preset_int);
    case FIELD_TYPE_REAL:
        return json_real(field->preset_real);
    case FIELD_TYPE_BOOL:
        return json_boolean(field->preset_bool);
    default:
        return NULL;
    }
}

static void put_range(json_t *schema, const struct field *field)
{
    bool whole = field->type == FIELD_TYPE_INT;
    if (field->has_min)
        json_put(schema, "minimum", whole ? json_integer(field->min) : json_real(field->min_real));
    if (field->has_max)
        json_put(schema, "maximum", whole ? json_integer(field->max) : json_real(field->max_real));
}

static json_t *string_item_schema(const struct field *list)
{
    json_t *schema = json_object();
    json_put_str(schema, "type", "string");
    put_choices(schema, list->choices, /* nullable= */ false);
    put_lengths(schema, 0, list->item_max_len);
    return schema;
}

static void put_members(json_t *schema, const struct shape *shape);

static void put_rules(json_t *schema, const struct field *field)
{
    switch (field->type) {
    case FIELD_TYPE_STR:
        put_choices(schema, field->choices, field->nullable);
        put_lengths(schema, field->min_len, field->max_len);
        break;
    case FIELD_TYPE_INT:
    case FIELD_TYPE_REAL:
        put_range(schema, field);
        break;
    case FIELD_TYPE_STRS:
        json_put(schema, "items", string_item_schema(field));
        put_size(schema, "minItems", field->min_len);
        put_size(schema, "maxItems", field->max_len);
        break;
    case FIELD_TYPE_OBJECTS:
        json_put(schema, "items",
                 field->nested ? shape_schema(field->nested) : json_pack("{ss}", "type", "object"));
        put_size(schema, "minItems", field->min_len);
        put_size(schema, "maxItems", field->max_len);
        break;
    case FIELD_TYPE_OBJECT:
        put_members(schema, field->nested);
        break;
    case FIELD_TYPE_BOOL:
    case FIELD_TYPE_JSON:
    case FIELD_TYPE_END:
        break;
    }
}

/* Clients drop a tool whose x-mcp-header stands on anything else. */
static bool may_be_header(const struct field *field)
{
    return !field->nullable && (field->type == FIELD_TYPE_STR || field->type == FIELD_TYPE_INT ||
                                field->type == FIELD_TYPE_BOOL);
}

static json_t *field_schema(const struct field *field)
{
    json_t *schema = json_object();
    put_type(schema, field);
    if (field->help)
        json_put_str(schema, "description", field->help);
    put_rules(schema, field);
    json_t *value = preset(field);
    if (value)
        json_put(schema, "default", value);
    if (field->mcp_header) {
        assert(may_be_header(field));
        json_put_str(schema, "x-mcp-header", field->mcp_header);
    }
    return schema;
}

static void put_members(json_t *schema, const struct shape *shape)
{
    json_t *properties = json_object();
    json_t *required = json_array();
    for (const struct field *field = shape ? shape->fields : NULL; field && field->type; field++) {
        json_put(properties, field->name, field_schema(field));
        if (field->required)
            json_push(required, json_string(field->name));
    }
    if (json_object_size(properties))
        json_put(schema, "properties", properties);
    else
        json_decref(properties);
    if (json_array_size(required))
        json_put(schema, "required", required);
    else
        json_decref(required);
    json_put(schema, "additionalProperties", json_false());
}

json_t *shape_schema(const struct shape *shape)
{
    json_t *schema = json_object();
    json_put_str(schema, "type", "object");
    put_members(schema, shape);
    return schema;
}
