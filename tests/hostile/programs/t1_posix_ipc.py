# threat: T1
# tries: open the host's POSIX shared memory, semaphores and message queues
# trips: received
# arch: x86_64
for place in ("/dev/shm", "/dev/mqueue", "/run/shm"):
    try:
        print(place, os.listdir(place))
    except OSError as error:
        print(place, error.strerror)
show("/dev/shm/@IPC_NAME@")
for flags in (os.O_RDONLY, os.O_RDWR):
    queue, error = call("mq_open", b"@IPC_NAME@", flags | os.O_NONBLOCK, 0, None)
    print("mq_open", queue, error)
    if queue >= 0:
        buffer = ctypes.create_string_buffer(8192)
        size, error = call(243, queue, buffer, 8192, None, None)
        print(buffer.raw[: max(0, size)])
        breach("opened the host's message queue")
print("END")
