#include "engine/docker/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 100 };

static void on_look(void *data)
{
    struct asker *asker = data;
    if (!atomic_load(asker->cancelled) || !asker->call)
        return;
    docker_call_cancel(steal_ptr(&asker->call));
    asker->reply = (struct docker_reply){ .body = "" };
    (void)err_set(&asker->reply.err, ECANCELED, "the server ends");
    asker->answered = true;
}

int asker_open(struct asker *asker, const struct docker_target *target, uint64_t timeout_ms,
               const atomic_bool *cancelled, struct err *err)
{
    *asker = (struct asker){ .body = BUF_INIT(BUF_NO_CEILING), .cancelled = cancelled };
    int r = uv_loop_init(&asker->loop);
    if (r < 0)
        return err_sys(err, -r, "connect to the container engine");
    asker->api = docker_api_new(&asker->loop, target, timeout_ms);
    asker->look = timer_new(&asker->loop, on_look, asker);
    if (asker->cancelled)
        timer_repeat(asker->look, LOOK_MS);
    return 0;
}

void asker_close(struct asker *asker)
{
    timer_free(asker->look);
    docker_api_free(asker->api);
    loop_finish(&asker->loop);
    buf_done(&asker->body);
}

static void on_reply(const struct docker_reply *reply, void *data)
{
    struct asker *asker = data;
    asker->call = NULL;
    buf_clear(&asker->body);
    (void)buf_add(&asker->body, reply->body, reply->len);
    asker->reply = *reply;
    asker->reply.body = buf_str(&asker->body);
    asker->answered = true;
}

const struct docker_reply *asker_ask(struct asker *asker, const struct docker_request *request)
{
    asker->answered = false;
    asker->call = docker_call(asker->api, request, on_reply, asker);
    while (!asker->answered)
        (void)uv_run(&asker->loop, UV_RUN_ONCE);
    return &asker->reply;
}

const struct docker_reply *asker_get(struct asker *asker, const char *path)
{
    return asker_ask(asker, &(struct docker_request){ .method = "GET", .path = path });
}

const struct docker_reply *asker_post(struct asker *asker, const char *path, const json_t *body)
{
    auto_free char *text = json_text(body);
    return asker_ask(asker,
                     &(struct docker_request){
                         .method = "POST", .path = path, .body = text, .len = strlen(text) });
}
