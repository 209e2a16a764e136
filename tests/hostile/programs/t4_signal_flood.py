# threat: T4
# tries: bury pid 1 and the own parent under queued signals
# exit: 4
# outcome: error
sent = 0
end = time.time() + 1
while time.time() < end:
    for number in (10, 12, 17, 34, 40, 64, 23, 29):
        try:
            os.kill(1, number)
            sent += 1
        except OSError:
            pass
print(sent)
print("END", flush=True)
os._exit(4)
