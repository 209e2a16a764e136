# threat: T5
# tries: zombies that nobody takes
# outcome: error process_limit
# needs: pids_limit
# end: no
made = 0
try:
    while made < 5000:
        if os.fork() == 0:
            os._exit(0)
        made += 1
except OSError as error:
    print(made, error.strerror, flush=True)
if made > 200:
    breach(made, "zombies")
os._exit(1)
