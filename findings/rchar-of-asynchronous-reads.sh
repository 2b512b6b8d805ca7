#!/bin/sh
# One would guess: rchar of /proc/PID/io is what a program has read, from the page cache or not, so never less than
# read_bytes, which is what came from a device; and syscr counts its reads.
#
# What happens (Linux 6.18, fio 3.33): reads by libaio and io_uring are in read_bytes alone. rchar and syscr are counted
# in vfs_read() (fs/read_write.c), which both pass by; read_bytes is counted where a bio is submitted
# (submit_bio in block/blk-core.c). A database with asynchronous I/O reads gigabytes with an rchar of some kilobytes.
#
# Needs Linux, fio with libaio and io_uring, and python3, else it exits with 77. It reads a file in TMPDIR, which must be
# on a disk. Fails if the behaviour has changed.
set -eu

[ -r /proc/self/io ] || { echo "needs Linux with CONFIG_TASK_IO_ACCOUNTING" >&2; exit 77; }
for tool in fio python3; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
[ "$(stat -f -c %T .)" != tmpfs ] || { echo "needs TMPDIR on a disk" >&2; exit 77; }
fio --name=file --filename="$home/file" --size=32M --rw=read --create_only=1 >/dev/null

echo "Linux $(uname -r), $(fio --version); a file of 32768 KiB is read once"
python3 -I - <<'PYTHON'
import pathlib
import subprocess
import sys
import time

FILE_KIB = 32 * 1024


def counters(engine):
    """Return the last counters of /proc/PID/io that fio has while it waits behind its reads."""
    load = ["--rw=read", "--bs=64k", "--direct=1", "--iodepth=8", "--exec_postrun=sleep 1", f"--ioengine={engine}"]
    command = ["fio", "--name=reads", "--thread", "--filename=file", "--size=32M", "--eta=never", "--output=fio.txt", *load]
    last = {}
    with subprocess.Popen(command) as program:
        while program.poll() is None:
            try:
                lines = pathlib.Path(f"/proc/{program.pid}/io").read_text().splitlines()
            except OSError:
                break
            last = dict(line.split(": ") for line in lines) or last
            time.sleep(0.02)
    if program.returncode:
        print(pathlib.Path("fio.txt").read_text(), f"needs fio with {engine}", file=sys.stderr)
        sys.exit(77)
    return {name: int(text) for name, text in last.items()}


changed = False
for engine in ("psync", "libaio", "io_uring"):
    io = counters(engine)
    rchar_kib, read_kib = io["rchar"] // 1024, io["read_bytes"] // 1024
    print(f"{engine:8}: rchar {rchar_kib} KiB, syscr {io['syscr']}, read_bytes {read_kib} KiB")
    changed |= read_kib < FILE_KIB or (rchar_kib < FILE_KIB) != (engine != "psync")
if changed:
    sys.exit("the behaviour has changed")
PYTHON
