/* pipes: what connects the agent with a program that it starts. */
#ifndef BELLJAR_AGENT_PIPES_H
#define BELLJAR_AGENT_PIPES_H

enum {
    PIPES_INPUT = 1 << 0,   /* else the program's input is /dev/null */
    PIPES_CHANNEL = 1 << 1, /* a stream socket */
    PIPES_ORDERS = 1 << 2,  /* `failure` is a stream socket, by which the child hears orders too */
};

/* [0] is the reader's end, of sockets the agent's; -1: none. */
struct pipes {
    int in[2], out[2], err[2], failure[2], channel[2];
};

/* 0; or -errno, and what was opened is closed again. Our ends do not block; the guest's do, as programs
 * expect. */
int pipes_open(struct pipes *ret, unsigned flags);
void pipes_close(struct pipes *pipes);

#endif
