# threat: T5
# tries: memory in pipe and socket buffers
# needs: memory_limit
# outcome: memory_limit error ok killed
# end: no
import fcntl

total = 0
held = []
for i in range(20):
    if os.fork() == 0:
        try:
            while True:
                reader, writer = os.pipe()
                held.append((reader, writer))
                fcntl.fcntl(writer, 1031, 1 << 20)
                os.set_blocking(writer, False)
                try:
                    while True:
                        total += os.write(writer, b"x" * 65536)
                except BlockingIOError:
                    pass
        except OSError as error:
            print(total >> 20, "MiB in pipes:", error.strerror, flush=True)
        try:
            while True:
                one, two = socket.socketpair()
                held.append((one, two))
                one.setblocking(False)
                try:
                    while True:
                        total += one.send(b"x" * 65536)
                except BlockingIOError:
                    pass
        except OSError as error:
            pass
        time.sleep(2)
        os._exit(0)
time.sleep(3)
