# threat: T4
# tries: flood pid 1 with orphans to be reaped, with statuses of all kinds
# outcome: error process_limit
# exit: 9
# timeout: 20
for i in $(seq 1 60); do
    (for j in 1 2 3 4 5 6 7 8 9 10; do (exit "$j") & (kill -9 $BASHPID) & done; exit 0) &
    [ $((i % 3)) = 0 ] && wait
done
wait
echo END
exit 9
