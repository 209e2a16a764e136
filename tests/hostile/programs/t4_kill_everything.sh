# threat: T4
# tries: kill everything that it can see, itself included
# outcome: killed error
# end: no
sleep 100 & setsid sleep 100 &
kill -9 -1
kill -9 $$
