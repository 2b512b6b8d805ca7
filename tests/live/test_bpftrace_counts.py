"""The always-on probe on the real kernel: what it counts and times against /proc/diskstats and fio's own figures.

An fsync's empty write that carries the flush is counted by diskstats as a write, and so by latmon; it is never sent to
the driver, so it is not timed. One recording per bpftrace, two loads on disks of their own, each I/O of them known.
"""

import asyncio
import os
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from bpftraces import each_bpftrace, tool
from terminal import wait_for
from workload import CROWDED, OPS, Capture, Done, LoopDevice, buckets_apart, fio, has_counters, now_us

from latmon.capture.backend import Options
from latmon_backends.bpftrace.backend import BpftraceBackend

SHARE = 0.995
"""Each tier must see and time this share at least, apart from runs that latmon reports as skipped by the kernel."""
MERGED = 0.3
"""Share of fio's I/Os that the kernel completes at least: a busy host, which submits more at once, merges more."""
APART = 0.02
"""Share of the I/Os of some seconds that a crowded host's reader of the counters may have of the time beside them."""
FIRST_FRAMES = 4
"""So many first frames can lack the kernel's counters, because it and the probe begin to count at different times."""
LOOPS = 8
ROUNDS = 6

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("bpftrace", "fio", "losetup", "chrt"))),
        reason="needs bpftrace, fio, losetup and chrt",
    ),
]


@dataclass
class Measured:
    """One recording, and what really happened while it ran."""

    capture: Capture
    report: dict
    mixed: str
    flushed: str
    real: str | None
    file: dict
    jobs: dict
    flushes: dict

    def least(self, count, skipped=None):
        """Return the least that must have been seen of these I/Os, if so many runs were skipped meanwhile."""
        skipped = self.report["health"]["skipped"] if skipped is None else skipped
        return max(SHARE * count - skipped, (SHARE - CROWDED) * count) - 1

    def ops(self, device):
        return self.report["devices"][device]["ops"]

    def compared(self, begin_us=0, end_us=2**63):
        """Frames of a time with the kernel's counts beside the probe's, and those counts as we read them meanwhile."""
        names = self.mixed, self.flushed, self.real
        since = [frame for frame in self.capture.frames() if frame.mono_us > begin_us]
        frames = [frame for frame in since if frame.mono_us - frame.dt_us < end_us and has_counters(frame, *names)]
        return frames, partial(self.capture.watch.between, frames[0].mono_us - frames[0].dt_us, frames[-1].mono_us)


def disk_of(path):
    """The disk that holds a file, where that is as simple as a partition."""
    number = path.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if not node.exists() or node.name.startswith(("dm-", "md")):
        return None
    return (node.parent if (node / "partition").exists() else node).name


def wait_for_a_frame_after(capture, us):
    """Wait for a frame that begins later: no I/O of a load is near the ends of what is compared."""
    assert wait_for(lambda: any(frame.mono_us - frame.dt_us >= us for frame in capture.frames()), every=0.2)


def measure(directory, seconds, environ):
    real = disk_of(directory)
    watched = ["--device", "loop*", *(["--device", real] if real else [])]
    with (
        LoopDevice(directory / "mixed") as mixed,
        LoopDevice(directory / "flushed") as flushed,
    ):
        fio(directory, 0.1, {"name": "lay-out", "filename": "file", "size": "32M", "rw": "write", "bs": "1M"})
        with Capture(directory, "--backend", "bpftrace", *watched, **environ) as capture:
            assert wait_for(lambda: len(list(capture.frames())) > FIRST_FRAMES, every=0.2)
            job = {"name": "file", "filename": "file", "size": "32M", "rw": "randrw", "iodepth": 4, "fsync": 16}
            begin_us = now_us()
            file = fio(directory, seconds, job)["file"]
            file["span"] = begin_us, now_us()
            wait_for_a_frame_after(capture, file["span"][1])
            jobs = fio(
                directory,
                1.5,
                {"name": "mixed", "filename": mixed.path, "size": "64M", "rw": "randrw", "iodepth": 4, "fsync": 16},
                {"name": "trim", "filename": mixed.path, "offset": "128M", "size": "64M", "rw": "randtrim",
                 "bs": "64k", "rate_iops": 200},
            )  # fmt: skip
            loops = {"filename": flushed.path, "size": "32M", "rw": "randwrite", "fsync": 1, "ioengine": "psync"}
            flushes = fio(directory, 1, *({"name": f"loop{n}", **loops} for n in range(LOOPS)))
            wait_for_a_frame_after(capture, now_us())
            assert capture.stop() == 0, capture.stderr
        names = (mixed.name, flushed.name, real)
        loads = (file, jobs, flushes)
        return Measured(capture, capture.report(), *names, *loads)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("host", 5), id="host"),
        pytest.param(("host", 10), id="host-10s", marks=pytest.mark.slow),
        pytest.param(("trixie", 10), id="0.23", marks=pytest.mark.versions),
        pytest.param(("sid", 10), id="0.27", marks=pytest.mark.versions),
    ],
)
def measured(request, tmp_path_factory):
    suite, seconds = request.param
    directory = tmp_path_factory.mktemp("counts")
    return measure(directory, seconds, {"LATMON_BPFTRACE": tool(suite, directory).path})


def expected(measured):
    """Return fio's I/Os on a disk of its own, as diskstats counts them."""
    mixed, trim = measured.jobs["mixed"], measured.jobs["trim"]
    flushes = mixed["flush"].count
    return {
        "read": Done(mixed["read"].count, mixed["read"].bytes),
        "write": Done(mixed["write"].count + flushes, mixed["write"].bytes),
        "flush": Done(flushes, 0),
        "discard": Done(trim["discard"].count, trim["discard"].bytes),
    }


def test_every_op_is_counted_and_timed(measured):
    ops, issued = measured.ops(measured.mixed), expected(measured)
    kernel = measured.capture.watch.between(0, 2**63, measured.mixed)
    print(measured.report["host"]["tool"], measured.report["health"])
    for op in OPS:
        seen, timed = ops[op]["count"], ops[op]["latency_us"]["count"]
        sent = issued[op].count - (issued["flush"].count if op == "write" else 0)
        print(f"{op:8} fio {issued[op].count:7} kernel {kernel[op].count:7} seen {seen:7} timed {timed:7} of {sent:7}"
              f" = {seen / issued[op].count:.4f}, {timed / sent:.4f}")  # fmt: skip
    assert {op: kernel[op].count for op in OPS} == {op: issued[op].count for op in OPS}
    for op in OPS:
        seen, timed = ops[op]["count"], ops[op]["latency_us"]["count"]
        sent = issued[op].count - (issued["flush"].count if op == "write" else 0)
        assert measured.least(issued[op].count) <= seen <= issued[op].count, op
        assert measured.least(sent) <= timed <= sent, op


def test_windows_have_their_maximum(measured):
    """Absent only where the slowest I/O ended while the tick before was printed: 0.1 to 2 %, by the host's load."""
    windows = [frame for frame in measured.capture.frames() if not frame.late]
    found = [
        histogram.max for frame in windows for series, histogram in frame.histograms.items() if series.stage == "total"
    ]
    print(f"{found.count(None)} of {len(found)} have none")
    assert found.count(None) <= 0.15 * len(found)


def test_bytes_are_those_of_the_ios(measured):
    ops, issued = measured.ops(measured.mixed), expected(measured)
    for op in ("read", "write", "discard"):
        of_seen = issued[op].bytes * ops[op]["count"] / issued[op].count
        assert ops[op]["bytes"] == pytest.approx(of_seen, rel=0.005), op
    assert ops["flush"]["bytes"] == 0


def test_coverage_is_what_it_was(measured):
    frames, kernel = measured.compared()
    names = {measured.mixed, measured.flushed}
    seen = sum(done.count for frame in frames for flow, done in frame.seen.items() if flow.device in names)
    there = sum(done.count for name in names for done in kernel(name).values())
    health = measured.report["health"]
    print(f"coverage {health['coverage']} of all; of the loops {seen} of {there} = {seen / there:.4f}")
    both = health["completions"]
    assert both["seen"] >= measured.least(both["kernel"]) - APART * both["kernel"]
    assert health["coverage"] == pytest.approx(min(1, both["seen"] / both["kernel"]), abs=1e-6)
    reported = sum(done.count for frame in frames for flow, done in frame.kernel.items() if flow.device in names)
    assert seen / reported == pytest.approx(seen / there, abs=APART)
    assert health["probes_attached"] == health["probes_wanted"] > 0
    assert [health[name] for name in ("lost_events", "map_full", "undecoded_lines")] == [0, 0, 0]
    assert measured.report["gaps"] == []


def test_the_disk_that_holds_the_file(measured):
    if measured.real is None:
        pytest.skip("the disk of the temporary directory is unknown")
    file = measured.file
    frames, between = measured.compared(*file["span"])
    kernel, skipped = between(measured.real), sum(frame.health.skipped or 0 for frame in frames)
    for op in ("read", "write", "flush"):
        seen = sum(frame.seen[flow].count for frame in frames for flow in frame.seen if flow == (measured.real, op))
        print(f"{measured.real} {op}: seen {seen} of {kernel[op].count}, skipped {skipped}; fio {file[op].count}")
        assert kernel[op].count >= MERGED * file[op].count or op == "flush", "fsyncs may share a flush"
        least = measured.least((1 - APART) * kernel[op].count, skipped)
        assert least <= seen <= (1 + APART) * kernel[op].count, op


@pytest.mark.slow
@each_bpftrace
def test_latencies_agree_with_fio(suite, tmp_path, alone):
    """Within two buckets of 12.5 %; slat, the way into the kernel, is outside of both.

    What a busy host does to fio between the kernel's completion and its own stamp is in one round; what is wrong with
    ours would be in all of them.
    """
    apart = []
    with ExitStack() as stack:
        disks = [stack.enter_context(LoopDevice(tmp_path / f"disk{n}")) for n in range(ROUNDS)]
        watched = [word for disk in disks for word in ("--device", disk.name)]
        environ = {"LATMON_BPFTRACE": tool(suite, tmp_path).path}
        job = {"name": "timed", "size": "64M", "rw": "randrw", "bs": "64k", "iodepth": 2}
        with alone(), Capture(tmp_path, "--backend", "bpftrace", *watched, **environ) as capture:
            rounds = [fio(tmp_path, 1, {"filename": disk.path, **job}, urgent=True)["timed"] for disk in disks]
            time.sleep(0.2)
            assert capture.stop() == 0, capture.stderr
        devices = capture.report()["devices"]
    for disk, fios in zip(disks, rounds, strict=True):
        pairs = []
        for op, current_fio in fios.items():
            ours = devices[disk.name]["ops"][op]["latency_us"]
            print(
                f"{op}: clat {current_fio.p50:.0f}/{current_fio.p99:.0f} us, latmon {ours['p50']}/{ours['p99']} us, "
                f"slat {current_fio.slat:.1f}"
            )
            pairs += [(ours["p50"], current_fio.p50), (ours["p99"], current_fio.p99)]
        apart.append(max(buckets_apart(us - 1, fios_us) for us, fios_us in pairs))
    assert min(apart) <= 2, apart


def test_parallel_fsync_loops(measured):
    """The block layer merges their flushes: what the kernel completed is what must be timed."""
    flush = measured.ops(measured.flushed)["flush"]
    kernel = measured.capture.watch.between(0, 2**63, measured.flushed)["flush"].count
    fsyncs = sum(job["flush"].count for job in measured.flushes.values())
    print(f"{fsyncs} fsyncs, {kernel} flushes, timed {flush['latency_us']['count']}")
    assert 0 < kernel <= fsyncs
    assert measured.least(kernel) <= flush["latency_us"]["count"] <= kernel


@pytest.mark.versions
async def test_by_the_request_s_pointer(tmp_path):
    """Tier A', which kernels without stamps get, forced on one that has them."""
    frames, begun = [], asyncio.Event()

    async def follow(backend):
        async for frame in backend.frames():
            frames.append(frame)
            begun.set()

    with LoopDevice(tmp_path / "disk") as disk:
        options = Options(devices=(disk.name,))
        async with BpftraceBackend(options, partial(tool, "trixie", tmp_path), only=("block_ap",)) as backend:
            assert backend.origin.tier == "A'"
            following = asyncio.create_task(follow(backend))
            await begun.wait()
            job = {"name": "job", "filename": disk.path, "size": "64M", "rw": "randrw", "iodepth": 4, "fsync": 16}
            issued = (await asyncio.to_thread(fio, tmp_path, 5, job))["job"]
            await asyncio.sleep(1.3)
            following.cancel()
            await asyncio.wait({following})
    seen, timed, size = Counter(), Counter(), Counter()
    for frame in frames:
        seen.update({flow.op: done.count for flow, done in frame.seen.items()})
        size.update({flow.op: done.bytes for flow, done in frame.seen.items()})
        timed.update(
            {series.op: histogram.count for series, histogram in frame.histograms.items() if series.stage == "total"}
        )
    flushes = issued["flush"].count
    for op, sent in issued.items():
        done = sent.count + (flushes if op == "write" else 0)
        print(f"{op}: issued {sent.count}, seen {seen[op]} of {done}, timed {timed[op]}")
        assert SHARE * done - 1 <= seen[op] <= done
        assert SHARE * sent.count - 1 <= timed[op] <= sent.count
        assert size[op] == pytest.approx(sent.bytes, rel=0.005)
