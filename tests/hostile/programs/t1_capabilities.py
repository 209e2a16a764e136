# threat: T1
# tries: get capabilities: capset, ambient set, file capabilities, becoming root, groups, securebits
# arch: x86_64
import shutil, subprocess

header = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))
data = ctypes.create_string_buffer(struct.pack("<6I", *[0xFFFFFFFF] * 6))
result, error = call("capset", header, data)
print("capset", result, error)
if result == 0:
    breach("capset")
for cap in range(41):
    if libc.prctl(47, 2, cap, 0, 0) == 0:
        breach("ambient capability", cap)
for bits in (1, 4, 16, 63):
    if libc.prctl(28, bits, 0, 0, 0) == 0 and bits:
        breach("securebits", bits)
if libc.prctl(38, 0, 0, 0, 0) == 0:
    breach("no_new_privs could be taken back")
for name in ("setuid", "setgid", "seteuid", "setegid"):
    for target in (0, 1, 65534):
        if target != os.getuid():
            try:
                getattr(os, name)(target)
                breach(name, target)
            except OSError as error:
                print(name, target, error.strerror)
for groups in ([0], [4, 6], list(range(20))):
    try:
        os.setgroups(groups)
        breach("setgroups", groups)
    except OSError as error:
        print("setgroups", error.strerror)
shutil.copy("/usr/bin/env", "/tmp/env")
try:
    os.setxattr(
        "/tmp/env", "security.capability", bytes.fromhex("0100000200ffffff00ffffff0000000000000000")
    )
    out = subprocess.run(
        ["/tmp/env", "cat", "/proc/self/status"], capture_output=True, text=True
    ).stdout
    eff = [line for line in out.splitlines() if line.startswith("CapEff")]
    print(eff)
    if int(eff[0].split()[1], 16):
        breach("file capabilities work")
except OSError as error:
    print("file capabilities:", error.strerror)
status = open("/proc/self/status").read()
for line in status.splitlines():
    if line.startswith("Cap"):
        print(line)
        if int(line.split()[1], 16):
            breach(line)
print("END")
