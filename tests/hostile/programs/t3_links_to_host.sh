# threat: T3
# tries: links in /workspace to files of the host and of the sandbox's own root, for the file tools to follow
# paths: file0 file1 file2 passwd up abs proc self
n=0
for file in @FILES@; do ln -s "$file" "/workspace/file$n"; n=$((n + 1)); done
cd /workspace && ln -s /etc/passwd passwd && ln -s ../etc/passwd up && ln -s /workspace/../etc/hostname abs
ln -s /proc/1/environ proc && ln -s /proc/self/status self
echo END
