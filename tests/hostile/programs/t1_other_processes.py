# threat: T1
# tries: look into and change other processes: ptrace, process_vm_*, /proc/PID/mem, pidfd_getfd, kcmp
# arch: x86_64
pids = [1, os.getppid(), *map(int, "@PIDS@".split())]
buffer = ctypes.create_string_buffer(64)
vector = ctypes.create_string_buffer(struct.pack("<QQ", ctypes.addressof(buffer), 64))
for pid in pids:
    for request in (16, 0x4206, 2, 8, 0):  # ATTACH, SEIZE, PEEKDATA, KILL, TRACEME
        refused("ptrace", request, pid, 0, 0)
    refused("process_vm_readv", pid, vector, 1, vector, 1, 0)
    refused("process_vm_writev", pid, vector, 1, vector, 1, 0)
    refused("kcmp", pid, os.getpid(), 0, 0, 0)
    refused("move_pages", pid, 0, None, None, None, 0)
    refused("migrate_pages", pid, 0, None, None)
    fd, error = call("pidfd_open", pid, 0)
    print("pidfd_open", pid, fd, error)
    if fd >= 0:
        for number in range(8):
            refused("pidfd_getfd", fd, number, 0)
        refused("process_madvise", fd, vector, 1, 4, 0)
for path in (
    "/proc/1/mem",
    "/proc/1/environ",
    "/proc/1/maps",
    "/proc/1/stack",
    "/proc/1/syscall",
    "/proc/1/fd",
    "/proc/1/auxv",
):
    for flags in (os.O_RDONLY, os.O_RDWR):
        try:
            fd = os.open(path, flags)
            if path.endswith("mem") or flags == os.O_RDWR:
                breach("opened", path)
            elif not path.endswith("/fd"):
                print(path, os.read(fd, 4000))
        except OSError as error:
            print(path, error.strerror)
print("END")
