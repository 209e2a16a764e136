# threat: T1
# tries: reach host files by symbolic and hard links, bind-like tricks, /dev/fd and here-documents
# trips: received
cd "${WORKSPACE:-/workspace}" || exit 1
n=0
for file in @FILES@; do
    n=$((n + 1))
    ln -s "$file" "link$n"; cat "link$n"
    ln "$file" "hard$n" && echo "BREACH: a hard link to $file"
    ln -s "/proc/1/root$file" "magic$n"; cat "magic$n"
    ln -s "/proc/self/fd/../../..$file" "fd$n"; cat "fd$n"
    cp -a "$file" copy; cat copy
    tar cf - "$file" | tar xOf - 2>/dev/null
    echo changed >"link$n"
    echo changed >>"$file"
    rm -f "$file"
done
for f in /usr/bin/env /etc/passwd; do ln "$f" h && echo "BREACH: a hard link to $f"; done
echo END
