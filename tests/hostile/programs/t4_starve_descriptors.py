# threat: T4
# tries: use up descriptors in many processes, so that the agent gets none
for _ in range(20):
    if os.fork() == 0:
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            pass
        try:
            while True:
                held.append(socket.socketpair())
        except OSError:
            pass
        time.sleep(2)
        os._exit(0)
time.sleep(1)
print("END")
