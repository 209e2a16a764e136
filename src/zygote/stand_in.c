#include "zygote/stand_in.h"

#include "agent/guest.h"
#include "zygote/pages.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
    STAND_INS_MAX = 256,   /* at a time: more than are made ahead */
    STACK_SIZE = 16 << 10, /* of which a page or two are used */
};

/* Of a place, where its zygote waits: the kernel sets it back to FREE, and wakes up who waits, when the process has
 * ended. */
enum place_state { FREE, TAKEN, WAITS };

/* One's stack, and what is about it in the same page. */
struct place {
    char stack[STACK_SIZE - 64];
    int state;                        /* enum place_state */
    int code;                         /* why there is none */
    const struct stand_in_plan *plan; /* until it waits */
};
_Static_assert(sizeof(struct place) <= STACK_SIZE, "the stack's end is whole");

static PAGES_TOGETHER struct place *places;
static PAGES_TOGETHER struct stand_in_kernels kernels;
static PAGES_TOGETHER uint32_t number_of_kernel; /* in one */

int stand_ins_open(const struct stand_in_kernels *wanted, int *ret_life)
{
    int life[2];
    kernels = *wanted;
    if (pipe2(life, O_CLOEXEC) < 0)
        return -errno;
    void *room = mmap(NULL, sizeof(*places) * STAND_INS_MAX, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED || madvise(room, sizeof(*places) * STAND_INS_MAX, MADV_DONTFORK) < 0)
        return -errno;
    places = room;
    *ret_life = life[0]; /* nobody writes to the other end, which nobody else has */
    return 0;
}

uint32_t stand_in_number(void)
{
    return number_of_kernel;
}

static int load(const int *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(int *word, int value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/*** a process on another stack ***/

typedef void begin_fn(uintptr_t argument); /* does not return */

/* A clone(2) or clone3(2) whose child begins with a function, on the stack that the arguments name: no function of the C
 * library does that without copying more, or with a cgroup. The pid or -errno. */
static long clone_to(begin_fn *begin, uintptr_t argument, long call, const uintptr_t args[static 5])
{
    uintptr_t first = args[0], second = args[1], third = args[2], fourth = args[3], fifth = args[4];
#if defined(__x86_64__)
    register uintptr_t passed __asm__("r12") = argument;
    register begin_fn *function __asm__("r13") = begin;
    register uintptr_t in_r10 __asm__("r10") = fourth;
    register uintptr_t in_r8 __asm__("r8") = fifth;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[passed], %%rdi\n\t"
                     "call *%[function]\n"
                     "1:"
                     : "+a"(call)
                     : "D"(first), "S"(second), "d"(third), "r"(in_r10),
                       "r"(in_r8), [passed] "r"(passed), [function] "r"(function)
                     : "rcx", "r11", "memory", "cc");
    return call;
#elif defined(__aarch64__)
    register uintptr_t x0 __asm__("x0") = first;
    register uintptr_t x1 __asm__("x1") = second;
    register uintptr_t x2 __asm__("x2") = third;
    register uintptr_t x3 __asm__("x3") = fourth;
    register uintptr_t x4 __asm__("x4") = fifth;
    register long number __asm__("x8") = call;
    register uintptr_t passed __asm__("x19") = argument;
    register begin_fn *function __asm__("x20") = begin;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, %[passed]\n\t"
                     "blr %[function]\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x1), "r"(x2), "r"(x3), "r"(x4),
                       "r"(number), [passed] "r"(passed), [function] "r"(function)
                     : "memory", "cc");
    return (long)x0;
#else
    (void)begin, (void)argument, (void)call, (void)first, (void)second, (void)third, (void)fourth,
        (void)fifth;
    return -ENOSYS;
#endif
}

/*** the process ***/

enum { NULL_IN, OUT, ERR, CHANNEL, SAID, DOOR, LANE, PLACED };

/* Its word, and the descriptors that come with it. */
static int hear(struct zygote_call *ret, int fds[static ZYGOTE_KERNEL_FDS])
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(ZYGOTE_KERNEL_FDS * sizeof(int))];
    } control;
    struct iovec part = { ret, sizeof(*ret) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    ssize_t n = recvmsg(STAND_IN_LANE, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    struct cmsghdr *header = n == (ssize_t)sizeof(*ret) ? CMSG_FIRSTHDR(&message) : NULL;
    if (!header || ret->magic != ZYGOTE_MAGIC || header->cmsg_level != SOL_SOCKET ||
        header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(ZYGOTE_KERNEL_FDS * sizeof(int)))
        return -EPIPE;
    memcpy(fds, CMSG_DATA(header), ZYGOTE_KERNEL_FDS * sizeof(int));
    return 0;
}

/* With the zygote it is to end. Who has sent it a word before that is not let down, and who has not hears that it is too
 * late. */
static int wait_for_word(struct zygote_call *ret, int fds[static ZYGOTE_KERNEL_FDS])
{
    struct pollfd watched[] = { { .fd = STAND_IN_LANE, .events = POLLIN },
                                { .fd = STAND_IN_LIFE } };
    while (poll(watched, 2, -1) < 0)
        ;
    if (!watched[0].revents)
        (void)shutdown(STAND_IN_LANE, SHUT_RD);
    return hear(ret, fds);
}

static int place_descriptors(const int fds[static ZYGOTE_KERNEL_FDS])
{
    const int placed[PLACED] = {
        [NULL_IN] = 0,   [OUT] = fds[0],         [ERR] = fds[1],        [CHANNEL] = fds[2],
        [SAID] = fds[3], [DOOR] = STAND_IN_DOOR, [LANE] = STAND_IN_LANE
    };
    return guest_place(placed, PLACED, 0);
}

/* In memory of its own. */
static void begin_kernel(uintptr_t number)
{
    number_of_kernel = (uint32_t)number;
    _longjmp(kernels.begin, 1);
}

/* As fork() does it, but for the stack: ours is not copied (MADV_DONTFORK), or each kernel would keep those of all who
 * wait at that time. The filter lets no clone3() pass. Machines differ in which of the last two is the address. */
static long fork_kernel(uint32_t number)
{
    uintptr_t tid = (uintptr_t)kernels.tid_address;
    const uintptr_t args[] = { CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD,
                               (uintptr_t)kernels.stack, 0, tid, tid };
    return clone_to(begin_kernel, number, SYS_clone, args);
}

static void serve(void)
{
    struct zygote_call call;
    int fds[ZYGOTE_KERNEL_FDS];
    if (wait_for_word(&call, fds) < 0)
        return;
    int r = place_descriptors(fds);
    long pid = r < 0 ? r : fork_kernel(call.number);
    int32_t code = pid < 0 ? (int32_t)-pid : 0;
    (void)!send(r < 0 ? STAND_IN_LANE : LANE, &code, sizeof(code), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void stand_in(uintptr_t argument)
{
    struct place *place = (struct place *)argument;
    place->code = place->plan->prepare(place->plan->data);
    if (place->code == 0) { /* from here on the zygote goes on, too */
        store(&place->state, WAITS);
        (void)syscall(SYS_futex, &place->state, FUTEX_WAKE, 1, NULL, NULL, 0);
        serve();
    }
    _exit(0);
}

/*** the zygote ***/

static struct place *find_place(void)
{
    for (size_t i = 0; places && i < STAND_INS_MAX; i++)
        if (load(&places[i].state) == FREE)
            return &places[i];
    return NULL;
}

int stand_in_make(const struct stand_in_plan *plan)
{
    struct place *place = find_place();
    if (!place)
        return -EAGAIN;
    place->plan = plan;
    place->code = -ECHILD;
    store(&place->state, TAKEN);
    const struct sys_birth birth = {
        .flags = CLONE_VM | CLONE_CHILD_CLEARTID | (plan->cgroup < 0 ? 0 : SYS_CLONE_INTO_CGROUP),
        .child_tid = (uintptr_t)&place->state,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)place->stack,
        .stack_size = sizeof(place->stack) / 16 * 16,
        .cgroup = plan->cgroup < 0 ? 0 : (uint64_t)plan->cgroup,
    };
    const uintptr_t args[5] = { (uintptr_t)&birth, sizeof(birth) };
    long pid = clone_to(stand_in, (uintptr_t)place, SYS_clone3, args);
    if (pid < 0) {
        store(&place->state, FREE);
        return (int)pid;
    }
    while (load(&place->state) == TAKEN)
        (void)syscall(SYS_futex, &place->state, FUTEX_WAIT, TAKEN, NULL, NULL, 0);
    return load(&place->state) == WAITS ? 0 : place->code < 0 ? place->code : -ECHILD;
}
