"""A tenth of an hour of 24 devices: small, and fast to read; limits are generous, make bench measures the real ones."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from recorded import ORIGIN
from report_json import summarised

from latmon.aggregate.accumulator import Minute
from latmon.model.frame import Completed, Device, Flow, Frame, Outstanding, Series
from latmon.model.histogram import Histogram
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

SECONDS = 360
START_US = 10**9
MIDDLE_US = START_US + 180_000_000
DEVICES = tuple(Device(f"sd{chr(97 + i)}", 8, 16 * i) for i in range(24))


def _histogram(rnd):
    base = rnd.randrange(40, 70)
    counts = {base + i: max(1, int(400 * rnd.random() * 2 ** (-abs(i - 8) / 3))) for i in range(rnd.randint(15, 31))}
    return Histogram.of(counts, sum(counts.values()) * 300, 400_000)


@pytest.fixture(scope="module")
def hour(tmp_path_factory):
    rnd = random.Random(1)
    done = {Flow(device.name, "read"): Completed(4000, 2**24) for device in DEVICES}
    frames = [
        Frame(
            0,
            0.0,
            0,
            1_000_000,
            {
                Series(device.name, "read", stage): _histogram(rnd)
                for device in DEVICES
                for stage in ("total", "hba", "queue")
            },
            seen=done,
            kernel=done,
            outstanding={device.name: Outstanding(3, 1) for device in DEVICES},
        )
        for _ in range(6)
    ]
    path = tmp_path_factory.mktemp("hour") / "r"
    writer = Writer.create(path, replace(ORIGIN, start_mono_us=START_US), devices=DEVICES)
    for second in range(SECONDS):
        mono_us = START_US + (second + 1) * 1_000_000
        writer.append(replace(frames[second % 6], seq=second, wall=1.7e9 + second, mono_us=mono_us))
    writer.close()
    return path


def _cpu(what):
    began = time.process_time()
    found = what()
    return time.process_time() - began, found


def test_it_is_small(hour):
    assert hour.stat().st_size < 2_000_000


def test_its_report_reads_two_minutes_of_six(hour):
    items = list(open_recording(hour).summed())
    assert sum(isinstance(item, Minute) for item in items) >= 4
    assert sum(isinstance(item, Frame) for item in items) <= 120
    assert summarised(open_recording(hour))["duration_s"] == SECONDS


def test_a_seek_finds_one_window(hour):
    assert [item.mono_us for item in open_recording(hour).between(MIDDLE_US, MIDDLE_US)] == [MIDDLE_US]


@pytest.mark.slow  # times, which a busy host makes longer
def test_a_report_a_window_and_a_seek_take_little_cpu(hour):
    recording = open_recording(hour)
    took, _ = _cpu(lambda: summarised(recording))
    assert took < 2
    took, windows = _cpu(lambda: sum(isinstance(item, Frame) for item in recording))
    assert took / windows < 0.006
    took, _ = _cpu(lambda: list(recording.between(MIDDLE_US, MIDDLE_US)))
    assert took < 0.1
