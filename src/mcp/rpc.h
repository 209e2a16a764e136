/*
 * rpc: the JSON-RPC 2.0 envelope, and the envelope of the stateless era inside it. Pure.
 */
#ifndef BELLJAR_MCP_RPC_H
#define BELLJAR_MCP_RPC_H

#include "base/json.h"
#include "mcp/revision.h"

#define META_VERSION "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define META_CLIENT_INFO "io.modelcontextprotocol/clientInfo"
#define META_LOG_LEVEL "io.modelcontextprotocol/logLevel"
#define META_SERVER_INFO "io.modelcontextprotocol/serverInfo"
#define META_SUBSCRIPTION "io.modelcontextprotocol/subscriptionId"

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE };

/* A message taken apart. Everything is borrowed from `root`. */
struct rpc_message {
    enum rpc_kind kind;
    const json_t *root;
    json_t *id;           /* string or integer; NULL for notifications */
    const char *method;   /* NULL for responses */
    const json_t *params; /* an object or NULL */
    const json_t *result; /* responses: one of the two */
    const json_t *error;
};

/* An error about to be sent. Setting it overwrites what was there, without releasing it. */
struct rpc_error {
    int code;     /* enum mcp_error */
    json_t *data; /* owned, or NULL */
    char text[400];
};
void rpc_error_set(struct rpc_error *error, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void rpc_error_done(struct rpc_error *error);

/* 0, or -EBADMSG with `error` filled (-32600). ret->id and ret->kind are set as far as they could be
 * read, so that the error can be addressed, and a bad notification or response stays unanswered. */
int rpc_parse(const json_t *root, struct rpc_message *ret, struct rpc_error *error);

/* New messages; `id` is borrowed (copied by reference) unless stated. */
json_t *rpc_result(json_t *id, json_t *result);                      /* takes result */
json_t *rpc_error_reply(json_t *id, const struct rpc_error *error);  /* id NULL: left out */
json_t *rpc_notification(const char *method, json_t *params);        /* takes params; NULL: none */
json_t *rpc_request(json_t *id, const char *method, json_t *params); /* takes id and params */

/* Does the message claim a stateless revision: params._meta holds META_VERSION at all? */
bool rpc_has_claim(const struct rpc_message *message);

/* The per-request envelope of the stateless era. Borrowed from the message. */
struct rpc_envelope {
    const char *version;
    const json_t *capabilities;
    const json_t *client_info; /* or NULL */
    const char *log_level;     /* or NULL */
};

/* The envelope is well formed; 0, or -EBADMSG with `error` (-32602) naming the key. The version
 * may still be one we do not serve: see rpc_check_version(). */
int rpc_envelope(const struct rpc_message *message, struct rpc_envelope *ret,
                 struct rpc_error *error);
/* 0, or -EPROTONOSUPPORT with -32022 and data {supported, requested}. */
int rpc_check_version(const char *version, struct rpc_error *error);

/* params._meta.progressToken when it is a string or an integer; else NULL. */
json_t *rpc_progress_token(const struct rpc_message *message);

/* Index of a log level, -1 for an unknown one. */
int rpc_log_level(const char *name);

#endif
