# threat: T5
# tries: daemons by double fork, in sessions of their own, that ignore signals
for i in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (1, 2, 3, 15):
                signal.signal(number, signal.SIG_IGN)
            os.chdir("/")
            for fd in range(3):
                os.dup2(os.open("/dev/null", os.O_RDWR), fd)
            while True:
                time.sleep(1)
        os._exit(0)
time.sleep(0.2)
print("END")
