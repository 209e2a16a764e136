#include "tools/icons.h"
#include "tools/session_files.h"
#include "tools/tools.h"

#include "base/buf.h"

/* The list's text gets this part of an answer; as JSON, with the URIs, it takes several times more. */
enum { LIST_SHARE = 8 };

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

/* One file a line; *count becomes how many of them have room. True: all. */
static bool add_lines(struct buf *text, const struct file_entry *files, size_t *count, size_t room)
{
    for (size_t i = 0; i < *count; i++) {
        (void)buf_printf(text, "%s (%s, %lld bytes)\n", files[i].uri, files[i].mime_type,
                         (long long)files[i].size);
        if (text->len > room && i + 1 < *count) {
            *count = i + 1;
            return false;
        }
    }
    return true;
}

static void on_listed(struct mcp_call *call, const struct toolbox *box,
                      const struct session_listing *listing)
{
    if (listing->error) {
        mcp_call_fail(call, "list_session_files: %s", listing->error);
        return;
    }
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    size_t count = listing->count;
    bool all = add_lines(&text, listing->files, &count, box->max_answer / LIST_SHARE);
    const struct list_result result = { .session_id = listing->session_id,
                                        .files = { .items = listing->files, .count = count },
                                        .truncated = !all || listing->more };
    if (count == 0)
        (void)buf_add_str(&text, "(no files)\n");
    if (result.truncated)
        (void)buf_printf(&text, "[note] only the first %zu files\n", count);
    mcp_call_add(call, mcp_text(text.data, text.len));
    mcp_call_structured(call, &result);
    mcp_call_finish(call);
}

static void list_session_files(struct mcp_call *call, const void *arguments, void *data)
{
    const struct session_arg *args = arguments;
    session_list_for_call(call, data, args->session_id, on_listed);
}

const struct mcp_tool tool_list_session_files = {
    .name = "list_session_files",
    .title = "List all files of a session",
    .description =
        "Lists every file below /workspace of a session with its resource uri, type and size. Use "
        "it "
        "to find out what earlier calls have made; use sandbox_list_files for one directory with "
        "its subdirectories and links. Caches and hidden directories are left out.",
    .input = &session_arg_input,
    .output = &list_output,
    .hints = MCP_READ_ONLY,
    .icons = icon_files,
    .call = list_session_files,
};
