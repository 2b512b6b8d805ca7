"""The probes of interrupts, softirqs, wake-ups and bios beside the kernel's own counters and a hog of our own.

Tier C on the host's bpftrace; under the marker `versions` tier A on 0.23 and tier C on 0.27.
"""

import mmap
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from attached import Attached, manifest
from bpftraces import ROOT, TIMEOUT_S, each_bpftrace, tool
from terminal import wait_for
from workload import Capture, LoopDevice

from latmon.model.frame import Flow, Series
from latmon.model.histogram import bucket_bounds
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS, WAKEUPS

ZRAM = Path("/sys/class/zram-control")
VECTORS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
PAGE = 4096
WRITES = 400
OFTEN = 50
"""Counts below prove little: the kernel skips a few programs, and we read its counters a moment before or after."""
SKIPPED = 0.9
HOG = """
import os, time
os.sched_setaffinity(0, {0})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print(flush=True)
while True:
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        pass
    time.sleep(0.005)
"""

TURNS = """
import os, time
def use(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
os.sched_setaffinity(0, {0})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
ours, theirs = os.pipe(), os.pipe()
other = os.fork()
if other == 0:
    os.close(theirs[1])
    while os.read(theirs[0], 1):
        use(0.005)
        time.sleep(0.005)
        os.write(ours[1], b".")
    os._exit(0)
print(other, flush=True)
for turn in range(1_000_000):
    if turn == 10:
        open("/proc/self/comm", "w").write("renamed")
    use(0.015)
    os.write(theirs[1], b".")
    os.read(ours[0], 1)
"""
REFRESH = Path("/proc/sys/vm/stat_refresh")
"""Reading it wakes a kworker on each CPU and waits for all of them."""


def tier(suite):
    return "a" if suite == "trixie" else "c"


class Run(Attached):
    """Return the program of this bpftrace's tier, for every device."""

    def __init__(self, suite, directory, *kinds, of="", **given):
        """`of`: another tier."""
        scripts = (manifest(f"{kind}_{of or tier(suite)}") for kind in kinds)
        super().__init__(suite, directory, *scripts, **{"any_dev": 1, **given})


@pytest.fixture
def loop(tmp_path):
    if not ROOT or not Path("/dev/loop-control").exists():
        pytest.skip("needs root and loop devices")
    with LoopDevice(tmp_path / "image", 4 << 20) as device:
        yield device


def number(path):
    found = Path(path).stat().st_rdev
    return os.major(found) << 20 | os.minor(found)


def write(path, at_least_s=0.0):
    """WRITES direct writes, one after the other, or more that take so long; how many."""
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    end, n = time.monotonic() + at_least_s, 0
    with mmap.mmap(-1, PAGE) as page:
        while n < WRITES or time.monotonic() < end:
            os.pwrite(fd, page, n % 1024 * PAGE)
            n += 1
    os.close(fd)
    return n


def interrupts():
    """(irq -> its interrupts, irq -> its line), where it has a handler."""
    cpus, *lines = Path("/proc/interrupts").read_text().splitlines()
    known = {
        int(irq): remainder for irq, _, remainder in (line.partition(":") for line in lines) if irq.strip().isdigit()
    }
    return {irq: sum(map(int, remainder.split()[: len(cpus.split())])) for irq, remainder in known.items()}, known


def softirqs():
    lines = [line.split() for line in Path("/proc/softirqs").read_text().splitlines()[1:]]
    return {(name.rstrip(":"), cpu): int(n) for name, *of in lines for cpu, n in enumerate(of)}


@each_bpftrace
def test_handlers_run_as_often_as_the_kernel_counts_interrupts(suite, loop, tmp_path):
    with Run(suite, tmp_path, "irqs") as run:
        before, _ = interrupts()
        write(loop.path)
        after, lines = interrupts()
    interval = run.interval()
    assert interval.undecoded == 0
    for handler, runs in interval[HANDLERS].items():
        assert handler.name
        assert handler.name in lines[handler.irq]
        assert sum(runs.returned.values()) == runs.run.count
    for irq, count in after.items():
        runs = sum(of.run.count for handler, of in interval[HANDLERS].items() if handler.irq == irq)
        assert runs >= SKIPPED * (count - before[irq]) - OFTEN
    names = [(one.get("irq"), one.text) for one in run.reported("handler")]
    assert len(names) == len(set(names))


@pytest.mark.slow
@each_bpftrace
def test_tier_c_names_handlers_with_every_bpftrace(suite, loop, tmp_path):
    """0.23 adds four times the offset of a string among a tracepoint's arguments."""
    with Run(suite, tmp_path, "irqs", of="c") as run:
        write(loop.path, 2.0)
    _, lines = interrupts()
    named = [handler for handler in run.interval()[HANDLERS] if handler.name and handler.name in lines[handler.irq]]
    assert named == list(run.interval()[HANDLERS])
    assert named


@each_bpftrace
def test_softirqs_run_as_often_as_the_kernel_counts_them(suite, loop, tmp_path):
    with Run(suite, tmp_path, "softirqs") as run:
        before = softirqs()
        write(loop.path)
        after = softirqs()
    interval = run.interval()
    assert interval.undecoded == 0
    known = {(one.vector, one.cpu): of for one, of in interval[SOFTIRQS].items()}
    assert {vector for vector, _ in known} <= set(VECTORS)
    for key, count in after.items():
        if count - before[key] >= OFTEN:
            runs = known[key]
            assert runs.run.count >= SKIPPED * (count - before[key])
            assert SKIPPED * runs.run.count <= sum(runs.ran_in.values()) <= runs.run.count + OFTEN
            # A raise during a run may find its vector due already.
            assert runs.delay.count <= sum(runs.raised_in.values()) + 1 <= runs.run.count * 1.1 + OFTEN
    # A loop device's worker completes its requests. Of more than 64 raises one in 64 counts for all of them.
    raised = interval.traced.raisers["BLOCK"]
    assert sum(raised.values()) >= SKIPPED * WRITES - 64
    assert max(raised, key=raised.get).startswith("blk_mq_complete_request < ")


@pytest.mark.slow
@each_bpftrace
def test_where_requests_are_sampled_so_are_softirqs(suite, loop, tmp_path):
    """One in four times of 1 ms: about so many softirqs."""
    with Run(suite, tmp_path, "softirqs", one_in=4) as run:
        before = softirqs()
        write(loop.path, 3.0)
        after = softirqs()
    ran = sum(runs.run.count for runs in run.interval()[SOFTIRQS].values())
    all_of_them = sum(after[key] - before[key] for key in after)
    assert all_of_them / 8 < ran < all_of_them / 2


@pytest.mark.versions
def test_where_requests_are_sampled_so_are_wake_ups_of_kernel_threads(loop, tmp_path):
    """One in four of those of the loop device's worker, which each write wakes. Tier C has all."""
    woken = []
    for number, one_in in enumerate((1, 4)):
        directory = tmp_path / str(number)
        directory.mkdir()
        with Run("trixie", directory, "wakeups", one_in=one_in) as run:
            writes = write(loop.path, 2.0)
        woken.append(sum(one.delay.count for one in run.interval()[WAKEUPS].values()) / writes)
    assert woken[0] / 8 < woken[1] < woken[0] / 2


@contextmanager
def hog(program=HOG):
    """Holds CPU 0 for 20 ms of every 25, above everybody else; answers with its pid, and its child's if it has one."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        line = process.stdout.readline()
        if not line:
            pytest.skip("no real-time priority to be had here")
        yield (process.pid, *map(int, line.split()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@each_bpftrace
def test_a_waiter_is_timed_and_who_ran_instead_is_named(suite, loop, tmp_path):
    before = os.sched_getaffinity(0)
    with Run(suite, tmp_path, "wakeups", any_dev=0, device=number(loop.path)) as run:
        try:
            os.sched_setaffinity(0, {0})
            with hog() as (pid,):
                writes = write(loop.path, 0.3)
        finally:
            os.sched_setaffinity(0, before)
    interval = run.interval({number(loop.path): "disk"}.get)
    assert interval.undecoded == 0
    resume = interval.traced.histograms[Series("disk", "write", "resume")]
    # A write that is done before its thread sleeps has no waiter.
    assert writes * 0.5 <= resume.count <= writes
    (ours,) = [one for one in interval[WAKEUPS].values() if one.thread.pid == os.getpid()]
    # An interrupt in the completing thread may wake another thread first.
    assert ours.delay.count >= resume.count * 0.7
    threads = {one.get("thread"): one for one in run.reported("thread")}
    assert threads[os.getpid()].text == Path("/proc/self/comm").read_text().strip()
    assert any(thread.text.startswith("kworker/") for thread in threads.values())
    if tier(suite) == "a":
        assert threads[pid].get("policy") == os.SCHED_FIFO  # by its last line: it began as an ordinary thread
        assert all(thread.get("flags") & 0x200000 for thread in threads.values() if thread.text.startswith("kworker/"))
    # Ours, or the loop device's worker, which then holds up the write: that depends on the CPU that it is woken on.
    late = [one for one in run.reported("late") if one.get("instead") == pid]
    assert {one.get("thread") for one in late} <= threads.keys()
    assert late
    assert {49} <= {one.get("instead_priority") for one in late} <= {49, 120}  # 120 until it has set its own
    assert all(1_000 <= one.get("delay_us") < 10_000_000 for one in late)


@pytest.mark.slow
@pytest.mark.skipif(not REFRESH.exists(), reason="this kernel has no stat_refresh")
@each_bpftrace
def test_the_time_of_each_thread_that_a_kernel_thread_waits_for(suite, tmp_path):
    """One thread runs for 15 ms, then another for 5: it is always the last one."""
    before = os.sched_getaffinity(0)
    if before == {0}:
        pytest.skip("needs a second CPU")
    with Run(suite, tmp_path, "wakeups") as run:
        try:
            os.sched_setaffinity(0, before - {0})
            with hog(TURNS) as (most, last):
                until = time.monotonic() + 1.0
                while time.monotonic() < until:
                    REFRESH.read_bytes()
        finally:
            os.sched_setaffinity(0, before)
    interval = run.interval()
    assert interval.undecoded == 0
    waited = [one for one in interval[WAKEUPS].values() if f"pid {most}" in one.ran_us]
    ran = Counter[str]()
    for one in waited:
        assert sum(one.ran_us.values()) <= one.delay.sum
        ran.update(one.ran_us)
    # Other load may take part of the 5 ms between the turns, and wakes the thread at other times.
    assert ran[f"pid {most}"] > ran[f"pid {last}"] > 0
    assert [one.text for one in run.reported("thread") if one.get("thread") == most][-1] == "renamed"
    late = [one for one in run.reported("late") if one.get("instead") == most]
    assert 49 in {one.get("instead_priority") for one in late}  # another before it had its priority
    assert all(one.get("ran_us") <= one.get("delay_us") for one in late)
    assert any(one.get("ran_us") > 5_000 for one in late)


@pytest.fixture
def zram():
    """A device without requests: a bio ends in the call that submits it."""
    with new_zram() as path:
        yield path


@contextmanager
def new_zram():
    if not ROOT or not (ZRAM / "hot_add").exists():
        pytest.skip("needs root and zram")
    n = (ZRAM / "hot_add").read_text().strip()
    path, sys_path = Path(f"/dev/zram{n}"), Path(f"/sys/block/zram{n}")
    (sys_path / "disksize").write_text("16M")
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    yield path
    with suppress(OSError):
        (sys_path / "reset").write_text("1")
    (ZRAM / "hot_remove").write_text(n)


@each_bpftrace
def test_no_wait_for_a_request_is_counted_where_there_are_none(suite, zram, tmp_path):
    if tool(suite, tmp_path).version < "0.19":
        pytest.skip("this bpftrace has no raw tracepoints with a clock")
    with Attached(suite, tmp_path, manifest("admission_waits_a"), bio="arg0", device=number(zram)) as run:
        fd = os.open(zram, os.O_RDWR | os.O_DIRECT)
        with mmap.mmap(-1, 64 * PAGE) as pages:
            for _ in range(20):
                os.pwrite(fd, pages, 0)
                time.sleep(0.01)
                time.sleep(0.01)
        os.close(fd)
    assert run.maps.get("admission_waits_a_us", {}) == {}


@each_bpftrace
@pytest.mark.parametrize(("one_in", "some"), [(1, (0.95, 1.0)), pytest.param(4, (0.15, 0.4), marks=pytest.mark.slow)])
def test_bios_of_a_device_without_requests(suite, zram, tmp_path, one_in, some):
    ours = {"any_dev": 0, "device": number(zram), "one_in": one_in, "threshold_us": 1}
    with Run(suite, tmp_path, "bios", **ours) as run:
        write(zram)
    interval = run.interval({number(zram): "zram"}.get)
    assert interval.undecoded == 0
    total = interval.traced.histograms[Series("zram", "write", "total")]
    assert WRITES * some[0] <= total.count <= WRITES * some[1]
    assert total == interval.traced.histograms[Series("zram", "write", "hba")]
    for bucket, us in interval.traced.by_total[Series("zram", "write", "hba")].items():
        at, end = bucket_bounds(bucket)
        n = dict(total.buckets)[bucket]
        assert n * at <= us < n * end
    assert interval.thresholds_us == {"zram": 1}
    above = interval[ABOVE][Flow("zram", "write")]
    assert above == sum(n for bucket, n in total.buckets if bucket_bounds(bucket)[0] >= 1)
    slow = run.reported("slow")
    assert len(slow) + interval.suppressed == above
    for one in slow:
        assert (one.get("dev"), one.get("bytes"), one.get("pid")) == (number(zram), PAGE, os.getpid())
        assert one.get("total_us") == one.get("hba_us") >= 1
        assert abs(one.get("done_ns") - one.get("begun_ns") - one.get("total_us") * 1000) < 1000


@pytest.mark.slow
@each_bpftrace
def test_a_device_without_requests_that_is_created_while_all_stages_are_traced(suite, tmp_path):
    """By the program that runs: it is not started again."""
    words = ("--backend", "bpftrace", "--stages", "all")
    with Capture(tmp_path, *words, LATMON_BPFTRACE=tool(suite, tmp_path).path) as capture:
        assert wait_for(lambda: any(frame.traced.one_in for frame in capture.frames()), TIMEOUT_S, 1.0)
        with new_zram() as path:
            write(path)
            time.sleep(2.5)
        assert wait_for(lambda: any(path.name in frame.removed for frame in capture.frames()), TIMEOUT_S, 1.0)
        assert capture.stop() == 0, capture.stderr
        frames = capture.frames()
    series = Series(path.name, "write", "total")
    traced = [frame.traced.histograms[series].count for frame in frames if series in frame.traced.histograms]
    counted = sum(frame.kernel[series[:2]].count for frame in frames if series[:2] in frame.kernel)
    assert WRITES * 0.95 <= sum(traced) <= counted == WRITES
    text = "; ".join(frame.health.notice for frame in frames)
    assert "nothing was traced" not in text
    assert (f"{path.name}: the ages of its I/Os in flight are not known" in text) is (tier(suite) == "c")
