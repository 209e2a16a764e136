# threat: T4
# tries: outrun the kill by forking all the time, in new sessions, ignoring signals
# outcome: timeout process_limit
# timeout: 2
# end: no
spin() { trap '' INT TERM HUP; while :; do (setsid bash -c "$0" & ) 2>/dev/null; done; }
export -f spin
for _ in 1 2 3; do spin & done
trap '' INT TERM
while :; do :; done
