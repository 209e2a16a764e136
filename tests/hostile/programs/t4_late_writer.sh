# threat: T4
# tries: write into the next call's output after the end
# after: late
(setsid bash -c 'trap "" HUP INT TERM; for i in $(seq 1 100); do echo LATE; echo LATE >&2; sleep 0.05; done' &)
(setsid bash -c 'sleep 0.3; echo LATE; echo LATE >/workspace/late' &)
echo END
