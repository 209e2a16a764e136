# threat: T1
# tries: hide forbidden arguments behind bits that the kernel does not read
# arch: x86_64
for family in (16, 17, 40, 44, 38, 31, 9):
    for stray in (0, 1 << 32, 0x7FFFFFFF << 32):
        refused("socket", family | stray, 3, 15, errors=("EPERM", "ENOSYS", "EAFNOSUPPORT"))
for stray in (1 << 32, 1 << 40, 1 << 63):
    flags = 0x10000000 | 17 | stray
    result, error = call(
        "clone", flags - (1 << 64) if flags >= 1 << 63 else flags, None, None, None, None
    )
    if result == 0:
        os._exit(0)
    if result > 0:
        breach("clone with a new user namespace", hex(stray))
refused("personality", 0x0400000 | 1 << 32)  # ADDR_NO_RANDOMIZE
refused("personality", 0x0100000)
print("END")
