# threat: T1
# tries: attach to the host's SysV shared memory, take its messages, change its semaphores
# trips: received
libc.shmat.restype = ctypes.c_void_p
key = int("@IPC_KEY@")
for path in ("/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem"):
    show(path)
shm = libc.shmget(key, 0, 0)
print("shmget", shm)
if shm >= 0:
    address = libc.shmat(shm, None, 0)
    print(ctypes.string_at(address, 100))
    breach("attached")
for id in range(64):
    address = libc.shmat(id, None, 0o10000)
    if address and address != ctypes.c_void_p(-1).value:
        print(ctypes.string_at(address, 100))
        breach("attached to", id)
msg = libc.msgget(key, 0)
message = ctypes.create_string_buffer(200)
if msg >= 0 and libc.msgrcv(msg, message, 100, 0, 0o4000) >= 0:
    print(message.raw)
    breach("took a message")
for id in range(64):
    if libc.msgrcv(id, message, 100, 0, 0o4000 | 0o10000) >= 0:
        print(message.raw)
        breach("took a message of", id)
sem = libc.semget(key, 0, 0)
if sem >= 0:
    libc.semctl(sem, 0, 16, 77)
    breach("semaphore")
print("END")
