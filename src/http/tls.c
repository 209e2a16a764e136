#include "http/tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

struct tls_identity {
    SSL_CTX *ctx;
};

struct tls {
    SSL *ssl; /* owns both BIOs */
    BIO *in;
    BIO *out;
};

/*** Certificate and key ***/

/* The first error in OpenSSL's queue is the cause, the later ones say who noticed. */
static int ssl_err(struct err *err, const char *what, const char *file)
{
    char reason[256] = "unknown reason";
    unsigned long code = ERR_peek_error();
    ERR_clear_error();
    if (ERR_SYSTEM_ERROR(code))
        return err_sys(err, ERR_GET_REASON(code), "%s %s", what, file);
    if (code)
        ERR_error_string_n(code, reason, sizeof(reason));
    return err_set(err, EINVAL, "%s %s: %s", what, file, reason);
}

/* We speak HTTP/1.1 only. A client that offers other protocols and not this one goes on without
 * an agreement, as one that offers nothing does. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    (void)arg;
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    int r = SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len);
    if (r != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *new_context(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return NULL;
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION); /* fails for unknown numbers only */
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets need no memory of ours */
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    return ctx;
}

int tls_identity_new(const char *cert_file, const char *key_file, struct tls_identity **ret,
                     struct err *err)
{
    ERR_clear_error();
    struct tls_identity *identity = xcalloc(1, sizeof(*identity));
    identity->ctx = new_context();
    int r = 0;
    if (!identity->ctx)
        r = ssl_err(err, "set up", "TLS");
    else if (SSL_CTX_use_certificate_chain_file(identity->ctx, cert_file) != 1)
        r = ssl_err(err, "TLS certificate", cert_file);
    else if (SSL_CTX_use_PrivateKey_file(identity->ctx, key_file, SSL_FILETYPE_PEM) != 1)
        r = ssl_err(err, "TLS key", key_file);
    else if (SSL_CTX_check_private_key(identity->ctx) != 1)
        r = ssl_err(err, "TLS key does not fit the certificate:", key_file);
    if (r < 0) {
        tls_identity_free(identity);
        return r;
    }
    *ret = identity;
    return 0;
}

void tls_identity_free(struct tls_identity *identity)
{
    if (!identity)
        return;
    SSL_CTX_free(identity->ctx);
    free(identity);
}

/*** One connection ***/

/* OpenSSL fails here only for want of memory, which ends the process everywhere else too. */
static void *checked(void *made)
{
    if (!made)
        abort();
    return made;
}

/* Fresh memory BIOs; the old ones, if any, are released. */
static void set_bios(struct tls *tls)
{
    tls->in = checked(BIO_new(BIO_s_mem()));
    tls->out = checked(BIO_new(BIO_s_mem()));
    SSL_set_bio(tls->ssl, tls->in, tls->out);
}

struct tls *tls_new(struct tls_identity *identity)
{
    struct tls *tls = xcalloc(1, sizeof(*tls));
    tls->ssl = checked(SSL_new(identity->ctx));
    set_bios(tls);
    SSL_set_accept_state(tls->ssl);
    return tls;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

bool tls_ready(const struct tls *tls)
{
    return SSL_is_init_finished(tls->ssl);
}

void tls_receive(struct tls *tls, const char *data, size_t len)
{
    size_t written;
    if (len && !BIO_write_ex(tls->in, data, len, &written))
        abort(); /* out of memory */
}

ssize_t tls_read(struct tls *tls, char *out, size_t size)
{
    ERR_clear_error(); /* SSL_get_error() looks at the queue of the whole thread */
    int n = SSL_read(tls->ssl, out, size < INT_MAX ? (int)size : INT_MAX);
    if (n > 0)
        return n;
    int why = SSL_get_error(tls->ssl, n);
    ERR_clear_error();
    if (why == SSL_ERROR_WANT_READ)
        return 0;
    return why == SSL_ERROR_ZERO_RETURN ? -ECONNRESET : -EPROTO;
}

int tls_write(struct tls *tls, const char *data, size_t len)
{
    ERR_clear_error();
    size_t written;
    if (len == 0 || SSL_write_ex(tls->ssl, data, len, &written))
        return 0; /* memory takes everything: there are no partial writes */
    ERR_clear_error();
    return -EPROTO;
}

void tls_end(struct tls *tls)
{
    ERR_clear_error();
    if (tls_ready(tls))
        (void)SSL_shutdown(tls->ssl); /* fails after a broken handshake, when nobody listens */
    ERR_clear_error();
}

size_t tls_output(struct tls *tls, const char **ret_data)
{
    char *data = NULL;
    long len = BIO_get_mem_data(tls->out, &data);
    *ret_data = data;
    return len > 0 ? (size_t)len : 0;
}

void tls_output_taken(struct tls *tls)
{
    (void)BIO_reset(tls->out);
}

void tls_trim(struct tls *tls)
{
    if (BIO_ctrl_pending(tls->in) == 0 && BIO_ctrl_pending(tls->out) == 0)
        set_bios(tls);
}
