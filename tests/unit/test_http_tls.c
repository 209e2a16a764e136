#include "http_fixture.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>

/*** A certificate of our own ***/

static char dir[] = "/tmp/belljar-tls-XXXXXX";
static char cert_file[64], key_file[64], other_key_file[64];

static EVP_PKEY *write_key(const char *path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_non_null(key);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    (void)fclose(file);
    return key;
}

static void write_cert(const char *path, EVP_PKEY *key)
{
    X509 *cert = X509_new();
    assert_non_null(cert);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1,
                               0);
    X509_set_issuer_name(cert, name);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, cert), 1);
    (void)fclose(file);
    X509_free(cert);
}

static int make_files(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(cert_file, sizeof(cert_file), "%s/cert.pem", dir);
    (void)snprintf(key_file, sizeof(key_file), "%s/key.pem", dir);
    (void)snprintf(other_key_file, sizeof(other_key_file), "%s/other.pem", dir);
    EVP_PKEY *key = write_key(key_file);
    write_cert(cert_file, key);
    EVP_PKEY_free(key);
    EVP_PKEY_free(write_key(other_key_file));
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    (void)unlink(cert_file);
    (void)unlink(key_file);
    (void)unlink(other_key_file);
    (void)rmdir(dir);
    return 0;
}

static int start(void **state, uint64_t header_timeout_ms)
{
    struct fixture *f = xmalloc(sizeof(*f));
    struct http_options options = fixture_options();
    options.tls_cert = cert_file;
    options.tls_key = key_file;
    options.limits.max_body = 16 << 20;
    options.limits.header_timeout_ms = header_timeout_ms;
    fixture_init(f, &options);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return start(state, 60000);
}

enum { HASTY_MS = 1000 };
static int setup_hasty(void **state)
{
    return start(state, HASTY_MS);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    fixture_done(f);
    free(f);
    return 0;
}

/*** A client ***/

struct client {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

/* Repeats one OpenSSL call, turning the loop, until it succeeds or fails for good. */
#define PERSIST(f, c, call)                                                                        \
    ({                                                                                             \
        int r_;                                                                                    \
        uint64_t until_ = clock_ms() + PATIENCE_MS;                                                \
        for (;;) {                                                                                 \
            ERR_clear_error();                                                                     \
            r_ = (call);                                                                           \
            int why_ = SSL_get_error((c)->ssl, r_);                                                \
            if (r_ > 0 || (why_ != SSL_ERROR_WANT_READ && why_ != SSL_ERROR_WANT_WRITE))           \
                break;                                                                             \
            if (clock_ms() > until_)                                                               \
                fail_msg("waited in vain for %s", #call);                                          \
            turn(f);                                                                               \
        }                                                                                          \
        r_;                                                                                        \
    })

static int client_open(struct fixture *f, struct client *c, int max_version)
{
    c->ctx = SSL_CTX_new(TLS_client_method());
    (void)SSL_CTX_set_min_proto_version(c->ctx, TLS1_VERSION);
    (void)SSL_CTX_set_max_proto_version(c->ctx, max_version);
    SSL_CTX_set_security_level(c->ctx, 0); /* so that old versions are offered at all */
    c->ssl = SSL_new(c->ctx);
    static const unsigned char protocols[] = "\x02h2\x08http/1.1";
    (void)SSL_set_alpn_protos(c->ssl, protocols, sizeof(protocols) - 1);
    c->fd = dial(f);
    assert_int_equal(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
    SSL_set_fd(c->ssl, c->fd);
    return PERSIST(f, c, SSL_connect(c->ssl));
}

static void client_close(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    (void)close(c->fd);
}

static void client_say(struct fixture *f, struct client *c, const char *data, size_t len)
{
    while (len > 0) {
        int n = PERSIST(f, c, SSL_write(c->ssl, data, (int)len));
        assert_true(n > 0);
        data += n;
        len -= (size_t)n;
    }
}

/* Until `len` bytes are there or the connection ends. */
static void client_hear(struct fixture *f, struct client *c, size_t len, struct buf *text)
{
    while (text->len < len) {
        char *room = buf_room(text, 65536);
        assert_non_null(room);
        int n = PERSIST(f, c, SSL_read(c->ssl, room, 65536));
        if (n <= 0)
            return;
        buf_added(text, (size_t)n);
    }
}

/*** Tests ***/

static void check_round_trip(struct fixture *f, int version)
{
    struct client c;
    assert_int_equal(client_open(f, &c, version), 1);
    const unsigned char *protocol;
    unsigned len;
    SSL_get0_alpn_selected(c.ssl, &protocol, &len);
    assert_int_equal(len, 8);
    assert_memory_equal(protocol, "http/1.1", 8);
    for (int i = 0; i < 3; i++) {
        static const char request[] =
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde";
        auto_buf text = BUF_INIT(TEXT_MAX);
        client_say(f, &c, request, sizeof(request) - 1);
        client_hear(f, &c, 20, &text);
        assert_true(str_has_prefix(buf_str(&text), "HTTP/1.1 200 OK\r\n"));
        CHECK_HAS(buf_str(&text), "\r\n\r\nabcde");
    }
    client_close(&c);
    WAIT_FOR(f, stats(f).connections_open == 0);
}

static void test_requests_are_served_over_tls_1_2_and_1_3(void **state)
{
    check_round_trip(*state, TLS1_2_VERSION);
    check_round_trip(*state, TLS1_3_VERSION);
}

static void test_older_versions_are_refused(void **state)
{
    struct fixture *f = *state;
    struct client c;
    assert_true(client_open(f, &c, TLS1_1_VERSION) <= 0);
    client_close(&c);
    assert_int_equal(f->handled, 0);
}

static void test_a_large_body_comes_back_whole(void **state)
{
    struct fixture *f = *state;
    enum { SIZE = 6 << 20 };
    auto_free char *body = xmalloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        body[i] = (char)(i * 13 + i / 1000);
    auto_free char *head = xasprintf("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                                     "Content-Length: %d\r\n\r\n",
                                     SIZE);
    struct client c;
    assert_int_equal(client_open(f, &c, TLS1_3_VERSION), 1);
    client_say(f, &c, head, strlen(head));
    client_say(f, &c, body, SIZE);
    auto_buf text = BUF_INIT(TEXT_MAX);
    client_hear(f, &c, TEXT_MAX, &text);
    assert_true(text.len > SIZE);
    assert_memory_equal(text.data + text.len - SIZE, body, SIZE);
    assert_true(SSL_get_shutdown(c.ssl) & SSL_RECEIVED_SHUTDOWN); /* an end, not a cut */
    client_close(&c);
}

static void test_a_client_that_says_goodbye_is_gone(void **state)
{
    struct fixture *f = *state;
    struct client c;
    static const char request[] = "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_int_equal(client_open(f, &c, TLS1_3_VERSION), 1);
    client_say(f, &c, request, sizeof(request) - 1);
    WAIT_FOR(f, f->kept);
    (void)SSL_shutdown(c.ssl);
    WAIT_FOR(f, f->gone == 1);
    client_close(&c);
}

static void test_plain_http_is_turned_away(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    auto_buf text = BUF_INIT(TEXT_MAX);
    say(f, fd, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    (void)hear(f, fd, NULL, &text);
    CHECK_LACKS(buf_str(&text), "HTTP/1.1");
    assert_int_equal(f->handled, 0);
}

static void test_a_slow_handshake_is_cut(void **state)
{
    struct fixture *f = *state;
    auto_fd fd = dial(f);
    put(f, fd, "\x16\x03\x01\x02\x00\x01", 6);
    auto_buf text = BUF_INIT(TEXT_MAX);
    (void)hear(f, fd, NULL, &text);
    WAIT_FOR(f, stats(f).connections_open == 0);
}

static void test_an_idle_connection_has_the_idle_time(void **state)
{
    struct fixture *f = *state;
    struct client c;
    assert_int_equal(client_open(f, &c, TLS1_3_VERSION), 1);
    turn_for(f, HASTY_MS + 600); /* more than the head may take */
    assert_int_equal(stats(f).connections_open, 1);
    client_close(&c);
}

static void test_files_that_do_not_serve_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *name, *cert, *key;
    } cases[] = {
        { "no certificate", "/nonexistent/cert.pem", key_file },
        { "no key", cert_file, "/nonexistent/key.pem" },
        { "key of another", cert_file, other_key_file },
        { "key as certificate", key_file, key_file },
        { "certificate alone", cert_file, NULL },
        { "key alone", NULL, key_file },
    };
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http_server *server = NULL;
        struct err err = { 0 };
        struct http_options options = fixture_options();
        options.tls_cert = cases[i].cert;
        options.tls_key = cases[i].key;
        CHECK(cases[i].name,
              http_server_new(&loop, &options, fixture_handler, NULL, &server, &err) < 0);
        CHECK(cases[i].name, err.msg[0] && !server);
    }
    loop_finish(&loop);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define HASTY(name) cmocka_unit_test_setup_teardown(name, setup_hasty, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_requests_are_served_over_tls_1_2_and_1_3),
        TEST(test_older_versions_are_refused),
        TEST(test_a_large_body_comes_back_whole),
        TEST(test_a_client_that_says_goodbye_is_gone),
        TEST(test_plain_http_is_turned_away),
        HASTY(test_a_slow_handshake_is_cut),
        HASTY(test_an_idle_connection_has_the_idle_time),
        cmocka_unit_test(test_files_that_do_not_serve_are_refused),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
