"""Times as they are typed where the clock is put forward and back, and where it was set by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from latmon.recording.archive import Stamps
from latmon.support.units import wall_of

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.fixture
def zone(monkeypatch):
    def put(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("here", "text", "found"),
    [
        ("2026-03-29T06:00", "23:30", "2026-03-28T22:30"),  # put forward at 01:00 UTC
        ("2026-03-29T06:00", "8:30", "2026-03-29T06:30"),
        ("2026-03-28T23:00", "6:00", "2026-03-29T04:00"),
        ("2026-03-29T06:00", "2026-03-28 23:30", "2026-03-28T22:30"),
        ("2026-10-25T06:00", "23:30", "2026-10-24T21:30"),  # put back at 01:00 UTC
        ("2026-10-25T00:10", "2:30", "2026-10-25T00:30"),
        ("2026-10-25T01:20", "2:30", "2026-10-25T01:30"),
        ("2026-10-25T01:40", "2026-10-25 02:30", "2026-10-25T01:30"),
        ("2026-10-25T00:10", "2026-10-25 02:30", "2026-10-25T00:30"),
    ],
)
def test_an_hour_that_is_skipped_or_comes_twice(zone, here, text, found):
    zone(BERLIN)
    assert wall_of(text, utc(here)) == utc(found)


def test_where_the_clock_is_never_changed(zone):
    zone("IST-5:30")
    assert wall_of("0:10", utc("2026-03-29T18:20")) == utc("2026-03-29T18:40")


def test_a_fraction_of_a_second_is_kept(zone):
    zone(BERLIN)
    assert wall_of("13:04:12.25", utc("2026-01-05T12:00")) == utc("2026-01-05T12:04:12") + 0.25


def stamps(*periods):
    """A frame a second; each stretch is what the clock shows."""
    walls = [float(one) for period in periods for one in period]
    return Stamps([1_000_000 * at for at in range(len(walls))], walls)


def test_a_time_that_a_clock_showed_twice_is_the_one_beside_the_user():
    given_stamps = stamps(range(1000, 1100), range(1040, 1200))  # set back by a minute
    assert given_stamps.at_wall(1060, 10_000_000).mono_us == 60_000_000
    assert given_stamps.at_wall(1060, 150_000_000).mono_us == 120_000_000
    assert given_stamps.at_wall(1150, 0).mono_us == 210_000_000
    assert given_stamps.at_wall(1010.4, 250_000_000).mono_us == 10_000_000


def test_a_time_that_is_in_a_gap_or_beyond_is_the_closest():
    given_stamps = stamps(range(1000, 1010), range(1100, 1110))
    assert given_stamps.at_wall(1080).wall == 1100
    assert given_stamps.at_wall(1020).wall == 1009
    assert given_stamps.at_wall(0).wall == 1000
    assert given_stamps.at_wall(9999).wall == 1109
    assert stamps([5]).at_wall(7).wall == 5
