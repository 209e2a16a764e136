# threat: T2
# tries: use up what the kernel counts by user: inotify instances, watches, pipes, pending signals
made = 0
while made < 20000:
    fd = libc.inotify_init1(0)
    if fd < 0:
        break
    made += 1
print("inotify instances", made, os.strerror(ctypes.get_errno()))
for i in range(0, 900, 2):
    try:
        pair = os.pipe()
        import fcntl

        fcntl.fcntl(pair[1], 1031, 1 << 20)
    except OSError as error:
        print(i, error.strerror)
        break
print("END")
