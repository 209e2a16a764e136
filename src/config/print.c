/*
 * Showing the table: effective values, --help, the manual.
 */
#include "base/text.h"
#include "config/option.h"
#include "config/origin.h"

#include <string.h>

/* All buffers here are without a ceiling, so appending cannot fail. */
#define add(...) ((void)buf_printf(__VA_ARGS__))

/*** Effective values ***/

enum { COMMENT_COLUMN = 44 };

static void pad_to(struct buf *buf, size_t line_start, size_t column)
{
    size_t used = buf->len - line_start;
    if (used < column)
        add(buf, "%*s", (int)(column - used), "");
}

/* A path may hold anything; a comment must stay on its line. */
static void add_visible(struct buf *buf, const char *text)
{
    for (size_t len = strlen(text); len;) {
        char shown[TEXT_SHOWN_MAX];
        size_t used = text_show_char(text, len, shown);
        (void)buf_add_str(buf, shown);
        text += used;
        len -= used;
    }
}

/* JSON's strings and lists are YAML's too; numbers keep their units. */
static char *yaml_value(const struct option *option, const struct config *config)
{
    if (option->type != OPTION_STRING && option->type != OPTION_LIST)
        return option_text(option, config);
    auto_json *json = option_json(option, config);
    return json_text(json);
}

static void print_option(struct buf *buf, const struct option *option, const struct config *config)
{
    size_t start = buf->len;
    auto_free char *text = option_text(option, config);
    if (option->secret) {
        add(buf, "# %s: %s", option->key, *text ? "(set)" : "(not set)");
    } else {
        auto_free char *value = yaml_value(option, config);
        add(buf, "%s: %s", option->key, value);
    }
    pad_to(buf, start, COMMENT_COLUMN);
    auto_free char *from = origin_text(&config->origins[option - config_options]);
    add(buf, "  # ");
    add_visible(buf, from);
    add(buf, "\n");
}

static bool starts_section(size_t i)
{
    return i == 0 || !str_eq(config_options[i].section, config_options[i - 1].section);
}

void config_print(struct buf *buf, const struct config *config)
{
    for (size_t i = 0; i < config_options_count; i++) {
        if (starts_section(i))
            add(buf, "%s# %s\n", i ? "\n" : "", config_options[i].section);
        print_option(buf, &config_options[i], config);
    }
}

void config_print_json(struct buf *buf, const struct config *config)
{
    auto_json *all = json_object();
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_origin *origin = &config->origins[i];
        json_t *one = json_object();
        json_put(one, "value", option_json(&config_options[i], config));
        json_put_str(one, "source", origin_name(origin));
        if (origin->where)
            json_put_str(one, "where", origin->where);
        json_put(all, config_options[i].key, one);
    }
    (void)json_write(buf, all);
    add(buf, "\n");
}

/*** --help ***/

enum { HELP_INDENT = 6, HELP_WIDTH = 80 };

/* Words, each behind a blank, on lines of at most HELP_WIDTH. */
static void add_wrapped(struct buf *buf, const char *text)
{
    size_t column = 0;
    while (*(text += strspn(text, " "))) {
        size_t word = strcspn(text, " ");
        if (column == 0 || column + 1 + word > HELP_WIDTH) {
            add(buf, "%s%*s", column ? "\n" : "", HELP_INDENT, "");
            column = HELP_INDENT;
        } else {
            add(buf, " ");
            column++;
        }
        add(buf, "%.*s", (int)word, text);
        column += word;
        text += word;
    }
    add(buf, "\n");
}

static char *placeholder(const struct option *option)
{
    static const char *const by_type[] = {
        [OPTION_STRING] = "TEXT",   [OPTION_ENUM] = "NAME",     [OPTION_INT] = "NUMBER",
        [OPTION_SIZE] = "SIZE",     [OPTION_BOOL] = "",         [OPTION_REAL] = "NUMBER",
        [OPTION_DURATION] = "TIME", [OPTION_LIST] = "ITEM,...",
    };
    return xstrdup(option->placeholder ? option->placeholder : by_type[option->type]);
}

static const char *default_text(const struct option *option)
{
    return *option->fallback ? option->fallback : "not set";
}

static void help_option(struct buf *buf, const struct option *option)
{
    auto_free char *flag = option_flag(option);
    auto_free char *value = placeholder(option);
    auto_free char *allowed = option_allowed(option);
    if (option->type == OPTION_BOOL)
        add(buf, "  %s, --no-%s\n", flag, flag + strlen("--"));
    else
        add(buf, "  %s %s\n", flag, value);
    auto_free char *text =
        xasprintf("%s Expects %s; default: %s.", option->help, allowed, default_text(option));
    add_wrapped(buf, text);
}

void config_help(struct buf *buf)
{
    for (size_t i = 0; i < config_options_count; i++) {
        if (starts_section(i))
            add(buf, "%s%s:\n", i ? "\n" : "", config_options[i].section);
        help_option(buf, &config_options[i]);
    }
}

/*** docs/configuration.md ***/

static const char manual_head[] =
    "# Configuration\n"
    "\n"
    "<!-- Made by `belljar config --markdown` from src/config/options.c; edit that. -->\n"
    "\n"
    "Each option can be set in a file, in the environment and on the command line. From weakest "
    "to\n"
    "strongest:\n"
    "\n"
    "1. the default;\n"
    "2. the default of the profile, where it has one of its own;\n"
    "3. for `profile`, the program's name: started as `belljar-NAME` it offers the profile "
    "`NAME`;\n"
    "4. in the profile `python-docker-mcp`, `~/.python-docker-mcp/config.yaml` or the file that\n"
    "   `PYTHON_DOCKER_MCP_CONFIG` names;\n"
    "5. `/etc/belljar/config.yaml`;\n"
    "6. `$XDG_CONFIG_HOME/belljar/config.yaml`, or `~/.config/belljar/config.yaml`;\n"
    "7. environment variables: those of the program that the profile replaces, then our own;\n"
    "8. flags.\n"
    "\n"
    "`--config FILE`, or the variable `BELLJAR_CONFIG`, names one file to read instead of the "
    "two.\n"
    "`belljar config` prints every value in force and where it came from, as a file that could be\n"
    "read again; `belljar config --json` prints the same for programs. `man belljar` lists the "
    "same\n"
    "options.\n"
    "\n"
    "A value that is not allowed stops the start, with a message that names the file and line (or "
    "the\n"
    "variable, or the flag), the key, the value and what is allowed. So does a key that does not\n"
    "exist. Values that a stronger source overrides are checked all the same.\n"
    "\n"
    "```yaml\n"
    "# /etc/belljar/config.yaml\n"
    "http: 127.0.0.1:8000\n"
    "token_file: /etc/belljar/token\n"
    "http_max_body: 4m\n"
    "allowed_hosts: [belljar.example.org]\n"
    "```\n"
    "\n"
    "## How values are written\n"
    "\n"
    "- **Sizes** are bytes, or with `k`, `m`, `g`, `t` powers of 1024: `512`, `16k`, `4m`.\n"
    "- **Durations** are seconds, or with `ms`, `s`, `m`, `h`, `d`: `30`, `0.5`, `250ms`, `30m`.\n"
    "- **Switches** are `true`, `yes`, `on`, `1` or `false`, `no`, `off`, `0`; as flags `--key` "
    "and\n"
    "  `--no-key`.\n"
    "- **Lists** are YAML lists in a file; elsewhere items between commas. A list's flag may be "
    "given\n"
    "  several times.\n"
    "- A file is YAML: one map of keys, at most 1 MiB, without anchors, aliases and tags. A key "
    "with\n"
    "  a dot, as in `a.b`, may also be written as `b` below `a`.\n"
    "- A flag takes its value as `--key VALUE` or `--key=VALUE`.\n"
    "- Environment variables that begin with `BELLJAR_` and name no option are ignored, unless "
    "they\n"
    "  look like a mistyped one.\n"
    "- Names of replaced programs (`LOG_LEVEL`, `POOL_SIZE` …) count only in the profile that "
    "replaces\n"
    "  the program, and only if it is the chosen one; other profiles that are served beside it "
    "over\n"
    "  HTTP have their own defaults and what is said in our own names. See "
    "[profiles](profiles.md).\n";

/* Text inside a table's cell. */
static void add_cell(struct buf *buf, const char *text)
{
    for (; *text; text++)
        add(buf, "%s%c", *text == '|' ? "\\" : "", *text);
}

static void markdown_alias(struct buf *buf, const struct option *option,
                           const struct option_alias *alias)
{
    bool other_default = alias->fallback && !str_eq(alias->fallback, option->fallback);
    if (!alias->name && !alias->key && !other_default)
        return;
    if (str_eq(alias->profile, "*")) {
        add(buf, " Also `%s`.", alias->name);
        return;
    }
    add(buf, " In the profile `%s`", alias->profile);
    if (alias->name)
        add(buf, " also `%s`", alias->name);
    if (alias->key)
        add(buf, "%s `%s` in its own file", alias->name ? " and" : " also", alias->key);
    if (other_default)
        add(buf, "%sdefault `%s`", alias->name || alias->key ? ", " : ": ", alias->fallback);
    add(buf, ".");
}

static void markdown_option(struct buf *buf, const struct option *option)
{
    auto_free char *variable = option_variable(option);
    auto_free char *flag = option_flag(option);
    auto_free char *allowed = option_allowed(option);
    add(buf, "| `%s`<br>`%s`<br>`%s` | ", option->key, variable, flag);
    add_cell(buf, option->help);
    for (size_t i = 0; i < ARRAY_SIZE(option->aliases) && option->aliases[i].profile; i++)
        markdown_alias(buf, option, &option->aliases[i]);
    add(buf, " | ");
    add_cell(buf, allowed);
    if (*option->fallback)
        add(buf, " | `%s` |\n", option->fallback);
    else
        add(buf, " | not set |\n");
}

void config_markdown(struct buf *buf)
{
    add(buf, "%s", manual_head);
    for (size_t i = 0; i < config_options_count; i++) {
        if (starts_section(i))
            add(buf, "\n## %s\n\n| Option | Meaning | Allowed | Default |\n|---|---|---|---|\n",
                config_options[i].section);
        markdown_option(buf, &config_options[i]);
    }
}

/*** docs/belljar.1 ***/

void config_man_text(struct buf *buf, const char *text)
{
    bool starts_line = true;
    for (; *text; text++) {
        if (starts_line && (*text == '.' || *text == '\''))
            add(buf, "\\&");
        if (*text == '\\')
            add(buf, "\\e");
        else
            add(buf, "%s%c", *text == '-' ? "\\" : "", *text);
        starts_line = *text == '\n';
    }
}

static void man_option(struct buf *buf, const struct option *option)
{
    auto_free char *flag = option_flag(option);
    auto_free char *value = placeholder(option);
    auto_free char *allowed = option_allowed(option);
    add(buf, ".TP\n\\fB");
    config_man_text(buf, flag);
    if (option->type == OPTION_BOOL) {
        add(buf, "\\fR, \\fB\\-\\-no\\-");
        config_man_text(buf, flag + strlen("--"));
        add(buf, "\\fR\n");
    } else {
        add(buf, "\\fR \\fI");
        config_man_text(buf, value);
        add(buf, "\\fR\n");
    }
    config_man_text(buf, option->help);
    for (size_t i = 0; i < ARRAY_SIZE(option->aliases); i++) {
        if (!option->aliases[i].name)
            continue;
        add(buf, "\nIn the profile ");
        config_man_text(buf, option->aliases[i].profile);
        add(buf, " also the variable %s.", option->aliases[i].name);
    }
    add(buf, "\nExpects ");
    config_man_text(buf, allowed);
    add(buf, "; default: ");
    config_man_text(buf, default_text(option));
    add(buf, ".\n");
}

void config_man(struct buf *buf)
{
    for (size_t i = 0; i < config_options_count; i++) {
        if (starts_section(i))
            add(buf, ".SS %s\n", config_options[i].section);
        man_option(buf, &config_options[i]);
    }
}
