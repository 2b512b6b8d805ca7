"""Parts of one capture, read as the one recording that they are."""

import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import DISK, ORIGIN, frame

from latmon.cli.check import repair
from latmon.model.frame import Frame
from latmon.model.measurements import LATENCIES
from latmon.recording.codec import End, Gap
from latmon.recording.parts import CapturePart, as_part, open_parts, part_of, part_path
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.recording.writer import Writer
from latmon.report.totals import Totals
from latmon.support.errors import RecordingError
from latmon_backends.replay import open_several


def part(directory, number, seqs, *, capture="c0ffee", end="", close=True):
    """A part with these windows."""
    path = directory / f"p{number}{capture}"
    begin = frame(seqs[0])
    origin = replace(ORIGIN, start_mono_us=begin.mono_us - begin.dt_us)
    writer = Writer.create(path, as_part(origin, CapturePart(number, capture, "p1")))
    for i, seq in enumerate(seqs):
        writer.append(frame(seq, devices=(DISK,) if i == 0 else ()))
    if close:
        writer.close(end or f"continued in p{number + 1}")
    else:  # as a killed one's: its lock is gone
        held = writer.hold()
        fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)
    return path


@pytest.fixture
def three(tmp_path):
    return [
        part(tmp_path, 1, (0, 1, 2)),
        part(tmp_path, 2, (3, 4)),
        part(tmp_path, 3, (5, 6, 7), end="closed"),
    ]


def seqs(items):
    return [frame.seq for frame in items if isinstance(frame, Frame)]


def test_parts_are_one_recording_whatever_their_order(three):
    parts = open_parts([three[2], three[0], three[1]])
    items = list(parts)
    assert seqs(items) == list(range(8))
    assert [frame for frame in items if not isinstance(frame, Frame)] == [End("closed", 8)]
    assert parts.damage == []
    assert parts.path == three[0]
    assert parts.origin.start_mono_us == ORIGIN.start_mono_us


def test_one_file_is_its_own_recording(three):
    assert open_parts(three[:1]).path == three[0]


def test_a_missing_part_is_a_gap_and_is_named(three):
    parts = open_parts([three[0], three[2]])
    items = list(parts)
    assert seqs(items) == [0, 1, 2, 5, 6, 7]
    assert items[3] == Gap("part-missing", 2.0, frame(2).mono_us, frame(2).wall)
    assert parts.damage == [f"1 part is missing before {three[2].name}"]


def test_what_was_unlinked_before_the_first_part_is_no_gap(three):
    parts = open_parts(three[1:])
    assert seqs(parts) == [3, 4, 5, 6, 7]
    assert parts.damage == []


def test_a_seek_leaves_parts_alone_that_end_before(three):
    three[0].write_bytes(three[0].read_bytes()[:-30])
    parts = open_parts(three)
    assert seqs(parts.since(frame(4).mono_us)) == [4, 5, 6, 7]
    assert parts.damage == []


def test_a_span_reads_no_part_beyond_it(three):
    three[2].write_bytes(three[2].read_bytes()[:-30])
    parts = open_parts(three)
    assert seqs(parts.between(frame(1).mono_us, frame(3).mono_us)) == [1, 2, 3]
    assert parts.damage == []
    assert parts.span() == (ORIGIN.start_mono_us, frame(7).mono_us)


def test_summed_it_comes_to_the_same(tmp_path):
    def long(number, begin, end):
        return part(tmp_path, number, range(begin, end), end=None if end < 250 else "closed")

    parts = open_parts([long(1, 0, 130), long(2, 130, 250)])
    totals, summed = Totals(1_000_000), Totals(1_000_000)
    for current_part in parts:
        totals.add(current_part)
    items = list(parts.summed())
    for current_part in items:
        summed.add(current_part)
    assert len(items) < 200
    assert (summed.windows, summed[LATENCIES], summed.gaps) == (totals.windows, totals[LATENCIES], totals.gaps)
    assert items[-1] == End("closed", 250)
    assert parts.damage == []


def test_damage_names_its_part_and_a_missing_end_is_reported_as_ever(tmp_path):
    paths = [part(tmp_path, 1, (0, 1)), part(tmp_path, 2, (2, 3), close=False)]
    paths[0].write_bytes(paths[0].read_bytes()[:-5])
    parts = open_parts(paths)
    assert seqs(parts) == [0, 1, 2, 3]
    assert all(one.startswith(paths[0].name) for one in parts.damage[:-1])
    assert parts.damage[-1] == UNCLOSED


def test_a_window_that_two_parts_have_is_taken_once(tmp_path):
    parts = open_parts([part(tmp_path, 1, (0, 1)), part(tmp_path, 2, (1, 2))])
    assert seqs(parts) == [0, 1, 2]
    assert "goes back in time" in parts.damage[0]


def test_parts_of_different_captures_are_refused(tmp_path):
    given_part, other = part(tmp_path, 1, (0,)), part(tmp_path, 2, (1,), capture="decaf")
    with pytest.raises(RecordingError, match=f"{other} is a part of another capture than {given_part}"):
        open_parts([given_part, other])


def test_the_same_part_twice_is_refused(three):
    with pytest.raises(RecordingError, match="are both part 1 of the capture"):
        open_parts([three[0], three[0]])


def test_a_recording_that_is_no_part_is_refused_among_others(three, tmp_path):
    Writer.create(tmp_path / "alone", ORIGIN).close()
    with pytest.raises(RecordingError, match="alone is no part of a capture"):
        open_parts([three[0], tmp_path / "alone"])


@pytest.mark.parametrize(
    "reported", [7, {}, {"number": 0, "capture": "x"}, {"number": 1, "capture": ""}, {"number": "1"}]
)
def test_nonsense_is_no_part(reported):
    assert part_of(replace(ORIGIN, extra={"part": reported})) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x.latmon.jsonl.gz", "x.part0002.latmon.jsonl.gz"),
        ("x.gz", "x.part0002.gz"),
        ("x", "x.part0002"),
        (".gz", ".gz.part0002"),
    ],
)
def test_names_sort_as_they_were_written(first, second):
    named = part_path(Path("/d") / first, 2)
    assert named == Path("/d") / second
    tenth = part_path(Path("/d") / first, 10)
    assert sorted([str(tenth), str(named), f"/d/{first}"]) == [f"/d/{first}", str(named), str(tenth)]


def flipped(path):
    """Without its header: one bit of that is another one."""
    reported = bytearray(path.read_bytes())
    reported[60] ^= 4
    path.write_bytes(reported)
    assert open_recording(path).headless
    return path


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_part_whose_header_is_lost_is_known_by_its_stamps(three, which):
    flipped(three[which])
    parts = open_parts([three[2], three[0], three[1]])
    items = list(parts)
    assert seqs(items) == list(range(8))
    assert not [gap for gap in items if isinstance(gap, Gap)]
    assert [part.path for part in parts.parts] == three
    assert parts.damage[0].startswith(f"{three[which].name}: its header can't be read")
    assert (parts.origin.host, parts.origin.start_mono_us) == (ORIGIN.host, ORIGIN.start_mono_us)
    assert seqs(parts.since(frame(4).mono_us)) == [4, 5, 6, 7]
    assert seqs(parts.between(frame(1).mono_us, frame(3).mono_us)) == [1, 2, 3]
    assert seqs(open_several(three).since(0)) == list(range(8))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_repaired_copy_of_such_a_part_has_its_place_too(three, which, tmp_path):
    repair(open_recording(flipped(three[which])), tmp_path / "copy")
    three[which] = tmp_path / "copy"
    assert seqs(open_parts(three)) == list(range(8))


def test_parts_that_lost_their_headers_and_others_that_are_not_there(tmp_path):
    paths = [part(tmp_path, number, (2 * number, 2 * number + 1)) for number in range(1, 8)]
    there = [paths[0], flipped(paths[1]), flipped(paths[3]), paths[4], flipped(paths[6])]
    parts = open_parts(there)
    assert seqs(parts) == [2, 3, 4, 5, 8, 9, 10, 11, 14, 15]
    assert [one for one in parts.damage if "missing" in one] == [f"1 part is missing before {paths[4].name}"]


def test_the_first_part_without_a_header_follows_none(tmp_path):
    paths = [part(tmp_path, number, (2 * number, 2 * number + 1)) for number in (3, 4)]
    parts = open_parts([flipped(paths[0]), paths[1]])
    assert seqs(parts) == [6, 7, 8, 9]
    assert not [one for one in parts.damage if "missing" in one]


def test_without_any_header_no_capture_is_known(three):
    with pytest.raises(RecordingError, match="is no part of a capture: read it by itself"):
        open_parts([flipped(one) for one in three])
