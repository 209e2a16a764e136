# threat: T1
# tries: find the server's environment and arguments
# trips: received
env
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/environ /proc/cmdline /proc/[0-9]*/task/*/cmdline | tr '\0' '\n'
ps auxwwe
strings /proc/self/maps /proc/[0-9]*/auxv
cat /proc/[0-9]*/stat /proc/[0-9]*/comm
for pid in @PIDS@; do tr '\0' '\n' <"/proc/$pid/cmdline"; tr '\0' '\n' <"/proc/$pid/environ"; done
echo END
