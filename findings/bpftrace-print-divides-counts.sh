#!/bin/sh
# One would guess: print(@us, 0, 1000) of bpftrace prints a histogram of us in ms, as it prints a sum of us in ms.
#
# What happens (bpftrace 0.17 and 0.23): the divisor goes to the values of a map, and those of a histogram are its counts.
# The edges stay, and each count is a thousandth: rows with fewer than 1000 I/Os read 0, beside a bar that is drawn of
# the whole count.
#
# Needs root and bpftrace, else it exits with 77. Fails if the behaviour has changed.
set -eu

[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 77; }
command -v bpftrace >/dev/null || { echo "needs bpftrace" >&2; exit 77; }

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
program='BEGIN { @us = hist(3000); @sum_us = sum(3000); print(@us, 0, 1000); print(@sum_us, 0, 1000); clear(@us); clear(@sum_us); exit(); }'
bpftrace -e "$program" >"$home/text" 2>"$home/messages" || { cat "$home/messages" >&2; exit 77; }

bpftrace --version
echo "one value of 3000 us, divided by 1000:"
grep '^\[\|^@sum_us: [0-9]' "$home/text"
grep -q '^\[2K, 4K)  *0 |@' "$home/text" && grep -q '^@sum_us: 3$' "$home/text" || {
    echo "the behaviour has changed" >&2
    exit 1
}
