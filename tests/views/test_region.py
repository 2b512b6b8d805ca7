"""A region of a heat map: it holds what is in its time and rows, stays on its data, and is framed where it is drawn."""

import pytest
from frames import SECOND, START_MONO, frame

from latmon.model.frame import OPS, Series
from latmon.model.histogram import Histogram, bucket_index
from latmon.support.units import clock
from latmon.views.axes import LatencyScale, Timeline
from latmon.views.heatmap import LABEL, RAMP, MapStyle, labelled
from latmon.views.lines import plain
from latmon.views.selection import Region, at_newest, clamped, framed, headline, ios, times, words

SCALE = LatencyScale(0, 16, 10)
STYLE = MapStyle(SCALE, 4096, 1, RAMP)
READ = Series("sdc", "read", "total")


def timeline(seconds, slots=10, **how):
    frames = [frame(i, {READ: Histogram.record([100, 100, 20_000])}) for i in range(seconds)]
    return Timeline(SECOND, slots, OPS, frames, **how)


def rows(first, last, low, high, scale=SCALE):
    """A region of rows."""
    return Region(
        first,
        last,
        scale.low + low * scale.step,
        scale.low + (high + 1) * scale.step - 1,
        open_below=low == 0,
        open_above=high == scale.rows - 1,
    )


def test_it_begins_at_the_slowest_of_the_newest():
    region = at_newest(timeline(5), "sdc", SCALE)
    assert region == rows(4, 4, SCALE.row_of(20_000), SCALE.row_of(20_000))
    assert at_newest(timeline(5), "sdd", SCALE) is None
    assert at_newest(timeline(0), "sdc", SCALE) is None


def test_its_time_is_that_of_its_columns():
    region = rows(2, 4, 0, 9)
    assert times(region, timeline(8)) == (START_MONO + 1 * SECOND, START_MONO + 4 * SECOND)
    assert ios(region, timeline(8), "sdc") == 9
    assert ios(rows(2, 4, 6, 9), timeline(8), "sdc") == 3
    assert ios(region, timeline(8), "sdd") == 0


def test_it_stays_on_its_data_until_they_are_no_longer_on_the_map():
    region = rows(2, 4, 0, 9)
    assert clamped(region, timeline(8)) == region
    assert times(region, timeline(12)) == times(region, timeline(8))
    assert clamped(region, timeline(14)) == rows(4, 4, 0, 9)
    assert clamped(region, timeline(15)) is None
    assert times(region, timeline(15)) == (0, 0)
    assert words(region, timeline(15)) == "its time is no longer on the map"


def test_the_edges_of_the_map_are_open():
    assert rows(1, 1, 0, 0).covers(0)
    assert rows(1, 1, 9, 9).covers(bucket_index(2**32 - 1))
    middle = rows(1, 1, 4, 5)
    assert [middle.covers(i) for i in (63, 64, 95, 96)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(4, 5, "1.02ms to 16.4ms"), (0, 5, "below 16.4ms"), (4, 9, "1.02ms and more"), (0, 9, "all latencies")],
)
def test_it_is_reported_in_words(low, high, text):
    begin, end = clock(frame(1).wall), clock(frame(4).wall)
    assert words(rows(2, 4, low, high), timeline(8)) == f"{begin}-{end}, {text}"


def test_its_headline_counts_both():
    line = plain(headline(rows(2, 4, 0, 9), timeline(8), "sdc", 2))
    assert line.startswith(" sdc region ")
    assert line.endswith("9 I/Os, 2 outliers")


def drawn(region, seconds=8, style=STYLE, **how):
    given_timeline = timeline(seconds, **how)
    return [plain(line) for line in framed(labelled(given_timeline, "sdc", style, 40), region, given_timeline, style)]


def test_the_frame_is_around_it_and_hides_none_of_it():
    before = [plain(line) for line in labelled(timeline(8), "sdc", STYLE, 40)]
    after = drawn(rows(2, 4, 6, 7))
    assert after[1][LABEL + 3 : LABEL + 8] == "┌───┐"
    assert after[4][LABEL + 3 : LABEL + 8] == "└───┘"
    for y in (2, 3):
        assert after[y][LABEL + 3] == after[y][LABEL + 7] == "│"
        assert after[y][LABEL + 4 : LABEL + 7] == before[y][LABEL + 4 : LABEL + 7]
    assert [line[:LABEL] for line in after] == [line[:LABEL] for line in before]


def test_at_the_maps_edge_the_frame_is_open():
    after = drawn(rows(0, 1, 8, 9), seconds=10)
    assert after[0][LABEL : LABEL + 3] == "  │"
    assert after[2][LABEL : LABEL + 3] == "──┘"


def test_a_region_over_the_end_of_the_sweep_has_two_parts():
    after = drawn(rows(8, 11, 6, 7), seconds=13, sweep=True)
    assert after[1][LABEL : LABEL + 10] == "──┐│   ┌──"
    wide = drawn(rows(2, 4, 6, 7), style=MapStyle(SCALE, 4096, 2, RAMP))
    assert wide[1][LABEL + 7 : LABEL + 15] == "┌──────┐"


def test_what_is_gone_has_no_frame():
    assert drawn(rows(2, 4, 6, 7), seconds=20) == [plain(line) for line in labelled(timeline(20), "sdc", STYLE, 40)]
