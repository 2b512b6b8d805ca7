#!/bin/sh
# One would guess: dmsetup status only reads what the kernel knows, so that a monitor may run it as often as it likes.
#
# What happens (Linux 6.12, dmsetup 1.02): the status of a thin pool commits the metadata of the pool first
# (pool_status in drivers/md/dm-thin.c, that of a cache does so, too): writes and flushes on the disks that one
# measures, for which the command waits. --noflush leaves that out, and the numbers are then those of the last commit.
#
# Needs root, dmsetup, losetup and a kernel with dm-thin-pool, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in dmsetup losetup; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done
modprobe dm-thin-pool 2>/dev/null || true
dmsetup targets 2>/dev/null | grep -q '^thin-pool' || { echo "needs a kernel with dm-thin-pool" >&2; exit 77; }

home=$(mktemp -d)
metadata=
data=
pool=finding-pool-$$
thin=finding-thin-$$
clean_up() {
    for name in "$thin" "$pool"; do
        dmsetup info "$name" >/dev/null 2>&1 && dmsetup remove --retry "$name"
    done
    for device in $metadata $data; do
        losetup -d "$device"
    done
    rm -rf "$home"
}
trap clean_up EXIT
truncate -s 16M "$home/metadata"
truncate -s 256M "$home/data"
metadata=$(losetup --find --show "$home/metadata") || exit 77
data=$(losetup --find --show "$home/data") || exit 77
dmsetup create "$pool" --table "0 524288 thin-pool $metadata $data 128 0"
dmsetup mknodes
dmsetup message "$pool" 0 "create_thin 0"
dmsetup create "$thin" --table "0 524288 thin /dev/mapper/$pool 0"
dmsetup mknodes

# The writes of the metadata's device so far.
writes() {
    awk '{ print $5 }' "/sys/block/${metadata#/dev/}/stat"
}

# The writes that ten commands cause, each right behind a write to a new block.
caused() {
    sum=0
    for block in $(seq "$1" $(($1 + 9))); do
        dd if=/dev/zero of="/dev/mapper/$thin" bs=64k count=1 seek="$block" oflag=direct 2>/dev/null
        before=$(writes)
        $2 >>"$home/status"
        sum=$((sum + $(writes) - before))
    done
    echo "$sum"
}

plain=$(caused 0 "dmsetup status $pool")
noflush=$(caused 100 "dmsetup status --noflush $pool")
echo "Linux $(uname -r), $(dmsetup --version | sed -n 's/^Library version: *//p')"
echo "ten times dmsetup status: $plain writes to the metadata's device; with --noflush: $noflush"
[ "$plain" -ge 10 ] && [ "$noflush" -lt "$plain" ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
