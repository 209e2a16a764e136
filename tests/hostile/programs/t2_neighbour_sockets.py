# threat: T2
# tries: reach another session's TCP, UDP and unix sockets
tcp, udp = map(int, "@NEIGHBOUR_PORTS@".split())
for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(0.3)
        try:
            sock.connect((address, tcp))
            breach("connected", sock.recv(200))
        except OSError as error:
            print(address, error.strerror or error)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    for address in ("127.0.0.1", "127.255.255.255", "224.0.0.1"):
        try:
            sock.sendto(b"hello neighbour", (address, udp))
        except OSError as error:
            print(error.strerror)
for name in ("\0neighbour-@NEIGHBOUR@", "/tmp/neighbour-@NEIGHBOUR@"):
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(name)
            breach("connected", repr(name), sock.recv(200))
        except OSError as error:
            print(error.strerror)
for kind in ("tcp", "tcp6", "udp", "unix"):
    print(open(f"/proc/net/{kind}").read())
print("END")
