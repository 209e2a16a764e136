/*
 * Between a session's sandbox and its files on disk (store.h). The agent is asked in pieces, workers of
 * libuv write and read; the loop only hands on.
 *
 *   save:  list of /workspace ─▶ worker: what differs ─▶ [parts of files ─▶ worker: beside the others]…
 *          ─▶ worker: they take their names ─▶ told
 *   load:  worker: list ─▶ [worker: parts of files ─▶ the agent writes them]… ─▶ the session is open
 *
 * A session has one of these at a time. Whoever wants its files saved while that is going on waits for the
 * next round, because the list of this one may be older than what he has written. A session that ends
 * leaves its transfer behind, which ends by itself when the agent or the worker has answered.
 */
#include "session/internal.h"

#include "agent/frame.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_BYTES = 1 << 20, /* of content */
    BATCH_FILES = 2000,
    BATCH_PATHS = 512 << 10,
    SWEEP_MIN_MS = 250,
    SWEEP_MAX_MS = 5 * 60 * 1000,
    SWEEPS_PER_AGE = 8,
};

/*** The store, and what has to be done about it now and then ***/

struct disk {
    uv_loop_t *loop;
    struct store *store;
    size_t users; /* its owner, and whatever a worker may be at */
    bool closed;
    uint64_t save_timeout_ms;
    bool ends_with_session;
    struct timer *sweep;
    uint64_t sweep_ms;
    uv_work_t cleaning;
    bool is_cleaning, clean_again;
    struct list listings; /* struct listing that somebody waits for */
};

static void disk_unref(struct disk *disk)
{
    if (--disk->users > 0)
        return;
    store_close(disk->store);
    free(disk);
}

static void clean_work(uv_work_t *work)
{
    const struct disk *disk = work->data;
    store_clean(disk->store);
}

static void after_clean(uv_work_t *work, int status)
{
    struct disk *disk = work->data;
    (void)status;
    disk->is_cleaning = false;
    if (disk->clean_again && !disk->closed)
        disk_clean(disk);
    disk_unref(disk);
}

void disk_clean(struct disk *disk)
{
    disk->clean_again = disk->is_cleaning;
    if (disk->is_cleaning)
        return;
    disk->cleaning.data = disk;
    if (uv_queue_work(disk->loop, &disk->cleaning, clean_work, after_clean) < 0)
        return; /* the next sweep tries again */
    disk->is_cleaning = true;
    disk->users++;
}

static void on_sweep(void *data)
{
    struct disk *disk = data;
    disk_clean(disk);
    timer_start(disk->sweep, disk->sweep_ms);
}

static uint64_t sweep_period(uint64_t age_ms)
{
    uint64_t period = age_ms / SWEEPS_PER_AGE;
    return period < SWEEP_MIN_MS ? SWEEP_MIN_MS : period > SWEEP_MAX_MS ? SWEEP_MAX_MS : period;
}

/* The first sweep comes from the loop, not from in here: a process that has still to drop privileges must
 * not have threads, for they would keep theirs. */
struct disk *disk_new(uv_loop_t *loop, const struct session_disk_options *options,
                      uint64_t idle_timeout_ms)
{
    struct disk *disk = xcalloc(1, sizeof(*disk));
    uint64_t age = options->max_age_ms > idle_timeout_ms ? options->max_age_ms : idle_timeout_ms;
    *disk = (struct disk){ .loop = loop,
                           .store = options->store,
                           .users = 1,
                           .save_timeout_ms = options->save_timeout_ms,
                           .ends_with_session = options->max_age_ms <= idle_timeout_ms,
                           .sweep_ms = sweep_period(age) };
    list_init(&disk->listings);
    disk->sweep = timer_new(loop, on_sweep, disk);
    timer_start(disk->sweep, 0);
    return disk;
}

struct store *disk_store(const struct disk *disk)
{
    return disk ? disk->store : NULL;
}

bool disk_ends_with_session(const struct disk *disk)
{
    return disk->ends_with_session;
}

/*** A transfer ***/

struct pick {
    size_t index; /* in wanted.items */
    uint64_t offset;
    uint32_t max;
};

struct transfer {
    struct disk *disk;
    struct session_ref *session; /* NULL: it has ended meanwhile */
    struct stored *stored;       /* the session's; ours when that has ended */
    uint64_t give_up_ms;
    bool asking;  /* the agent has been asked, and will answer */
    bool working; /* a worker is at it */
    uv_work_t work;
    void (*after)(struct transfer *transfer);
    struct err err; /* code 0: none */

    struct store_save save;
    uint64_t look; /* of the list it is made of */
    struct pick *picks;
    size_t n_picks;
    size_t skipped; /* files that could not be read */

    struct store_tree tree; /* to load */
    size_t at;              /* in save.fetch, or in tree */
    uint64_t offset;        /* in that file */
    struct buf batch;
};

/* A save that somebody waits for. */
struct saver {
    struct list link; /* session->savers, or session->next_savers */
    session_saved_fn *on_saved;
    void *data;
};

static struct transfer *transfer_new(struct session_ref *session)
{
    struct disk *disk = session->sessions->disk;
    struct transfer *transfer = xcalloc(1, sizeof(*transfer));
    *transfer = (struct transfer){ .disk = disk,
                                   .session = session,
                                   .stored = session->stored,
                                   .give_up_ms = clock_ms() + disk->save_timeout_ms,
                                   .batch = BUF_INIT(BUF_NO_CEILING) };
    transfer->work.data = transfer;
    disk->users++;
    session->transfer = transfer;
    return transfer;
}

static void transfer_free(struct transfer *transfer)
{
    struct disk *disk = transfer->disk;
    if (!transfer->session)
        stored_release(transfer->stored);
    store_save_done(&transfer->save);
    store_tree_done(&transfer->tree);
    free(transfer->picks);
    buf_done(&transfer->batch);
    free(transfer);
    disk_unref(disk);
}

/* Whether the session has ended since the agent or the worker was asked; then this is the end. */
static bool is_over(struct transfer *transfer)
{
    transfer->asking = transfer->working = false;
    if (transfer->session)
        return false;
    transfer_free(transfer);
    return true;
}

static void tell_savers(struct list *savers, const char *error)
{
    while (!list_empty(savers)) {
        struct saver *saver = list_first(struct saver, savers, link);
        list_remove(&saver->link);
        saver->on_saved(error, saver->data);
        free(saver);
    }
}

void disk_end(struct session_ref *session, bool removes)
{
    struct transfer *transfer = steal_ptr(&session->transfer);
    struct stored *stored = steal_ptr(&session->stored);
    session->leaves_files = stored && !removes;
    if (stored && removes) {
        stored_remove(stored);
        disk_clean(session->sessions->disk);
    }
    if (transfer) {
        transfer->session = NULL;
        transfer->stored = stored;
        if (!transfer->asking && !transfer->working)
            transfer_free(transfer);
    } else {
        stored_release(stored);
    }
    tell_savers(&session->savers, "the session ended meanwhile");
    tell_savers(&session->next_savers, "the session ended meanwhile");
}

static void end_work(uv_work_t *work, int status)
{
    struct transfer *transfer = work->data;
    (void)status;
    if (!is_over(transfer))
        transfer->after(transfer);
}

/* `work` may fill in transfer->err. */
static void begin_work(struct transfer *transfer, uv_work_cb work,
                       void (*after)(struct transfer *transfer))
{
    transfer->after = after;
    transfer->working = true;
    int r = uv_queue_work(transfer->disk->loop, &transfer->work, work, end_work);
    if (r < 0) {
        transfer->working = false;
        (void)err_set(&transfer->err, -r, "no worker: %s", uv_strerror(r));
        after(transfer);
    }
}

/*** Saving ***/

static void begin_save(struct session_ref *session);

static void move_all(struct list *to, struct list *from)
{
    while (!list_empty(from)) {
        struct saver *saver = list_first(struct saver, from, link);
        list_remove(&saver->link);
        list_add_tail(to, &saver->link);
    }
}

/* The next round begins before anybody is told, so that no run begins between the two. The session may
 * end while its savers are told. */
static void finish_save(struct transfer *transfer, const char *error)
{
    struct session_ref *session = transfer->session;
    auto_free char *words = error ? xstrdup(error) : NULL;
    struct list told;
    session->sessions->stats.saves_total++;
    session->sessions->stats.save_failures += error != NULL;
    if (error)
        log_warning("session %.6s…: its files were not saved: %s", session->id, error);
    session_hold(session);
    session->saved = !error;
    session->saved_look = transfer->look;
    session->transfer = NULL;
    transfer_free(transfer);
    list_init(&told);
    move_all(&told, &session->savers);
    if (!list_empty(&session->next_savers))
        begin_save(session);
    tell_savers(&told, words);
    session_pump(session);
    session_release(session);
}

static void fail_save(struct transfer *transfer, int code, const char *what)
{
    auto_free char *words = xasprintf("%s: %s", what, strerror(code));
    finish_save(transfer, words);
}

static bool is_late(const struct transfer *transfer)
{
    return clock_ms() > transfer->give_up_ms;
}

static void after_apply(struct transfer *transfer)
{
    auto_free char *skipped =
        transfer->skipped
            ? xasprintf("%zu files could not be read and are not as they are in the sandbox",
                        transfer->skipped)
            : NULL;
    finish_save(transfer, transfer->err.code ? transfer->err.msg : skipped);
}

static void apply_work(uv_work_t *work)
{
    struct transfer *transfer = work->data;
    (void)stored_apply(transfer->stored, &transfer->save, &transfer->err);
}

static uint32_t number_at(const char *at)
{
    const unsigned char *byte = (const unsigned char *)at;
    return byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
}

static int bad_pack(struct err *err)
{
    return err_set(err, EBADMSG, "the sandbox's answer is malformed");
}

/* What the agent packed of one file. Returns the bytes that it took, or negative and err. */
static ssize_t put_pick(struct transfer *transfer, const struct pick *pick, const char *bytes,
                        size_t len)
{
    size_t at = 0;
    uint64_t done = 0;
    bool *failed = &transfer->save.failed[pick->index];
    for (;;) {
        uint32_t n = len - at >= 4 ? number_at(bytes + at) : 0;
        if (len - at < 8 || n > pick->max - done || n > len - at - 4)
            return bad_pack(&transfer->err);
        at += 4;
        if (n == 0)
            break;
        if (stored_put(transfer->stored, pick->index, pick->offset + done, bytes + at, n,
                       &transfer->err) < 0)
            return -transfer->err.code;
        at += n;
        done += n;
    }
    uint32_t code = number_at(bytes + at);
    if (code) {
        transfer->skipped += !*failed && code != ENOENT;
        *failed = true;
    } else if (done == 0 && pick->offset == 0 &&
               stored_put(transfer->stored, pick->index, 0, "", 0, &transfer->err) < 0) {
        return -transfer->err.code;
    }
    return (ssize_t)at + 4;
}

static void put_work(uv_work_t *work)
{
    struct transfer *transfer = work->data;
    size_t at = 0;
    for (size_t i = 0; i < transfer->n_picks; i++) {
        ssize_t n = put_pick(transfer, &transfer->picks[i], transfer->batch.data + at,
                             transfer->batch.len - at);
        if (n < 0)
            return;
        at += (size_t)n;
    }
    if (at != transfer->batch.len)
        (void)bad_pack(&transfer->err);
}

static void fetch_next(struct transfer *transfer);

static void after_put(struct transfer *transfer)
{
    if (transfer->err.code)
        finish_save(transfer, transfer->err.msg);
    else
        fetch_next(transfer);
}

static void on_packed(int code, const char *bytes, size_t len, uint64_t size, void *data)
{
    struct transfer *transfer = data;
    (void)size;
    if (is_over(transfer))
        return;
    if (code) {
        fail_save(transfer, code, "reading files in the sandbox");
        return;
    }
    buf_clear(&transfer->batch);
    (void)buf_add(&transfer->batch, bytes, len);
    begin_work(transfer, put_work, after_put);
}

static void add_pick(struct transfer *transfer, const struct pick *pick)
{
    const char *path = transfer->save.wanted.items[pick->index].path;
    char head[FRAME_PICK_SIZE + FRAME_PATH_MAX];
    const struct frame_pick wire = {
        .offset = pick->offset, .max = pick->max, .path = path, .path_len = strlen(path)
    };
    frame_pick_put(head, &wire);
    (void)buf_add(&transfer->batch, head, FRAME_PICK_SIZE + wire.path_len);
    transfer->picks[transfer->n_picks++] = *pick;
}

/* The next parts of what is to be fetched. Returns how many bytes the answer may have. */
static uint64_t choose_picks(struct transfer *transfer)
{
    const struct store_save *save = &transfer->save;
    uint64_t bytes = 0, most = 0;
    buf_clear(&transfer->batch);
    transfer->n_picks = 0;
    while (transfer->at < save->n_fetch && bytes < BATCH_BYTES && transfer->n_picks < BATCH_FILES &&
           transfer->batch.len < BATCH_PATHS) {
        size_t index = save->fetch[transfer->at];
        uint64_t left = save->wanted.items[index].size - transfer->offset;
        struct pick pick = { .index = index, .offset = transfer->offset };
        pick.max = (uint32_t)(left < BATCH_BYTES - bytes ? left : BATCH_BYTES - bytes);
        if (!save->failed[index]) {
            add_pick(transfer, &pick);
            bytes += pick.max;
            most += pick.max + 8 + 4 * ((uint64_t)pick.max / FRAME_PIECE_MAX + 2);
        }
        bool whole = pick.max == left || save->failed[index];
        transfer->offset = whole ? 0 : transfer->offset + pick.max;
        transfer->at += whole;
    }
    return most;
}

static void fetch_next(struct transfer *transfer)
{
    if (is_late(transfer)) {
        finish_save(transfer, "it took longer than workspace_save_timeout");
        return;
    }
    uint64_t most = choose_picks(transfer);
    if (transfer->n_picks == 0) {
        begin_work(transfer, apply_work, after_apply);
        return;
    }
    transfer->asking = true;
    if (link_file_pack(transfer->session->agent, transfer->batch.data, transfer->batch.len, most,
                       on_packed, transfer, &transfer->err) < 0) {
        transfer->asking = false;
        finish_save(transfer, transfer->err.msg);
    }
}

static void plan_work(uv_work_t *work)
{
    struct transfer *transfer = work->data;
    (void)stored_plan(transfer->stored, &transfer->save, &transfer->err);
}

static void after_plan(struct transfer *transfer)
{
    if (transfer->err.code) {
        finish_save(transfer, transfer->err.msg);
        return;
    }
    transfer->picks = xcalloc(BATCH_FILES, sizeof(*transfer->picks));
    fetch_next(transfer);
}

static void take_list(struct store_save *save, const struct link_entry *entries, size_t count)
{
    static const enum store_type types[] = { [LINK_FILE] = STORE_FILE,
                                             [LINK_DIRECTORY] = STORE_DIRECTORY,
                                             [LINK_SYMLINK] = STORE_LINK,
                                             [LINK_OTHER] = STORE_OTHER };
    for (size_t i = 0; i < count; i++) {
        bool file = entries[i].type == LINK_FILE;
        const struct store_entry like = {
            .type = types[entries[i].type],
            .program = file && (entries[i].mode & 0100),
            .size = entries[i].type == LINK_DIRECTORY ? 0 : entries[i].size,
            .mtime_ns = entries[i].mtime_ns,
        };
        if (like.type != STORE_OTHER)
            store_tree_add(&save->wanted, entries[i].name, &like);
    }
}

static uint64_t mix(uint64_t look, uint64_t fact)
{
    look = (look ^ fact) * 0x9e3779b97f4a7c15;
    return look ^ look >> 32;
}

/* A hash of all that tells a change. Who finds two lists with one hash keeps his own files from being
 * saved. */
static uint64_t look_of(const struct link_entry *entries, size_t count)
{
    uint64_t look = count;
    for (size_t i = 0; i < count; i++) {
        for (const char *c = entries[i].name; *c; c++)
            look = mix(look, (unsigned char)*c);
        look = mix(look, 256 + (uint64_t)entries[i].type * 2 + !!(entries[i].mode & 0100));
        look = mix(look, entries[i].size);
        look = mix(look, (uint64_t)entries[i].mtime_ns);
    }
    return look;
}

/* Nothing is made on the disk for a session that has no files. */
static bool hold(struct transfer *transfer)
{
    struct session_ref *session = transfer->session;
    if (session->stored && !stored_in_place(session->stored))
        stored_release(steal_ptr(&session->stored));
    if (!session->stored && transfer->save.wanted.count &&
        store_hold(transfer->disk->store, session->owner, session->id, /* make= */ true,
                   &session->stored, &transfer->err) < 0)
        return false;
    transfer->stored = session->stored;
    return transfer->stored != NULL;
}

static void on_listed(int code, const struct link_entry *entries, size_t count, bool more,
                      void *data)
{
    struct transfer *transfer = data;
    if (is_over(transfer))
        return;
    if (code) {
        fail_save(transfer, code, "listing files in the sandbox");
        return;
    }
    if (more) {
        finish_save(transfer, "there are too many files in /workspace, or it takes too long to "
                              "list them");
        return;
    }
    transfer->look = look_of(entries, count);
    if (transfer->session->saved && transfer->session->saved_look == transfer->look &&
        (!transfer->stored || stored_in_place(transfer->stored))) {
        finish_save(transfer, NULL);
        return;
    }
    take_list(&transfer->save, entries, count);
    transfer->save.max_bytes = transfer->session->limits.workspace_bytes;
    if (hold(transfer))
        begin_work(transfer, plan_work, after_plan);
    else
        finish_save(transfer, transfer->err.code ? transfer->err.msg : NULL);
}

static void begin_save(struct session_ref *session)
{
    struct transfer *transfer = transfer_new(session);
    move_all(&session->savers, &session->next_savers);
    transfer->asking = true;
    if (link_file_list(session->agent, "/workspace", /* recursive= */ true, STORE_ENTRIES_MAX,
                       on_listed, transfer, &transfer->err) < 0) {
        transfer->asking = false;
        finish_save(transfer, transfer->err.msg);
    }
}

void disk_save(struct session_ref *session, session_saved_fn *on_saved, void *data)
{
    if (!session->on_disk || session->loading || session->state != SESSION_READY) {
        on_saved(NULL, data);
        return;
    }
    struct saver *saver = xcalloc(1, sizeof(*saver));
    saver->on_saved = on_saved;
    saver->data = data;
    list_add_tail(&session->next_savers, &saver->link);
    if (!session->transfer)
        begin_save(session);
}

/*** Loading ***/

static void fail_load(struct transfer *transfer, const char *why)
{
    struct session_ref *session = transfer->session;
    auto_free char *words =
        xasprintf("the files of the session could not be brought back from the disk: %s", why);
    log_warning("session %.6s…: %s", session->id, words);
    session_end(session, OUTCOME_SANDBOX_FAILED, words); /* frees the transfer */
}

static void add_part(struct transfer *transfer, const struct store_entry *entry, const char *bytes,
                     size_t len, bool last)
{
    static const enum frame_entry_type types[] = {
        [STORE_FILE] = ENTRY_FILE, [STORE_DIRECTORY] = ENTRY_DIRECTORY, [STORE_LINK] = ENTRY_SYMLINK
    };
    char head[FRAME_PART_SIZE + FRAME_PATH_MAX];
    const struct frame_part part = { .type = types[entry->type],
                                     .program = entry->program,
                                     .mtime_ns = entry->mtime_ns,
                                     .offset = transfer->offset,
                                     .len = (uint32_t)len,
                                     .last = last,
                                     .path = entry->path,
                                     .path_len = strlen(entry->path) };
    frame_part_put(head, &part);
    (void)buf_add(&transfer->batch, head, FRAME_PART_SIZE + part.path_len);
    (void)buf_add(&transfer->batch, bytes, len);
}

/* As much of the next file as there is room for. */
static int read_part(struct transfer *transfer, const struct store_entry *entry, char *room)
{
    uint64_t left = entry->size - transfer->offset;
    size_t most = left < BATCH_BYTES ? (size_t)left : BATCH_BYTES;
    ssize_t n = entry->type == STORE_DIRECTORY
                    ? 0
                    : stored_read(transfer->stored, entry->path, transfer->offset, room, most,
                                  &transfer->err);
    if (n < 0)
        return -transfer->err.code;
    bool last = (uint64_t)n == left || (size_t)n < most;
    add_part(transfer, entry, room, (size_t)n, last);
    transfer->offset = last ? 0 : transfer->offset + (uint64_t)n;
    transfer->at += last;
    return 0;
}

static void read_work(uv_work_t *work)
{
    struct transfer *transfer = work->data;
    auto_free char *room = xmalloc(BATCH_BYTES);
    buf_clear(&transfer->batch);
    for (size_t files = 0; files < BATCH_FILES && transfer->at < transfer->tree.count &&
                           transfer->batch.len < BATCH_BYTES;
         files++)
        if (read_part(transfer, &transfer->tree.items[transfer->at], room) < 0)
            return;
}

static void after_read(struct transfer *transfer);

static void on_unpacked(int code, void *data)
{
    struct transfer *transfer = data;
    if (is_over(transfer))
        return;
    if (code)
        fail_load(transfer, code == ENOSPC ? "they do not fit into /workspace" : strerror(code));
    else
        begin_work(transfer, read_work, after_read);
}

static void loaded(struct transfer *transfer)
{
    struct session_ref *session = transfer->session;
    session->transfer = NULL;
    transfer_free(transfer);
    session->loading = false;
    session->reopened = true;
    session->loaded = changes_loaded();
    session_opened(session);
}

static void after_read(struct transfer *transfer)
{
    if (transfer->err.code) {
        fail_load(transfer, transfer->err.msg);
    } else if (transfer->batch.len == 0) {
        loaded(transfer);
    } else {
        transfer->asking = true;
        if (link_file_unpack(transfer->session->agent, transfer->batch.data, transfer->batch.len,
                             on_unpacked, transfer, &transfer->err) < 0) {
            transfer->asking = false;
            fail_load(transfer, transfer->err.msg);
        }
    }
}

static void list_work(uv_work_t *work)
{
    struct transfer *transfer = work->data;
    (void)stored_list(transfer->stored, &transfer->tree, &transfer->err);
}

static void after_list(struct transfer *transfer)
{
    if (transfer->err.code)
        fail_load(transfer, transfer->err.msg);
    else
        begin_work(transfer, read_work, after_read);
}

void disk_load(struct session_ref *session)
{
    begin_work(transfer_new(session), list_work, after_list);
}

/*** Lists of what is only on the disk ***/

struct listing {
    struct list link; /* disk->listings */
    struct disk *disk;
    uv_work_t work;
    char *owner, *id;
    struct store_tree tree;
    struct err err;
    link_list_fn *on_list;
    void *data;
};

static void listing_work(uv_work_t *work)
{
    struct listing *listing = work->data;
    (void)store_list(listing->disk->store, listing->owner, listing->id, &listing->tree,
                     &listing->err);
}

static void after_listing(uv_work_t *work, int status)
{
    struct listing *listing = work->data;
    static const enum link_file_type types[] = {
        [STORE_FILE] = LINK_FILE, [STORE_DIRECTORY] = LINK_DIRECTORY, [STORE_LINK] = LINK_SYMLINK
    };
    (void)status;
    size_t count = listing->tree.count;
    struct link_entry *entries = xcalloc(count, sizeof(*entries));
    for (size_t i = 0; i < count; i++) {
        const struct store_entry *entry = &listing->tree.items[i];
        entries[i] = (struct link_entry){ .name = entry->path,
                                          .type = types[entry->type],
                                          .size = entry->size,
                                          .mtime_ns = entry->mtime_ns,
                                          .mode = entry->program ? 0755 : 0644 };
    }
    list_remove(&listing->link);
    if (listing->on_list)
        listing->on_list(listing->err.code, entries, count, /* more= */ false, listing->data);
    free(entries);
    store_tree_done(&listing->tree);
    disk_unref(listing->disk);
    free(listing->owner);
    free(listing->id);
    free(listing);
}

int disk_list(struct disk *disk, const char *owner, const char *id, link_list_fn *on_list,
              void *data, struct err *err)
{
    struct listing *listing = xcalloc(1, sizeof(*listing));
    *listing = (struct listing){
        .disk = disk, .owner = xstrdup(owner), .id = xstrdup(id), .on_list = on_list, .data = data
    };
    listing->work.data = listing;
    list_add_tail(&disk->listings, &listing->link);
    disk->users++;
    int r = uv_queue_work(disk->loop, &listing->work, listing_work, after_listing);
    if (r < 0) {
        disk->users--;
        list_remove(&listing->link);
        free(listing->owner);
        free(listing->id);
        free(listing);
        return err_set(err, -r, "no worker: %s", uv_strerror(r));
    }
    return 0;
}

/*** The end ***/

void disk_free(struct disk *disk)
{
    if (!disk)
        return;
    disk->closed = true;
    store_stop(disk->store);
    timer_free(disk->sweep);
    while (!list_empty(&disk->listings)) { /* whoever asked may be gone when the worker is done */
        struct listing *listing = list_first(struct listing, &disk->listings, link);
        link_list_fn *on_list = listing->on_list;
        list_remove(&listing->link);
        listing->on_list = NULL;
        on_list(ECANCELED, NULL, 0, /* more= */ false, listing->data);
    }
    disk_unref(disk);
}
