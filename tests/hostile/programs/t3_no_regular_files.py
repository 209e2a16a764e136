# threat: T3
# tries: FIFOs, sockets, devices and directories where a file is expected
# paths: fifo socket zero null dir tty fifo/x full random
os.chdir("/workspace")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.mkdir("dir")
for name in ("zero", "null", "tty", "full", "random"):
    os.symlink("/dev/" + name, name)
print("END")
