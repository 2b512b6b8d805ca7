#!/bin/sh
# One would guess: a program that does nothing but wait for its disk is in iowait, and in the "some" of io.pressure, by
# whatever call it waits.
#
# What happens (Linux 6.18, fio 3.33): a read() counts, io_getevents() of libaio doesn't: it sleeps without the flag
# in_iowait (read_events in fs/aio.c, against io_schedule in kernel/sched/core.c). So a database with asynchronous I/O
# on a slow disk shows a pressure and an iowait near 0, while its threads wait all of the time.
#
# Needs root, fio and a kernel with PSI, else it exits with 77. It reads a file in TMPDIR, which must be on a disk. Fails
# if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in fio python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done
hierarchy=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$hierarchy" ] || { echo "needs a mounted cgroup version 2" >&2; exit 77; }

home=$(mktemp -d)
group=$hierarchy/finding.$$
mkdir "$group"
trap 'rmdir "$group"; rm -rf "$home"' EXIT
cat "$group/io.pressure" >/dev/null 2>&1 || { echo "needs a kernel with PSI" >&2; exit 77; }
cd "$home"
[ "$(stat -f -c %T .)" != tmpfs ] || { echo "needs TMPDIR on a disk" >&2; exit 77; }

load="--name=reads --filename=$home/file --size=256M --direct=1 --rw=randread --bs=64k --iodepth=1"
fio $load --create_only=1 >/dev/null

# The time of all reads of 2 s in ms, and the time for which the kernel says that the program waited for I/O.
waits() {
    before=$(sed -n 's/^some.*total=//p' "$group/io.pressure")
    sh -c 'echo $$ >"$0/cgroup.procs"; shift; exec "$@"' "$group" - \
        fio $load --ioengine="$1" --runtime=2 --time_based --thread --eta=never \
        --output-format=json --output="$home/$1.json"
    after=$(sed -n 's/^some.*total=//p' "$group/io.pressure")
    python3 -I - "$home/$1.json" $((after - before)) <<'PYTHON'
import json
import pathlib
import sys

reads = json.loads(pathlib.Path(sys.argv[1]).read_text())["jobs"][0]["read"]
waited_ms = reads["total_ios"] * reads["lat_ns"]["mean"] / 1e6
print(round(waited_ms), round(int(sys.argv[2]) / 1e3))
PYTHON
}

read -r sync_ms sync_pressure_ms <<EOF
$(waits psync)
EOF
read -r aio_ms aio_pressure_ms <<EOF
$(waits libaio)
EOF

echo "Linux $(uname -r), $(fio --version)"
echo "pread(): $sync_ms ms in reads, io.pressure $sync_pressure_ms ms"
echo "libaio: $aio_ms ms in reads, io.pressure $aio_pressure_ms ms"
[ $((10 * sync_pressure_ms)) -gt "$sync_ms" ] && [ $((50 * aio_pressure_ms)) -lt "$aio_ms" ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
