# threat: T5
# tries: a piece of output for every byte, by alternating between the streams
# timeout: 10
for i in range(60000):
    os.write(1, b"o")
    os.write(2, b"e")
print("END")
