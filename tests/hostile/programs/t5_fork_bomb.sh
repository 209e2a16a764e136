# threat: T5
# tries: the classic fork bomb
# needs: pids_limit
# outcome: process_limit timeout ok error
# timeout: 3
# end: no
bomb() { bomb | bomb & }
bomb
sleep 1
bomb
wait
