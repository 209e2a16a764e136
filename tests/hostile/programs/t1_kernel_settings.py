# threat: T1
# tries: open every setting of the kernel for writing: core_pattern, modprobe, sysrq, uevent helpers …
count = 0
for top, dirs, files in os.walk("/proc/sys"):
    for name in files:
        count += 1
        path = os.path.join(top, name)
        try:
            os.close(os.open(path, os.O_WRONLY))
            breach("opened for writing", path)
        except OSError:
            pass
print(count, "settings")
for path in (
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/sys/kernel/kexec_loaded",
    "/proc/irq/default_smp_affinity",
    "/proc/bus/pci",
    "/proc/acpi/wakeup",
    "/proc/mtrr",
    "/proc/scsi/scsi",
    "/proc/self/attr/current",
    "/proc/fs/nfsd",
    "/sys/power/state",
    "/proc/asound",
    "/proc/timer_stats",
):
    try:
        os.close(os.open(path, os.O_WRONLY))
        if path != "/proc/self/attr/current":
            breach("opened for writing", path)
    except OSError as error:
        print(path, error.strerror)
print("END")
