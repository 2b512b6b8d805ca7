#!/bin/sh
# One would guess: under bfq a program of the idle class (ionice -c3) waits for as long as another one has I/Os, and
# mq-deadline, which is said to care for deadlines only, heeds no class.
#
# What happens (Linux 6.18): mq-deadline sends no I/O of the idle class while another one's is queued or in the driver,
# for 10 s at most (prio_aging_expire; dd_dispatch_request in block/mq-deadline.c). bfq serves the idle class beside the
# other program where the driver takes all of that one's I/Os: its queue is empty then, and bfq waits for its next I/O
# on a disk that rotates only, and not always. So the same ionice is a long wait on a slow disk that takes few I/Os, and
# nothing on a fast one. On a loop device over a file in memory: none 19,000, bfq 11,000, mq-deadline 800 IOPS.
#
# Needs root, fio, util-linux and a kernel with bfq and mq-deadline, else it exits with 77. Fails if the behaviour has
# changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in fio ionice losetup awk; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

file=/dev/shm/idle-class.$$
truncate -s 256M "$file"
device=$(losetup --find --show "$file")
trap 'losetup -d "$device"; rm -f "$file"' EXIT
queue=/sys/block/${device#/dev/}/queue
load="--filename=$device --readonly --direct=1 --ioengine=libaio --bs=4k --time_based --eta=never"

# The IOPS of a program of the idle class beside one of the usual class, which has 8 I/Os in flight.
idle_iops() {
    echo "$1" >"$queue/scheduler" 2>/dev/null || { echo "needs the scheduler $1" >&2; exit 77; }
    fio --name=usual $load --rw=read --iodepth=8 --runtime=5 --output=/dev/null &
    sleep 1
    ionice -c3 fio --name=idle $load --rw=randread --iodepth=1 --runtime=3 --output-format=terse |
        awk -F ';' '{ print $8 }'
    wait
}

bfq=$(idle_iops bfq)
deadline=$(idle_iops mq-deadline)
none=$(idle_iops none)
echo "Linux $(uname -r): IOPS of the idle class beside the usual one: none $none, bfq $bfq, mq-deadline $deadline"
if [ "$bfq" -lt $((2 * deadline)) ] || [ "$none" -gt $((4 * bfq)) ]; then
    echo "the behaviour has changed" >&2
    exit 1
fi
