#include "engine/native/nets.h"

#include "base/base.h"
#include "engine/native/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Room for what later kernels may add to their messages. */
enum { MESSAGE_MAX = 512 };

/* Little endian: the lower half of an argument comes first, and is all that the kernel reads of a family. A foreign
 * architecture's numbers need no look: such calls end the process by the table (seccomp.c). */
static const struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static ino_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) < 0 ? 0 : st.st_ino;
}

void nets_init(struct nets *nets)
{
    *nets = (struct nets){ .listener = -1 };
}

static int listen_with_room(void)
{
    struct seccomp_notif_sizes sizes;
    int r = sys_seccomp_notif_sizes(&sizes);
    if (r < 0)
        return r;
    if (sizes.seccomp_notif > MESSAGE_MAX || sizes.seccomp_notif_resp > MESSAGE_MAX)
        return -ENOSYS; /* as good as unknown */
    return sys_seccomp_listener(filter, ARRAY_SIZE(filter));
}

int nets_listen(struct nets *nets)
{
    nets->home = inode_of("/proc/self/ns/net");
    int r = listen_with_room();
    if (r == -EBUSY || r == -EINVAL || r == -ENOSYS)
        return 0;
    nets->listener = r < 0 ? -1 : r;
    return r < 0 ? r : 0;
}

int nets_hear(struct nets *nets, uint64_t now_ms, struct net_call *ret)
{
    union {
        struct seccomp_notif notif;
        char space[MESSAGE_MAX];
    } message = { .space = { 0 } };
    nets->heard = nets->heard_ms == now_ms ? nets->heard + 1 : 1;
    nets->heard_ms = now_ms;
    /* Waits for nobody: whoever was counted as waiting is found, or found to be dead. */
    if (ioctl(nets->listener, SECCOMP_IOCTL_NOTIF_RECV, &message) < 0)
        return errno == ENOENT || errno == EINTR ? -EAGAIN : -errno;
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/ns/net", message.notif.pid);
    *ret = (struct net_call){ .id = message.notif.id, .net = inode_of(path) };
    return 0;
}

/* If that process has died meanwhile, and its number is another's, this fails: the wrong one may have been noted, but
 * never has the right one not been. */
void nets_answer(struct nets *nets, const struct net_call *call)
{
    union {
        struct seccomp_notif_resp answer;
        char space[MESSAGE_MAX];
    } message = { .space = { 0 } };
    message.answer.id = call->id;
    message.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    (void)ioctl(nets->listener, SECCOMP_IOCTL_NOTIF_SEND, &message);
}

bool nets_weary(const struct nets *nets, uint64_t now_ms)
{
    return nets->heard_ms == now_ms && nets->heard >= NETS_CALLS_PER_MS;
}

void nets_keep(struct nets *nets, int net)
{
    if (nets->listener < 0 || nets->n_spare == NETS_SPARE)
        close(net);
    else
        nets->spare[nets->n_spare++] = net;
}

int nets_take(struct nets *nets)
{
    if (!nets->n_spare)
        return -1;
    int net = nets->spare[0];
    /* The longest unused: what is still on its way there has had the most time to be found. */
    memmove(&nets->spare[0], &nets->spare[1], --nets->n_spare * sizeof(nets->spare[0]));
    return net;
}
