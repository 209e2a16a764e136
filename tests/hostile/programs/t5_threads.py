# threat: T5
# tries: threads without end
# needs: pids_limit
# outcome: process_limit
# end: no
import threading

made = 0
try:
    while made < 5000:
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        made += 1
except RuntimeError as error:
    print(made, "threads, then", error, flush=True)
    if made > 200:
        breach(made, "threads")
    os._exit(1)
breach(made, "threads")
