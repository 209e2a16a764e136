# threat: T5
# tries: take memory without end
# needs: memory_limit
# outcome: memory_limit
# end: no
held = []
total = 0
while total < 4096:
    held.append(bytearray(os.urandom(1 << 16) * 16 * 8))
    total += 8
    if total % 64 == 0:
        print(total, "MiB", flush=True)
    if total > 700:
        breach(total, "MiB")
