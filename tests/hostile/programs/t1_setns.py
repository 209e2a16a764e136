# threat: T1
# tries: join other namespaces through /proc/PID/ns and pidfds
# arch: x86_64
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"):
        try:
            fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        except OSError as error:
            print(pid, name, error.strerror)
            continue
        refused("setns", fd, 0)
        result, error = call("ioctl", fd, 0xB701)  # NS_GET_USERNS
        if result >= 0:
            breach("got the parent user namespace of", pid, name)
        result, error = call("ioctl", fd, 0xB702)  # NS_GET_PARENT
        if result >= 0:
            breach("got the parent namespace of", pid, name)
        os.close(fd)
for pid in [1, os.getpid(), *map(int, "@PIDS@".split())]:
    fd, error = call("pidfd_open", pid, 0)
    print(pid, fd, error)
    if fd >= 0:
        refused("setns", fd, 0x7E020000)
print("END")
