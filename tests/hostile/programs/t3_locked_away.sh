# threat: T3
# tries: files without permission, locked, leased, busy
# paths: unreadable closed/x locked running
cd /workspace && echo x >unreadable && chmod 000 unreadable && mkdir closed && echo x >closed/x && chmod 000 closed
echo x >locked && python3 -c 'import fcntl; f = open("locked"); fcntl.fcntl(f, 1024, 1)'
cp /usr/bin/sleep running
echo END
