# threat: T2
# tries: channels that no namespace separates: vsock, io_uring, keys, netlink sockets
# arch: x86_64
for cid in (1, 2, 3, 0xFFFFFFFF):
    try:
        socket.socket(40, socket.SOCK_STREAM).connect((cid, 1024))
        breach("vsock", cid)
    except (OSError, TypeError) as error:
        print("vsock", error)
refused("io_uring_setup", 8, ctypes.create_string_buffer(120))
refused("add_key", b"user", b"channel", b"hello", 5, -5)
refused("keyctl", 1, b"belljar", 0, 0)
for protocol in range(1, 24):
    try:
        socket.socket(16, socket.SOCK_RAW, protocol)
        breach("netlink", protocol)
    except OSError as error:
        print("netlink", protocol, error.strerror)
print("END")
