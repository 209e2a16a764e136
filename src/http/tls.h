/*
 * tls: TLS 1.2 and 1.3 for one connection, between byte strings: what came from the socket goes in
 * with tls_receive(), what must go to the socket is taken with tls_output(). Does no I/O itself,
 * but for reading the certificate and key files.
 */
#ifndef BELLJAR_HTTP_TLS_H
#define BELLJAR_HTTP_TLS_H

#include "base/err.h"

#include <sys/types.h>

/* Certificate and key, shared by all connections of a server. */
struct tls_identity;
int tls_identity_new(const char *cert_file, const char *key_file, struct tls_identity **ret,
                     struct err *err);
void tls_identity_free(struct tls_identity *identity);

struct tls;
struct tls *tls_new(struct tls_identity *identity);
void tls_free(struct tls *tls);

/* The handshake is over: tls_write() may be called. */
bool tls_ready(const struct tls *tls);

/* Bytes from the socket. All of them must be taken out again with tls_read() before more come. */
void tls_receive(struct tls *tls, const char *data, size_t len);

/* Decrypted bytes: how many, 0 when more must be received first, -ECONNRESET when the client said
 * goodbye, -EPROTO when it does not speak TLS. May leave output to be sent in each case. */
ssize_t tls_read(struct tls *tls, char *out, size_t size);

/* Encrypts; the result is output. 0 or -EPROTO. */
int tls_write(struct tls *tls, const char *data, size_t len);

/* Says goodbye; that too is output. */
void tls_end(struct tls *tls);

/* What must be sent; valid until the next call. tls_output_taken() when it has been. */
size_t tls_output(struct tls *tls, const char **ret_data);
void tls_output_taken(struct tls *tls);

/* Gives back the memory of past traffic; for a connection that goes idle. */
void tls_trim(struct tls *tls);

#endif
