# threat: T5
# tries: descriptors without end
# outcome: error
# end: no
held = []
try:
    while len(held) < 100000:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(len(held), error.strerror, flush=True)
if len(held) > 1024:
    breach(len(held), "descriptors")
os._exit(1)
