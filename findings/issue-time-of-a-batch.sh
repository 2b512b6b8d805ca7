#!/bin/sh
# One would guess: io_start_time_ns of a request, from which the kernel and many bpftrace scripts have the time in the
# driver and the device, is when the request went to the driver.
#
# What happens (Linux 6.18): since Linux 6.9 the block layer reads the clock once per plug (blk_time_get_ns in
# block/blk.h, current->plug->cur_ktime), and all requests that one system call sends have that one time. With one I/O
# per call it is under a microsecond early; with 64 of 64 KiB per call the last ones are "issued" some 100 us before
# the driver gets them, and the wait behind the others of the same call is counted as the device's.
#
# Needs root, Linux 6.9 with BTF, a bpftrace with raw tracepoints (0.19), fio and losetup, else it exits with 77. Fails
# if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in bpftrace fio losetup; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done
[ "$(printf '6.9\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.9 ] || { echo "needs Linux 6.9" >&2; exit 77; }

home=$(mktemp -d)
device=
trap '[ -z "$device" ] || losetup -d "$device"; rm -rf "$home"' EXIT
truncate -s 64M "$home/file"
device=$(losetup --find --show "$home/file") || exit 77
number=$(cat "/sys/block/${device#/dev/}/dev")
program="
rawtracepoint:block_rq_issue {
    \$request = (struct request *)arg0;
    \$disk = \$request->q->disk;
    if (\$disk->major == ${number%:*} && \$disk->first_minor == ${number#*:}) { @hook[arg0] = nsecs(monotonic); }
}
rawtracepoint:block_rq_complete {
    if (@hook[arg0] != 0) {
        \$request = (struct request *)arg0;
        @requests = count();
        if ((int64)@hook[arg0] - (int64)\$request->io_start_time_ns > 20000) { @early = count(); }
        delete(@hook[arg0]);
    }
}
interval:s:5 { clear(@hook); exit(); }"

# The share in percent of the requests whose issue time is 20 us or more before the hook of their issue, with so many
# I/Os per system call.
early_percent() {
    bpftrace -e "$program" >"$home/maps" 2>"$home/messages" &
    sleep 2
    fio --name=reads --filename="$device" --direct=1 --rw=randread --bs=64k --ioengine=libaio --iodepth=64 \
        --iodepth_batch_submit="$1" --iodepth_batch_complete_min="$1" --runtime=2 --time_based --output=/dev/null
    wait
    awk '/^@requests:/ { requests = $2 } /^@early:/ { early = $2 }
        END { if (requests) printf "%d\n", 100 * early / requests }' "$home/maps"
}

alone=$(early_percent 1)
batch=$(early_percent 64)
[ -n "$alone" ] && [ -n "$batch" ] || { cat "$home/messages" >&2; echo "needs another bpftrace or kernel" >&2; exit 77; }
echo "Linux $(uname -r), $(bpftrace --version), $(fio --version)"
echo "issue times that are 20 us or more early: $alone % with one I/O per call, $batch % with 64"
[ "$alone" -lt 25 ] && [ "$batch" -gt 75 ] || {
    echo "the behaviour has changed" >&2
    exit 1
}
