# threat: T5
# tries: compute without end on all processors
# outcome: timeout
# timeout: 2
# end: no
for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done
wait
