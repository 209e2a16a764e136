#include "engine/docker/hub.h"

#include "base/loop.h"

#include <stdlib.h>

struct hub {
    uv_loop_t *loop;
    CURLM *multi;
    struct timer *timer;
};

/* A socket of libcurl's. It may close the socket as soon as it has said CURL_POLL_REMOVE. */
struct watch {
    uv_poll_t poll;
    struct hub *hub;
    curl_socket_t fd;
};

static void tell(struct hub *hub)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(hub->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        struct hub_transfer *transfer = NULL;
        CURLcode code = message->data.result;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        transfer->on_over(transfer, code); /* removes itself, and may add or remove others */
    }
}

static void on_time(void *data)
{
    struct hub *hub = data;
    int running;
    (void)curl_multi_socket_action(hub->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    tell(hub);
}

static int set_timer(CURLM *multi, long delay_ms, void *data)
{
    const struct hub *hub = data;
    (void)multi;
    if (delay_ms < 0)
        timer_stop(hub->timer);
    else
        timer_start(hub->timer, (uint64_t)delay_ms);
    return 0;
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    const struct watch *watch = container_of(poll, struct watch, poll);
    struct hub *hub = watch->hub;
    /* What is wrong with it libcurl finds out by using it, and tries again if it was a kept connection. */
    int running, what = status < 0 ? CURL_CSELECT_IN | CURL_CSELECT_OUT : 0;
    what |= events & UV_READABLE ? CURL_CSELECT_IN : 0;
    what |= events & UV_WRITABLE ? CURL_CSELECT_OUT : 0;
    (void)curl_multi_socket_action(hub->multi, watch->fd, what, &running);
    tell(hub);
}

static void watch_closed(uv_handle_t *handle)
{
    free(container_of((uv_poll_t *)handle, struct watch, poll));
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *socket_data)
{
    struct hub *hub = data;
    struct watch *watch = socket_data;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (watch)
            uv_close((uv_handle_t *)&watch->poll, watch_closed);
        (void)curl_multi_assign(hub->multi, fd, NULL);
        return 0;
    }
    if (!watch) {
        watch = xcalloc(1, sizeof(*watch));
        watch->hub = hub;
        watch->fd = fd;
        if (uv_poll_init_socket(hub->loop, &watch->poll, fd) < 0) {
            free(watch);
            return -1;
        }
        (void)curl_multi_assign(hub->multi, fd, watch);
    }
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    return uv_poll_start(&watch->poll, events, on_socket) < 0 ? -1 : 0;
}

struct hub *hub_new(uv_loop_t *loop, long max_connections)
{
    struct hub *hub = xcalloc(1, sizeof(*hub));
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* counts; a failure shows below */
    hub->loop = loop;
    hub->timer = timer_new(loop, on_time, hub);
    hub->multi = curl_multi_init();
    if (!hub->multi)
        abort(); /* no memory */
    (void)curl_multi_setopt(hub->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_SOCKETDATA, hub);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_TIMERDATA, hub);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, max_connections);
    return hub;
}

void hub_free(struct hub *hub)
{
    if (!hub)
        return;
    (void)curl_multi_cleanup(hub->multi);
    timer_free(hub->timer);
    curl_global_cleanup();
    free(hub);
}

void hub_add(struct hub *hub, struct hub_transfer *transfer)
{
    (void)curl_easy_setopt(transfer->easy, CURLOPT_PRIVATE, transfer);
    (void)curl_multi_add_handle(hub->multi, transfer->easy);
}

void hub_remove(struct hub *hub, struct hub_transfer *transfer)
{
    (void)curl_multi_remove_handle(hub->multi, transfer->easy);
}
