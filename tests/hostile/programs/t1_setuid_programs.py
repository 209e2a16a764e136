# threat: T1
# tries: gain from set-uid programs of the host and from own set-uid files
import shutil, stat, subprocess

found = []
for top, dirs, files in os.walk("/usr"):
    if top.count("/") > 3 or top in ("/usr/share", "/usr/include", "/usr/src"):
        dirs[:] = []
    for name in files:
        path = os.path.join(top, name)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and mode & 0o6000:
            found.append(path)
print(found)
for path in found[:40]:
    try:
        process = subprocess.Popen(
            [path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(0.01)
        try:
            ids = [
                line
                for line in open(f"/proc/{process.pid}/status")
                if line.startswith(("Uid", "Gid", "CapEff"))
            ]
            print(path, ids)
            if ids and (ids[0].split()[2] != str(os.getuid()) or int(ids[2].split()[1], 16)):
                breach("gained by", path, ids)
        except OSError:
            pass
        process.kill()
        process.wait()
    except OSError as error:
        print(path, error)
for place in ("/tmp", "/workspace", "/dev/shm"):
    copy = place + "/id"
    shutil.copy("/usr/bin/id", copy)
    os.chmod(copy, 0o6755)
    for owner in (0, 1, 65534):
        try:
            os.chown(copy, owner, owner)
            if owner != os.getuid():
                breach("gave a file to", owner)
        except OSError:
            pass
    out = subprocess.run([copy], capture_output=True, text=True)
    print(out.stdout, out.stderr)
    if "euid=" in out.stdout or "uid=0" in out.stdout:
        breach("a set-uid file works", out.stdout)
print("END")
