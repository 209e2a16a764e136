# threat: T1
# tries: "shocker": guess file handles and open the host's root directory by inode number
# arch: x86_64
mounts = [
    os.open(p, os.O_RDONLY)
    for p in ("/", "/usr", "/etc/alternatives", "/workspace", "/proc")
    if os.path.exists(p)
]
for mount in mounts:
    for inode in (1, 2, 128):
        handle = ctypes.create_string_buffer(struct.pack("<IiII", 8, 1, inode, 0))
        refused("open_by_handle_at", mount, handle, os.O_RDONLY)
refused(
    "name_to_handle_at",
    -100,
    b"/",
    ctypes.create_string_buffer(136),
    ctypes.create_string_buffer(4),
    0,
)
print("END")
