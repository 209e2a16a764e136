# threat: T1
# tries: the classic escape: chroot into a directory while another one is held open
# trips: received
os.makedirs("/tmp/jail", exist_ok=True)
held = os.open("/", os.O_RDONLY)
refused("chroot", b"/tmp/jail")
os.fchdir(held)
for _ in range(100):
    os.chdir("..")
refused("chroot", b".")
for file in "@FILES@".split():
    show("." + file)
print("END")
