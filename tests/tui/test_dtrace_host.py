"""An illumos host from the scripts' goldens: captured, recorded, reported, on each screen."""

import asyncio
import contextlib
import json
import re

import pytest
from fake_dtrace import GOLDEN, Fake, manifests
from panels import scene
from report_json import summarised
from test_screens import press

from latmon.capture.backend import Options
from latmon.capture.collector import Capture
from latmon.capture.registry import Request
from latmon.model.frame import NAMED_FROM, STAGES, UNACCOUNTED, Frame
from latmon.model.measurements import WAKEUPS
from latmon.recording.reader import open_recording
from latmon.report.text import render_text
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE
from latmon.views.selection import Selection
from latmon_backends.dtrace import backend as dtrace_backend
from latmon_backends.dtrace import program
from latmon_backends.dtrace.backend import DtraceBackend
from latmon_backends.dtrace.probe import NoCounters
from latmon_backends.dtrace.program import DtraceTool
from latmon_backends.replay import ReplayBackend
from tests.helpers.fake_host import FakeHost
from tests.helpers.illumos_golden import SCRUBBED

ON_DEMAND = (
    *("sd_depth", "sd_limits", "scsi_pkt", "mpt_flags", "emlxs_sli4", "emlxs_thread"),
    *("taskqs", "intr", "callouts", "zfs_slow", "vop_files"),
)
TASKQS = GOLDEN.parent / "kstat/solaris-taskq-1-synthetic.txt"
SIZES = [(80, 24), (160, 50)]
LAST_US = 1_238_999
"""Total of an outlier that only the last output has."""
NUMBER = re.compile(str(NAMED_FROM)[:4] + r"\d{3}")
"""What a name's number looks like, should it be shown."""


class Until:
    """A sink that lets the player go on after the first frame, and ends the capture once enough was timed.

    Enough are `busy` frames with latencies and an outlier that took `slowest_us`.
    """

    def __init__(self, fake, busy, slowest_us):
        self.fake, self.busy, self.slowest_us, self.capture = fake, busy, slowest_us, None
        self.longest_us = 0

    def opened(self, _origin):
        self.frames = 0

    def offer(self, frame, _tally):
        self.frames += 1
        if self.frames == 1:
            self.fake.release()
        self.busy -= bool(frame.histograms)
        self.longest_us = max([self.longest_us, *(outlier.total_us for outlier in frame.outliers)])
        if self.busy <= 0 and self.longest_us >= self.slowest_us:
            self.capture.stop("enough")


def captured(directory, system, scripts, options, *, busy, pace, slowest_us=0, holds=bool):
    """A recording as `latmon --record` makes it; `holds` says whether its frames are what the tests read.

    A host that stalls for a moment leaves a gap (exit 4), the slowest I/O comes before the first window, the tracer
    begins when the always-on script is nearly at its end, or the last output comes after the capture's patience: all
    are tested elsewhere, and the recording is made again.
    """
    for attempt in range(6):
        goldens = {name: f"{system}-{name}.txt" for name in scripts}
        fresh = directory / f"attempt{attempt}"
        fresh.mkdir()
        fake = Fake(fresh, goldens=goldens, pace=pace, go=str(fresh / "go"))
        sink = Until(fake, busy, slowest_us)
        path = fresh / "host.latmon"
        sink.capture = Capture(Request(options=options, record=path), sink, opened(fake, options, system, scripts))
        try:
            outcome = asyncio.run(asyncio.wait_for(sink.capture.run(), 60))
        except TimeoutError:  # the slowest I/O belonged to the time before the capture began
            continue
        if outcome.exit != EXIT_INCOMPLETE and holds(
            [frame for frame in open_recording(path) if isinstance(frame, Frame)]
        ):
            break
    assert (outcome.reason, outcome.exit) == ("enough", EXIT_DONE)
    return path


def holds_illumos(frames):
    """Whether outliers of all devices are in it, that of the last output too, and a second of sd2's queue."""
    outliers = [outlier for frame in frames for outlier in frame.outliers]
    queued = sum(sum(frame.depths["sd2"].queued.values()) for frame in frames if "sd2" in frame.depths)
    devices = {"sd0", "sd2", "emlxs0", "mpt0", "zfs:redo"}
    return (
        devices <= {outlier.device for outlier in outliers}
        and LAST_US in {outlier.total_us for outlier in outliers}
        and queued > 900
    )


def opened(fake, options, system, scripts):
    """Return a function that opens the backend on the fake."""

    @contextlib.asynccontextmanager
    async def opener(_):
        only = (scripts[0],)
        async with DtraceBackend(options, find_tool=lambda: DtraceTool(str(fake.path), system), only=only) as backend:
            yield backend

    return opener


@pytest.fixture(scope="module", autouse=True)
def as_a_test():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "load_all", lambda _: manifests())
        patch.setattr("latmon.capture.collector.privileges.drop_root", lambda _user: None)
        yield


@pytest.fixture(scope="module")
def illumos(tmp_path_factory):
    directory = tmp_path_factory.mktemp("illumos")
    kstat = directory / "kstat"
    kstat.write_text(f"#!/bin/sh\nexec cat {TASKQS}\n")
    kstat.chmod(0o755)
    options = Options(interval_us=500_000, stages="all", proc=directory, sys=directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LATMON_KSTAT", str(kstat))
        patch.setattr(dtrace_backend, "_counters", lambda _: (NoCounters(), "kstat"))
        scripts, until = ("sd", *ON_DEMAND), {"slowest_us": 2_000_000, "holds": holds_illumos}
        return captured(directory, "illumos", scripts, options, busy=3, pace=0.5, **until)


@pytest.fixture(scope="module")
def linux(tmp_path_factory):
    host = FakeHost(tmp_path_factory.mktemp("linux"))
    host.virtio()
    options = Options(interval_us=100_000, stages="basic", proc=host.proc, sys=host.sys)
    return captured(host.proc.parent, "linux", ("requests_d",), options, busy=2, pace=0.2)


@pytest.fixture(scope="module")
def freebsd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("freebsd")
    options = Options(interval_us=200_000, stages="all", proc=directory, sys=directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dtrace_backend, "_counters", lambda _: (NoCounters(), ""))
        return captured(directory, "freebsd", ("devstat", "cam"), options, busy=1, pace=0.2, slowest_us=30_530)


@pytest.fixture(scope="module")
def frames(illumos):
    return [frame for frame in open_recording(illumos) if isinstance(frame, Frame)]


@pytest.fixture
def shown(illumos, frames):
    """Draws a screen after some steps."""
    origin = open_recording(illumos).origin

    def drawn(*steps, size=(160, 50), **selection):
        text = press(scene(frames, Selection(**selection), origin, mode="REPLAY"), *steps, size=size)
        assert not NUMBER.search(text)
        assert all(len(line) <= size[0] for line in text.splitlines())
        return text

    return drawn


@pytest.mark.slow
def test_what_is_recorded_is_what_was_captured(frames):
    assert {d.name for frame in frames for d in frame.devices} >= {
        "sd0",
        "sd2",
        "emlxs0",
        "mpt0",
        "zfs:redo",
        "zfs:rpool",
    }
    assert sum(frame.outstanding.get("sd2") is not None for frame in frames) >= 3
    assert any(frame.traced.by_total for frame in frames)
    assert all(frame.health.undecoded_lines == 0 for frame in frames)


async def test_a_replay_is_the_recording(illumos, frames):
    async with ReplayBackend([illumos], 0) as backend:
        again = [frame async for frame in backend.frames()]
    assert [frame.histograms for frame in again] == [frame.histograms for frame in frames]
    assert [frame[WAKEUPS] for frame in again] == [frame[WAKEUPS] for frame in frames]


def test_the_report_in_json(illumos):
    summary = summarised(open_recording(illumos))
    text = json.dumps(summary, allow_nan=False)
    assert summary["schema"] == "latmon.report/1"
    assert not any(int(pid) >= NAMED_FROM for pid in re.findall(r'"pid": (\d+)', text))
    sd2 = summary["devices"]["sd2"]
    assert (sd2["outstanding"]["limit"], sd2["outstanding"]["max"]) == (3, 3)
    assert set(sd2["ops"]["read"]["stages"]) == {"queue", "hba"}
    assert {limit["name"] for limit in sd2["limits"]} >= {"un_throttle", "un_f_opt_queueing"}
    (thread,) = [wakeup for wakeup in summary["wakeups"] if wakeup["thread"] == "emlxs0_channel4"]
    assert (thread["pid"], thread["priority"]) == (None, 97)
    assert {"emlxs0", "ipmi0"} <= {irq["handler"] for irq in summary["irqs"]}
    worst = summary["devices"]["emlxs0"]["ops"]["write"]
    assert worst["stages"]["completion"]["includes"] == ["softirq"]
    assert worst["stages"]["hba"]["includes"] == []


def test_the_report_in_words(illumos):
    text = " ".join(render_text(summarised(open_recording(illumos)).report).split())
    assert "sd2: un_throttle 3 is below its own minimum of 8 (un_min_throttle)" in text
    assert "tagged queueing is off, only the adapter queues; sd sends it 3 at most" in text
    assert "limited to 3 in the driver while more were queued" in text
    assert "emlxs0 emlxs not timed here: only the tracer measures it" in text
    assert re.search(r"emlxs0 write 2,048 B -/- total 1\.238999 s to completion", text)
    assert re.search(r"hba 85 us <1% irq 6 us <1% completion 1\.238903 s >99%", text)
    assert re.search(r"sd0 write 65,536 B sector [\d,]+ dd/902 total 2\.\d+ s", text)
    assert re.search(r"mpt0 above [\d.]+ ms: \d+ I/Os", text)
    assert "un_f_disksort_disabled 0: sd sorts by LBA before a device with its own cache (disksort)" in text


@pytest.mark.parametrize("size", SIZES)
def test_the_overview_and_a_devices_map(shown, size):
    text = shown(size=size)
    names = re.findall(r"^│?[ ▸](sd0|sd2|emlxs0|mpt0|zfs:redo) ", text, re.MULTILINE)
    assert len(names) >= (3 if size[1] < 30 else 5)
    assert re.search(r"emlxs0 .*compl.* >99%", text)
    assert re.search(r"^│?[ ▸](emlxs0|mpt0|zfs:redo) .* +-     - +", text, re.MULTILINE)
    zooms = [shown(*["move:1"] * n, "zoom", size=size) for n in range(5)]
    assert any(re.search("─ emlxs0 .* I/Os not counted", one) for one in zooms)
    assert re.search(r"─ sd2 .* 3,\d+ I/Os", shown("zoom", size=size, selected="sd2"))


@pytest.mark.parametrize("size", SIZES)
def test_stages(shown, size):
    assert re.search(r"emlxs0 .* completion", shown("screen:1", size=size))
    one = shown("screen:1", "enter", size=size, selected="sd0")
    assert re.search(r"sd0 stages", one)
    for stage in ("queue", "requeue", "service"):
        assert re.search(rf"^ . {stage} ", one, re.MULTILINE)
    assert "service (issue to completion) includes irq, softirq, completion" in one
    port = shown("screen:1", "enter", size=size, selected="emlxs0")
    assert "emlxs0 stages" in port
    assert re.search(r"^ completion ", port, re.MULTILINE)


@pytest.mark.parametrize("size", SIZES)
def test_outliers(shown, size):
    longest = shown("screen:3", size=size)
    assert re.search(r"sd0 .*queue +dd", longest)
    assert re.search(r"emlxs0 .*compl", longest)
    assert re.search(r"zfs:re(do|…) .* Q2C +oracle", longest)
    opened = shown("screen:3", "read", size=size)
    assert "dd/902" in opened
    assert "includes irq, softirq, completion" in opened


def test_a_command_that_sd_does_not_send_is_reported_with_its_hba_and_block(frames, shown):
    """scsi_pkt speaks for itself: no always-on script times an HBA."""
    found = {(outlier.op, outlier.sector) for frame in frames for outlier in frame.outliers if outlier.device == "mpt0"}
    assert {("read", SCRUBBED), ("flush", 0)} == found
    text = " ".join(shown("screen:3", "read", pattern="mpt0").split())
    assert re.search(rf"mpt0 read .*sector {SCRUBBED:,}", text)
    assert "total 31.012 ms to completion" in text


@pytest.mark.parametrize("size", SIZES)
def test_outstanding_and_the_audit(shown, size):
    text = shown("screen:2", size=size, selected="sd2")
    assert size[0] < 160 or "un_throttle (sd_limits)" in text
    assert "┄ limit 3 ┄" in text
    assert not re.search(r"^ +[4-9] +\d+%", text, re.MULTILINE)
    audit = shown("screen:2", "aside:0", size=size, selected="sd2")
    assert "un_throttle" in audit


@pytest.mark.parametrize("size", SIZES)
def test_interrupts_threads_and_task_queues(shown, size):
    parts = [shown("screen:4", *["part:1"] * n, size=size) for n in range(4)]
    text = "\n".join(parts)
    for name in ("ipmi0", "emlxs0", "mpt_sas0", "emlxs0_channel", "qlc_0_comp_thd"):
        assert name in text
    assert size[0] < 160 or "taskq:zio_write_issue.3" in text
    assert "softirqs are the Linux kernel's" in text
    assert re.search(r"emlxs0_channel\d .* 97 ", text)


@pytest.mark.slow
def test_linux_and_illumos_have_the_same_series(illumos, linux, frames):
    """Two recordings are compared by op and stage: names are of one table, whatever the kernel."""
    others = [frame for frame in open_recording(linux) if isinstance(frame, Frame)]
    ours, theirs = ({s for one in some for s in one.histograms} for some in (frames, others))
    assert {s.device for s in theirs} == {"vda"}
    assert {s.stage for s in ours} == {s.stage for s in theirs} == {"queue", "hba", "total"}
    assert {s.stage for frame in frames for s in frame.traced.histograms} <= {*STAGES, UNACCOUNTED, "total"}
    assert {s.op for s in (*ours, *theirs)} <= {"read", "write", "flush", "discard", "other"}
    measured = [set(open_recording(path).origin.measured) for path in (illumos, linux)]
    assert measured[0] - measured[1] == {"requeue"}
    own = {"irqs", "wakeups", "taskqs", "notices", "late", "files", "file_operations", "file_operations_left_out"}
    keys = [set(summarised(open_recording(path))) - own for path in (illumos, linux)]
    assert keys[0] == keys[1]


@pytest.mark.slow
def test_freebsd_from_the_golden_to_the_screens(freebsd):
    recording = open_recording(freebsd)
    frames = [frame for frame in recording if isinstance(frame, Frame)]
    assert {d.name for frame in frames for d in frame.devices} >= {"da0", "nda0", "ada0"}
    assert all(frame.health.undecoded_lines == 0 for frame in frames)
    summary = summarised(open_recording(freebsd))
    assert {"queue", "hba", "completion", "requeue"} <= set(summary["devices"]["da0"]["ops"]["write"]["stages"])
    assert "total 30.530 ms" in " ".join(render_text(summary.report).split())
    seen = [
        press(scene(frames, Selection(), recording.origin, mode="REPLAY"), *steps, size=(160, 50))
        for steps in (["screen:0"], ["screen:1", "enter"], ["screen:2"], ["screen:3", "read"])
    ]
    assert re.search(r"da0 +da .* 21\.5ms", seen[0])
    assert re.search(r"softirq +not measured here: FreeBSD has none", seen[1])
    assert "hba+ (hba with its interrupt) includes irq" in seen[1]
    assert "outstanding now" in seen[2]
    assert re.search(r"da0 +write .*sector 80", seen[3], re.DOTALL)
    for text in seen:
        assert not NUMBER.search(text)
