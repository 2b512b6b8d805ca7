#!/bin/sh
# One would guess: blkio.throttle.io_serviced of a cgroup (version 1), from which container tools have their I/Os, has
# a row for each device that the cgroup uses.
#
# What happens (Linux 6.12 and 6.18): a device has a row only after some cgroup has had a limit for it, because
# blk-throttle begins with a device when it is configured (blk_throtl_init in block/blk-throttle.c). I/Os before that are
# missing, and the row stays when the limit goes. On most hosts the file has no device at all. On Linux 6.1 each device
# has a row, which counts only while the device has a limit.
#
# Needs root, Linux 6.10, losetup, python3 and blkio in a hierarchy of version 1, else it exits with 77. Fails if the
# behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in losetup python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done
[ "$(printf '6.10\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.10 ] || { echo "needs Linux 6.10" >&2; exit 77; }

home=$(mktemp -d)
hierarchy=
device=
# Adds (0x4C80) or removes (0x4C81) the loop device with the highest number, so that it is one that nobody has used.
loop_control() {
    python3 -I -c 'import fcntl, sys; fcntl.ioctl(open("/dev/loop-control"), int(sys.argv[1], 16), int(sys.argv[2]))' "$@"
}
clean_up() {
    [ -z "$device" ] || { losetup -d "$device" && sleep 1 && loop_control 4C81 "$index"; }
    [ -z "$hierarchy" ] || umount "$hierarchy"
    rm -rf "$home"
}
trap clean_up EXIT
mkdir "$home/cgroup"
mount -t cgroup -o blkio none "$home/cgroup" 2>/dev/null || { echo "needs blkio in a cgroup version 1" >&2; exit 77; }
hierarchy=$home/cgroup
counts=$hierarchy/blkio.throttle.io_serviced
limits=$hierarchy/blkio.throttle.read_iops_device
[ -e "$counts" ] || { echo "needs a kernel with blk-throttle" >&2; exit 77; }

truncate -s 8M "$home/file"
index=$(($$ % 10000 + 1000))
loop_control 4C80 "$index" || { echo "needs another loop device" >&2; exit 77; }
device=/dev/loop$index
[ -e "$device" ] || mknod "$device" b 7 "$index"
losetup "$device" "$home/file"
number=$(cat "/sys/block/loop$index/dev")

# The reads of the device that the cgroup counts, after 128 more reads; none where it has no row.
counted() {
    dd if="$device" of=/dev/null bs=64k iflag=direct 2>/dev/null
    sed -n "s/^$number Read //p" "$counts"
}

never=$(counted)
echo "$number 1000000" >"$limits"
limited=$(counted)
echo "$number 0" >"$limits"
unlimited=$(counted)

echo "Linux $(uname -r): reads in blkio.throttle.io_serviced after 128 more each"
echo "never limited: '$never', limited: '$limited', no longer limited: '$unlimited'"
[ -z "$never" ] && [ "${limited:-0}" -ge 128 ] && [ "${unlimited:-0}" -ge $((limited + 128)) ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
