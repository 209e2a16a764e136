/* toolbox: what the tools work with; the `data` of every handler. */
#ifndef BELLJAR_TOOLS_TOOLBOX_H
#define BELLJAR_TOOLS_TOOLBOX_H

#include "mcp/mcp.h"
#include "session/session.h"

struct watch;

struct toolbox {
    uv_loop_t *loop;
    struct sessions *sessions;
    struct engine *engine;
    struct sandbox_limits limits; /* what a caller may lower */
    const char *python;           /* the interpreter, as sandboxes see it */
    bool strip_ansi;              /* of progress messages; results are stripped by the session */
    uint64_t run_timeout_ms, session_timeout_ms;
    size_t output_chars;     /* of each stream in a result; 0: no such limit */
    struct current *current; /* what clients mean who name no session; owned by the maker */
    size_t max_answer;       /* bytes of one result, as mcp_limits has it */
    size_t max_read;         /* bytes of a file in one answer */
    size_t max_write;        /* bytes of a file in one call */
    size_t max_list;         /* entries of one listing */
    bool names_missing;      /* as the profile has it */
    struct watch *watch;     /* to be told when a tool changes files */
};

enum { TOOLBOX_CODE_MAX = 4 << 20 }; /* bytes of code in one call */

/* The arguments of a tool that is about one session that is there. */
struct session_arg {
    const char *session_id;
};
extern const struct shape session_arg_input;

/* What a tool says that has ended one. */
struct session_cleared {
    bool success;
    const char *message;
};
extern const struct shape session_cleared_output;

/* Text from bytes that may be anything, NUL bytes included: what is no text becomes U+FFFD. Appends;
 * the buffer must have no ceiling. */
void toolbox_add_text(struct buf *buf, const char *bytes, size_t len);

/* A name or note of a guest's on one line, whatever bytes it is made of: what a terminal would obey or
 * hide is shown as by text_show_char(). Owned by the caller. */
char *toolbox_line(const char *bytes);

/* Bytes that `text` takes inside a JSON string. */
size_t toolbox_json_len(const char *text);

/* Cuts the middle out of a text so that it takes at most `budget` bytes in JSON, and says so where it
 * was cut. False: it fits as it is, and nothing was done. */
bool toolbox_cut(char **text, size_t budget);

/* Keeps the first `max` characters; true: there were more. */
bool toolbox_cut_chars(char *text, size_t max);

/* Lists of texts that the list owns. */
void toolbox_add_str(struct str_list *list, char *text); /* takes it */
void toolbox_free_strs(struct str_list *list);

/* A sentence: a session's files on the disk are not those of its sandbox. Owned by the caller. */
char *toolbox_not_saved(const char *why);

/* "Session X not found or has expired. …" Owned by the caller. */
char *toolbox_expired(const struct toolbox *box, const char *session_id);

/* A random UUID (version 4). */
enum { TOOLBOX_UUID_SIZE = 37 };
void toolbox_uuid(char ret[TOOLBOX_UUID_SIZE]);

/* The text without white space at its ends, owned by the caller. */
char *toolbox_strip(const struct buf *text);

#endif
