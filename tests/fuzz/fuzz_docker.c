/*
 * A hostile container engine: its answers, and what it sends over an attached connection. The first byte
 * says which. Beyond "does not crash": what is read keeps within its bounds, every refusal has words, and
 * however the bytes are cut, the pieces of a stream are the same.
 */
#include "engine/docker/reply.h"
#include "engine/docker/stream.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert(): the promise is checked in every build. */
static void must(bool promise)
{
    if (!promise)
        abort();
}

static void must_explain(int r, const struct err *err)
{
    must(r == 0 || (r < 0 && err->code == -r && err->msg[0]));
    must(r == 0 || utf8_valid(err->msg, strlen(err->msg)) ||
         strlen(err->msg) == sizeof(err->msg) - 1);
}

/*** Answers ***/

static void try_engine(const struct docker_reply *reply)
{
    struct docker_facts facts = { 0 };
    struct err err = { 0 };
    int r = docker_read_version(reply, &facts, &err);
    must_explain(r, &err);
    must(r < 0 || str_has_prefix(facts.api, "1."));
    r = docker_read_info(reply, &facts, &err);
    must_explain(r, &err);
    must(r < 0 || facts.cpus > 0);
}

static void try_image(const struct docker_reply *reply)
{
    struct docker_image image;
    struct err err = { 0 };
    int r = docker_read_image(reply, &image, &err);
    must_explain(r, &err);
    if (r < 0)
        return;
    must(image.id[0] && image.env.len <= DOCKER_IMAGE_ENV_MAX);
    must(!image.env.len || image.env.data[image.env.len - 1] == '\0');
    must(json_array_size(image.volumes) <= DOCKER_VOLUMES_MAX);
    docker_image_done(&image);
}

static void try_containers(const struct docker_reply *reply)
{
    struct err err = { 0 };
    auto_json *names = json_object();
    must_explain(docker_read_names(reply, "l", "v", names, &err), &err);
    auto_json *rows = json_array();
    must_explain(docker_read_list(reply, "l", rows, &err), &err);
    struct sandbox_usage usage;
    int r = docker_read_stats(reply, &usage, &err);
    must_explain(r, &err);
    must(r < 0 || usage.memory_peak_bytes >= usage.memory_bytes);
}

static void try_refusal(const struct docker_reply *reply)
{
    struct err err = { 0 };
    must_explain(docker_expect(reply, "try", &err), &err);
}

/*** The stream ***/

/* All bytes of standard output, read in steps of `step` bytes; -1: refused. */
static int collect(const char *bytes, size_t len, size_t step, struct buf *ret)
{
    struct docker_demux demux = { 0 };
    for (size_t at = 0; at < len;) {
        struct docker_piece piece;
        size_t now = len - at < step ? len - at : step;
        int n = docker_demux_next(&demux, bytes + at, now, &piece);
        if (n < 0)
            return -1;
        must(n > 0 && (size_t)n <= now && piece.len <= (size_t)n);
        if (piece.stream == DOCKER_STDOUT)
            (void)buf_add(ret, piece.bytes, piece.len);
        at += (size_t)n;
    }
    return 0;
}

static void try_stream(const char *bytes, size_t len)
{
    int status = 0;
    int n = docker_head_parse(bytes, len, &status);
    must(n < 0 || (n == 0 && !status) || ((size_t)n <= len && status >= 100 && status <= 999));
    auto_buf whole = BUF_INIT(BUF_NO_CEILING), cut = BUF_INIT(BUF_NO_CEILING);
    int r = collect(bytes, len, len + 1, &whole);
    must(collect(bytes, len, 3, &cut) == r);
    must(whole.len == cut.len && (!cut.len || memcmp(whole.data, cut.data, cut.len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    auto_free char *body = xstrndup("", 0);
    body = xrealloc(body, size); /* with a NUL behind, as a buf has it */
    memcpy(body, data + 1, size - 1);
    body[size - 1] = '\0';
    static const int statuses[] = { 200, 404, 409, 500, 0 };
    struct docker_reply reply = { .status = statuses[data[0] / 8 % ARRAY_SIZE(statuses)],
                                  .body = body,
                                  .len = size - 1 };
    (void)err_set(&reply.err, 5, "no answer");
    switch (data[0] % 5) {
    case 0:
        try_engine(&reply);
        break;
    case 1:
        try_image(&reply);
        break;
    case 2:
        try_containers(&reply);
        break;
    case 3:
        try_refusal(&reply);
        break;
    default:
        try_stream(body, size - 1);
        break;
    }
    return 0;
}
