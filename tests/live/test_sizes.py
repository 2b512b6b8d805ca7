"""I/Os by size and sequential ones on the real kernel, against fio's own figures."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

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


@each_bpftrace
def test_ios_by_size_are_those_that_fio_issued(tmp_path, suite):
    """Random reads of two sizes and sequential writes: each size has its own count, bytes and latencies."""
    with ExitStack() as held:
        disk = held.enter_context(LoopDevice(tmp_path / "disk"))
        found = tool(suite, tmp_path)
        with Capture(
            tmp_path,
            *("--backend", "bpftrace", "--stages", "all", "--device", disk.name),
            LATMON_BPFTRACE=found.path,
        ) as capture:
            assert wait_for(lambda: any(one.traced.one_in for one in capture.frames()), TRACED_S, every=0.5)
            with ThreadPoolExecutor() as pool:
                running = {
                    name: pool.submit(fio, tmp_path, SECONDS, job | {"name": name, "filename": disk.path})
                    for name, job in JOBS.items()
                }
                issued = {name: one.result()[name] for name, one in running.items()}
            end_us = now_us()
            assert wait_for(lambda: any(one.mono_us - one.dt_us >= end_us for one in capture.frames()), every=0.2)
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
