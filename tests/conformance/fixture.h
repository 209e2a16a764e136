/*
 * fixture: what the official conformance suite and the client tests expect a server to offer
 * (names, texts and behaviour are theirs), built on the protocol library alone. One file a
 * subject; main.c adds them all to one server and serves it over stdio or HTTP.
 */
#ifndef BELLJAR_TESTS_FIXTURE_H
#define BELLJAR_TESTS_FIXTURE_H

#include "mcp/mcp.h"

#include <stdlib.h>
#include <string.h>

struct fixture {
    uv_loop_t *loop;
    struct mcp_server *server;
    int64_t running;   /* slow calls under way */
    int64_t cancelled; /* slow calls that a client gave up */
};

void fixture_add_tools(struct fixture *fixture);          /* content, errors, progress, hooks */
void fixture_add_slow_tools(struct fixture *fixture);     /* what goes on while time passes */
void fixture_add_elicitation(struct fixture *fixture);    /* handshake era: asks the client */
void fixture_add_input_required(struct fixture *fixture); /* stateless era: rounds of questions */
void fixture_add_resources(struct fixture *fixture);
void fixture_add_prompts(struct fixture *fixture);

/* A red pixel and a silent sample, as small as the formats allow. */
extern const unsigned char fixture_png[];
extern const size_t fixture_png_size;
extern const unsigned char fixture_wav[];
extern const size_t fixture_wav_size;

#endif
