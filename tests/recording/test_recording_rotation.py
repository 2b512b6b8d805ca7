"""A capture in parts: every frame in one of them, no more bytes than allowed, nothing unlinked that isn't ours."""

import errno
import fcntl
import os
import re
import signal
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from recorded import DISK, ORIGIN, frame

from latmon.model.frame import Device, Frame, Series
from latmon.model.histogram import Histogram
from latmon.model.redaction import Redaction
from latmon.recording import parts, writer
from latmon.recording.codec import End, Gap
from latmon.recording.parts import DAY_US, RecordingLimits, Rotation, open_parts, part_of
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.recording.writer import LostFileError, Writer

NAME = "x.latmon.jsonl.gz"


@pytest.fixture
def small(monkeypatch):
    """Shares of a few kB."""
    monkeypatch.setattr(parts, "MIN_SHARE", 6_000)


def noisy(seq, **changed):
    """A window whose member takes some 2 kB."""
    rng = Random(seq)
    histogram = Histogram.of({rng.randrange(200): 1 + rng.randrange(10**6) for _ in range(180)}, None, None)
    return frame(
        seq, histograms={Series("sda", "read", stage): histogram for stage in ("hba", "total", "queue")}, **changed
    )


def parts_in(directory):
    return sorted(path for path in directory.iterdir() if path.name.startswith("x"))


def seqs(path):
    return [frame.seq for frame in open_recording(path) if isinstance(frame, Frame)]


@pytest.mark.usefixtures("small")
def test_every_frame_is_in_one_part_and_sums_are_the_same(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=600_000))
    frames = [noisy(seq) for seq in range(200)]
    for current_frame in frames:
        taken.append(current_frame)
    taken.close("enough")
    paths = parts_in(tmp_path)
    assert len(paths) == 3
    assert [seq for path in paths for seq in seqs(path)] == list(range(200))
    whole_parts = open_parts(paths)
    items = list(whole_parts)
    assert whole_parts.damage == []
    assert [frame for frame in items if not isinstance(frame, Frame)] == [End("enough", 200)]
    assert [frame.histograms for frame in items if isinstance(frame, Frame)] == [frame.histograms for frame in frames]


@pytest.mark.usefixtures("small")
def test_each_part_is_a_recording_of_its_own(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=48_000))
    for seq in range(9):
        taken.append(noisy(seq))
    taken.close()
    paths = parts_in(tmp_path)
    assert [path.name for path in paths[:2]] == [NAME, "x.part0002.latmon.jsonl.gz"]
    capture = {part_of(open_recording(path).origin).capture for path in paths}
    assert len(capture) == 1
    for number, path in enumerate(paths, 1):
        recording = open_recording(path)
        first, *others = [frame for frame in recording if isinstance(frame, Frame)]
        assert recording.damage == []
        assert part_of(recording.origin).number == number
        assert part_of(recording.origin).first == NAME
        assert first.devices == (DISK,)
        assert all(frame.devices == () for frame in others)
        assert recording.origin.start_mono_us == (first.mono_us - first.dt_us if number > 1 else ORIGIN.start_mono_us)
        assert path.stat().st_mode & 0o777 == 0o600
    assert list(open_recording(paths[0]))[-1].reason == "continued in x.part0002.latmon.jsonl.gz"


@pytest.mark.usefixtures("small")
def test_the_whole_capture_stays_below_its_maximum_at_every_moment(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=30_000))
    most = 0
    for seq in range(200):
        taken.append(noisy(seq))
        most = max(most, sum(path.stat().st_size for path in parts_in(tmp_path)))
        assert taken.size == sum(path.stat().st_size for path in parts_in(tmp_path))
    taken.close()
    assert 20_000 < most <= 30_000
    kept = [seq for path in parts_in(tmp_path) for seq in seqs(path)]
    assert kept == list(range(kept[0], 200))
    assert not (tmp_path / NAME).exists()


def test_a_part_lasts_a_day_of_the_capture_s_own_clock(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits())
    hour = DAY_US // 24
    for i in range(49):
        taken.append(replace(frame(i), mono_us=hour * (i + 1), dt_us=hour))
    taken.close()
    assert [len(seqs(path)) for path in parts_in(tmp_path)] == [24, 24, 1]


def test_parts_that_ended_longer_ago_than_is_kept_are_unlinked(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(keep_us=2 * DAY_US))
    hour = DAY_US // 24
    for i in range(24 * 6):
        taken.append(replace(frame(i), mono_us=hour * (i + 1), dt_us=hour))
    taken.close()
    assert [seqs(path)[0] for path in parts_in(tmp_path)] == [24 * 3, 24 * 4, 24 * 5]


def test_what_is_kept_for_an_hour_is_in_parts_of_an_hour():
    assert RecordingLimits(keep_us=3_600_000_000).length_us == 3_600_000_000
    assert RecordingLimits(keep_us=7 * DAY_US).length_us == DAY_US


@pytest.mark.usefixtures("small")
def test_only_the_files_of_this_capture_are_unlinked(tmp_path):
    foreign = tmp_path / "x.part0003.latmon.jsonl.gz"
    foreign.write_text("somebody else's")
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=30_000))
    for seq in range(12):
        taken.append(noisy(seq))
        if seq == 4:  # moved away as evidence, and its name used again
            (tmp_path / NAME).rename(tmp_path / "evidence")
            (tmp_path / NAME).write_text("precious")
    for seq in range(12, 120):
        taken.append(noisy(seq))
    taken.close()
    assert foreign.read_text() == "somebody else's"
    assert (tmp_path / NAME).read_text() == "precious"
    assert seqs(tmp_path / "evidence")[0] == 0
    numbers = [part_of(open_recording(path).origin).number for path in parts_in(tmp_path)[3:]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.usefixtures("small")
def test_a_file_with_the_name_and_the_inode_number_of_a_part_is_left_alone(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=30_000))
    for seq in range(5):
        taken.append(noisy(seq))
    (tmp_path / NAME).unlink()  # archived elsewhere
    (tmp_path / NAME).write_text("precious")  # most file systems give the number away again
    for seq in range(5, 60):
        taken.append(noisy(seq))
    taken.close()
    assert (tmp_path / NAME).read_text() == "precious"
    assert len(parts_in(tmp_path)) < 12
    assert seqs(parts_in(tmp_path)[1])[0] > 25


@pytest.mark.usefixtures("small")
def test_only_the_part_that_is_written_is_open_and_a_removed_one_isn_t_counted(tmp_path):
    def held():
        paths = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [path for path in paths if tmp_path in path.parents]

    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=60_000))
    for seq in range(10):
        taken.append(noisy(seq))
    assert held() == [taken.path]
    before = taken.size
    (tmp_path / NAME).unlink()
    taken.append(noisy(10))
    assert taken.size < before
    assert taken.size == sum(path.stat().st_size for path in parts_in(tmp_path))
    taken.close()
    assert held() == []


@pytest.mark.usefixtures("small")
def test_a_finished_part_is_not_locked(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=60_000))
    for seq in range(10):
        taken.append(noisy(seq))
    with (tmp_path / NAME).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    taken.close()


@pytest.mark.usefixtures("small")
def test_a_disk_that_is_full_as_a_part_begins_leaves_no_part_and_loses_no_window(tmp_path, monkeypatch):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=60_000))
    write, headers = os.write, []

    def limited(descriptor, data):
        if not os.fstat(descriptor).st_size:
            headers.append(len(parts_in(tmp_path)))
            (tmp_path / "x.part0002.latmon.jsonl.gz").unlink()  # removed, and the name taken by another file meanwhile
            (tmp_path / "x.part0002.latmon.jsonl.gz").write_text("precious")
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", limited)
    for seq in range(12):
        taken.append(noisy(seq))
    assert headers == [2]
    assert "No space left on device; x.latmon.jsonl.gz goes on instead" in taken.refusal
    taken.close()
    assert seqs(tmp_path / NAME) == list(range(12))
    assert (tmp_path / "x.part0002.latmon.jsonl.gz").read_text() == "precious"


CALLS = {"open": 4, "write": 15, "close": 3, "unlink": 1}
"""Call -> every how manieth of them."""


def killed_at(call, number, directory, frames):
    """A child that records, and is killed before its call `number` of this kind; what it had acknowledged."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        done, left, real = b"", number, getattr(os, call)

        def counted(*args, **named):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **named)

        setattr(os, call, counted)
        try:
            taken = Rotation.create(directory / NAME, ORIGIN, RecordingLimits(max_size=30_000))
            for current_frame in frames:
                taken.append(current_frame)
                os.writev(theirs, [bytes((current_frame.seq,))])
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as reported:
        done = reported.read()
    return done, os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("call", "step"), [*CALLS.items(), pytest.param("write", 5, marks=pytest.mark.slow)])
def test_a_kill_at_any_step_of_a_rotation_leaves_each_window_once(tmp_path, call, step):
    frames = [noisy(seq) for seq in range(50)]
    for number in range(0, 200, step):
        directory = tmp_path / f"{call}{number}"
        directory.mkdir()
        foreign = directory / "x.part0003.latmon.jsonl.gz"
        foreign.write_text("somebody else's")
        acknowledged, killed = killed_at(call, number, directory, frames)
        if not killed:
            break
        assert foreign.read_text() == "somebody else's"
        paths = [path for path in parts_in(directory) if path != foreign]
        if not any(path.stat().st_size for path in paths):  # killed before its header was there
            assert not acknowledged
            continue
        whole_parts = open_parts(paths)
        kept = [frame.seq for frame in whole_parts if isinstance(frame, Frame)]
        assert all(UNCLOSED in one for one in whole_parts.damage)
        assert kept == list(range(kept[0], kept[-1] + 1)) if kept else not acknowledged
        assert len(kept) in range(len(acknowledged) - kept[0], len(acknowledged) - kept[0] + 2) if kept else True
        assert not kept or kept[0] == 0 or kept[-1] - kept[0] > 5
    assert number > 2


@pytest.mark.parametrize(
    "end",
    [lambda taken: taken.close(), lambda taken: [taken.append(noisy(seq)) for seq in range(1, 60)]],
    ids=["the closing write", "a rotation"],
)
@pytest.mark.usefixtures("small")
def test_a_part_that_is_truncated_right_before_its_last_write_is_lost(tmp_path, monkeypatch, end):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=30_000))
    stop = Writer._stop

    def truncate_and_stop(writer, reason):
        os.truncate(writer._path, 0)
        stop(writer, reason)

    taken.append(noisy(0))
    monkeypatch.setattr(Writer, "_stop", truncate_and_stop)
    with pytest.raises(LostFileError, match="truncated"):
        end(taken)


@pytest.mark.usefixtures("small")
def test_a_link_where_a_part_was_is_left_alone(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=30_000))
    for seq in range(5):
        taken.append(noisy(seq))
    (tmp_path / NAME).rename(tmp_path / "evidence")
    (tmp_path / NAME).symlink_to(tmp_path / "evidence")
    for seq in range(5, 60):
        taken.append(noisy(seq))
    taken.close()
    assert (tmp_path / NAME).is_symlink()
    assert (tmp_path / "evidence").exists()


@pytest.mark.usefixtures("small")
def test_the_old_part_goes_on_where_no_new_one_can_be_had(tmp_path, monkeypatch):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=48_000))
    create = writer._create
    refusing = True

    def refuse(path):
        if refusing:
            raise parts.UnavailableError(f"can't record to {path}: Disk quota exceeded")
        return create(path)

    monkeypatch.setattr(writer, "_create", refuse)
    for seq in range(20):
        taken.append(noisy(seq))
    assert [path.name for path in parts_in(tmp_path)] == [NAME]
    assert re.search("Disk quota exceeded; x.latmon.jsonl.gz goes on instead", taken.refusal)
    assert taken.trouble == ""
    refusing = False
    for seq in range(20, 90):  # tried again after a minute
        taken.append(noisy(seq))
    assert taken.refusal == ""
    taken.close()
    paths = parts_in(tmp_path)
    assert len(paths) > 1
    assert [seq for path in paths for seq in seqs(path)][-20:] == list(range(70, 90))


@pytest.mark.usefixtures("small")
def test_a_full_disk_starts_no_part_and_loses_no_more_than_it_says(tmp_path, monkeypatch):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=10**6))
    write = os.write
    full = False

    def limited(descriptor, data):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", limited)
    for seq in range(100):
        full = 60 <= seq < 70
        taken.append(noisy(seq))
    taken.close()
    whole_parts = open_parts(parts_in(tmp_path))
    items = list(whole_parts)
    assert [frame.seq for frame in items if isinstance(frame, Frame)] == [*range(60), *range(70, 100)]
    assert [(gap.reason, gap.seconds) for gap in items if isinstance(gap, Gap)] == [("enospc", 10.0)]
    assert whole_parts.damage == []


def test_a_device_that_goes_with_the_first_window_of_a_part_is_gone_for_who_reads_all(tmp_path):
    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits())
    other = Device("sdb", 8, 16)
    hour = DAY_US // 24
    for i in range(30):
        named = (DISK, other) if i == 0 else ()
        gone = ("sdb",) if i == 24 else ()
        taken.append(replace(frame(i), mono_us=hour * (i + 1), dt_us=hour, removed=gone, devices=named))
    taken.close()
    first = next(frame for frame in open_recording(parts_in(tmp_path)[1]) if isinstance(frame, Frame))
    assert (first.devices, first.removed) == ((DISK,), ("sdb",))


@pytest.mark.usefixtures("small")
def test_redacted_parts_don_t_report_the_file_s_name(tmp_path):
    path = tmp_path / "db-07.latmon.jsonl.gz"
    taken = Rotation.create(path, ORIGIN, RecordingLimits(max_size=48_000, redaction=Redaction()))
    for seq in range(8):
        taken.append(noisy(seq))
    taken.close()
    assert part_of(open_recording(path).origin).first == ""
    assert list(open_recording(path))[-1].reason == "continued in part 2"


@pytest.mark.usefixtures("small")
def test_its_size_is_asked_while_parts_come_and_go(tmp_path):
    """By another thread: a number that is there, and no walk over parts."""

    class Changing(deque):
        def __iter__(self):
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("deque mutated during iteration")
            return super().__iter__()

    taken = Rotation.create(tmp_path / NAME, ORIGIN, RecordingLimits(max_size=48_000))
    taken._finished = Changing()
    with ThreadPoolExecutor(1) as other:
        for seq in range(12):
            taken.append(noisy(seq))
            assert other.submit(lambda: taken.size).result() == sum(one.stat().st_size for one in parts_in(tmp_path))
        assert len(parts_in(tmp_path)) > 1
        taken.close()
        assert other.submit(lambda: taken.size).result() == sum(one.stat().st_size for one in parts_in(tmp_path))
