# threat: T1
# tries: change programs and libraries of the host in every way there is for a file
import mmap

targets = [
    "/usr/bin/env",
    "/usr/bin/true",
    os.path.realpath("/usr/bin/python3"),
    "/bin/bash",
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/lib64/ld-linux-x86-64.so.2",
    "/dev/null",
]
for path in filter(os.path.exists, targets):

    def attempt(name, work):
        try:
            work()
            breach(name, path)
        except (OSError, ValueError) as error:
            print(name, path, getattr(error, "strerror", error))

    if path != "/dev/null":
        attempt("open", lambda: os.open(path, os.O_RDWR))
        attempt("truncate", lambda: os.truncate(path, 0))
    attempt("chmod", lambda: os.chmod(path, 0o4777))
    attempt("chown", lambda: os.chown(path, os.getuid(), os.getgid()))
    attempt("utime", lambda: os.utime(path, (1, 1)))
    attempt("xattr", lambda: os.setxattr(path, "user.x", b"y"))
    attempt("rename", lambda: os.rename(path, path + ".old"))
    attempt("unlink", lambda: os.unlink(path))
    attempt("link", lambda: os.link(path, "/tmp/link"))
    attempt("lease", lambda: __import__("fcntl").fcntl(os.open(path, os.O_RDONLY), 1024, 1))

    def shared_map():
        fd = os.open(path, os.O_RDONLY)
        mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)

    if path != "/dev/null":
        attempt("shared mapping", shared_map)
print("END")
