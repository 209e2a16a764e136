# threat: T1
# tries: learn about the host from the table of mounts; the state directory's name must not be there (that of the
# directories shown at /opt/belljar is: docs/security.md)
cat /proc/self/mountinfo /proc/mounts /proc/1/mountinfo /proc/self/mountstats
if grep -q @STATE@ /proc/self/mountinfo /proc/mounts /proc/swaps /proc/partitions 2>/dev/null; then echo "BREACH: the state directory's name"; fi
if grep -v ' /opt/belljar/' /proc/self/mountinfo | grep -E ' (/root|/home|/var/lib|/work)[/ ]'; then echo "BREACH: a host directory is mounted"; fi
awk '$4 !~ /(^|,)ro(,|$)/ && $2 !~ "^/(tmp|workspace|dev/shm|dev/pts|run/belljar|proc)" {print "BREACH: writable mount " $0}' /proc/mounts
awk '$4 !~ /nosuid/ {print "BREACH: without nosuid " $0}' /proc/mounts
awk '$4 !~ /nodev/ && $2 !~ "^/(dev|proc)" {print "BREACH: without nodev " $0}' /proc/mounts
echo END
