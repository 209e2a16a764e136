/*
 * config: every option of the program, from one table (options.c). The table gives the YAML file,
 * the environment, the command line, `--help` and docs/configuration.md, so they cannot disagree.
 *
 *   1. config_flag_next()   for each flag on the command line
 *   2. config_load_host()   read files and environment, check everything, fill a struct config
 *      (config_load() does the same from memory and touches nothing)
 *   3. config->http, …      plain members; strings are never NULL, "" means not set
 *   4. config_done()
 *
 * Sources, weakest first: default, the profile's default, the program's name, the file of the program
 * that the profile replaces, /etc/belljar/config.yaml, $XDG_CONFIG_HOME/belljar/config.yaml
 * (~/.config), environment, flags. `--config FILE` stands in for both of our files. Every value is checked, also one that a stronger source overrides, and the first
 * bad one stops the start: err names the source, the key, the value and what is allowed.
 *
 * To add an option: a member here, a row in options.c, `belljar config --markdown` for the manual.
 */
#ifndef BELLJAR_CONFIG_H
#define BELLJAR_CONFIG_H

#include "base/err.h"
#include "base/log.h"

struct buf;

enum config_auto { CONFIG_AUTO, CONFIG_TRUE, CONFIG_FALSE };
enum config_workspace { CONFIG_WORKSPACE_MEMORY, CONFIG_WORKSPACE_DISK };
enum config_rehearsal { CONFIG_REHEARSAL_CELL, CONFIG_REHEARSAL_DATA };
enum config_installer { CONFIG_INSTALLER_AUTO, CONFIG_INSTALLER_UV, CONFIG_INSTALLER_PIP };

struct config_list {
    char **items;
    size_t count;
};

struct config {
    /* Serving */
    char *http; /* "address:port", "[v6]:port" */
    bool stdio;
    char *profile;
    enum log_level log_level;
    enum log_format log_format;
    uint64_t shutdown_grace_ms;

    /* Access */
    char *token; /* at least CONFIG_TOKEN_MIN characters, or ""; token_file has been read into it */
    char *token_file;
    bool allow_unauthenticated;
    struct config_list allowed_hosts;   /* "name" or "name:port" */
    struct config_list allowed_origins; /* "https://name[:port]" */
    char *tls_cert;
    char *tls_key;

    /* HTTP limits */
    size_t http_max_header;
    int64_t http_max_headers;
    size_t http_max_body;
    size_t http_max_bodies;
    int64_t http_max_connections;
    int64_t http_max_connections_per_address;
    size_t http_max_backlog;
    uint64_t http_header_timeout_ms;
    uint64_t http_body_timeout_ms;
    uint64_t http_idle_timeout_ms;
    uint64_t http_write_timeout_ms;

    /* Message limits */
    int64_t json_max_depth;
    int64_t json_max_digits;
    int64_t json_max_nodes;
    size_t max_message;
    size_t max_answer;
    int64_t max_batch;
    int64_t max_requests_per_client;
    int64_t max_subscriptions;
    int64_t page_size;
    uint64_t list_ttl_ms;
    uint64_t request_state_ttl_ms;

    /* Streams and MCP sessions */
    int64_t http_max_sessions;
    uint64_t http_session_timeout_ms;
    size_t event_buffer;
    int64_t event_buffer_count;
    size_t stream_high_water;
    uint64_t keepalive_ms;
    uint64_t sse_retry_ms;

    /* Sandboxes */
    char *engine;
    char *state_dir;
    char *rootfs;
    char *runtime;
    char *python;
    bool zygote;
    struct config_list preload;
    size_t zygote_memory;
    int64_t zygote_max_forks;
    uint64_t zygote_max_age_ms;
    bool zygote_huge_pages, zygote_freeze;
    struct config_list allow_missing;
    enum config_auto require_limits;
    int64_t uid_base, uid_count;
    int64_t server_uid;
    bool pool_enabled;
    int64_t pool_size, kernel_pool_size, pool_max_creations;
    enum config_rehearsal kernel_rehearsal;
    uint64_t pool_max_age_ms;

    /* The docker engine */
    char *docker_host, *docker_cert_path;
    struct config_list docker_images;
    char *docker_image, *docker_runtime, *docker_user, *docker_working_dir;
    char *docker_install_network;
    bool docker_adopt;
    uint64_t docker_timeout_ms, docker_build_timeout_ms;

    /* Limits of a sandbox */
    size_t memory_limit;
    int64_t process_limit;
    double cpu_limit;
    int64_t open_file_limit;
    size_t file_size_limit;
    size_t workspace_size, tmp_size, shm_size;
    int64_t workspace_files, tmp_files;
    enum config_workspace workspace;
    char *workspace_dir;
    size_t workspace_dir_size;
    uint64_t workspace_max_age_ms, workspace_save_timeout_ms;

    /* Sessions and runs */
    uint64_t session_timeout_ms;
    int64_t max_sessions, max_sessions_per_client, max_queue;
    uint64_t run_timeout_ms, run_timeout_max_ms, interrupt_grace_ms, kill_grace_ms;
    int64_t busy_poll_us;
    size_t output_limit, output_flood, display_limit, state_limit;
    size_t overflow_limit, overflow_memory;
    int64_t overflow_files;
    bool strip_ansi;
    int64_t max_images, figure_dpi, result_limit, traceback_frames;
    size_t max_image_size;
    double figure_width, figure_height;
    struct config_list env; /* "NAME=value" */
    struct config_list allowed_modules, blocked_modules;
    size_t max_read, max_write;
    int64_t max_list;
    int64_t output_chars;

    /* Packages */
    bool packages_enabled;
    char *package_dir;
    char *package_index;
    struct config_list package_trusted_hosts;
    char *package_wheels;
    enum config_installer package_installer;
    bool package_allow_source;
    int64_t package_max_count, package_max_sets, package_max_files;
    size_t package_max_bytes, package_cache_size;
    uint64_t package_timeout_ms, package_max_age_ms;
    int64_t package_max_parallel, package_max_queue, package_max_per_client;

    struct config_list warnings;   /* for the log: what was passed over, and why */
    struct config_origin *origins; /* private: one for each option */
};

enum { CONFIG_TOKEN_MIN = 16, CONFIG_FILE_MAX = 1 << 20 };

/* Releases what the members own. NULL, a zeroed or a half-filled config are fine. */
void config_done(struct config *config);
#define auto_config __attribute__((cleanup(config_done))) struct config

/* --- the command line ------------------------------------------------------------------------ */

struct option;
struct config_flag {
    const struct option *option;
    const char *value; /* borrowed from argv, or static */
};

/* Takes the flag at args[0] apart: `--key VALUE`, `--key=VALUE`, and for a switch `--key` or
 * `--no-key`; `--debug` is `--log-level debug`. Returns how many of `args` it is (1 or 2), or -EINVAL: no such flag, no value. */
int config_flag_next(char *const args[], struct config_flag *ret, struct err *err);

/* --- loading --------------------------------------------------------------------------------- */

/* Text of a YAML file; `path` is for messages. */
struct config_file {
    const char *path;
    const char *text;
    size_t len;
};

struct config_sources {
    const char *profile; /* as the program's name suggests; NULL: it does not */
    /* For an endpoint beside the chosen profile's: the values as this profile has them. What belongs
     * to replaced programs (their variables and file) is for the chosen profile only. NULL: none. */
    const char *endpoint;
    const struct config_file *foreign; /* of the program that the profile replaces; NULL: none */
    const struct config_file *files;   /* weakest first */
    size_t n_files;
    char *const *environment; /* as environ: "NAME=value", ends with NULL; may be NULL */
    const struct config_flag *flags;
    size_t n_flags;
};

/* Fills *ret, for config_done(). Pure: `token_file` is checked but not read. */
int config_load(const struct config_sources *sources, struct config *ret, struct err *err);

/* The same from this process's files and environment; sources->files and ->environment are
 * ignored. `file`: what --config names, and must exist; NULL: the usual two, which need not.
 * Reads token_file into ret->token. */
int config_load_host(const char *file, const struct config_sources *sources, struct config *ret,
                     struct err *err);

/* Where a profile that serves HTTP listens if nobody says: all addresses if clients must show a token
 * (or need not by the operator's word), else loopback. */
const char *config_default_host(const struct config *config);

/* Where the value of an option came from, for people: "default", "flag --http". Owned by the caller. */
char *config_origin_of(const struct config *config, const char *option);

/* `text` is what a file that token_file names holds; used by config_load_host(). */
int config_use_token_file(struct config *config, const char *text, size_t len, struct err *err);

/* --- showing ----------------------------------------------------------------------------------
 * All append to a buffer and cannot fail if it has no ceiling. Secrets appear as "(set)". */

/* Effective values and where each came from, as YAML that config_load() would take again. */
void config_print(struct buf *buf, const struct config *config);
/* {"key": {"value": …, "source": "file", "where": "config.yaml:3"}, …}; bytes and seconds are
 * numbers. */
void config_print_json(struct buf *buf, const struct config *config);
/* The options for --help. */
void config_help(struct buf *buf);
/* docs/configuration.md. */
void config_markdown(struct buf *buf);
/* The options for the manual page, and text in it: what roff would obey is escaped. */
void config_man(struct buf *buf);
void config_man_text(struct buf *buf, const char *text);

#endif
