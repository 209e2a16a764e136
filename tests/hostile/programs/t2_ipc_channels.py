# threat: T2
# tries: leave IPC objects behind and find those of others
existing = [open(f"/proc/sysvipc/{kind}").read().splitlines()[1:] for kind in ("shm", "sem", "msg")]
print(existing)
if any(existing):
    breach("objects that are not ours")
for key in range(0x5EC0, 0x5ED0):
    libc.shmget(key, 4096, 0o1666)
    libc.semget(key, 1, 0o1666)
    libc.msgget(key, 0o1666)
open("/dev/shm/left-behind", "w").write("left behind")
open("/tmp/left-behind", "w").write("left behind")
open("/workspace/left-behind", "w").write("left behind")
print("END")
