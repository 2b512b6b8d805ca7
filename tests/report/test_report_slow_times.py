"""Slow I/Os of a report by hour and day, and its worst minute."""

from dataclasses import replace

from recorded import DISK, frame

from latmon.model.frame import Device, Flow
from latmon.report.command import _slow
from latmon.report.summary import _slow_times
from latmon.report.totals import Totals
from latmon.support.units import rfc3339

DAY = 1_767_571_200.0
"""2026-01-05."""


def slow_frames(*rows):
    """Return frames of one minute each: hours since the begin of a day, and slow I/Os of a disk in it."""
    flow = Flow(DISK.name, "read")
    for seq, (hours, above) in enumerate(rows):
        wall = DAY + hours * 3600 + 60
        when = {"wall": wall, "mono_us": int((wall - DAY + 60) * 1e6), "dt_us": 60_000_000}
        yield replace(frame(seq), **when, above={flow: above}, thresholds_us={DISK.name: 2000})


def test_slow_ios_by_hour_and_day_and_the_worst_minute():
    totals = Totals(60_000_000, {DISK.name: DISK})
    for one in slow_frames((0, 1), (1, 2), (1.5, 5), (25, 4), (26, 0)):
        totals.add(one)
    slow = _slow_times(totals)["slow"]
    assert [one["count"] for one in slow["hours"]] == [1, 7, 4, 0]
    assert [one["count"] for one in slow["days"]] == [8, 4]
    assert (slow["above_us"], slow["worst_minute"]["count"]) == (2000, 5)
    assert slow["worst_minute"]["start"] == rfc3339(DAY + 5400)
    text = " ".join(" ".join(_slow({"slow": slow})).split())
    assert "I/Os of 2 ms or longer: most in the minute from 2026-01-05T01:30Z: 5" in text
    assert "by hour (UTC): 2026-01-05 00 1, 2026-01-05 01 7, 2026-01-06 01 4, 2026-01-06 02 0" in text
    assert "by day (UTC): 2026-01-05 8, 2026-01-06 4" in text


def test_of_many_hours_the_worst_are_listed():
    totals = Totals(60_000_000, {DISK.name: DISK})
    for one in slow_frames(*((hour, hour) for hour in range(40))):
        totals.add(one)
    text = " ".join(" ".join(_slow({"slow": _slow_times(totals)["slow"]})).split())
    assert "by hour (UTC), the worst: 2026-01-06 04 28, " in text
    assert text.count("2026-01-06 ") >= 12


def test_a_volume_is_not_counted_again_and_no_threshold_is_no_count():
    volume = Device("dm-0", 253, 0, kind="dm", members=(DISK.name,))
    totals = Totals(60_000_000, {DISK.name: DISK, volume.name: volume})
    (one,) = slow_frames((0, 3))
    totals.add(replace(one, above={**one.above, Flow("dm-0", "read"): 3}))
    assert _slow_times(totals)["slow"]["days"][0]["count"] == 3
    assert not _slow_times(Totals(60_000_000))
    (none,) = slow_frames((0, 0))
    totals = Totals(60_000_000)
    totals.add(none)
    assert _slow({"slow": _slow_times(totals)["slow"]}) == ["no I/O took 2 ms or longer"]
