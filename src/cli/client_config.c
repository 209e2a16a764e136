/*
 * belljar client-config: what to paste into an MCP client's configuration so that it starts this
 * program (stdio), or connects to a server that runs somewhere (HTTP). The configuration goes to
 * standard output, where to put it to standard error, so that the former can be piped.
 */
#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"
#include "tools/tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKEN_MAX = 512, NAME_MAX_LEN = 64 };

/* What the entry shall say. */
struct entry {
    const char *name;
    char *program; /* stdio */
    json_t *args;
    char *url; /* HTTP; NULL: stdio */
    const char *token;
};

static void entry_done(struct entry *entry)
{
    free(entry->program);
    free(entry->url);
    json_decref(entry->args);
}

/*** Forms ***/

enum form_flags {
    SAYS_STDIO = 1 << 0, /* "type": "stdio" */
    SAYS_HTTP = 1 << 1,  /* "type": "http" */
};

struct client {
    const char *name;
    const char *place; /* where its configuration is */
    const char *key;   /* the object of servers in it */
    unsigned flags;
    void (*print)(const struct client *client, const struct entry *entry, struct buf *text);
};

/* Two blanks a level; lists on one line. */
static void add_pretty(struct buf *text, const json_t *json, int depth)
{
    const char *key, *before = "";
    json_t *value;
    if (!json_is_object(json)) {
        (void)json_write(text, json);
        return;
    }
    (void)buf_add_char(text, '{');
    json_object_foreach((json_t *)json, key, value)
    {
        auto_json *name = json_string(key);
        (void)buf_printf(text, "%s\n%*s", before, 2 * (depth + 1), "");
        (void)json_write(text, name);
        (void)buf_add_str(text, ": ");
        add_pretty(text, value, depth + 1);
        before = ",";
    }
    (void)buf_printf(text, "\n%*s}", 2 * depth, "");
}

static json_t *bearer(const char *token)
{
    auto_free char *value = xasprintf("Bearer %s", token);
    json_t *headers = json_object();
    json_put_str(headers, "Authorization", value);
    return headers;
}

static void print_json(const struct client *client, const struct entry *entry, struct buf *text)
{
    json_t *server = json_object(), *servers = json_object();
    auto_json *all = json_object();
    if (entry->url) {
        if (client->flags & SAYS_HTTP)
            json_put_str(server, "type", "http");
        json_put_str(server, "url", entry->url);
        if (entry->token)
            json_put(server, "headers", bearer(entry->token));
    } else {
        if (client->flags & SAYS_STDIO)
            json_put_str(server, "type", "stdio");
        json_put_str(server, "command", entry->program);
        json_put(server, "args", json_incref(entry->args));
    }
    json_put(servers, entry->name, server);
    json_put(all, client->key, servers);
    add_pretty(text, all, 0);
    (void)buf_add_char(text, '\n');
}

/* A TOML string is written like a JSON one. */
static void add_toml(struct buf *text, const char *key, const json_t *value)
{
    (void)buf_printf(text, "%s = ", key);
    (void)json_write(text, value);
    (void)buf_add_char(text, '\n');
}

static void add_toml_text(struct buf *text, const char *key, const char *value)
{
    auto_json *json = json_string(value);
    add_toml(text, key, json);
}

static void print_toml(const struct client *client, const struct entry *entry, struct buf *text)
{
    (void)buf_printf(text, "[%s.%s]\n", client->key, entry->name);
    if (!entry->url) {
        add_toml_text(text, "command", entry->program);
        add_toml(text, "args", entry->args);
        return;
    }
    add_toml_text(text, "url", entry->url);
    if (entry->token)
        (void)buf_printf(text, "http_headers = { \"Authorization\" = \"Bearer %s\" }\n",
                         entry->token);
}

static const struct client clients[] = {
    { "claude",
      ".mcp.json of a project (Claude Code), or claude_desktop_config.json (Claude Desktop)",
      "mcpServers", SAYS_HTTP, print_json },
    { "cursor", "~/.cursor/mcp.json, or .cursor/mcp.json of a project", "mcpServers", 0,
      print_json },
    { "vscode", ".vscode/mcp.json of a workspace, or the user's mcp.json", "servers",
      SAYS_STDIO | SAYS_HTTP, print_json },
    { "codex", "~/.codex/config.toml", "mcp_servers", 0, print_toml },
};

static const struct client *find_client(const struct cli_args *args, struct err *err)
{
    const char *name = args->n_operands ? args->operands[0] : NULL;
    for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
        if (str_eq(clients[i].name, name))
            return &clients[i];
    }
    (void)err_set(err, EINVAL, "client-config: name the client: claude, cursor, vscode or codex");
    return NULL;
}

/*** What was asked for ***/

static bool consists_of(const char *text, const char *allowed, size_t max)
{
    size_t len = strlen(text);
    return len > 0 && len <= max && strspn(text, allowed) == len;
}

#define LETTERS_AND_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static int choose_profile(const struct cli_args *args, const char **ret, struct err *err)
{
    const char *given = cli_given(args, "--profile");
    *ret = given ? given : args->profile ? args->profile : "default";
    if (tools_find_profile(*ret))
        return 0;
    auto_buf names = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; tools_profile_at(i); i++)
        (void)buf_printf(&names, "%s%s", i ? ", " : "", tools_profile_at(i)->name);
    return err_set(err, EINVAL, "flag --profile: there is no \"%.64s\"; there are: %s", *ret,
                   names.data);
}

/* The address of a server, or of its endpoint, to the endpoint of the profile. */
static int make_url(const char *given, const char *profile, char **ret, struct err *err)
{
    static const char allowed[] = LETTERS_AND_DIGITS "-._~:/[]@!$&'()*+,;=%";
    const char *rest = str_has_prefix(given, "http://")    ? given + strlen("http://")
                       : str_has_prefix(given, "https://") ? given + strlen("https://")
                                                           : "";
    if (!consists_of(rest, allowed, 2000) || *rest == '/')
        return err_set(err, EINVAL,
                       "flag --http: must be a URL such as http://127.0.0.1:8000 or "
                       "https://example.org/mcp");
    size_t len = strlen(given);
    while (given[len - 1] == '/')
        len--;
    bool has_path = memchr(rest, '/', len - (size_t)(rest - given)) != NULL;
    bool is_default = str_eq(profile, "default");
    *ret = xasprintf("%.*s%s%s%s", (int)len, given, has_path ? "" : "/mcp", is_default ? "" : "/",
                     is_default ? "" : profile);
    return 0;
}

static int fill_http(const struct cli_args *args, const char *profile, struct entry *entry,
                     struct err *err)
{
    entry->token = cli_given(args, "--token");
    if (entry->token && !consists_of(entry->token, LETTERS_AND_DIGITS "-._~+/=", TOKEN_MAX))
        return err_set(err, EINVAL,
                       "flag --token: use 1 to %d letters, digits or any of -._~+/=", TOKEN_MAX);
    if (cli_given(args, "--config"))
        return err_set(err, EINVAL, "flag --config: is for stdio; a running server has its own");
    return make_url(cli_given(args, "--http"), profile, &entry->url, err);
}

static int fill_stdio(const struct cli_args *args, const char *profile, struct entry *entry,
                      struct err *err)
{
    char program[4096];
    const char *file = cli_given(args, "--config");
    if (cli_given(args, "--token"))
        return err_set(err, EINVAL, "flag --token: is for --http; on stdio nobody else can speak");
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (len < 0)
        return err_sys(err, errno, "find this program in /proc/self/exe");
    entry->program = xstrndup(program, (size_t)len);
    entry->args = json_array();
    json_push(entry->args, json_string("serve"));
    json_push(entry->args, json_string("--stdio"));
    if (!str_eq(profile, "default")) {
        json_push(entry->args, json_string("--profile"));
        json_push(entry->args, json_string(profile));
    }
    if (file) {
        auto_free char *full = realpath(file, NULL);
        if (!full)
            return err_sys(err, errno, "flag --config: %.200s", file);
        json_push(entry->args, json_string("--config"));
        json_push(entry->args, json_text_value(full, strlen(full)));
    }
    return 0;
}

static int fill_entry(const struct cli_args *args, struct entry *entry, struct err *err)
{
    const char *profile, *name = cli_given(args, "--name");
    int r = choose_profile(args, &profile, err);
    if (r < 0)
        return r;
    entry->name = name ? name : str_eq(profile, "default") ? "belljar" : profile;
    if (!consists_of(entry->name, LETTERS_AND_DIGITS "_-", NAME_MAX_LEN))
        return err_set(err, EINVAL, "flag --name: use 1 to %d letters, digits, '_' or '-'",
                       NAME_MAX_LEN);
    return cli_given(args, "--http") ? fill_http(args, profile, entry, err)
                                     : fill_stdio(args, profile, entry, err);
}

static int run(const struct cli_args *args, struct err *err)
{
    struct entry entry = { 0 };
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    const struct client *client = find_client(args, err);
    int r = client ? fill_entry(args, &entry, err) : -EINVAL;
    if (r == 0) {
        client->print(client, &entry, &text);
        (void)fprintf(stderr, "# for %s\n", client->place); /* nobody to tell if this fails */
        r = cli_print(&text, err);
    }
    entry_done(&entry);
    return r;
}

const struct command command_client_config = {
    .name = "client-config",
    .summary = "Print what to paste into the configuration of an MCP client",
    .operands = "claude|cursor|vscode|codex",
    .max_operands = 1,
    .flags_last = true,
    .switches = {
        { "--profile", "The set of tools, as for serve.", "NAME" },
        { "--http", "Connect to a running server instead of starting one.", "URL" },
        { "--token", "The token of that server.", "SECRET" },
        { "--config", "The configuration file that the server shall read.", "FILE" },
        { "--name", "What the client shall call the server.", "NAME" },
    },
    .run = run,
};
