/*
 * An image in up to four requests, one after another: which version of the interface, the import of a
 * root file system, the build, and a look at what has come of it.
 */
#include "engine/image.h"

#include "base/text.h"
#include "engine/docker/progress.h"
#include "engine/docker/recipe.h"
#include "engine/docker/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_LEN_MAX = 500, SHOWN_MAX = 200 };

struct image_build {
    struct docker_target *target;
    struct docker_api *api;
    struct docker_facts facts;
    struct docker_file rootfs; /* fd -1: the base is an image */
    char *shown;               /* the rootfs's name, for people */
    char *base, *name;
    struct buf query; /* of the build, but for the base */
    json_t *args;
    uint64_t timeout_ms;
    struct progress progress;
    struct err broken; /* what was wrong with the progress; code 0: nothing */
    struct image_events events;
    void *data;
};

/*** Queries ***/

static void add_parameter(struct buf *query, const char *name, const char *value)
{
    char *escaped = curl_easy_escape(NULL, value, (int)strlen(value));
    (void)buf_printf(query, "%c%s=%s", query->len ? '&' : '?', name, escaped ? escaped : "");
    curl_free(escaped);
}

static void add_json(struct buf *query, const char *name, const json_t *value)
{
    auto_free char *text = json_text(value);
    add_parameter(query, name, text);
}

static json_t *arguments_of(const struct image_recipe *recipe)
{
    json_t *args = json_object();
    auto_buf hosts = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < recipe->n_trusted_hosts; i++)
        (void)buf_printf(&hosts, "%s%s", i ? " " : "", recipe->trusted_hosts[i]);
    if (*recipe->index)
        json_put_str(args, "PIP_INDEX_URL", recipe->index);
    if (hosts.len)
        json_put_str(args, "PIP_TRUSTED_HOST", hosts.data);
    return args;
}

static void write_query(struct buf *query, const struct image_recipe *recipe)
{
    auto_json *labels = json_object();
    json_put_str(labels, "belljar.version", BELLJAR_VERSION);
    add_parameter(query, "t", recipe->name);
    add_parameter(query, "dockerfile", RECIPE_DOCKERFILE);
    add_parameter(query, "networkmode", recipe->network);
    add_parameter(query, "forcerm", "1"); /* no container of a step that failed stays */
    if (recipe->fresh)
        add_parameter(query, "nocache", "1");
    add_json(query, "labels", labels);
}

/*** The end ***/

static void fail(struct image_build *build, const struct err *err)
{
    build->events.on_built(NULL, err, build->data); /* may free the build */
}

static void on_image(const struct docker_reply *reply, void *data)
{
    struct image_build *build = data;
    static const char what[] = "look at the image that was built";
    struct docker_image image;
    struct err err = { 0 };
    int r = docker_expect(reply, what, &err);
    if (r == 0 && docker_read_image(reply, &image, &err) < 0)
        r = err_wrap(&err, "%s", what);
    if (r < 0)
        return fail(build, &err);
    char id[sizeof(image.id)];
    (void)snprintf(id, sizeof(id), "%s", image.id); /* the same size */
    docker_image_done(&image);
    build->events.on_built(id, NULL, build->data); /* may free the build */
}

static void look(struct image_build *build)
{
    auto_free char *path = xasprintf("/images/%s/json", build->name);
    const struct docker_request request = { .method = "GET", .path = path };
    docker_call(build->api, &request, on_image, build);
}

/*** Import and build ***/

static int on_piece(const char *bytes, size_t len, void *data)
{
    struct image_build *build = data;
    return progress_feed(&build->progress, bytes, len, &build->broken);
}

/* What the answer's status, the report in it and its end say together. */
static int finish_report(struct image_build *build, const struct docker_reply *reply,
                         const char *what, struct err *err)
{
    if (build->broken.code)
        *err = build->broken;
    else if (!reply->status && reply->err.code == ETIMEDOUT)
        err_set(err, ETIMEDOUT,
                "the container engine did not come to an end in time "
                "(docker.build_timeout)");
    else if (docker_expect(reply, what, err) < 0)
        return -err->code;
    else if (progress_end(&build->progress, err) == 0)
        return 0;
    return err_wrap(err, "%s", what);
}

static void send_report(struct image_build *build, struct docker_request *request,
                        docker_reply_fn *on_reply)
{
    progress_done(&build->progress);
    progress_init(&build->progress, build->events.on_text, build->data);
    request->method = "POST";
    request->type = "application/x-tar";
    request->timeout_ms = build->timeout_ms;
    request->on_piece = on_piece;
    docker_call(build->api, request, on_reply, build);
}

static void on_build(const struct docker_reply *reply, void *data)
{
    struct image_build *build = data;
    struct err err = { 0 };
    auto_free char *what = xasprintf("build %s from %s", build->name, build->base);
    if (finish_report(build, reply, what, &err) < 0)
        fail(build, &err);
    else
        look(build);
}

static void start_build(struct image_build *build)
{
    json_put_str(build->args, "BASE", build->base);
    add_json(&build->query, "buildargs", build->args);
    auto_free char *path = xasprintf("/build%s", buf_str(&build->query));
    struct docker_request request = { .path = path, .body = recipe_tar, .len = recipe_tar_len };
    send_report(build, &request, on_build);
}

static void on_import(const struct docker_reply *reply, void *data)
{
    struct image_build *build = data;
    struct err err = { 0 };
    auto_free char *what = xasprintf("import %s", build->shown);
    int r = finish_report(build, reply, what, &err);
    if (r == 0 && !build->progress.image[0])
        r = err_set(&err, EPROTO, "%s: the container engine does not say which image it made",
                    what);
    if (r < 0)
        return fail(build, &err);
    build->base = xstrdup(build->progress.image);
    start_build(build);
}

static void start_import(struct image_build *build)
{
    struct docker_request request = { .path = "/images/create?fromSrc=-", .file = &build->rootfs };
    send_report(build, &request, on_import);
}

static void on_version(const struct docker_reply *reply, void *data)
{
    struct image_build *build = data;
    struct err err = { 0 };
    int r = docker_expect(reply, "ask the container engine for its version", &err);
    if (r == 0)
        r = docker_read_version(reply, &build->facts, &err);
    if (r < 0)
        return fail(build, &err);
    docker_api_version(build->api, build->facts.api);
    if (build->base)
        start_build(build);
    else
        start_import(build);
}

/*** Life ***/

/* Its parts are the engine's business; here it may only be nothing but a name. */
static int check_name(const char *flag, const char *name, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/:@";
    size_t len = strlen(name);
    if (len > 0 && len <= NAME_LEN_MAX && strspn(name, allowed) == len && name[0] != '/' &&
        name[0] != '-')
        return 0;
    auto_free char *shown = text_quote(name, SHOWN_MAX);
    return err_set(err, EINVAL,
                   "%s: %s is no image's name; it looks like registry.example.org/name:tag or "
                   "name@sha256:...",
                   flag, shown);
}

static int open_rootfs(struct image_build *build, const char *path, struct err *err)
{
    struct stat st;
    build->rootfs.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    build->shown = text_quote(path, SHOWN_MAX);
    if (build->rootfs.fd < 0 || fstat(build->rootfs.fd, &st) < 0)
        return err_sys(err, errno, "--from-rootfs: open %s", build->shown);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return err_set(err, EINVAL, "--from-rootfs: %s is no tar of a root file system, but %s",
                       build->shown,
                       S_ISDIR(st.st_mode)    ? "a directory; pack it with tar -C DIRECTORY -c ."
                       : !S_ISREG(st.st_mode) ? "something that is no plain file"
                                              : "empty");
    build->rootfs.len = (uint64_t)st.st_size;
    return 0;
}

int image_build_new(uv_loop_t *loop, const struct image_recipe *recipe,
                    const struct image_events *events, void *data, struct image_build **ret,
                    struct err *err)
{
    static const struct docker_request version = { .method = "GET", .path = "/version" };
    struct image_build *build = xcalloc(1, sizeof(*build));
    *build = (struct image_build){
        .rootfs = { .fd = -1 },
        .base = recipe->base ? xstrdup(recipe->base) : NULL,
        .name = xstrdup(recipe->name),
        .query = BUF_INIT(BUF_NO_CEILING),
        .args = arguments_of(recipe),
        .timeout_ms = recipe->timeout_ms,
        .events = *events,
        .data = data,
    };
    write_query(&build->query, recipe);
    int r = check_name("--tag", recipe->name, err);
    if (r == 0)
        r = recipe->base ? check_name("--from", recipe->base, err)
                         : open_rootfs(build, recipe->rootfs, err);
    if (r == 0)
        r = docker_target_new(recipe->docker, &build->target, err);
    if (r < 0) {
        image_build_free(build);
        return r;
    }
    build->api = docker_api_new(loop, build->target, recipe->docker->timeout_ms);
    docker_call(build->api, &version, on_version, build);
    *ret = build;
    return 0;
}

void image_build_free(struct image_build *build)
{
    if (!build)
        return;
    docker_api_free(build->api); /* closes connections, which the engine takes as a wish to stop */
    docker_target_unref(build->target);
    progress_done(&build->progress);
    fd_closep(&build->rootfs.fd);
    buf_done(&build->query);
    json_decref(build->args);
    free(build->shown);
    free(build->base);
    free(build->name);
    free(build);
}
