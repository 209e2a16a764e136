# threat: T1
# tries: find sysfs: hardware, block devices, debugfs, tracing, firmware, cgroups
# In containers there are directories, all of them empty but that of the own cgroup, which can only be read.
contained = "@ENGINE@" == "docker"
own = "/sys/fs/cgroup" if contained else None
total = 0
for top, dirs, files in os.walk("/sys"):
    if top == own:
        dirs[:] = []
        continue
    for name in files:
        total += 1
        print(os.path.join(top, name))
if total > (0 if contained else 10):
    breach(total, "files in /sys")
for path in (
    "/sys/kernel",
    "/sys/fs/cgroup",
    "/sys/block",
    "/sys/class",
    "/sys/firmware",
    "/sys/module",
    "/sys/bus",
    "/sys/dev",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/kernel/security",
    "/sys/fs/bpf",
    "/sys/firmware/efi/efivars",
):
    if path != own and os.path.exists(path) and not (contained and os.listdir(path) == []):
        breach("there is", path)


def writable(path, flags):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK, 0o600))
    except OSError:
        return False
    return True


def look_at_own(place):
    """A cgroup: ours alone, without others below it, and nothing in it can be changed."""
    names = os.listdir(place)
    print(place, len(names), "names")
    for name in names:
        path = os.path.join(place, name)
        if os.path.isdir(path):
            breach("another cgroup:", path)
        elif writable(path, os.O_WRONLY):
            breach("can be written:", path)
    try:
        os.mkdir(os.path.join(place, "breach"))
        breach("a cgroup could be made in", place)
    except OSError:
        pass
    for name in ("cgroup.procs", "tasks"):
        # Who is not in our pid namespace is 0 there.
        if "0" in show(os.path.join(place, name)).decode().split():
            breach("processes of others in", place)


if own and not os.path.exists(own + "/cgroup.controllers"):
    if writable(own + "/breach", os.O_WRONLY | os.O_CREAT):
        breach("can be written:", own)
    for name in os.listdir(own):
        look_at_own(os.path.join(own, name))
elif own:
    look_at_own(own)
print("END")
