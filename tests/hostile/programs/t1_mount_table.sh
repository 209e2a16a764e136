# threat: T1
# tries: learn about the host from the table of mounts; the state directory's name must not be there (that of the
# directories shown at /opt/belljar is: docs/security.md)
# In containers the engine's own mounts have its options, and tell where its data are; there each is tried.
cat /proc/self/mountinfo /proc/mounts /proc/1/mountinfo /proc/self/mountstats
if grep -q @STATE@ /proc/self/mountinfo /proc/mounts /proc/swaps /proc/partitions 2>/dev/null; then echo "BREACH: the state directory's name"; fi
writable='$4 !~ /(^|,)ro(,|$)/ && $2 !~ "^/(tmp|workspace|dev/shm|dev/pts|run/belljar|proc)"'
if [ @ENGINE@ = docker ]; then
    awk '$4 != "/" && $5 !~ "^/(proc/.*|opt/belljar/(agent|packages)|etc/(hostname|hosts|resolv.conf))$" {print "BREACH: a part of the host " $0}' /proc/self/mountinfo
    awk "$writable {print \$2}" /proc/mounts | while read -r place; do
        if mkdir "$place/breach" 2>/dev/null; then echo "BREACH: writable mount $place"; fi
        if [ -f "$place" ] && [ -w "$place" ]; then echo "BREACH: writable file $place"; fi
    done
    grep -q '^NoNewPrivs:.1$' /proc/self/status || echo "BREACH: suid bits would count"
else
    if grep -v ' /opt/belljar/' /proc/self/mountinfo | grep -E ' (/root|/home|/var/lib|/work)[/ ]'; then echo "BREACH: a host directory is mounted"; fi
    awk "$writable {print \"BREACH: writable mount \" \$0}" /proc/mounts
    awk '$4 !~ /nosuid/ {print "BREACH: without nosuid " $0}' /proc/mounts
    awk '$4 !~ /nodev/ && $2 !~ "^/(dev|proc)" {print "BREACH: without nodev " $0}' /proc/mounts
fi
echo END
