# threat: T4
# tries: keep the call open by holding its pipes after the main process has ended
# within: 2
setsid sleep 60 &
(setsid bash -c 'exec sleep 60' &)
echo END
