# threat: T1
# tries: sockets of every family; only unix, IPv4, IPv6 and route netlink may open
import itertools

opened = set()
for family, kind, protocol in itertools.product(
    range(46), (1, 2, 3, 4, 5), (0, 1, 6, 9, 12, 15, 16)
):
    result, error = call("socket", family, kind, protocol)
    if result >= 0:
        os.close(result)
        opened.add((family, protocol if family == 16 else 0))
    elif family not in (1, 2, 10, 16) and error not in ("EPERM", "ENOSYS"):
        breach("family", family, "reached the kernel:", error)
print(sorted(opened))
for family, protocol in opened:
    if family not in (1, 2, 10) and (family, protocol) != (16, 0):
        breach("a socket of family", family, "protocol", protocol)
for family in (2, 10, 16, 40):
    pair = (ctypes.c_int * 2)()
    if libc.socketpair(family, 1, 0, pair) == 0:
        breach("socketpair of family", family)
print("END")
