# threat: T1
# tries: reach the host's TCP and UDP sockets on every address it might have
# trips: listeners
addresses = [
    "127.0.0.1",
    "127.0.0.53",
    "127.1.2.3",
    "0.0.0.0",
    "10.0.0.1",
    "10.0.2.2",
    "172.17.0.1",
    "192.168.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.0.1",
    "224.0.0.1",
    "255.255.255.255",
]
try:
    for line in open("/proc/net/fib_trie"):
        if "|--" in line:
            addresses.append(line.split()[1])
except OSError:
    pass
for address in dict.fromkeys(addresses):
    for port in (int("@PORT4@"), 22, 80, 2375):
        with socket.socket() as sock:
            sock.settimeout(0.2)
            try:
                sock.connect((address, port))
                sock.settimeout(1)
                breach("connected to", address, port, sock.recv(200))
            except OSError as error:
                print(address, port, error.strerror or error)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            sock.sendto(b"from the sandbox", (address, int("@UDP@")))
        except OSError as error:
            print(address, "UDP", error.strerror)
for address in ("::1", "fe80::1", "::ffff:127.0.0.1", "ff02::1"):
    with socket.socket(socket.AF_INET6) as sock:
        sock.settimeout(0.2)
        try:
            sock.connect((address, int("@PORT6@") if address == "::1" else int("@PORT4@")))
            sock.settimeout(1)
            breach("connected to", address, sock.recv(200))
        except OSError as error:
            print(address, error.strerror or error)
print("END")
