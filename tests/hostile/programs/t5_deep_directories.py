# threat: T5
# tries: a directory tree too deep to walk, for whoever lists or deletes it
# after: list
os.chdir("/workspace")
depth = 0
try:
    while depth < 20000:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
        depth += 1
except OSError as error:
    print(error.strerror)
print(depth)
print("END")
