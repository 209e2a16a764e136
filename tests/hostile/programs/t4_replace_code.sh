# threat: T4
# tries: change the file from which code is run, for this call and the next
# after: code
ls -la /run/belljar /run
echo 'echo FORGED' >/run/belljar/code && echo "BREACH: wrote the code"
rm -f /run/belljar/code && [ ! -e /run/belljar/code ] && echo "note: removed"
mv /run/belljar /run/other && echo "BREACH: moved the directory"
ln -sf /etc/passwd /run/belljar/code && echo "note: linked"
chmod 777 /run/belljar/code && echo "BREACH: chmod"
echo 'echo FORGED' >/run/belljar/code
mkdir /run/belljar/code 2>/dev/null
echo END
