/*
 * cli: the commands. Each is one file with one `struct command`; main.c has the table of them. The
 * order of things: cli_parse() finds the command and takes the arguments apart, cli_load_config()
 * reads the configuration if the command wants it, then the command runs. What a command prints to
 * people goes through cli_print(); errors go up and are reported by main().
 */
#ifndef BELLJAR_CLI_H
#define BELLJAR_CLI_H

#include "config/config.h"

/* What the program's exit status means. */
enum cli_status {
    CLI_OK = 0,
    CLI_FAILED = 1, /* it was asked for correctly, and could not be done */
    CLI_USAGE = 2,  /* a mistake in the command line or in the configuration */
};

/* A flag of one command: `--json`, or with a value `--language NAME`. */
struct cli_switch {
    const char *name; /* with its dashes; NULL ends the list */
    const char *help;
    const char *value; /* what the value is called; NULL: takes none */
};
enum { CLI_SWITCHES_MAX = 8 };

struct cli_args;
struct command {
    const char *name;
    const char *summary;  /* one line, no full stop */
    const char *operands; /* for the usage line: "[COMMAND]"; NULL: takes none */
    size_t max_operands;
    bool flags_last; /* its one operand may stand before its flags, too */
    bool configured; /* takes the options of config, and runs with args->config set */
    const struct cli_switch switches[CLI_SWITCHES_MAX];
    /* The exit status, or -errno and err; -EINVAL is a mistake of the user (CLI_USAGE). */
    int (*run)(const struct cli_args *args, struct err *err);
};

struct cli_args {
    const struct command *const *commands; /* the table, ends with NULL */
    const struct command *command;
    bool help; /* --help: main() shows it instead of running the command */
    const char *switches[CLI_SWITCHES_MAX]; /* value of command->switches[n], "" for one that takes
                                               none; NULL: not given */
    const char *profile;                    /* NAME of a program called belljar-NAME; else NULL */
    const char *file;                       /* --config */
    char *const *operands;                  /* borrowed from argv */
    size_t n_operands;
    struct config_flag *flags;
    size_t n_flags;
    struct config config; /* if command->configured */
};
#define auto_cli_args __attribute__((cleanup(cli_args_done))) struct cli_args

/* `commands` ends with NULL. Without a command's name it is `serve`; --version and --help may stand
 * alone. -EINVAL: err is the one sentence to show. */
int cli_parse(struct cli_args *ret, const struct command *const *commands, int argc, char **argv,
              struct err *err);
int cli_load_config(struct cli_args *args, struct err *err);
/* The configuration of another profile that is served beside the chosen one. */
int cli_load_endpoint(const struct cli_args *args, const char *profile, struct config *ret,
                      struct err *err);
void cli_args_done(struct cli_args *args);

/* The value of a switch of the command, "" for one that takes none; NULL: not given. */
const char *cli_given(const struct cli_args *args, const char *name);

/* NULL: no such command. */
const struct command *cli_find(const struct command *const *commands, const char *name);
/* "there is no command "sevre"; did you mean "serve"?" Returns -EINVAL. */
int cli_no_command(const struct command *const *commands, const char *name, struct err *err);

/* To standard output, whole or an error. */
int cli_print(const struct buf *text, struct err *err);

/* The text of --help, for one command or (NULL) for the program. */
void cli_help(struct buf *buf, const struct command *const *commands,
              const struct command *command);
/* What is asked for with --help. */
int cli_show_help(const struct cli_args *args, struct err *err);

/* docs/belljar.1. */
void cli_man(struct buf *buf, const struct command *const *commands);

extern const struct command command_client_config;
extern const struct command command_config;
extern const struct command command_doctor;
extern const struct command command_help;
extern const struct command command_image;
extern const struct command command_run;
extern const struct command command_serve;
extern const struct command command_sessions;
extern const struct command command_version;

#endif
