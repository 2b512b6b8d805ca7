#!/bin/sh
# One would guess: @n++ and @n = count() of bpftrace count the same.
#
# What happens (bpftrace 0.17 and 0.23, Linux 6.18): count() has a number per CPU and loses nothing. @n++ is one number
# that is read, increased and written back in three steps (an update of a hash map, no atomic addition), so CPUs that run
# the probe at the same time overwrite each other's increments: some percent are missing, and no message says so.
#
# Needs root, bpftrace, python3 and two CPUs, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in bpftrace python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done
[ "$(nproc)" -ge 2 ] || { echo "needs two CPUs" >&2; exit 77; }

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT

cat >"$home/call.py" <<'PYTHON'
import os
import sys
import time

os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(sys.argv[1])]})
end_s = time.monotonic() + 4
while time.monotonic() < end_s:
    for _ in range(1000):
        os.getppid()
PYTHON

bpftrace -e 'tracepoint:syscalls:sys_enter_getppid { @increments++; @count = count(); } interval:s:8 { exit(); }' \
    >"$home/maps" 2>"$home/messages" &
sleep 2
python3 -I "$home/call.py" 0 &
python3 -I "$home/call.py" 1
wait

count=$(sed -n 's/^@count: *//p' "$home/maps")
increments=$(sed -n 's/^@increments: *//p' "$home/maps")
[ -n "$count" ] && [ -n "$increments" ] || { cat "$home/messages" >&2; echo "needs a bpftrace that runs here" >&2; exit 77; }
echo "Linux $(uname -r), $(bpftrace --version)"
echo "calls of getppid() on two CPUs: count() has $count, ++ has $increments, $((count - increments)) fewer"
[ "$count" -gt 100000 ] && [ "$increments" -lt "$count" ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
