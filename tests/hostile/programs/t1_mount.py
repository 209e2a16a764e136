# threat: T1
# tries: every call that changes mounts, old and new
# arch: x86_64
for source, kind, flags in (
    (b"proc", b"proc", 0),
    (b"tmpfs", b"tmpfs", 0),
    (b"/", None, 4096),
    (b"none", b"cgroup", 0),
    (b"none", b"cgroup2", 0),
    (b"none", b"overlay", 0),
    (b"none", b"mqueue", 0),
    (None, None, 32 | 4096),
    (b"/dev/vda", b"ext4", 0),
    (b"none", b"debugfs", 0),
    (b"none", b"sysfs", 0),
):
    refused("mount", source, b"/tmp", kind, flags, None)
refused("mount", None, b"/", None, 32, None)  # remount, without read-only
for place in (b"/proc", b"/proc/sys", b"/proc/kcore", b"/usr", b"/", b"/dev/null", b"/workspace"):
    refused("umount2", place, 2)
refused("pivot_root", b"/tmp", b"/tmp")
refused("open_tree", -100, b"/", 1)
refused("fsopen", b"proc", 0)
refused("fspick", -100, b"/", 0)
refused("fsmount", 3, 0, 0)
refused("fsconfig", 3, 0, None, None, 0)
refused("move_mount", -100, b"/tmp", -100, b"/workspace", 0)
refused("mount_setattr", -100, b"/", 0x8000, ctypes.create_string_buffer(32), 32)
print("END")
