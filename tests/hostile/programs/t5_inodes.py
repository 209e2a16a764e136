# threat: T5
# tries: as many files as possible
# outcome: disk_limit
# timeout: 25
# end: no
made = 0
try:
    os.makedirs("/workspace/d")
    while made < 400000:
        os.close(os.open(f"/workspace/d/{made}", os.O_CREAT | os.O_WRONLY))
        made += 1
except OSError as error:
    print(made, error.strerror, flush=True)
if made > 110000:
    breach(made, "files")
sys.exit(1)
