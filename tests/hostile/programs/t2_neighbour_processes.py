# threat: T2
# tries: see and signal another session's processes
mine = {os.getpid(), os.getppid(), 1}
for pid in range(1, 40000):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        continue
    except PermissionError:
        pass
    if pid not in mine:
        breach("a process that is not ours:", pid)
for pid in (int("@NEIGHBOUR_PID@"), -int("@NEIGHBOUR_PID@")):
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
            breach("signalled the neighbour", pid)
        except OSError as error:
            print(pid, error.strerror)
print(sorted(p for p in os.listdir("/proc") if p.isdigit()))
print("END")
