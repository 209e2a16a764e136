# threat: T1
# tries: find interfaces beside loopback, make some, send raw packets
lines = open("/proc/net/dev").read().splitlines()[2:]
names = [line.split(":")[0].strip() for line in lines]
print(names)
if names != ["lo"]:
    breach("interfaces", names)
for family, kind, protocol in (
    (socket.AF_INET, socket.SOCK_RAW, 1),
    (socket.AF_INET, socket.SOCK_RAW, 255),
    (17, socket.SOCK_RAW, 0x300),
    (17, socket.SOCK_DGRAM, 0x300),
    (socket.AF_INET6, socket.SOCK_RAW, 58),
):
    try:
        socket.socket(family, kind, protocol)
        breach("a raw socket", family, kind, protocol)
    except OSError as error:
        print(family, kind, error.strerror)
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
route.bind((0, 0))
route.settimeout(1)


def ask(kind, flags, body):
    route.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
    data = route.recv(65536)
    return struct.unpack("=i", data[16:20])[0] if struct.unpack("=H", data[4:6])[0] == 2 else None


kind = b"dummy\0\0\0"
info = struct.pack("=HH", 4 + 12, 18) + struct.pack("=HH", 4 + 6, 1) + kind
for name, message in (
    ("new link", (16, 0x605, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + info)),
    ("set lo down", (16, 0x5, struct.pack("=BxHiII", 0, 0, 1, 0, 1))),
    (
        "new address",
        (
            20,
            0x605,
            struct.pack("=BBBBI", 2, 24, 0, 0, 1)
            + struct.pack("=HH4s", 8, 2, bytes([10, 9, 8, 7])),
        ),
    ),
    (
        "new route",
        (
            24,
            0x605,
            struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("=HHi", 8, 4, 1),
        ),
    ),
):
    code = ask(*message)
    print(name, code)
    if code == 0:
        breach("netlink:", name)
print("END")
