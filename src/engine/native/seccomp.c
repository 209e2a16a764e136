/*
 * Compiles the table with libseccomp and puts a short hand-written piece before it: libseccomp
 * cannot compare system call numbers, so ENOSYS for what is unknown, and for x32, is said there. The
 * two filters that only take away are short enough to be written instruction by instruction.
 */
#include "engine/native/seccomp.h"

#include "engine/native/seccomp_list.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <linux/audit.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#define OUR_ARCH_NAME "SCMP_ARCH_X86_64"
/* x86-64 has no numbers between these: they are other architectures'. */
enum { GAP_FIRST = 335, GAP_LAST = 423 };
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#define OUR_ARCH_NAME "SCMP_ARCH_AARCH64"
enum { GAP_FIRST = 295, GAP_LAST = 423 };
#else
#error "the list of system calls has not been looked at for this architecture"
#endif

/* x32 numbers have bit 30 set, so they are beyond the highest too. */
static const struct sock_filter prologue[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYSCALL_HIGHEST_KNOWN, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, GAP_FIRST, 0, 2),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, GAP_LAST, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
};

/* Abstract names belong to the network namespace, so with the host's they would be the host's. */
static bool makes_unix_socket(const struct syscall_rule *rule)
{
    return strcmp(rule->name, "socket") == 0 && rule->n_tests && rule->tests[0].value == AF_UNIX;
}

static bool shares_uid(enum seccomp_role role)
{
    return role == SECCOMP_GUEST_SHARED || role == SECCOMP_GUEST_WHOLE ||
           role == SECCOMP_GUEST_WHOLE_NETWORK;
}

static bool wanted(const struct syscall_rule *rule, enum seccomp_role role)
{
    if ((role == SECCOMP_AGENT_NETWORK || role == SECCOMP_GUEST_WHOLE_NETWORK) &&
        makes_unix_socket(rule))
        return false;
    switch (rule->who) {
    case CALL_ALL:
        return true;
    case CALL_SETUP:
        return role == SECCOMP_SPAWNER;
    case CALL_AGENT:
        return role == SECCOMP_SPAWNER || role == SECCOMP_AGENT || role == SECCOMP_AGENT_NETWORK;
    case CALL_OWN_UID:
        return !shares_uid(role);
    case CALL_SHARED_UID:
        return shares_uid(role);
    }
    return false;
}

static int add_rule(scmp_filter_ctx ctx, const struct syscall_rule *rule, enum seccomp_role role)
{
    int number = seccomp_syscall_resolve_name(rule->name);
    if (number < 0 || !wanted(rule, role)) /* negative: this architecture has no such call */
        return 0;
    struct scmp_arg_cmp tests[2];
    for (unsigned i = 0; i < rule->n_tests; i++)
        tests[i] = SCMP_CMP(rule->tests[i].arg, SCMP_CMP_MASKED_EQ, rule->tests[i].mask,
                            rule->tests[i].value);
    return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, number, rule->n_tests, tests);
}

static int add_rules(scmp_filter_ctx ctx, enum seccomp_role role, struct err *err)
{
    int r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree */
    if (r < 0)
        return err_sys(err, -r, "seccomp: libseccomp 2.5 or later is needed");
    for (size_t g = 0; g < n_syscall_groups; g++)
        for (size_t i = 0; i < syscall_groups[g].n_rules; i++) {
            const struct syscall_rule *rule = &syscall_groups[g].rules[i];
            r = add_rule(ctx, rule, role);
            if (r < 0)
                return err_sys(err, -r, "seccomp: %s", rule->name);
        }
    /* Where it is not allowed: C libraries must fall back. */
    r = role == SECCOMP_SPAWNER
            ? 0
            : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    return r < 0 ? err_sys(err, -r, "seccomp: clone3") : 0;
}

/* libseccomp writes programs to descriptors only. */
static int export(scmp_filter_ctx ctx, struct seccomp_program *ret, struct err *err)
{
    auto_fd fd = memfd_create("seccomp", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "seccomp: memfd_create");
    int r = seccomp_export_bpf(ctx, fd);
    struct stat st;
    if (r < 0 || fstat(fd, &st) < 0)
        return err_sys(err, r < 0 ? -r : errno, "seccomp: export");
    size_t len = (size_t)st.st_size / sizeof(struct sock_filter);
    if (len + ARRAY_SIZE(prologue) > BPF_MAXINSNS)
        return err_set(err, E2BIG, "seccomp: the filter has %zu instructions", len);
    struct sock_filter *code = xmalloc(sizeof(prologue) + (size_t)st.st_size);
    memcpy(code, prologue, sizeof(prologue));
    if (pread(fd, code + ARRAY_SIZE(prologue), (size_t)st.st_size, 0) != (ssize_t)st.st_size) {
        free(code);
        return err_set(err, EIO, "seccomp: cannot read the exported filter");
    }
    *ret = (struct seccomp_program){ code, (unsigned short)(len + ARRAY_SIZE(prologue)) };
    return 0;
}

static int build_table(enum seccomp_role role, struct seccomp_program *ret, struct err *err)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!ctx)
        return err_set(err, ENOMEM, "seccomp: cannot start a filter");
    int r = add_rules(ctx, role, err);
    if (r == 0)
        r = export(ctx, ret, err);
    seccomp_release(ctx);
    return r;
}

/*** The filters that take away ***/

enum { NARROW_MAX = 256, NARROW_ROW = 5 };

static const struct sock_filter load_number =
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));

static void emit(struct seccomp_program *program, struct sock_filter instruction)
{
    program->code[program->len++] = instruction;
}

/* The first row by which `role` may make the call too. */
static const struct syscall_rule *other_row(const char *name, enum seccomp_role role)
{
    for (size_t g = 0; g < n_syscall_groups; g++)
        for (size_t i = 0; i < syscall_groups[g].n_rules; i++) {
            const struct syscall_rule *rule = &syscall_groups[g].rules[i];
            if (strcmp(rule->name, name) == 0 && wanted(rule, role))
                return rule;
        }
    return NULL;
}

/* Takes `rule` away: the call as such when the role has no other row for it; when the rule has a
 * test, what the test says; else everything but what the other row's test says. The program holds
 * the number in its accumulator before and after. All tests look at 32 bits. */
static void emit_refusal(struct seccomp_program *program, const struct syscall_rule *rule,
                         enum seccomp_role role)
{
    int number = seccomp_syscall_resolve_name(rule->name);
    if (number < 0)
        return;
    struct sock_filter refuse = BPF_STMT(
        BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (strcmp(rule->name, "clone3") == 0 ? (unsigned)ENOSYS
                                                                                : (unsigned)EPERM));
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct syscall_rule *other = other_row(rule->name, role);
    const struct syscall_test *test = rule->n_tests ? rule->tests : other ? other->tests : NULL;
    if (!test) {
        emit(program,
             (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1));
        emit(program, refuse);
        return;
    }
    unsigned low =
        (unsigned)offsetof(struct seccomp_data, args) + test->arg * (unsigned)sizeof(uint64_t);
    emit(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 4));
    emit(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low)); /* little endian */
    emit(program,
         (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)test->value, 0, 1));
    emit(program, rule->n_tests ? refuse : allow);
    emit(program, rule->n_tests ? load_number : refuse); /* there may be more rows for the call */
}

static int build_narrow(enum seccomp_role role, struct seccomp_program *ret, struct err *err)
{
    struct seccomp_program program = { xcalloc(NARROW_MAX, sizeof(struct sock_filter)), 0 };
    emit(&program, load_number);
    for (size_t g = 0; g < n_syscall_groups; g++)
        for (size_t i = 0; i < syscall_groups[g].n_rules; i++) {
            const struct syscall_rule *rule = &syscall_groups[g].rules[i];
            if (wanted(rule, SECCOMP_SPAWNER) && !wanted(rule, role))
                emit_refusal(&program, rule, role);
            if (program.len + NARROW_ROW >= NARROW_MAX) {
                seccomp_program_done(&program);
                return err_set(err, E2BIG, "seccomp: too many rows");
            }
        }
    emit(&program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    *ret = program;
    return 0;
}

int seccomp_build(enum seccomp_role role, struct seccomp_program *ret, struct err *err)
{
    bool whole = role == SECCOMP_SPAWNER || role == SECCOMP_GUEST_WHOLE ||
                 role == SECCOMP_GUEST_WHOLE_NETWORK;
    return whole ? build_table(role, ret, err) : build_narrow(role, ret, err);
}

void seccomp_program_done(struct seccomp_program *program)
{
    free(program->code);
    *program = (struct seccomp_program){ 0 };
}

/*** For container engines ***/

static json_t *profile_tests(const struct syscall_rule *rule)
{
    json_t *tests = json_array();
    for (unsigned i = 0; i < rule->n_tests; i++) {
        const struct syscall_test *test = &rule->tests[i];
        json_push(tests, json_pack("{s:i,s:I,s:I,s:s}", "index", (int)test->arg, "value",
                                   (json_int_t)test->mask, "valueTwo", (json_int_t)test->value,
                                   "op", "SCMP_CMP_MASKED_EQ"));
    }
    return tests;
}

/* Calls without a test together, each of the others by itself. */
static void profile_rule(const struct syscall_rule *rule, enum seccomp_role role, json_t *names,
                         json_t *rules)
{
    if (!wanted(rule, role))
        return;
    if (!rule->n_tests) {
        json_push(names, json_string(rule->name));
        return;
    }
    json_push(rules, json_pack("{s:[s],s:s,s:o}", "names", rule->name, "action", "SCMP_ACT_ALLOW",
                               "args", profile_tests(rule)));
}

json_t *seccomp_profile(enum seccomp_role role)
{
    json_t *names = json_array(), *rules = json_array();
    for (size_t g = 0; g < n_syscall_groups; g++)
        for (size_t i = 0; i < syscall_groups[g].n_rules; i++)
            profile_rule(&syscall_groups[g].rules[i], role, names, rules);
    json_push(rules, json_pack("{s:o,s:s}", "names", names, "action", "SCMP_ACT_ALLOW"));
    return json_pack("{s:s,s:[s],s:o}", "defaultAction", "SCMP_ACT_ERRNO", "architectures",
                     OUR_ARCH_NAME, "syscalls", rules);
}

/*** The manual ***/

static void document_group(struct buf *buf, const struct syscall_group *group)
{
    (void)buf_printf(buf, "\n%s\n\n", group->reason);
    const char *last = "";
    bool open = false;
    for (size_t i = 0; i < group->n_rules; i++) {
        const struct syscall_rule *rule = &group->rules[i];
        bool again = strcmp(rule->name, last) == 0;
        if (!again)
            (void)buf_printf(buf, "%s%s`%s`", open ? ")" : "", i ? ", " : "", rule->name);
        if (rule->words)
            (void)buf_printf(buf, "%s%s", again && open ? ", " : " (", rule->words);
        open = rule->words || (again && open);
        last = rule->name;
    }
    (void)buf_printf(buf, "%s\n", open ? ")" : "");
}

void seccomp_document(struct buf *buf)
{
    (void)buf_printf(
        buf,
        "# System calls that a sandbox may make\n\n"
        "Generated from `src/engine/native/seccomp_list.c`; `tests/unit/test_seccomp.c` "
        "compares.\n\n"
        "Everything else is refused: a known call with EPERM, a number above %d or in the gap of "
        "the\n"
        "architecture's table with ENOSYS. `clone3` answers ENOSYS to guests (its flags are in "
        "memory,\n"
        "where no filter sees them; C libraries fall back to `clone`). A call through the 32-bit\n"
        "interface kills the process; x32 numbers answer ENOSYS. Names that an architecture lacks "
        "do\n"
        "not count there.\n\n"
        "Two numbers of x86-64 pass unasked: newer kernels dispatch `uretprobe` (335) and "
        "`uprobe`\n"
        "(336) before they look at any filter. They take a process back from a tracer's probe; a\n"
        "sandbox cannot set one, and without one they answer ENXIO or end the caller by SIGILL.\n",
        SYSCALL_HIGHEST_KNOWN);
    for (size_t i = 0; i < n_syscall_groups; i++)
        document_group(buf, &syscall_groups[i]);
}
