#!/bin/sh
# One would guess: block_rq_issue and block_rq_complete of one request have the same sector, as each script that pairs
# them by device and sector relies on, and each request that completes was issued.
#
# What happens (Linux 6.18, bpftrace 0.17): the flush of an fsync is issued at sector 0 and completes at sector 2^64 - 1
# (blk_flush_queue_rq in block/blk-flush.c has none; the bytes that are left end it). The empty write that carried it
# completes, too, with 0 sectors, and was never issued. So a script by sector has no time of any flush, or takes the one
# at sector 0 for a later I/O there.
#
# Needs root, bpftrace, losetup and python3, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in bpftrace losetup python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

home=$(mktemp -d)
device=
trap '[ -z "$device" ] || losetup -d "$device"; rm -rf "$home"' EXIT
truncate -s 8M "$home/file"
device=$(losetup --find --show "$home/file") || exit 77
number=$(cat "/sys/block/${device#/dev/}/dev")
[ "$(cat "/sys/block/${device#/dev/}/queue/write_cache")" = "write back" ] || { echo "needs a write cache" >&2; exit 77; }
filter="args->dev == $(((${number%:*} << 20) + ${number#*:}))"

bpftrace -e "
tracepoint:block:block_rq_issue /$filter/ {
    printf(\"issued %s sector %llu sectors %u\\n\", args->rwbs, args->sector, args->nr_sector);
}
tracepoint:block:block_rq_complete /$filter/ {
    printf(\"completed %s sector %llu sectors %u\\n\", args->rwbs, args->sector, args->nr_sector);
    @completed = 1;
}
interval:s:2 {
    if (@completed) { clear(@completed); exit(); }
    printf(\"ready\\n\");
}
interval:s:60 { exit(); }" >"$home/events" 2>"$home/messages" &
for second in $(seq 30); do
    ! grep -q ready "$home/events" || break
    sleep 1
done
python3 -I -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))' "$device"
wait

grep -q ready "$home/events" || { cat "$home/messages" >&2; echo "needs a bpftrace that runs here" >&2; exit 77; }
echo "Linux $(uname -r), $(bpftrace --version): one fsync() of a device"
grep 'ed .* sector' "$home/events" >"$home/flush" || true
cat "$home/flush"
issued=$(grep -c '^issued' "$home/flush" || true)
[ "$issued" = 1 ] && grep -q '^issued FF sector 0 ' "$home/flush" &&
    grep -q '^completed FF sector 18446744073709551615 ' "$home/flush" &&
    grep -q '^completed F*WS* sector [0-9]* sectors 0$' "$home/flush" || {
    echo "the behaviour has changed" >&2
    exit 1
}
