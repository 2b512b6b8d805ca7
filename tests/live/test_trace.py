"""`latmon trace` on a disk of our own: every I/O that fio issued is in the file, once, and filters take the right ones.

The host's bpftrace by default, 0.23 and 0.27 under the marker `versions`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import environment, latmon, wait_for
from workload import STARTING_S, LoopDevice, fio

from latmon.model.frame import Frame
from latmon.recording.reader import open_recording
from latmon.report.trace import steps

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace, fio, losetup"
    ),
]
MISSED = 0.05
"""Share of I/Os that the kernel's tracepoint programs (tier C) may miss on a busy host; raw tracepoints miss fewer."""


@pytest.fixture
def disk(tmp_path):
    with LoopDevice(tmp_path / "disk", 64 << 20) as made:
        yield made


class Trace:
    """A trace that has begun; `end` stops it and returns the traced I/Os."""

    def __init__(self, directory, bpftrace, *words):
        self.file, self._out, self._err = (directory / name for name in ("t.latmon.jsonl.gz", "out", "err"))
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                latmon("trace", "-o", str(self.file), "--duration", "300s", *words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(LATMON_BPFTRACE=bpftrace.path),
                start_new_session=True,
            )
        wait_for(lambda: "tracing" in self.told or self._process.poll() is not None, STARTING_S, 0.1)
        assert self._process.poll() is None, self.told

    @property
    def told(self):
        return self._err.read_text()

    @property
    def printed(self):
        return self._out.read_text()

    def end(self):
        self._process.terminate()
        self.status = self._process.wait(STARTING_S)
        if not self.file.exists():
            return []
        frames = [frame for frame in open_recording(self.file) if isinstance(frame, Frame)]
        return [outlier for frame in frames for outlier in frame.outliers]

    def kill(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture
def trace(tmp_path, suite):
    begun = []

    def begin(*words):
        begun.append(Trace(tmp_path, tool(suite, tmp_path), *words))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()


def has_raw_tracepoints(suite, directory):
    return tool(suite, directory).version >= "0.19" and Path("/sys/kernel/btf/vmlinux").exists()


def enough(found, issued):
    return issued * (1 - MISSED) <= found <= issued


@each_bpftrace
def test_every_io_of_fio_is_in_the_file_and_its_steps_add_up(disk, trace, suite, tmp_path):
    running = trace("--device", disk.name)
    jobs = [{"name": "a", "filename": disk.path, "rw": "randrw", "iodepth": 4, "rate_iops": "300,200"}]
    done = fio(tmp_path, 1, *jobs)["a"]
    ios = running.end()
    assert running.status == 0, running.told
    for op in ("read", "write"):
        ours = [io for io in ios if io.op == op]
        assert enough(len(ours), done[op].count)
        assert all(one.bytes == 4096 and one.comm == "fio" for one in ours)
    for current_io in ios:
        assert sum(current_io.stages_us.values()) + current_io.unaccounted_us == current_io.total_us
        actual_steps = steps(current_io)
        assert actual_steps.pop("Q2C") == sum(actual_steps.values())
    assert f"{len(ios):,} I/Os in the file" in running.printed
    assert all(word in running.printed for word in ("D2C", "Q2C", "seek map", "cost: "))
    if has_raw_tracepoints(suite, tmp_path):
        assert sum(io.admission_us is not None for io in ios) >= len(ios) * (1 - MISSED)
        assert "Q2G" in running.printed


@pytest.mark.slow
@each_bpftrace
def test_ios_of_one_system_call_wait_for_each_other_in_its_plug(disk, trace, suite, tmp_path):
    """All of 64 I/Os but the last wait; by the clock of the plug, which Linux caches since 6.9, none does."""
    if not has_raw_tracepoints(suite, tmp_path):
        pytest.skip("tier C takes all stamps at the hooks")
    running = trace("--device", disk.name)
    many = {"iodepth": 64, "iodepth_batch": 64, "ioengine": "libaio", "rate_iops": 600}
    fio(tmp_path, 2, {"name": "a", "filename": disk.path, "rw": "randread", "bs": "64k", **many})
    ios = running.end()
    queues = [io.stages_us["queue"] for io in ios]
    assert len(queues) > 128, running.told
    assert sum(us >= 4 for us in queues) > len(queues) / 2, sorted(queues)
    assert all(io.inserted_us is None or io.inserted_us <= io.stages_us["queue"] for io in ios)


@pytest.mark.slow
@each_bpftrace
def test_a_range_of_sectors_and_a_limit_of_the_rate(disk, trace, tmp_path):
    running = trace("--device", disk.path, "--lba", "0-32767", "--max-rate", "10")
    common = {"filename": disk.path, "rw": "randwrite", "size": "16m", "rate_iops": 400}
    done = fio(tmp_path, 2, {"name": "inside", **common}, {"name": "outside", "offset": "32m", **common})
    ios = running.end()
    assert running.status == 4, running.told
    assert {io.sector // 32768 for io in ios} == {0}
    assert 5 <= len(ios) < done["inside"]["write"].count * 0.9
    left_out = next(line for line in running.printed.splitlines() if "left out by the limit" in line)
    traced = len(ios) + int(left_out.partition("; ")[2].split()[0].replace(",", ""))
    assert enough(traced, done["inside"]["write"].count)


WAITS = (
    "import os, sys; fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT); sys.stdin.readline(); import mmap\n"
    "block = mmap.mmap(-1, 4096)\nfor at in range(200): os.preadv(fd, [block], at * 4096)"
)


@pytest.mark.slow
@each_bpftrace
def test_the_ios_of_one_process(disk, trace):
    words = [sys.executable, "-c", WAITS, disk.path]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(words, stdin=pipe, text=True) as ours,
        subprocess.Popen(words, stdin=pipe, text=True) as other,
    ):
        running = trace("--device", disk.name, "--pid", str(ours.pid))
        for one in (ours, other):
            one.communicate("go\n")
    ios = running.end()
    assert enough(len(ios), 200)
    assert {io.pid for io in ios} == {ours.pid}


@pytest.mark.slow
@each_bpftrace
def test_the_blocks_of_a_file(disk, trace, tmp_path):
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-F", disk.path], check=True)
    point = tmp_path / "mnt"
    point.mkdir()
    subprocess.run(["mount", disk.path, str(point)], check=True)
    try:
        for name in ("a", "b"):
            (point / name).write_bytes(os.urandom(4 << 20))
        os.sync()
        running = trace("--device", disk.name, "--file", str(point / "a"))
        for name in ("a", "b"):
            dd = ["dd", f"if={point / name}", "of=/dev/null", "bs=4k", "iflag=direct", "status=none"]
            subprocess.run(dd, check=True)
        ios = running.end()
        assert enough(len(ios), 1024)
        assert {io.op for io in ios} == {"read"}
    finally:
        subprocess.run(["umount", str(point)], check=True)


@each_bpftrace
def test_the_stacks_that_submitted_slow_ios(disk, trace, suite, tmp_path):
    if not has_raw_tracepoints(suite, tmp_path):
        pytest.skip("stacks need raw tracepoints")
    running = trace("--device", disk.name, "--stacks", str(tmp_path / "folded"), "--slow", "0s")
    dd = ["dd", f"if={disk.path}", "of=/dev/null", "bs=4k", "count=100", "iflag=direct", "status=none"]
    subprocess.run(dd, check=True)
    ios = running.end()
    rows = [line.rpartition(" ") for line in (tmp_path / "folded").read_text().splitlines()]
    assert enough(sum(int(n) for *_, n in rows), 100) or len(ios) > 100
    assert any("vfs_read" in stack and "submit_bio" in stack for stack, _, _ in rows)
    assert "kernel stacks that submitted" in running.printed


HOSTILE = "a;b\n\x1b[31m"
READS = (
    "import mmap, os, sys, time; open('/proc/self/comm', 'w').write(sys.argv[2]); block = mmap.mmap(-1, 4096)\n"
    "fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)\n"
    "while True: os.preadv(fd, [block], 0); time.sleep(0.01)"
)


@pytest.mark.slow
@each_bpftrace
def test_the_user_stacks_that_submitted_slow_ios(disk, trace, suite, tmp_path):
    """Their names are known of a process that lives when the trace ends."""
    if not has_raw_tracepoints(suite, tmp_path):
        pytest.skip("stacks need raw tracepoints")
    with subprocess.Popen([sys.executable, "-c", READS, disk.path, HOSTILE]) as reader:
        words = ("--user-stacks", "--stacks", str(tmp_path / "folded"), "--slow", "0s")
        try:
            running = trace("--device", disk.name, "--pid", str(reader.pid), *words)
            time.sleep(2)
            ios = running.end()
        finally:
            reader.kill()
    assert ios, running.told
    text = (tmp_path / "folded").read_text()
    assert all(line.isprintable() for line in text.splitlines()), text
    rows = [line.rpartition(" ") for line in text.splitlines()]
    assert all(stack.startswith("a:b") for stack, _, _ in rows), text
    stack = max(rows, key=lambda row: int(row[2]))[0]
    assert re.search(r"preadv\w*;(\w+;)*vfs_readv?;(\w+;)*submit_bio", stack), text
    assert "user and kernel stacks that submitted" in running.printed
    assert "\x1b" not in running.printed


@pytest.mark.slow
@each_bpftrace
def test_stacks_that_the_tool_refuses_are_no_empty_answer(disk, suite, tmp_path):
    if not has_raw_tracepoints(suite, tmp_path):
        pytest.skip("stacks need raw tracepoints")
    refusing, out = tmp_path / "refusing", tmp_path / "folded"
    no = 'case "$*" in *stacks_a*) echo "stdin:1:1-9: ERROR: no such probe" >&2; exit 1;; esac'
    refusing.write_text(f'#!/bin/sh\n{no}\nexec {tool(suite, tmp_path).path} "$@"\n')
    refusing.chmod(0o755)
    words = latmon(
        "trace", "--device", disk.name, "--duration", "1s", "-o", str(tmp_path / "t.gz"), "--stacks", str(out)
    )
    done = subprocess.run(
        words, env=environment(LATMON_BPFTRACE=str(refusing)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "nothing can be traced: --stacks: no such probe" in done.stderr
    assert not out.exists()


@pytest.mark.slow
@each_bpftrace
def test_nothing_to_trace_is_a_sentence_and_no_file(disk, trace):
    running = trace("--device", disk.name)
    assert running.end() == []
    assert running.status == 1
    assert "nothing was traced" in running.told
    assert not running.file.exists()


@pytest.mark.slow
@each_bpftrace
def test_the_exports_have_every_io(disk, trace, tmp_path):
    running = trace("--device", disk.name)
    fio(tmp_path, 1, {"name": "a", "filename": disk.path, "rw": "randread", "rate_iops": 200})
    ios = running.end()
    assert ios
    for form in ("blkparse", "perfetto"):
        words = latmon("export", str(running.file), "--to", form, "-o", str(tmp_path / form))
        subprocess.run(words, env=environment(), check=True, capture_output=True)
    lines = (tmp_path / "blkparse").read_text().splitlines()
    assert sum(line.split()[5] == "C" for line in lines) == len(ios)
    events = json.loads((tmp_path / "perfetto").read_text())["traceEvents"]
    assert sum(event.get("cat") == "outlier" for event in events) == len(ios)
