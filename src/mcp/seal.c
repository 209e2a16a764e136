/*
 * The text is base64url without padding of
 *
 *     HMAC-SHA256 (32 bytes) | expiry in ms (8 bytes, big endian) | the JSON text
 *
 * and the HMAC covers a label, the length of the binding, the binding, and what follows the HMAC.
 * The lengths make the input unambiguous; the label keeps these HMACs apart from others made with
 * the same key. Nothing behind the HMAC is looked at before it has been verified.
 */
#include "mcp/seal.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

enum { MAC_SIZE = 32, EXPIRY_SIZE = 8, HEAD_SIZE = MAC_SIZE + EXPIRY_SIZE };

static void put_u64(unsigned char out[static 8], uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = (unsigned char)(value >> (56 - 8 * i));
}

static uint64_t get_u64(const unsigned char in[static 8])
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++)
        value = value << 8 | in[i];
    return value;
}

static void compute_mac(const unsigned char key[static SEAL_KEY_SIZE], const char *binding,
                        const char *body, size_t body_len, unsigned char out[static MAC_SIZE])
{
    static const char label[] = "belljar seal 1";
    unsigned char binding_len[8];
    put_u64(binding_len, strlen(binding));
    auto_buf input = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add(&input, label, sizeof(label)); /* no ceiling to reach, here and below */
    (void)buf_add(&input, binding_len, sizeof(binding_len));
    (void)buf_add_str(&input, binding);
    (void)buf_add(&input, body, body_len);

    unsigned len = MAC_SIZE;
    if (!HMAC(EVP_sha256(), key, SEAL_KEY_SIZE, (const unsigned char *)input.data, input.len, out,
              &len))
        OPENSSL_die("HMAC-SHA256 is not available", __FILE__, __LINE__);
}

/*** base64url ***/

static char *to_url_text(const struct buf *sealed)
{
    char *text = base64_encode(sealed->data, sealed->len);
    for (char *c = text; *c; c++) {
        if (*c == '+')
            *c = '-';
        else if (*c == '/')
            *c = '_';
        else if (*c == '=')
            *c = '\0';
    }
    return text;
}

static int from_url_text(const char *text, struct buf *ret)
{
    auto_buf standard = BUF_INIT(BUF_NO_CEILING);
    for (const char *c = text; *c; c++) {
        if (*c == '+' || *c == '/' || *c == '=')
            return -EBADMSG; /* one spelling only */
        (void)buf_add_char(&standard, *c == '-' ? '+' : *c == '_' ? '/' : *c);
    }
    while (standard.len % 4)
        (void)buf_add_char(&standard, '=');
    return base64_decode(buf_str(&standard), standard.len, ret) < 0 ? -EBADMSG : 0;
}

/*** sealing and opening ***/

char *seal_make(const unsigned char key[static SEAL_KEY_SIZE], const json_t *state,
                const char *binding, uint64_t expires_ms)
{
    unsigned char mac[MAC_SIZE] = { 0 };
    unsigned char expiry[EXPIRY_SIZE];
    put_u64(expiry, expires_ms);
    auto_free char *json = json_text(state);

    auto_buf sealed = BUF_INIT(BUF_NO_CEILING);
    (void)buf_add(&sealed, mac, sizeof(mac)); /* room, filled in below */
    (void)buf_add(&sealed, expiry, sizeof(expiry));
    (void)buf_add_str(&sealed, json);
    compute_mac(key, binding, sealed.data + MAC_SIZE, sealed.len - MAC_SIZE, mac);
    memcpy(sealed.data, mac, sizeof(mac));
    return to_url_text(&sealed);
}

int seal_open(const unsigned char key[static SEAL_KEY_SIZE], const char *text, const char *binding,
              uint64_t now_ms, json_t **ret)
{
    auto_buf sealed = BUF_INIT(BUF_NO_CEILING);
    if (from_url_text(text, &sealed) < 0 || sealed.len < HEAD_SIZE)
        return -EBADMSG;
    unsigned char mac[MAC_SIZE];
    compute_mac(key, binding, sealed.data + MAC_SIZE, sealed.len - MAC_SIZE, mac);
    if (CRYPTO_memcmp(mac, sealed.data, MAC_SIZE) != 0)
        return -EBADMSG;
    if (now_ms >= get_u64((const unsigned char *)sealed.data + MAC_SIZE))
        return -ETIME;
    if (json_read(sealed.data + HEAD_SIZE, sealed.len - HEAD_SIZE, &JSON_LIMITS_DEFAULT, ret,
                  NULL) < 0)
        return -EBADMSG;
    return 0;
}
