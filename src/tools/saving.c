#include "tools/saving.h"

#include "base/buf.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PICTURES_MAX = 50 };

struct picture {
    char *name;
    const char *mime_type;
    bool plotly;
    struct buf bytes;
};

struct saving {
    const struct toolbox *box;
    char *owner, *session_id;
    const struct saving_events *events;
    void *data;
    struct picture pictures[PICTURES_MAX];
    size_t count, next;
};

/* Kinds of picture, the best first. */
static const struct kind {
    const char *mime_type, *ending;
    bool base64, plotly_only;
} kinds[] = {
    { "image/png", "png", true, false },
    { "image/jpeg", "jpeg", true, false },
    { "image/svg+xml", "svg", false, false },
    { "text/html", "html", false, true },
};

static bool take_bytes(const struct kind *kind, const json_t *value, struct buf *ret)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (kind->base64)
        return base64_decode(text, len, ret) == 0;
    return buf_add(ret, text, len) == 0;
}

static void take_bundle(struct saving *saving, const json_t *bundle, uint64_t now_ms)
{
    bool plotly = json_object_get(bundle, "application/vnd.plotly.v1+json") != NULL;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        const json_t *value = json_object_get(bundle, kinds[i].mime_type);
        struct picture *picture = &saving->pictures[saving->count];
        if (!json_is_string(value) || (kinds[i].plotly_only && !plotly))
            continue;
        picture->bytes = BUF_INIT(BUF_NO_CEILING); /* the run's displays are bounded */
        if (!take_bytes(&kinds[i], value, &picture->bytes)) {
            buf_done(&picture->bytes);
            continue;
        }
        picture->mime_type = kinds[i].mime_type;
        picture->plotly = plotly;
        picture->name = xasprintf("%s_%" PRIu64 ".%s", plotly ? "plotly" : "inline",
                                  now_ms + saving->count, kinds[i].ending);
        saving->count++;
        return;
    }
}

static void saving_end(struct saving *saving)
{
    saving->events->on_end(saving->data);
    for (size_t i = 0; i < saving->count; i++) {
        free(saving->pictures[i].name);
        buf_done(&saving->pictures[i].bytes);
    }
    free(saving->owner);
    free(saving->session_id);
    free(saving);
}

static void on_saved(const char *error, void *data)
{
    (void)error; /* it has been logged */
    saving_end(data);
}

/* No more is written. */
static void end_writing(struct saving *saving)
{
    if (saving->next)
        session_save(saving->box->sessions, saving->owner, saving->session_id, on_saved, saving);
    else
        saving_end(saving);
}

static void save_next(struct saving *saving);

static void on_written(int code, void *data)
{
    struct saving *saving = data;
    const struct picture *picture = &saving->pictures[saving->next++];
    if (code == 0)
        saving->events->on_saved(picture->name, picture->mime_type, picture->bytes.len,
                                 picture->plotly, saving->data);
    save_next(saving);
}

static void save_next(struct saving *saving)
{
    const struct picture *picture = &saving->pictures[saving->next];
    struct link *agent;
    if (saving->next >= saving->count ||
        session_link(saving->box->sessions, saving->owner, saving->session_id, &agent, NULL) < 0 ||
        link_file_write(agent, picture->name, buf_str(&picture->bytes), picture->bytes.len,
                        on_written, saving, NULL) < 0)
        end_writing(saving);
}

void saving_start(const struct toolbox *box, const char *owner, const struct run_result *run,
                  const struct saving_events *events, void *data)
{
    struct saving *saving = xcalloc(1, sizeof(*saving));
    struct timespec now;
    *saving = (struct saving){ .box = box,
                               .owner = xstrdup(owner),
                               .session_id = xstrdup(run->session_id),
                               .events = events,
                               .data = data };
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    size_t count = json_array_size(run->displays);
    for (size_t i = 0; i <= count && saving->count < PICTURES_MAX; i++) /* the last: the result */
        take_bundle(saving,
                    i < count ? json_object_get(json_array_get(run->displays, i), "data")
                              : json_object_get(run->done, "result"),
                    now_ms);
    if (run->session_over)
        saving_end(saving);
    else
        save_next(saving);
}
