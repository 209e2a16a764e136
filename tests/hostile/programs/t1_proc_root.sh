# threat: T1
# tries: leave the root through /proc/PID/root and /proc/PID/cwd of every process
# trips: received
for file in @FILES@; do
    for door in /proc/1/root /proc/self/root /proc/*/root /proc/1/cwd /proc/*/cwd /proc/*/task/*/root; do
        cat "$door$file" "$door/..$file" "$door/../../../..$file"
    done
done
readlink /proc/1/root /proc/1/cwd /proc/1/exe
echo END
