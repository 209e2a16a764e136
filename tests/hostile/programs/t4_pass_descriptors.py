# threat: T4
# tries: keep descriptors alive in flight on unix sockets beyond the limits of a process
import array

pairs = []
for _ in range(50):
    one, two = socket.socketpair()
    pairs.append((one, two))
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    for _ in range(40):
        try:
            one.sendmsg(
                [b"x"],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))],
                socket.MSG_DONTWAIT,
            )
        except OSError as error:
            break
    for fd in fds:
        os.close(fd)
print("END")
