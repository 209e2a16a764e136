/*
 * seal: state that travels through the client and must come back unchanged: JSON, an expiry and
 * what it is bound to, under HMAC-SHA256 with a key of this process. Readable by the client, not
 * changeable.
 */
#ifndef BELLJAR_MCP_SEAL_H
#define BELLJAR_MCP_SEAL_H

#include "base/json.h"

enum { SEAL_KEY_SIZE = 32 };

/* Text (URL-safe, owned by the caller) for `state`, valid until `expires_ms` (wall clock), and only
 * with the same `binding`. */
char *seal_make(const unsigned char key[static SEAL_KEY_SIZE], const json_t *state,
                const char *binding, uint64_t expires_ms);

/* 0 and *ret (a new reference), or -EBADMSG (not ours, changed, other binding) or -ETIME. */
int seal_open(const unsigned char key[static SEAL_KEY_SIZE], const char *text, const char *binding,
              uint64_t now_ms, json_t **ret);

#endif
