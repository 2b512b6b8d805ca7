#!/bin/sh
# One would guess: nr_requests that was set stays, whatever scheduler the device has; and a number that one scheduler
# takes, none takes, too.
#
# What happens (Linux 6.18): each change of the scheduler gives the device the default of the new one, without a word:
# with a scheduler 2 * min(queue depth, 128) (BLKDEV_DEFAULT_RQ), with none the depth of the driver's tag set
# (blk_mq_init_sched and blk_mq_exit_sched). With none a number above that depth is refused (EINVAL). So udev rules that
# set nr_requests first and the scheduler then set one of the two only, and a trial of another scheduler leaves a
# device with other limits than it had.
#
# Needs root, losetup and a kernel with mq-deadline, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
command -v losetup >/dev/null || { echo "needs losetup" >&2; exit 77; }

home=$(mktemp -d)
device=
queue=
trap '[ -z "$device" ] || losetup -d "$device"; rm -rf "$home"' EXIT
truncate -s 1M "$home/file"
device=$(losetup --find --show "$home/file") || exit 77
queue=/sys/block/${device#/dev/}/queue
grep -q mq-deadline "$queue/scheduler" || { echo "needs mq-deadline" >&2; exit 77; }
trap 'echo "$scheduler" >"$queue/scheduler"; echo "$requests" >"$queue/nr_requests"; losetup -d "$device"; rm -rf "$home"' EXIT
scheduler=$(sed 's/.*\[\(.*\)\].*/\1/' "$queue/scheduler")
requests=$(cat "$queue/nr_requests")

echo none >"$queue/scheduler"
depth=$(cat "$queue/nr_requests")
echo 64 >"$queue/nr_requests"
set_with_none=$(cat "$queue/nr_requests")
echo mq-deadline >"$queue/scheduler"
with_deadline=$(cat "$queue/nr_requests")
echo 1024 >"$queue/nr_requests"
set_with_deadline=$(cat "$queue/nr_requests")
echo none >"$queue/scheduler"
with_none=$(cat "$queue/nr_requests")
refused=no
(echo 1024 >"$queue/nr_requests") 2>/dev/null || refused=yes

echo "Linux $(uname -r), ${device#/dev/}, whose driver takes $depth requests"
echo "none: set to 64, reads $set_with_none"
echo "then mq-deadline: $with_deadline; set to 1024, reads $set_with_deadline"
echo "then none: $with_none; 1024 refused: $refused"
[ "$set_with_none $set_with_deadline $with_none $refused" = "64 1024 $depth yes" ] && [ "$with_deadline" -gt 64 ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
