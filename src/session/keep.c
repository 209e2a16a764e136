/*
 * Output that is longer than its reader will see is kept whole, as files of the session: written by
 * the agent into /workspace like any other, so they count against its size and end with it. They lie
 * in a directory whose name begins with a dot, which file reports and lists of resources leave out.
 * Only the newest are kept, lest a talkative program fill its own workspace.
 */
#include "session/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_DIRECTORY ".belljar"

/* Of a session. */
struct keeper {
    uint64_t number; /* of the last run that had something to keep */
    char **paths;    /* oldest first */
    size_t count;
};

/* Of a run, from output to files. */
struct keep {
    struct session_ref *session;
    struct run_kept files[KEEP_MAX];
    struct buf texts[KEEP_MAX];
    size_t count, written;
    bool writing; /* or deleting: the agent has been asked, and will answer */
    bool orphan;  /* the run is gone meanwhile */
    char *error;
    void (*on_kept)(struct run *run);
    struct run *run;
};

/*** The files of a session ***/

static void remember(struct session_ref *session, const char *path)
{
    struct keeper *keeper = session->keeper;
    keeper->paths = xrealloc(keeper->paths, (keeper->count + 1) * sizeof(*keeper->paths));
    keeper->paths[keeper->count++] = xstrdup(path);
}

uint64_t keeper_number(const struct keeper *keeper)
{
    return keeper ? keeper->number : 0;
}

struct keeper *keeper_new(uint64_t number)
{
    struct keeper *keeper = xcalloc(1, sizeof(*keeper));
    keeper->number = number;
    return keeper;
}

void keeper_free(struct keeper *keeper)
{
    if (!keeper)
        return;
    for (size_t i = 0; i < keeper->count; i++)
        free(keeper->paths[i]);
    free(keeper->paths);
    free(keeper);
}

/*** The files of a run ***/

static void take_stream(struct keep *keep, const struct gather *gather, enum link_stream stream)
{
    static const char *const names[] = { [LINK_STDOUT] = "stdout", [LINK_STDERR] = "stderr" };
    struct buf *text = &keep->texts[keep->count];
    *text = BUF_INIT(BUF_NO_CEILING);
    bool whole = gather_whole(gather, stream, text);
    if (!text->len) {
        buf_done(text);
        return;
    }
    keep->files[keep->count++] = (struct run_kept){
        .stream = names[stream],
        .path = xasprintf(KEEP_DIRECTORY "/run-%llu-%s.txt",
                          (unsigned long long)keep->session->keeper->number, names[stream]),
        .size = text->len,
        .whole = whole,
    };
}

static void write_next(struct keep *keep);

/* The agent has answered. False: nobody wants to know any more, and the keep is gone. */
static bool answered(struct keep *keep)
{
    bool wanted = !keep->orphan; /* else the session has ended, and its runs with it */
    keep->writing = false;
    if (!wanted)
        keep_free(keep);
    return wanted;
}

static void on_deleted(int code, void *data)
{
    (void)code; /* the guest may have deleted it before us */
    if (answered(data))
        write_next(data);
}

/* The oldest of earlier runs goes if there would be too many. True: on_deleted follows. */
static bool make_room(struct keep *keep)
{
    struct keeper *keeper = keep->session->keeper;
    size_t most = keep->session->sessions->options.overflow_files;
    if (keep->written || !keeper->count || keeper->count + keep->count <= most)
        return false;
    auto_free char *oldest = keeper->paths[0];
    memmove(keeper->paths, keeper->paths + 1, --keeper->count * sizeof(*keeper->paths));
    keep->writing = link_file_delete(keep->session->agent, oldest, /* recursive= */ false,
                                     on_deleted, keep, NULL) == 0;
    return keep->writing;
}

static void on_written(int code, void *data)
{
    struct keep *keep = data;
    if (!answered(keep))
        return;
    if (code) {
        keep->error = code == ENOSPC ? xstrdup("/workspace is full") : xstrdup(strerror(code));
        keep->on_kept(keep->run);
        return;
    }
    remember(keep->session, keep->files[keep->written].path);
    buf_done(&keep->texts[keep->written++]);
    write_next(keep);
}

static void write_next(struct keep *keep)
{
    struct err err = { 0 };
    if (keep->written == keep->count) {
        keep->on_kept(keep->run);
        return;
    }
    if (make_room(keep))
        return;
    const struct buf *text = &keep->texts[keep->written];
    keep->writing = true;
    if (link_file_write(keep->session->agent, keep->files[keep->written].path, text->data,
                        text->len, on_written, keep, &err) < 0) {
        keep->writing = false;
        keep->error = xstrdup(err.msg);
        keep->on_kept(keep->run);
    }
}

struct keep *keep_start(struct session_ref *session, const struct gather *gather,
                        void (*on_kept)(struct run *run), struct run *run)
{
    if (!session->keeper)
        session->keeper = keeper_new(0);
    session->keeper->number++;
    session_note(session);
    struct keep *keep = xcalloc(1, sizeof(*keep));
    keep->session = session;
    keep->on_kept = on_kept;
    keep->run = run;
    take_stream(keep, gather, LINK_STDOUT);
    take_stream(keep, gather, LINK_STDERR);
    return keep;
}

void keep_write(struct keep *keep)
{
    write_next(keep);
}

void keep_result(const struct keep *keep, struct run_result *ret)
{
    if (!keep)
        return;
    ret->kept = keep->files;
    ret->n_kept = keep->written;
    ret->keep_error = keep->error;
}

void keep_free(struct keep *keep)
{
    if (!keep)
        return;
    if (keep->writing) { /* goes with the agent's answer */
        keep->orphan = true;
        return;
    }
    for (size_t i = 0; i < keep->count; i++) {
        free((char *)keep->files[i].path);
        buf_done(&keep->texts[i]);
    }
    free(keep->error);
    free(keep);
}
