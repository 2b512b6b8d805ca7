#!/bin/sh
# One would guess: /proc/self/timens_offsets has the offsets of the clocks that the process reads; and a bpftrace that
# is started in a time namespace has the namespace's clock in nsecs, as its clock_gettime has.
#
# What happens (Linux 6.18): the file has the offsets of the namespace of the process's children, which a process that
# made a time namespace is not in itself (proc_timens_show_offsets in kernel/time/namespace.c). And nsecs is the
# kernel's clock, without the offset of any namespace: so are all stamps that a kernel's program takes.
#
# Needs root, python3, bpftrace and Linux 5.6 with time namespaces, else it exits with 77. Fails if the behaviour has
# changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
[ -e /proc/self/timens_offsets ] || { echo "needs a kernel with time namespaces (CONFIG_TIME_NS)" >&2; exit 77; }
for tool in python3 bpftrace; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

python3 -I - <<'PYTHON'
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import time

DAY_S, CLONE_NEWTIME = 86_400, 0x80
NSECS = 'BEGIN { printf("nsecs %llu\\n", nsecs); exit(); }'


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


begun_s = time.clock_gettime(time.CLOCK_BOOTTIME)
offsets = pathlib.Path("/proc/self/timens_offsets")
if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWTIME):
    sys.exit("unshare fails")
offsets.write_text(f"monotonic {DAY_S} 0\nboottime {DAY_S} 0\n")

shown_s = int(re.search(r"^boottime +(\d+)", offsets.read_text(), re.MULTILINE)[1])
own_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun_s
child_s = float(output("cat", "/proc/uptime").split()[0]) - begun_s
probe_s = int(re.search(r"nsecs (\d+)", output("bpftrace", "-e", NSECS))[1]) / 1e9 - begun_s

print(f"Linux {os.uname().release}, {output('bpftrace', '--version').strip()}")
print(f"the process made a time namespace with clocks {DAY_S} s ahead")
print(f"its timens_offsets has {shown_s} s, its own clock moved by {own_s:.0f} s")
print(f"a child's clock moved by {child_s:.0f} s, nsecs of a child's bpftrace by {probe_s:.0f} s")
if (shown_s, *(moved_s > DAY_S / 2 for moved_s in (own_s, child_s, probe_s))) != (DAY_S, False, True, False):
    sys.exit("the behaviour has changed")
PYTHON
