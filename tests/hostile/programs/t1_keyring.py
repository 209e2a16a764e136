# threat: T1
# tries: read the keys that the server's parent left in the session and user keyrings
# trips: received
# arch: x86_64
buffer = ctypes.create_string_buffer(4096)
for ring in (-1, -2, -3, -4, -5, -6, -7, -8):
    for operation in (11, 6, 10, 5, 0, 8):  # READ DESCRIBE SEARCH SETPERM GET_KEYRING_ID LINK
        result, error = call("keyctl", operation, ring, buffer, 4096)
        print("keyctl", operation, ring, result, error)
        if result != -1 or error not in ("EPERM", "ENOSYS"):
            breach("keyctl", operation, ring, result, error)
for ring in (-3, -4, -5):
    for serial in [call("keyctl", 10, ring, b"user", b"belljar-canary", 0)[0]]:
        if serial > 0:
            size = call("keyctl", 11, serial, buffer, 4096)[0]
            print("key:", buffer.raw[: max(size, 0)])
result, error = call("request_key", b"user", b"belljar-canary", None, -3)
print("request_key", result, error)
if result > 0:
    size = call("keyctl", 11, result, buffer, 4096)[0]
    print("key:", buffer.raw[: max(size, 0)])
    breach("request_key")
refused("add_key", b"user", b"x", b"y", 1, -4)
show("/proc/keys")
show("/proc/key-users")
print("END")
