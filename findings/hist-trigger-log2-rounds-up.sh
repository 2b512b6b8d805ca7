#!/bin/sh
# One would guess: in a histogram of a hist trigger with the modifier .log2 the row "~ 2^12" has the values from 4096 to
# 8191, as the row [4K, 8K) of bpftrace and the row 4096 of DTrace's quantize() have.
#
# What happens (Linux 6.12): log2 rounds up (hist_field_log2 in kernel/trace/trace_events_hist.c), so the row has the
# values from 2049 to 4096. The modifier .buckets=4096 of the same trigger rounds down: 4096 and 4608 are in the one row
# "~ 4096-8191" there, and in two rows of .log2.
#
# Needs root, a kernel with CONFIG_HIST_TRIGGERS and losetup, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
command -v losetup >/dev/null || { echo "needs losetup" >&2; exit 77; }

home=$(mktemp -d)
mkdir "$home/tracing"
mount -t tracefs none "$home/tracing" 2>/dev/null || { echo "needs tracefs" >&2; rm -rf "$home"; exit 77; }
device=
trap '[ -z "$device" ] || losetup -d "$device"; umount "$home/tracing"; rm -rf "$home"' EXIT
[ -e "$home/tracing/events/block/block_rq_issue/hist" ] || { echo "needs a kernel with CONFIG_HIST_TRIGGERS" >&2; exit 77; }

truncate -s 1M "$home/file"
device=$(losetup --find --show "$home/file") || exit 77
number=$(cat "/sys/block/${device#/dev/}/dev")
dev_t=$(((${number%:*} << 20) + ${number#*:}))

# The rows of a histogram of the sizes of one read each of 4096, 4608 and 8192 bytes.
rows() {
    event=$home/tracing/instances/finding.$$/events/block/block_rq_issue
    mkdir "$home/tracing/instances/finding.$$"
    echo "hist:keys=bytes.$1 if dev == $dev_t" >"$event/trigger"
    for bytes in 4096 4608 8192; do
        dd if="$device" of=/dev/null bs=$bytes count=1 iflag=direct 2>/dev/null
    done
    sed -n 's/^{ bytes: *\(.*[^ ]\) *} hitcount: *\([0-9]*\).*/\1 (\2)/p' "$event/hist" | sort -V | paste -s -d, -
    echo "!hist:keys=bytes.$1 if dev == $dev_t" >"$event/trigger"
    rmdir "$home/tracing/instances/finding.$$"
}

log2=$(rows log2)
buckets=$(rows buckets=4096)
echo "Linux $(uname -r): reads of 4096, 4608 and 8192 bytes"
echo ".log2: $log2"
echo ".buckets=4096: $buckets"
[ "$log2" = '~ 2^12 (1),~ 2^13 (2)' ] && [ "$buckets" = '~ 4096-8191 (2),~ 8192-12287 (1)' ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
