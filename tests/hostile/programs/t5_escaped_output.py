# threat: T5
# tries: output whose JSON form is six times its size
# outcome: output_limit
# end: no
while True:
    os.write(1, b"\x01" * 65536)
