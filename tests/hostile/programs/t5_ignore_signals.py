# threat: T5
# tries: ignore every signal
# outcome: timeout
# timeout: 1
# end: no
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
print("begun", flush=True)
while True:
    time.sleep(1)
