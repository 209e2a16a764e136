# threat: T5
# tries: memory in page tables: one byte in each of many far pages
# needs: memory_limit
# outcome: memory_limit error killed timeout
# timeout: 15
# end: no
import mmap

for _ in range(8):
    if os.fork() == 0:
        maps = []
        while True:
            memory = mmap.mmap(-1, 1 << 36, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
            maps.append(memory)
            for at in range(0, 1 << 36, 1 << 21):
                memory[at] = 1
time.sleep(6)
sys.exit(1)
