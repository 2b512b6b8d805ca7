"""A recording is replayed as it was captured, and its damage is reported on the way."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import DISK, ORIGIN, frame

from latmon.model.frame import Device
from latmon.recording.writer import Writer
from latmon.support.errors import RecordingError, UsageError
from latmon_backends.demo.backend import DemoBackend
from latmon_backends.replay import ReplayBackend


def record(path, frames, *, origin=ORIGIN, close=True, devices=()):
    writer = Writer.create(path, origin, devices=devices)
    for current_frame in frames:
        writer.append(current_frame)
    writer.flush()
    if close:
        writer.close()
    else:  # killed: the lock goes with the process
        os.close(writer._descriptor)
    return path


async def play(*paths, speed=0.0):
    async with ReplayBackend(paths, speed) as backend:
        return backend.origin, [frame async for frame in backend.frames()]


@pytest.mark.slow
async def test_a_replayed_capture_is_the_capture(tmp_path):
    demo = DemoBackend(speed=0, limit=20)
    frames = [frame async for frame in demo.frames()]
    path = record(tmp_path / "r", frames, origin=demo.origin)
    assert await play(path) == (demo.origin, frames)


async def test_it_can_be_played_again(tmp_path):
    path = record(tmp_path / "r", [frame(0), frame(1)])
    async with ReplayBackend([path], 0) as backend:
        assert [frame async for frame in backend.frames()] == [frame async for frame in backend.frames()]


async def test_it_keeps_the_pace_it_was_asked_for(tmp_path):
    path = record(tmp_path / "r", [frame(i) for i in range(5)])
    start = time.monotonic()
    await play(path, speed=40.0)
    assert time.monotonic() - start >= 0.1


async def test_the_first_frame_comes_at_once(tmp_path):
    path = record(tmp_path / "r", [frame(0), frame(1)])
    async with ReplayBackend([path], 0.001) as backend, asyncio.timeout(30):  # the second comes after 1,000 s
        async for current_frame in backend.frames():
            assert current_frame.seq == 0
            break


async def test_a_gap_is_in_the_frame_behind_it(tmp_path):
    writer = Writer.create(tmp_path / "r", ORIGIN)
    writer.append(frame(0))
    writer.gap("disk-stalled", 3.0)
    writer.append(frame(5))
    writer.append(frame(6))
    writer.close()
    _, frames = await play(tmp_path / "r")
    assert [frame.gap for frame in frames] == ["", "disk-stalled", ""]


async def test_a_killed_recording_says_so_with_its_last_frame(tmp_path):
    path = record(tmp_path / "r", [frame(0), frame(1)], close=False)
    _, frames = await play(path)
    assert [frame.health.notice for frame in frames] == ["", "recording: ended without a closing line (killed?)"]


async def test_damage_is_reported_where_it_is(tmp_path):
    path = record(tmp_path / "r", [frame(i) for i in range(6)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(bytes(data))
    _, frames = await play(path)
    assert len(frames) == 5
    assert [("damaged" in frame.health.notice) for frame in frames].count(True) == 1


async def test_the_devices_of_the_header_are_in_the_first_frame(tmp_path):
    changed = replace(DISK, model="newer")
    path = record(tmp_path / "r", [frame(0, devices=(changed,)), frame(1)], devices=(DISK, Device("sdb", 8, 16)))
    _, frames = await play(path)
    assert [frame.devices for frame in frames] == [(changed, Device("sdb", 8, 16)), ()]


async def test_recordings_of_one_boot_are_played_through(tmp_path):
    first = record(tmp_path / "a", [frame(0), frame(1)])
    second = record(tmp_path / "b", [frame(1), frame(2)])
    _, frames = await play(first, second)
    assert [frame.seq for frame in frames] == [0, 1, 2]


async def test_recordings_of_two_hosts_are_refused(tmp_path):
    first = record(tmp_path / "a", [frame(0)])
    second = record(tmp_path / "b", [frame(1)], origin=replace(ORIGIN, host="other"))
    with pytest.raises(UsageError, match="same host"):
        await play(first, second)


async def test_what_is_no_recording_is_refused_when_it_is_opened(tmp_path):
    with pytest.raises(RecordingError):
        await play(tmp_path / "missing")


@pytest.mark.parametrize("speed", [-1, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(speed):
    with pytest.raises(UsageError):
        ReplayBackend([Path("r")], speed)


def test_nothing_to_replay_is_refused():
    with pytest.raises(UsageError):
        ReplayBackend([])


async def test_an_empty_recording_has_no_frames(tmp_path):
    assert await play(record(tmp_path / "r", [])) == (ORIGIN, [])
