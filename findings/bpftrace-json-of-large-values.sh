#!/bin/sh
# One would guess: -f json of bpftrace has the histogram that the text has.
#
# What happens (bpftrace 0.17 of Debian 12): the text has values from 2^31 on in one row "[2G, 4G)". The JSON has them in
# a bucket from -2147483648 to 0, behind the larger ones: an I/O of 3 s that is counted in ns is a latency below zero.
# From 0.20 on each octave has its bucket in both.
#
# Needs root, bpftrace and python3, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
for tool in bpftrace python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
program='BEGIN { @ns = hist(900000000); @ns = hist(3000000000); @ns = hist(5000000000); exit(); }'
bpftrace -e "$program" >"$home/text" 2>"$home/messages" || { cat "$home/messages" >&2; exit 77; }
bpftrace -f json -e "$program" >"$home/json" 2>"$home/messages"
version=$(bpftrace --version)

echo "$version, values of 0.9, 3 and 5 s in ns"
grep '^\[.* [1-9][0-9]* |' "$home/text" | sed 's/  *|.*//; s/^/text: /; s/   */ /'
python3 -I - "$home/json" "$version" <<'PYTHON'
import json
import pathlib
import re
import sys

path, version = sys.argv[1:]
major, minor = (int(text) for text in re.search(r"v(\d+)\.(\d+)", version).groups())
documents = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line]
(buckets,) = (document["data"]["@ns"] for document in documents if document["type"] == "hist")
full = [(bucket["min"], bucket["max"], bucket["count"]) for bucket in buckets if bucket["count"]]
for low, high, count in full:
    print(f"JSON: {low} to {high}: {count}")
right = [(2**29, 2**30 - 1, 1), (2**31, 2**32 - 1, 1), (2**32, 2**33 - 1, 1)]
negative = [(2**29, 2**30 - 1, 1), (-(2**31), 0, 2)]
if full != (right if (major, minor) >= (0, 20) else negative):
    sys.exit("the behaviour has changed")
PYTHON
