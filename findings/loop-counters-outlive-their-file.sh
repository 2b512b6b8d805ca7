#!/bin/sh
# One would guess: a loop device that gets its first file, or another file than before, begins with counters of 0, as a
# disk that is plugged in does.
#
# What happens (Linux 6.18, util-linux 2.38): the counters of /proc/diskstats belong to the disk loopN, which stays when
# its file goes (loop_clr_fd in drivers/block/loop.c), so those of the new file go on where those of the old one
# stopped. Only the number in diskseq is another one (Linux 5.15). A tool that takes the first line that it sees of a
# device as the I/O of that device since then counts I/O of a file that is gone.
#
# Needs root, losetup and python3, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
command -v losetup >/dev/null || { echo "needs losetup" >&2; exit 77; }

home=$(mktemp -d)
device=
trap '[ -z "$device" ] || losetup -d "$device"; rm -rf "$home"' EXIT
truncate -s 8M "$home/first" "$home/second"

device=$(losetup --find --show "$home/first") || exit 77
disk=/sys/block/${device#/dev/}
first_diskseq=$(cat "$disk/diskseq")
dd if="$device" of=/dev/null bs=64k iflag=direct 2>/dev/null
read -r first_reads rest <"$disk/stat"
losetup -d "$device"
losetup "$device" "$home/second"
second_diskseq=$(cat "$disk/diskseq")
read -r second_reads rest <"$disk/stat"

echo "Linux $(uname -r), $(losetup --version)"
echo "first file: diskseq $first_diskseq, $first_reads reads at its end"
echo "second file: diskseq $second_diskseq, $second_reads reads at its begin"
[ "$second_reads" -ge "$first_reads" ] && [ "$first_reads" -ge 128 ] && [ "$second_diskseq" != "$first_diskseq" ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
