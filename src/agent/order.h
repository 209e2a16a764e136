/*
 * order: a program that the server wants started, from its announcement to the process: arguments and
 * code as they arrive, pipes, and why it did not work. A run is one, and so is a kernel.
 */
#ifndef BELLJAR_AGENT_ORDER_H
#define BELLJAR_AGENT_ORDER_H

#include "agent/config.h"
#include "agent/wire.h"

struct order {
    const struct config *config;
    const char *code_name; /* in AGENT_RUN_DIR */
    struct frame_run spec;
    uint32_t args_len; /* received so far */
    uint64_t code_len;
    int code_fd;
    int failure_fd; /* from the child, until it has become the program */
    int failure_code;
    bool absent; /* it failed because nobody came to the door */
    char failure[FRAME_FAILURE_MAX + 1];

    const char *argv[FRAME_ARGS_COUNT_MAX + 1];
    const char *env[AGENT_ENV_COUNT_MAX + FRAME_ARGS_COUNT_MAX + 1];
    const char *cwd;
    char args[FRAME_ARGS_MAX];
};

/* What a started program is held by. Ours to close; -1: none. */
struct process {
    pid_t pid;
    int in_fd, out_fd, err_fd, channel_fd;
};

void order_init(struct order *order, const struct config *config, const char *code_name);
void order_begin(struct order *order, const struct frame_run *spec);
/* 0, or -EPROTO: more than was announced. */
int order_args(struct order *order, const char *bytes, size_t len);
int order_code(struct order *order, const char *bytes, size_t len);
/* All has arrived: 0, or -EPROTO. */
int order_complete(struct order *order);

/* False: it has failed. `with_channel`: descriptor 3 of the program is a stream socket, orphans among
 * its descendants stay below it, and SIGINT is blocked. */
bool order_launch(struct order *order, bool with_channel, struct process *ret);
/* Who has come to the door (door.h), as far as is known: its pid is 0, or one that the system vouches for. */
struct visitor {
    pid_t pid;
    pid_t stand_in;  /* a process that waits, of which this is all that is said; else 0 */
    uint32_t number; /* of the kernel that it wants to be; 0: what it said makes no sense */
    int code;        /* 0, or why it cannot be */
    char step[60];
};
/* False: nobody, for now. */
bool order_hear(const struct order *order, struct visitor *ret);
/* False: it has failed. */
bool order_joined(struct order *order, const struct visitor *visitor);
bool order_is_child(pid_t pid);
/* Nobody has come, or who came could not. */
void order_absent(struct order *order, int code, const char *what);
/* The first failure counts. */
void order_fail(struct order *order, int code, const char *what);
/* The child has ended: did it become the program? If not, that is a failure. */
void order_check_child(struct order *order);

/* Fills in the end of a process, from its status as wait() says it and the failure, and sends it. */
bool order_send_exit(const struct order *order, struct wire *wire, uint32_t number, int status,
                     struct frame_exit *exit);
/* Removes the code. */
void order_end(struct order *order);

#endif
