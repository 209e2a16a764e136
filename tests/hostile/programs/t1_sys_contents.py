# threat: T1
# tries: find sysfs: hardware, block devices, debugfs, tracing, firmware, cgroups
total = 0
for top, dirs, files in os.walk("/sys"):
    for name in files:
        total += 1
        print(os.path.join(top, name))
if total > 10:
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
    if os.path.exists(path):
        breach("there is", path)
print("END")
