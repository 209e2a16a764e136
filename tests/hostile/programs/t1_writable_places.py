# threat: T1
# tries: make a file in every directory that there is
allowed = ("/tmp", "/dev/shm", "/workspace", "/var/tmp")
if "@OWN_UID@" == "no":  # where agent and guest are one user, this cannot be kept from the guest
    allowed += ("/run/belljar",)
found = []
for top, dirs, _ in os.walk("/"):
    if top.count("/") > 3 and not top.startswith(allowed):
        dirs[:] = []
    name = os.path.join(top, ".probe")
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT))
        os.unlink(name)
        found.append(top)
    except OSError:
        pass
for place in found:
    if not (place in allowed or place.startswith(("/tmp/", "/workspace/", "/dev/shm/"))):
        breach("writable:", place)
print("writable", [p for p in found if p in allowed])
for name in ("/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/usr/bin/env", "/run/belljar/code"):
    try:
        os.close(os.open(name, os.O_WRONLY))
        breach("could be opened for writing:", name)
    except OSError as error:
        print(name, error.strerror)
print("END")
