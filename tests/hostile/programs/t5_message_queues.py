# threat: T5
# tries: kernel memory in SysV and POSIX message queues
# arch: x86_64
total = 0
message = ctypes.create_string_buffer(8192)
message[0] = b"\x01"
for _ in range(2000):
    queue = libc.msgget(0, 0o1600)
    if queue < 0:
        break
    while libc.msgsnd(queue, message, 8000, 0o4000) == 0:
        total += 8000
print(total >> 20, "MiB in SysV queues")
made = 0
for i in range(2000):
    if call("mq_open", b"q%d" % i, os.O_RDWR | os.O_CREAT, 0o600, None)[0] < 0:
        break
    made += 1
print(made, "POSIX queues")
print("END")
