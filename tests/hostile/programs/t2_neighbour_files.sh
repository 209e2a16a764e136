# threat: T2
# tries: find another session's files
find / -xdev -name secret -exec cat {} + 2>/dev/null
cat /proc/[0-9]*/root/workspace/secret /proc/[0-9]*/cwd/secret /tmp/secret /dev/shm/secret /workspace/secret /run/belljar/* /var/tmp/secret
ls -la /workspace /tmp /dev/shm /run /run/belljar /workspace/.. /run/user
for dir in /workspace /tmp /dev/shm /var/tmp; do
    [ -z "$(ls -A "$dir" | grep -v '^\.code\.py$')" ] || echo "BREACH: left over in $dir: $(ls -A "$dir")"
done
echo END
