#include "engine/docker/api.h"

#include "base/list.h"
#include "engine/docker/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTIONS_MAX = 16 };

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
    return buf_add(&call->reply, bytes, size * count) < 0 ? 0 : size * count;
}

static void on_over(struct hub_transfer *transfer, CURLcode code)
{
    struct docker_call *call = container_of(transfer, struct docker_call, transfer);
    struct docker_reply reply = { .body = buf_str(&call->reply), .len = call->reply.len };
    long status = 0;
    (void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        (void)docker_target_explain(call->api->target, transfer->easy, code, call->words,
                                    &reply.err);
    else
        reply.status = (int)status;
    docker_reply_fn *on_reply = call->on_reply;
    void *data = call->data;
    auto_buf body = call->reply; /* outlives the call, which the receiver must not find */
    call->reply = (struct buf){ 0 };
    call_free(call);
    on_reply(&reply, data);
}

static void set_body(struct docker_call *call, const struct docker_request *request)
{
    CURL *easy = call->transfer.easy;
    (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    if (str_eq(request->method, "HEAD"))
        (void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (str_eq(request->method, "GET") || str_eq(request->method, "HEAD"))
        return;
    call->body = xmalloc(request->len + 1);
    if (request->len)
        memcpy(call->body, request->body, request->len);
    auto_free char *type =
        xasprintf("Content-Type: %s", request->type ? request->type : "application/json");
    call->headers = curl_slist_append(call->headers, type);
    call->headers = curl_slist_append(call->headers, "Expect:");
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->len);
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
}

struct docker_call *docker_call(struct docker_api *api, const struct docker_request *request,
                                docker_reply_fn *on_reply, void *data)
{
    struct docker_call *call = xcalloc(1, sizeof(*call));
    call->api = api;
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
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)api->timeout_ms);
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
