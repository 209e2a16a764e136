# threat: T4
# tries: confuse what reads /proc: names of processes with newlines, brackets and forged fields
cp /usr/bin/sleep "/tmp/x) R 1 1 1
Uid: 0 0 0 0
" && "/tmp/x) R 1 1 1
Uid: 0 0 0 0
" 30 &
bash -c 'printf "1 (a) Z 1\n" >/proc/self/comm; sleep 30' &
sleep 0.2
echo END
