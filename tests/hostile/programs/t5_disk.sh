# threat: T5
# tries: fill /workspace
# outcome: disk_limit
# needs: memory_limit
# end: no
i=0
while head -c 20M /dev/zero >/workspace/fill$i; do i=$((i + 1)); [ $i -lt 100 ] || { echo "BREACH: 2 GB in /workspace"; exit; }; done
exit 1
