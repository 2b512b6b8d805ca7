"""Roll-ups: a report by them is the report by windows to the digit, and where one can't be trusted windows are read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from derived import fields_of
from loads import DEVICES, MINUTES, ODD_FIELDS, PER_MINUTE, START_US, Load
from recorded import ORIGIN
from recorded import frame as recorded_frame

from latmon.aggregate.accumulator import Minute
from latmon.cli.check import WRONG, survey
from latmon.model.frame import Completed, Flow, Frame, Mark, Outstanding, Series
from latmon.model.histogram import Histogram
from latmon.model.inflight import InFlight, InFlightList
from latmon.model.measurements.sizes import SIZE_BITS
from latmon.model.redaction import Redaction
from latmon.recording import members, rollup
from latmon.recording.codec import End, Gap, encode_frame, to_bytes
from latmon.recording.reader import open_recording
from latmon.recording.rollup import MINUTE_US
from latmon.recording.writer import Writer
from latmon.report import reading, summary
from latmon.report.totals import Totals
from latmon.support.typed_json import to_json


def report(recording, items: Iterable[object]) -> str:
    totals = Totals(recording.origin.interval_us, devices={device.name: device for device in recording.devices})
    for item in items:
        totals.add(item)
    return json_of(recording, totals)


def json_of(recording, totals):
    """Return what is reported of totals, without the state of the file."""
    return json.dumps(to_json(replace(summary.report_of(recording, totals), live=False, damage=())))


def both(path, *, bounds: bool = False) -> tuple[int, int]:
    """How many roll-ups were used and windows read; the reports are the same, but for lower bounds of ages."""
    recording = open_recording(path)
    items = list(recording.summed())
    if bounds:
        by_windows, by_roll_ups = oldest(report(recording, recording)), oldest(report(recording, items))
        assert by_windows.keys() == by_roll_ups.keys()
        assert all(us - MINUTE_US <= by_roll_ups[name] <= us for name, us in by_windows.items())
        assert without_bounds(report(recording, recording)) == without_bounds(report(recording, items))
    else:
        assert report(recording, recording) == report(recording, items)
    kinds = [type(item) for item in items]
    return kinds.count(Minute), kinds.count(Frame)


def oldest(text: str) -> dict[str, int]:
    """Device -> its oldest I/O in flight at the end."""
    devices = json.loads(text)["devices"]
    return {name: device["in_flight_oldest_us"] for name, device in devices.items() if device.get("in_flight")}


def without_bounds(text: str) -> dict[str, object]:
    """A report without ages, of some of which only a lower bound is known."""
    document = json.loads(text)
    document["health"].pop("in_flight_older", None)
    for device in document["devices"].values():
        for key in ("in_flight", "in_flight_oldest_us", "in_flight_longest"):
            device.pop(key, None)
    return document


def written(path, frames, between=None, **how):
    writer = Writer.create(path, ORIGIN, devices=DEVICES, **how)
    for frame in frames:
        if between is not None:
            between(writer, frame)
        writer.append(frame)
    writer.close()
    return path


def test_each_field_of_a_frame_is_generated():
    """A field with a default has another value in a frame of the load, or it makes a minute odd."""
    frames = list(Load(0).frames(20))
    plain = Frame(0, 0.0, 0, 1)
    unvaried = {
        name for name in fields_of(Frame) if all(getattr(frame, name) == getattr(plain, name) for frame in frames)
    }
    assert unvaried == ODD_FIELDS


PAIRS = [(True, 0), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((True, 1), (False, 0), (False, 1)))]


@pytest.mark.parametrize(("on_demand", "seed"), PAIRS)
def test_a_report_by_roll_ups_is_the_report_by_windows(tmp_path, seed, on_demand):
    used, windows = both(written(tmp_path / "r", Load(seed, on_demand=on_demand).frames()))
    assert used == MINUTES - 2
    assert windows <= 2 * PER_MINUTE


@pytest.mark.parametrize(("whole", "seed"), PAIRS)
def test_a_report_by_the_blocks_of_rules_is_the_report_by_windows(tmp_path, seed, whole):
    recording = open_recording(written(tmp_path / "r", Load(seed).frames()))
    totals = reading.added_up(recording, engine=reading.rule_engine(recording), whole=whole)
    assert json_of(recording, totals) == report(recording, recording)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 60))
def test_so_it_is_with_many_more(tmp_path, seed):
    rnd = random.Random(seed)

    def odd(frame: Frame) -> Frame:
        if rnd.random() > 0.01:
            return frame
        return rnd.choice(
            (
                replace(frame, gap="probe-restart"),
                replace(frame, late=True),
                replace(frame, devices=(DEVICES[0],)),
                replace(frame, removed=("sdb",)),
                replace(frame, kernel={}, outstanding={"sda": Outstanding(9, 9)}),
                replace(frame, health=replace(frame.health, notice="a word")),
                replace(frame, histograms={Series("sda", "read", "total"): Histogram.of({1: 2}, None, None, 2)}),
                replace(frame, in_flight=None),
            )
        )

    dt_us = rnd.choice((100_000, 500_000, 1_000_000, 10_000_000))
    frames = Load(seed, on_demand=rnd.random() < 0.5).frames(min(1200, 60_000_000 * MINUTES // dt_us), dt_us, odd)
    both(written(tmp_path / "r", frames, redaction=Redaction() if rnd.random() < 0.3 else None))


ODD = {
    "without counters": lambda one: replace(one, seen={Flow("sda", "read"): Completed(100, 51_200)}, kernel={}),
    "gap": lambda one: replace(one, gap="probe-restart"),
    "late": lambda one: replace(one, late=True),
    "notice": lambda one: replace(one, health=replace(one.health, notice="a word")),
    "device": lambda one: replace(one, devices=(DEVICES[1],)),
    "removed": lambda one: replace(one, removed=("sdb",)),
    "probe": lambda one: replace(one, in_flight=None),
    "begun": lambda one: replace(one, in_flight=InFlightList(since_us=one.mono_us - 5)),
    "waits": lambda one: replace(
        one, in_flight=InFlightList((InFlight("sda", "read", one.mono_us - 900_000),), {1: 0}, START_US - 10)
    ),
    "mixed": lambda one: replace(
        one,
        histograms={
            Series("sda", "read", "total"): Histogram.of({90: 2}, 3, None),
            Series("sdb", "read", "total"): Histogram.of({90: 2}, 3, 10**6),
        },
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_minute_that_is_not_plain_is_read_by_its_windows(tmp_path, kind):
    frames = Load(5, on_demand=kind in ("probe", "begun")).frames(
        40, odd=lambda one: ODD[kind](one) if one.seq in (14, 15) else one
    )
    used, windows = both(written(tmp_path / "r", frames))
    assert used == 1
    assert windows >= 30


def test_a_minute_with_many_short_holes_is_read_by_its_windows(tmp_path):
    """Rates by its roll-up were 30 % lower: 59.7 s of 42 s that were measured."""
    short = Load(5, on_demand=False).frames(40, odd=lambda one: replace(one, dt_us=one.dt_us * 7 // 10))
    used, windows = both(written(tmp_path / "r", short))
    assert (used, windows) == (0, 40)


def test_a_minute_with_tables_of_two_scales_has_a_roll_up(tmp_path):
    """Sizes always have half of the buckets of other tables, and one row may have both scales in a minute."""

    def coarse(frame: Frame) -> Frame:
        if frame.seq not in (14, 15):
            return frame
        return replace(frame, histograms={Series("sda", "read", "total"): Histogram.of({1: 2}, 3, 3, SIZE_BITS)})

    used, _ = both(written(tmp_path / "r", Load(5, on_demand=False).frames(40, odd=coarse)))
    assert used == 2


def hangs(seed: int, minutes: int, *, probe: str):
    """Windows in which I/Os of some devices wait for up to three minutes; a probe follows all, some or no devices."""
    rnd = random.Random(seed)
    names = [device.name for device in DEVICES]
    flight = dict.fromkeys(names, 0)
    began: dict[str, list[int]] = {name: [] for name in names}
    until = dict.fromkeys(names, 0)
    followed = {"all": (), "some": ("sdb",), "none": (), "late": ("sdb",)}[probe]
    since_us = START_US - 10 if probe != "late" else START_US + 90_000_000

    def odd(frame: Frame) -> Frame:
        kernel = {}
        for name in names:
            if frame.seq >= until[name]:  # a time in which it works is over, or one in which it hangs
                until[name] = frame.seq + rnd.choice((1, 3, 3 * PER_MINUTE))
                kernel[Flow(name, "read")] = Completed(5, 5)
                flight[name] = rnd.choice((0, 0, 2, 7))
                began[name] = [frame.mono_us - rnd.randrange(5_000_000) for _ in range(flight[name])]
            else:
                kernel[Flow(name, "read")] = Completed(0, 0)
                more = rnd.choice((0, 0, 0, 1))
                flight[name] += more
                began[name] += [frame.mono_us - 5_000] * more
        known = sorted(
            (
                InFlight(name, "read", at)
                for name in followed or names
                for at in began[name]
                if at < frame.mono_us - 500_000
            ),
            key=lambda in_flight: in_flight.began_us,
        )
        reported = InFlightList(
            tuple(in_flight for in_flight in known if in_flight.began_us >= since_us),
            {1: len(known)},
            since_us,
            0,
            followed,
        )
        return replace(
            frame,
            kernel=kernel,
            outstanding={name: Outstanding(n, 0) for name, n in flight.items() if rnd.random() < 0.99 or n},
            in_flight=None if probe == "none" or frame.mono_us < since_us else reported,
        )

    return list(Load(seed, on_demand=False).frames(PER_MINUTE * minutes, odd=odd))


def waited(path) -> bool:
    text = json.loads(report(recording := open_recording(path), recording))
    return any("in_flight_longest" in reported for reported in text["devices"].values())


@pytest.mark.slow
@pytest.mark.parametrize("probe", ["all", "some", "none", "late"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 40))])
def test_minutes_in_which_something_waits_have_a_roll_up(tmp_path, seed, probe):
    path = written(tmp_path / "r", frames := hangs(seed, 8, probe=probe))
    used, _ = both(path, bounds=probe != "all")
    assert used >= (5 if probe == "late" else 6)
    assert waited(path)
    recording = open_recording(path)
    for begin in (7, 25, 41):  # a reader from there on doesn't know since when they wait
        span = frames[begin].mono_us, frames[-1].mono_us
        by_roll_ups, by_windows = (report(recording, of(*span)) for of in (recording.summed, recording.between))
        assert without_bounds(by_roll_ups) == without_bounds(by_windows)
        assert probe != "all" or by_roll_ups == by_windows


def test_a_hole_and_a_mark_and_a_gap_are_read_by_their_windows(tmp_path):
    def between(writer, frame):
        if frame.seq == 14:
            writer.gap("suspended", 2.0)

    whole = [frame for frame in Load(6, on_demand=False).frames(50) if frame.seq not in (36, 37)]
    used, _ = both(written(tmp_path / "r", whole, between))
    assert used == 1


def kernel_line(frame, text="I/O error, dev sda, sector 8"):
    return Mark(text, frame.mono_us - 5, frame.wall, device="sda")


@pytest.mark.parametrize("is_last_silent", [False, True])
def test_a_disk_that_logs_errors_for_hours_has_roll_ups_with_their_lines(tmp_path, is_last_silent):
    """A line may come in each second, so the next minute begins with a line, too."""

    def between(writer, frame):
        if not (is_last_silent and frame.seq % 10 == 0):
            writer.mark(kernel_line(frame, f"I/O error, dev sda, sector {frame.seq}"))

    path = written(tmp_path / "r", Load(6, on_demand=False).frames(), between)
    used, _ = both(path)
    assert used == MINUTES - 2
    recording = open_recording(path)
    marks = [item for item in recording if isinstance(item, Mark)]
    assert [item for item in recording.summed() if isinstance(item, Mark)] == marks


def test_a_note_of_the_user_leaves_its_minute_without_a_roll_up(tmp_path):
    def between(writer, frame):
        if frame.seq == 14:
            writer.mark(replace(kernel_line(frame), device=""))

    used, _ = both(written(tmp_path / "r", Load(6, on_demand=False).frames(50), between))
    assert used == 2


def test_a_minute_with_more_lines_than_a_roll_up_holds_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(rollup, "MAX_MARKS", 3)

    def between(writer, frame):
        for _ in range(4 if frame.seq == 14 else 0):
            writer.mark(kernel_line(frame))

    used, _ = both(written(tmp_path / "r", Load(6, on_demand=False).frames(50), between))
    assert used == 2


def test_check_compares_the_lines_of_a_roll_up_too(tmp_path):
    def between(writer, frame):
        writer.mark(kernel_line(frame))

    path = written(tmp_path / "r", [recorded_frame(n) for n in range(190)], between)
    assert survey(open_recording(path)).damages == ()
    forge(path, lambda line: line.update(marks=line["marks"][1:]))
    (damage,) = survey(open_recording(path)).damages
    assert damage.what == WRONG


def test_a_reader_that_knows_no_roll_ups_reads_every_window(tmp_path):
    path = written(tmp_path / "r", Load(1).frames(34))
    recording = open_recording(path)
    items = list(recording)
    assert [item.seq for item in items if isinstance(item, Frame)] == list(range(34))
    assert items[-1] == End("closed", 34)
    assert recording.damage == []


def _members(path):
    data, at, actual_members = path.read_bytes(), 0, []
    while (head := members.head_of(data[at : at + 64])) is not None:
        actual_members.append((at, head))
        at += head.length
    return actual_members


def test_the_last_minute_has_a_roll_up_where_it_is_over(tmp_path):
    frames = [Frame(i, 1e9 + i, i * 1_000_000, 1_000_000) for i in range(30, 241)]
    whole, part = written(tmp_path / "whole", frames), written(tmp_path / "part", frames[:-1])
    counted = [sum(bool(head.stands_for) for _, head in _members(path)) for path in (whole, part)]
    assert counted == [3, 2]
    assert [item.mono_us for item in open_recording(whole) if isinstance(item, Frame)] == [
        frame.mono_us for frame in frames
    ]


def test_a_roll_up_says_how_many_bytes_it_stands_for(tmp_path):
    actual_members = _members(written(tmp_path / "r", Load(1).frames(34)))
    sums = [(at, head) for at, head in actual_members if head.stands_for]
    assert len(sums) == 2
    for at, head in sums:
        inside = [member_head for begin, member_head in actual_members if at - head.stands_for <= begin < at]
        assert sum(member_head.length for member_head in inside) == head.stands_for
        assert (inside[0].first_us, inside[-1].last_us) == (head.first_us, head.last_us)


@pytest.mark.parametrize("what", ["roll-up", "window", "head"])
def test_damage_is_read_around_and_nothing_comes_twice(tmp_path, what):
    path = written(tmp_path / "r", Load(2, on_demand=False).frames(40))
    whole_recording = open_recording(path)
    text = report(whole_recording, whole_recording)
    actual_members = _members(path)
    at, head = next((at, head) for at, head in actual_members if head.stands_for)
    data = bytearray(path.read_bytes())
    window = next(begin for begin, _ in actual_members if begin > at - head.stands_for // 2)
    place = {"roll-up": at + 100, "window": window + 100, "head": window}[what]
    data[place : place + 20] = bytes(20)
    path.write_bytes(data)
    recording = open_recording(path)
    items = list(recording.summed())
    if what == "head":  # its windows are read, and one is missing
        assert sum(isinstance(one, Minute) for one in items) == 1
        assert report(recording, items) == report(recording, recording)
    else:  # the sum has the window that can't be read; the windows have the values of the sum
        assert report(recording, items) == text
        assert (len(recording.damage) == 1) is (what == "roll-up")


def test_a_roll_up_of_other_windows_is_not_believed(tmp_path):
    path = written(tmp_path / "r", Load(2, on_demand=False).frames(40))
    actual_members = _members(path)
    at, head = next((at, head) for at, head in actual_members if head.stands_for)
    data = path.read_bytes()
    text = members.unpack(data[at : at + head.length])
    for line, stands_for, first_us in (
        (text, head.stands_for - 1, head.first_us),
        (text, head.stands_for, head.first_us + 1),
        (text, 2**60, head.first_us),
        (text.replace(b'"minute"', b'"other"'), head.stands_for, head.first_us),
        (text.replace(b'"windows":', b'"windows":-'), head.stands_for, head.first_us),
        (text.replace(str(head.last_us).encode(), b"5"), head.stands_for, head.first_us),
        (b"[" * 1000, head.stands_for, head.first_us),
        (text * 2, head.stands_for, head.first_us),
    ):
        wrong = members.pack(line, first_us, head.last_us, stands_for)
        path.write_bytes(data[:at] + wrong + data[at + head.length :])
        used, _ = both(path)
        assert used == 1


LIES = {
    "another device": lambda line: line["h"]["rows"][0].__setitem__(0, "sdz"),
    "longer": lambda line: line.update(dt=line["mono"] - 1),
    "shorter": lambda line: line.update(dt=line["sums"]["longest"]),
    "a long first": lambda line: line["sums"].update(first=line["dt"]),
}


def forge(path, lie) -> None:
    """Change the first roll-up."""
    at, head = next((at, head) for at, head in _members(path) if head.stands_for)
    data = path.read_bytes()
    line = json.loads(members.unpack(data[at : at + head.length]))
    lie(line)
    wrong = members.pack(to_bytes(line), head.first_us, head.last_us, head.stands_for)
    path.write_bytes(data[:at] + wrong + data[at + head.length :])


@pytest.mark.parametrize("lie", LIES)
def test_a_roll_up_that_contradicts_itself_or_its_members_is_not_believed(tmp_path, lie):
    path = written(tmp_path / "r", Load(2, on_demand=False).frames(40))
    believed, _ = both(path)
    forge(path, LIES[lie])
    used, _ = both(path)
    assert used == believed - 1
    recording = open_recording(path)
    list(recording.summed())
    assert bool(recording.damage) is (lie != "another device")  # one may be new, and then its windows are read


def test_a_roll_up_whose_thresholds_lack_their_range_is_read_by_its_windows(tmp_path):
    path = written(tmp_path / "r", Load(2, on_demand=False).frames(40))
    believed, _ = both(path)
    forge(path, lambda line: line.update(thresholds={"sda": 10_000}))
    assert both(path)[0] == believed - 1
    recording = open_recording(path)
    list(recording.summed())
    assert recording.damage == []


def test_a_sum_ends_with_a_window_wherever_the_file_ends(tmp_path):
    path = written(tmp_path / "r", Load(3, on_demand=False).frames(34))
    data = path.read_bytes()
    at, head = [member for member in _members(path) if member[1].stands_for][-1]
    for end in (at + head.length, at + head.length + 30):
        path.write_bytes(data[:end])
        used, windows = both(path)
        assert used == 1
        assert windows >= 20


def test_any_span_is_summed(tmp_path):
    path = written(tmp_path / "r", Load(4, on_demand=False).frames(40))
    recording = open_recording(path)
    stamps = [frame.mono_us for frame in recording if isinstance(frame, Frame)]
    for begin, end in ((0, 39), (3, 33), (10, 20), (15, 15), (2, 12), (0, 21)):
        span = stamps[begin], stamps[end]
        items = list(recording.summed(*span))
        assert report(recording, items) == report(recording, recording.between(*span))
        assert isinstance(items[0], Frame)
        assert isinstance(items[-1], Frame | Gap | End)


def test_what_is_private_is_in_no_roll_up(tmp_path):
    path = written(tmp_path / "r", Load(1).frames(34), redaction=Redaction())
    sums = [(at, head) for at, head in _members(path) if head.stands_for]
    data = path.read_bytes()
    assert sums
    for at, head in sums:
        assert b'"db"' not in members.unpack(data[at : at + head.length])


def test_a_window_that_says_it_is_a_roll_up_is_read_as_a_window(tmp_path):
    path = written(tmp_path / "r", Load(2, on_demand=False).frames(5))
    frames = [frame for frame in open_recording(path) if isinstance(frame, Frame)]
    actual_members = _members(path)
    more = replace(frames[-1], mono_us=frames[-1].mono_us + 1_000_000)
    _, head = actual_members[3]
    hostile = members.pack(to_bytes(encode_frame(more)), head.first_us, head.last_us, head.length)
    path.write_bytes(path.read_bytes() + hostile)
    recording = open_recording(path)
    assert report(recording, recording.summed()) == report(recording, recording)


@pytest.mark.parametrize("times", [30, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["flip", "cut"])
def test_damage_anywhere_counts_no_window_twice(tmp_path, times, kind):
    """In roll-ups too: a sum has all of its windows, or it is left out."""
    whole_bytes = written(tmp_path / "whole", Load(7, on_demand=False).frames(3 * 4, 20_000_000)).read_bytes()
    path, rnd = tmp_path / "r", random.Random(times)
    starts = [at for at, _ in _members(tmp_path / "whole")]
    assert sum(1 for _, head in _members(tmp_path / "whole") if head.stands_for) == 2
    last = [begin for begin in starts if begin <= starts[-6]][-1]
    for number in range(times):
        data = bytearray(whole_bytes)
        if kind == "flip":
            data[rnd.randrange(starts[1], len(data))] ^= 1 << rnd.randrange(8)
        else:
            del data[last + number * (len(whole_bytes) - last) // times :]
        path.write_bytes(data)
        recording = open_recording(path)
        read = [frame.mono_us for frame in recording if isinstance(frame, Frame)]
        items = list(recording.summed())
        summed = sum(one.windows if isinstance(one, Minute) else isinstance(one, Frame) for one in items)
        assert len(read) <= summed <= 12
        assert [one.mono_us for one in items if isinstance(one, Frame | Minute)] == sorted(
            {one.mono_us for one in items if isinstance(one, Frame | Minute)}
        )
        report(recording, items)


@pytest.mark.parametrize("bit", range(10, 15))
def test_a_roll_up_that_lies_about_its_length_hides_nothing(tmp_path, bit):
    path = written(tmp_path / "r", Load(7, on_demand=False).frames(12, 20_000_000))
    at = [at for at, head in _members(path) if head.stands_for][-1]
    data = bytearray(path.read_bytes())
    data[at + 16 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    used, windows = both(path)
    assert used * 3 + windows == 12
