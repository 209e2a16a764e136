# threat: T1
# tries: widen the user namespace's maps
cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups
for pid in 1 self $$; do
    for map in uid_map gid_map; do
        echo "0 0 4294967295" >/proc/$pid/$map && echo "BREACH: wrote /proc/$pid/$map"
    done
    echo allow >/proc/$pid/setgroups && echo "BREACH: wrote setgroups"
    echo -1000 >/proc/$pid/oom_score_adj && [ "$pid" = 1 ] && echo "BREACH: wrote oom_score_adj of pid 1"
    echo 0 >/proc/$pid/loginuid && echo "note: loginuid of $pid"
done
echo END
