"""I/Os by size and sequential ones on the real kernel, against fio's own figures."""

import contextlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import wait_for
from workload import Capture, LoopDevice, fio, now_us

SECONDS = 4
TRACED_S = 90.0
"""The tool compiles the tracer's program."""
JOBS = {
    "small": {"rw": "randread", "bs": "4k", "iodepth": 2, "rate_iops": 500},
    "middle": {"rw": "randread", "bs": "32k", "iodepth": 1, "rate_iops": 200},
    "large": {"rw": "write", "bs": "256k", "iodepth": 2, "rate_iops": 50},
}
UPTO = {"small": 4096, "middle": 32_768, "large": 262_144}

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace, fio, losetup"
    ),
]


@pytest.mark.slow
@each_bpftrace
def test_ios_by_size_are_those_that_fio_issued(tmp_path, suite):
    """Random reads of two sizes and sequential writes: each size has its own count, bytes and latencies."""
    with ExitStack() as held:
        disk = held.enter_context(LoopDevice(tmp_path / "disk"))
        bpftrace_tool = tool(suite, tmp_path)
        with Capture(
            tmp_path,
            *("--backend", "bpftrace", "--stages", "all", "--device", disk.name),
            LATMON_BPFTRACE=bpftrace_tool.path,
        ) as capture:
            assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), TRACED_S, every=0.5)
            with ThreadPoolExecutor() as pool:
                running = {
                    name: pool.submit(fio, tmp_path, SECONDS, job | {"name": name, "filename": disk.path})
                    for name, job in JOBS.items()
                }
                issued = {name: one.result()[name] for name, one in running.items()}
            end_us = now_us()
            assert wait_for(lambda: any(frame.mono_us - frame.dt_us >= end_us for frame in capture.frames()), every=0.2)
            capture.stop()
            report = capture.report()
    if report["health"]["tier"] == "C":
        pytest.skip("I/Os are counted by size on tier A alone")
    ops = report["devices"][disk.name]["ops"]
    for name, by_op in issued.items():
        ((op, sent),) = by_op.items()
        (row,) = [one for one in ops[op]["sizes"]["histogram"] if one["upto"] == UPTO[name]]
        print(f"{suite} {name} {op}: fio {sent.count} I/Os {sent.bytes} bytes, latmon {row}")
        assert row["count"] == pytest.approx(sent.count, rel=0.01, abs=1)
        assert row["bytes"] == pytest.approx(sent.bytes, rel=0.01, abs=1 << 18)
    for op in ("read", "write"):
        sizes = ops[op]["sizes"]
        assert sum(one["latency_us"]["count"] for one in sizes["latency"]) == sum(
            one["count"] for one in sizes["histogram"]
        )
        assert sizes["pattern"]["unaligned"] == 0
        assert sizes["pattern"]["issued"] == pytest.approx(ops[op]["count"], rel=0.01, abs=1)
    patterns = {op: ops[op]["sizes"]["pattern"] for op in ("read", "write")}
    print(patterns)
    assert patterns["read"]["sequential"] < 0.05 * patterns["read"]["issued"]
    assert patterns["write"]["sequential"] > 0.9 * patterns["write"]["issued"]


@contextlib.contextmanager
def writing_slowly(directory, per_s):
    """A prefix for a command whose writes to the disk below a directory are limited to so many per second."""
    group = Path("/sys/fs/cgroup/blkio") / f"latmon-test-{os.getpid()}"
    if not (group.parent / "blkio.throttle.write_iops_device").exists():
        pytest.skip("no cgroup of version 1 can limit writes here")
    below = Path("/sys/dev/block") / "{}:{}".format(*(f(directory.stat().st_dev) for f in (os.major, os.minor)))
    disk = below.resolve().parent if (below / "partition").exists() else below
    group.mkdir()
    try:
        (group / "blkio.throttle.write_iops_device").write_text(f"{(disk / 'dev').read_text().strip()} {per_s}")
        yield ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group)]
    finally:
        assert wait_for(lambda: not subprocess.run(["rmdir", group], check=False, stderr=subprocess.DEVNULL).returncode)


@each_bpftrace
@pytest.mark.slow
@pytest.mark.parametrize(("mix", "is_found"), [("randwrite", True), ("write", False)])
def test_small_random_writes_of_a_slow_device_are_a_finding(tmp_path, suite, mix, is_found):
    """The worker of a loop device waits for the disk below like the cgroup whose I/O it does."""
    with LoopDevice(tmp_path / "disk") as disk, writing_slowly(tmp_path, 200) as slowly:
        words = ("--backend", "bpftrace", "--stages", "all", "--device", disk.name)
        with Capture(tmp_path, *words, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
            assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), TRACED_S, every=0.5)
            job = ["--name=pages", f"--filename={disk.path}", "--direct=1", "--ioengine=libaio", "--iodepth=4"]
            job += [f"--rw={mix}", "--bs=8k", "--runtime=20", "--time_based", "--norandommap"]
            subprocess.run([*slowly, "fio", *job], check=True, stdout=subprocess.DEVNULL)
            capture.stop()
            report = capture.report()
    if report["health"]["tier"] == "C":
        pytest.skip("I/Os are counted by size on tier A alone")
    its = {finding["id"]: finding for finding in report["findings"] if finding["device"] == disk.name}
    print(its)
    assert ("small-random-writes" in its) is is_found
    if is_found:
        evidence = its["small-random-writes"]["evidence"]
        assert evidence["bytes"]["value"] == 8192
        assert evidence["sequential"]["value"] < 0.05
        assert 4 / 200 * 1e6 * 0.5 < evidence["mean_us"]["value"] < 4 / 200 * 1e6 * 3
