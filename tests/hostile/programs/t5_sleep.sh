# threat: T5
# tries: sleep beyond the limit
# outcome: timeout
# timeout: 1
# end: no
echo begun
sleep 1000
