#!/bin/sh
# One would guess: io_ticks of /proc/diskstats, from which iostat has %util, is the time with any I/O; two programs whose
# reads take as long, and that issue as many per second, have the same %util.
#
# What happens (Linux 6.18): the time is counted in whole ticks of the timer (update_io_ticks in block/blk-core.c). An
# I/O that begins and ends within one tick counts 0 ms, one that is in flight when the tick comes counts a whole tick,
# 4 ms with HZ=250, even if it takes 0.2 ms. By chance that is right on average. But reads that come right behind a tick,
# as those of a program that a timer wakes do, are no load at all, and the same reads right before a tick are a disk
# that is busy all of the time. Up to Linux 6.9 the first I/O within a tick counted a whole tick.
#
# Needs root, Linux 6.10, losetup and python3, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in losetup python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done
[ "$(printf '6.10\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.10 ] || { echo "needs Linux 6.10" >&2; exit 77; }

home=$(mktemp -d)
device=
trap '[ -z "$device" ] || losetup -d "$device"; rm -rf "$home"' EXIT
head -c 1M /dev/zero >"$home/file"
device=$(losetup --find --show "$home/file") || exit 77

python3 -I - "$device" <<'PYTHON'
import mmap
import os
import pathlib
import sys
import time

READS, TRIES, BYTES = 200, 2000, 2**20
MONOTONIC_COARSE = 6  # of linux/time.h; it moves with each tick
device = sys.argv[1]
statistics = pathlib.Path("/sys/block", pathlib.Path(device).name, "stat")
disk = os.open(device, os.O_RDONLY | os.O_DIRECT)
memory = mmap.mmap(-1, BYTES)
tick_s = time.clock_getres(MONOTONIC_COARSE)


def next_tick():
    begin = time.clock_gettime(MONOTONIC_COARSE)
    while time.clock_gettime(MONOTONIC_COARSE) == begin:
        pass
    return time.monotonic()


def io_ticks_ms():
    return int(statistics.read_text().split()[9])


def run(offset_s, reads=READS):
    """Return how long each read took that began so long behind a tick, and the ms of io_ticks of all of them."""
    durations_s, ticks_ms = [], 0
    for _ in range(TRIES):
        before_ms = io_ticks_ms()
        start_s = next_tick() + offset_s
        while time.monotonic() < start_s:
            pass
        os.preadv(disk, [memory], 0)
        duration_s = time.monotonic() - start_s
        if duration_s < 0.2 * tick_s:  # longer ones were held up by another program
            durations_s.append(duration_s)
            ticks_ms += io_ticks_ms() - before_ms
        if len(durations_s) == reads:
            return durations_s, ticks_ms
    print("needs a host that is less busy", file=sys.stderr)
    sys.exit(77)


behind_s, behind_ticks_ms = run(0.1 * tick_s)
# How long before a tick a read is to be called, so that its request is in flight when the tick comes.
leads_s = [step * sorted(behind_s)[READS // 2] / 4 for step in range(1, 7)]
lead_s = max(leads_s, key=lambda lead_s: run(tick_s - lead_s, 40)[1])
ahead_s, ahead_ticks_ms = run(tick_s - lead_s)
print(f"Linux {os.uname().release}, a tick takes {tick_s * 1e3:.0f} ms; {READS} reads each")
print(f"right behind a tick: {sum(behind_s) * 1e3:.0f} ms in reads, io_ticks {behind_ticks_ms} ms")
print(f"right before a tick: {sum(ahead_s) * 1e3:.0f} ms in reads, io_ticks {ahead_ticks_ms} ms")
if behind_ticks_ms * 1e-3 > sum(behind_s) / 2 or ahead_ticks_ms * 1e-3 < 2 * sum(ahead_s):
    sys.exit("the behaviour has changed")
PYTHON
