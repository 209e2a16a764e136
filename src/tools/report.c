#include "tools/report.h"
#include "tools/mime.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_SHOWN_MAX = 512, MIME_MAX = 100 };
static const char MIME_UNKNOWN[] = "application/octet-stream";

/*** Text ***/

/* Takes the text, and gives it back no longer than that. */
static char *bounded(struct buf *text, size_t max, bool *ret_cut)
{
    char *owned = buf_steal(text);
    bool cut = toolbox_cut(&owned, max);
    if (ret_cut)
        *ret_cut = cut;
    return owned;
}

char *report_chunk(const struct run_chunk *chunk)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    toolbox_add_text(&text, chunk->text, chunk->len);
    return buf_steal(&text);
}

char *report_stream(const struct run_result *run, enum link_stream stream, size_t max,
                    bool *ret_cut)
{
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < run->n_output; i++)
        if (run->output[i].stream == stream)
            toolbox_add_text(&text, run->output[i].text, run->output[i].len);
    return bounded(&text, max, ret_cut);
}

/* NULL: it is no text. */
static char *text_of(const json_t *value, size_t max, bool *ret_cut)
{
    if (ret_cut)
        *ret_cut = false;
    if (!json_is_string(value))
        return NULL;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    toolbox_add_text(&text, json_string_value(value), json_string_length(value));
    return bounded(&text, max, ret_cut);
}

char *report_value(const struct run_result *run, size_t max, bool *ret_cut)
{
    const json_t *result = json_object_get(run->done, "result");
    return text_of(json_object_get(result, "text/plain"), max, ret_cut);
}

char *report_shown(const struct run_result *run, size_t max)
{
    char *shown = text_of(json_object_get(run->done, "shown"), max, NULL);
    return shown ? shown : report_value(run, max, NULL);
}

static const char *what_is_gone(const struct run_result *run)
{
    if (run->files_kept)
        return "This session is over: its variables are gone, and who uses its id again finds the "
               "files that the run before left.";
    if (run->session_over)
        return "This session is over: its variables and files are gone.";
    return run->kernel_lost ? "Python was restarted: variables and imports are gone, files in "
                              "/workspace are kept."
                            : NULL;
}

char *report_loss(const struct run_result *run)
{
    const char *gone = what_is_gone(run);
    if (!run->save_error)
        return gone ? xstrdup(gone) : NULL;
    auto_free char *not_saved = toolbox_not_saved(run->save_error);
    return xasprintf("%s%s%s", not_saved, gone ? " " : "", gone ? gone : "");
}

char *report_blocked(const struct run_result *run)
{
    const json_t *error = json_object_get(run->done, "error");
    const char *name = json_str(error, "name"), *value = json_str(error, "value");
    bool policy = str_eq(name, "ImportError") && value && str_has_prefix(value, "Import '") &&
                  (strstr(value, "' is blocked for security reasons") ||
                   strstr(value, "' is not in the allowed list"));
    return policy ? xasprintf("%.500s", value) : NULL;
}

struct str_list report_traceback(const struct run_result *run)
{
    struct str_list texts = { 0 };
    size_t i;
    json_t *line;
    json_array_foreach(json_object_get(run->done, "traceback"), i, line)
    {
        if (!json_is_string(line) || i >= REPORT_LINES_MAX)
            continue;
        char *text = xstrdup(json_string_value(line));
        (void)toolbox_cut(&text, REPORT_LINE_MAX);
        toolbox_add_str(&texts, text);
    }
    return texts;
}

char *report_traceback_text(const struct run_result *run)
{
    struct str_list lines = report_traceback(run);
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < lines.count; i++)
        (void)buf_printf(&text, "%s%s", i ? "\n" : "", lines.items[i]);
    toolbox_free_strs(&lines);
    return buf_steal(&text);
}

/*** Files ***/

/* As far as the name of a type is concerned: short, on one line, nothing that a terminal would obey. */
static bool is_mime(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    return len > 0 && len <= MIME_MAX;
}

void report_add_file(struct report_files *files, const char *session_id, const char *path,
                     const char *mime_type, int64_t size)
{
    files->items = xrealloc(files->items, (files->count + 1) * sizeof(*files->items));
    files->items[files->count++] = (struct file_entry){
        .uri = session_file_uri(session_id, path),
        .name = xstrdup(path),
        .mime_type = xstrdup(mime_type),
        .size = size,
    };
}

/* Of a program, as the session saw them. */
static void add_seen_files(struct report_files *files, const struct run_result *run)
{
    for (size_t i = 0; i < run->n_files && files->count < REPORT_FILES_MAX; i++) {
        const char *path = run->files[i].path, *mime = mime_of_name(path);
        if (session_file_is_shown(path) && strlen(path) <= PATH_SHOWN_MAX)
            report_add_file(files, run->session_id, path, mime ? mime : MIME_UNKNOWN,
                            run->files[i].size);
    }
}

struct report_files report_files(const struct run_result *run)
{
    struct report_files files = { 0 };
    size_t i;
    json_t *file;
    add_seen_files(&files, run);
    json_array_foreach(json_object_get(run->done, "files"), i, file)
    {
        const char *path = json_str(file, "path");
        const char *known = path ? mime_of_name(path) : NULL;
        const char *mime = known ? known : json_str(file, "mime");
        if (i >= REPORT_FILES_MAX || !path || strlen(path) > PATH_SHOWN_MAX)
            continue;
        if (!mime || !is_mime(mime))
            mime = MIME_UNKNOWN;
        report_add_file(&files, run->session_id, path, mime,
                        json_integer_value(json_object_get(file, "size")));
    }
    return files;
}

void report_files_done(struct report_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free((char *)files->items[i].uri);
        free((char *)files->items[i].name);
        free((char *)files->items[i].mime_type);
    }
    free(files->items);
    *files = (struct report_files){ 0 };
}

/*** Images ***/

/* What the run displayed, by number, and its result as the last; NULL: no such thing. */
static json_t *bundle_at(const struct run_result *run, size_t i)
{
    return i < json_array_size(run->displays)
               ? json_object_get(json_array_get(run->displays, i), "data")
               : json_object_get(run->done, "result");
}

/* Clients refuse a whole result for one bad image. */
static bool is_image(const json_t *base64, const char *type)
{
    enum { LOOKED_AT = 16 };
    auto_buf head = BUF_INIT(LOOKED_AT);
    return json_string_length(base64) > LOOKED_AT &&
           base64_decode(json_string_value(base64), LOOKED_AT, &head) == 0 &&
           str_eq(mime_of_bytes(head.data, head.len), type);
}

/* The image of a bundle that clients can show; NULL: none. */
static const json_t *bundle_image(const json_t *bundle, const char **ret_type)
{
    static const char *const types[] = { "image/png", "image/jpeg", "image/gif", "image/webp" };
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        const json_t *data = json_object_get(bundle, types[i]);
        if (json_is_string(data) && is_image(data, types[i])) {
            *ret_type = types[i];
            return data;
        }
    }
    return NULL;
}

size_t report_images(const struct run_result *run, size_t max_answer, report_image_fn *each,
                     void *data)
{
    size_t total = 0, count = json_array_size(run->displays);
    for (size_t i = 0; i <= count; i++) { /* the last one is the result */
        const char *type;
        const json_t *image = bundle_image(bundle_at(run, i), &type);
        if (!image || total + json_string_length(image) > max_answer / 2)
            continue;
        total += json_string_length(image);
        if (each)
            each(type, image, data);
    }
    return total;
}

/* Decoded and encoded again: clients refuse a whole result for one bad block. */
void report_add_image(const char *mime_type, const json_t *base64, void *call)
{
    auto_buf bytes = BUF_INIT(BUF_NO_CEILING);
    if (base64_decode(json_string_value(base64), json_string_length(base64), &bytes) == 0)
        mcp_call_add(call, mcp_image(mime_type, bytes.data, bytes.len));
}

/*** Other forms ***/

static bool is_form(const char *mime)
{
    return is_mime(mime) && !str_eq(mime, "text/plain") &&
           (!str_has_prefix(mime, "image/") || str_eq(mime, "image/svg+xml"));
}

/* Those of one bundle that have room; NULL: there are none. */
static json_t *take_forms(json_t *bundle, size_t room, struct report_displays *displays)
{
    json_t *forms = NULL, *value;
    const char *mime;
    json_object_foreach(bundle, mime, value)
    {
        if (!is_form(mime) || !json_is_string(value))
            continue;
        size_t len =
            strlen(mime) + json_escaped_len(json_string_value(value), json_string_length(value));
        if (displays->count == REPORT_DISPLAYS_MAX || json_object_size(forms) == REPORT_FORMS_MAX ||
            len > room - displays->bytes) {
            displays->left_out++;
            continue;
        }
        if (!forms)
            forms = json_object();
        displays->bytes += len;
        json_put(forms, mime, json_incref(value));
    }
    return forms;
}

struct report_displays report_displays(const struct run_result *run, size_t max_answer)
{
    struct report_displays displays = { 0 };
    size_t count = json_array_size(run->displays), images = 0;
    if (count || json_object_size(bundle_at(run, count)) > 1)
        images = report_images(run, max_answer, NULL, NULL);
    for (size_t i = 0; i <= count; i++) {
        json_t *forms = take_forms(bundle_at(run, i), max_answer / 2 - images, &displays);
        if (!forms)
            continue;
        if (!displays.items)
            displays.items = xcalloc(REPORT_DISPLAYS_MAX, sizeof(json_t *));
        displays.items[displays.count++] = forms;
    }
    return displays;
}

void report_displays_done(struct report_displays *displays)
{
    for (size_t i = 0; i < displays->count; i++)
        json_decref(displays->items[i]);
    free(displays->items);
    *displays = (struct report_displays){ 0 };
}
