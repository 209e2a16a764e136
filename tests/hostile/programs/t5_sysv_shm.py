# threat: T5
# tries: memory in SysV segments that outlive their process
# needs: memory_limit
# outcome: memory_limit error killed
# end: no
libc.shmat.restype = ctypes.c_void_p
total = 0
while total < 3000:
    id = libc.shmget(0, 32 << 20, 0o1600)
    if id < 0:
        print(os.strerror(ctypes.get_errno()))
        sys.exit(1)
    address = libc.shmat(id, None, 0)
    ctypes.memset(address, 1, 32 << 20)
    libc.shmdt(ctypes.c_void_p(address))
    total += 32
    if total > 700:
        breach(total, "MiB")
        break
