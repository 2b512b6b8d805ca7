"""Seeking in a recording: what is read is what lies there, and hardly anything else is."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from recorded import ORIGIN, frame

from latmon.model.frame import Frame
from latmon.recording import reader
from latmon.recording.codec import End, Gap
from latmon.recording.members import Places
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

COUNT = 40


@pytest.fixture
def path(tmp_path):
    return tmp_path / "r"


@pytest.fixture
def writer(path):
    writer = Writer.create(path, ORIGIN)
    for seq in range(COUNT):
        if seq == 20:
            writer.gap("suspended", 3.0)
        writer.append(frame(seq))
    return writer


def stamps(items):
    return [item.mono_us for item in items if isinstance(item, Frame)]


def since(recording, stamp):
    """The member before a place that can't be read is read as well."""
    return [one for one in stamps(recording.since(stamp)) if one >= stamp]


def test_windows_of_any_span(writer, path):
    writer.close()
    recording = open_recording(path)
    all_stamps = stamps(recording)
    for begin in range(0, COUNT, 7):
        for end in range(begin, COUNT, 5):
            assert stamps(recording.between(all_stamps[begin], all_stamps[end])) == all_stamps[begin : end + 1]
            assert stamps(recording.between(all_stamps[begin] - 1, all_stamps[end] + 1)) == all_stamps[begin : end + 1]
        assert stamps(recording.since(all_stamps[begin])) == all_stamps[begin:]
    assert stamps(recording.between(0, all_stamps[0] - 1)) == []
    assert stamps(recording.between(all_stamps[-1] + 1, all_stamps[-1] + 2)) == []
    assert any(isinstance(item, Gap) for item in recording.between(all_stamps[19], all_stamps[20]))
    assert not any(isinstance(item, End) for item in recording.between(all_stamps[3], all_stamps[9]))
    assert recording.damage == []


def test_a_gap_stays_with_its_window_where_many_share_a_member(path):
    writer = Writer.create(path, ORIGIN)
    short = [replace(frame(0), seq=seq, mono_us=frame(0).mono_us + seq * 100_000, dt_us=100_000) for seq in range(30)]
    for current_frame in short:
        if current_frame.seq == 22:
            writer.gap("disk-stalled", 1.0)
        writer.append(current_frame)
    writer.close()
    recording = open_recording(path)
    for begin, gaps in ((21, 1), (22, 1), (23, 0), (26, 0)):
        for read in (recording.between, recording.summed):
            found = list(read(short[begin].mono_us, short[28].mono_us))
            assert sum(isinstance(one, Gap) for one in found) == gaps
            assert stamps(found) == [frame.mono_us for frame in short[begin:29]]


def test_a_span_is_where_it_begins_and_ends(writer, path):
    recording = open_recording(path)
    assert recording.span() == (ORIGIN.start_mono_us, frame(COUNT - 1).mono_us)
    for seq in range(COUNT, COUNT + 5):
        writer.append(frame(seq))
    assert recording.span() == (ORIGIN.start_mono_us, frame(COUNT + 4).mono_us)
    writer.close()
    assert recording.span() == (ORIGIN.start_mono_us, frame(COUNT + 4).mono_us)


def test_a_file_that_grows_is_read_to_where_it_is_by_now(writer, path):
    recording = open_recording(path)
    late = frame(COUNT + 2).mono_us
    assert since(recording, late) == []
    for seq in range(COUNT, COUNT + 5):
        writer.append(frame(seq))
    assert since(recording, late) == [frame(seq).mono_us for seq in range(COUNT + 2, COUNT + 5)]
    assert recording.damage == []  # it is being written
    writer.close()


def test_damage_is_no_end_of_a_seek(writer, path):
    writer.close()
    whole_bytes = path.read_bytes()
    starts = _starts(path)
    for hurt in (3, 17, 30):
        damaged = bytearray(whole_bytes)
        damaged[starts[hurt] : starts[hurt] + 60] = bytes(60)
        path.write_bytes(damaged)
        recording = open_recording(path)
        all_stamps = stamps(recording)
        assert len(all_stamps) == COUNT - 1
        for stamp in all_stamps[::4]:
            assert since(recording, stamp) == all_stamps[all_stamps.index(stamp) :]
        assert recording.span() == (ORIGIN.start_mono_us, all_stamps[-1])


def test_a_file_that_was_cut_is_read_from_its_begin(writer, path):
    writer.close()
    recording = open_recording(path)
    recording.span()
    os.truncate(path, _starts(path)[10] + 20)
    assert since(recording, frame(30).mono_us) == []
    assert since(recording, frame(5).mono_us) == [frame(seq).mono_us for seq in range(5, 9)]


def test_time_that_goes_back_is_read_in_its_order(writer, path, tmp_path):
    writer.close()
    other = Writer.create(tmp_path / "other", ORIGIN)
    other.append(frame(2))
    other.close()
    path.write_bytes(path.read_bytes() + (tmp_path / "other").read_bytes())
    recording = open_recording(path)
    assert stamps(recording.since(frame(38).mono_us)) == [frame(38).mono_us, frame(39).mono_us]


def test_a_clock_that_was_set_moves_no_window(path):
    """An hour forth, two back: each window is where the monotonic clock has it, in a seek as in a walk."""
    written = Writer.create(path, ORIGIN)
    walls = {20: 3600.0, 30: -3600.0}
    moved = 0.0
    for seq in range(COUNT):
        moved = walls.get(seq, moved)
        written.append(replace(frame(seq), wall=frame(seq).wall + moved))
    written.close()
    recording = open_recording(path)
    items = list(recording)
    frames = [frame for frame in items if isinstance(frame, Frame)]
    assert [frame.seq for frame in frames] == list(range(COUNT))
    assert [frame.mono_us for frame in frames] == sorted(frame.mono_us for frame in frames)
    assert [gap for gap in items if isinstance(gap, Gap)] == recording.damage == []
    assert since(recording, frames[25].mono_us) == stamps(frames[25:])


def test_a_second_seek_looks_at_a_few_heads_only(writer, path, monkeypatch):
    writer.close()
    recording = open_recording(path)
    recording.span()
    asked = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *reported: asked.append(reported) or real(*reported))
    assert len(stamps(recording.between(frame(20).mono_us, frame(21).mono_us))) == 2
    assert len(asked) < 8


def test_places_are_bounded(writer, path, monkeypatch):
    writer.close()
    monkeypatch.setattr("latmon.recording.members.MAX_PLACES", 5)
    recording = open_recording(path)
    assert stamps(recording.between(frame(30).mono_us, frame(31).mono_us)) == [frame(30).mono_us, frame(31).mono_us]
    places = Places()
    with reader.opened(path) as file:
        places.follow(file)
    assert len(places._begins) == 5


def _starts(path):
    places = Places()
    with reader.opened(path) as file:
        places.follow(file)
    return list(places._begins)
