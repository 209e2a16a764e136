# threat: T1
# tries: raise own limits
import resource

for name in dir(resource):
    if not name.startswith("RLIMIT_") or name in ("RLIMIT_OFILE",):
        continue
    which = getattr(resource, name)
    soft, hard = resource.getrlimit(which)
    print(name, soft, hard)
    if hard != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(which, (soft, hard + 1))
            breach("raised", name)
        except (ValueError, OSError) as error:
            pass
for what in (
    lambda: os.nice(-5),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)),
    lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)),
    lambda: os.setpriority(os.PRIO_PROCESS, 0, -10),
):
    try:
        what()
        breach("a better priority")
    except OSError as error:
        print(error.strerror)
print("END")
