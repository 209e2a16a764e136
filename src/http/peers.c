#include "http/peers.h"

#include "base/text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, KEY_SIZE = 8 };

struct peer {
    struct peer *next;
    size_t bucket;
    size_t connections;
    unsigned char key[KEY_SIZE];
};

struct peers {
    uint64_t seed; /* so that nobody can aim at one bucket */
    struct peer *buckets[BUCKETS];
};

struct peers *peers_new(void)
{
    struct peers *peers = xcalloc(1, sizeof(*peers));
    random_bytes(&peers->seed, sizeof(peers->seed));
    return peers;
}

void peers_free(struct peers *peers)
{
    free(peers);
}

/* IPv4 addresses stand behind 32 zero bits, where no IPv6 prefix of a client is: only loopback and
 * mapped addresses start like that. */
static void make_key(const struct sockaddr *address, unsigned char key[static KEY_SIZE])
{
    memset(key, 0, KEY_SIZE);
    if (address->sa_family == AF_INET) {
        memcpy(key + 4, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(in6);
        memcpy(mapped ? key + 4 : key, mapped ? in6->s6_addr + 12 : in6->s6_addr, mapped ? 4 : 8);
    }
}

/* FNV-1a. */
static size_t bucket_of(const struct peers *peers, const unsigned char key[static KEY_SIZE])
{
    uint64_t hash = 0xcbf29ce484222325u ^ peers->seed;
    for (size_t i = 0; i < KEY_SIZE; i++)
        hash = (hash ^ key[i]) * 0x100000001b3u;
    return (size_t)((hash >> 32 ^ hash) % BUCKETS);
}

static struct peer *find(struct peers *peers, size_t bucket,
                         const unsigned char key[static KEY_SIZE])
{
    for (struct peer *peer = peers->buckets[bucket]; peer; peer = peer->next) {
        if (memcmp(peer->key, key, KEY_SIZE) == 0)
            return peer;
    }
    return NULL;
}

struct peer *peers_acquire(struct peers *peers, const struct sockaddr *address, size_t max)
{
    unsigned char key[KEY_SIZE];
    make_key(address, key);
    size_t bucket = bucket_of(peers, key);
    struct peer *peer = find(peers, bucket, key);
    if ((peer ? peer->connections : 0) >= max)
        return NULL;
    if (!peer) {
        peer = xcalloc(1, sizeof(*peer));
        *peer = (struct peer){ .next = peers->buckets[bucket], .bucket = bucket };
        memcpy(peer->key, key, KEY_SIZE);
        peers->buckets[bucket] = peer;
    }
    peer->connections++;
    return peer;
}

void peers_release(struct peers *peers, struct peer *peer)
{
    if (--peer->connections > 0)
        return;
    struct peer **slot = &peers->buckets[peer->bucket];
    while (*slot != peer)
        slot = &(*slot)->next;
    *slot = peer->next;
    free(peer);
}

void peer_text(const struct sockaddr *address, char out[static PEER_TEXT_SIZE])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        (void)inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip)); /* "?" stays */
        (void)snprintf(out, PEER_TEXT_SIZE, "[%s]:%u", ip, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)address;
        (void)inet_ntop(AF_INET, &in4->sin_addr, ip, sizeof(ip));
        (void)snprintf(out, PEER_TEXT_SIZE, "%s:%u", ip, ntohs(in4->sin_port));
    }
}
