#include "tools/icons.h"
#include "tools/session_files.h"
#include "tools/toolbox.h"
#include "tools/tools.h"

#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The list's text gets this part of an answer; as JSON, with the URIs, it takes several times more. */
enum { LIST_SHARE = 8 };

struct list_args {
    const char *session_id;
};
static const struct field list_fields[] = {
    FIELD_STR(struct list_args, session_id, "The session, as execute_code returned it.",
              .required = true, .min_len = 1, .max_len = SESSION_ID_MAX),
    FIELD_END,
};
static const struct shape list_input = SHAPE(struct list_args, list_fields);

struct list_result {
    const char *session_id;
    struct obj_list files;
    bool truncated;
};
static const struct field list_result_fields[] = {
    FIELD_STR(struct list_result, session_id, "Session of the files.", .required = true),
    FIELD_OBJECTS(struct list_result, files, "Sorted by name.", &file_entry_shape,
                  .required = true),
    FIELD_BOOL(struct list_result, truncated, "There are more than are shown.", .required = true),
    FIELD_END,
};
static const struct shape list_output = SHAPE(struct list_result, list_result_fields);

struct list_call {
    struct mcp_call *call;
    const struct toolbox *box;
    char *session_id;
};

static struct mcp_call *list_call_free(struct list_call *list)
{
    struct mcp_call *call = list->call;
    free(list->session_id);
    free(list);
    return call;
}

static void on_files(int code, const struct session_file *files, size_t count, bool more,
                     void *data)
{
    struct list_call *list = data;
    if (code) {
        mcp_call_fail(list_call_free(list), "list_session_files: %s",
                      code == ECANCELED ? "the session ended meanwhile" : strerror(code));
        return;
    }
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    struct file_entry *entries = session_file_entries(list->session_id, files, count);
    size_t made = count;
    for (size_t i = 0; i < count; i++) {
        (void)buf_printf(&text, "%s (%s, %lld bytes)\n", entries[i].uri, entries[i].mime_type,
                         (long long)entries[i].size);
        if (text.len > list->box->max_answer / LIST_SHARE && i + 1 < count) {
            count = i + 1;
            more = true;
        }
    }
    if (count == 0)
        (void)buf_add_str(&text, "(no files)\n");
    if (more)
        (void)buf_printf(&text, "[note] only the first %zu files\n", count);
    const struct list_result result = { .session_id = list->session_id,
                                        .files = { .items = entries, .count = count },
                                        .truncated = more };
    mcp_call_add(list->call, mcp_text(text.data, text.len));
    mcp_call_structured(list->call, &result);
    session_file_entries_free(entries, made);
    mcp_call_finish(list_call_free(list));
}

static void list_session_files(struct mcp_call *call, const void *arguments, void *data)
{
    const struct list_args *args = arguments;
    const struct toolbox *box = data;
    struct list_call *list = xcalloc(1, sizeof(*list));
    struct err err = { 0 };
    list->call = call;
    list->box = box;
    list->session_id = xstrdup(args->session_id);
    mcp_call_defer(call, NULL, NULL); /* file work is short and bounded */
    if (session_files(box->sessions, mcp_call_owner(call), args->session_id,
                      /* uses= */ true, box->max_list, on_files, list, &err) < 0)
        mcp_call_fail(list_call_free(list), "list_session_files: %s", err.msg);
}

const struct mcp_tool tool_list_session_files = {
    .name = "list_session_files",
    .title = "List all files of a session",
    .description =
        "Lists every file below /workspace of a session with its resource uri, type and size. Use "
        "it "
        "to find out what earlier calls have made; use sandbox_list_files for one directory with "
        "its subdirectories and links. Caches and hidden directories are left out.",
    .input = &list_input,
    .output = &list_output,
    .hints = MCP_READ_ONLY,
    .icons = icon_files,
    .call = list_session_files,
};
