#include "engine/docker/api.h"

#include "base/list.h"
#include "engine/docker/hub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 16, SOURCE_PIECE = 1 << 18 };

struct docker_api {
    const struct docker_target *target;
    struct hub *hub;
    uint64_t timeout_ms;
    char prefix[16];
    struct list calls;
};

struct docker_call {
    struct hub_transfer transfer;
    struct docker_api *api;
    struct list link;
    struct curl_slist *headers;
    char *url, *body;
    struct buf reply;
    char words[CURL_ERROR_SIZE];
    const struct docker_file *file;
    const struct docker_source *source;
    int (*on_piece)(const char *bytes, size_t len, void *data);
    docker_reply_fn *on_reply;
    void *data;
};

struct docker_api *docker_api_new(uv_loop_t *loop, const struct docker_target *target,
                                  uint64_t timeout_ms)
{
    struct docker_api *api = xcalloc(1, sizeof(*api));
    api->target = target;
    api->timeout_ms = timeout_ms;
    api->hub = hub_new(loop, CONNECTIONS_MAX);
    list_init(&api->calls);
    return api;
}

void docker_api_version(struct docker_api *api, const char *version)
{
    (void)snprintf(api->prefix, sizeof(api->prefix), "%s%s", *version ? "/v" : "", version);
}

const struct docker_target *docker_api_target(const struct docker_api *api)
{
    return api->target;
}

const char *docker_api_prefix(const struct docker_api *api)
{
    return api->prefix;
}

static void call_free(struct docker_call *call)
{
    hub_remove(call->api->hub, &call->transfer);
    curl_easy_cleanup(call->transfer.easy);
    curl_slist_free_all(call->headers);
    list_remove(&call->link);
    buf_done(&call->reply);
    free(call->url);
    free(call->body);
    free(call);
}

void docker_api_free(struct docker_api *api)
{
    if (!api)
        return;
    while (!list_empty(&api->calls))
        call_free(list_first(struct docker_call, &api->calls, link));
    hub_free(api->hub);
    free(api);
}

static size_t take_bytes(char *bytes, size_t size, size_t count, void *data)
{
    struct docker_call *call = data;
    long status = 0;
    (void)curl_easy_getinfo(call->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    bool passed_on = call->on_piece && status >= 200 && status < 300;
    int r = passed_on ? call->on_piece(bytes, size * count, call->data)
                      : buf_add(&call->reply, bytes, size * count);
    return r < 0 ? 0 : size * count;
}

/* The call is gone before its owner hears: whoever cancels then must not find it. */
static void on_over(struct hub_transfer *transfer, CURLcode code)
{
    struct docker_call *call = container_of(transfer, struct docker_call, transfer);
    auto_buf body = call->reply;
    call->reply = (struct buf){ 0 };
    struct docker_reply reply = { .body = buf_str(&body), .len = body.len };
    long status = 0;
    (void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        (void)docker_target_explain(call->api->target, transfer->easy, code, call->words,
                                    &reply.err);
    else
        reply.status = (int)status;
    docker_reply_fn *on_reply = call->on_reply;
    void *data = call->data;
    call_free(call);
    on_reply(&reply, data);
}

static size_t give_bytes(char *room, size_t size, size_t count, void *data)
{
    const struct docker_call *call = data;
    ssize_t n;
    do
        n = read(call->file->fd, room, size * count);
    while (n < 0 && errno == EINTR);
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

/* A connection that was kept may turn out to be dead after the first bytes. */
static int seek_bytes(void *data, curl_off_t offset, int whence)
{
    const struct docker_call *call = data;
    return lseek(call->file->fd, offset, whence) < 0 ? CURL_SEEKFUNC_FAIL : CURL_SEEKFUNC_OK;
}

static size_t give_source(char *room, size_t size, size_t count, void *data)
{
    const struct docker_call *call = data;
    ssize_t n = call->source->read(call->source->data, room, size * count);
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

static int seek_source(void *data, curl_off_t offset, int whence)
{
    const struct docker_call *call = data;
    if (offset != 0 || whence != SEEK_SET)
        return CURL_SEEKFUNC_FAIL;
    call->source->rewind(call->source->data);
    return CURL_SEEKFUNC_OK;
}

static void set_reader(struct docker_call *call, curl_read_callback give, curl_seek_callback seek)
{
    CURL *easy = call->transfer.easy;
    (void)curl_easy_setopt(easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, give);
    (void)curl_easy_setopt(easy, CURLOPT_READDATA, call);
    (void)curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek);
    (void)curl_easy_setopt(easy, CURLOPT_SEEKDATA, call);
}

static void set_file(struct docker_call *call)
{
    set_reader(call, give_bytes, seek_bytes);
    (void)curl_easy_setopt(call->transfer.easy, CURLOPT_POSTFIELDSIZE_LARGE,
                           (curl_off_t)call->file->len);
}

static void set_source(struct docker_call *call)
{
    set_reader(call, give_source, seek_source);
    (void)curl_easy_setopt(call->transfer.easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)SOURCE_PIECE);
    call->headers = curl_slist_append(call->headers, "Transfer-Encoding: chunked");
}

static void set_bytes(struct docker_call *call, const void *bytes, size_t len)
{
    CURL *easy = call->transfer.easy;
    call->body = xmalloc(len + 1);
    if (len)
        memcpy(call->body, bytes, len);
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
}

static void set_body(struct docker_call *call, const struct docker_request *request)
{
    CURL *easy = call->transfer.easy;
    (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    if (str_eq(request->method, "HEAD"))
        (void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (str_eq(request->method, "GET") || str_eq(request->method, "HEAD"))
        return;
    if (call->file)
        set_file(call);
    else if (call->source)
        set_source(call);
    else
        set_bytes(call, request->body, request->len);
    auto_free char *type =
        xasprintf("Content-Type: %s", request->type ? request->type : "application/json");
    call->headers = curl_slist_append(call->headers, type);
    call->headers = curl_slist_append(call->headers, "Expect:");
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
}

struct docker_call *docker_call(struct docker_api *api, const struct docker_request *request,
                                docker_reply_fn *on_reply, void *data)
{
    struct docker_call *call = xcalloc(1, sizeof(*call));
    call->api = api;
    call->file = request->file;
    call->source = request->source;
    call->on_piece = request->on_piece;
    call->on_reply = on_reply;
    call->data = data;
    call->reply = BUF_INIT(DOCKER_REPLY_MAX);
    call->url = xasprintf("%s%s%s", api->target->url, api->prefix, request->path);
    CURL *easy = curl_easy_init();
    if (!easy)
        abort(); /* no memory */
    call->transfer = (struct hub_transfer){ easy, on_over };
    docker_target_apply(api->target, easy);
    (void)curl_easy_setopt(easy, CURLOPT_URL, call->url);
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                           (long)(request->timeout_ms ? request->timeout_ms : api->timeout_ms));
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->words);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    set_body(call, request);
    list_add_tail(&api->calls, &call->link);
    hub_add(api->hub, &call->transfer);
    return call;
}

void docker_call_cancel(struct docker_call *call)
{
    if (call)
        call_free(call);
}
