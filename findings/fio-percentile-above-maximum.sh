#!/bin/sh
# One would guess: the percentiles of fio are latencies that were measured, or the upper end of their bucket, as
# percentiles of HdrHistogram are; none is above the maximum that fio prints beside them.
#
# What happens (fio 3.33): a percentile, and the name of a bucket in json+, is the middle of the bucket
# (plat_idx_to_val in stat.c), while minimum and maximum are exact. So the p50 of one single I/O is below its latency or
# above it, by up to 1/128, and a p99.99 above the maximum is no error of the one who reads it.
#
# Needs fio and python3, else it exits with 77. Fails if the behaviour has changed.
set -eu

for tool in fio python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
truncate -s 64K file
runs=30
for run in $(seq $runs); do
    fio --name=read --filename="$home/file" --rw=read --bs=4k --number_ios=1 --percentile_list=50 \
        --output-format=json+ --output="$run.json"
done

fio --version
python3 -I - $runs <<'PYTHON'
import json
import pathlib
import sys

runs = int(sys.argv[1])
above = below = 0
for run in range(1, runs + 1):
    latency = json.loads(pathlib.Path(f"{run}.json").read_text())["jobs"][0]["read"]["clat_ns"]
    ((bucket_ns, count),) = latency["bins"].items()
    p50_ns = latency["percentile"]["50.000000"]
    if (count, latency["min"], p50_ns) != (1, latency["max"], int(bucket_ns)):
        sys.exit(f"the behaviour has changed: {latency}")
    if abs(p50_ns - latency["max"]) > latency["max"] / 128 + 1:
        sys.exit(f"the behaviour has changed: p50 {p50_ns} ns of one I/O of {latency['max']} ns")
    above += p50_ns > latency["max"]
    below += p50_ns < latency["max"]
    if run <= 5:
        print(f"one read of {latency['max']} ns: p50 {p50_ns} ns, bucket {bucket_ns}")
print(f"of {runs} runs of one read {above} have a p50 above their maximum, {below} one below it")
if not above or not below:
    sys.exit("the behaviour has changed")
PYTHON
