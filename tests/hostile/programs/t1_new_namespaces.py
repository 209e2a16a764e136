# threat: T1
# tries: new namespaces by unshare, clone, clone3, with every flag alone, together and with stray bits
# arch: x86_64
flags = dict(
    NEWTIME=0x80,
    NEWNS=0x20000,
    NEWCGROUP=0x2000000,
    NEWUTS=0x4000000,
    NEWIPC=0x8000000,
    NEWUSER=0x10000000,
    NEWPID=0x20000000,
    NEWNET=0x40000000,
)
for name, flag in [*flags.items(), ("all", 0x7E020080), ("USER|NS", 0x10020000)]:
    print(name)
    refused("unshare", flag)
    refused("unshare", flag | 1 << 33)
    for stray in (0, 1 << 32, 1 << 63):
        value = flag | stray | 17
        if value >= 1 << 63:
            value -= 1 << 64
        if name == "NEWTIME":
            continue  # the same bit is part of clone's exit signal: no namespace can be asked for so
        result, error = call("clone", value, None, None, None, None)
        if result == 0:
            os._exit(0)
        if result > 0:
            breach("clone with", name, "made", result)
        print("clone", name, error)
    arguments = ctypes.create_string_buffer(
        struct.pack("<11Q", flag, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    )
    result, error = call("clone3", arguments, 88)
    if result == 0:
        os._exit(0)
    if result > 0 or error != "ENOSYS":
        breach("clone3 with", name, result, error)
print("END")
