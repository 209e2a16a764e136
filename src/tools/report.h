/*
 * report: what a finished run said, in the pieces that tools make their answers of. It comes from the
 * guest, so everything is bounded and made clean text here; whatever is returned belongs to the
 * caller.
 */
#ifndef BELLJAR_TOOLS_REPORT_H
#define BELLJAR_TOOLS_REPORT_H

#include "tools/session_files.h"
#include "tools/toolbox.h"

/* Bounds on what a guest can make its kernel say. */
enum {
    REPORT_VALUE_MAX = 256 << 10,
    REPORT_LINES_MAX = 200,
    REPORT_LINE_MAX = 1000,
    REPORT_FILES_MAX = 100,
    REPORT_DISPLAYS_MAX = 100, /* with forms beside text and images, of one run */
    REPORT_FORMS_MAX = 20,     /* of one of them */
};

/* One piece of the output, as text. */
char *report_chunk(const struct run_chunk *chunk);
/* What was written to one stream, at most `max` bytes as JSON. ret_cut may be NULL, here and below. */
char *report_stream(const struct run_result *run, enum link_stream stream, size_t max,
                    bool *ret_cut);

/* Text of the last expression's value, at most `max` bytes as JSON; NULL: there is none. */
char *report_value(const struct run_result *run, size_t max, bool *ret_cut);
/* The same for a reader: where that text only names an object, the source of a form that tells more. */
char *report_shown(const struct run_result *run, size_t max);

/* What the run cost its session: its variables, or all, or the way of its files to the disk. Sentences in
 * one line; NULL: nothing. */
char *report_loss(const struct run_result *run);

/* Why an import was refused by the operator's policy; NULL: none was. */
char *report_blocked(const struct run_result *run);

/* The lines of a traceback. */
struct str_list report_traceback(const struct run_result *run);
/* The same in one text, "" without one. */
char *report_traceback_text(const struct run_result *run);

/* Files that a run made or changed, and others that came to be with it. */
struct report_files {
    struct file_entry *items;
    size_t count;
};
struct report_files report_files(const struct run_result *run);
void report_add_file(struct report_files *files, const char *session_id, const char *path,
                     const char *mime_type, int64_t size);
void report_files_done(struct report_files *files);

/* What else a run displayed, its result last: `count` objects of MIME type and text, without text/plain
 * and what report_images() gives; they and the images fill half an answer. */
struct report_displays {
    json_t **items; /* NULL: there are none */
    size_t count;
    size_t bytes;    /* of all, as JSON */
    size_t left_out; /* forms that went beyond the bounds */
};
struct report_displays report_displays(const struct run_result *run, size_t max_answer);
void report_displays_done(struct report_displays *displays);

/* Calls `each` (may be NULL) for the images that a run displayed, in order, until they fill half an
 * answer. Returns their bytes, as base64. */
typedef void report_image_fn(const char *mime_type, const json_t *base64, void *data);
size_t report_images(const struct run_result *run, size_t max_answer, report_image_fn *each,
                     void *data);
/* A report_image_fn that adds image content; data is the call. */
void report_add_image(const char *mime_type, const json_t *base64, void *call);

#endif
