# threat: T1
# tries: reach the host's unix sockets: abstract, in the file system, and the well-known ones
# trips: listeners
paths = [
    "\0@ABSTRACT@",
    "@SOCKET@",
    "/proc/1/root@SOCKET@",
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/systemd/journal/socket",
    "/dev/log",
    "/tmp/.X11-unix/X0",
    "\0/tmp/.X11-unix/X0",
    "\0/containerd-shim",
]
for line in open("/proc/net/unix").read().splitlines()[1:]:
    name = line.split()[7:]
    print("visible:", line)
    if name:
        breach("a socket that is not ours:", name)
for path in paths:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as sock:
            sock.settimeout(0.5)
            try:
                sock.connect(path)
                breach("connected to", repr(path), sock.recv(200))
            except OSError as error:
                print(repr(path), error.strerror or error)
print("END")
