/*
 * frame: the language between server and agent, as bytes. Both sides, the agent's workers and the
 * tests include this header; docs/agent-protocol.md tells who says what when.
 *
 *     u32 length of the payload | u8 type | u32 number | payload
 *
 * All numbers are little endian, at fixed places, without padding. `number` names a run or a kernel,
 * which share one sequence, or a piece of file work; it is 0 for frames about the stream itself. Pure
 * code: no allocation, no system call; what is decoded points into the caller's bytes.
 */
#ifndef BELLJAR_AGENT_FRAME_H
#define BELLJAR_AGENT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_MAGIC = 0x52414a42, /* "BJAR" */
    FRAME_VERSION = 5,

    FRAME_HEADER = 9,
    FRAME_PAYLOAD_MAX = 64 * 1024,
    FRAME_MAX = FRAME_HEADER + FRAME_PAYLOAD_MAX,

    /* What either side may ask of the other. */
    FRAME_ARGS_MAX = 256 * 1024, /* arguments, environment, directory of a run, with their NULs */
    FRAME_ARGS_COUNT_MAX = 1024, /* arguments, or variables */
    FRAME_CODE_MAX = 16 * 1024 * 1024,
    FRAME_SOURCE_MAX = 1024 * 1024, /* code of a kernel */
    FRAME_TAIL_MAX = 1024 * 1024,   /* of one stream */
    FRAME_FAILURE_MAX = 199,
    FRAME_PATH_MAX = 4095,
    FRAME_NAME_MAX = 255,
    FRAME_ENTRIES_MAX = 100 * 1000,    /* in one list */
    FRAME_LIST_MAX = 16 * 1024 * 1024, /* bytes of them */
    FRAME_FILES_MAX = 4,               /* pieces of file work at once */
    FRAME_FILE_MS = 5000,              /* after which one is given up */
};
#define FRAME_KEEP_MAX_MS UINT64_C(31622400000) /* 366 days */

/* Over a kernel's channel: u32 length of a message, little endian, and its bytes. With this bit in the length
 * it is the kernel's last word in a cell. */
enum { FRAME_MESSAGE_HEAD = 4 };
#define FRAME_MESSAGE_LAST UINT32_C(0x80000000)

/* Where one message ends and the next begins, in bytes that come in pieces of any size. Zeroed: between two. */
struct frame_follow {
    uint32_t head; /* of the message under way, */
    int head_len;  /* as far as it has come; 0: none is */
    uint32_t body; /* and bytes that follow it */
};
/* Goes on to the end of a message and is true, with its head in *ret_head; or to the end of the bytes. */
bool frame_follow(struct frame_follow *follow, const char **bytes, size_t *len, uint32_t *ret_head);

enum frame_type {
    /* server to agent */
    FRAME_HELLO = 0x01,     /* struct frame_hello; the first frame in either direction */
    FRAME_PING = 0x02,      /* up to 8 bytes that come back */
    FRAME_COUNT = 0x03,     /* empty: FRAME_COUNTS, please */
    FRAME_KEEP = 0x04,      /* struct frame_keep: outlive the stream */
    FRAME_RUN = 0x10,       /* struct frame_run: announces a run */
    FRAME_ARGS = 0x11,      /* raw: argv, then env, then cwd, each with its NUL; also of a kernel */
    FRAME_CODE = 0x12,      /* raw; also of a kernel */
    FRAME_START = 0x13,     /* empty: all is said, go; also to a kernel */
    FRAME_INPUT = 0x14,     /* raw; one after FRAME_START, then one for each FRAME_RUN_MORE */
    FRAME_INTERRUPT = 0x15, /* empty: SIGINT; also to a kernel */
    FRAME_KILL = 0x16,      /* empty: SIGKILL to all of it; also of a kernel */
    FRAME_KERNEL = 0x18,    /* struct frame_run: announces a kernel */
    FRAME_TALK = 0x19,      /* raw, for the channel; one after FRAME_START, then one for each
                               FRAME_TALK_MORE */
    FRAME_CELL = 0x1a,      /* struct frame_cell: begins a cell */
    FRAME_CELL_END = 0x1b,  /* empty: asks for FRAME_CELL_DONE */
    FRAME_FILE = 0x20,      /* struct frame_file, then the paths */
    FRAME_FILE_PUT = 0x21,  /* raw; one after FRAME_FILE, then one for each FRAME_FILE_MORE */

    /* agent to server */
    FRAME_READY = 0x81,     /* struct frame_hello */
    FRAME_PONG = 0x82,      /* the bytes of the ping */
    FRAME_COUNTS = 0x83,    /* struct frame_counts */
    FRAME_IDLE = 0x84,      /* struct frame_idle; once, on a stream that is not the agent's first */
    FRAME_STDOUT = 0x90,    /* raw; also of a kernel */
    FRAME_STDERR = 0x91,    /* raw; also of a kernel */
    FRAME_GAP = 0x92,       /* struct frame_gap; also of a kernel */
    FRAME_RUN_MORE = 0x93,  /* empty: the next FRAME_INPUT, please */
    FRAME_EXIT = 0x94,      /* struct frame_exit, then words if it could not be started; also of a
                               kernel */
    FRAME_SAID = 0x98,      /* raw, from the channel */
    FRAME_TALK_MORE = 0x99, /* empty: the next FRAME_TALK, please */
    FRAME_CELL_DONE = 0x9a, /* struct frame_exit, all of it 0 but times and bytes */
    FRAME_FILE_DATA = 0xa0, /* raw bytes of a file, or whole struct frame_entry */
    FRAME_FILE_MORE = 0xa1, /* empty: the next FRAME_FILE_PUT, please */
    FRAME_FILE_END = 0xa2,  /* struct frame_file_end; ends one piece of file work */
};

/*** one frame ***/

struct frame {
    uint8_t type;
    uint32_t number;
    const char *payload;
    size_t len;
};

/* Bytes consumed; 0: need more; -EMSGSIZE: longer than FRAME_PAYLOAD_MAX. */
int frame_parse(const char *data, size_t len, struct frame *ret);
/* Writes FRAME_HEADER bytes. */
void frame_put_header(char *out, uint8_t type, uint32_t number, size_t len);

/*** payloads ***/

/* Each has a fixed size on the wire, in bytes. X_put() writes as many; X_get() returns that number,
 * or -EPROTO when the payload is too short, too long, or holds a value that nobody may send. */

enum { FRAME_HELLO_SIZE = 8 };
struct frame_hello {
    uint32_t magic, version;
};
void frame_hello_put(char *out, const struct frame_hello *hello);
int frame_hello_get(const struct frame *frame, struct frame_hello *ret);

/* What the kernel has counted against the sandbox since its start. */
enum { FRAME_COUNTS_SIZE = 17 };
struct frame_counts {
    bool known; /* false: its cgroup does not show; then the others are 0 */
    uint64_t oom_kills, pids_denied;
};
void frame_counts_put(char *out, const struct frame_counts *counts);
int frame_counts_get(const struct frame *frame, struct frame_counts *ret);

/* When the stream ends the agent stays, for somebody who joins (stay.h). */
enum { FRAME_KEEP_SIZE = 16 };
struct frame_keep {
    uint64_t keep_ms;  /* then it ends after all; 1 to FRAME_KEEP_MAX_MS */
    uint64_t grace_ms; /* for what runs, from the interrupt to the kill; at most the same */
};
void frame_keep_put(char *out, const struct frame_keep *keep);
int frame_keep_get(const struct frame *frame, struct frame_keep *ret);

/* Where the numbers go on, for a server that joins. */
enum { FRAME_IDLE_SIZE = 21 };
struct frame_idle {
    uint32_t program, file; /* the last numbers of each count */
    uint32_t kernel;        /* the number of the one that there is; 0: none */
    uint64_t cells;         /* that it has been given */
    bool lost;              /* there was one when the last server went, and it had to end */
};
void frame_idle_put(char *out, const struct frame_idle *idle);
int frame_idle_get(const struct frame *frame, struct frame_idle *ret);

enum { FRAME_RUN_SIZE = 53 };
struct frame_run {
    uint64_t head_bytes, tail_bytes; /* kept of each stream; tail at most FRAME_TAIL_MAX */
    uint64_t flood_bytes;            /* of one stream: the run is killed */
    uint64_t input_len;              /* in FRAME_INPUT */
    uint64_t code_len;               /* in FRAME_CODE */
    uint32_t args_len, argc, envc;   /* in FRAME_ARGS */
    bool has_code;                   /* no code and empty code differ: the file is made or not */
    bool joined; /* of a kernel: no code, no arguments; it comes to the door (door.h) */
};
void frame_run_put(char *out, const struct frame_run *run);
int frame_run_get(const struct frame *frame, struct frame_run *ret);

/* Limits of one cell, as those of a run. */
enum { FRAME_CELL_SIZE = 24 };
struct frame_cell {
    uint64_t head_bytes, tail_bytes, flood_bytes;
};
void frame_cell_put(char *out, const struct frame_cell *cell);
int frame_cell_get(const struct frame *frame, struct frame_cell *ret);

enum frame_stream { FRAME_IS_STDOUT = 1, FRAME_IS_STDERR = 2 };
enum { FRAME_GAP_SIZE = 9 };
struct frame_gap {
    enum frame_stream stream;
    uint64_t bytes; /* never 0 */
};
void frame_gap_put(char *out, const struct frame_gap *gap);
int frame_gap_get(const struct frame *frame, struct frame_gap *ret);

enum { FRAME_EXIT_SIZE = 37 };
struct frame_exit {
    bool signaled, flooded, failed;
    bool absent;   /* failed, because nobody came to the door */
    uint32_t code; /* exit status or signal; errno when failed */
    uint64_t wall_ns, cpu_ns;
    uint64_t stdout_bytes, stderr_bytes;
    const char *failure; /* follows when failed; not terminated */
    size_t failure_len;
};
void frame_exit_put(char *out, const struct frame_exit *exit); /* without the words */
int frame_exit_get(const struct frame *frame, struct frame_exit *ret);

enum frame_file_op {
    FILE_READ = 1,
    FILE_WRITE,
    FILE_LIST,
    FILE_STAT,
    FILE_DELETE,
    FILE_MOVE,
    FILE_SPACE,
    FILE_PACK, /* parts of many files at once: content is struct frame_pick, one after the other */
    FILE_UNPACK, /* parts of many at once, written: content is struct frame_part and bytes */
};
enum { FRAME_FILE_SIZE = 30 };
struct frame_file {
    enum frame_file_op op;
    bool recursive;              /* list, delete */
    uint64_t offset;             /* read; write: names the attempts of one write */
    uint64_t max;                /* read: bytes; list: entries, at most FRAME_ENTRIES_MAX */
    uint64_t len;                /* write, pack, unpack: bytes in FRAME_FILE_PUT */
    const char *path, *target;   /* follow; not terminated, without NUL inside; target: move */
    size_t path_len, target_len; /* at most FRAME_PATH_MAX */
};
/* Writes FRAME_FILE_SIZE bytes and the paths. */
void frame_file_put(char *out, const struct frame_file *file);
int frame_file_get(const struct frame *frame, struct frame_file *ret);

enum { FRAME_ENTRY_SIZE = 31 };
enum frame_entry_type { ENTRY_FILE, ENTRY_DIRECTORY, ENTRY_SYMLINK, ENTRY_OTHER };
struct frame_entry {
    enum frame_entry_type type;
    uint32_t mode;
    uint64_t size;
    int64_t mtime_ns, ctime_ns;
    const char *name; /* follows; not terminated, without NUL inside, not empty */
    size_t name_len;  /* at most FRAME_PATH_MAX */
};
/* Writes FRAME_ENTRY_SIZE bytes and the name. */
void frame_entry_put(char *out, const struct frame_entry *entry);
/* One of several: bytes consumed, or -EPROTO. An entry never crosses frames. */
int frame_entry_get(const char *data, size_t len, struct frame_entry *ret);

/*
 * Many files at once, for a whole workspace: a process for each file would take longer than the work.
 * What is picked is answered in the same order, each pick by pieces: u32 length, which is not 0, and as
 * many bytes; then u32 0 and u32 errno or 0. A symbolic link's content is what it says.
 */
enum { FRAME_PICK_SIZE = 14, FRAME_PIECE_MAX = 32 * 1024 };
struct frame_pick {
    uint64_t offset;
    uint32_t max;     /* bytes from there */
    const char *path; /* follows; not terminated, without NUL inside, not empty */
    size_t path_len;  /* at most FRAME_PATH_MAX */
};
/* Writes FRAME_PICK_SIZE bytes and the path. */
void frame_pick_put(char *out, const struct frame_pick *pick);
/* Of the FRAME_PICK_SIZE bytes before a path: 0, or -EPROTO; path is NULL. */
int frame_pick_get(const char *data, struct frame_pick *ret);

/* A directory, a link and what it says, or a part of a file; the first part of a file makes it. */
enum { FRAME_PART_SIZE = 24 };
struct frame_part {
    enum frame_entry_type type; /* not ENTRY_OTHER */
    bool program;               /* a file that may be executed */
    int64_t mtime_ns;
    uint64_t offset;
    uint32_t len;     /* bytes that follow the path */
    bool last;        /* no more of this file comes */
    const char *path; /* follows, as above */
    size_t path_len;
};
void frame_part_put(char *out, const struct frame_part *part);
int frame_part_get(const char *data, struct frame_part *ret);

enum { FRAME_FILE_END_SIZE = 21 };
struct frame_file_end {
    uint32_t code;  /* 0 or errno */
    uint64_t size;  /* read: of the whole file; list: entries sent; space: bytes free */
    uint64_t extra; /* space: inodes free */
    bool more;      /* list: there were more */
};
void frame_file_end_put(char *out, const struct frame_file_end *end);
int frame_file_end_get(const struct frame *frame, struct frame_file_end *ret);

#endif
