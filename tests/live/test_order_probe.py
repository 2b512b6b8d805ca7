"""order_a and order_c on a disk of our own: what its scheduler does with random reads, against the kernel's own trace.

A loop device takes 4 requests at a time and is given 64: with a scheduler, 60 wait and can be sorted.
"""

import contextlib
import json
import re
import subprocess
import time
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from attached import trace_only
from bpftraces import TIMEOUT_S, each_bpftrace, tool
from test_stages_a import program, refused
from test_stages_c import number
from workload import LoopDevice, fio

from latmon.analysis.issue_order import lba_order, summary
from latmon.decode.tables import record
from latmon.manifest import load
from latmon.support.paths import data_dir
from latmon_backends.probe.tick_protocol import WINDOW, IssueWindows

TRACING = Path("/sys/kernel/tracing")
SCRIPTS = {"A": ("order_a",), "C": ("stages_c", "order_c")}
ISSUE = re.compile(r" (\d+)\.(\d{6}): block_rq_issue: \S+ [RWDFN]\w* \d+ \(\) (\d+) \+ \d+ ")
CLOCKS = {"monotonic": (time.CLOCK_MONOTONIC, "mono"), "boottime": (time.CLOCK_BOOTTIME, "boot")}
VALUES = {"gate_ns": 50_000_000, "begin": "block_io_start"}


@pytest.fixture(params=SCRIPTS)
def scripts(request):
    return SCRIPTS[request.param]


def given_four_at_a_time(device, scheduler):
    """The driver's tags are resized without a scheduler, and stay so with one."""
    queue = Path("/sys/block") / device.name / "queue"
    if scheduler not in re.findall(r"[\w-]+", (queue / "scheduler").read_text()):
        pytest.skip(f"this kernel has no {scheduler}")
    (queue / "scheduler").write_text("none")
    (queue / "nr_requests").write_text("4")
    (queue / "scheduler").write_text(scheduler)


@contextlib.contextmanager
def traced_by_the_kernel(device, clock):
    """An own buffer of the kernel's tracing, on the probes' clock; what it has is read when it ends."""
    if not (TRACING / "instances").is_dir():
        pytest.skip("tracefs is not mounted")
    mine, found = TRACING / "instances/latmon-order", []
    mine.mkdir()
    try:
        (mine / "trace_clock").write_text(clock)
        (mine / "buffer_size_kb").write_text("16384")
        event = mine / "events/block/block_rq_issue"
        (event / "filter").write_text(f"dev == {number(device)}")
        (event / "enable").write_text("1")
        yield found
        (event / "enable").write_text("0")
        found += [
            (int(seconds) * 1_000_000 + int(us), int(sector))
            for seconds, us, sector in ISSUE.findall((mine / "trace").read_text(errors="replace"))
        ]
    finally:
        mine.rmdir()


@contextlib.contextmanager
def attached(suite, directory, device, scripts):
    """The scripts; what they print goes to a file, which `windows` reads."""
    bpftrace_tool = tool(suite, directory)
    if scripts == SCRIPTS["A"] and tuple(map(int, bpftrace_tool.version.split(".")[:2])) < (0, 19):
        pytest.skip(f"bpftrace {bpftrace_tool.version} has no raw tracepoints with a clock")
    if not (TRACING / "events/block/block_io_start").is_dir():
        pytest.skip("this kernel has no block_io_start")
    text, errors = directory / "said", directory / "errors"
    with text.open("w") as output, errors.open("w") as complaints:
        process = subprocess.Popen(
            bpftrace_tool.command(program(scripts, **VALUES).text()),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=complaints,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        # stages_c prints its tick when all is attached, order_a has none.
        while "ready order" not in text.read_text() or "attached_probes" not in text.read_text():
            if process.poll() is not None:
                refused(errors)
            assert time.monotonic() < deadline, "it didn't start"
            time.sleep(0.05)
        trace_only(process, number(device))
        yield text
    finally:
        process.stdin.close()
        process.wait(TIMEOUT_S)


def windows(output, script):
    """Full windows, in their order."""
    spec, found = load(data_dir("probes") / f"linux/{script}.yaml").records["issue"], {}
    for line in output.read_text(errors="replace").splitlines():
        text = str(json.loads(line).get("data")) if line.startswith("{") else ""
        if text.startswith("issue "):
            current_record = record(text.removesuffix("\n"), spec)
            assert current_record is not None, text
            found.setdefault(current_record.get("window_ns"), []).append(current_record)
    full = []
    for records in found.values():
        runs = IssueWindows(lambda _: "disk")
        for current_record in records:
            assert runs.take(current_record)
        full += [run for run in runs.taken().values() if len(run) >= WINDOW]
    return full


def reads(directory, device, scheduler):
    """64 at once until a window or two must have been reported."""
    given_four_at_a_time(device, scheduler)
    job = {"name": "reads", "filename": device.path, "rw": "randread", "size": "64M", "iodepth": 64}
    fio(directory, 2.2, job)


@pytest.mark.slow
@each_bpftrace
def test_a_scheduler_sorts_and_none_does_not_as_the_kernels_trace_has_it(suite, tmp_path, scripts):
    clock, trace_clock = CLOCKS[load(data_dir("probes") / f"linux/{scripts[-1]}.yaml").clock]
    with LoopDevice(tmp_path / "image", 64 << 20) as device:
        given_four_at_a_time(device, "mq-deadline")
        with attached(suite, tmp_path, device, scripts) as text, traced_by_the_kernel(device, trace_clock) as kernel:
            reads(tmp_path, device, "none")
            between = time.clock_gettime_ns(clock) // 1000
            reads(tmp_path, device, "mq-deadline")
    actual_windows = windows(text, scripts[-1])
    unsorted = [lba_order(window) for window in actual_windows if window[-1].mono_us < between]
    sorting = [lba_order(window) for window in actual_windows if window[0].mono_us > between]
    assert unsorted, "no window without a scheduler"
    assert not any(order.is_sorted for order in unsorted)
    # Two CPUs at once may pass each other by a few.
    assert min(order.reordered for order in unsorted) <= 6, [summary(order) for order in unsorted]
    assert any(order.is_sorted for order in sorting), [summary(order) for order in sorting]
    assert max(order.most_overtaken for order in sorting) >= 16
    assert kernel
    # Its buffer keeps the newest.
    covered = [window for window in actual_windows if kernel[0][0] < window[0].mono_us]
    assert covered
    # The kernel may skip a program: not each window has to agree.
    assert sum(is_in(window, kernel) for window in covered) >= (len(covered) + 1) // 2


def is_in(window, kernel):
    """Whether the kernel saw the same issues in the same order at that time, and few others among them."""
    sectors = [one.sector for one in window]
    seen = [sector for at, sector in kernel if window[0].mono_us - 20 <= at <= window[-1].mono_us + 20]
    same = sum(block.size for block in SequenceMatcher(None, sectors, seen, autojunk=False).get_matching_blocks())
    return same >= 0.9 * len(sectors) and same >= 0.8 * len(seen)
