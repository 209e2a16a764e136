# threat: T1
# tries: signal processes of the host by their numbers there
# trips: bystanders
for pid in @PIDS@ @NEIGHBOUR_PID@; do
    kill -STOP "$pid" && echo "BREACH: stopped $pid"
    kill -TERM "$pid" && echo "BREACH: ended $pid"
    kill -KILL "$pid" && echo "BREACH: killed $pid"
    kill -KILL "-$pid" && echo "BREACH: killed the group $pid"
    ls -d "/proc/$pid" && echo "BREACH: saw $pid"
done
echo END
