/*
 * agent_box: the real agent as a process, with link.c on a loop at the other end. What the agent sees as
 * /workspace is a directory of the test.
 *
 * The environment says how it is started:
 *   AGENT_BIN    the program; unset: the one that is embedded in belljar
 *   AGENT_MODE   "plain": an ordinary process, defaults (unset: this)
 *                "init": pid 1 of a pid namespace, as in a sandbox
 *                "guest": that, and with a set-up: another user, a filter, limits, an environment, and
 *                where this machine lets us make one a cgroup v1; "guest2": with one of v2; and with a
 *                door
 *                "old": plain, on a kernel that has no openat2()
 *                "stdio": plain, with set-up and stream as its input and output, as in a container
 */
#ifndef BELLJAR_TESTS_AGENT_BOX_H
#define BELLJAR_TESTS_AGENT_BOX_H

#include "agent/link.h"
#include "base/buf.h"

#include <sys/types.h>

struct box {
    uv_loop_t loop;
    struct link *link;
    pid_t pid;                    /* of the agent */
    char *dir, *workspace, *code; /* code: where LINK_CODE_PATH would be */
    char *cgroup;                 /* its directory; NULL: none */
    int door;                     /* the other end of the agent's (agent/door.h); -1: it has none */
    bool ready, broken, late;
    char why[100];
    char mark[32]; /* MARK=number, this test's alone */
};

/* The tests of a program. *state is a struct box for each. One that makes no sense in every mode says
 * in which; a mode that this machine or this user does not have is skipped whole. */
struct box_test {
    const char *name;
    void (*run)(void **state);
    const char *modes; /* "init guest"; NULL: all */
};
#define BOX_TEST(function, ...)                                                                    \
    {                                                                                              \
        .name = #function, .run = (function), __VA_ARGS__                                          \
    }
int box_main(const struct box_test *tests, size_t count);
/* With a new agent for each. */
int box_main_each(const struct box_test *tests, size_t count);

bool box_mode(const char *mode);
/* Of a box's link: `ready`, and `broken` and `why`, are set. The data is the box. */
extern const struct link_events box_events;
/* Runs the loop until *flag, or fails the test after a while. */
void box_wait(struct box *box, const bool *flag);
void box_sleep(struct box *box, uint64_t ms);
/* How many processes of this machine have `text` in their command lines. */
int count_processes(const char *text);
/* How many processes there are with $MARK in their command line, which runs find in their environment. */
int box_count(const struct box *box);

struct result {
    bool done, failed;
    struct buf out, err;
    uint64_t gap[3], before_gap[3];
    struct link_exit exit;
};
void result_done(struct result *result);
#define auto_result __attribute__((cleanup(result_done))) struct result

/* Starts; the result is complete when result->done. */
void box_start(struct box *box, const struct link_run_spec *spec, struct result *ret);
/* Until it has written something. */
void box_wait_output(struct box *box, const struct result *result);
/* A spec for `sh -c script` with generous limits. */
#define SH(script)                                                                                 \
    ((struct link_run_spec){                                                                       \
        .argv = (const char *const[]){ "sh", "-c", (script), NULL },                               \
        .cwd = "",                                                                                 \
        .head_bytes = 1 << 20,                                                                     \
        .tail_bytes = 1 << 16,                                                                     \
        .flood_bytes = UINT64_C(1) << 40,                                                          \
    })
void box_run(struct box *box, const struct link_run_spec *spec, struct result *ret);

/* Answers to file work; each waits. */
struct answer {
    bool done;
    int code;
    struct buf bytes;
    uint64_t size;
    size_t len;
    struct link_entry *entries; /* owned, with their names */
    size_t count;
    bool more;
};
void answer_done(struct answer *answer);
#define auto_answer __attribute__((cleanup(answer_done))) struct answer
link_done_fn answer_plain;
link_data_fn answer_data;
link_list_fn answer_list;

int box_write(struct box *box, const char *path, const char *bytes, size_t len);
int box_delete(struct box *box, const char *path, bool recursive);
int box_move(struct box *box, const char *from, const char *to);
int box_read(struct box *box, const char *path, uint64_t offset, uint64_t max, struct answer *ret);
int box_list(struct box *box, const char *path, bool recursive, size_t max, struct answer *ret);
int box_stat(struct box *box, const char *path, struct answer *ret);
int box_pack(struct box *box, const struct buf *content, uint64_t max, struct answer *ret);
int box_unpack(struct box *box, const struct buf *content);

#endif
