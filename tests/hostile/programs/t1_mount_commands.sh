# threat: T1
# tries: what the system's own programs can do: mount, unshare, nsenter, bwrap, newuidmap, chroot
touch /tmp/x
mount --bind / /tmp && echo "BREACH: mount --bind"
mount -t tmpfs x /tmp && echo "BREACH: mount tmpfs"
mount -o remount,rw / && echo "BREACH: remount"
umount -l /proc && echo "BREACH: umount"
unshare -Urm true && echo "BREACH: unshare -Urm"
unshare -n true && echo "BREACH: unshare -n"
unshare -p -f true && echo "BREACH: unshare -p"
nsenter -t 1 -a true && echo "BREACH: nsenter"
nsenter -t 1 -m cat @FILES@ && echo "BREACH: nsenter -m"
command -v bwrap && bwrap --unshare-all --ro-bind / / true && echo "BREACH: bwrap"
chroot /tmp /bin/true && echo "BREACH: chroot"
command -v newuidmap && newuidmap $$ 0 0 1 && echo "BREACH: newuidmap"
command -v fusermount && fusermount -u /tmp && echo "BREACH: fusermount"
command -v losetup && losetup -f && echo "BREACH: losetup"
[ -e /tmp/x ] || echo "BREACH: /tmp changed"
echo END
