# threat: T4
# tries: end, stop and confuse the agent with every signal
# outcome: error
# exit: 9
for n in $(seq 1 64); do kill -"$n" 1; done 2>/dev/null
trap '' HUP INT TERM
kill -HUP -1; kill -INT -1; kill -TERM -1
kill -0 1 2>/dev/null
ps -o pid,stat,comm 1
echo END
exit 9
