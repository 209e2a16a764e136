/*
 * header_rules: how HTTP headers and the body of a message must agree (2026-07-28), and which
 * content types an exchange may use. Pure: headers come in as strings.
 */
#ifndef BELLJAR_MCP_HEADER_RULES_H
#define BELLJAR_MCP_HEADER_RULES_H

#include "mcp/rpc.h"

/* One header of a request; `count` > 1 when it was sent several times. */
struct mirrored {
    const char *value; /* trimmed; NULL when absent */
    size_t count;
};

/* Looks up a header by name (any case). */
typedef struct mirrored header_lookup_fn(const char *name, const void *data);

/* What is there agrees with the body: version and method (step 8 of the classification). 0, or
 * -EBADMSG with -32020. */
int header_rules_agree(const struct rpc_message *message, const char *claimed_version,
                       header_lookup_fn *lookup, const void *data, struct rpc_error *error);

/* What a request must carry is there: version, method, and Mcp-Name where the method has one,
 * equal to the body after decoding (step 10). */
int header_rules_required(const struct rpc_message *message, header_lookup_fn *lookup,
                          const void *data, struct rpc_error *error);

/* tools/call: Mcp-Param-<Name> agrees with the arguments for every property of `schema` that
 * carries x-mcp-header, nested ones included (step 12). */
int header_rules_params(const json_t *schema, const json_t *arguments, header_lookup_fn *lookup,
                        const void *data, struct rpc_error *error);

/* Decodes =?base64?…?= or takes the text literally. 0 or -EINVAL. */
int header_rules_decode(const char *value, struct buf *ret);

/* Is the version header one of the stateless era (compares >= "2026-07-28" as bytes)? */
bool header_rules_is_stateless(const char *version);

/* Media types. content_type: "application/json" with any parameters (charset must be utf-8). */
bool header_rules_is_json(const char *content_type);
/* Does an Accept value allow this type (honours wildcards and q=0)? NULL allows everything. */
bool header_rules_accepts(const char *accept, const char *media_type);

#endif
