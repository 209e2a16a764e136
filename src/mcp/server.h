/*
 * server: what the files of this folder share and nobody else sees: the server object, its
 * registry, the peers it talks to, and the way a message takes through them.
 *
 *   transport ─▶ dispatch.c (which method, which revision) ─▶ call.c (one request's life)
 *                   │ lists.c, notify.c: the methods the library answers itself
 *                   └ peer.c: what is remembered of one client
 */
#ifndef BELLJAR_MCP_SERVER_H
#define BELLJAR_MCP_SERVER_H

#include "base/list.h"
#include "base/loop.h"
#include "mcp/mcp.h"
#include "mcp/outlet.h"
#include "mcp/revision.h"
#include "mcp/rpc.h"
#include "mcp/seal.h"

/* --- the registry (registry.c) --------------------------------------------------------------- */

enum entry_kind { ENTRY_TOOL, ENTRY_RESOURCE, ENTRY_TEMPLATE, ENTRY_PROMPT, ENTRY_KINDS };

struct entry {
    union {
        const struct mcp_tool *tool;
        const struct mcp_resource *resource;
        const struct mcp_template *templ;
        const struct mcp_prompt *prompt;
    };
    void *data;
    json_t *listing; /* as listed, in newest form */
    bool hidden;
};

struct entry_table {
    struct entry *entries; /* in order of registration, which is the order of listing */
    size_t count;
    /* Made when first asked for: the visible listings, and the text of the whole result where one
     * page holds it (a list is asked for far more often than it changes). */
    json_t *fitted[REVISION_COUNT];
    char *whole[REVISION_COUNT];
};

struct registry {
    struct entry_table tables[ENTRY_KINDS];
};

void registry_done(struct registry *registry);
const struct entry *registry_find(const struct registry *registry, enum entry_kind kind,
                                  const char *name);
/* The visible entries as `revision` sees them; a borrowed array. */
const json_t *registry_list(struct registry *registry, enum entry_kind kind,
                            enum revision revision);
bool registry_completes(const struct registry *registry);
/* {name, version, title …} in newest form; a new reference. */
json_t *registry_implementation(const struct mcp_info *info);

/* --- the server (server.c) -------------------------------------------------------------------- */

struct mcp_server {
    uv_loop_t *loop;
    struct mcp_info info;
    json_t *implementation; /* newest form */
    struct mcp_limits limits;
    unsigned capabilities;
    struct registry registry;
    mcp_list_fn *list_resources; /* NULL: the registered ones are all */
    void *list_data;
    void (*on_watch)(const char *owner, void *data);
    void *watch_data;
    struct list peers;
    struct list orphans; /* calls whose client is gone and whose handler is still at it */
    struct mcp_stats stats;
    void (*on_first_answer)(void *data);
    void *on_first_answer_data;
    unsigned char seal_key[SEAL_KEY_SIZE];
};

/* The capabilities object for `revision`; a new reference. */
json_t *server_capabilities(const struct mcp_server *server, enum revision revision);

/* --- peers (peer.c) --------------------------------------------------------------------------- */

/*
 * One client as far as the protocol remembers it: the stdio process, an HTTP session of the
 * handshake era, or a single HTTP exchange of the stateless era (nothing of which outlives it).
 */
struct peer {
    struct mcp_server *server;
    struct list link;    /* server->peers */
    struct list calls;   /* unanswered requests: mcp_call.link */
    struct list listens; /* open subscriptions/listen streams (notify.c) */
    size_t n_calls, n_listens;
    char *owner;
    struct outlet *standing; /* for messages that belong to no request; NULL: nowhere */

    /* Handshake era. */
    bool initialized;
    enum revision revision;
    json_t *client_capabilities;
    int log_level;
    json_t *subscribed; /* object: uri → true */
    bool listed;        /* it has asked for the resources, and may hold what is stale by now */
    int64_t next_ask;
};

void peer_init(struct peer *peer, struct mcp_server *server, const char *owner);
/* Cancels what runs for it and forgets it. */
void peer_done(struct peer *peer);

/* The call with this id, or NULL. */
struct mcp_call *peer_find_call(const struct peer *peer, const json_t *id);

/* A call's questions to the client: ends them unanswered, or drops them unheard. */
void peer_end_asks(struct mcp_call *call, const char *error);
void peer_forget_asks(struct mcp_call *call);

/* An answer from the client to one of our requests. */
void peer_take_response(struct peer *peer, const struct rpc_message *message);

/* --- calls (call.c) --------------------------------------------------------------------------- */

enum call_kind { CALL_PLAIN, CALL_TOOL, CALL_RESOURCE, CALL_PROMPT, CALL_COMPLETION, CALL_LIST };

struct mcp_call {
    struct mcp_server *server;
    struct peer *peer; /* NULL once the client is gone */
    struct list link;  /* peer->calls, or server->orphans */
    struct outlet *outlet;
    json_t *root; /* the message; keeps everything borrowed below alive */
    json_t *id;
    const json_t *params; /* never NULL */
    enum revision revision;
    json_t *client_capabilities; /* of this request, or the peer's; a reference, or NULL */
    char *owner;
    json_t *progress_token;
    double last_progress;
    bool sent_progress;
    int log_level; /* least level the client wants, -1: none */

    enum call_kind kind;
    const struct entry *entry;
    const json_t *arguments; /* object */
    json_t *no_arguments;    /* stands in for absent ones */
    void *args;              /* decoded by the tool's input shape */
    json_t *blocks;          /* content, contents, messages or completion values */
    json_t *structured;
    size_t completions;
    char *last_listed; /* CALL_LIST: URI of the last entry; NULL: none yet */
    size_t listed_bytes;
    bool list_full;

    const json_t *inputs; /* stateless era: answers of the client */
    json_t *state;        /* verified requestState */
    json_t *needs;        /* questions of this round */

    struct list asks; /* our requests that wait for the client's answer (peer.c) */

    unsigned holds; /* frames that still look at it; freed when finished and 0 */
    bool deferred, cancelled, finished;
    void (*on_cancel)(struct mcp_call *call, void *data);
    void *cancel_data;
};

struct call_request {
    struct peer *peer;
    struct outlet *outlet;
    const struct rpc_message *message;
    enum revision revision;
    const struct rpc_envelope *envelope; /* stateless era, else NULL */
};
struct mcp_call *call_new(const struct call_request *request);

/* Ends a call with a whole result (taken) or an error; members of the stateless era are added. */
void call_reply(struct mcp_call *call, json_t *result);
/* The same in two steps, for a result whose text is kept. */
void call_complete_result(const struct mcp_call *call, json_t *result);
void call_reply_text(struct mcp_call *call, const char *result);
void call_reply_error(struct mcp_call *call, struct rpc_error *error, int status);
void call_reply_errorf(struct mcp_call *call, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Runs `handler` and answers for it when it forgot to. */
void call_run(struct mcp_call *call, void (*handler)(struct mcp_call *call));

/* Between the two, finishing the call does not free it. */
void call_hold(struct mcp_call *call);
void call_release(struct mcp_call *call);

/* The client no longer wants it: nothing more is sent. */
void call_cancel(struct mcp_call *call);

/* What binds a requestState: method, name and owner; owned by the caller. */
char *call_binding(const struct mcp_call *call);

/* Takes inputResponses and requestState of a retried request; 0, or negative with `error`. */
int call_open_state(struct mcp_call *call, struct rpc_error *error);

/* Sends a message that belongs to a call. */
void call_send(struct mcp_call *call, json_t *message, enum outlet_kind kind);

/* --- methods (dispatch.c, lists.c, notify.c) -------------------------------------------------- */

/* One request; answered through request->outlet, now or later. */
void dispatch_request(const struct call_request *request);
void dispatch_notification(struct peer *peer, const struct rpc_message *message);

/* Is this an `initialize` of the handshake era (and not one that claims a stateless revision)? */
bool dispatch_is_handshake(const struct rpc_message *message);

/* Classification for transports without headers: a parsed line, single or batch. */
void dispatch_line(struct peer *peer, struct outlet *outlet, json_t *root);

/* A batch of the handshake era: array of requests, notifications and responses. False when the
 * array holds no request, so that nothing will be answered. -32600 is answered for a bad batch. */
bool dispatch_batch(struct peer *peer, struct outlet *outlet, json_t *array);

/* An error outside any call: framing, envelope. `id` may be NULL. */
void dispatch_refuse(struct outlet *outlet, json_t *id, const struct rpc_error *error, int status);

void method_list(struct mcp_call *call, enum entry_kind kind);
void method_list_resources(struct mcp_call *call);
void finish_list(struct mcp_call *call);
void method_complete(struct mcp_call *call);
void method_subscribe(struct mcp_call *call);
void method_unsubscribe(struct mcp_call *call);
void method_listen(struct mcp_call *call);

/* The client of this call follows resources from now on. */
void notify_watch_begins(const struct mcp_call *call);

/* Ends the listen streams of a peer, each with its result. */
void notify_end_listens(struct peer *peer, bool with_notification);

#endif
