#include "cli/installer.h"
#include "cli/sandboxes.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/num.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CERTIFICATES_MAX = 4 << 20, INSTALLERS_MAX = 64 };

/*** Where packages are kept ***/

static char *default_dir(const char *state_dir)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (geteuid() == 0)
        return xstrdup("/var/cache/belljar/packages");
    if (cache && cache[0] == '/')
        return xasprintf("%s/belljar/packages", cache);
    if (home && home[0] == '/' && access(home, W_OK) == 0)
        return xasprintf("%s/.cache/belljar/packages", home);
    return xasprintf("%s/packages", state_dir);
}

/*** The environment ***/

/* What makes an interpreter another: an upgrade, or another set of packages beside it. */
static char *describe_interpreter(const struct config *config)
{
    static const char *const files[] = { "bin/python3", "stamp", "pyvenv.cfg" };
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        auto_free char *path = config->runtime[0]
                                   ? xasprintf("%s/%s", config->runtime, files[i])
                                   : xasprintf("%s/usr/%s", config->rootfs, files[i]);
        struct stat st = { 0 };
        (void)stat(path, &st); /* not there: then that is what describes it */
        (void)buf_printf(&text, "%lld:%lld.%ld ", (long long)st.st_size,
                         (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
    return buf_steal(&text);
}

/* Their content travels, for the sandbox has other files; read while we still may. */
static char *read_certificates(void)
{
    static const char *const names[] = { "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE",
                                         "CURL_CA_BUNDLE" };
    const char *path = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !path; i++)
        path = getenv(names[i]);
    auto_fd fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    auto_buf text = BUF_INIT(CERTIFICATES_MAX);
    char *room;
    ssize_t n = 1;
    while (fd >= 0 && n > 0 && (room = buf_room(&text, 1 << 16))) {
        n = read(fd, room, 1 << 16);
        if (n > 0)
            buf_added(&text, (size_t)n);
    }
    if (path && (fd < 0 || n != 0))
        log_warning("certificates for the package installer: %s cannot be read", path);
    return buf_steal(&text);
}

static void add_port(struct engine_network *network, uint16_t port)
{
    for (size_t i = 0; i < network->n_ports; i++)
        if (network->ports[i] == port)
            return;
    if (network->n_ports < ENGINE_PORTS_MAX)
        network->ports[network->n_ports++] = port;
}

/* Of https://user:secret@host:port/path, of host:port. Without one the usual two are there anyway. */
static void add_port_of(struct engine_network *network, const char *url)
{
    const char *scheme = strstr(url, "://");
    const char *begin = scheme ? scheme + 3 : url;
    auto_free char *authority = xstrndup(begin, strcspn(begin, "/?#"));
    const char *colon = strrchr(authority, ':');
    int64_t port;
    if (colon && !strchr(colon, ']') && num_parse_int(colon + 1, 1, 65535, &port) == 0)
        add_port(network, (uint16_t)port);
}

static void add_proxies(struct installer *installer)
{
    static const char *const names[] = { "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
                                         "http_proxy", "https_proxy", "all_proxy", "no_proxy" };
    installer->env = xcalloc(ARRAY_SIZE(names) + 1, sizeof(*installer->env));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *value = getenv(names[i]);
        if (!value)
            continue;
        installer->env[installer->n_env++] = xasprintf("%s=%s", names[i], value);
        add_port_of(&installer->network, value);
    }
}

static void describe_network(struct installer *installer, const struct config *config)
{
    static const uint16_t usual[] = { 53, 80, 443 };
    installer->network.wheels = config->package_wheels;
    for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
        add_port(&installer->network, usual[i]);
    add_port_of(&installer->network, config->package_index);
    add_proxies(installer);
}

/*** Open and close ***/

static void give_up(struct installer *installer, const struct err *err)
{
    log_warning("packages cannot be installed: %s", err->msg);
    installer->failure = *err;
    packages_free(steal_ptr(&installer->packages));
}

void installer_prepare(struct installer *ret, uv_loop_t *loop, const struct config *config,
                       const char *state_dir, const char *python)
{
    *ret = (struct installer){ 0 };
    if (!config->packages_enabled)
        return;
    ret->dir = config->package_dir[0] ? xstrdup(config->package_dir) : default_dir(state_dir);
    bool docker =
        str_eq(config->engine, "docker"); /* all is in the image, whose id the engine tells */
    ret->interpreter = docker ? xstrdup("") : describe_interpreter(config);
    ret->certificates = read_certificates();
    describe_network(ret, config);
    const struct packages_options options = {
        .dir = ret->dir,
        .uid = sandboxes_server_uid(config),
        .python = python,
        .interpreter = ret->interpreter,
        .installer = (enum package_installer)config->package_installer,
        .index = config->package_index,
        .trusted_hosts = (const char *const *)config->package_trusted_hosts.items,
        .n_trusted_hosts = config->package_trusted_hosts.count,
        .wheels = config->package_wheels,
        .env = (const char *const *)ret->env,
        .certificates = ret->certificates ? ret->certificates : "",
        .allow_source = config->package_allow_source,
        .max_bytes = config->package_max_bytes,
        .max_files = (uint64_t)config->package_max_files,
        .max_count = (size_t)config->package_max_count,
        .timeout_ms = config->package_timeout_ms,
        .max_age_ms = config->package_max_age_ms,
        .cache_bytes = config->package_cache_size,
        .max_parallel = (size_t)config->package_max_parallel,
        .max_queue = (size_t)config->package_max_queue,
    };
    struct err err = { 0 };
    struct stat st;
    if (*config->package_wheels && !docker && stat(config->package_wheels, &st) < 0)
        (void)err_sys(&err, errno, "package_wheels: %s", config->package_wheels);
    if (err.code || packages_open(loop, &options, &ret->packages, &err) < 0)
        give_up(ret, &err);
}

struct engine_packages installer_shown(const struct installer *installer)
{
    return installer->packages ? packages_shown(installer->packages)
                               : (struct engine_packages){ .dir = "" };
}

void installer_take_ids(const struct installer *installer, struct engine_options *base,
                        struct engine_options *ret)
{
    uint32_t wanted = 1 + 2 * INSTALLERS_MAX, most = base->uid_count / 4;
    uint32_t count = most < 3 ? 3 : most < wanted ? most : wanted;
    *ret = *base;
    if (!installer->packages)
        return;
    base->uid_count -= count;
    ret->uid_base = base->uid_base + base->uid_count;
    ret->uid_count = count;
}

void installer_start(struct installer *installer, uv_loop_t *loop, const struct config *config,
                     struct engine *guests, const struct engine_options *options)
{
    char instance[RANDOM_ID_SIZE];
    struct engine_options own = *options;
    struct err err = { 0 };
    if (!installer->packages)
        return;
    random_id(instance);
    own.instance = instance;
    own.packages = (struct engine_packages){ .dir = "" };
    own.kernels.python = "";
    installer->network.guests = guests;
    own.network = &installer->network;
    own.pool_enabled = false;
    own.pool_max_creations = (size_t)config->package_max_parallel;
    if (engine_open(loop, config->engine, &own, &installer->engine, &err) < 0)
        give_up(installer, &err);
    else
        packages_start(installer->packages, guests, installer->engine);
}

void installer_close(struct installer *installer)
{
    packages_free(installer->packages);
    engine_close(installer->engine);
    for (size_t i = 0; i < installer->n_env; i++)
        free(installer->env[i]);
    free(installer->env);
    free(installer->dir);
    free(installer->interpreter);
    free(installer->certificates);
    *installer = (struct installer){ 0 };
}
