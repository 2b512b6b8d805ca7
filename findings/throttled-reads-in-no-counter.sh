#!/bin/sh
# One would guess: reads that wait for a cgroup's limit (io.max, blkio.throttle) make the device look slow: iostat's
# await, from /proc/diskstats, has their wait, and I/Os are in flight meanwhile.
#
# What happens (Linux 6.18): blk-throttle holds a bio before it has a request (submit_bio_noacct in block/blk-core.c), and
# the counters of the device begin with the request. A program whose reads take 20 ms each reads from a disk with an
# await of a fraction of a millisecond, no I/O in flight and a %util near 0.
#
# Needs root, fio, losetup, python3 and a cgroup with blkio (version 1) or io (version 2), else it exits with 77. Fails
# if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in fio losetup python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

home=$(mktemp -d)
device=
group=
clean_up() {
    [ -z "$group" ] || rmdir "$group"
    [ -z "$device" ] || losetup -d "$device"
    rm -rf "$home"
}
trap clean_up EXIT
head -c 16M /dev/zero >"$home/file"
device=$(losetup --find --show "$home/file") || exit 77
number=$(cat "/sys/block/${device#/dev/}/dev")
statistics=/sys/block/${device#/dev/}/stat

blkio=$(awk '$3 == "cgroup" && $4 ~ /(^|,)blkio(,|$)/ { print $2; exit }' /proc/mounts)
unified=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
if [ -n "$blkio" ] && [ -e "$blkio/blkio.throttle.read_iops_device" ]; then
    group=$blkio/finding.$$
    mkdir "$group"
    echo "$number 50" >"$group/blkio.throttle.read_iops_device"
elif [ -n "$unified" ] && grep -qw io "$unified/cgroup.subtree_control"; then
    group=$unified/finding.$$
    mkdir "$group"
    echo "$number riops=50" >"$group/io.max"
else
    echo "needs a cgroup with blkio, or with io in its cgroup.subtree_control" >&2
    exit 77
fi

before=$(cat "$statistics")
sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" \
    fio --name=reads --filename="$device" --direct=1 --rw=randread --bs=4k --ioengine=psync --runtime=3 --time_based \
    --thread --eta=never --output-format=json --output="$home/fio.json"
after=$(cat "$statistics")

echo "Linux $(uname -r), $(fio --version)"
python3 -I - "$home/fio.json" "$before" "$after" <<'PYTHON'
import json
import pathlib
import sys

path, *lines = sys.argv[1:]
before, after = ([int(text) for text in line.split()] for line in lines)
reads, _merged, _sectors, read_ms = (new - old for old, new in zip(before[:4], after[:4]))
program = json.loads(pathlib.Path(path).read_text())["jobs"][0]["read"]
mean_ms = program["lat_ns"]["mean"] / 1e6
print(f"a program limited to 50 reads per second: {program['total_ios']} reads of {mean_ms:.1f} ms")
print(f"the device's counters: {reads} reads of {read_ms / reads:.1f} ms, {after[9] - before[9]} ms busy")
if mean_ms < 15 or read_ms / reads > mean_ms / 2:
    sys.exit("the behaviour has changed")
PYTHON
