# threat: T5
# tries: memory in files that have no name
# needs: memory_limit
# outcome: memory_limit error killed
# end: no
total = 0
while total < 3000:
    fd = os.memfd_create("x")
    for _ in range(16):
        os.write(fd, b"x" * (1 << 20))
        total += 1
    if total > 700:
        breach(total, "MiB")
        break
