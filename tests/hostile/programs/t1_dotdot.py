# threat: T1
# tries: climb above the root with .., by paths and by descriptors
# trips: received
for start in ("/", "/usr", "/proc", "/dev", "/workspace", "/tmp", "/run/belljar"):
    try:
        fd = os.open(start, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        print(start, error)
        continue
    for depth in (0, 1, 5, 40):
        for file in "@FILES@".split():
            try:
                found = os.open("../" * depth + "." + file, os.O_RDONLY, dir_fd=fd)
                print(os.read(found, 1000))
            except OSError as error:
                print(start, depth, error.strerror)
os.chdir("/")
for _ in range(50):
    os.chdir("..")
for file in "@FILES@".split():
    show("." + file)
print("END")
