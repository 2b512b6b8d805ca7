"""One recording at a time, off the event loop, with its state in one line and its losses reported."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded import DISK, ORIGIN, frame

from latmon.capture import recorder as module
from latmon.capture.backend import HostPart
from latmon.capture.recorder import HostRecorders, Recorder
from latmon.model.frame import Frame
from latmon.model.redaction import Redaction
from latmon.recording import parts
from latmon.recording.codec import End, Gap
from latmon.recording.parts import RecordingLimits
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.support.errors import UnavailableError


def plenty(_path):
    return ""


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Recorder(ORIGIN, RecordingLimits(), plenty)


def frames_in(path):
    return [frame for frame in open_recording(path) if isinstance(frame, Frame)]


async def test_what_is_put_is_written(recorder, tmp_path):
    await recorder.start(tmp_path / "x")
    for seq in range(3):
        recorder.put(frame(seq))
    assert recorder.active
    assert recorder.state == ("x", "")
    await recorder.stop()
    assert [frame.seq for frame in frames_in(tmp_path / "x")] == [0, 1, 2]
    assert not recorder.active
    assert recorder.state == ("", "")
    assert recorder.complete


async def test_nothing_is_written_before_and_after(recorder, tmp_path):
    recorder.put(frame(0))
    await recorder.start(tmp_path / "x")
    recorder.put(frame(1))
    await recorder.stop()
    recorder.put(frame(2))
    assert [frame.seq for frame in frames_in(tmp_path / "x")] == [1]


async def test_a_recording_from_the_middle_names_all_devices_and_its_own_start(recorder, tmp_path):
    recorder.put(frame(0, devices=(DISK,)))
    recorder.put(frame(1))
    await recorder.start(tmp_path / "x")
    recorder.put(frame(2))
    recorder.put(frame(3))
    await recorder.stop()
    first, second = frames_in(tmp_path / "x")
    assert first.devices == (DISK,)
    assert second.devices == ()
    origin = open_recording(tmp_path / "x").origin
    assert (origin.start_mono_us, origin.start_wall) == (frame(1).mono_us, frame(1).wall)


async def test_the_key_starts_and_stops_under_a_name_of_host_and_time(recorder, tmp_path):
    await recorder.toggle()
    name = recorder.state.name
    assert re.fullmatch(r"box-\d{8}T\d{6}Z\.latmon\.jsonl\.gz", name)
    recorder.put(frame(0))
    await recorder.toggle()
    assert recorder.state == ("", "")
    assert len(frames_in(tmp_path / name)) == 1


async def test_a_refusal_of_the_key_is_only_reported(recorder, monkeypatch, tmp_path):
    monkeypatch.setattr(module.target, "recording_name", lambda *_args: "taken")
    (tmp_path / "taken").write_text("precious")
    await recorder.toggle()
    assert not recorder.active
    assert recorder.state.name == ""
    assert recorder.state.trouble.startswith("not recording: ")
    assert "never overwritten" in recorder.state.trouble
    assert (tmp_path / "taken").read_text() == "precious"


async def test_a_refusal_of_a_named_file_is_raised(recorder, tmp_path):
    with pytest.raises(UnavailableError, match="there is no directory"):
        await recorder.start(tmp_path / "no" / "x")


async def until(what):
    for _ in range(6000):
        if what():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


async def test_a_disk_that_gets_full_ends_the_recording_and_says_so(tmp_path):
    recorder = Recorder(ORIGIN, RecordingLimits(), lambda path: f"only 3 MB are free beside {path.name}")
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(lambda: not recorder.active)
    assert recorder.state == ("", "recording to x stopped: only 3 MB are free beside x")
    assert not recorder.complete
    recorder.put(frame(1))
    await recorder.stop()
    assert len(frames_in(tmp_path / "x")) == 1
    assert open_recording(tmp_path / "x").damage == []


async def test_the_users_own_maximum_is_no_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MIN_SHARE", 1_000)
    recorder = Recorder(ORIGIN, RecordingLimits(max_size=9_000), plenty)
    await recorder.start(tmp_path / "x")
    for seq in range(60):
        recorder.put(frame(seq))
    await until(recorder._waiting.empty)
    assert re.fullmatch(r"x\.part\d{4}", recorder.state.name)
    assert recorder.size <= 9_000
    await recorder.stop()
    assert recorder.complete
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 9_000
    kept = [seq for path in sorted(tmp_path.iterdir()) for seq in [frame.seq for frame in frames_in(path)]]
    assert kept == list(range(kept[0], 60))


async def test_where_it_lies_is_remarked_once(tmp_path):
    recorder = Recorder(ORIGIN, RecordingLimits(), plenty, lambda path: f"{path.name} lies on vda")
    assert recorder.news() == ""
    await recorder.start(tmp_path / "x")
    assert recorder.news() == "x lies on vda"
    assert recorder.news() == ""
    await recorder.stop()


async def test_a_redacted_recording_by_the_key_doesn_t_bear_the_host_s_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(ORIGIN, RecordingLimits(redaction=Redaction()), plenty)
    await recorder.toggle()
    assert recorder.state.name.startswith("host-")
    await recorder.stop()


@pytest.fixture
def hanging(monkeypatch):
    """Each write hangs until this event is set."""
    event, append = threading.Event(), Writer.append
    monkeypatch.setattr(Writer, "append", lambda self, one: (event.wait(600), append(self, one)))
    yield event
    event.set()


async def test_a_disk_that_hangs_blocks_neither_frames_nor_the_end(recorder, tmp_path, hanging):
    await recorder.start(tmp_path / "x")
    try:
        for seq in range(5):
            recorder.put(frame(seq))
        async with asyncio.timeout(30):
            await recorder.stop(within=0.1)
        assert "did not answer within 0.1 s" in recorder.state.trouble
        assert not recorder.complete
    finally:
        hanging.set()


async def test_a_disk_that_comes_back_gets_the_end_line_of_a_recording_given_up(recorder, tmp_path, hanging):
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await recorder.stop("enough", within=0.1)
    assert not recorder.active
    await recorder.start(tmp_path / "y")  # while the first one's thread still hangs
    hanging.set()
    recorder.put(frame(1))
    await recorder.stop()
    await until(lambda: open_recording(tmp_path / "x") and list(open_recording(tmp_path / "x"))[1:])
    assert list(open_recording(tmp_path / "x"))[-1] == End("enough", 1)
    assert [frame.seq for frame in frames_in(tmp_path / "y")] == [1]


LEAVING = """
import asyncio, os, sys, threading
from pathlib import Path
from recorded import ORIGIN, frame
from latmon.capture.recorder import Recorder
from latmon.recording.parts import RecordingLimits

async def capture():
    recorder = Recorder(ORIGIN, RecordingLimits(), lambda path: "")
    await recorder.start(Path(sys.argv[1]))
    never, _ = os.pipe()
    os.write = lambda *_args: os.read(never, 1)
    recorder.put(frame(0))
    await asyncio.sleep(0.1)
    await recorder.stop(within=0.2)
    print(recorder.state.trouble, flush=True)

asyncio.run(capture())
"""


def test_the_process_leaves_though_a_write_never_returns(tmp_path):
    roots = os.pathsep.join((str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "helpers")))
    done = subprocess.run(
        [sys.executable, "-c", LEAVING, str(tmp_path / "x")],
        env={**os.environ, "PYTHONPATH": roots},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "did not answer within 0.2 s" in done.stdout
    assert done.stderr == ""


async def test_frames_beyond_the_bound_become_a_gap(recorder, tmp_path, monkeypatch, hanging):
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(recorder._waiting.empty)
    for seq in range(1, 6):
        recorder.put(frame(seq))
    hanging.set()
    await until(recorder._waiting.empty)
    recorder.put(frame(6))
    await recorder.stop()
    items = list(open_recording(tmp_path / "x"))
    assert [frame.seq for frame in items if isinstance(frame, Frame)] == [0, 1, 2, 6]
    assert [(gap.reason, gap.seconds) for gap in items if isinstance(gap, Gap)] == [("disk-stalled", 3.0)]
    assert not recorder.complete


async def test_frames_after_the_end_was_asked_for_are_no_gap(recorder, tmp_path, hanging):
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    ending = asyncio.create_task(recorder.stop(within=60))
    await until(lambda: recorder._is_ending)
    recorder.put(frame(1))
    hanging.set()
    await ending
    items = list(open_recording(tmp_path / "x"))
    assert [frame.seq for frame in items if isinstance(frame, Frame)] == [0]
    assert not [gap for gap in items if isinstance(gap, Gap)]


async def test_frames_that_the_disk_did_not_take_until_the_end_are_a_gap(recorder, tmp_path, monkeypatch, hanging):
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(recorder._waiting.empty)
    for seq in range(1, 6):
        recorder.put(frame(seq))
    await recorder.stop(within=0.1)
    hanging.set()
    await until(lambda: any(isinstance(one, End) for one in open_recording(tmp_path / "x")))
    items = list(open_recording(tmp_path / "x"))
    assert [frame.seq for frame in items if isinstance(frame, Frame)] == [0]
    assert [(gap.reason, gap.seconds) for gap in items if isinstance(gap, Gap)] == [("disk-stalled", 5.0)]
    assert not recorder.complete


async def test_a_hole_and_a_full_disk_at_the_end(tmp_path):
    """The disk has no room for windows any more, and the last frames still wait: the file has a gap line for them."""
    recorder = Recorder(ORIGIN, RecordingLimits(), space=lambda _: "no room is left")
    await recorder.start(tmp_path / "x")
    for seq in range(3):
        recorder.put(frame(seq))
    await recorder.stop(silent_s=4.0)
    *_, first, gap, silent, end = open_recording(tmp_path / "x")
    assert (first.seq, gap.reason, gap.seconds) == (0, "enospc", 2.0)
    assert (silent.reason, silent.seconds) == ("probe-silent", 4.0)
    assert isinstance(end, End)
    assert not recorder.complete


async def test_a_mistake_of_the_writer_is_not_swallowed(recorder, tmp_path, monkeypatch):
    def broken(_self, _frame):
        raise KeyError("seq")

    monkeypatch.setattr(Writer, "append", broken)
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(recorder._writing.done)
    with pytest.raises(KeyError):
        recorder.put(frame(1))
    with pytest.raises(KeyError):
        await recorder.stop()


async def test_a_host_of_a_fleet_that_is_measured_by_another_clock_has_another_recording(tmp_path):
    taken = []
    several = HostRecorders(ORIGIN, RecordingLimits(), lambda: [taken.pop(0)] if taken else [])
    await several.start(tmp_path / "fleet")
    own, ours = frame(5), frame(1)
    for has_own_clock, current_frame in ((True, own), (True, own), (False, ours), (False, ours)):
        taken.append(HostPart("a", ORIGIN, current_frame, has_own_clock))
        several.put(current_frame)
        await asyncio.gather(*several._starting.values())
    await several.stop()
    found = [[frame.mono_us for frame in frames_in(path)] for path in sorted((tmp_path / "fleet").iterdir())]
    assert sorted(found) == [[ours.mono_us], [own.mono_us]]


class Fleet:
    """Hosts a and b with a disk each, recorded into one directory; `full` names hosts whose disk is full."""

    def __init__(self):
        self.full, self._taken = set(), []
        self.names = ("a", "b")
        self.recorders = HostRecorders(ORIGIN, RecordingLimits(), self._take, self._space, labels=self.names)

    def _space(self, path):
        return "no room" if path.name[0] in self.full else ""

    def _take(self):
        taken, self._taken = self._taken, []
        return taken

    async def put(self, seq, **values):
        self._taken = [HostPart(name, ORIGIN, frame(seq, **values)) for name in self.names]
        self.recorders.put(frame(seq))
        await asyncio.gather(*self.recorders._starting.values())
        await asyncio.sleep(0.01)

    async def put_until(self, what):
        """Put frames until that is true."""
        for seq in range(3, 1000):
            if what():
                return
            await self.put(seq)
        pytest.fail(f"it never came true: {self.recorders.state}")


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SPACE_CHECK_S", 0.0)
    monkeypatch.chdir(tmp_path)
    return Fleet()


async def test_a_fleet_is_recorded_as_long_as_one_of_its_hosts_is(fleet, tmp_path):
    recorders = fleet.recorders
    await recorders.start(tmp_path / "fleet")
    assert recorders.active
    await fleet.put(1)
    await fleet.put(2)
    assert recorders.state == ("fleet (2 hosts)", "")
    fleet.full.add("a")
    await fleet.put_until(lambda: "no room" in recorders.state.trouble)
    assert recorders.state.name == "fleet (1 host)"
    assert recorders.state.trouble.startswith("recording to a-")
    assert recorders.active
    assert not recorders.complete
    fleet.full.add("b")
    await fleet.put_until(lambda: not recorders.active)
    assert recorders.state.name == ""
    assert recorders.state.trouble.startswith("fleet (0 hosts): recording to a-")
    await recorders.stop()


async def test_a_frame_during_the_end_of_a_fleet_begins_no_new_file(fleet, tmp_path):
    recorders, hanging = fleet.recorders, threading.Event()
    await recorders.start(tmp_path / "fleet")
    await fleet.put(1)
    slow = next(recorder for key, recorder in recorders._recorders.items() if key[0] == "b")
    slow._space, slow._space_due = lambda _: (hanging.wait(60), "")[1], 0.0
    await fleet.put(2)
    ending = asyncio.create_task(recorders.stop(within=60))
    await until(lambda: not any(recorder.active for key, recorder in recorders._recorders.items() if key[0] == "a"))
    await fleet.put(3)
    hanging.set()
    await ending
    assert len(list((tmp_path / "fleet").iterdir())) == 2
    assert not any(recorder.active for recorder in recorders._recorders.values())


async def test_the_end_of_a_fleet_waits_once_for_a_host_that_starts_and_its_disk(fleet, tmp_path):
    """The disk of b doesn't answer; the recording of a, whose disk does, has all of its time."""
    recorders, given = fleet.recorders, []
    await recorders.start(tmp_path / "fleet")
    await fleet.put(1)
    await fleet.put(2)
    for key, recorder in recorders._recorders.items():
        stop = recorder.stop

        async def noted(reason, within, silent_s, *, stop=stop, label=key[0]):
            given.append((label, within))
            await stop(reason, within, silent_s)

        recorder.stop = noted
        if key[0] == "b":
            recorders._starting[key] = asyncio.create_task(asyncio.sleep(60))
    await recorders.stop(within=0.2)
    assert given == [("a", 0.2), ("b", 0.0)]
    for starting in recorders._starting.values():
        starting.cancel()
    (path,) = (tmp_path / "fleet").glob("a-*")
    assert frames_in(path)


@pytest.mark.parametrize("full", ["a", "ab"])
async def test_the_key_records_a_fleet_again_after_a_full_disk(fleet, tmp_path, full):
    recorders = fleet.recorders
    await recorders.toggle()
    await fleet.put(1, devices=(DISK,))
    await fleet.put(2)
    fleet.full.update(full)
    await fleet.put_until(
        lambda: f"({2 - len(full)} host" in str(recorders.state) and "no room" in recorders.state.trouble
    )
    fleet.full.clear()
    if len(full) == 1:  # the key stops the other one
        assert recorders.active
        await recorders.toggle()
    first = set(tmp_path.glob("*/*"))
    await recorders.toggle()
    assert recorders.active
    for seq in (2001, 2002, 2003):  # the first one starts the recordings
        await fleet.put(seq)
    assert recorders.state.name.endswith(" (2 hosts)")
    await recorders.stop()
    again = sorted(set(tmp_path.glob("*/*")) - first)
    assert [path.name[0] for path in again] == ["a", "b"]
    for frames in map(frames_in, again):
        assert [frame.seq for frame in frames] == [2002, 2003]
        assert frames[0].devices == (DISK,)


LOSSES = {
    "removed": lambda path: path.unlink(),
    "directory removed": lambda path: shutil.rmtree(path.parent),
    "truncated": lambda path: os.truncate(path, 100),
}


@pytest.mark.parametrize("when", ["while it is written", "at the end"])
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_file_that_is_lost_is_no_complete_recording(recorder, tmp_path, loss, when):
    path = tmp_path / "new" / "x"
    path.parent.mkdir()
    await recorder.start(path)
    recorder.put(frame(0))
    await until(recorder._waiting.empty)
    LOSSES[loss](path)
    if when == "while it is written":
        recorder.put(frame(1))
        await until(lambda: not recorder.active)
    await recorder.stop()
    done = "truncated" if loss == "truncated" else "removed"
    assert re.search(f"recording to x stopped: .*/x: the file was {done}", recorder.state.trouble)
    assert not recorder.complete


@pytest.mark.parametrize("loss", ["no room", "removed", "truncated"])
async def test_a_recording_that_resumes_goes_on_in_the_next_part(tmp_path, monkeypatch, loss):
    monkeypatch.setattr(module, "SPACE_CHECK_S", 0.0)
    monkeypatch.setattr(module, "_RESUME_S", 0.01)
    shortage = ""
    recorder = Recorder(ORIGIN, RecordingLimits(), lambda _: shortage, resumes=True)
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(recorder._waiting.empty)
    if loss == "no room":
        shortage = "no room is left"
    else:
        LOSSES[loss](tmp_path / "x")
    recorder.put(frame(1))
    await until(lambda: not recorder.active)
    recorder.put(frame(2))
    assert loss != "no room" or not recorder.active
    shortage = ""
    seq = 3
    while not recorder.active:
        recorder.put(frame(seq))
        seq += 1
        await asyncio.sleep(0.02)
    assert recorder.state == ("x.part0002", "")
    recorder.put(frame(seq))
    await recorder.stop()
    assert [frame.seq for frame in frames_in(tmp_path / "x.part0002")] == [seq]
    assert not recorder.complete
    if loss == "no room":
        items = list(parts.open_parts([tmp_path / "x", tmp_path / "x.part0002"]))
        assert [frame.seq for frame in items if isinstance(frame, Frame)] == [0, 1, seq]
        gaps = [(item.reason, item.seconds) for item in items if isinstance(item, Gap)]
        assert gaps == [("enospc", seq - 2.0)]


async def test_a_recording_that_resumes_at_the_third_attempt_lacks_no_part(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SPACE_CHECK_S", 0.0)
    monkeypatch.setattr(module, "_RESUME_S", 0.0)
    create, refusals = Writer.create, iter([True, True])

    def refuse_twice(*words, **options):
        if next(refusals, False):
            raise UnavailableError("there is no inode left")
        return create(*words, **options)

    shortages = iter(["no room is left"])
    recorder = Recorder(ORIGIN, RecordingLimits(), lambda _: next(shortages, ""), resumes=True)
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(lambda: not recorder.active)
    monkeypatch.setattr(Writer, "create", refuse_twice)
    seq = 1
    while not recorder.active:
        recorder.put(frame(seq))
        seq += 1
        await asyncio.sleep(0.01)
    recorder.put(frame(seq))
    await recorder.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "x.part0002"]
    recording = parts.open_parts(sorted(tmp_path.iterdir()))
    assert [item.reason for item in recording if isinstance(item, Gap)] == ["enospc"]
    assert recording.damage == []


async def resuming_recorder(tmp_path, monkeypatch, shortage):
    """Return a recorder whose attempt to resume waits for its disk, and the event that lets the disk answer.

    `shortage`: the answer, empty if there is room again.
    """
    monkeypatch.setattr(module, "SPACE_CHECK_S", 0.0)
    monkeypatch.setattr(module, "_RESUME_S", 0.0)
    checks, answered = [], threading.Event()

    def space(_path):
        checks.append(None)
        if len(checks) == 1:
            return "no room is left"
        answered.wait(60)
        return shortage

    recorder = Recorder(ORIGIN, RecordingLimits(), space, resumes=True)
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(lambda: not recorder.active and recorder._writing.done())
    recorder.put(frame(1))
    await until(lambda: len(checks) == 2)
    return recorder, answered


async def test_a_stop_while_a_recording_resumes_is_the_reason_of_its_end(tmp_path, monkeypatch):
    recorder, answered = await resuming_recorder(tmp_path, monkeypatch, shortage="")
    stopping = asyncio.create_task(recorder.stop("asked", within=60))
    await asyncio.sleep(0)
    answered.set()
    await stopping
    (end,) = (item for item in open_recording(tmp_path / "x.part0002") if isinstance(item, End))
    assert end.reason == "asked"


async def test_a_stop_cancels_an_attempt_to_resume_on_a_disk_that_hangs(tmp_path, monkeypatch):
    recorder, answered = await resuming_recorder(tmp_path, monkeypatch, shortage="no room is left")
    resuming = recorder._resuming
    await recorder.stop(within=0.05)
    await until(resuming.done)
    answered.set()
    assert resuming.cancelled()
    assert not recorder.active


async def test_a_recording_that_resumes_keeps_to_its_maximum(tmp_path, monkeypatch):
    """The parts before an error count, and are removed first."""
    monkeypatch.setattr(parts, "MIN_SHARE", 1_000)
    monkeypatch.setattr(module, "SPACE_CHECK_S", 0.0)
    monkeypatch.setattr(module, "_RESUME_S", 0.0)
    shortages = iter(["", "", "no room is left"] * 40)
    recorder = Recorder(ORIGIN, RecordingLimits(max_size=9_000), lambda _: next(shortages, ""), resumes=True)
    await recorder.start(tmp_path / "x")
    for seq in range(200):
        recorder.put(frame(seq))
        await asyncio.sleep(0.002)
    await recorder.stop()
    assert len(list(tmp_path.iterdir())) > 2
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 9_000


async def test_the_end_of_a_capture_does_not_resume_a_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SPACE_CHECK_S", 0.0)
    monkeypatch.setattr(module, "_RESUME_S", 0.0)
    recorder = Recorder(ORIGIN, RecordingLimits(), lambda _: "no room is left", resumes=True)
    await recorder.start(tmp_path / "x")
    recorder.put(frame(0))
    await until(lambda: not recorder.active)
    recorder._space = plenty
    await recorder.stop()
    recorder.put(frame(1))
    await asyncio.sleep(0.1)
    assert not recorder.active
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def silent(monkeypatch, seconds):
    """Let a host be silent after so many seconds."""
    monkeypatch.setattr(module, "allowed_silence_s", lambda _: seconds)


async def test_a_host_of_a_fleet_that_falls_silent_has_a_gap_at_its_end(fleet, tmp_path, monkeypatch):
    silent(monkeypatch, 0.2)
    await fleet.recorders.start(tmp_path / "fleet")
    await fleet.put(0)
    await asyncio.sleep(0.3)
    fleet.names = ("a",)
    await fleet.put(1)
    await fleet.recorders.stop()
    gaps = {
        path.name[0]: [item.reason for item in open_recording(path) if isinstance(item, Gap)]
        for path in (tmp_path / "fleet").iterdir()
    }
    assert gaps == {"a": [], "b": ["probe-silent"]}
    assert not fleet.recorders.complete
    assert re.fullmatch(r"b sent no frame in the last \d+ s", fleet.recorders.losses())


async def test_a_host_is_not_silent_while_the_recorder_waits_for_a_disk(fleet, tmp_path, monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds[0], time=time.time))
    silent(monkeypatch, 5.0)

    async def start_slowly():
        seconds[0] += 60.0

    await fleet.recorders.start(tmp_path / "fleet")
    await fleet.put(0)
    fleet.recorders._starting["c", "", False] = asyncio.create_task(start_slowly())
    await fleet.recorders.stop()
    assert fleet.recorders.losses() == ""
    assert fleet.recorders.complete


async def test_a_host_of_a_fleet_that_never_sent_a_frame_is_named(fleet, tmp_path):
    assert not fleet.recorders.has_frames
    await fleet.recorders.start(tmp_path / "fleet")
    fleet.names = ("a",)
    await fleet.put(0)
    await fleet.recorders.stop()
    assert fleet.recorders.has_frames
    assert fleet.recorders.losses() == "b sent no frame"


async def test_a_redacted_recording_counts_lost_hosts(tmp_path):
    recorders = HostRecorders(ORIGIN, RecordingLimits(redaction=Redaction()), list, labels=("db-1", "db-2"))
    await recorders.start(tmp_path / "fleet")
    await recorders.stop()
    assert recorders.losses() == "2 hosts sent no frame"
