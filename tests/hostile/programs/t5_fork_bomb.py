# threat: T5
# tries: fork in a loop, children too, and report the failure
# needs: pids_limit
# outcome: process_limit timeout
# timeout: 5
# end: no
import os, time

start = time.time()
while time.time() - start < 3:
    try:
        os.fork()
    except OSError as error:
        print("refused:", error.strerror, flush=True)
        time.sleep(1)
        os._exit(1)
