#include "engine/docker/target.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PEM_MAX = 1 << 20, CONNECT_MS = 5000, SHOWN_MAX = 200 };

/*** Certificates ***/

static int read_pem(const char *dir, const char *name, struct buf *ret, struct err *err)
{
    auto_free char *path = xasprintf("%s/%s", dir, name);
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *ret = BUF_INIT(PEM_MAX);
    ssize_t n = fd < 0 ? -1 : 1;
    char *room;
    while (n > 0 && (room = buf_room(ret, 1 << 14))) {
        n = read(fd, room, 1 << 14);
        if (n > 0)
            buf_added(ret, (size_t)n);
    }
    if (n < 0)
        return err_sys(err, errno, "docker.cert_path: read %s", path);
    return n > 0 ? err_set(err, EFBIG, "docker.cert_path: %s is no PEM file", path) : 0;
}

static int read_certificates(struct docker_target *target, const char *dir, struct err *err)
{
    int r = read_pem(dir, "ca.pem", &target->ca, err);
    if (r == 0)
        r = read_pem(dir, "cert.pem", &target->cert, err);
    if (r == 0)
        r = read_pem(dir, "key.pem", &target->key, err);
    return r;
}

/*** Open ***/

static int take_host(struct docker_target *target, const char *host, bool tls, struct err *err)
{
    static const char *const schemes[] = { "tcp://", "http://", "https://" };
    if (str_has_prefix(host, "unix://") && host[7] == '/') {
        target->socket = xstrdup(host + 7);
        target->url = xstrdup("http://docker");
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
        if (!str_has_prefix(host, schemes[i]))
            continue;
        const char *address = host + strlen(schemes[i]);
        target->tls = tls || str_eq(schemes[i], "https://");
        size_t len = strcspn(address, "/?#@ ");
        if (len == 0 || (address[len] && strcmp(address + len, "/") != 0))
            break;
        target->url = xasprintf("%s://%.*s", target->tls ? "https" : "http", (int)len, address);
        return 0;
    }
    auto_free char *shown = text_quote(host, SHOWN_MAX);
    return err_set(err, EINVAL,
                   "docker.host: %s is no place of an engine; use unix:///path/to/socket or "
                   "tcp://host:port",
                   shown);
}

int docker_target_new(const struct engine_docker *options, struct docker_target **ret,
                      struct err *err)
{
    const char *host = *options->host ? options->host : DOCKER_DEFAULT_HOST;
    bool tls = *options->cert_path;
    struct docker_target *target = xcalloc(1, sizeof(*target));
    target->refs = 1;
    target->shown = xstrdup(host);
    int r = take_host(target, host, tls, err);
    if (r == 0 && !target->socket && tls)
        r = read_certificates(target, options->cert_path, err);
    if (r < 0)
        docker_target_unref(target);
    else
        *ret = target;
    return r;
}

struct docker_target *docker_target_ref(struct docker_target *target)
{
    target->refs++;
    return target;
}

void docker_target_unref(struct docker_target *target)
{
    if (!target || --target->refs)
        return;
    free(target->shown);
    free(target->url);
    free(target->socket);
    buf_done(&target->ca);
    buf_done(&target->cert);
    if (target->key.data)
        explicit_bzero(target->key.data, target->key.cap);
    buf_done(&target->key);
    free(target);
}

/*** Use ***/

uint16_t docker_target_port(const struct docker_target *target)
{
    CURLU *url = target->socket ? NULL : curl_url();
    char *text = NULL;
    unsigned long port = 0;
    if (url && curl_url_set(url, CURLUPART_URL, target->url, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_PORT, &text, CURLU_DEFAULT_PORT) == CURLUE_OK)
        port = strtoul(text, NULL, 10);
    curl_free(text);
    curl_url_cleanup(url);
    return (uint16_t)port;
}

static void apply_blob(CURL *easy, CURLoption option, const struct buf *pem)
{
    struct curl_blob blob = { .data = pem->data, .len = pem->len, .flags = CURL_BLOB_NOCOPY };
    if (pem->len)
        (void)curl_easy_setopt(easy, option, &blob);
}

void docker_target_apply(const struct docker_target *target, CURL *easy)
{
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* whatever the environment says */
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(easy, CURLOPT_USERAGENT, "belljar/" BELLJAR_VERSION);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    if (target->socket)
        (void)curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, target->socket);
    apply_blob(easy, CURLOPT_CAINFO_BLOB, &target->ca);
    apply_blob(easy, CURLOPT_SSLCERT_BLOB, &target->cert);
    apply_blob(easy, CURLOPT_SSLKEY_BLOB, &target->key);
}

/* Of a certificate, ours or the engine's. */
static bool is_mistrust(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CONNECT_ERROR;
}

static bool is_broken(CURLcode code)
{
    return code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING;
}

int docker_target_explain(const struct docker_target *target, CURL *easy, CURLcode code,
                          const char *words, struct err *err)
{
    long number = 0;
    if (easy)
        (void)curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &number);
    bool refused = code == CURLE_COULDNT_CONNECT;
    if (number == EMFILE || number == ENFILE)
        return err_sys(err, (int)number, "connect to the container engine at %s", target->shown);
    if (refused && target->socket && (number == EACCES || number == EPERM))
        return err_set(err, EACCES,
                       "docker.host: no permission to use %s; add this user to the group that owns "
                       "the socket (usermod -aG docker USER, then log in again), or use a rootless "
                       "engine",
                       target->shown);
    if (refused && target->socket && number == ENOENT)
        return err_set(err, ENOENT,
                       "docker.host: there is no %s; start the container engine (systemctl start "
                       "docker), or set docker.host",
                       target->shown);
    if (refused)
        return err_set(err, ECONNREFUSED,
                       "docker.host: no container engine answers at %s; start it (systemctl start "
                       "docker), or set docker.host",
                       target->shown);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return err_set(err, ETIMEDOUT,
                       "the container engine at %s did not answer in time (docker.timeout)",
                       target->shown);
    if (code == CURLE_WRITE_ERROR)
        return err_set(err, EMSGSIZE, "the container engine at %s sent too long an answer",
                       target->shown);
    if (is_mistrust(code)) {
        auto_free char *said = text_quote(*words ? words : curl_easy_strerror(code), SHOWN_MAX);
        return err_set(
            err, EACCES,
            "docker.cert_path: no trust between us and the container engine at %s: %s; "
            "ca.pem has to be of who signed the engine's certificate, which has to name the "
            "host of docker.host; cert.pem and key.pem are ours, signed by whom the engine "
            "trusts",
            target->shown, said);
    }
    if (target->tls && is_broken(code))
        return err_set(err, ECONNRESET,
                       "the container engine at %s has ended the connection; so it does if "
                       "docker.cert_path has a cert.pem that it does not trust",
                       target->shown);
    auto_free char *shown = text_quote(*words ? words : curl_easy_strerror(code), SHOWN_MAX);
    return err_set(err, EIO, "the container engine at %s: %s", target->shown, shown);
}
