/*
 * The table of options, in the order in which people meet them. A row's macro takes the member's
 * type apart from its kind of value: with a member of another type it does not compile.
 */
#include "base/num.h"
#include "base/text.h"
#include "config/option.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*** What some texts must look like ***/

static bool is_port(const char *text)
{
    int64_t port;
    return *text != '-' && strlen(text) <= 5 && num_parse_int(text, 0, 65535, &port) == 0;
}

/* A name, an IPv4 address, or an IPv6 address in brackets; `len` bytes. */
static bool is_host(const char *text, size_t len)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    static const char v6[] = "0123456789abcdefABCDEF:.";
    if (len > 2 && text[0] == '[' && text[len - 1] == ']')
        return strspn(text + 1, v6) == len - 2;
    return len > 0 && strspn(text, name) >= len;
}

/* Where the host ends: at the last colon, unless that is part of a bracketed address. */
static size_t host_len(const char *text)
{
    const char *colon = strrchr(text, ':');
    return colon && !strchr(colon, ']') ? (size_t)(colon - text) : strlen(text);
}

static bool is_host_and_port(const char *text)
{
    size_t len = host_len(text);
    return is_host(text, len) && (!text[len] || is_port(text + len + 1));
}

static bool is_listen_address(const char *text)
{
    return !*text || (is_host_and_port(text) && text[host_len(text)]);
}

static bool is_origin(const char *text)
{
    size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
    return islower((unsigned char)text[0]) && str_has_prefix(text + scheme, "://") &&
           is_host_and_port(text + scheme + 3);
}

static bool is_profile_name(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return len == strlen(text);
}

/* RFC 6750 lets a bearer token consist of these only; another could never be sent. */
static bool is_bearer_token(const char *text)
{
    size_t len =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/");
    len += strspn(text + len, "=");
    return len == strlen(text);
}

static const char *const engines[] = { "native", "docker", NULL };

static bool is_engine(const char *text)
{
    for (const char *const *name = engines; *name; name++)
        if (str_eq(*name, text))
            return true;
    return false;
}

static bool is_absolute_or_empty(const char *text)
{
    return !*text || *text == '/';
}

static bool is_docker_host(const char *text)
{
    static const char *const schemes[] = { "tcp://", "http://", "https://" };
    if (!*text || str_has_prefix(text, "unix:///"))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
        if (str_has_prefix(text, schemes[i]))
            return is_host_and_port(text + strlen(schemes[i]));
    return false;
}

/* It becomes part of a path: only what needs no escape there, and nothing that climbs. */
static bool is_image(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/:@";
    return isalnum((unsigned char)text[0]) && strspn(text, allowed) == strlen(text) &&
           !strstr(text, "..") && !strstr(text, "//");
}

static bool is_docker_user(const char *text)
{
    enum { ID_MAX = 2000000000 };
    auto_free char *uid = xstrndup(text, strcspn(text, ":"));
    const char *gid = text[strlen(uid)] ? text + strlen(uid) + 1 : NULL;
    int64_t id;
    return !*text || (num_parse_int(uid, 1, ID_MAX, &id) == 0 &&
                      (!gid || num_parse_int(gid, 1, ID_MAX, &id) == 0));
}

static bool is_install_network(const char *text)
{
    return is_profile_name(text) && !str_eq(text, "none");
}

static bool is_index(const char *text)
{
    size_t len = strcspn(text, " \t\r\n\"'");
    return !*text || str_eq(text, "none") ||
           (!text[len] && (str_has_prefix(text, "https://") || str_has_prefix(text, "http://")));
}

/* Which layers there are is the engine's to say; here only what a name looks like. */
static bool is_layer(const char *text)
{
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz_") == strlen(text);
}

/* Which names may be set is the session's to say; here only what a variable looks like. */
static bool is_variable(const char *text)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t len = strspn(text, name);
    return len > 0 && !isdigit((unsigned char)text[0]) && text[len] == '=';
}

static bool is_module(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    return *text && strspn(text, allowed) == strlen(text);
}

/*** Rows ***/

#define MEMBER(wanted, member)                                                                     \
    _Generic(((struct config *)NULL)->member, wanted : offsetof(struct config, member))

#define STRING(name, member, text, lo, hi, ...)                                                    \
    .key = (name), .type = OPTION_STRING, .offset = MEMBER(char *, member), .fallback = (text),    \
    .min = (lo), .max = (hi), __VA_ARGS__
#define ENUM(name, member, wanted, words, text, ...)                                               \
    .key = (name), .type = OPTION_ENUM, .offset = MEMBER(wanted, member), .names = (words),        \
    .fallback = (text), __VA_ARGS__
#define BOOL(name, member, text, ...)                                                              \
    .key = (name), .type = OPTION_BOOL, .offset = MEMBER(bool, member), .fallback = (text),        \
    __VA_ARGS__
#define INT(name, member, text, lo, hi, ...)                                                       \
    .key = (name), .type = OPTION_INT, .offset = MEMBER(int64_t, member), .fallback = (text),      \
    .min = (lo), .max = (hi), __VA_ARGS__
#define SIZE(name, member, text, lo, hi, ...)                                                      \
    .key = (name), .type = OPTION_SIZE, .offset = MEMBER(size_t, member), .fallback = (text),      \
    .min = (lo), .max = (hi), __VA_ARGS__
/* The member says its unit, the key need not: a value carries its own. */
#define DURATION(name, member, text, lo, hi, ...)                                                  \
    .key = (name), .type = OPTION_DURATION, .offset = MEMBER(uint64_t, member##_ms),               \
    .fallback = (text), .min = (lo), .max = (hi), __VA_ARGS__
#define REAL(name, member, text, lo, hi, ...)                                                      \
    .key = (name), .type = OPTION_REAL, .offset = MEMBER(double, member), .fallback = (text),      \
    .min = (lo), .max = (hi), __VA_ARGS__
#define LIST(name, member, text, lo, hi, ...)                                                      \
    .key = (name), .type = OPTION_LIST, .offset = MEMBER(struct config_list, member),              \
    .fallback = (text), .min = (lo), .max = (hi), __VA_ARGS__

enum { PATH = 4096 }; /* bytes of a file's name */
enum { KB = 1 << 10, MB = 1 << 20, GB = 1 << 30 };
enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };

static const char *const log_levels[] = { "error", "warning", "info", "debug", NULL };
static const char *const log_formats[] = { "text", "json", NULL };
_Static_assert(LOG_ERROR == 0 && LOG_WARNING == 1 && LOG_INFO == 2 && LOG_DEBUG == 3, "log_levels");
_Static_assert(LOG_TEXT == 0 && LOG_JSON == 1, "log_formats");

static const char *const autos[] = { "auto", "true", "false", NULL };
_Static_assert(CONFIG_AUTO == 0 && CONFIG_TRUE == 1 && CONFIG_FALSE == 2, "autos");

static const char *const installers[] = { "auto", "uv", "pip", NULL };
_Static_assert(CONFIG_INSTALLER_AUTO == 0 && CONFIG_INSTALLER_UV == 1 && CONFIG_INSTALLER_PIP == 2,
               "installers");

static const char *const workspaces[] = { "memory", "disk", NULL };
_Static_assert(CONFIG_WORKSPACE_MEMORY == 0 && CONFIG_WORKSPACE_DISK == 1, "workspaces");

static const char *const rehearsals[] = { "cell", "data", NULL };
_Static_assert(CONFIG_REHEARSAL_CELL == 0 && CONFIG_REHEARSAL_DATA == 1, "rehearsals");

/* Python's names of levels. */
static const char *python_level(const char *text)
{
    static const char *const same[][2] = {
        { "critical", "error" },
        { "fatal", "error" },
        { "warn", "warning" },
        { "notset", "debug" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(same); i++)
        if (strcasecmp(text, same[i][0]) == 0)
            return same[i][1];
    return text;
}

/* PYTHON_DOCKER_MCP_DEBUG: a switch. */
static const char *debug_switch(const char *text)
{
    bool on = false;
    return num_parse_bool(text, &on) == 0 && on ? "debug" : NULL;
}

/* PYTHON_DOCKER_MCP_POOL_ENABLED: these three words are yes, any other is no. */
static const char *loose_switch(const char *text)
{
    return str_eq(text, "1") || strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0
               ? "true"
               : "false";
}

/* NOTEBOOKS_FOLDER: who names a directory for files wants them there. */
static const char *disk_if_named(const char *text)
{
    return *text ? "disk" : NULL;
}

/* The profiles that have names of their own for some options; see docs/profiles.md. */
#define PYEXEC "mcp-pyexec"
#define INTERPRETER "python-interpreter"
#define PYDOCKER "python-docker-mcp"
#define PYDOCKER_VARIABLE(rest) "PYTHON_DOCKER_MCP_" rest
#define CODEMODE "mcp-codemode"

#define SERVING .section = "Serving"
#define ACCESS .section = "Access"
#define HTTP .section = "HTTP limits"
#define MESSAGES .section = "Message limits"
#define STREAMS .section = "Streams and MCP sessions"
#define SANDBOX .section = "Sandboxes"
#define DOCKER .section = "The docker engine"
#define LIMITS .section = "Limits of a sandbox"
#define RUNS .section = "Sessions and runs"
#define PACKAGES .section = "Packages"

/* clang-format off */
const struct option config_options[] = {
    { SERVING, STRING("http", http, "", 0, 300, .placeholder = "ADDRESS:PORT",
        .check = is_listen_address,
        .allowed = "an address and port such as 127.0.0.1:8000 or [::1]:8000, or nothing",
        .help = "Serve Streamable HTTP at this address; port 0 picks a free one.") },
    { SERVING, BOOL("stdio", stdio, "false",
        .help = "Serve one client on standard input and output. With neither http nor stdio, that "
                "is done if standard input is no terminal; else HTTP at 127.0.0.1:8000.") },
    { SERVING, STRING("profile", profile, "default", 1, 64, .placeholder = "NAME",
        .check = is_profile_name,
        .allowed = "a name of 1 to 64 letters, digits, '_', '.' or '-'",
        .help = "The set of tools that clients are offered. The default follows the program's "
                "name: belljar-NAME means NAME.") },
    { SERVING, ENUM("log_level", log_level, enum log_level, log_levels, "info",
        .aliases = { { INTERPRETER, "LOG_LEVEL", .translate = python_level },
                     { PYDOCKER, PYDOCKER_VARIABLE("DEBUG"), .translate = debug_switch } },
        .help = "Write log lines of this importance or more to standard error.") },
    { SERVING, ENUM("log_format", log_format, enum log_format, log_formats, "text",
        .help = "The form of a log line.") },
    { SERVING, DURATION("shutdown_grace", shutdown_grace, "3s", 0, 10 * MINUTE,
        .help = "How long running calls may take to finish when the server is told to stop; then "
                "they are interrupted and answered.") },

    { ACCESS, STRING("token", token, "", CONFIG_TOKEN_MIN, 512, .placeholder = "SECRET",
        .secret = true, .check = is_bearer_token,
        .allowed = "16 to 512 letters, digits or any of -._~+/ with = only at the end",
        .help = "HTTP clients must send this as a bearer token. Other users of the host can see "
                "flags: prefer token_file or the environment.") },
    { ACCESS, STRING("token_file", token_file, "", 0, PATH, .placeholder = "FILE",
        .help = "Read the token from this file; white space at its end is dropped.") },
    { ACCESS, BOOL("allow_unauthenticated", allow_unauthenticated, "false",
        .help = "Listen on an address other than loopback even without a token.") },
    { ACCESS, LIST("allowed_hosts", allowed_hosts, "", 0, 1000, .placeholder = "HOST,...",
        .check = is_host_and_port, .allowed = "host names such as example.org or example.org:8000",
        .help = "Accept these names in the Host header besides the loopback ones and the address "
                "listened on.") },
    { ACCESS, LIST("allowed_origins", allowed_origins, "", 0, 1000, .placeholder = "ORIGIN,...",
        .check = is_origin, .allowed = "origins such as https://example.org, without a path",
        .help = "Accept browser pages of these origins; pages of the server's own are accepted.") },
    { ACCESS, STRING("tls_cert", tls_cert, "", 0, PATH, .placeholder = "FILE",
        .help = "Speak TLS with the certificate chain in this PEM file.") },
    { ACCESS, STRING("tls_key", tls_key, "", 0, PATH, .placeholder = "FILE",
        .help = "The private key of tls_cert, a PEM file.") },

    { HTTP, SIZE("http_max_header", http_max_header, "16k", KB, MB,
        .help = "Bytes of a request's head; more is answered with 431.") },
    { HTTP, INT("http_max_headers", http_max_headers, "100", 1, 10000,
        .help = "Header fields of a request; more is answered with 431.") },
    { HTTP, SIZE("http_max_body", http_max_body, "16m", KB, GB,
        .help = "Bytes of a request's body; more is answered with 413 before it is read.") },
    { HTTP, SIZE("http_max_bodies", http_max_bodies, "32m", KB, 64.0 * GB,
        .help = "Bytes of all requests' bodies together, save small ones; one more is answered with "
                "503. A single body of http_max_body always fits.") },
    { HTTP, INT("http_max_connections", http_max_connections, "8192", 1, 1000000,
        .help = "Open connections in all; one more is answered with 503.") },
    { HTTP, INT("http_max_connections_per_address", http_max_connections_per_address, "1024",
        1, 1000000,
        .help = "Open connections of one client address; one more is answered with 503.") },
    { HTTP, SIZE("http_max_backlog", http_max_backlog, "16m", 64 * KB, GB,
        .help = "Bytes that may wait for a client that reads slowly; then it is cut off.") },
    { HTTP, DURATION("http_header_timeout", http_header_timeout, "10s", 10, HOUR,
        .help = "From the first byte of a request to the end of its head.") },
    { HTTP, DURATION("http_body_timeout", http_body_timeout, "60s", 10, HOUR,
        .help = "From the end of a request's head to the end of its body.") },
    { HTTP, DURATION("http_idle_timeout", http_idle_timeout, "75s", 10, DAY,
        .help = "How long a connection is kept open between requests.") },
    { HTTP, DURATION("http_write_timeout", http_write_timeout, "60s", 10, HOUR,
        .help = "How long a client may take no byte of an answer that waits for it.") },

    { MESSAGES, INT("json_max_depth", json_max_depth, "128", 8, 1024,
        .help = "Nested arrays and objects of a message.") },
    { MESSAGES, INT("json_max_digits", json_max_digits, "512", 20, 100000,
        .help = "Characters of a number in a message.") },
    { MESSAGES, INT("json_max_nodes", json_max_nodes, "200000", 100, 100000000,
        .help = "Values and keys of a message.") },
    { MESSAGES, SIZE("max_message", max_message, "16m", KB, GB,
        .help = "Bytes of one line on standard input.") },
    { MESSAGES, SIZE("max_answer", max_answer, "4m", KB, GB,
        .help = "Bytes of one result; a longer one becomes an error.") },
    { MESSAGES, INT("max_batch", max_batch, "64", 1, 10000,
        .help = "Messages of one batch (revision 2025-03-26).") },
    { MESSAGES, INT("max_requests_per_client", max_requests_per_client, "64", 1, 100000,
        .help = "Requests of one client that may wait for their answers.") },
    { MESSAGES, INT("max_subscriptions", max_subscriptions, "1024", 1, 1000000,
        .help = "Resources and streams that one client may subscribe to.") },
    { MESSAGES, INT("page_size", page_size, "100", 1, 10000,
        .help = "Entries of one page when a client lists tools, resources or prompts.") },
    { MESSAGES, DURATION("list_ttl", list_ttl, "60s", 0, DAY,
        .help = "How long clients are told that lists stay fresh (revision 2026-07-28).") },
    { MESSAGES, DURATION("request_state_ttl", request_state_ttl, "10m", SECOND, DAY,
        .help = "How long a client may take to answer a question that a tool asked (revision "
                "2026-07-28).") },

    { STREAMS, INT("http_max_sessions", http_max_sessions, "1000", 1, 1000000,
        .help = "MCP sessions over HTTP; then the one idle longest makes room.") },
    { STREAMS, DURATION("http_session_timeout", http_session_timeout, "30m", 10, 30.0 * DAY,
        .help = "How long an MCP session over HTTP may be idle.") },
    { STREAMS, SIZE("event_buffer", event_buffer, "1m", 0, GB,
        .help = "Bytes of events kept for each session, for clients that reconnect.") },
    { STREAMS, INT("event_buffer_count", event_buffer_count, "1000", 0, 1000000,
        .help = "Events kept for each session.") },
    { STREAMS, SIZE("stream_high_water", stream_high_water, "256k", KB, GB,
        .help = "Bytes that may wait for a client before progress and log messages are dropped.") },
    { STREAMS, DURATION("keepalive", keepalive, "15s", 10, HOUR,
        .help = "A stream that is silent for so long gets a comment, which keeps proxies from "
                "closing it.") },
    { STREAMS, DURATION("sse_retry", sse_retry, "1s", 0, HOUR,
        .help = "How long clients are told to wait before they reconnect to a stream.") },

    { SANDBOX, STRING("engine", engine, "native", 1, 32, .placeholder = "NAME",
        .check = is_engine, .allowed = "native or docker",
        .help = "What makes sandboxes: native, this host's kernel; docker, a container engine. "
                "docs/engines.md says how they differ.") },
    { SANDBOX, STRING("state_dir", state_dir, "", 0, PATH, .placeholder = "DIRECTORY",
        .help = "Where the server keeps what it must find again after a crash. Not set: "
                "/run/belljar for root, else $XDG_RUNTIME_DIR/belljar or a directory in /tmp.") },
    { SANDBOX, STRING("rootfs", rootfs, "", 0, PATH, .placeholder = "DIRECTORY",
        .help = "Root file system that sandboxes see, read-only. Not set: the host's own /usr.") },
    { SANDBOX, STRING("runtime", runtime, "", 0, PATH, .placeholder = "DIRECTORY",
        .help = "A Python environment that sandboxes see, read-only, at /opt/belljar/runtime; "
                "tools/runtime makes one with numpy, pandas and matplotlib. Its interpreter may lie "
                "elsewhere, in a prefix of its own that everybody may read: sandboxes see that, too, "
                "at its own path. Not below /tmp and other places that sandboxes have of their "
                "own.") },
    { SANDBOX, STRING("python", python, "", 0, PATH, .placeholder = "PROGRAM",
        .help = "The Python interpreter, as sandboxes see it. Not set: that of the runtime, else "
                "python3.") },
    { SANDBOX, BOOL("zygote", zygote, "true",
        .help = "Keep a Python process with the preloaded modules, and fork kernels from it into "
                "sandboxes instead of starting each anew. Not without pool_enabled.") },
    { SANDBOX, LIST("preload", preload, "numpy,pandas,matplotlib.pyplot,IPython", 0, 200,
        .placeholder = "MODULE,...", .check = is_module,
        .allowed = "names of Python modules such as numpy or matplotlib.pyplot",
        .help = "Modules that a kernel has imported already: one that is forked, and where none are "
                "(docker engine, zygote off) one that is made ahead. Those that the interpreter lacks "
                "are left out.") },
    { SANDBOX, SIZE("zygote_memory", zygote_memory, "2g", 64 * MB, 1024.0 * GB,
        .help = "Memory of the process that kernels are forked from, with the page tables of its "
                "forks. At the limit it is replaced.") },
    { SANDBOX, INT("zygote_max_forks", zygote_max_forks, "5000", 1, 1000000000,
        .help = "After so many kernels that process is renewed, in the background.") },
    { SANDBOX, DURATION("zygote_max_age", zygote_max_age, "1h", SECOND, 365.0 * DAY,
        .help = "After this time, too.") },
    { SANDBOX, BOOL("zygote_huge_pages", zygote_huge_pages, "true",
        .help = "Put its memory into huge pages, which makes forks quicker and costs some memory, "
                "once.") },
    { SANDBOX, BOOL("zygote_freeze", zygote_freeze, "true",
        .help = "Put its objects and its libraries into a file in memory, of which a fork copies "
                "nothing: forks are quicker still, and kernels smaller. Libraries lose their names "
                "in /proc/self/maps of kernels; where the host forbids memory that is writable and "
                "executable, they stay where they are.") },
    { SANDBOX, LIST("allow_missing", allow_missing, "", 0, 32, .placeholder = "LAYER,...",
        .check = is_layer,
        .allowed = "names of layers as belljar doctor prints them, such as memory_limit",
        .help = "Layers of isolation to do without if the host cannot give them. Without this, a "
                "layer that is missing stops the start.") },
    { SANDBOX, ENUM("require_limits", require_limits, enum config_auto, autos, "auto",
        .help = "Refuse to start where memory, processes and processor time cannot be limited for "
                "a sandbox as a whole. auto: over HTTP yes, on stdio and in belljar run no.") },
    { SANDBOX, INT("uid_base", uid_base, "524288", 1000, 2000000000,
        .help = "As root: the first of the host's user ids that sandboxes get, two each. No account "
                "may use them.") },
    { SANDBOX, INT("uid_count", uid_count, "65536", 16, 1000000,
        .help = "As root: how many user ids there are from uid_base on.") },
    { SANDBOX, INT("server_uid", server_uid, "65534", 1, 2000000000,
        .help = "As root: the user id that the server takes once it has started.") },
    { SANDBOX, BOOL("pool_enabled", pool_enabled, "true",
        .aliases = { { PYDOCKER, PYDOCKER_VARIABLE("POOL_ENABLED"), "docker.pool_enabled",
                       .translate = loose_switch } },
        .help = "Make sandboxes and Python kernels ahead of need.") },
    { SANDBOX, INT("pool_size", pool_size, "8", 1, 256,
        .aliases = { { PYDOCKER, PYDOCKER_VARIABLE("POOL_SIZE"), "docker.pool_size", "32",
                       .lenient = true },
                     { CODEMODE, "POOL_SIZE", .fallback = "2" } },
        .help = "How many sandboxes wait ready; and the most kernels that do.") },
    { SANDBOX, INT("kernel_pool_size", kernel_pool_size, "2", 0, 256,
        .aliases = { { CODEMODE, .fallback = "0" } }, /* its Python is a plain process */
        .help = "How many more wait with a Python kernel that has started. While more are asked "
                "for than are ready there are up to pool_size; 0: none. They are made from the first "
                "request on (HTTP: from the start).") },
    { SANDBOX, ENUM("kernel_rehearsal", kernel_rehearsal, enum config_rehearsal, rehearsals, "data",
        .help = "What a kernel that waits has tried before it is given away, so that the same is "
                "quick in a session's first run. cell: a line of Python. data: also, when "
                "nobody has come for a quarter of a second, a little of numpy and pandas if they are "
                "imported, which costs each about 20 ms of processor time and 8 MB of memory.") },
    { SANDBOX, DURATION("pool_max_age", pool_max_age, "5m", SECOND, DAY,
        .aliases = { { PYDOCKER, PYDOCKER_VARIABLE("POOL_MAX_AGE"), "docker.pool_max_age", "5m",
                       .lenient = true } },
        .help = "A sandbox, with or without a kernel, that has waited this long is replaced.") },
    { SANDBOX, INT("pool_max_creations", pool_max_creations, "2", 1, 64,
        .aliases = { { PYDOCKER, PYDOCKER_VARIABLE("MAX_CONCURRENT_CREATIONS"),
                       "docker.max_concurrent_creations", "5", .lenient = true } },
        .help = "How many sandboxes are made at the same time, and how many kernels.") },

    { DOCKER, STRING("docker.host", docker_host, "", 0, 300, .placeholder = "URL",
        .check = is_docker_host,
        .allowed = "unix:///path/to/socket, tcp://host:port, or nothing",
        .aliases = { { "*", "DOCKER_HOST" } },
        .help = "Where the container engine is: Docker's, or Podman's compatible one. Not set: "
                "unix:///var/run/docker.sock. Whoever can use it is root there.") },
    { DOCKER, STRING("docker.cert_path", docker_cert_path, "", 0, PATH, .placeholder = "DIRECTORY",
        .aliases = { { "*", "DOCKER_CERT_PATH" } },
        .check = is_absolute_or_empty, .allowed = "an absolute path",
        .help = "With tcp: speak TLS, with ca.pem, cert.pem and key.pem of this directory. Both sides "
                "are always verified.") },
    { DOCKER, STRING("docker.image", docker_image, "belljar:latest", 1, 300, .placeholder = "IMAGE",
        .check = is_image,
        .allowed = "a name such as python:3.12 or python@sha256:...",
        .help = "The image that sandboxes run. It needs no part of belljar; the languages that are to "
                "be run must be in it.") },
    { DOCKER, LIST("docker.images", docker_images, "", 0, 64, .placeholder = "IMAGE,...",
        .check = is_image,
        .allowed = "names such as python:3.12 or python@sha256:...",
        .help = "Other images that a session may ask for (start_session). None is made ahead.") },
    { DOCKER, STRING("docker.runtime", docker_runtime, "", 0, 64, .placeholder = "NAME",
        .check = is_profile_name,
        .allowed = "a name of letters, digits, '_', '.' or '-'",
        .help = "The runtime of the container engine, such as runsc or kata. Not set: its default.") },
    { DOCKER, STRING("docker.user", docker_user, "", 0, 32, .placeholder = "UID:GID",
        .check = is_docker_user,
        .allowed = "numbers from 1 to 2000000000, UID or UID:GID, or nothing",
        .help = "Who runs in all containers. Not set: each gets a uid of its own from uid_base on, "
                "which no name in the image belongs to.") },
    { DOCKER, STRING("docker.working_dir", docker_working_dir, "", 0, PATH,
        .placeholder = "DIRECTORY",
        .check = is_absolute_or_empty, .allowed = "an absolute path",
        .help = "Where code begins, as containers see it. Not set: /workspace, where files of the "
                "session are in any case.") },
    { DOCKER, STRING("docker.install_network", docker_install_network, "bridge", 1, 64,
        .placeholder = "NAME", .check = is_install_network,
        .allowed = "a name of letters, digits, '_', '.' or '-', but not none",
        .help = "The network of the container engine in which packages are fetched, by installers alone: "
                "bridge, host, or one that was made for it. Sandboxes have none.") },
    { DOCKER, BOOL("docker.adopt", docker_adopt, "true",
        .help = "Containers of sessions outlive a server over HTTP, however it ends, if their clients can come "
                "back: those with the token, or those of the stateless revision on this machine. The next "
                "server with the same state_dir goes on with them, variables included. Without a next server "
                "they end after session_timeout. false: they end with their server.") },
    { DOCKER, DURATION("docker.timeout", docker_timeout, "30s", 100, HOUR,
        .help = "How long the container engine may take to answer one request.") },
    { DOCKER, DURATION("docker.build_timeout", docker_build_timeout, "1h", SECOND, DAY,
        .help = "How long the container engine may take to import a root file system, and to build an "
                "image (belljar image build).") },

    { LIMITS, SIZE("memory_limit", memory_limit, "512m", 16 * MB, 1024.0 * GB,
        .aliases = { { PYEXEC, .fallback = "512m" },
                     { PYDOCKER, PYDOCKER_VARIABLE("MEMORY_LIMIT"), "docker.memory_limit", "256m",
                       .lenient = true },
                     { CODEMODE, "CONTAINER_MEMORY_LIMIT", .fallback = "256m" } },
        .help = "Memory of a sandbox: processes and files in memory together, no swap.") },
    { LIMITS, INT("process_limit", process_limit, "128", 4, 100000,
        .help = "Processes and threads of a sandbox.") },
    { LIMITS, REAL("cpu_limit", cpu_limit, "1", 0.05, 1024,
        .aliases = { { PYEXEC, .fallback = "0.5" },
                     { PYDOCKER, PYDOCKER_VARIABLE("CPU_LIMIT"), "docker.cpu_limit", "0.5",
                       .lenient = true },
                     { CODEMODE, "CONTAINER_CPU_LIMIT", .fallback = "1" } },
        .help = "Cores that a sandbox may use.") },
    { LIMITS, INT("open_file_limit", open_file_limit, "1024", 16, 1048576,
        .help = "Open files of one process in a sandbox.") },
    { LIMITS, SIZE("file_size_limit", file_size_limit, "256m", 64 * KB, 1024.0 * GB,
        .help = "Largest file that a sandbox can write.") },
    { LIMITS, SIZE("workspace_size", workspace_size, "256m", MB, 1024.0 * GB,
        .aliases = { { PYDOCKER, .fallback = "128m" }, { CODEMODE, .fallback = "128m" } },
        .help = "Size of /workspace. It is kept in memory and counts as such, so it should be less "
                "than memory_limit.") },
    { LIMITS, INT("workspace_files", workspace_files, "100000", 16, 100000000,
        .help = "Files in /workspace.") },
    { LIMITS, ENUM("workspace", workspace, enum config_workspace, workspaces, "memory",
        .aliases = { { INTERPRETER, "NOTEBOOKS_FOLDER", .translate = disk_if_named } },
        .help = "Whether files of a session end with it (memory), or are also kept in workspace_dir "
                "and found again by whoever comes back with its id, after a restart, too (disk). "
                "Code works in memory either way; after each run what has changed is copied.") },
    { LIMITS, STRING("workspace_dir", workspace_dir, "", 0, PATH, .placeholder = "DIRECTORY",
        .aliases = { { INTERPRETER, "NOTEBOOKS_FOLDER" } },
        .help = "Where the files of sessions are kept if workspace is disk. Not set: "
                "/var/lib/belljar/sessions for root, else belljar/sessions in $XDG_STATE_HOME or "
                "~/.local/state.") },
    { LIMITS, SIZE("workspace_dir_size", workspace_dir_size, "10g", MB, 1024.0 * GB * 16,
        .help = "Size of workspace_dir with all sessions; beyond it nothing more is kept, and "
                "answers say so.") },
    { LIMITS, DURATION("workspace_max_age", workspace_max_age, "30d", 0, 3650.0 * DAY,
        .aliases = { { INTERPRETER, .fallback = "0" } }, /* a session that expires loses its files */
        .help = "How long files are kept there without being used, but at least session_timeout. "
                "Less than that: they go with a session that was idle for too long.") },
    { LIMITS, DURATION("workspace_save_timeout", workspace_save_timeout, "30s", 10, HOUR,
        .help = "How long copying what one run has changed may take; then the copy stays as it was, "
                "and the answer says so.") },
    { LIMITS, SIZE("tmp_size", tmp_size, "256m", MB, 1024.0 * GB,
        .aliases = { { PYDOCKER, .fallback = "128m" }, { CODEMODE, .fallback = "128m" } },
        .help = "Size of /tmp, in memory like /workspace.") },
    { LIMITS, INT("tmp_files", tmp_files, "100000", 16, 100000000,
        .help = "Files in /tmp.") },
    { LIMITS, SIZE("shm_size", shm_size, "64m", 64 * KB, 1024.0 * GB,
        .help = "Size of /dev/shm.") },

    { RUNS, DURATION("session_timeout", session_timeout, "30m", SECOND, 30.0 * DAY,
        .aliases = { { INTERPRETER, "SESSION_TIMEOUT", .fallback = "30m" } },
        .help = "A session that is not used for this long ends.") },
    { RUNS, INT("max_sessions", max_sessions, "1000", 1, 100000,
        .help = "Sessions open at once, in each profile that is served.") },
    { RUNS, INT("max_sessions_per_client", max_sessions_per_client, "64", 1, 100000,
        .help = "Sessions of one client open at once, in each profile.") },
    { RUNS, INT("max_queue", max_queue, "16", 0, 10000,
        .help = "Runs that may wait in one session.") },
    { RUNS, DURATION("run_timeout", run_timeout, "30s", 100, DAY,
        .aliases = { { PYEXEC, .fallback = "30s" }, { INTERPRETER, "KERNEL_TIMEOUT" },
                     { PYDOCKER, .key = "docker.timeout", .fallback = "30s" },
                     { CODEMODE, "EXEC_TIMEOUT", .fallback = "30s" } },
        .help = "Time for a run if the call says nothing else.") },
    { RUNS, DURATION("run_timeout_max", run_timeout_max, "5m", 100, DAY,
        .help = "Most time that a call may ask for.") },
    { RUNS, DURATION("interrupt_grace", interrupt_grace, "500ms", 10, MINUTE,
        .help = "Time from the interrupt at the limit to the kill.") },
    { RUNS, DURATION("kill_grace", kill_grace, "5s", 100, MINUTE,
        .help = "Time from the kill to the end of the sandbox. What still runs then, for it is large or the "
                "machine is busy, can only be ended with its session, files included.") },
    { RUNS, INT("busy_poll_us", busy_poll_us, "200", 0, 1000,
        .help = "Microseconds for which the server waits awake for the end of a Python run, where the "
                "last runs of the session took no longer; a kernel waits for the next for a quarter of "
                "that. Saves the time that an idle processor needs to wake up, and costs processor "
                "time; 0: both always sleep.") },
    { RUNS, SIZE("output_limit", output_limit, "1m", KB, GB,
        .aliases = { { PYEXEC, .fallback = "1m" } },
        .help = "Bytes kept of each output stream of a run: its head and its tail.") },
    { RUNS, SIZE("output_flood", output_flood, "64m", MB, 1024.0 * GB,
        .help = "A run that writes more than this to a stream is killed.") },
    { RUNS, BOOL("strip_ansi", strip_ansi, "true",
        .help = "Show output as a terminal would in the end: colour codes and cursor movements are "
                "taken out, a progress bar is kept in its last state. false: as it was written.") },
    { RUNS, SIZE("overflow_limit", overflow_limit, "4m", 0, GB,
        .help = "Output that is cut for its length is kept whole, up to so many bytes of each "
                "stream, as a file of the session below /workspace/.belljar; 0: it is not.") },
    { RUNS, INT("overflow_files", overflow_files, "8", 2, 10000,
        .help = "How many such files a session keeps; then the oldest goes.") },
    { RUNS, SIZE("overflow_memory", overflow_memory, "256m", 0, 1024.0 * GB,
        .help = "Memory of the server in which all runs together gather such output until they "
                "end; beyond it only heads and tails are kept.") },
    { RUNS, SIZE("display_limit", display_limit, "2m", KB, GB,
        .help = "Bytes of images and other displays that one run may return.") },
    { RUNS, INT("max_images", max_images, "20", 1, 1000,
        .help = "Images that one Python run returns; further ones are counted, not sent.") },
    { RUNS, SIZE("max_image_size", max_image_size, "2m", KB, 16 * MB,
        .help = "Bytes of one image. A figure is drawn smaller to fit, another image left out.") },
    { RUNS, INT("figure_dpi", figure_dpi, "0", 0, 1000,
        .help = "Resolution of figures. 0: as each figure says.") },
    { RUNS, REAL("figure_width", figure_width, "0", 0, 100,
        .help = "Width in inches of figures that do not say, if figure_height is set too. 0: as "
                "matplotlib has it.") },
    { RUNS, REAL("figure_height", figure_height, "0", 0, 100,
        .help = "Height of figures, as figure_width.") },
    { RUNS, INT("result_limit", result_limit, "100000", 100, 200000,
        .help = "Characters of the value of a Python run's last expression; the middle of a longer "
                "one is cut out.") },
    { RUNS, INT("traceback_frames", traceback_frames, "30", 2, 60,
        .help = "Frames of a Python traceback; the middle of a longer one is cut out.") },
    { RUNS, SIZE("state_limit", state_limit, "1m", KB, 8 * MB,
        .help = "Bytes of variables, as JSON, that one Python run may be given or may return, where a "
                "tool passes variables.") },
    { RUNS, LIST("env", env, "", 0, 256, .placeholder = "NAME=VALUE,...", .secret = true,
        .check = is_variable, .allowed = "variables such as TZ=Europe/Berlin",
        .help = "Environment variables that code in sandboxes sees; the server's own are never "
                "passed on. PATH, PWD, OLDPWD, IFS, ENV, BASH_ENV, BASHOPTS, SHELLOPTS, PYTHONHOME, "
                "LD_* and BELLJAR_* are refused. A value with a comma must stand in a file.") },
    { RUNS, LIST("allowed_modules", allowed_modules, "", 0, 1000, .placeholder = "MODULE,...",
        .check = is_module, .allowed = "names of modules such as numpy or os.path",
        .aliases = { { PYDOCKER, .key = "allowed_modules" } },
        .help = "Python code may import these modules and what is below them, and no others; what "
                "they import themselves is not looked at. A policy in clear words, no wall. Not "
                "set: all.") },
    { RUNS, LIST("blocked_modules", blocked_modules, "", 0, 1000, .placeholder = "MODULE,...",
        .check = is_module, .allowed = "names of modules such as numpy or os.path",
        .aliases = { { PYDOCKER, .key = "blocked_modules" } },
        .help = "Python code may not import these modules and what is below them, also if they are "
                "allowed.") },
    { RUNS, SIZE("max_read", max_read, "2m", KB, GB,
        .help = "Bytes of a file that one call returns.") },
    { RUNS, SIZE("max_write", max_write, "10m", KB, GB,
        .help = "Bytes of a file that one call writes.") },
    { RUNS, INT("max_list", max_list, "2000", 1, 100000,
        .help = "Entries that one listing returns.") },
    { RUNS, INT("output_chars", output_chars, "0", 0, 1000000,
        .aliases = { { CODEMODE, "MAX_OUTPUT_SIZE", .fallback = "50000" } },
        .help = "Characters of each output stream that a result of the profile mcp-codemode shows; "
                "0: all that output_limit keeps.") },

    { PACKAGES, BOOL("packages_enabled", packages_enabled, "true",
        .help = "Install Python packages for sessions that ask for them. They are fetched by an "
                "installer of its own; the sandboxes still have no network.") },
    { PACKAGES, STRING("package_dir", package_dir, "", 0, PATH, .placeholder = "DIRECTORY",
        .check = is_absolute_or_empty, .allowed = "an absolute path",
        .help = "Where installed packages are kept for the next who wants them. Not set: "
                "/var/cache/belljar/packages for root, else belljar/packages in $XDG_CACHE_HOME or "
                "~/.cache.") },
    { PACKAGES, STRING("package_index", package_index, "", 0, 2000, .placeholder = "URL",
        .check = is_index,
        .allowed = "a URL that begins with https:// or http://, \"none\", or nothing",
        .aliases = { { "*", "PIP_INDEX_URL" }, { "*", "UV_INDEX_URL" }, { "*", "UV_DEFAULT_INDEX" },
                     { PYDOCKER, .key = "package.index_url" } },
        .help = "The index that packages come from. Not set: PyPI. none: only package_wheels.") },
    { PACKAGES, LIST("package_trusted_hosts", package_trusted_hosts, "", 0, 100,
        .placeholder = "HOST,...", .check = is_host_and_port,
        .allowed = "host names such as example.org or example.org:8000",
        .aliases = { { PYDOCKER, .key = "package.trusted_hosts" } },
        .help = "Hosts whose certificates are not checked, or that speak plain HTTP.") },
    { PACKAGES, STRING("package_wheels", package_wheels, "", 0, PATH, .placeholder = "DIRECTORY",
        .check = is_absolute_or_empty, .allowed = "an absolute path",
        .help = "A directory of wheels to install from, beside the index or instead of it; with the "
                "docker engine one of the container engine's host.") },
    { PACKAGES, ENUM("package_installer", package_installer, enum config_installer, installers,
        "auto",
        .aliases = { { PYDOCKER, .key = "package.installer" } },
        .help = "What installs. auto: uv if the runtime, or the image, has it, else pip.") },
    { PACKAGES, BOOL("package_allow_source", package_allow_source, "false",
        .help = "Build packages that have no wheel. That runs code of the package's author in the "
                "installer's sandbox, which has a network.") },
    { PACKAGES, INT("package_max_count", package_max_count, "32", 1, 1000,
        .help = "Packages that one call may name.") },
    { PACKAGES, INT("package_max_sets", package_max_sets, "32", 1, 1000,
        .help = "Times that packages may be installed in one session.") },
    { PACKAGES, SIZE("package_max_bytes", package_max_bytes, "512m", MB, 64.0 * GB,
        .help = "Size of what one call installs, unpacked. The installer works in memory and may "
                "take about twice as much.") },
    { PACKAGES, INT("package_max_files", package_max_files, "50000", 10, 10000000,
        .help = "Files and directories of what one call installs.") },
    { PACKAGES, DURATION("package_timeout", package_timeout, "5m", SECOND, DAY,
        .help = "Time for one install.") },
    { PACKAGES, DURATION("package_max_age", package_max_age, "7d", MINUTE, 3650.0 * DAY,
        .help = "How long an installed set serves others who name the same packages; then the "
                "newest versions are looked up again.") },
    { PACKAGES, SIZE("package_cache_size", package_cache_size, "4g", 0, 1024.0 * GB * 16,
        .help = "Size of package_dir; beyond it, what was not used for longest goes. What sessions "
                "use stays.") },
    { PACKAGES, INT("package_max_parallel", package_max_parallel, "2", 1, 64,
        .help = "Installs that run at the same time.") },
    { PACKAGES, INT("package_max_queue", package_max_queue, "32", 0, 10000,
        .help = "Installs that may wait for their turn.") },
    { PACKAGES, INT("package_max_per_client", package_max_per_client, "8", 1, 10000,
        .help = "Installs of one client that run or wait.") },
};
/* clang-format on */

#define NO_IMAGES "there are no images to choose from: sandboxes see the host's programs, or rootfs"
const struct option_unused config_unused[] = {
    { PYDOCKER,
      NULL,
      "docker.image",
      { "python:3.12.2-slim", "python-docker-mcp:latest" },
      NO_IMAGES },
    { PYDOCKER,
      NULL,
      "docker.working_dir",
      { "/app", "/workspace" },
      "code runs in /workspace, for which /app is another name" },
    { PYDOCKER,
      NULL,
      "docker.network_disabled",
      { "true" },
      "sandboxes have no network; packages are installed for them" },
    { PYDOCKER,
      NULL,
      "docker.read_only",
      { "true" },
      "only /workspace and /tmp of a sandbox can be written to" },
    { CODEMODE, "SANDBOX_IMAGE", NULL, { "python:3.12-slim" }, NO_IMAGES },
    { INTERPRETER, "JUPYTER_PLATFORM_DIRS", NULL, { "1" }, "code always finds it set to 1" },
    { 0 },
};
const size_t config_options_count = ARRAY_SIZE(config_options);

/*** Finding ***/

const struct option *option_find(const char *key)
{
    for (size_t i = 0; i < config_options_count; i++)
        if (str_eq(config_options[i].key, key))
            return &config_options[i];
    return NULL;
}

const struct option_alias *option_alias(const struct option *option, const char *profile)
{
    for (size_t i = 0; i < ARRAY_SIZE(option->aliases); i++)
        if (option->aliases[i].profile && str_eq(option->aliases[i].profile, profile))
            return &option->aliases[i];
    return NULL;
}

const struct option *option_find_foreign(const char *profile, const char *key)
{
    for (size_t i = 0; i < config_options_count; i++) {
        const struct option_alias *alias = option_alias(&config_options[i], profile);
        if (alias && alias->key && str_eq(alias->key, key))
            return &config_options[i];
    }
    return NULL;
}

bool option_is_section(const char *key)
{
    size_t len = strlen(key);
    for (size_t i = 0; i < config_options_count; i++)
        if (str_has_prefix(config_options[i].key, key) && config_options[i].key[len] == '.')
            return true;
    return false;
}

const struct option *option_nearest(const char *key)
{
    const char *keys[ARRAY_SIZE(config_options)];
    for (size_t i = 0; i < config_options_count; i++)
        keys[i] = config_options[i].key;
    const char *nearest = text_nearest(key, keys, config_options_count);
    return nearest ? option_find(nearest) : NULL;
}

char *option_variable(const struct option *option)
{
    char *name = xasprintf(VARIABLE_PREFIX "%s", option->key);
    for (char *c = name; *c; c++)
        *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
    return name;
}

char *option_flag(const struct option *option)
{
    char *name = xasprintf("--%s", option->key);
    for (char *c = name; *c; c++)
        if (*c == '.' || *c == '_')
            *c = '-';
    return name;
}
