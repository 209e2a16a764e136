# threat: T1
# tries: make device nodes of disks, memory and loop devices in every writable place, and read them
for place in /tmp /workspace /dev/shm /dev; do
    for node in "b 8 0" "b 253 0" "b 254 0" "b 7 0" "b 259 0" "c 1 1" "c 1 2" "c 1 4" "c 1 11" "c 10 229" "c 10 200" "c 10 232" "c 4 1" "c 5 1"; do
        # shellcheck disable=SC2086
        if mknod "$place/node" $node; then
            head -c 100 "$place/node" >/dev/null && echo "BREACH: read the device $node"
            echo "BREACH: made the device $node in $place"
        fi
        rm -f "$place/node"
    done
done
echo END
