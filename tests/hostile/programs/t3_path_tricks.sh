# threat: T3
# tries: paths that mean something else than they look like
# paths: ../etc/passwd /etc/passwd /workspace/../etc/passwd /workspacex/y ./../tmp/x //etc/passwd /proc/self/environ /workspace//../../@FILE0@ ~/x /run/belljar/code
echo secret >/tmp/x
mkdir -p '/workspace/~' '/workspace/..x'
echo END
