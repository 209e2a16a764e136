#include "engine/docker/reply.h"

#include "base/num.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Of the interface: we use nothing that is younger than the first, and have looked at none behind the
 * last. */
enum { API_OLDEST = 38, API_NEWEST = 48 };
enum { SAID_MAX = 240 };

static const struct json_limits reply_limits = { .depth = 64, .digits = 64, .nodes = 200000 };

static int read_json(const struct docker_reply *reply, json_t **ret, struct err *err)
{
    int r = json_read(reply->body, reply->len, &reply_limits, ret, err);
    return r < 0 ? err_set(err, EPROTO, "the container engine's answer is no JSON") : 0;
}

int docker_read_object(const struct docker_reply *reply, json_t **ret, struct err *err)
{
    auto_json *json = NULL;
    int r = read_json(reply, &json, err);
    if (r < 0)
        return r;
    if (!json_is_object(json))
        return err_set(err, EPROTO, "the container engine's answer is no object");
    *ret = steal_ptr(&json);
    return 0;
}

/*** Refusals ***/

static int code_of(const struct docker_reply *reply, const char *said)
{
    static const struct {
        const char *words;
        int code;
    } known[] = {
        { "no space left on device", ENOSPC },
        { "disk quota exceeded", ENOSPC },
        { "is already in progress", EBUSY },
    };
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcasestr(said, known[i].words))
            return known[i].code;
    return reply->status == 404 ? ENOENT : reply->status == 409 ? EBUSY : EIO;
}

int docker_explain(const struct docker_reply *reply, const char *what, struct err *err)
{
    if (!reply->status) {
        *err = reply->err;
        return err_wrap(err, "%s", what);
    }
    auto_json *json = NULL;
    const char *said =
        docker_read_object(reply, &json, err) == 0 ? json_str(json, "message") : NULL;
    said = said ? said : buf_str(&(struct buf){ .data = (char *)(uintptr_t)reply->body });
    auto_free char *shown = text_quote(said, SAID_MAX);
    int code = code_of(reply, said);
    if (code == ENOSPC)
        return err_set(
            err, ENOSPC,
            "%s: the container engine's disk is full: %s; make room there (docker system "
            "df shows what takes it)",
            what, shown);
    bool wants_tls = reply->status == 400 && strstr(said, "HTTP request to an HTTPS server");
    return err_set(err, code, "%s: the container engine answered %d: %s%s", what, reply->status,
                   shown, wants_tls ? "; set docker.cert_path to speak TLS with it" : "");
}

int docker_expect(const struct docker_reply *reply, const char *what, struct err *err)
{
    return reply->status >= 200 && reply->status < 300 ? 0 : docker_explain(reply, what, err);
}

/*** The engine ***/

/* Only what can stand in a line for people. */
static void take_word(const json_t *json, const char *key, char ret[DOCKER_WORD])
{
    const char *text = json_str(json, key);
    size_t len = text ? strcspn(text, "\"\\\x7f") : 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ')
            len = i;
    (void)snprintf(ret, DOCKER_WORD, "%.*s", (int)(len < DOCKER_WORD ? len : DOCKER_WORD - 1),
                   text ? text : "");
}

/* "1.41" → 41; -EINVAL: not of major version 1. */
static int parse_api(const char *text)
{
    int64_t minor;
    if (!text || !str_has_prefix(text, "1.") || num_parse_int(text + 2, 0, 999, &minor) < 0)
        return -EINVAL;
    return (int)minor;
}

static bool is_podman(const json_t *version)
{
    size_t i;
    const json_t *part;
    json_array_foreach(json_object_get(version, "Components"), i, part)
    {
        if (str_eq(json_str(part, "Name"), "Podman Engine"))
            return true;
    }
    return false;
}

int docker_read_version(const struct docker_reply *reply, struct docker_facts *ret, struct err *err)
{
    auto_json *json = NULL;
    int r = docker_read_object(reply, &json, err);
    if (r < 0)
        return r;
    int newest = parse_api(json_str(json, "ApiVersion"));
    int oldest = parse_api(json_str(json, "MinAPIVersion"));
    if (newest < 0)
        return err_set(err, EPROTO, "what answers at docker.host is no container engine");
    if (newest < API_OLDEST || oldest > API_NEWEST)
        return err_set(err, EPROTONOSUPPORT,
                       "the container engine speaks versions 1.%d to 1.%d of its interface, and "
                       "belljar 1.%d to 1.%d",
                       oldest < 0 ? 0 : oldest, newest, API_OLDEST, API_NEWEST);
    take_word(json, "Version", ret->version);
    take_word(json, "Arch", ret->arch);
    ret->podman = is_podman(json);
    (void)snprintf(ret->api, sizeof(ret->api), "1.%d", newest < API_NEWEST ? newest : API_NEWEST);
    return 0;
}

static bool has_option(const json_t *info, const char *name)
{
    size_t i;
    const json_t *option;
    json_array_foreach(json_object_get(info, "SecurityOptions"), i, option)
    {
        const char *text = json_string_value(option);
        if (text && str_has_prefix(text, "name=") && str_has_prefix(text + 5, name))
            return true;
    }
    return false;
}

int docker_read_info(const struct docker_reply *reply, struct docker_facts *ret, struct err *err)
{
    auto_json *json = NULL;
    int r = docker_read_object(reply, &json, err);
    if (r < 0)
        return r;
    json_int_t cpus = json_integer_value(json_object_get(json, "NCPU"));
    take_word(json, "DefaultRuntime", ret->runtime);
    take_word(json, "CgroupDriver", ret->cgroup_driver);
    take_word(json, "Driver", ret->storage);
    ret->cgroup_version = str_eq(json_str(json, "CgroupVersion"), "2") ? 2 : 1;
    ret->cpus = cpus < 1 ? 1 : cpus > 100000 ? 100000 : (unsigned)cpus;
    ret->rootless = has_option(json, "rootless");
    ret->userns = has_option(json, "userns");
    ret->seccomp = has_option(json, "seccomp");
    ret->memory_limit = json_is_true(json_object_get(json, "MemoryLimit"));
    ret->swap_limit = json_is_true(json_object_get(json, "SwapLimit"));
    ret->pids_limit = json_is_true(json_object_get(json, "PidsLimit"));
    ret->cpu_limit = json_is_true(json_object_get(json, "CpuCfsQuota")) ||
                     json_is_true(json_object_get(json, "CPUCfsQuota"));
    return 0;
}

/*** Images ***/

static int take_env(const json_t *config, struct buf *ret, struct err *err)
{
    size_t i;
    const json_t *item;
    const json_t *list = json_object_get(config, "Env");
    *ret = BUF_INIT(DOCKER_IMAGE_ENV_MAX);
    bool good = json_array_size(list) <= DOCKER_IMAGE_ENV_COUNT;
    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);
        good &= text && strlen(text) == json_string_length(item) && strchr(text, '=') &&
                text[0] != '=' && buf_add(ret, text, strlen(text) + 1) == 0;
    }
    return good ? 0
                : err_set(err, E2BIG,
                          "docker.image: its environment has more than %d variables or %d bytes",
                          DOCKER_IMAGE_ENV_COUNT, DOCKER_IMAGE_ENV_MAX);
}

static int take_volumes(const json_t *config, json_t *ret, struct err *err)
{
    const char *path;
    json_t *value;
    json_t *volumes = json_object_get(config, "Volumes");
    if (json_object_size(volumes) > DOCKER_VOLUMES_MAX)
        return err_set(err, E2BIG, "docker.image: it declares more than %d volumes",
                       DOCKER_VOLUMES_MAX);
    json_object_foreach(volumes, path, value)
    {
        if (path[0] == '/' && path[1])
            json_push(ret, json_string(path));
    }
    return 0;
}

int docker_read_image(const struct docker_reply *reply, struct docker_image *ret, struct err *err)
{
    auto_json *json = NULL;
    int r = docker_read_object(reply, &json, err);
    if (r < 0)
        return r;
    const char *id = json_str(json, "Id");
    const json_t *config = json_object_get(json, "Config");
    if (!id || !*id || strlen(id) >= sizeof(ret->id) ||
        strspn(id, "sha256:0123456789abcdef") != strlen(id))
        return err_set(err, EPROTO, "the container engine tells of an image without an id");
    *ret = (struct docker_image){ .volumes = json_array() };
    (void)snprintf(ret->id, sizeof(ret->id), "%s", id);
    r = take_env(config, &ret->env, err);
    if (r == 0)
        r = take_volumes(config, ret->volumes, err);
    if (r < 0)
        docker_image_done(ret);
    return r;
}

void docker_image_done(struct docker_image *image)
{
    buf_done(&image->env);
    json_decref(image->volumes);
    *image = (struct docker_image){ 0 };
}

/*** Containers ***/

bool docker_is_name(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return text && *text && strspn(text, allowed) == strlen(text);
}

/* NULL: it has none that could be ours. */
static const char *name_of(const json_t *container)
{
    const char *name = json_string_value(json_array_get(json_object_get(container, "Names"), 0));
    return name && name[0] == '/' && docker_is_name(name + 1) ? name + 1 : NULL;
}

/* What can stand in a line; anything else is "?". */
static void put_word(json_t *row, const char *key, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    bool shown = len > 0 && len <= 200;
    for (size_t i = 0; shown && i < len; i++)
        shown = isgraph((unsigned char)text[i]);
    json_put_str(row, key, shown ? text : "?");
}

int docker_read_list(const struct docker_reply *reply, const char *label, json_t *ret,
                     struct err *err)
{
    auto_json *json = NULL;
    size_t i;
    const json_t *item;
    int r = read_json(reply, &json, err);
    if (r == 0 && !json_is_array(json))
        r = err_set(err, EPROTO, "the container engine's list of containers is none");
    if (r < 0)
        return r;
    json_array_foreach(json, i, item)
    {
        const char *name = name_of(item);
        const char *instance = json_str(json_object_get(item, "Labels"), label);
        if (!name || !docker_is_name(instance))
            continue;
        json_t *row = json_object();
        json_put_str(row, "sandbox", name);
        json_put_str(row, "instance", instance);
        put_word(row, "image", json_str(item, "Image"));
        put_word(row, "state", json_str(item, "State"));
        json_put(row, "created",
                 json_integer(json_integer_value(json_object_get(item, "Created"))));
        json_push(ret, row);
    }
    return 0;
}

int docker_read_names(const struct docker_reply *reply, const char *label, const char *value,
                      json_t *ret, struct err *err)
{
    auto_json *rows = json_array();
    size_t i;
    const json_t *row;
    int r = docker_read_list(reply, label, rows, err);
    json_array_foreach(rows, i, row)
    {
        /* What the engine was asked to leave out is not ours to remove, whatever it says. */
        if (str_eq(json_str(row, "instance"), value))
            json_put(ret, json_str(row, "sandbox"), json_false());
    }
    return r;
}

int docker_read_exec(const struct docker_reply *reply, char ret[static DOCKER_EXEC_ID],
                     struct err *err)
{
    auto_json *json = NULL;
    int r = docker_read_object(reply, &json, err);
    if (r < 0)
        return r;
    const char *id = json_str(json, "Id");
    size_t len = id ? strspn(id, "0123456789abcdef") : 0;
    if (len == 0 || len >= DOCKER_EXEC_ID || id[len])
        return err_set(err, EPROTO, "the container engine named a process as none is named");
    memcpy(ret, id, len + 1);
    return 0;
}

/* A number that is not there counts 0. */
static uint64_t number_at(const json_t *json, const char *first, const char *second)
{
    const json_t *value = json_object_get(json_object_get(json, first), second);
    json_int_t number = json_integer_value(value);
    return number > 0 ? (uint64_t)number : 0;
}

int docker_read_stats(const struct docker_reply *reply, struct sandbox_usage *ret, struct err *err)
{
    auto_json *json = NULL;
    int r = docker_read_object(reply, &json, err);
    if (r < 0)
        return r;
    const json_t *cpu = json_object_get(json, "cpu_stats");
    *ret = (struct sandbox_usage){
        .memory_bytes = number_at(json, "memory_stats", "usage"),
        .memory_peak_bytes = number_at(json, "memory_stats", "max_usage"),
        .cpu_ns = number_at(cpu, "cpu_usage", "total_usage"),
        .pids = number_at(json, "pids_stats", "current"),
    };
    if (ret->memory_peak_bytes < ret->memory_bytes) /* v2 does not tell */
        ret->memory_peak_bytes = ret->memory_bytes;
    return 0;
}
