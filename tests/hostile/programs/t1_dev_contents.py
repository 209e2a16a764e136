# threat: T1
# tries: find devices beyond the documented ones (an engine of containers cannot leave out /dev/mqueue: there it is empty)
nodes = {"null", "zero", "full", "random", "urandom", "tty"}
links = {"fd", "stdin", "stdout", "stderr", "ptmx"}
others = {"shm", "pts"}
empty = {"mqueue"} if "@ENGINE@" == "docker" else set()
have = set(os.listdir("/dev"))
print(sorted(have))
for name in empty:
    if os.listdir(f"/dev/{name}") or os.access(f"/dev/{name}", os.W_OK):
        breach("something can be in /dev/" + name)
for extra in have - nodes - links - others - empty:
    breach("unexpected in /dev:", extra)
for top, dirs, files in os.walk("/", onerror=None):
    if top.startswith(("/proc", "/usr")):
        dirs[:] = []
        continue
    for name in files:
        path = os.path.join(top, name)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        import stat

        if stat.S_ISBLK(mode) or (
            stat.S_ISCHR(mode) and path not in {f"/dev/{n}" for n in nodes} | {"/dev/pts/ptmx"}
        ):
            breach("a device:", path)
for name in (
    "mem",
    "kmem",
    "port",
    "kmsg",
    "sda",
    "vda",
    "nvme0n1",
    "fuse",
    "kvm",
    "net/tun",
    "loop-control",
    "mapper/control",
    "vhost-vsock",
    "vsock",
    "uinput",
    "hpet",
    "cpu/0/msr",
    "dri/card0",
    "snapshot",
    "userfaultfd",
    "console",
    "tty0",
    "mqueue",
    "hugepages",
):
    if name not in empty and os.path.exists(f"/dev/{name}"):
        breach("there is /dev/" + name)
print("END")
