"""A CPU quota on a real kernel: a program that uses it up and reads from a disk."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from latmon.capture.mounts import MountTable, mounts_of
from latmon.model.measurements import CPU_QUOTAS
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.cgroups import hierarchies
from latmon_backends.kernel.cpu_quotas import QuotaReader

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NAME = f"latmon-quota-{os.getpid()}"
PROGRAM = """
import os, sys, time
end, size = time.monotonic() + 15, 0
while time.monotonic() < end:
    with open(sys.argv[1], "wb") as file:
        file.write(os.urandom(1 << 16))
        os.fsync(file.fileno())
    size = sum(range(50_000))
"""
"""It ends by itself."""


@contextlib.contextmanager
def quota(quota_us):
    """Make a cgroup with a CPU quota in 100 ms."""
    for root, version in hierarchies(mounts_of(), "cpu"):
        path = root / NAME
        file = path / ("cpu.max" if version == 2 else "cpu.cfs_quota_us")
        with contextlib.suppress(OSError):
            path.mkdir()
        try:
            file.write_text(f"{quota_us} 100000" if version == 2 else str(quota_us))
        except OSError:
            with contextlib.suppress(OSError):
                path.rmdir()
            continue
        try:
            yield path
        finally:
            for _ in range(50):
                try:
                    path.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
        return
    pytest.skip("no hierarchy of cgroups takes a CPU quota here")


def rows_while_it_runs(path, file):
    """Return the rows of a cgroup, in which a program computes and writes."""
    reader = QuotaReader(Path("/proc"), MountTable())
    started = subprocess.Popen([sys.executable, "-c", PROGRAM, str(file)])
    try:
        (path / "cgroup.procs").write_text(str(started.pid))
        end = time.monotonic() + 14
        found = {}
        before = reader.sample(time.monotonic_ns() // 1000)
        while time.monotonic() < end:
            time.sleep(0.5)
            after = reader.sample(time.monotonic_ns() // 1000)
            rows = tables_between(before, after).get(CPU_QUOTAS, {})
            found = {key: row for key, row in rows.items() if key.cgroup.endswith(NAME)}
            if any(row.io_bytes for row in found.values()) or sum(row.periods for row in found.values()) > 60:
                break
        return found
    finally:
        started.kill()
        started.wait()


def test_a_quota_that_is_used_up_is_seen_with_the_program_and_its_ios(tmp_path):
    with quota(5000) as path:
        rows = rows_while_it_runs(path, tmp_path / "file")
    assert rows, "the cgroup has not run"
    assert {(key.quota_us, key.period_us) for key in rows} == {(5000, 100_000)}
    periods = sum(row.periods for row in rows.values())
    assert sum(row.throttled for row in rows.values()) > periods / 2
    assert sum(row.throttled_us for row in rows.values()) > 0
    processes = {key.process.partition("/")[0] for key in rows if key.process}
    assert processes <= {"python", "python3", Path(sys.executable).name, Path(os.path.realpath(sys.executable)).name}
