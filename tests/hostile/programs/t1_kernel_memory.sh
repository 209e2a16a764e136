# threat: T1
# tries: read the kernel's memory, log and symbols
for file in /dev/mem /dev/kmem /dev/port /dev/kmsg /proc/kcore /proc/kmsg /proc/kallsyms /proc/kpagecount /proc/kpageflags \
    /proc/slabinfo /proc/vmallocinfo /proc/timer_list /proc/sched_debug /proc/keys /proc/key-users /proc/latency_stats /proc/config.gz \
    /proc/cmdline; do
    bytes=$(timeout 2 head -c 4096 "$file" 2>/dev/null | wc -c)
    [ "$bytes" = 0 ] || echo "BREACH: $bytes bytes of $file"
done
dmesg >/tmp/dmesg 2>/dev/null && [ -s /tmp/dmesg ] && echo "BREACH: dmesg"
echo END
