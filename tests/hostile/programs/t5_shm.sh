# threat: T5
# tries: fill /dev/shm
# outcome: error disk_limit
# needs: memory_limit
# end: no
head -c 1G /dev/zero >/dev/shm/fill && echo "BREACH: 1 GB in /dev/shm"
[ "$(du -sm /dev/shm | cut -f1)" -le 70 ] || echo "BREACH: $(du -sm /dev/shm)"
exit 1
