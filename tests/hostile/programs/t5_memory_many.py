# threat: T5
# tries: memory in many processes, each below the limit
# needs: memory_limit
# outcome: memory_limit ok error killed
# timeout: 15
# end: no
children = []
for _ in range(16):
    pid = os.fork()
    if pid == 0:
        held = [bytearray(b"x" * (1 << 20)) for _ in range(60)]
        time.sleep(2)
        os._exit(0)
    children.append(pid)
dead = [os.waitpid(pid, 0)[1] for pid in children]
alive = dead.count(0)
print(alive, "of 16 had 60 MiB at once", flush=True)
if alive > 10:
    breach(alive * 60, "MiB")
sys.exit(1)
