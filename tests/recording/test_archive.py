"""The archive of a live capture has the same frames as its recording, at any time."""

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from latmon.capture import target
from latmon.capture.recorder import save
from latmon.model.frame import Completed, Device, Flow, Frame, Health, Mark, Origin, Outstanding, Series
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model.redaction import Redaction
from latmon.recording import writer as writing
from latmon.recording.archive import Archive, Before, Stamps, bursts, completed, letter, moments
from latmon.recording.codec import Gap, encode_frame, to_bytes
from latmon.recording.packed_tables import slowest_us
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report.reading import summarise
from latmon.report.summary import report_of
from latmon.report.totals import Totals
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.units import wall_of
from latmon_backends.replay import Recorded, open_several

SECOND = 1_000_000
WALL = 1_767_582_000.0
ORIGIN = Origin("demo", "db-07", "6.12", "0.1", start_wall=WALL, start_mono_us=1000 * SECOND)
READ = Flow("sda", "read")


def frame(number, **changes):
    devices = (Device("sda", 8, 0),) if number == 1 else (Device("sdb", 8, 16),) if number == 40 else ()
    frame = Frame(
        number,
        WALL + number,
        (1000 + number) * SECOND,
        SECOND,
        {Series("sda", "read", "total"): Histogram.record([100 + number, 2000])},
        {READ: Completed(2, 8192, 2100 + number)},
        {READ: Completed(2, 8192, 2100 + number)},
        outstanding={"sda": Outstanding(1, 0)},
        devices=devices,
    )
    return replace(frame, **changes)


FRAMES = [
    *map(frame, range(1, 21)),
    frame(21, marks=(Mark("changed max_vec", 1020 * SECOND + 5, WALL + 20),)),
    frame(22, gap="probe-restart"),
    frame(23, health=Health(lost_events=7)),
    *(frame(n, wall=WALL + n + 60) for n in range(24, 90)),
]


def kept(frames=FRAMES, **limits):
    archive = Archive(**limits)
    for frame in frames:
        archive.append(frame, to_bytes(encode_frame(frame)))
    return archive


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "a.latmon.jsonl.gz"
    writer = Writer.create(path, ORIGIN)
    for frame in FRAMES:
        writer.append(frame)
    writer.close()
    found = Recorded(open_several([path]))
    for _ in found.scan():
        pass
    return found


def test_a_recording_answers_as_what_was_kept_live(recorded):
    archive = kept()
    for after, until in ((0, 10**18), (1010 * SECOND, 1044 * SECOND), (1088 * SECOND, 1089 * SECOND), (5, 6)):
        assert list(archive.frames(after, until)) == list(recorded.frames(after, until))
    assert list(archive.frames(0, 10**18)) == FRAMES
    assert archive.stamps == recorded.stamps
    assert list(archive.moments) == list(recorded.moments)
    for us in (1001 * SECOND, 1039 * SECOND, 1040 * SECOND):
        assert archive.known(us) == recorded.known(us)
    assert [device.name for device in archive.known(1040 * SECOND)] == ["sda", "sdb"]


def test_moments_are_named_for_what_they_are():
    sentences = [(moment.kind, moment.text) for moment in kept().moments]
    assert sentences == [
        ("mark", "mark: changed max_vec"),
        ("restart", "the probe was restarted"),
        ("lost", "lost: 7 events"),
        ("clock", "the clock was set forward by 1min"),
    ]
    hole = list(moments(frame(9), Before(1005 * SECOND, WALL + 5)))
    assert [(timeline_event.kind, timeline_event.text) for timeline_event in hole] == [("gap", "gap: nothing for 3s")]
    assert letter([*hole, *moments(FRAMES[20], None)]) == "M"
    late = frame(20, late=True, dt_us=13_200_000)
    assert [(moment.kind, moment.text) for moment in moments(late, None)] == [
        ("late", "read late: one window of 13.2s")
    ]
    slept = frame(6, gap="suspended", wall=WALL + 900)
    assert [moment.kind for moment in moments(slept, Before(1005 * SECOND, WALL + 5))] == ["suspended"]
    assert [moment.kind for moment in moments(frame(6, wall=WALL + 6.4), Before(1005 * SECOND, WALL + 5))] == []


def test_it_forgets_by_time_and_by_bytes_and_keeps_the_devices():
    archive = kept(keep_us=30 * SECOND)
    assert 29 <= len(archive.stamps) <= 36
    assert len(list(archive.frames(0, 10**18))) == len(archive.stamps)
    assert [device.name for device in archive.known(archive.stamps[0].mono_us)] == ["sda", "sdb"]
    small = kept(max_bytes=2000)
    assert small.size < 2000 + 5 * len(to_bytes(encode_frame(FRAMES[0])))
    assert small.stamps[-1].mono_us == FRAMES[-1].mono_us
    at_us, waiting = archive.waiting(archive.stamps[20].mono_us)
    assert at_us <= archive.stamps[20].mono_us
    assert waiting is not archive.waiting(at_us)[1]


def test_another_boot_starts_again():
    archive = kept()
    archive.append(frame(2))
    assert [frame.seq for frame in archive.frames(0, 10**18)] == [2]
    assert len(archive.stamps) == 1


def test_stamps_find_the_closest():
    stamps = kept().stamps
    assert stamps.beside(1010 * SECOND, -3).mono_us == 1007 * SECOND
    assert stamps.beside(1010 * SECOND, -300).mono_us == 1001 * SECOND
    assert stamps.beside(1010 * SECOND, 10**6).mono_us == 1089 * SECOND
    assert stamps.nearest(1010 * SECOND + 300_000).mono_us == 1010 * SECOND
    assert stamps.nearest(0) == stamps[0]
    assert stamps.at_wall(WALL + 12.2).wall in (WALL + 12, WALL + 13)
    assert stamps.at_wall(WALL + 70).mono_us == 1023 * SECOND or stamps.at_wall(WALL + 70).wall == WALL + 84
    assert stamps.at_wall(0) == stamps[0]
    assert stamps.at_wall(WALL * 2) == stamps[-1]


def test_what_is_saved_is_a_recording_of_those_frames(tmp_path):
    path = tmp_path / "saved.latmon.jsonl.gz"
    after, until = 1015 * SECOND, 1045 * SECOND
    seen = kept()
    assert save(completed(seen.frames(after, until), seen.known(after)), ORIGIN, path) == 30
    saved = open_recording(path)
    items = list(saved)
    assert not saved.damage
    assert [mark for mark in items if isinstance(mark, Mark)] == list(FRAMES[20].marks)
    shown = Totals(SECOND)
    for frame in completed(kept().frames(after, until), kept().known(after)):
        for item in (*frame.marks, replace(frame, marks=())):
            shown.add(item)
    windows = [frame for frame in items if isinstance(frame, Frame)]
    assert [replace(window, marks=(), devices=()) for window in windows] == [
        replace(frame, marks=(), devices=()) for frame in FRAMES[15:45]
    ]
    reported, read = report_of(saved, shown), summarise(saved)
    assert reported.devices == read.devices
    assert reported.marks == read.marks
    assert path.stat().st_mode & 0o777 == 0o600


def test_gap_lines_of_a_recording_are_moments(tmp_path):
    path = tmp_path / "g.latmon.jsonl.gz"
    writer = Writer.create(path, ORIGIN)
    writer.append(frame(1))
    writer.gap("enospc", 3.0)
    writer.append(frame(5))
    writer.close()
    found = Recorded(open_several([path]))
    assert not list(found.moments)
    for _ in found.scan():
        pass
    assert [moment.kind for moment in found.moments] == ["gap"]
    assert [frame.gap for frame in found.frames(0, 10**18)] == ["", "enospc"]
    assert Gap


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("03:00:30", WALL + 30),
        ("3:01", WALL + 60),
        ("-5m", WALL + 100 - 300),
        ("-90s", WALL + 10),
        ("+10s", WALL + 110),
        ("2026-01-05 03:00", WALL),
        ("2026-01-05T03:00:07", WALL + 7),
        ("23:59:50", WALL - 3 * 3600 - 10),
    ],
)
def test_times_as_people_type_them(text, wall, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert wall_of(text, WALL + 100) == pytest.approx(wall)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "25:00",
        "13:4x",
        "-",
        "+soon",
        "2026-13-40 10:00",
        "1:2:3:4",
        "9" * 99,
        f"-{'9' * 20}d",
        "+9999999d",
    ],
)
def test_nonsense_is_named_with_examples(text):
    with pytest.raises(UsageError, match="is no time such as 13:04:12"):
        wall_of(text, WALL)


def test_a_file_of_another_host_is_refused(tmp_path):
    paths = []
    for host in ("a", "b"):
        paths.append(Path(tmp_path / host))
        writer = Writer.create(paths[-1], replace(ORIGIN, host=host))
        writer.append(frame(1))
        writer.close()
    with pytest.raises(UsageError, match="not from the same host"):
        open_several(paths)


def test_a_full_disk_keeps_nothing_of_what_was_to_be_saved(tmp_path, monkeypatch):
    path, done = tmp_path / "saved", []

    def limited(descriptor, data):
        done.append(len(data))
        if len(done) > 11:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    write = os.write
    monkeypatch.setattr(writing.os, "write", limited)
    with pytest.raises(UnavailableError, match=r"saved: nothing is written: No space left on device$"):
        save(kept().frames(0, 10**18), ORIGIN, path)
    assert len(done) > 11
    assert not path.exists()


def test_the_last_line_too_must_be_on_disk(tmp_path, monkeypatch):
    closing = writing.Writer._stop

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    def stop(writer, reason):
        monkeypatch.setattr(writing.os, "write", full)
        closing(writer, reason)

    monkeypatch.setattr(writing.Writer, "_stop", stop)
    with pytest.raises(UnavailableError, match="nothing is written: full"):
        save(kept().frames(0, 10**18), ORIGIN, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_disk_with_little_room_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(target, "short_of_space", lambda path: f"only 3 B are free beside {path}")
    with pytest.raises(UnavailableError, match="only 3 B are free"):
        save(kept().frames(0, 10**18), ORIGIN, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_a_redacted_save_has_no_names(tmp_path):
    save(kept().frames(0, 10**18), replace(ORIGIN, host="sekret"), tmp_path / "saved", redaction=Redaction())
    assert open_recording(tmp_path / "saved").origin.host == "redacted"


def test_a_stretch_is_whole_whatever_arrives_while_it_is_read():
    archive = Archive()
    for frame in FRAMES[:43]:
        archive.append(frame)
    read = archive.frames(0, FRAMES[42].mono_us)
    found = [next(read).seq]
    for frame in FRAMES[43:]:
        archive.append(frame)
    assert [*found, *(frame.seq for frame in read)] == [frame.seq for frame in FRAMES[:43]]


def test_the_slowest_of_a_window_is_read_from_its_line():
    read, write = Series("sda", "read", "total"), Series("sda", "write", "total")
    exact = {read: Histogram.record([300, 5000]), write: Histogram.record([70])}
    stage = {Series("sda", "read", "hba"): Histogram.record([90_000])}
    without = {write: Histogram.of({bucket_index(9000): 1, bucket_index(100): 4})}
    octaves = {write: Histogram(((7, 2), (9, 1)), None, None, 0)}
    for histograms, us in (
        (exact | stage, 5000),
        (stage, 0),
        ({}, 0),
        (exact | without, bucket_bounds(bucket_index(9000))[1]),
        (octaves, bucket_bounds(9, 0)[1]),
    ):
        line = to_bytes(encode_frame(frame(1, histograms=histograms)))
        assert slowest_us(line) == us
    assert slowest_us(b"no line of latmon") == 0
    assert slowest_us(b'"h":{"rows":[["a","b"]],"b":[255],"n":[1]}') == 0


def test_bursts_are_much_slower_than_the_median_and_begin_after_a_pause():
    slowest = [100] * 40
    for at in (5, 6, 9, 20):
        slowest[at] = 1000 + at
    slowest[30] = 800
    timeline_events = bursts([at * SECOND for at in range(40)], [WALL + at for at in range(40)], slowest)
    assert [(timeline_event.mono_us // SECOND, timeline_event.kind) for timeline_event in timeline_events] == [
        (5, "burst"),
        (20, "burst"),
    ]
    assert timeline_events[0].text == "outliers of up to 1.01 ms"
    assert bursts([], [], []) == []
    assert bursts([1], [1.0], [0]) == []


def test_bursts_of_a_long_recording_are_those_of_a_short_one():
    """Their median is that of a part of the frames; without an I/O in that part it is that of all."""
    many = 40_000
    slowest = [100 + at % 7 for at in range(many)]
    slowest[30_001] = 5000
    ends, walls = [at * SECOND for at in range(many)], [WALL + at for at in range(many)]
    assert [burst.mono_us for burst in bursts(ends, walls, slowest)] == [30_001 * SECOND]
    rare = [0] * many
    rare[1] = rare[5] = 100
    rare[9] = 5000
    assert [burst.mono_us for burst in bursts(ends, walls, rare)] == [9 * SECOND]


def test_bursts_are_looked_for_once_for_the_same_frames():
    stamps = Stamps()
    for at in range(30):
        stamps.add(FRAMES[at], 9000 if at == 20 else 100)
    timeline_events = stamps.bursts()
    assert [timeline_event.mono_us for timeline_event in timeline_events] == [FRAMES[20].mono_us]
    assert stamps.bursts() is timeline_events
    stamps.add(FRAMES[30], 9000)
    assert len(stamps.bursts()) == 2
    stamps.forget(25)
    assert [burst.mono_us for burst in stamps.bursts()] == [FRAMES[30].mono_us]
