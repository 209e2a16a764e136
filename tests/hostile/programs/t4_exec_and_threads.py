# threat: T4
# tries: end the main thread or replace the program from a thread, so that its end is told wrongly
# outcome: error
# exit: 6
import threading


def work():
    time.sleep(0.2)
    print("END", flush=True)
    os.execv("/bin/sh", ["sh", "-c", "exit 6"])


threading.Thread(target=work).start()
libc.syscall(60, 0)  # exit of the main thread only
