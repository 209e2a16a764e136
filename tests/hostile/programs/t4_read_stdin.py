# threat: T4
# tries: read the protocol from standard input
data = sys.stdin.buffer.read()
print("stdin:", data)
if data:
    breach("standard input holds", data)
try:
    os.write(0, b"x" * 100)
    breach("wrote to standard input") if os.readlink("/proc/self/fd/0") != "/dev/null" else None
except OSError as error:
    print(error.strerror)
print("END")
