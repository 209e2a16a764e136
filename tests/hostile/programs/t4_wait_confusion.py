# threat: T4
# tries: make the agent take an orphan's success for the main process's end
# outcome: error
# exit: 9
for _ in range(30):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.05)
            os._exit(0)
        os._exit(0)
time.sleep(0.6)
print("END", flush=True)
os._exit(9)
