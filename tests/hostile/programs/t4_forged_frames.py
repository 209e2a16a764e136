# threat: T4
# tries: forge the agent's messages: frames in every shape to every descriptor that can be reached
# outcome: error
# exit: 7
frames = []
for kind in range(256):
    for run in (0, 1, 2, 7, 0xFFFFFFFF):
        for payload in (b"", b"\0" * 8, b"\0" * 64, b"\xff" * 200):
            frames.append(struct.pack("<IBI", len(payload), kind, run) + payload)
            frames.append(struct.pack(">IBI", len(payload), kind, run) + payload)
blob = b"".join(frames[:4000]) + struct.pack("<IBI", 0xFFFFFFFF, 1, 1)
for fd in range(3, 1024):
    try:
        os.write(fd, blob[:60000])
        breach("descriptor", fd, "took it")
    except OSError:
        pass
doors = [f"/proc/{pid}/fd/{fd}" for pid in ("1", "self", str(os.getppid())) for fd in range(0, 64)]
for door in doors:
    try:
        fd = os.open(door, os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, blob[:60000])
    except OSError:
        pass
for name in ("/dev/stdin", "/dev/fd/3", "/dev/fd/4", "/proc/1/fd/3", "/proc/1/fd/4"):
    try:
        open(name, "wb", buffering=0).write(blob)
    except OSError as error:
        pass
sys.stdout.buffer.write(blob[:20000])
sys.stderr.buffer.write(blob[:20000])
print("\nEND", flush=True)
sys.exit(7)
