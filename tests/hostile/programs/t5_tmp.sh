# threat: T5
# tries: fill /tmp
# outcome: error disk_limit
# needs: memory_limit
# end: no
i=0
while head -c 20M /dev/zero >/tmp/fill$i; do i=$((i + 1)); [ $i -lt 100 ] || { echo "BREACH: 2 GB in /tmp"; exit; }; done
du -sm /tmp
exit 1
