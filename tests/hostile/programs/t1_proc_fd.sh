# threat: T1
# tries: reach what other processes hold open, and what the server's parent left open
for dir in /proc/[0-9]*/fd /proc/[0-9]*/task/*/fd; do
    ls -la "$dir"
    for fd in "$dir"/*; do
        case $(readlink "$fd") in pipe:* | /dev/null | /proc/*) ;; *) timeout 1 head -c 300 "$fd" ;; esac
        for file in @FILES@; do head -c 300 "$fd$file"; done
    done
done 2>&1
for fd in $(seq 3 1100); do
    if [ -e "/proc/$$/fd/$fd" ] && [ "$fd" != 255 ]; then echo "BREACH: descriptor $fd: $(readlink /proc/$$/fd/$fd)"; fi
done
echo END
