"""The DTrace backend on the real kernel: counts and times against fio, the kernel's counters and bpftrace; refusals.

Reads of a loop device are I/Os of the disk below it as well: each is counted where it is.
"""

import asyncio
import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from dtraces import DTRACE, IN_CHROOT, STARTING_S, needs_dtrace, tool
from terminal import environment, latmon, wait_for
from test_bpftrace_counts import disk_of
from test_processes import SYSTEM_PYTHON, system_python_runs_it
from workload import Capture, LoopDevice, buckets_apart, diskstats, fio, gained

from latmon.capture.backend import Options
from latmon_backends.dtrace import program
from latmon_backends.dtrace.backend import DtraceBackend
from latmon_backends.dtrace.program import is_listed

IOS = 60_000
LEAST = 0.995
TIMED = 0.99
"""By the io provider, which misses some ends: 0.1 to 0.8 % were missing on two busy CPUs."""
ATTEMPTS = 3
"""A CPU that is taken away from this host for a while loses events of every tool."""
SIZE = 64 << 20
BLKPG = 0x1269
SETTLED_S = 1.5
"""More than an interval."""
pytestmark = needs_dtrace


@pytest.fixture
def disk(tmp_path):
    """With blocks below it: the read of a hole would never reach the disk that holds the file."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    with LoopDevice(image, SIZE) as device:
        yield device


def reads(path, count=IOS, **more):
    """Read 4 KiB at a time, which nothing merges."""
    job = {"name": "reads", "filename": path, "rw": "randread", "iodepth": 8, "norandommap": 1}
    return job | {"number_ios": count, "io_size": "1g", "time_based": 0} | more


def capture(directory, *words, duration="120s"):
    return Capture(directory, "--backend", "dtrace", "--duration", duration, *words, LATMON_DTRACE=DTRACE)


def gaps(frames):
    return [round(frame.dt_us / 1e6, 2) for frame in frames]


def test_every_read_is_counted_there_where_it_is(tmp_path, disk, alone):
    """By the default probe, in a recording that began before the load and ended after it."""
    below = disk_of(tmp_path)
    devices = [disk.name, *([below] if below else [])]
    for _ in range(ATTEMPTS):
        opening = time.monotonic()
        with alone(), capture(tmp_path, *(word for name in devices for word in ("--device", name))) as given_capture:
            opened_s = time.monotonic() - opening
            before = diskstats()
            issued = fio(tmp_path, 60, reads(disk.path))["reads"]["read"]
            kernel = {name: gained(before, diskstats(), name)["read"] for name in devices}
            time.sleep(SETTLED_S)
            closing = time.monotonic()
            assert given_capture.stop() == 0, given_capture.stderr
            closed_s = time.monotonic() - closing
        report = given_capture.report()
        found = {name: report["devices"][name]["ops"]["read"] for name in devices}
        share = {name: found[name]["count"] / kernel[name].count for name in devices}
        print(f"opened in {opened_s:.1f} s, closed in {closed_s:.1f} s; seen {share}; {report['health']}")
        print("seconds from tick to tick", gaps(given_capture.frames()))
        if share[disk.name] >= LEAST:
            break
    assert issued.count >= 50_000
    assert (issued.count, issued.bytes) == kernel[disk.name]
    assert LEAST <= share[disk.name] <= 1
    ours = found[disk.name]
    assert ours["bytes"] == 4096 * ours["count"]
    assert ours["latency_us"]["count"] == ours["count"]
    assert ours["kernel"]["count"] == issued.count
    health = report["health"]
    assert health["tier"] == "A"
    both = health["completions"]
    assert health["coverage"] == pytest.approx(min(1, both["seen"] / both["kernel"]), abs=1e-6)
    assert LEAST <= health["coverage"] <= 1
    assert [health[name] for name in ("lost_events", "map_full", "undecoded_lines")] == [0, 0, 0]
    assert report["gaps"] == []
    if below:
        assert kernel[below].count >= LEAST * issued.count, "the loop device's reads are this disk's, too"
        assert share[below] >= LEAST
    assert below is None or found[below]["latency_us"]["p50"] <= ours["latency_us"]["p50"]


async def seen_by(script, devices, load):
    """The backend's frames with this always-on script alone, while `load` runs on a thread."""
    frames, begun = [], asyncio.Event()

    async def follow(backend):
        async for frame in backend.frames():
            frames.append(frame)
            begun.set()

    async with DtraceBackend(Options(devices=devices), find_tool=tool, only=(script,)) as backend:
        assert backend.origin.extra["probe"] == script
        following = asyncio.create_task(follow(backend))
        await asyncio.wait_for(begun.wait(), STARTING_S)
        before = diskstats()
        issued = await asyncio.to_thread(load)
        kernel = {name: gained(before, diskstats(), name) for name in devices}
        await asyncio.sleep(SETTLED_S)
        following.cancel()
        await asyncio.wait({following})
        frames += await backend.finish(3.6)
    return frames, issued, kernel


def counted(frames, name):
    """(I/Os and bytes by op, timed ones)"""
    seen, size, timed = Counter(), Counter(), Counter()
    for frame in frames:
        mine = {flow: done for flow, done in frame.seen.items() if flow.device == name}
        seen.update({flow.op: done.count for flow, done in mine.items()})
        size.update({flow.op: done.bytes for flow, done in mine.items()})
        timed.update(
            {
                at.op: histogram.count
                for at, histogram in frame.histograms.items()
                if at.stage == "total" and at.device == name
            }
        )
    return seen, size, timed


async def test_every_read_is_counted_by_the_io_provider(tmp_path, disk, alone):
    for _ in range(ATTEMPTS):
        with alone():
            frames, issued, kernel = await seen_by(
                "io_d", (disk.name,), lambda: fio(tmp_path, 60, reads(disk.path))["reads"]["read"]
            )
        seen, size, timed = (one["read"] for one in counted(frames, disk.name))
        print(f"fio {issued.count}, seen {seen}, timed {timed}, bytes {size}; ticks {gaps(frames)}")
        if timed >= TIMED * issued.count:
            break
    assert issued.count >= 50_000
    assert (issued.count, issued.bytes) == kernel[disk.name]["read"]
    assert seen == issued.count
    assert size == issued.bytes
    assert TIMED * issued.count <= timed <= issued.count


@pytest.fixture
def partition(disk):
    """All of the disk but its first MiB, made a partition by BLKPG as partx does it."""
    where = struct.pack("qqi64s64s", 1 << 20, SIZE - (1 << 20), 1, b"", b"")
    buffer = ctypes.create_string_buffer(where, len(where) + 8)
    with Path(disk.path).open("rb") as device:
        add, remove = (struct.pack("iiiP", what, 0, len(buffer), ctypes.addressof(buffer)) for what in (1, 2))
        try:
            fcntl.ioctl(device, BLKPG, add)
        except OSError as error:
            pytest.skip(f"no partition of a loop device here: {error}")
        wait = wait_for(lambda: [path for path in Path("/dev").glob(f"{disk.name}p1") if path.is_block_device()], 5)
        try:
            if not wait:
                pytest.skip("no device nodes are made here")
            yield str(wait[0])
        finally:
            fcntl.ioctl(device, BLKPG, remove)


@pytest.mark.parametrize("script", ["requests_d", "io_d"])
async def test_a_partition_is_its_disk(tmp_path, disk, partition, script):
    def load():
        return fio(tmp_path, 60, reads(partition, 5000))["reads"]["read"]

    frames, _, kernel = await seen_by(script, (disk.name,), load)
    seen, size, timed = (one["read"] for one in counted(frames, disk.name))
    print(f"kernel {kernel[disk.name]['read']}, seen {seen}, timed {timed}, bytes {size}")
    assert kernel[disk.name]["read"].count >= 5000
    assert 0.98 * 5000 <= timed <= seen <= kernel[disk.name]["read"].count
    assert size >= 0.98 * 5000 * 4096


async def merging(tmp_path, disk, script):
    """Small writes in sequence, 32 a system call, on a device with a scheduler: few requests come of them."""
    (Path("/sys/block") / disk.name / "queue/scheduler").write_text("mq-deadline")
    job = {"name": "merged", "filename": disk.path, "rw": "write", "iodepth": 32, "iodepth_batch": 32}
    job |= {"iodepth_batch_complete_min": 32, "size": "32M", "time_based": 0}
    return await seen_by(script, (disk.name,), lambda: fio(tmp_path, 30, job)["merged"]["write"])


async def test_merged_writes_are_one_request(tmp_path, disk):
    frames, issued, kernel = await merging(tmp_path, disk, "requests_d")
    seen, size, timed = (one["write"] for one in counted(frames, disk.name))
    done = kernel[disk.name]["write"]
    print(f"fio {issued.count}, kernel {done.count}, seen {seen}, timed {timed}, bytes {size}")
    assert done.count < issued.count / 4, "nothing was merged"
    assert 0.99 * done.count <= seen <= done.count + 1
    assert size == pytest.approx(issued.bytes, rel=0.01)


async def test_merged_writes_are_as_many_as_were_begun_to_the_io_provider(tmp_path, disk):
    """Only the first of a request's I/Os has an end there; the others are seen, untimed, as addresses come again."""
    frames, issued, kernel = await merging(tmp_path, disk, "io_d")
    seen, size, timed = (one["write"] for one in counted(frames, disk.name))
    done = kernel[disk.name]["write"]
    print(f"fio {issued.count}, kernel {done.count}, seen {seen}, timed {timed}, bytes {size}")
    assert done.count < issued.count / 4, "nothing was merged"
    assert timed == pytest.approx(done.count, rel=0.02)
    assert timed < seen <= issued.count
    assert size == pytest.approx(issued.bytes, rel=0.01)


@pytest.mark.parametrize("bpftrace", ["host", "trixie"])
def test_latencies_are_those_of_bpftrace(tmp_path, disk, alone, bpftrace):
    """hba: from the driver's issue to completion, of the same reads at the same time, within a bucket of 12.5 %."""
    from bpftraces import tool as bpftraces_tool  # noqa: PLC0415 - only here

    if bpftrace == "host" and not shutil.which("bpftrace"):
        pytest.skip("bpftrace is not installed here")
    environ = {"LATMON_BPFTRACE": bpftraces_tool(bpftrace, tmp_path).path}
    watched = ("--device", disk.name, "--duration", "120s")
    for _ in range(ATTEMPTS):
        with alone(), capture(tmp_path, "--device", disk.name) as given_capture:
            with Capture(tmp_path, "--backend", "bpftrace", *watched, **environ) as other:
                issued = fio(tmp_path, 60, reads(disk.path))["reads"]["read"]
                time.sleep(SETTLED_S)
                assert other.stop() == 0, other.stderr
            assert given_capture.stop() == 0, given_capture.stderr
        reported = []
        for of in (given_capture, other):
            report = of.report()
            hba = report["devices"][disk.name]["ops"]["read"]["stages"]["hba"]
            reported.append(hba)
            print(
                report["host"]["tool"], "tier", report["health"]["tier"], {k: hba[k] for k in ("count", "p50", "p99")}
            )
        print(f"fio p50 {issued.p50} p99 {issued.p99}, slat {issued.slat}")
        apart = [buckets_apart(reported[0][q] - 1, reported[1][q] - 1) for q in ("p50", "p99")]
        if max(apart) <= 1:
            break
    assert max(apart) <= 1, reported


def test_on_demand_scripts_that_cannot_run_are_named_with_their_reason(tmp_path, disk):
    """And nothing waits for them."""
    words = ["--device", disk.name, "--stages", "all"]
    with capture(tmp_path, *words, duration="20s") as given_capture:
        fio(tmp_path, 4, {"name": "sync", "filename": disk.path, "rw": "randread", "ioengine": "psync"})
        assert given_capture.ended(60) == 0, given_capture.stderr
    report = given_capture.report()
    missing = {entry["name"]: entry["reason"] for entry in report["health"]["probes_missing"]}
    on_demand = {manifest.name: manifest for manifest in program.manifests("linux") if manifest.group != "always"}
    print(missing, gaps(given_capture.frames()), [key for key, value in report.items() if value])
    listed = subprocess.run([DTRACE, "-l"], capture_output=True, text=True, check=True).stdout
    lacking = {
        name for name, manifest in on_demand.items() if not all(is_listed(hook, listed) for hook in manifest.hooks)
    }
    assert set(missing) == lacking
    assert all(missing.values())
    assert report["devices"][disk.name]["ops"]["read"]["count"] > 0
    assert sum(gaps(given_capture.frames())) > 15


def once(before=(), python=sys.executable, **environ):
    """A capture that doesn't come about: its sentence."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        words = latmon("--backend", "dtrace", "--record", f"{directory}/f", "--duration", "3s")
        done = subprocess.run(
            [*before, python, *words[1:]],
            env=environment(**environ),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=STARTING_S,
        )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    sentences = [line for line in done.stderr.splitlines() if "starting, nothing is recorded yet" not in line]
    assert len(sentences) == 1, sentences
    return sentences[0]


def test_none_where_the_variable_names_nothing():
    assert once(LATMON_DTRACE="/nonexistent/dtrace").endswith("names /nonexistent/dtrace, which can't be run.")


def test_one_that_only_fails_says_so_once():
    assert once(LATMON_DTRACE="/bin/false").count("ended with status 1") == 1


@pytest.mark.skipif(" major_names\n" in Path("/proc/kallsyms").read_text(), reason="this kernel lists its variables")
@pytest.mark.skipif(not (IN_CHROOT.parent / "chroots.sh").exists(), reason="needs the chroot")
def test_a_library_that_this_kernel_does_not_suit_is_named(tmp_path):
    plain = tmp_path / "dtrace"
    plain.write_text(f'#!/bin/sh\n. {IN_CHROOT.parent}/chroots.sh\nenter "$cache/dtrace-sid" dtrace "$@"\n')
    plain.chmod(0o755)
    text = once(LATMON_DTRACE=str(plain))
    assert "major_names" in text
    assert "CONFIG_KALLSYMS_ALL" in text
    assert text.count("io.d") == 1


@pytest.mark.skipif(
    not Path(SYSTEM_PYTHON).exists() or not system_python_runs_it(), reason="needs a Python for everybody"
)
@pytest.mark.parametrize("has_sudo", [False, True], ids=["", "sudo"])
def test_without_root(has_sudo):
    """Run it as the user nobody, with DTrace's error for all users but root; the chroot with the real one is root's."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        plain = Path(directory) / "dtrace"
        plain.write_text('#!/bin/sh\necho "dtrace: run as root for tracing and listing probes" >&2\nexit 1\n')
        plain.chmod(0o755)
        for name in ("sh", "env", "sleep", "unshare", "mount", *(["sudo"] if has_sudo else [])):
            if path := shutil.which(name):
                (Path(directory) / name).symlink_to(path)
        roots = os.pathsep.join((environment()["PYTHONPATH"], sysconfig.get_paths()["purelib"]))
        nobody = [shutil.which("setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        text = once(nobody, SYSTEM_PYTHON, LATMON_DTRACE=str(plain), PATH=directory, PYTHONPATH=roots, HOME=directory)
    print(text)
    assert "sudo" in text
    assert "privileges" in text


def test_auto_takes_it_where_bpftrace_is_refused(tmp_path, disk):
    with Capture(
        tmp_path, "--device", disk.name, "--duration", "3s", LATMON_DTRACE=DTRACE, LATMON_BPFTRACE="/bin/false"
    ) as capture:
        assert capture.ended(60) in (0, 4), capture.stderr
    assert capture.report()["backend"] == "dtrace"
    assert "bpftrace ended with status 1" in capture.stderr, "why not the better one"
