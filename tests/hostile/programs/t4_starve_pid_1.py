# threat: T4
# tries: take priority, limits and processors away from the agent
# arch: x86_64

limit = ctypes.create_string_buffer(struct.pack("<QQ", 0, 0))
for which in range(16):
    result, error = call("prlimit64", 1, which, limit, None)
    print("prlimit64", which, result, error)
    if result == 0:
        breach("changed limit", which, "of pid 1")
for name, work in (
    ("setpriority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)),
    ("affinity", lambda: os.sched_setaffinity(1, {0})),
    ("scheduler", lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))),
):
    try:
        work()
        breach(name, "of pid 1")
    except OSError as error:
        print(name, error.strerror)
for name, number in (("ioprio_set", 251),):
    result, error = call(number, 1, 1, 3 << 13)
    print(name, result, error)
    if result == 0:
        breach(name, "of pid 1")
for path, text in (
    ("/proc/1/oom_score_adj", "1000"),
    ("/proc/1/oom_adj", "15"),
    ("/proc/1/autogroup", "19"),
    ("/proc/1/timerslack_ns", "1000000000"),
    ("/proc/1/coredump_filter", "0"),
    ("/proc/1/clear_refs", "1"),
    ("/proc/1/comm", "owned"),
    ("/proc/1/sched", "0"),
):
    try:
        os.write(os.open(path, os.O_WRONLY), text.encode())
        breach("wrote", path)
    except OSError as error:
        print(path, error.strerror)
print("END")
