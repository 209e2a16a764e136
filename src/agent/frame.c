#include "agent/frame.h"

#include <errno.h>
#include <string.h>

/*** numbers ***/

static void put_le(char **at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (char)(value >> (8 * i));
}

static uint64_t get_le(const char **at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)(unsigned char)*(*at)++ << (8 * i);
    return value;
}

static void put_u8(char **at, unsigned value)
{
    put_le(at, value, 1);
}

static void put_u16(char **at, size_t value)
{
    put_le(at, value, 2);
}

static void put_u32(char **at, uint32_t value)
{
    put_le(at, value, 4);
}

static void put_u64(char **at, uint64_t value)
{
    put_le(at, value, 8);
}

static unsigned get_u8(const char **at)
{
    return (unsigned)get_le(at, 1);
}

static size_t get_u16(const char **at)
{
    return (size_t)get_le(at, 2);
}

static uint32_t get_u32(const char **at)
{
    return (uint32_t)get_le(at, 4);
}

static uint64_t get_u64(const char **at)
{
    return get_le(at, 8);
}

static void put_bytes(char **at, const char *bytes, size_t len)
{
    if (len)
        memcpy(*at, bytes, len);
    *at += len;
}

/*** one frame ***/

int frame_parse(const char *data, size_t len, struct frame *ret)
{
    /* The length is judged as soon as it is there: nobody waits for bytes that may not come. */
    if (len < 4)
        return 0;
    const char *at = data;
    uint32_t payload_len = get_u32(&at);
    if (payload_len > FRAME_PAYLOAD_MAX)
        return -EMSGSIZE;
    if (len < FRAME_HEADER + (size_t)payload_len)
        return 0;
    unsigned type = get_u8(&at);
    uint32_t number = get_u32(&at);
    *ret = (struct frame){
        .type = (uint8_t)type, .number = number, .payload = at, .len = payload_len
    };
    return (int)(FRAME_HEADER + payload_len);
}

void frame_put_header(char *out, uint8_t type, uint32_t number, size_t len)
{
    put_u32(&out, (uint32_t)len);
    put_u8(&out, type);
    put_u32(&out, number);
}

/*** hello ***/

void frame_hello_put(char *out, const struct frame_hello *hello)
{
    put_u32(&out, hello->magic);
    put_u32(&out, hello->version);
}

int frame_hello_get(const struct frame *frame, struct frame_hello *ret)
{
    if (frame->len != FRAME_HELLO_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    ret->magic = get_u32(&at);
    ret->version = get_u32(&at);
    return FRAME_HELLO_SIZE;
}

void frame_counts_put(char *out, const struct frame_counts *counts)
{
    put_u8(&out, counts->known);
    put_u64(&out, counts->oom_kills);
    put_u64(&out, counts->pids_denied);
}

int frame_counts_get(const struct frame *frame, struct frame_counts *ret)
{
    if (frame->len != FRAME_COUNTS_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    unsigned known = get_u8(&at);
    struct frame_counts counts = { .known = known };
    counts.oom_kills = get_u64(&at);
    counts.pids_denied = get_u64(&at);
    if (known > 1 || (!known && (counts.oom_kills || counts.pids_denied)))
        return -EPROTO;
    *ret = counts;
    return FRAME_COUNTS_SIZE;
}

/*** a stream's end, and the next ***/

void frame_keep_put(char *out, const struct frame_keep *keep)
{
    put_u64(&out, keep->keep_ms);
    put_u64(&out, keep->grace_ms);
}

int frame_keep_get(const struct frame *frame, struct frame_keep *ret)
{
    if (frame->len != FRAME_KEEP_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    struct frame_keep keep = { .keep_ms = get_u64(&at) };
    keep.grace_ms = get_u64(&at);
    if (!keep.keep_ms || keep.keep_ms > FRAME_KEEP_MAX_MS || keep.grace_ms > FRAME_KEEP_MAX_MS)
        return -EPROTO;
    *ret = keep;
    return FRAME_KEEP_SIZE;
}

void frame_idle_put(char *out, const struct frame_idle *idle)
{
    put_u32(&out, idle->program);
    put_u32(&out, idle->file);
    put_u32(&out, idle->kernel);
    put_u64(&out, idle->cells);
    put_u8(&out, idle->lost);
}

int frame_idle_get(const struct frame *frame, struct frame_idle *ret)
{
    if (frame->len != FRAME_IDLE_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    struct frame_idle idle = { .program = get_u32(&at) };
    idle.file = get_u32(&at);
    idle.kernel = get_u32(&at);
    idle.cells = get_u64(&at);
    unsigned lost = get_u8(&at);
    idle.lost = lost;
    if (idle.kernel > idle.program || (!idle.kernel && idle.cells) || idle.cells > INT64_MAX ||
        lost > 1 || (lost && idle.kernel))
        return -EPROTO;
    *ret = idle;
    return FRAME_IDLE_SIZE;
}

/*** run ***/

enum { RUN_HAS_CODE = 1, RUN_JOINED = 2, RUN_ALL = 3 };

void frame_run_put(char *out, const struct frame_run *run)
{
    put_u64(&out, run->head_bytes);
    put_u64(&out, run->tail_bytes);
    put_u64(&out, run->flood_bytes);
    put_u64(&out, run->input_len);
    put_u64(&out, run->code_len);
    put_u32(&out, run->args_len);
    put_u32(&out, run->argc);
    put_u32(&out, run->envc);
    put_u8(&out, (run->has_code ? RUN_HAS_CODE : 0) | (run->joined ? RUN_JOINED : 0));
}

/* Whoever joins has been started, with its own. */
static bool are_args_fit(const struct frame_run *run)
{
    if (run->joined)
        return run->argc == 0 && run->envc == 0 && run->args_len == 0 && !run->has_code;
    return run->argc >= 1 && run->argc <= FRAME_ARGS_COUNT_MAX &&
           run->envc <= FRAME_ARGS_COUNT_MAX && run->args_len <= FRAME_ARGS_MAX &&
           run->args_len >= run->argc + run->envc + 1;
}

int frame_run_get(const struct frame *frame, struct frame_run *ret)
{
    if (frame->len != FRAME_RUN_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    struct frame_run run = { 0 };
    run.head_bytes = get_u64(&at);
    run.tail_bytes = get_u64(&at);
    run.flood_bytes = get_u64(&at);
    run.input_len = get_u64(&at);
    run.code_len = get_u64(&at);
    run.args_len = get_u32(&at);
    run.argc = get_u32(&at);
    run.envc = get_u32(&at);
    unsigned flags = get_u8(&at);
    run.has_code = flags & RUN_HAS_CODE;
    run.joined = flags & RUN_JOINED;
    if (flags > RUN_ALL || run.tail_bytes > FRAME_TAIL_MAX ||
        run.code_len > (run.has_code ? FRAME_CODE_MAX : 0) || !are_args_fit(&run))
        return -EPROTO;
    *ret = run;
    return FRAME_RUN_SIZE;
}

/*** cell ***/

void frame_cell_put(char *out, const struct frame_cell *cell)
{
    put_u64(&out, cell->head_bytes);
    put_u64(&out, cell->tail_bytes);
    put_u64(&out, cell->flood_bytes);
}

int frame_cell_get(const struct frame *frame, struct frame_cell *ret)
{
    if (frame->len != FRAME_CELL_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    struct frame_cell cell = { 0 };
    cell.head_bytes = get_u64(&at);
    cell.tail_bytes = get_u64(&at);
    cell.flood_bytes = get_u64(&at);
    if (cell.tail_bytes > FRAME_TAIL_MAX)
        return -EPROTO;
    *ret = cell;
    return FRAME_CELL_SIZE;
}

/*** gap ***/

void frame_gap_put(char *out, const struct frame_gap *gap)
{
    put_u8(&out, gap->stream);
    put_u64(&out, gap->bytes);
}

int frame_gap_get(const struct frame *frame, struct frame_gap *ret)
{
    if (frame->len != FRAME_GAP_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    unsigned stream = get_u8(&at);
    uint64_t bytes = get_u64(&at);
    if ((stream != FRAME_IS_STDOUT && stream != FRAME_IS_STDERR) || bytes == 0)
        return -EPROTO;
    *ret = (struct frame_gap){ .stream = (enum frame_stream)stream, .bytes = bytes };
    return FRAME_GAP_SIZE;
}

/*** exit ***/

enum { EXIT_SIGNALED = 1, EXIT_FLOODED = 2, EXIT_FAILED = 4, EXIT_ABSENT = 8, EXIT_ALL = 15 };

void frame_exit_put(char *out, const struct frame_exit *exit)
{
    put_u8(&out, (exit->signaled ? EXIT_SIGNALED : 0) | (exit->flooded ? EXIT_FLOODED : 0) |
                     (exit->failed ? EXIT_FAILED : 0) | (exit->absent ? EXIT_ABSENT : 0));
    put_u32(&out, exit->code);
    put_u64(&out, exit->wall_ns);
    put_u64(&out, exit->cpu_ns);
    put_u64(&out, exit->stdout_bytes);
    put_u64(&out, exit->stderr_bytes);
}

int frame_exit_get(const struct frame *frame, struct frame_exit *ret)
{
    if (frame->len < FRAME_EXIT_SIZE || frame->len > FRAME_EXIT_SIZE + FRAME_FAILURE_MAX)
        return -EPROTO;
    const char *at = frame->payload;
    unsigned flags = get_u8(&at);
    struct frame_exit exit = {
        .signaled = flags & EXIT_SIGNALED,
        .flooded = flags & EXIT_FLOODED,
        .failed = flags & EXIT_FAILED,
        .absent = flags & EXIT_ABSENT,
    };
    exit.code = get_u32(&at);
    exit.wall_ns = get_u64(&at);
    exit.cpu_ns = get_u64(&at);
    exit.stdout_bytes = get_u64(&at);
    exit.stderr_bytes = get_u64(&at);
    exit.failure = at;
    exit.failure_len = frame->len - FRAME_EXIT_SIZE;
    if (flags > EXIT_ALL || exit.failed != (exit.failure_len > 0) ||
        (exit.absent && !exit.failed) ||
        (exit.signaled && (exit.failed || exit.code < 1 || exit.code > 64)) ||
        (!exit.signaled && exit.code > (exit.failed ? 4095 : 255)))
        return -EPROTO;
    *ret = exit;
    return (int)frame->len;
}

/*** file ***/

void frame_file_put(char *out, const struct frame_file *file)
{
    put_u8(&out, file->op);
    put_u8(&out, file->recursive);
    put_u64(&out, file->offset);
    put_u64(&out, file->max);
    put_u64(&out, file->len);
    put_u16(&out, file->path_len);
    put_u16(&out, file->target_len);
    put_bytes(&out, file->path, file->path_len);
    put_bytes(&out, file->target, file->target_len);
}

int frame_file_get(const struct frame *frame, struct frame_file *ret)
{
    if (frame->len < FRAME_FILE_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    struct frame_file file = { 0 };
    unsigned op = get_u8(&at);
    unsigned recursive = get_u8(&at);
    file.offset = get_u64(&at);
    file.max = get_u64(&at);
    file.len = get_u64(&at);
    file.path_len = get_u16(&at);
    file.target_len = get_u16(&at);
    file.path = at;
    file.target = at + file.path_len;
    bool has_content = op == FILE_WRITE || op == FILE_PACK || op == FILE_UNPACK;
    if (op < FILE_READ || op > FILE_UNPACK || recursive > 1 || file.path_len > FRAME_PATH_MAX ||
        file.target_len > FRAME_PATH_MAX ||
        frame->len != FRAME_FILE_SIZE + file.path_len + file.target_len ||
        memchr(at, '\0', file.path_len + file.target_len) ||
        (op == FILE_LIST && file.max > FRAME_ENTRIES_MAX) || (!has_content && file.len))
        return -EPROTO;
    file.op = (enum frame_file_op)op;
    file.recursive = recursive;
    *ret = file;
    return (int)frame->len;
}

/*** entry ***/

void frame_entry_put(char *out, const struct frame_entry *entry)
{
    put_u8(&out, entry->type);
    put_u32(&out, entry->mode);
    put_u64(&out, entry->size);
    put_u64(&out, (uint64_t)entry->mtime_ns);
    put_u64(&out, (uint64_t)entry->ctime_ns);
    put_u16(&out, entry->name_len);
    put_bytes(&out, entry->name, entry->name_len);
}

int frame_entry_get(const char *data, size_t len, struct frame_entry *ret)
{
    if (len < FRAME_ENTRY_SIZE)
        return -EPROTO;
    const char *at = data;
    unsigned type = get_u8(&at);
    struct frame_entry entry = { 0 };
    entry.mode = get_u32(&at);
    entry.size = get_u64(&at);
    entry.mtime_ns = (int64_t)get_u64(&at);
    entry.ctime_ns = (int64_t)get_u64(&at);
    entry.name_len = get_u16(&at);
    entry.name = at;
    if (type > ENTRY_OTHER || entry.mode > 07777 || entry.name_len < 1 ||
        entry.name_len > FRAME_PATH_MAX || len - FRAME_ENTRY_SIZE < entry.name_len ||
        memchr(at, '\0', entry.name_len))
        return -EPROTO;
    entry.type = (enum frame_entry_type)type;
    *ret = entry;
    return (int)(FRAME_ENTRY_SIZE + entry.name_len);
}

/*** many files ***/

void frame_pick_put(char *out, const struct frame_pick *pick)
{
    put_u64(&out, pick->offset);
    put_u32(&out, pick->max);
    put_u16(&out, pick->path_len);
    put_bytes(&out, pick->path, pick->path_len);
}

static bool path_len_ok(size_t len)
{
    return len >= 1 && len <= FRAME_PATH_MAX;
}

int frame_pick_get(const char *data, struct frame_pick *ret)
{
    struct frame_pick pick = { 0 };
    pick.offset = get_u64(&data);
    pick.max = get_u32(&data);
    pick.path_len = get_u16(&data);
    if (!path_len_ok(pick.path_len))
        return -EPROTO;
    *ret = pick;
    return 0;
}

void frame_part_put(char *out, const struct frame_part *part)
{
    put_u8(&out, part->type);
    put_u8(&out, part->program | part->last << 1);
    put_u64(&out, (uint64_t)part->mtime_ns);
    put_u64(&out, part->offset);
    put_u32(&out, part->len);
    put_u16(&out, part->path_len);
    put_bytes(&out, part->path, part->path_len);
}

int frame_part_get(const char *data, struct frame_part *ret)
{
    struct frame_part part = { 0 };
    unsigned type = get_u8(&data), flags = get_u8(&data);
    part.mtime_ns = (int64_t)get_u64(&data);
    part.offset = get_u64(&data);
    part.len = get_u32(&data);
    part.path_len = get_u16(&data);
    part.program = flags & 1;
    part.last = flags & 2;
    if (type >= ENTRY_OTHER || flags > 3 || !path_len_ok(part.path_len))
        return -EPROTO;
    part.type = (enum frame_entry_type)type;
    *ret = part;
    return 0;
}

/*** end of file work ***/

void frame_file_end_put(char *out, const struct frame_file_end *end)
{
    put_u32(&out, end->code);
    put_u64(&out, end->size);
    put_u64(&out, end->extra);
    put_u8(&out, end->more);
}

int frame_file_end_get(const struct frame *frame, struct frame_file_end *ret)
{
    if (frame->len != FRAME_FILE_END_SIZE)
        return -EPROTO;
    const char *at = frame->payload;
    struct frame_file_end end = { 0 };
    end.code = get_u32(&at);
    end.size = get_u64(&at);
    end.extra = get_u64(&at);
    unsigned more = get_u8(&at);
    if (end.code > 4095 || more > 1)
        return -EPROTO;
    end.more = more;
    *ret = end;
    return FRAME_FILE_END_SIZE;
}

/*** messages of a kernel ***/

bool frame_follow(struct frame_follow *follow, const char **bytes, size_t *len, uint32_t *ret_head)
{
    while (*len > 0) {
        size_t part = 1;
        if (follow->head_len < FRAME_MESSAGE_HEAD) {
            follow->head |= (uint32_t)(unsigned char)**bytes << (8 * follow->head_len++);
            follow->body = follow->head & ~FRAME_MESSAGE_LAST;
        } else {
            part = *len < follow->body ? *len : follow->body;
            follow->body -= (uint32_t)part;
        }
        *bytes += part;
        *len -= part;
        if (follow->head_len < FRAME_MESSAGE_HEAD || follow->body > 0)
            continue;
        *ret_head = follow->head;
        *follow = (struct frame_follow){ 0 };
        return true;
    }
    return false;
}
