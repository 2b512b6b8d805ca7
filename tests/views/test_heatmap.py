"""Heat maps on the screen: what fills them, I/Os in flight, strips, legends, and maps of single ops."""

import re
from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise

import pytest
from frames import ORIGIN, SECOND, START_MONO, disks, frame, host
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.frame import OPS, Outstanding, Series
from latmon.model.histogram import MAX_US, Histogram
from latmon.model.inflight import InFlight, InFlightList
from latmon.tui.commands import STEPS
from latmon.views.heatmap import MapStyle, body, legends, map_cells
from latmon.views.heatmap_state import shape
from latmon.views.lines import Span, plain
from latmon.views.scale import LatencyScale, extent, latency_scale, level, thresholds
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection, times
from latmon.views.timeline import Timeline

READ = Series("nvme0n1", "read", "total")
STYLE = MapStyle(LatencyScale(0, 16, 10), 4096)


def scene(frames, selection=Selection()):  # noqa: B008  frozen
    made = Scene(selection)
    made.store.origin = ORIGIN
    for one in frames:
        made.append(one)
    return made


def text(made, size=(80, 24)):
    return "\n".join(plain(line) for line in screen_lines(made, (Span("keys"),), *size))


@given(st.integers(5, 60), st.integers(0, 200), st.data())
def test_a_range_fills_its_rows(rows, low, data):
    """The map is filled as long as it has a bucket for each row: a bucket is the finest resolution."""
    high = data.draw(st.integers(min(low + 2 * rows, 239), 239))
    span = extent({low: 1, high: 1})
    scale = latency_scale(span, rows)
    assert scale.needed(span.high) >= rows * 3 // 5 or high - low < 2 * rows
    assert scale.row(low) <= 8 // scale.step + 1, "the fastest are at the bottom"
    labels = [row for row in range(rows) if scale.is_labelled(row)]
    assert len({b - a for a, b in pairwise(labels)}) <= 1
    assert labels


@given(st.integers(2, 240), st.sampled_from([15, 30, 60, 120, 300, 600]), st.booleans())
def test_columns_fill_the_width_and_hold_the_window(room, window_s, sweep):
    got = shape(room, window_s * SECOND, SECOND, sweep=sweep, kept_us=660 * SECOND)
    wide = got.cells // got.slots
    assert got.cells == wide * got.slots <= room
    assert got.column_us * (got.slots - sweep) >= window_s * SECOND or room == 2
    kept = got.column_us * (got.slots + 1) > 660 * SECOND
    assert room - got.cells < wide or kept
    without = shape(room, window_s * SECOND, SECOND, sweep=sweep)
    assert without.column_us == got.column_us
    assert without.slots <= got.slots


@given(st.integers(1, 10**6), st.integers(4, 12), st.lists(st.integers(1, 10**7), max_size=30))
def test_the_counts_of_steps_are_those_of_levels(top, levels, counts):
    least = thresholds(top, levels)
    assert all(bisect_right(least, n) == level(n, top, levels) for n in (*counts, *least, top))


@given(st.lists(st.integers(0, MAX_US), min_size=1, max_size=200), st.integers(1, 40))
def test_no_io_is_lost_between_rows_and_columns(values, slots):
    """The counts that a map is drawn from, read before, between and after frames, are the I/Os of its columns."""
    read = Timeline(SECOND, slots, OPS)
    for second in range(0, len(values), 5):
        read.advance(frame(second // 5, {READ: Histogram.record(values[second : second + 5])}))
        assert sum(read.counts("nvme0n1").values()) == sum(sum(c.counts("nvme0n1").values()) for c in read.columns)
    scale = LatencyScale(0, 12, 20)
    assert [sum(c.rows("nvme0n1", scale)) for c in read.columns] == [
        sum(c.counts("nvme0n1").values()) for c in read.columns
    ]
    assert dict(read.counts("nvme0n1")) == dict(Histogram.record(values[-5 * len(read.columns) :]).buckets) or (
        len(values) % 5
    )


BEGAN_US = START_MONO + 10 * SECOND


def waits(one, *, op="write", device="nvme0n1"):
    """A frame with an I/O in flight since second 10, as far as it is older than half a second then."""
    some = (InFlight(device, op, BEGAN_US),) if one.mono_us - BEGAN_US > SECOND // 2 else ()
    busy = {device: Outstanding(len(some), 0)}
    return replace(one, in_flight=InFlightList(some), outstanding=busy)


def test_an_io_in_flight_rises_column_by_column_at_its_age():
    made = scene([waits(one) for one in host(1, 55, ios=5)])
    screen = text(made, (120, 40))
    lines = [line for line in screen.splitlines() if "▫" in line and "in flight" not in line]
    ends = [len(line.partition("│" if "│" in line[:7] else "┤")[2].rstrip("│ ◂max>45s").rstrip()) for line in lines]
    assert ends == sorted(ends, reverse=True), "the oldest age is at the top, in the newest columns"
    assert sum(line.count("▫") for line in lines) == 45
    assert "max >45s" in lines[0]
    assert "▫ in flight" in screen
    assert re.search(r"^.nvme0n1 .* >45s ", screen, re.MULTILINE)
    assert "▫" not in text(scene([waits(one, op="read") for one in host(1, 55, ios=5)], Selection(op="write")))


def test_an_io_in_flight_covers_no_completed_one():
    fast, slow = Histogram.record([100] * 50), Histogram.record([100, 30_000_000])
    frames = [waits(frame(i, {READ: slow if i == 40 else fast}, devices=disks(1))) for i in range(1, 46)]
    timeline = Timeline(SECOND, 60, OPS, frames)
    scale = latency_scale(extent(timeline.counts("nvme0n1"), timeline.highest("nvme0n1")), 20)
    lines = body(timeline, "nvme0n1", replace(STYLE, scale=scale))
    row = plain(lines[-1 - scale.row_of(30_000_000)])
    assert row[40 - 46] in "▀▄█"
    assert row.count("▫") == len(
        [i for i in range(11, 46) if i != 40 and scale.row_of((i - 10) * SECOND) == scale.row_of(30_000_000)]
    )


def test_the_range_includes_the_age_of_an_io_in_flight_and_the_cursor_stays_in_the_window():
    made = scene([waits(one) for one in host(1, 100, ios=5)], Selection(panel="zoom"))
    text(made, (120, 40))
    drawn = made.view.latency_map.drawn
    assert drawn.scale.row_of(90 * SECOND) < drawn.scale.rows - 1
    assert len(drawn.timeline.columns) > 60, "the map is as wide as the screen allows"
    made.choose(STEPS["mark"](made.view, 0))
    made.choose(STEPS["across"](made.view, -1000))
    begin, _ = times(made.selection.cursor.region(drawn.scale), drawn.timeline)
    assert begin == made.history.until_us - made.selection.window_us


def test_a_device_whose_only_io_hangs_has_a_map():
    made = scene([waits(frame(i, devices=disks(1))) for i in range(1, 40)])
    assert "▫▫▫" in text(made)
    assert "max >29s" in text(made)


def test_where_ages_are_not_measured_only_the_table_reports_them():
    """Nothing completed since second 5, and two are in flight: a least age, at no certain place of the map."""
    frames = [*host(1, 5, ios=5), *(frame(i, {READ: Histogram()}) for i in range(6, 30))]
    screen = text(scene([replace(one, outstanding={"nvme0n1": Outstanding(2, 0)}) for one in frames]), (120, 40))
    assert re.search(r"^.nvme0n1 .* >24s ", screen, re.MULTILINE)
    assert "▫" not in screen
    assert "max >" not in screen


def test_strips_have_the_iops_and_the_depth_of_each_column():
    frames = host(1, 90, ios=50)
    frames[60:70] = [
        replace(one, histograms=busy.histograms, outstanding={"nvme0n1": Outstanding(31, 0)})
        for one, busy in zip(frames[60:70], host(1, 90, ios=500)[60:70], strict=True)
    ]
    screen = text(scene(frames), (120, 40)).splitlines()
    iops, depth = (next(line for line in screen if line.startswith(f"{name:>5} ")) for name in ("IOPS", "depth"))
    assert iops.rstrip().endswith("│ 50.0")
    assert re.search(r"│ \d$", depth.rstrip())
    assert any(line.rstrip().endswith("│ max 500") for line in screen)
    assert any(line.rstrip().endswith("│ max 31") for line in screen)
    axis_line = next(line for line in screen if "└" in line)
    assert iops.index("│") == depth.index("│") == len(axis_line.rpartition(":")[0]) + 3
    assert "IOPS" not in text(scene(frames)).split("└")[1], "80x24 has no room for strips"


def maxima_by_op(made):
    """The maximum beside the map of reads and beside that of writes; None without such maps."""
    lines = text(made, (220, 60)).splitlines()
    heads = [y for y, line in enumerate(lines) if re.match(r" read  [0-9,]+ I/Os .* write  [0-9,]+ I/Os", line)]
    if not heads:
        return None
    halves = ("".join(line[side] for line in lines[heads[0] :]) for side in (slice(110), slice(110, 220)))
    return [re.search(r"max [0-9.]+(us|ms)", half)[1] for half in halves]


def test_a_large_screen_has_a_map_of_each_op_below_that_of_all():
    made = scene(host(3, 80, odd="nvme1n1", ios=40))
    assert maxima_by_op(made) == ["us", "ms"], "only writes of the odd disk are slow"
    made.append(frame(81, {Series("nvme1n1", "read", "total"): Histogram.record([300_000])}))
    assert maxima_by_op(made) == ["ms", "ms"]
    assert " read  " not in text(made, (160, 50))
    made.choose(replace(made.selection, op="write"))
    assert maxima_by_op(made) is None


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40), (160, 50), (220, 60)])
@pytest.mark.parametrize("panel", ["overview", "zoom"])
def test_the_map_fills_its_panel(size, panel):
    """No third of the lines or of the cells is left empty."""
    made = scene(host(3, 200, odd="nvme1n1", ios=40), Selection(panel=panel))
    screen = text(made, size).splitlines()
    map_lines = [line for line in screen if re.match(r"[ 0-9a-z]{5}[│┤]", line)]
    empty_lines = [line for line in map_lines if not set(line) & set("▀▄█")]
    assert len(screen) == size[1]
    assert not any(not line.strip() for line in screen[:-3])
    first = next(i for i, line in enumerate(map_lines) if line not in empty_lines)
    assert first <= len(map_lines) // 3
    cells = made.view.latency_map.drawn.timeline.slots
    assert cells * (map_cells(size[0]) // cells) >= map_cells(size[0]) * 0.9


def test_the_shorter_legend_still_names_the_colours_outside_the_ramp():
    style = replace(STYLE, tail=90)
    assert [plain(one) for one in legends(style, waiting=True)] == [
        "▫ in flight  █ slowest  I/Os 1 █████████ 4.1k ",
        "▫ in flight  █ slowest  █████████ 4.1k ",
        "▫ in flight  █ slowest  ",
        "█ slowest  ",
        "",
    ]
    assert [plain(one) for one in legends(STYLE, waiting=False)] == ["I/Os 1 █████████ 4.1k ", "█████████ 4.1k ", ""]
    for size in ((80, 24), (120, 40)):
        assert "█ slowest" in text(scene(host(8, 70, odd="nvme5n1", ios=40)), size)
