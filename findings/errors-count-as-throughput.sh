#!/bin/sh
# One would guess: /proc/diskstats counts what was read and written. A disk that fails every write has written nothing,
# or its failures are in a counter of their own.
#
# What happens (Linux 6.18): a request that fails counts as a completed write with all of its sectors and its time
# (blk_account_io_completion and blk_account_io_done in block/blk-mq.c, called for each status), and no counter has
# failures. A disk that answers each write with an error at once is, by iostat, a fast one with a high throughput.
#
# Needs root, losetup and python3, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in losetup python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

home=$(mktemp -d)
device=
clean_up() {
    [ -z "$device" ] || losetup -d "$device"
    umount -l "$home"
    rm -rf "$home"
}
mount -t tmpfs -o size=1m none "$home" || { rm -rf "$home"; exit 77; }
trap clean_up EXIT
truncate -s 64M "$home/file"
device=$(losetup --find --show "$home/file") || exit 77
dd if=/dev/zero of="$device" bs=64k oflag=direct 2>/dev/null || true # the first MiB is all that the file can take

python3 -I - "$device" <<'PYTHON'
import mmap
import os
import pathlib
import sys

WRITES, BYTES, FIRST = 500, 65_536, 2**24
device = sys.argv[1]
statistics = pathlib.Path("/sys/block", pathlib.Path(device).name, "stat")
disk = os.open(device, os.O_WRONLY | os.O_DIRECT)
memory = mmap.mmap(-1, BYTES)
failed = 0
before = [int(text) for text in statistics.read_text().split()]
for number in range(WRITES):
    try:
        os.pwritev(disk, [memory], FIRST + number * BYTES)
    except OSError:
        failed += 1
after = [int(text) for text in statistics.read_text().split()]

writes, sectors, write_ms = (after[column] - before[column] for column in (4, 6, 7))
print(f"Linux {os.uname().release}: a disk without room, {WRITES} writes of {BYTES // 1024} KiB, {failed} failed")
print(f"its counters: {writes} writes, {sectors // 2} KiB, {write_ms / writes:.2f} ms each")
if failed < WRITES or writes < WRITES or sectors < WRITES * BYTES // 512:
    sys.exit("the behaviour has changed")
PYTHON
