# threat: T4
# tries: stop everything, pid 1 too, so that nobody can answer
# outcome: timeout
# timeout: 1
# end: no
sleep 100 &
kill -STOP 1
kill -STOP -1
kill -STOP $$
