"""One capture: which backend it uses, how it ends, and with which exit code."""

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded import ORIGIN, frame
from report_json import summarised

from latmon.capture import collector as module
from latmon.capture.backend import Options
from latmon.capture.collector import Capture, Collector
from latmon.capture.recorder import Recorder
from latmon.capture.registry import Request, check, opened
from latmon.capture.session import READ_SETTINGS, SCREEN_COMMANDS, mark_command
from latmon.cli.check import survey
from latmon.model.frame import Frame, Health, Outlier
from latmon.model.inflight import InFlight, InFlightList
from latmon.recording.codec import End, Gap
from latmon.recording.reader import open_recording
from latmon.support.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    LatmonError,
    ProbeGoneError,
    UnavailableError,
    UsageError,
)

PATIENCE_S = 60
"""Until a test that hangs fails; nothing takes as long."""


class Stub:
    """A backend of given frames. `forever`: after them it is silent, as an idle one is."""

    def __init__(self, *frames, forever=True, origin=ORIGIN, refusal=None, failure=None):
        self.origin, self.given, self.forever = origin, frames, forever
        self.refusal, self.failure = refusal, failure
        self.closed = False

    async def __aenter__(self):
        if self.refusal:
            raise UnavailableError(self.refusal)
        return self

    async def __aexit__(self, *_exc):
        self.closed = True

    async def frames(self):
        for one in self.given:
            yield one
        if self.failure:
            raise LatmonError(self.failure)
        if self.forever:
            await asyncio.Event().wait()


class Watcher:
    def __init__(self):
        self.origin, self.frames, self.then = None, [], lambda: None

    def opened(self, origin):
        self.origin = origin

    def offer(self, one, _tally):
        self.frames.append(one)
        self.then()


@pytest.fixture(autouse=True)
def as_we_are(monkeypatch, tmp_path):
    """A test must not give up root for all tests behind it."""
    monkeypatch.setattr(module.privileges, "drop_root", lambda _user: None)
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    monkeypatch.chdir(tmp_path)


def capturing(stub, request=None, stop_after=None):
    watcher = Watcher()

    @contextlib.asynccontextmanager
    async def opener(_request):
        async with stub:
            yield stub

    capture = Capture(request or Request(), watcher, opener)
    if stop_after is not None:
        watcher.then = lambda: capture.stop("enough") if len(watcher.frames) == stop_after else None
    return capture, watcher


async def test_a_stop_ends_it_complete():
    stub = Stub(frame(0), frame(1))
    capture, watcher = capturing(stub, stop_after=2)
    outcome = await capture.run()
    assert (outcome.reason, outcome.exit) == ("enough", EXIT_DONE)
    assert watcher.origin == ORIGIN
    assert [frame.seq for frame in watcher.frames] == [0, 1]
    assert stub.closed


async def test_latmons_own_io_is_marked():
    """I/O is latmon's own by known processes, not by others with their names."""
    comm = Path("/proc/self/comm").read_text().strip()  # noqa: ASYNC240 - /proc does not wait
    mono_us = time.monotonic_ns() // 1000
    outlier = Outlier(1.0, mono_us, "sda", "read", 5, pid=os.getpid(), comm=comm)
    others = (replace(outlier, pid=1), replace(outlier, mono_us=1), replace(outlier, pid=None))
    waits = InFlight("sda", "read", mono_us, pid=os.getpid(), comm=comm)
    still = InFlightList((waits, waits._replace(pid=1)))
    capture, watcher = capturing(Stub(replace(frame(0), outliers=(outlier, *others), in_flight=still)), stop_after=1)
    await capture.run()
    (seen,) = watcher.frames
    assert [each.own for each in seen.outliers] == [True, False, False, False]
    assert [each.own for each in seen.in_flight.oldest] == [True, False]


async def test_the_first_reason_counts():
    capture, _ = capturing(Stub(frame(0)))
    capture.stop("first")
    capture.stop("second")
    assert (await capture.run()).reason == "first"


async def test_a_stop_after_the_scope_was_left():
    """A signal comes when it likes."""
    end = module.Ending()
    async with asyncio.timeout(PATIENCE_S) as scope:
        end.scoped(scope)
        await asyncio.sleep(0)
    end.stop("SIGTERM", at_once=False)
    end.begun()
    assert end.stopped == "SIGTERM"


async def test_a_stop_while_it_opens():
    class Slow(Stub):
        async def __aenter__(self):
            await asyncio.Event().wait()

    capture, _ = capturing(Slow())
    running = asyncio.create_task(capture.run())
    await asyncio.sleep(0.05)
    capture.stop("never mind")
    assert (await asyncio.wait_for(running, PATIENCE_S)).reason == "never mind"


async def test_the_recording_is_closed_before_the_backend(tmp_path):
    class Looking(Stub):
        async def __aexit__(self, *_exc):
            self.seen = [end for end in open_recording(tmp_path / "x") if isinstance(end, End)]

    stub = Looking(frame(0))
    capture, _ = capturing(stub, Request(record=tmp_path / "x"), stop_after=1)
    await capture.run()
    assert [end.reason for end in stub.seen] == ["enough"]


class Finishing(Stub):
    async def finish(self, patience_s):
        self.patience_s = patience_s
        await asyncio.sleep(self.takes)
        return frame(98), frame(99)


async def test_an_ended_recording_holds_the_interval_that_was_begun(tmp_path):
    stub = Finishing(frame(0))
    stub.takes = 0
    capture, watcher = capturing(stub, Request(record=tmp_path / "x"), stop_after=1)
    assert (await capture.run()).reason == "enough"
    recorded = [frame.seq for frame in open_recording(tmp_path / "x") if isinstance(frame, Frame)]
    assert recorded == [frame.seq for frame in watcher.frames] == [0, 98, 99]


async def test_a_capture_that_lasted_its_time_holds_it_too(tmp_path):
    stub = Finishing(frame(0))
    stub.takes = 0
    request = Request(record=tmp_path / "x", duration_us=1, options=Options())
    capture, watcher = capturing(stub, request)
    assert (await capture.run()).exit == EXIT_DONE
    assert [frame.seq for frame in watcher.frames] == [0, 98, 99]
    assert stub.patience_s == module.PATIENCE_S


class Patient(Stub):
    """It hangs while it is given time, and has a frame at once when it is given none; or `hangs` even then."""

    hangs = False

    def __init__(self, *frames):
        super().__init__(*frames)
        self.asked, self.entered = [], asyncio.Event()

    async def finish(self, patience_s):
        self.asked.append(patience_s)
        self.entered.set()
        if patience_s or self.hangs:
            await asyncio.Event().wait()
        return (frame(99),)


async def test_a_second_stop_has_the_last_interval_without_the_on_demand_probes(tmp_path):
    stub = Patient(frame(0))
    capture, watcher = capturing(stub, Request(record=tmp_path / "x"), stop_after=1)
    running = asyncio.create_task(capture.run())
    await asyncio.wait_for(stub.entered.wait(), PATIENCE_S)
    assert not running.done()
    capture.stop("a second Ctrl-C")
    assert (await asyncio.wait_for(running, PATIENCE_S)).reason == "enough"
    assert stub.asked == [module.PATIENCE_S, 0]
    recorded = [frame.seq for frame in open_recording(tmp_path / "x") if isinstance(frame, Frame)]
    assert recorded == [frame.seq for frame in watcher.frames] == [0, 99]


@pytest.mark.usefixtures("never_closing")
async def test_a_second_stop_has_one_deadline_as_well(tmp_path):
    stub = Patient(frame(0))
    stub.hangs = True
    capture, _ = capturing(stub, Request(record=tmp_path / "x"), stop_after=1)
    running = asyncio.create_task(capture.run())
    await asyncio.wait_for(stub.entered.wait(), PATIENCE_S)
    capture.stop("a second Ctrl-C")
    await asyncio.wait_for(running, PATIENCE_S)
    assert stub.asked == [module.PATIENCE_S, 0]
    assert Hanging.within <= module.LEAVING_S


async def test_who_is_in_a_hurry_has_what_comes_at_once(tmp_path):
    stub = Finishing(frame(0))
    stub.takes = 0
    capture, watcher = capturing(stub, Request(record=tmp_path / "x"))
    watcher.then = lambda: capture.stop("SIGTERM", at_once=True)
    await asyncio.wait_for(capture.run(), PATIENCE_S)
    assert [frame.seq for frame in watcher.frames] == [0, 98, 99]
    assert stub.patience_s == 0


async def test_a_backend_that_does_not_finish_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FINISHING_S", 0.05)
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    stub = Finishing(frame(0))
    stub.takes = 2 * PATIENCE_S
    capture, watcher = capturing(stub, Request(record=tmp_path / "x"), stop_after=1)
    assert (await asyncio.wait_for(capture.run(), PATIENCE_S)).reason == "enough"
    assert len(watcher.frames) == 1


class Hanging(Recorder):
    """A recorder whose disk takes `takes` seconds to close the file, if it is allowed to."""

    takes, closed, within = 0.4, False, 0.0

    async def stop(self, reason="closed", within=0.0, silent_s=0.0):
        Hanging.within = within
        await asyncio.sleep(min(self.takes, within))
        Hanging.closed = True
        await super().stop(reason, within, silent_s)


@pytest.fixture
def slow_to_close(monkeypatch):
    monkeypatch.setattr(Hanging, "closed", False)
    monkeypatch.setattr(module, "Recorder", Hanging)


@pytest.fixture
def never_closing(slow_to_close, monkeypatch):  # noqa: ARG001 - it goes on from there
    """Within the deadlines, which are short."""
    monkeypatch.setattr(module, "LEAVING_S", 0.3)
    monkeypatch.setattr(module, "FINISHING_S", 0.2)
    monkeypatch.setattr(Hanging, "takes", 2 * PATIENCE_S)


@pytest.mark.usefixtures("slow_to_close")
async def test_neither_a_stop_nor_the_duration_cancels_what_closes_a_capture(tmp_path):
    ticking = Stub(frame(0), forever=False, origin=replace(ORIGIN, backend="replay"))
    capture, _ = capturing(ticking, Request(record=tmp_path / "x", duration_us=100_000))
    running = asyncio.create_task(capture.run())
    await asyncio.sleep(0.1)
    capture.stop("a second Ctrl-C")
    assert (await running).reason == "ended after 100ms as asked"
    assert Hanging.closed
    assert ticking.closed
    assert isinstance(list(open_recording(tmp_path / "x"))[-1], End)


@pytest.mark.usefixtures("never_closing")
async def test_all_that_closes_a_capture_has_one_deadline(tmp_path):
    stub = Finishing(frame(0))
    stub.takes = 2 * PATIENCE_S
    capture, watcher = capturing(stub, Request(record=tmp_path / "x"))
    watcher.then = lambda: capture.stop("enough", at_once=True)
    async with asyncio.timeout(PATIENCE_S):  # what closes it would take twice as long
        await capture.run()
    assert Hanging.within <= module.LEAVING_S


async def test_own_health_is_added():
    capture, watcher = capturing(Stub(frame(0), frame(1)), stop_after=2)
    await capture.run()
    assert watcher.frames[1].health.self_cpu_percent is not None


async def test_a_synthetic_hosts_own_figure_stays():
    capture, watcher = capturing(Stub(frame(0, health=Health(self_cpu_percent=1.5))), stop_after=1)
    await capture.run()
    assert watcher.frames[0].health.self_cpu_percent == 1.5


@pytest.mark.parametrize(
    "changed",
    [{"health": Health(lost_events=1)}, {"health": Health(map_full=3)}, {"gap": "probe-restart"}],
    ids=["lost", "map_full", "gap"],
)
async def test_a_loss_is_exit_4(changed):
    capture, _ = capturing(Stub(frame(0), frame(1, **changed)), stop_after=2)
    assert (await capture.run()).exit == EXIT_INCOMPLETE


async def test_a_window_that_was_read_late_is_none():
    capture, _ = capturing(Stub(frame(0), frame(1, late=True)), stop_after=2)
    assert (await capture.run()).exit == EXIT_DONE


async def test_mere_coverage_is_not():
    capture, _ = capturing(
        Stub(frame(0, health=Health(unmatched=5, undecoded_lines=2, dropped_records=3))), stop_after=1
    )
    assert (await capture.run()).exit == EXIT_DONE


async def test_a_duration_ends_it_at_the_frame_that_completes_it():
    class Ticking(Stub):
        async def frames(self):
            for seq in range(100):
                await asyncio.sleep(0.1)
                yield frame(seq)

    ticking = Ticking(origin=replace(ORIGIN, interval_us=100_000))
    capture, watcher = capturing(ticking, Request(duration_us=300_000))
    outcome = await capture.run()
    assert (outcome.reason, outcome.exit) == ("ended after 300ms as asked", EXIT_DONE)
    assert len(watcher.frames) <= 3


async def test_a_duration_ends_even_a_silent_backend():
    capture, _ = capturing(Stub(), Request(duration_us=50_000))
    assert (await asyncio.wait_for(capture.run(), PATIENCE_S)).reason == "ended after 50ms as asked"


async def test_frames_that_run_out_are_a_failure_with_the_last_notice():
    last = frame(0, health=Health(notice="the probe died three times"))
    capture, _ = capturing(Stub(last, forever=False))
    outcome = await capture.run()
    assert (outcome.reason, outcome.exit) == ("the probe died three times", EXIT_FAILED)


async def test_a_replay_that_runs_out_is_done():
    capture, _ = capturing(Stub(frame(0), forever=False, origin=replace(ORIGIN, backend="replay")))
    assert (await capture.run()).exit == EXIT_DONE


async def test_a_failing_backend_still_leaves_a_closed_recording(tmp_path):
    capture, _ = capturing(Stub(frame(0), failure="it broke"), Request(record=tmp_path / "x"))
    with pytest.raises(LatmonError, match="it broke"):
        await capture.run()
    items = list(open_recording(tmp_path / "x"))
    assert isinstance(items[0], Frame)
    assert isinstance(items[-1], End)


async def test_a_bad_target_is_refused_before_the_backend_opens(tmp_path):
    (tmp_path / "x").write_text("precious")
    stub = Stub(refusal="opened")
    capture, _ = capturing(stub, Request(record=tmp_path / "x"))
    with pytest.raises(UnavailableError, match="never overwritten"):
        await capture.run()


async def test_the_key_records_in_the_middle(tmp_path):
    stub = Stub(*(frame(seq) for seq in range(3)))
    capture, _ = capturing(stub)
    running = asyncio.create_task(capture.run())
    while capture._recorder is None:  # noqa: ASYNC110 - it has no event for that
        await asyncio.sleep(0.01)
    assert not capture.recording
    capture.toggle_recording()
    async with asyncio.timeout(PATIENCE_S):
        while not capture.recording:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
    capture.stop("enough")
    await running
    (path,) = tmp_path.glob("box-*.latmon.jsonl.gz")
    assert open_recording(path).origin.host == "box"


class Traces(Stub):
    """A backend with on-demand probes that records its commands."""

    def __init__(self, *frames, **kwargs):
        super().__init__(*frames, **kwargs)
        self.reported = []

    def set_stages(self, mode):
        self.reported.append(mode)

    def request_tracing(self, devices, *, files=False):
        self.reported.append((devices, files))


async def test_the_on_demand_probes_are_reported_what_the_user_wants():
    stub = Traces(frame(0))
    capture, watcher = capturing(stub)
    capture.set_stages("all")
    capture.request_tracing(("early",))
    watcher.then = lambda: (
        capture.request_tracing(("sda",), files=True),
        capture.set_stages("basic"),
        capture.stop("enough"),
    )
    await capture.run()
    assert stub.reported == ["all", (("sda",), True), "basic"]


async def test_a_backend_without_on_demand_probes_is_reported_nothing():
    capture, watcher = capturing(Stub(frame(0)))
    watcher.then = lambda: (capture.request_tracing(()), capture.set_stages("all"), capture.stop("enough"))
    await capture.run()


class Configured(Stub):
    """A backend whose host was set differently meanwhile; `slow` is set when the reading may end."""

    def __init__(self, *frames, slow=None, **kwargs):
        super().__init__(*frames, origin=replace(ORIGIN, settings={"device sda": {"scheduler": "none"}}), **kwargs)
        self.slow, self.read = slow, 0

    async def settings(self):
        self.read += 1
        if self.slow:
            await self.slow.wait()
        return {"device sda": {"scheduler": "kyber"}, "clock": {"mono": "7"}}

    async def frames(self):
        for one in self.given:
            yield one
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()


async def test_a_note_reports_what_is_set_differently_now():
    stub = Configured(frame(0), frame(1), frame(2))
    capture, watcher = capturing(stub, stop_after=3)
    then = watcher.then
    watcher.then = lambda: (capture.mark("kyber"), capture.mark("again")) if len(watcher.frames) == 1 else then()
    await capture.run()
    marks = watcher.frames[1].marks
    assert [mark.text for mark in marks] == ["kyber", "again"]
    assert all(mark.changed == {"device sda": {"scheduler": "kyber"}} for mark in marks)
    assert stub.read == 1


async def test_the_mark_of_a_span_has_the_settings_that_were_read_within_it():
    """The scheduler is changed between the last window of the span and the key."""
    stub = Configured(*(frame(number) for number in range(4)))
    stub.current = "none"
    capture, watcher = capturing(stub, stop_after=4)
    then, times = watcher.then, []

    async def settings():
        return {"device sda": {"scheduler": stub.current}}

    def act():
        times.append(time.monotonic_ns() // 1000)
        if len(times) == 1:
            capture.read_settings()
        if len(times) == 2:
            stub.current = "kyber"
            capture.mark("A", (times[0], times[1]))
            capture.mark("B", (times[1], times[1] + 1))
        then()

    stub.settings, watcher.then = settings, act
    await capture.run()
    marks = [mark for frame in watcher.frames for mark in frame.marks]
    assert [(mark.text, mark.changed) for mark in marks] == [("A", {}), ("B", {"device sda": {"scheduler": "kyber"}})]


async def test_the_commands_of_a_mark_and_of_a_reading_reach_the_capture():
    done = []
    collector = Collector(Request(commands=SCREEN_COMMANDS))
    collector._capture = SimpleNamespace(
        mark=lambda *given: done.append(given), read_settings=lambda: done.append("read")
    )
    for line in (READ_SETTINGS, mark_command("A", (7, 9)), mark_command("note")):
        collector.data_received(line)
    assert done == ["read", ("A", (7, 9)), ("note", None)]


async def test_a_note_waits_for_settings_that_hang_and_holds_no_frame_up():
    slow = asyncio.Event()
    capture, watcher = capturing(Configured(frame(0), frame(1), frame(2), frame(3), slow=slow), stop_after=4)
    then = watcher.then

    def act():
        if len(watcher.frames) == 1:
            capture.mark("late")
        if len(watcher.frames) == 3:
            slow.set()
        then()

    watcher.then = act
    await capture.run()
    assert [len(frame.marks) for frame in watcher.frames] == [0, 0, 0, 1]


async def test_a_mark_on_a_host_without_settings():
    capture, watcher = capturing(Stub(frame(0), frame(1)), stop_after=2)
    then = watcher.then
    watcher.then = lambda: (capture.mark("now") if len(watcher.frames) == 1 else None, then())
    await capture.run()
    assert [(mark.text, mark.changed) for mark in watcher.frames[1].marks] == [("now", None)]


async def test_what_is_odd_about_the_file_is_a_notice(tmp_path, monkeypatch):
    monkeypatch.setattr(module.target, "remarks", lambda path, *_args: f"{path.name} lies on vda")
    request = Request(record=tmp_path / "x")
    capture, watcher = capturing(Stub(frame(0), frame(1)), request, stop_after=2)
    await capture.run()
    assert [frame.health.notice for frame in watcher.frames] == ["x lies on vda", ""]


def loader(**stubs):
    made = {}

    def load(name):
        def make(**kwargs):
            made[name] = kwargs
            return stubs[name]

        return make

    return load, made


async def test_auto_is_the_best_that_opens():
    load, made = loader(bpftrace=Stub(), procfs=Stub())
    async with opened(Request(options=Options(interval_us=5)), load):
        pass
    assert made == {"bpftrace": {"options": Options(interval_us=5)}}


async def test_auto_falls_back_and_keeps_the_reason():
    lesser = Stub()
    none = Stub(refusal="dtrace is not there")
    load, made = loader(
        bpftrace=Stub(refusal="bpftrace is not there: apt install bpftrace"), dtrace=none, procfs=lesser
    )
    async with opened(Request(), load) as backend:
        assert backend is lesser
    assert made["procfs"]["reason"] == "bpftrace is not there: apt install bpftrace"
    assert lesser.closed


@pytest.mark.parametrize(("system", "best"), [("SunOS", "dtrace"), ("FreeBSD", "dtrace"), ("Linux", "bpftrace")])
async def test_the_best_is_the_systems_own(monkeypatch, system, best):
    monkeypatch.setattr("platform.system", lambda: system)
    load, made = loader(bpftrace=Stub(), dtrace=Stub(), procfs=Stub())
    async with opened(Request(), load):
        assert list(made) == [best]


async def test_linux_has_dtrace_where_bpftrace_does_not_open(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Linux")
    load, made = loader(bpftrace=Stub(refusal="no bpftrace"), dtrace=Stub())
    async with opened(Request(), load):
        assert made["dtrace"]["reason"] == "no bpftrace"


async def test_an_explicit_backend_does_not_fall_back():
    load, _ = loader(bpftrace=Stub(refusal="not here"), procfs=Stub())
    with pytest.raises(UnavailableError, match="not here"):
        async with opened(Request(backend="bpftrace"), load):
            pass


async def test_a_failure_inside_is_not_mistaken_for_a_refusal():
    load, made = loader(bpftrace=Stub(), procfs=Stub())
    with pytest.raises(UnavailableError, match="later"):
        async with opened(Request(), load):
            raise UnavailableError("later")
    assert "procfs" not in made


async def test_the_demo_gets_scenario_and_seed():
    load, made = loader(demo=Stub())
    async with opened(Request(backend="demo", seed=9), load):
        pass
    assert made == {"demo": {"scenario": "host", "seed": 9}}


@pytest.mark.parametrize("name", ["replay", "ebpf", "", "x\n"])
def test_names_that_backend_does_not_take(name):
    with pytest.raises(UsageError, match=r"^--backend: there is no .*; there are auto, bpftrace, dtrace, procfs, demo"):
        check(name)


FAST = replace(ORIGIN, interval_us=10_000)


class Gone(Stub):
    """Its probe ended a moment ago, and its frames with it."""

    async def finish(self, _patience_s):
        raise ProbeGoneError("bpftrace had ended: Killed")


class Hung(Stub):
    """Its probe prints nothing any more, even when it is asked to end."""

    async def finish(self, _patience_s):
        await asyncio.Event().wait()


class Ended(Stub):
    """It gives up after a while, with the reason."""

    async def frames(self):
        async for current_frame in super().frames():
            yield current_frame
        await asyncio.sleep(0.4)
        raise LatmonError("it broke")


def stopped(capture, *, at_once):
    asyncio.get_running_loop().call_later(0.4, lambda: capture.stop("enough", at_once=at_once))


ENDS = {
    "a duration": (Request(duration_us=1_000_000), lambda _: None),
    "Ctrl-C": (Request(), lambda capture: stopped(capture, at_once=False)),
    "SIGTERM": (Request(), lambda capture: stopped(capture, at_once=True)),
    "a part that is full": (Request(max_size=1 << 21), lambda capture: stopped(capture, at_once=True)),
    "the key R": (
        Request(),
        lambda capture: (
            asyncio.get_running_loop().call_later(0.4, capture.toggle_recording),
            asyncio.get_running_loop().call_later(0.8, capture.stop, "enough"),
        ),
    ),
}


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("latmon.capture.backend.SILENT_S", 0.2)
    monkeypatch.setattr(module, "FINISHING_S", 0.05)
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("probe", [Gone, Hung, Stub])
@pytest.mark.parametrize("end", ENDS)
async def test_a_hole_at_the_end_is_in_the_file_whatever_ends_it(tmp_path, probe, end):
    request, ends = ENDS[end]
    stub = probe(frame(0), *([] if end == "a duration" else [frame(1)]), origin=FAST)
    capture, watcher = capturing(stub, replace(request, record=tmp_path / "x"))
    watcher.then = lambda: ends(capture) if len(watcher.frames) == len(stub.given) else None
    outcome = await asyncio.wait_for(capture.run(), 30)
    assert outcome.exit == EXIT_INCOMPLETE
    window, gap, end_line = list(open_recording(tmp_path / "x"))[-3:]
    assert (gap.reason, gap.mono_us, gap.wall) == ("probe-silent", window.mono_us, window.wall)
    assert 0.3 < gap.seconds < 30
    assert isinstance(end_line, End)
    reported = summarised(open_recording(tmp_path / "x"))
    assert [gap["reason"] for gap in reported["gaps"]] == ["probe-silent"]
    check_report = survey(open_recording(tmp_path / "x"))
    assert (check_report.gaps, check_report.clean) == (1, True)


@pytest.mark.usefixtures("impatient")
async def test_a_hole_at_the_end_is_in_the_file_when_the_backend_fails(tmp_path):
    capture, _ = capturing(Ended(frame(0), forever=False, origin=FAST), Request(record=tmp_path / "x"))
    with pytest.raises(LatmonError, match="it broke"):
        await capture.run()
    assert [gap.reason for gap in open_recording(tmp_path / "x") if isinstance(gap, Gap)] == ["probe-silent"]


async def test_a_probe_that_ended_a_moment_before_the_capture_is_a_gap_as_well(tmp_path):
    capture, _ = capturing(Gone(frame(0)), Request(record=tmp_path / "x"))
    stopped(capture, at_once=False)
    outcome = await capture.run()
    assert outcome.exit == EXIT_INCOMPLETE
    assert "s are missing: bpftrace had ended: Killed" in outcome.reason
    assert [gap.reason for gap in open_recording(tmp_path / "x") if isinstance(gap, Gap)] == ["probe-silent"]


async def test_a_probe_that_fails_behind_its_last_frame_has_lost_nothing(tmp_path):
    capture, _ = capturing(Gone(frame(0)), Request(record=tmp_path / "x"), stop_after=1)
    assert (await capture.run()).exit == EXIT_DONE


async def test_a_healthy_probe_that_takes_long_to_end_leaves_no_gap(tmp_path, monkeypatch):
    """bpftrace takes longer than FINISHING_S to detach on a busy host; less than one interval is not counted then."""
    monkeypatch.setattr(module, "FINISHING_S", 0.05)
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    capture, _ = capturing(Hung(frame(0)), Request(record=tmp_path / "x"), stop_after=1)
    assert (await capture.run()).exit == EXIT_DONE
    assert not [gap for gap in open_recording(tmp_path / "x") if isinstance(gap, Gap)]


async def test_a_silent_end_without_a_recording_is_reported(monkeypatch):
    monkeypatch.setattr("latmon.capture.backend.SILENT_S", 0.2)
    capture, _ = capturing(Stub(frame(0), origin=FAST))
    stopped(capture, at_once=False)
    outcome = await capture.run()
    assert outcome.exit == EXIT_INCOMPLETE
    assert "s are missing: the probe printed nothing" in outcome.reason
