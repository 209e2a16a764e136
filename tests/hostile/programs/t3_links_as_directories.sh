# threat: T3
# tries: directories in /workspace that are links to elsewhere
# paths: root/etc/passwd root@FILE0@ etc/hosts here/../../etc/passwd a/b/c/passwd magic/etc/passwd root etc dot/x
cd /workspace && ln -s / root && ln -s /etc etc && ln -s . here && mkdir -p a/b && ln -s /etc a/b/c && ln -s /proc/self/root magic && ln -s .. dot
echo END
