# threat: T1
# tries: type into a terminal (TIOCSTI, TIOCLINUX), also with the high half of the argument set (CVE-2019-10063)
# arch: x86_64
import pty

targets = [0, 1, 2]
try:
    targets.append(os.open("/dev/tty", os.O_RDWR))
except OSError as error:
    print("/dev/tty", error.strerror)
try:
    main, child = pty.openpty()
    targets += [main, child]
except OSError as error:
    print("openpty", error)
letter = ctypes.create_string_buffer(b"x")
for fd in targets:
    for request in (
        0x5412,
        0x541C,
        0x5423,
        0x4B3A,
        0x4B46,
        0x4B67,
    ):  # TIOCSTI TIOCLINUX TIOCSETD KDSETMODE KDGKBENT …
        for stray in (0, 1 << 32, 0xFFFFFFFF << 32):
            value = request | stray
            refused("ioctl", fd, value - (1 << 64) if value >= 1 << 63 else value, letter)
print("END")
