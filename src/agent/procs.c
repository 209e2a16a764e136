#include "agent/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The picture. Where there are more, those with the lowest numbers are dealt with first. */
enum { PROCS_MAX = 4096 };

enum kin {
    KIN_NOT_YET,
    KIN_UNKNOWN,
    KIN_AGENT,
    KIN_KERNEL,
    KIN_BELOW_KERNEL,
    KIN_RUN,
    KIN_FOREIGN
};

static int proc_fd = -1;
static struct {
    bool whole;
    size_t count;
    struct proc list[PROCS_MAX]; /* by pid */
    uint8_t kin[PROCS_MAX];
} procs;

/*** reading ***/

/* "pid (name) state parent group session …": the name may hold anything, ')' too. */
static bool parse(char *line, struct proc *ret)
{
    char *at = strrchr(line, ')');
    if (!at || at[1] != ' ' || !at[2] || at[3] != ' ')
        return false;
    struct proc proc = { .pid = (pid_t)strtol(line, NULL, 10), .state = at[2] };
    unsigned long long value[18] = { 0 }; /* fields 4 to 21 of proc(5) */
    at += 3;
    for (size_t i = 0; i < sizeof(value) / sizeof(value[0]); i++) {
        char *end;
        value[i] = strtoull(at, &end, 10); /* negative ones are not ours */
        if (end == at)
            return false;
        at = end;
    }
    proc.parent = (pid_t)value[0];
    proc.group = (pid_t)value[1];
    proc.session = (pid_t)value[2];
    proc.child_cpu_ns = (value[12] + value[13]) * (1000000000U / 100); /* USER_HZ is 100 for all */
    proc.threads = (unsigned)value[16];
    *ret = proc;
    return proc.session >= 0; /* -1: it is gone, and its parent is not told either */
}

/* Only if it counts processes as we do: it may have been mounted in another pid namespace. */
static bool open_proc(void)
{
    if (proc_fd >= 0)
        return true;
    char self[16] = "";
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && readlinkat(fd, "self", self, sizeof(self) - 1) > 0 &&
        strtol(self, NULL, 10) == (long)getpid())
        proc_fd = fd;
    else if (fd >= 0)
        close(fd);
    return proc_fd >= 0;
}

bool proc_read(pid_t pid, struct proc *ret)
{
    char path[32], line[1024];
    if (!open_proc())
        return false;
    (void)snprintf(path, sizeof(path), "%d/stat", (int)pid);
    int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, line, sizeof(line) - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    return n > 0 && parse(line, ret);
}

/*** what is known at sight ***/

struct task {
    enum procs_target target;
    const struct config *config;
    pid_t kernel;
    const struct files *files;
};

static bool is_worker(const struct files *files, pid_t pid)
{
    for (size_t i = 0; i < FILE_SLOTS; i++)
        if (files->slots[i].pid == pid)
            return true;
    for (size_t i = 0; i < files->n_dying; i++)
        if (files->dying[i] == pid)
            return true;
    return false;
}

/* Somebody whom we may not end is not the guest's: an engine has put it there. */
static bool is_ours_to_end(pid_t pid)
{
    return kill(pid, 0) == 0 || errno != EPERM;
}

/* Processes without a parent in sight came from outside: in a namespace of ours they are not welcome,
 * unless they are a helper of ours (stay.h); elsewhere they are everybody else. */
static enum kin at_sight(const struct task *task, const struct proc *proc)
{
    if (proc->pid == getpid())
        return KIN_AGENT;
    if (proc->pid == task->kernel && task->target != PROCS_SESSION)
        return KIN_KERNEL;
    if (proc->session == task->kernel && task->target == PROCS_SESSION)
        return KIN_BELOW_KERNEL;
    if (is_worker(task->files, proc->pid))
        return KIN_FOREIGN; /* they have no children */
    if (proc->parent == getpid())
        return KIN_RUN;
    if (proc->parent == 0)
        return task->config->is_init && is_ours_to_end(proc->pid) ? KIN_RUN : KIN_FOREIGN;
    return KIN_NOT_YET;
}

/* The whole group under one lock, so that nobody in it outruns us by forking. The run and the kernel
 * have led sessions of their own from the beginning, and a group does not cross sessions. Only who has
 * just been forked may still be in ours. */
static void kill_one(const struct task *task, const struct proc *proc)
{
    (void)kill(proc->pid, SIGKILL);
    if (task->target == PROCS_RUN && proc->group > 1 && proc->group != getpgrp())
        (void)kill(-proc->group, SIGKILL);
}

/*** the picture ***/

/* The kernel lists processes by number. Orphans of a run are killed at once: those that fork and exit,
 * fork and exit are gone when the picture is whole. */
static void add(const struct task *task, const char *name)
{
    char *end;
    long pid = strtol(name, &end, 10);
    if (*end || pid < 1)
        return;
    if (procs.count == PROCS_MAX) {
        procs.whole = false;
        return;
    }
    struct proc *proc = &procs.list[procs.count];
    if (!proc_read((pid_t)pid, proc) || (procs.count > 0 && proc[-1].pid >= proc->pid))
        return;
    enum kin kin = at_sight(task, proc);
    procs.kin[procs.count++] = (uint8_t)kin;
    if (kin == KIN_RUN && task->target == PROCS_RUN)
        kill_one(task, proc);
}

static int take_picture(const struct task *task)
{
    static char names[16 * 1024] __attribute__((aligned(8)));
    procs.count = 0;
    procs.whole = true;
    if (!open_proc())
        return -ENOENT;
    if (lseek(proc_fd, 0, SEEK_SET) < 0)
        return -errno;
    ssize_t n;
    while ((n = sys_getdents64(proc_fd, names, sizeof(names))) > 0 && procs.whole)
        for (ssize_t at = 0; at < n;) {
            const struct sys_dirent *entry = (const struct sys_dirent *)(const void *)(names + at);
            add(task, entry->name);
            at += entry->reclen;
        }
    return n < 0 ? (int)n : 0;
}

/*** telling whose ***/

static size_t find(pid_t pid)
{
    size_t low = 0, high = procs.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (procs.list[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < procs.count && procs.list[low].pid == pid ? low : procs.count;
}

static enum kin below(enum kin parent)
{
    return parent == KIN_KERNEL ? KIN_BELOW_KERNEL : parent;
}

/* Up the line to somebody who is known, and down again. */
static void tell(size_t start)
{
    size_t at = start, steps = 0;
    while (procs.kin[at] == KIN_NOT_YET && ++steps <= procs.count) {
        size_t up = find(procs.list[at].parent);
        if (up == procs.count)
            break;
        at = up;
    }
    enum kin known = (enum kin)procs.kin[at];
    enum kin kin = known == KIN_NOT_YET ? KIN_UNKNOWN : below(known);
    for (at = start; at < procs.count && procs.kin[at] == KIN_NOT_YET;) {
        procs.kin[at] = (uint8_t)kin;
        at = find(procs.list[at].parent);
    }
}

/*** killing ***/

/* Dead, but for somebody who asks how it ended. A leader whose threads go on looks dead too. */
static bool is_dead(const struct proc *proc)
{
    return (proc->state == 'Z' || proc->state == 'X') && proc->threads <= 1;
}

int procs_kill(enum procs_target target, const struct config *config, pid_t kernel,
               const struct files *files)
{
    const struct task task = {
        .target = target, .config = config, .kernel = kernel, .files = files
    };
    int r = take_picture(&task);
    if (r < 0)
        return r;
    for (size_t i = 0; i < procs.count; i++)
        tell(i);
    enum kin wanted = target == PROCS_RUN ? KIN_RUN : KIN_BELOW_KERNEL;
    int left = procs.whole ? 0 : 1;
    for (size_t i = 0; i < procs.count; i++) {
        const struct proc *proc = &procs.list[i];
        enum kin kin = (enum kin)procs.kin[i];
        if (kin == KIN_KERNEL && target == PROCS_BELOW)
            left += !is_dead(proc) && proc->state != 'T'; /* it may still fork */
        if (kin != wanted && kin != KIN_UNKNOWN)
            continue;
        if (target != PROCS_RUN && is_dead(proc))
            continue;
        left++;
        if (kin == wanted)
            kill_one(&task, proc);
    }
    return left;
}
