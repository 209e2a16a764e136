/*
 * mcp: a Model Context Protocol server as a library. It speaks every revision from 2024-11-05 to
 * 2026-07-28 at once, over stdio and Streamable HTTP; what it offers is registered here.
 *
 *   1. mcp_server_new()       who we are
 *   2. mcp_server_add_…()     tools, resources, templates, prompts
 *   3. mcp_stdio_start() or mcp_http_start()    serve; any number of transports
 *   4. run the uv loop
 *   5. mcp_server_free()      after the transports have been freed
 *
 * A whole tool:
 *
 *     struct greet_args { const char *name; int64_t times; };
 *     static const struct field greet_fields[] = {
 *         FIELD_STR(struct greet_args, name, "Whom to greet.", .required = true, .max_len = 100),
 *         FIELD_INT(struct greet_args, times, "How often.", RANGE(1, 10), PRESET_INT(1)),
 *         FIELD_END,
 *     };
 *     static const struct shape greet_shape = SHAPE(struct greet_args, greet_fields);
 *
 *     static void greet(struct mcp_call *call, const void *arguments, void *data)
 *     {
 *         const struct greet_args *args = arguments;       // decoded and checked
 *         for (int64_t i = 0; i < args->times; i++)
 *             mcp_call_add(call, mcp_textf("Hello, %s!", args->name));
 *         mcp_call_finish(call);
 *     }
 *
 *     static const struct mcp_tool greet_tool = {
 *         .name = "greet", .title = "Greet", .description = "Says hello.",
 *         .input = &greet_shape, .hints = MCP_READ_ONLY, .call = greet,
 *     };
 *     mcp_server_add_tool(server, &greet_tool, NULL);
 *
 * The kinds of field (FIELD_STR, FIELD_INT, FIELD_REAL, FIELD_BOOL, FIELD_JSON, FIELD_STRS,
 * FIELD_OBJECT, FIELD_OBJECTS) and the rules a row may carry are in shape.h. Arguments that break
 * a rule never reach the handler: the client is told which field, what is allowed and what it sent.
 *
 * A handler answers now or later. It owns its call until it has finished it, and finishes it
 * exactly once, with one of mcp_call_finish(), mcp_call_say(), mcp_call_fail(), mcp_call_error(),
 * mcp_call_not_found() or mcp_call_ask(). To answer later it calls mcp_call_defer() before it
 * returns; a handler that does neither is answered for with an internal error. When the client
 * cancels, or (2026-07-28 over HTTP) disconnects, on_cancel is called once; the handler still
 * finishes the call, soon, and what it says is thrown away.
 *
 * Content is written in its newest form; what an older revision does not know is left out or
 * turned into text for the client that speaks it.
 *
 * One thread: everything here, callbacks included, runs on the loop's thread. The program ignores
 * SIGPIPE: a client that leaves is an error of a write, not the end of the program.
 */
#ifndef BELLJAR_MCP_H
#define BELLJAR_MCP_H

#include "base/err.h"
#include "base/json.h"
#include "mcp/shape.h"

#include <uv.h>

struct mcp_server;
struct mcp_call;

/* --- the server ----------------------------------------------------------------------------- */

/* Strings are borrowed for the server's life; NULL where there is none. */
struct mcp_icon {
    const char *src; /* https: or data: URI */
    const char *mime_type;
    const char *sizes; /* "48x48" or "any" */
    const char *theme; /* "light" or "dark" */
};

struct mcp_info {
    const char *name;    /* required */
    const char *version; /* required */
    const char *title;
    const char *description;
    const char *website_url;
    const struct mcp_icon *icons; /* ends with a row whose src is NULL */
    const char *instructions;     /* how a model should use this server */
};

struct mcp_limits {
    struct json_limits json;  /* of each message that comes in */
    size_t max_message;       /* bytes of one line on stdio */
    size_t max_answer;        /* bytes of one result; a longer one becomes an error */
    size_t max_batch;         /* messages in a 2025-03-26 batch */
    size_t max_requests;      /* unanswered requests of one client */
    size_t max_subscriptions; /* of one client: listen streams, and subscribed resources */
    size_t page_size;         /* entries of one list page */
    uint64_t list_ttl_ms;     /* cache hint on lists and discover (2026-07-28) */
    uint64_t state_ttl_ms;    /* how long a requestState of mcp_call_ask() is honoured */
};
extern const struct mcp_limits MCP_LIMITS_DEFAULT;

enum mcp_capability {
    MCP_LOGGING = 1 << 0,      /* mcp_call_log() reaches clients */
    MCP_SUBSCRIBE = 1 << 1,    /* mcp_server_resource_updated() will be called */
    MCP_TOOLS_CHANGE = 1 << 2, /* the lists change while serving */
    MCP_RESOURCES_CHANGE = 1 << 3,
    MCP_PROMPTS_CHANGE = 1 << 4,
    MCP_RESOURCES = 1 << 5, /* there are lists of these, even if they are empty */
    MCP_PROMPTS = 1 << 6,
};

/* `capabilities` are those that registration alone does not show. Tools, resources, prompts and
 * completion are declared to clients when something of the kind has been added. */
struct mcp_server *mcp_server_new(uv_loop_t *loop, const struct mcp_info *info,
                                  const struct mcp_limits *limits, unsigned capabilities);
void mcp_server_free(struct mcp_server *server); /* NULL is fine */

/* Counters for /metrics. */
struct mcp_stats {
    uint64_t requests_total; /* answered or being answered */
    uint64_t errors_total;   /* answered with a JSON-RPC error */
    uint64_t cancelled_total;
    uint64_t in_flight;
    uint64_t sessions_open; /* HTTP sessions of the handshake era */
    uint64_t streams_open;  /* listen streams */
};
void mcp_server_stats(const struct mcp_server *server, struct mcp_stats *ret);

/* `on_first` once, when the first request of all has been answered: the time to begin with what only a
 * server that is used needs. */
void mcp_server_on_first_answer(struct mcp_server *server, void (*on_first)(void *data),
                                void *data);

/* --- what is offered: all structs are borrowed and must outlive the server ------------------ */

enum mcp_hint {
    MCP_READ_ONLY = 1 << 0,   /* changes nothing */
    MCP_DESTRUCTIVE = 1 << 1, /* may destroy what was there (only if not read-only) */
    MCP_IDEMPOTENT = 1 << 2,  /* a second identical call changes nothing more */
    MCP_OPEN_WORLD = 1 << 3,  /* reaches beyond this server */
};

struct mcp_tool {
    const char *name; /* 1–64 of A–Z a–z 0–9 _ - */
    const char *title;
    const char *description;    /* required */
    const struct shape *input;  /* NULL: takes no arguments */
    const struct shape *output; /* NULL: no structured content; see mcp_call_structured() */
    const char *input_schema;   /* JSON text instead of `input`: published as it stands; the
                                   handler checks mcp_call_arguments() itself */
    unsigned hints;
    const struct mcp_icon *icons;
    bool hidden; /* callable but not listed */
    /* Fails a call whose arguments break a rule, in the tool's own words; `why` names the field.
     * NULL: "TOOL: WHY". */
    void (*refuse)(struct mcp_call *call, const char *tool, const char *why);
    /* args: a struct of the input shape, valid until the call is finished; NULL without one. */
    void (*call)(struct mcp_call *call, const void *args, void *data);
};

/* Names must be unique: registering one twice is a bug (asserted). */
void mcp_server_add_tool(struct mcp_server *server, const struct mcp_tool *tool, void *data);

struct mcp_resource {
    const char *uri;
    const char *name;
    const char *title;
    const char *description;
    const char *mime_type;
    int64_t size; /* bytes; 0: not said */
    const struct mcp_icon *icons;
    void (*read)(struct mcp_call *call, const char *uri, void *data);
};
void mcp_server_add_resource(struct mcp_server *server, const struct mcp_resource *resource,
                             void *data);

/* Resources that come and go, and differ from caller to caller: `list` is asked for each page of
 * resources/list, behind the registered ones. It offers what this caller may see with
 * mcp_call_add_listing(), in an order that stays, beginning behind the URI `after` (NULL: from the
 * first; it may have gone meanwhile), until that says false or there are no more, and finishes the
 * call, now or later. */
struct mcp_listing {
    const char *uri;
    const char *name;
    const char *title;
    const char *mime_type;
    int64_t size; /* bytes; negative: not said */
};
typedef void mcp_list_fn(struct mcp_call *call, const char *after, void *data);
void mcp_server_list_resources(struct mcp_server *server, mcp_list_fn *list, void *data);
/* resources/list: false when the page is full and this entry has to wait for the next. */
bool mcp_call_add_listing(struct mcp_call *call, const struct mcp_listing *listing);

/* A family of resources. The template has {name} (one path segment) and {+name} (the rest, slashes
 * included) as of RFC 6570. `vars` holds the values, percent-decoded, in the order of the
 * template. Values with NUL bytes or invalid UTF-8 never reach the handler. */
struct mcp_template {
    const char *uri_template;
    const char *name;
    const char *title;
    const char *description;
    const char *mime_type;
    const struct mcp_icon *icons;
    void (*read)(struct mcp_call *call, const char *uri, const char *const vars[], void *data);
    /* Offers values for variable `name` that begin with `value`: see mcp_call_add_completion().
     * NULL: none. `known` (may be NULL) holds the variables already chosen. */
    void (*complete)(struct mcp_call *call, const char *name, const char *value,
                     const json_t *known, void *data);
};
void mcp_server_add_template(struct mcp_server *server, const struct mcp_template *templ,
                             void *data);

struct mcp_prompt_arg {
    const char *name; /* NULL ends the table */
    const char *title;
    const char *description;
    bool required;
};

struct mcp_prompt {
    const char *name;
    const char *title;
    const char *description;           /* required */
    const struct mcp_prompt_arg *args; /* NULL: none */
    const struct mcp_icon *icons;
    /* `args` is an object of strings; required ones are there, unknown ones were refused. */
    void (*get)(struct mcp_call *call, const json_t *args, void *data);
    void (*complete)(struct mcp_call *call, const char *name, const char *value,
                     const json_t *known, void *data);
};
void mcp_server_add_prompt(struct mcp_server *server, const struct mcp_prompt *prompt, void *data);

/* Tell subscribed clients that a list or a resource has changed. A resource update reaches those
 * who asked for that URI or for one it lies under. `owner` NULL: every client; otherwise only that
 * owner's (see mcp_call_owner()). True: somebody was told. */
void mcp_server_tools_changed(struct mcp_server *server);
void mcp_server_resources_changed(struct mcp_server *server, const char *owner);
void mcp_server_prompts_changed(struct mcp_server *server);
bool mcp_server_resource_updated(struct mcp_server *server, const char *uri, const char *owner);
/* All at this URI and below it may have changed: tells of each that somebody asked for. */
void mcp_server_resources_updated(struct mcp_server *server, const char *uri, const char *owner);

/* Does a client of this owner follow resources: has it asked for the list (handshake era), subscribed
 * or opened a stream? Only then is it worth looking for changes. on_watch, once set, is called when
 * one begins to. */
bool mcp_server_watched(const struct mcp_server *server, const char *owner);
void mcp_server_on_watch(struct mcp_server *server, void (*on_watch)(const char *owner, void *data),
                         void *data);

/* --- a call: what the client said ----------------------------------------------------------- */

/* The arguments as sent; an object, never NULL. Borrowed until the call is finished. */
const json_t *mcp_call_arguments(const struct mcp_call *call);

/* On whose behalf: the stdio process, the HTTP token's holder, the HTTP session, or the one local
 * user. Two calls with equal owners may share sessions; others must not learn of them. */
const char *mcp_call_owner(const struct mcp_call *call);
/* Over HTTP: whoever has the token; without one, a client of the stateless revision. */
#define MCP_OWNER_TOKEN "token"
#define MCP_OWNER_LOCAL "local"
/* Over HTTP: will the same caller have the same name with another server? Not one that is known by its MCP session
 * alone. */
bool mcp_owner_comes_back(const char *owner);

/* "2025-11-25" …, and whether it is of the stateless era. */
const char *mcp_call_revision(const struct mcp_call *call);
bool mcp_call_is_stateless(const struct mcp_call *call);

/* Does the client declare this capability: "sampling", "roots", "elicitation", "elicitation.url"? */
bool mcp_call_client_can(const struct mcp_call *call, const char *capability);

/* Has the client asked for progress? */
bool mcp_call_wants_progress(const struct mcp_call *call);

/* --- a call: while it runs ------------------------------------------------------------------ */

/* Announces that the call will be finished later. on_cancel may finish the call itself. */
void mcp_call_defer(struct mcp_call *call, void (*on_cancel)(struct mcp_call *call, void *data),
                    void *data);
bool mcp_call_cancelled(const struct mcp_call *call);

/* Progress, if it was asked for. `progress` must grow; total 0 and message NULL: not said. */
void mcp_call_progress(struct mcp_call *call, double progress, double total, const char *message);

/* A log message to this client, if it wants that level ("debug" … "emergency"). Takes `data`. */
void mcp_call_log(struct mcp_call *call, const char *level, const char *logger, json_t *data);

/* Handshake era: asks the client ("sampling/createMessage", "elicitation/create", "roots/list")
 * and calls back once: with result, or with result NULL and why. Takes `params`. The call must be
 * deferred. When the client cannot be asked (capability not declared, stateless era, no stream)
 * nothing is sent and -EOPNOTSUPP returned. */
int mcp_call_request(struct mcp_call *call, const char *method, json_t *params,
                     void (*on_answer)(struct mcp_call *call, const json_t *result,
                                       const char *error, void *data),
                     void *data, struct err *err);

/* Handshake era over HTTP, 2025-11-25: ends the connection but not the call; the client comes back
 * for the answer after retry_ms. Nothing happens elsewhere. */
void mcp_call_hang_up(struct mcp_call *call, uint64_t retry_ms);

/* Stateless era: rounds of questions (multi round-trip requests). A handler that needs input calls
 * mcp_call_need() for each question and ends with mcp_call_ask(); the client sends the same request
 * again with the answers, and the handler starts anew, finding them with mcp_call_input(). */

/* The answer to question `key` (a result object), or NULL. */
const json_t *mcp_call_input(const struct mcp_call *call, const char *key);
/* What mcp_call_ask() kept in the round before; NULL in the first. Already verified: a state that
 * was changed, expired, or made for another request or owner is refused before the handler. */
const json_t *mcp_call_state(const struct mcp_call *call);
/* Adds a question. Takes `params`. False, and nothing added, when the client did not declare that
 * it can answer such. */
bool mcp_call_need(struct mcp_call *call, const char *key, const char *method, json_t *params);

/* --- a call: content ------------------------------------------------------------------------ */

/* Blocks; new references. Text may be any bytes: what is not UTF-8 is replaced. */
json_t *mcp_text(const char *text, size_t len);
json_t *mcp_textf(const char *fmt, ...) PRINTF_LIKE(1, 2);
json_t *mcp_image(const char *mime_type, const void *data, size_t len);
json_t *mcp_audio(const char *mime_type, const void *data, size_t len);
json_t *mcp_embedded_text(const char *uri, const char *mime_type, const char *text, size_t len);
json_t *mcp_embedded_blob(const char *uri, const char *mime_type, const void *data, size_t len);
json_t *mcp_link(const char *uri, const char *name, const char *mime_type, int64_t size);

/* tools/call: adds a block to the result. Takes it. */
void mcp_call_add(struct mcp_call *call, json_t *block);
/* tools/call: the structured result, a struct of the tool's output shape. */
void mcp_call_structured(struct mcp_call *call, const void *value);
/* prompts/get: adds a message; role is "user" or "assistant". Takes the block. */
void mcp_call_add_message(struct mcp_call *call, const char *role, json_t *block);
/* resources/read: adds contents. */
void mcp_call_add_text(struct mcp_call *call, const char *uri, const char *mime_type,
                       const char *text, size_t len);
void mcp_call_add_blob(struct mcp_call *call, const char *uri, const char *mime_type,
                       const void *data, size_t len);
/* completion/complete: adds a value; past 100 they are only counted. */
void mcp_call_add_completion(struct mcp_call *call, const char *value);

/* --- a call: the end, exactly once ---------------------------------------------------------- */

/* Sends what was added. */
void mcp_call_finish(struct mcp_call *call);

/* tools/call: adds one text and finishes. */
void mcp_call_say(struct mcp_call *call, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* tools/call: the tool could not do it; the model reads why (isError). Blocks and structured content
 * added before are kept. For other requests: an internal error with these words. */
void mcp_call_fail(struct mcp_call *call, const char *fmt, ...) PRINTF_LIKE(2, 3);

enum mcp_error {
    MCP_PARSE_ERROR = -32700,
    MCP_INVALID_REQUEST = -32600,
    MCP_METHOD_NOT_FOUND = -32601,
    MCP_INVALID_PARAMS = -32602,
    MCP_INTERNAL_ERROR = -32603,
    MCP_RESOURCE_NOT_FOUND = -32002, /* handshake era only: use mcp_call_not_found() */
    MCP_HEADER_MISMATCH = -32020,    /* stateless era, HTTP */
    MCP_MISSING_CAPABILITY = -32021,
    MCP_UNSUPPORTED_VERSION = -32022,
};

/* A JSON-RPC error. */
void mcp_call_error(struct mcp_call *call, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A client capability is indispensable and was not declared: -32021 (stateless), or a failed tool. */
void mcp_call_missing_capability(struct mcp_call *call, const char *capability);
/* resources/read: no such resource, in the words of the revision. */
void mcp_call_not_found(struct mcp_call *call, const char *uri);
/* The same in words of one's own. */
void mcp_call_not_found_as(struct mcp_call *call, const char *uri, const char *words);
/* Stateless era: ends this round with the questions added by mcp_call_need(). `state` (taken, may
 * be NULL) comes back with the answers, sealed against change. */
void mcp_call_ask(struct mcp_call *call, json_t *state);

/* --- transports ----------------------------------------------------------------------------- */

/* stdio: newline-delimited messages on two descriptors, which belong to the transport from here on.
 * on_end is called once, from the loop: the client closed its side and has been given the time to
 * read what was waiting, or it reads no more. */
struct mcp_stdio;
struct mcp_stdio *mcp_stdio_start(struct mcp_server *server, int in_fd, int out_fd,
                                  void (*on_end)(void *data), void *data);
/* Cancels what runs; what is not written yet is lost. NULL is fine. */
void mcp_stdio_free(struct mcp_stdio *stdio);

/* Streamable HTTP: one endpoint. The HTTP server and its routes belong to the caller; the caller's
 * handler hands over the requests for the endpoint's path after checking who may speak (see
 * mcp_http_handle()). */
struct mcp_http_options {
    size_t max_sessions;         /* handshake era; the oldest idle one makes room, else 503 */
    uint64_t session_timeout_ms; /* idle time after which a session ends */
    size_t event_buffer_bytes;   /* kept per session for resumption */
    size_t event_buffer_count;
    uint64_t
        keepalive_ms;  /* silence after which a waiting call turns into a stream with comments */
    uint64_t retry_ms; /* reconnection time told to clients */
    size_t high_water; /* unsent bytes above which progress and log messages are dropped */
};
extern const struct mcp_http_options MCP_HTTP_OPTIONS_DEFAULT;

struct http_request;
struct mcp_http;
struct mcp_http *mcp_http_start(struct mcp_server *server, const struct mcp_http_options *options);
void mcp_http_free(struct mcp_http *http); /* ends sessions and streams; NULL is fine */

/* Serves one request. `subject` names the authenticated caller, NULL without authentication. */
void mcp_http_handle(struct mcp_http *http, struct http_request *req, const char *subject);

/* Ends listen streams and standing GET streams so that the HTTP server can drain. */
void mcp_http_drain(struct mcp_http *http);

#endif
