# threat: T5
# tries: one file beyond the largest size, written, sparse and preallocated
# outcome: error killed disk_limit
# needs: memory_limit
# end: no
truncate -s 100T /workspace/sparse && echo "BREACH: 100 TB sparse"
truncate -s 300M /workspace/sparse && echo "BREACH: 300 MB sparse"
fallocate -l 10G /workspace/allocated && echo "BREACH: 10 GB allocated"
(head -c 300M /dev/zero >/tmp/large) && echo "BREACH: 300 MB written"
ls -la /workspace /tmp
exit 1
