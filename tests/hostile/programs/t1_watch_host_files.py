# threat: T1
# tries: take leases and locks on host files, and watch what the host does with them
import fcntl

signal.signal(signal.SIGIO, signal.SIG_IGN)

for path in ("/usr/bin/env", "/usr/bin", "/etc/ld.so.cache"):
    fd = os.open(path, os.O_RDONLY)
    for kind in (0, 1):
        try:
            fcntl.fcntl(fd, 1024, kind)  # F_SETLEASE
            breach("a lease on", path)
        except OSError as error:
            print("lease", path, error.strerror)
    try:
        fcntl.fcntl(fd, 1026, 0x1F)  # F_NOTIFY: a signal for each use by the host
        breach("told of what the host does with", path)
    except OSError as error:
        print("notify", path, error.strerror)
refused("fanotify_init", 0, 0)
print("END")
