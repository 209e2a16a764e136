/*
 * What the agent reads from the server: frames, their payloads, the paths in them. Beyond "does not
 * crash": what is decoded and encoded again is the same bytes, and a clean path is clean.
 */
#include "agent/frame.h"
#include "agent/path.h"
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert(): the promise is checked in every build. */
static void must(bool promise)
{
    if (!promise)
        abort();
}

static char again[FRAME_MAX];

static void must_be_same(const struct frame *frame, int len)
{
    must((size_t)len <= frame->len && memcmp(again, frame->payload, (size_t)len) == 0);
}

static void try_path(const char *path, size_t len)
{
    char clean[PATH_BYTES], twice[PATH_BYTES], dir[PATH_BYTES];
    if (path_clean("/workspace", path, len, clean) < 0)
        return;
    must(path_clean("/workspace", clean, strlen(clean), twice) == 0);
    must(strcmp(clean, twice) == 0);
    must(clean[0] != '/' && !strstr(clean, "//"));
    auto_free char *padded = xasprintf("/%s/", clean);
    must(!strstr(padded, "/../") && !strstr(padded, "/./"));
    const char *name = path_split(clean, dir);
    must(!strchr(name, '/') && strlen(name) <= FRAME_NAME_MAX);
}

/* The content of pack and unpack: a path, and what stands before it. */
static void try_content(const struct frame *frame)
{
    struct frame_pick pick;
    if (frame->len >= FRAME_PICK_SIZE && frame_pick_get(frame->payload, &pick) == 0 &&
        FRAME_PICK_SIZE + pick.path_len <= frame->len) {
        pick.path = frame->payload + FRAME_PICK_SIZE;
        frame_pick_put(again, &pick);
        must_be_same(frame, (int)(FRAME_PICK_SIZE + pick.path_len));
    }
    struct frame_part part;
    if (frame->len >= FRAME_PART_SIZE && frame_part_get(frame->payload, &part) == 0 &&
        FRAME_PART_SIZE + part.path_len <= frame->len) {
        part.path = frame->payload + FRAME_PART_SIZE;
        frame_part_put(again, &part);
        must_be_same(frame, (int)(FRAME_PART_SIZE + part.path_len));
    }
}

static void try_payload(const struct frame *frame)
{
    struct frame_hello hello;
    if (frame_hello_get(frame, &hello) > 0) {
        frame_hello_put(again, &hello);
        must_be_same(frame, FRAME_HELLO_SIZE);
    }
    struct frame_counts counts;
    if (frame_counts_get(frame, &counts) > 0) {
        frame_counts_put(again, &counts);
        must_be_same(frame, FRAME_COUNTS_SIZE);
    }
    struct frame_run run;
    if (frame_run_get(frame, &run) > 0) {
        frame_run_put(again, &run);
        must_be_same(frame, FRAME_RUN_SIZE);
        must((run.argc >= 1) != run.joined && run.args_len <= FRAME_ARGS_MAX &&
             run.tail_bytes <= FRAME_TAIL_MAX);
    }
    struct frame_cell cell;
    if (frame_cell_get(frame, &cell) > 0) {
        frame_cell_put(again, &cell);
        must_be_same(frame, FRAME_CELL_SIZE);
        must(cell.tail_bytes <= FRAME_TAIL_MAX);
    }
    struct frame_gap gap;
    if (frame_gap_get(frame, &gap) > 0) {
        frame_gap_put(again, &gap);
        must_be_same(frame, FRAME_GAP_SIZE);
    }
    struct frame_exit exit;
    if (frame_exit_get(frame, &exit) > 0) {
        frame_exit_put(again, &exit);
        must_be_same(frame, FRAME_EXIT_SIZE);
    }
    struct frame_file file;
    int len = frame_file_get(frame, &file);
    if (len > 0) {
        frame_file_put(again, &file);
        must_be_same(frame, len);
        try_path(file.path, file.path_len);
        try_path(file.target, file.target_len);
    }
    struct frame_entry entry;
    len = frame_entry_get(frame->payload, frame->len, &entry);
    if (len > 0) {
        frame_entry_put(again, &entry);
        must_be_same(frame, len);
    }
    struct frame_file_end end;
    if (frame_file_end_get(frame, &end) > 0) {
        frame_file_end_put(again, &end);
        must_be_same(frame, FRAME_FILE_END_SIZE);
    }
    try_content(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    try_path(bytes, size < PATH_BYTES && !memchr(bytes, '\0', size) ? size : 0);
    for (size_t at = 0; at < size;) {
        struct frame frame;
        int n = frame_parse(bytes + at, size - at, &frame);
        if (n <= 0)
            break;
        must((size_t)n <= size - at && (size_t)n == FRAME_HEADER + frame.len);
        char header[FRAME_HEADER];
        frame_put_header(header, frame.type, frame.number, frame.len);
        must(memcmp(header, bytes + at, FRAME_HEADER) == 0);
        try_payload(&frame);
        at += (size_t)n;
    }
    return 0;
}
