"""The I/Os of two cgroups on the real kernel: their number, bytes and latencies against fio's own figures."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import wait_for
from workload import Capture, LoopDevice, fio, now_us

from latmon.model import measurements
from latmon.model.measurements.issuers import OTHERS

SECONDS = 4
TRACED_S = 60.0
"""The tool compiles the tracer's program."""
SETTLED = 3
"""Frames after which the kernel's counters of cgroups are read."""
CONTAINER = "3f2a91c0" * 8

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace, fio, losetup"
    ),
]


def hierarchy():
    """The cgroups to which the kernel charges I/O here."""
    first = Path("/sys/fs/cgroup/blkio")
    return first if first.is_dir() else Path("/sys/fs/cgroup")


@contextmanager
def cgroup(name):
    path = hierarchy() / name
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        wait_for(lambda: not (path / "cgroup.procs").read_text(), every=0.1)
        path.rmdir()


@pytest.mark.slow
@each_bpftrace
def test_two_cgroups_have_the_ios_that_fio_issued(tmp_path, suite):
    """One cgroup on one disk, another one on that and a second one."""
    check_issuers(tmp_path, suite)


@pytest.mark.slow
@each_bpftrace
def test_processes_have_the_ios_that_fio_issued_while_they_are_traced(tmp_path, suite):
    check_issuers(tmp_path, suite, "--stages", "all")


@pytest.mark.slow
@each_bpftrace
def test_a_cgroup_is_behind_the_one_that_keeps_the_disk_busy(tmp_path, suite):
    """A victim reads one by one, a neighbour writes much, and another cgroup hardly does anything."""
    jobs = {
        "victim": {"rw": "randread", "iodepth": 1, "rate_iops": 200},
        "busy": {"rw": "randwrite", "iodepth": 32, "bs": "64k", "rate_iops": 2000},
        "idle": {"rw": "randread", "iodepth": 1, "rate_iops": 10},
    }
    with ExitStack() as held:
        disk = held.enter_context(LoopDevice(tmp_path / "disk"))
        groups = {name: held.enter_context(cgroup(f"latmon-{name}-{os.getpid()}.service")) for name in jobs}
        bpftrace_tool = tool(suite, tmp_path)
        words = ("--backend", "bpftrace", "--stages", "all", "--device", disk.name)
        with Capture(tmp_path, *words, LATMON_BPFTRACE=bpftrace_tool.path) as capture:
            assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), TRACED_S, every=0.5)
            with ThreadPoolExecutor() as pool:
                running = [
                    pool.submit(
                        fio, tmp_path, SECONDS, job | {"name": name, "filename": disk.path}, cgroup=groups[name]
                    )
                    for name, job in jobs.items()
                ]
                for one in running:
                    one.result()
            end_us = now_us()
            assert wait_for(lambda: any(frame.mono_us - frame.dt_us >= end_us for frame in capture.frames()), every=0.2)
            capture.stop()
            report = capture.report()
    if report["health"]["tier"] == "C":
        pytest.skip("what an I/O is behind is known on tier A alone")
    rows = {cgroup["cgroup"]: cgroup for cgroup in report["cgroups"]}
    shares = {one["cgroup"]: one["share"] for one in rows[f"/{groups['victim'].name}"]["behind"]}
    print(shares)
    others = {name: share for name, share in shares.items() if name != f"/{groups['victim'].name}"}
    # how much of the time it is depends on the disk: a loop device serves cgroups side by side
    assert max(others, key=others.__getitem__) == f"/{groups['busy'].name}"
    assert others[f"/{groups['busy'].name}"] > 5 * others.get(f"/{groups['idle'].name}", 0)
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)


def check_issuers(tmp_path, suite, *words):
    jobs = {
        "reads": {"rw": "randread", "iodepth": 4, "rate_iops": 600},
        "writes": {"rw": "randwrite", "iodepth": 8, "bs": "64k", "rate_iops": 300},
        "more": {"rw": "randrw", "iodepth": 2, "rate_iops": "100,100"},
    }
    with ExitStack() as held:
        disks = [held.enter_context(LoopDevice(tmp_path / name)) for name in ("one", "two")]
        service, container = (
            held.enter_context(cgroup(f"latmon-{os.getpid()}.service")),
            held.enter_context(cgroup(f"latmon-docker-{CONTAINER}.scope")),
        )
        where = {"reads": (service, disks[0]), "writes": (container, disks[0]), "more": (container, disks[1])}
        bpftrace_tool = tool(suite, tmp_path)
        watched = [*words, *(word for disk in disks for word in ("--device", disk.name))]
        with Capture(tmp_path, "--backend", "bpftrace", *watched, LATMON_BPFTRACE=bpftrace_tool.path) as capture:
            assert wait_for(lambda: len(capture.frames()) > SETTLED, every=0.2)
            if words:
                assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), TRACED_S, every=0.5)
            with ThreadPoolExecutor() as pool:
                running = {
                    name: pool.submit(
                        fio,
                        tmp_path,
                        SECONDS,
                        job | {"name": name, "filename": where[name][1].path},
                        cgroup=where[name][0],
                    )
                    for name, job in jobs.items()
                }
                issued = {name: one.result()[name] for name, one in running.items()}
            end_us = now_us()
            assert wait_for(lambda: any(frame.mono_us - frame.dt_us >= end_us for frame in capture.frames()), every=0.2)
            capture.stop()
            report = capture.report()
    frames = capture.frames()
    by_kernel = report["health"]["tier"] == "C"
    if words:
        check_processes(report, issued, where, timed=not by_kernel)
    counted = {name for cgroup in report.get("cgroups", ()) for name in cgroup["devices"]}
    if by_kernel and not counted >= {disk.name for disk in disks}:
        pytest.skip("cgroups of version 1 count no device here that never had a limit (Linux 6.18)")
    rows = {cgroup["cgroup"]: cgroup for cgroup in report["cgroups"]}
    assert by_kernel is not any(done.latency for frame in frames for done in frame[measurements.ISSUERS].values())
    assert rows[f"/{container.name}"]["name"] == f"docker {CONTAINER[:12]}"
    for name, ops in issued.items():
        group, disk = where[name]
        measured = rows[f"/{group.name}"]["devices"][disk.name]["ops"]
        for op, sent in ops.items():
            print(f"{suite} {name} {op}: fio {sent.count} I/Os {sent.bytes} bytes, latmon {measured[op]}")
            assert measured[op]["count"] == pytest.approx(sent.count, rel=0.01, abs=1)
            assert measured[op]["bytes"] == pytest.approx(sent.bytes, rel=0.01, abs=1 << 16)
    if by_kernel:
        return
    for disk in disks:
        whole_ops = report["devices"][disk.name]["ops"]
        for op in whole_ops:
            parts = [row["devices"][disk.name]["ops"].get(op) for row in rows.values() if disk.name in row["devices"]]
            assert sum(part["count"] for part in parts if part) == whole_ops[op]["latency_us"]["count"]
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1, abs=0.01)


def check_processes(report, issued, where, *, timed):
    """A job is one process, in a cgroup on tier A; what others count together is none of it."""
    for name, ops in issued.items():
        group, disk = where[name]
        its = [(process, process["devices"].get(disk.name, {}).get("ops", {})) for process in report["processes"]]
        ((process, measured),) = [(one, found) for one, found in its if found.keys() == ops.keys()]
        assert process["comm"] == "fio"
        assert process["cgroup"] == (f"/{group.name}" if timed else OTHERS)
        for op, sent in ops.items():
            print(f"fio {process['pid']} {op}: {sent.count} I/Os {sent.bytes} bytes, latmon {measured[op]}")
            assert measured[op]["count"] == pytest.approx(sent.count, rel=0.01, abs=1)
            assert measured[op]["bytes"] == pytest.approx(sent.bytes, rel=0.01, abs=1 << 16)
            assert measured[op].get("latency_us", {}).get("count", 0) == (measured[op]["count"] if timed else 0)
