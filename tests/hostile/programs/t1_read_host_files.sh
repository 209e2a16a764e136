# threat: T1
# tries: read secret files of the host by their names, and what every intruder looks for first
# trips: received
for file in @FILES@ /etc/shadow /etc/gshadow /root/.bash_history /root/.ssh/id_rsa /etc/machine-id \
    /var/lib/dpkg/status /var/log/syslog /etc/hostname /etc/sudoers /run/utmp; do
    head -c 2000 "$file"
done
ls -la / /root /home /var /run /mnt /media /srv /opt /boot /tmp
find / -xdev -name 'belljar-canary*' -not -path '/proc/*' 2>/dev/null
grep -rs CANARY- /etc /run /var /tmp /home /root /dev/shm 2>/dev/null
echo END
