/*
 * peers: how many connections each client address has. One IPv6 client usually owns a /64 and can
 * pick addresses in it at will, so those 64 bits count as its address. Pure.
 */
#ifndef BELLJAR_HTTP_PEERS_H
#define BELLJAR_HTTP_PEERS_H

#include "base/base.h"

#include <sys/socket.h>

struct peers;
struct peer;

struct peers *peers_new(void);
void peers_free(struct peers *peers); /* all peers must have been released */

/* Counts one more connection of `address`; NULL, and nothing counted, when it has `max`. */
struct peer *peers_acquire(struct peers *peers, const struct sockaddr *address, size_t max);
void peers_release(struct peers *peers, struct peer *peer);

/* "127.0.0.1:51324", "[::1]:51324". */
enum { PEER_TEXT_SIZE = 64 };
void peer_text(const struct sockaddr *address, char out[static PEER_TEXT_SIZE]);

#endif
