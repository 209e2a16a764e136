# threat: T5
# tries: outlive the limit as a stopped process
# outcome: timeout
# timeout: 1
# end: no
sleep 1000 & kill -STOP $!
kill -STOP $$
