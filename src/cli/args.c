#include "base/buf.h"
#include "base/text.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_ARG_MAX = 80 };

static const char default_command[] = "serve";

/*** Commands by name ***/

const struct command *cli_find(const struct command *const *commands, const char *name)
{
    for (; *commands; commands++)
        if (str_eq((*commands)->name, name))
            return *commands;
    return NULL;
}

int cli_no_command(const struct command *const *commands, const char *name, struct err *err)
{
    enum { NAMES_MAX = 32 };
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (; count < NAMES_MAX && commands[count]; count++)
        names[count] = commands[count]->name;
    const char *nearest = text_nearest(name, names, count);
    auto_free char *shown = text_quote(name, SHOWN_ARG_MAX);
    if (!nearest)
        return err_set(err, EINVAL, "there is no command %s; see belljar --help", shown);
    return err_set(err, EINVAL, "there is no command %s; did you mean \"%s\"?", shown, nearest);
}

/* The NAME in .../belljar-NAME. */
static const char *profile_of(const char *program)
{
    static const char prefix[] = "belljar-";
    const char *slash = strrchr(program, '/');
    const char *base = slash ? slash + 1 : program;
    return str_has_prefix(base, prefix) ? base + strlen(prefix) : NULL;
}

static bool asks_for_help(const char *arg)
{
    return str_eq(arg, "--help") || str_eq(arg, "-h");
}

/* `argv` without the program's name. Returns how many of them name the command: 0 or 1. */
static int choose_command(struct cli_args *args, char **argv, struct err *err)
{
    const char *name = argv[0] && argv[0][0] != '-' ? argv[0] : NULL;
    if (asks_for_help(argv[0]))
        args->command = cli_find(args->commands, "help");
    else if (!name && str_eq(argv[0], "--version"))
        args->command = cli_find(args->commands, "version");
    else
        args->command = cli_find(args->commands, name ? name : default_command);
    if (!args->command)
        return cli_no_command(args->commands, name ? name : default_command, err);
    return name || args->command != cli_find(args->commands, default_command) ? 1 : 0;
}

/*** Arguments of a command ***/

/* How many of argv the switch is; 0: it is none of this command's. */
static int take_switch(struct cli_args *args, char **argv, struct err *err)
{
    const struct cli_switch *switches = args->command->switches;
    for (unsigned i = 0; i < CLI_SWITCHES_MAX && switches[i].name; i++) {
        const char *name = switches[i].name;
        if (!switches[i].value && str_eq(name, argv[0])) {
            args->switches[i] = "";
            return 1;
        }
        if (!switches[i].value || !str_has_prefix(argv[0], name))
            continue;
        const char *rest = argv[0] + strlen(name);
        if (*rest != '\0' && *rest != '=')
            continue;
        args->switches[i] = *rest ? rest + 1 : argv[1];
        if (!args->switches[i] || !*args->switches[i])
            return err_set(err, EINVAL, "flag %s: needs a value (%s)", name, switches[i].value);
        return *rest ? 1 : 2;
    }
    return 0;
}

static int take_config_file(struct cli_args *args, char **argv, struct err *err)
{
    static const char with_value[] = "--config=";
    bool joined = str_has_prefix(argv[0], with_value);
    args->file = joined ? argv[0] + strlen(with_value) : argv[1];
    if (!args->file || !*args->file || (!joined && str_has_prefix(args->file, "--")))
        return err_set(err, EINVAL, "flag --config: needs the name of a file");
    return joined ? 1 : 2;
}

static int take_flag(struct cli_args *args, char **argv, struct err *err)
{
    if (asks_for_help(argv[0])) {
        args->help = true;
        return 1;
    }
    int taken = take_switch(args, argv, err);
    if (taken != 0)
        return taken;
    if (!args->command->configured) {
        auto_free char *shown = text_quote(argv[0], SHOWN_ARG_MAX);
        return err_set(err, EINVAL, "the command %s has no flag %s", args->command->name, shown);
    }
    if (str_eq(argv[0], "--config") || str_has_prefix(argv[0], "--config="))
        return take_config_file(args, argv, err);
    struct config_flag flag;
    int used = config_flag_next(argv, &flag, err);
    if (used < 0)
        return used;
    args->flags = xrealloc(args->flags, (args->n_flags + 1) * sizeof(*args->flags));
    args->flags[args->n_flags++] = flag;
    return used;
}

/* One operand before the flags, for a command that allows it. */
static bool take_early_operand(struct cli_args *args, char **argv)
{
    if (!args->command->flags_last || args->n_operands || !argv[1] || argv[1][0] != '-')
        return false;
    args->operands = argv;
    args->n_operands = 1;
    return true;
}

/* Operands come last, so that they can be handed on as a part of argv. */
static int take_operands(struct cli_args *args, char **argv, struct err *err)
{
    size_t most = args->command->max_operands - args->n_operands, count = 0;
    if (!args->n_operands)
        args->operands = argv;
    while (argv[count])
        count++;
    args->n_operands += count;
    if (count <= most)
        return 0;
    auto_free char *shown = text_quote(argv[most], SHOWN_ARG_MAX);
    return err_set(err, EINVAL, "the command %s takes no argument %s", args->command->name, shown);
}

int cli_parse(struct cli_args *ret, const struct command *const *commands, int argc, char **argv,
              struct err *err)
{
    *ret = (struct cli_args){ .commands = commands, .profile = argc ? profile_of(argv[0]) : NULL };
    char **at = argv + (argc > 0);
    int used = choose_command(ret, at, err);
    for (; used >= 0; used = take_flag(ret, at, err)) {
        at += used;
        if (str_eq(*at, "--"))
            return take_operands(ret, at + 1, err);
        if (*at && (*at)[0] != '-' && take_early_operand(ret, at))
            at++;
        if (!*at || !str_has_prefix(*at, "-") || str_eq(*at, "-"))
            return take_operands(ret, at, err);
    }
    return used;
}

int cli_load_endpoint(const struct cli_args *args, const char *profile, struct config *ret,
                      struct err *err)
{
    struct config_sources sources = {
        .profile = args->profile,
        .endpoint = profile,
        .flags = args->flags,
        .n_flags = args->n_flags,
    };
    return config_load_host(args->file, &sources, ret, err);
}

int cli_load_config(struct cli_args *args, struct err *err)
{
    if (!args->command->configured || args->help)
        return 0;
    return cli_load_endpoint(args, /* profile= */ NULL, &args->config, err);
}

void cli_args_done(struct cli_args *args)
{
    free(args->flags);
    config_done(&args->config);
}

const char *cli_given(const struct cli_args *args, const char *name)
{
    for (unsigned i = 0; i < CLI_SWITCHES_MAX && args->command->switches[i].name; i++)
        if (str_eq(args->command->switches[i].name, name))
            return args->switches[i];
    return NULL;
}

int cli_print(const struct buf *text, struct err *err)
{
    for (size_t at = 0; at < text->len;) {
        ssize_t put = write(STDOUT_FILENO, text->data + at, text->len - at);
        if (put < 0 && errno != EINTR)
            return err_sys(err, errno, "write to standard output");
        at += put > 0 ? (size_t)put : 0;
    }
    return 0;
}
