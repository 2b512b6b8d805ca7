"""Heat maps on the screen: what fills them, I/Os in flight, strips, legends, and maps of single ops."""

import re
from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise

import pytest
from frames import PROCFS, SECOND, START_MONO, disks, frame, host
from hypothesis import given
from hypothesis import strategies as st
from panels import inside, scene

from latmon.model.frame import OPS, Completed, Device, Flow, Outstanding, Series
from latmon.model.histogram import MAX_US, Histogram, bucket_index
from latmon.model.inflight import InFlight, InFlightList
from latmon.support.theme import OUR_THEMES, load_theme
from latmon.tui.canvas import face
from latmon.tui.commands import STEPS
from latmon.views.axes import (
    Extent,
    LatencyScale,
    Timeline,
    extent,
    latency_scale,
    level,
    rows_of,
    steady,
    tail_bucket,
    thresholds,
)
from latmon.views.heatmap import (
    RAMP,
    TAIL,
    Ink,
    MapStyle,
    SideMark,
    body,
    edge_labels,
    label,
    labelled,
    legends,
    map_cells,
    nominal,
)
from latmon.views.heatmap_state import HeatmapState, filled, shape
from latmon.views.lines import Span, plain
from latmon.views.screen import screen_lines
from latmon.views.selection import Selection, times

READ = Series("nvme0n1", "read", "total")
STYLE = MapStyle(LatencyScale(0, 16, 10), 4096)


def text(made, size=(80, 24)):
    return "\n".join(inside(screen_lines(made, (Span("keys"),), *size)))


@given(st.integers(9, 60), st.integers(16, 200), st.data())
def test_a_range_fills_its_rows_however_narrow_it_is(rows, low, data):
    """The range is an octave at least. Where there are fewer buckets than rows, a bucket has several rows."""
    high = data.draw(st.integers(min(low + 8, 239), 239))
    span = extent({low: 1, high: 1})
    for cells, least in ((2, 0.55), (1, 0.5)):
        scale = latency_scale(span, rows, cells=cells)
        assert scale.needed(span.high) >= rows * least
        lowered = scale.lowered(span.high)
        labels = [row for row in range(rows) if lowered.is_labelled(row)]
        assert len({b - a for a, b in pairwise(labels)}) <= 1
        assert labels
        assert scale.row(span.low) <= 8 * scale.per // scale.step, "the fastest are at the bottom"
        assert rows - 2 - lowered.top_row(span.high) <= scale.per or lowered.low < scale.step, "a row is above"


@given(st.integers(4, 60), st.integers(0, 230), st.integers(0, 239), st.integers(0, 2))
def test_the_rows_of_a_scale_are_those_of_its_buckets(rows, low, high, cells):
    scale = latency_scale(extent({min(low, high): 1, max(low, high): 1}), rows, cells=cells)
    counts = {index: index + 1 for index in range(min(low, high), max(low, high) + 1)}
    sums = rows_of(counts, scale)
    for row, n in enumerate(sums):
        first, last = scale.first(row), scale.last(row)
        assert first <= last
        assert scale.row(first) <= row <= scale.top_row(last)
        inside = (row or scale.low == 0) and row < rows - 1 and scale.low <= first
        assert not inside or n == sum(counts.get(index, 0) for index in range(first, last + 1))
    for index, n in counts.items():
        assert sums[scale.row(index)] >= n or scale.row(index) in (0, rows - 1)
        assert scale.halves.row(index) // 2 == scale.row(index) or scale.halves is scale or cells < 2


@given(st.integers(4, 60), st.integers(0, 230), st.integers(0, 239), st.integers(0, 2))
def test_a_cursor_reaches_every_bucket_or_row(rows, low, high, cells):
    scale = latency_scale(extent({min(low, high): 1, max(low, high): 1}), rows, cells=cells)
    at, seen = scale.first(0), 1
    while (after := scale.beside(at, 1)) != at:
        assert scale.beside(after, -1) == at
        at, seen = after, seen + 1
    assert seen == (scale.last(rows - 1) - scale.low + 1 if scale.per > scale.step else rows)
    assert scale.top_row(at) == rows - 1


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


@given(st.integers(2, 240), st.sampled_from([15, 30, 60, 120, 300, 600]), st.booleans())
def test_a_map_of_the_window_alone_fills_its_room(room, window_s, sweep):
    map_shape, got = (of(room, window_s * SECOND, SECOND, sweep=sweep) for of in (shape, filled))
    assert map_shape.cells <= got.cells <= room
    assert got.column_us * (got.slots - sweep) >= window_s * SECOND or room == 2
    if window_s == 60 and room >= 60:
        assert got.cells >= 0.75 * room


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
    given_scene = scene([waits(one) for one in host(1, 55, ios=5)])
    screen = text(given_scene, (120, 40))
    lines = [line for line in screen.splitlines() if "▫" in line and "in flight" not in line]
    ends = [len(line.partition("│" if "│" in line[:7] else "┤")[2].rstrip("│ ◂max>45s").rstrip()) for line in lines]
    assert ends == sorted(ends, reverse=True), "the oldest age is at the top, in the newest columns"
    assert sum(line.count("▫") for line in lines) == 45
    assert "max >45s" in lines[0]
    assert "▫ in flight" in screen
    assert re.search(r"^.nvme0n1 .* >45s ", screen, re.MULTILINE)
    assert "▫" not in text(scene([waits(one, op="read") for one in host(1, 55, ios=5)], Selection(op="write")))


def test_of_two_ios_in_flight_in_the_highest_row_the_one_above_the_range_is_shown():
    style = replace(STYLE, scale=LatencyScale(0, 8, 4))
    for ages in ((30, 400 * SECOND), (400 * SECOND, 30)):
        given_frame = frame(1)
        waiting = tuple(InFlight("nvme0n1", "read", given_frame.mono_us - age) for age in ages)
        timeline = Timeline(
            SECOND, 4, OPS, [replace(given_frame, in_flight=InFlightList(waiting, at_us=given_frame.mono_us))]
        )
        assert plain(body(timeline, "nvme0n1", style)[0]).strip() == "^"


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
    given_scene = scene([waits(frame) for frame in host(1, 100, ios=5)], Selection(panel="zoom"))
    text(given_scene, (120, 40))
    drawn = given_scene.view.latency_map.drawn
    assert drawn.scale.row_of(90 * SECOND) <= drawn.scale.rows - 1
    assert len(drawn.timeline.columns) > 60, "the map is as wide as the screen allows"
    given_scene.choose(STEPS["mark"](given_scene.view, 0))
    given_scene.choose(STEPS["across"](given_scene.view, -1000))
    begin, _ = times(given_scene.selection.cursor.region(drawn.scale), drawn.timeline)
    assert begin == given_scene.history.until_us - given_scene.selection.window_us


def test_a_device_whose_only_io_hangs_has_a_map():
    made = scene([waits(frame(i, devices=disks(1))) for i in range(1, 40)])
    assert "▫▫▫" in text(made)
    assert "max >29s" in text(made)


def test_where_ages_are_not_measured_only_the_table_reports_them():
    """Nothing completed since second 5, and two are in flight: a least age, at no certain place of the map."""
    frames = [*host(1, 5, ios=5), *(frame(i, {READ: Histogram()}) for i in range(6, 30))]
    screen = text(scene([replace(frame, outstanding={"nvme0n1": Outstanding(2, 0)}) for frame in frames]), (120, 40))
    assert re.search(r"^.nvme0n1 .* >24s ", screen, re.MULTILINE)
    assert "▫" not in screen
    assert "max >" not in screen


def test_strips_have_the_iops_and_the_depth_of_each_column():
    frames = host(1, 90, ios=50)
    frames[60:70] = [
        replace(frame, histograms=busy.histograms, outstanding={"nvme0n1": Outstanding(31, 0)})
        for frame, busy in zip(frames[60:70], host(1, 90, ios=500)[60:70], strict=True)
    ]
    screen = text(scene(frames), (120, 40)).splitlines()
    iops, depth = (next(line for line in screen if line.startswith(f"{name:>5} ")) for name in ("IOPS", "depth"))
    assert re.search(r"│ (now )?50.0(, max 500)?$", iops.rstrip())
    assert re.search(r"│ (now )?\d(, max 31)?$", depth.rstrip())
    assert any(line.rstrip().endswith("max 500") for line in screen)
    assert any(line.rstrip().endswith("max 31") for line in screen)
    axis_line = next(line for line in screen if "└" in line)
    assert iops.index("│") == depth.index("│") == len(axis_line.rpartition(":")[0]) + 3
    small = text(scene(frames)).split("└")[1]
    assert "IOPS" not in small, "80x24 has room for one strip"
    assert re.search(r"^depth .*│ \d, max 31 *$", small, re.MULTILINE)


def maxima_by_op(made):
    """The maximum beside the map of reads and beside that of writes; None without such maps."""
    lines = text(made, (220, 60)).splitlines()
    heads = [y for y, line in enumerate(lines) if re.match(r"─ read  [0-9,]+ I/Os .* write  [0-9,]+ I/Os", line)]
    if not heads:
        return None
    halves = ("".join(line[side] for line in lines[heads[0] :]) for side in (slice(110), slice(110, 220)))
    return [re.search(r"max [0-9.]+(us|ms)", half)[1] for half in halves]


def test_a_large_screen_has_a_map_of_each_op_below_that_of_all():
    given_scene = scene(host(3, 80, odd="nvme1n1", ios=40))
    assert maxima_by_op(given_scene) == ["us", "ms"], "only writes of the odd disk are slow"
    given_scene.append(frame(81, {Series("nvme1n1", "read", "total"): Histogram.record([300_000])}))
    assert maxima_by_op(given_scene) == ["ms", "ms"]
    assert " read  " not in text(given_scene, (160, 50))
    given_scene.choose(replace(given_scene.selection, op="write"))
    assert maxima_by_op(given_scene) is None


@pytest.mark.parametrize(
    "size",
    [(80, 24), *(pytest.param(one, marks=pytest.mark.slow) for one in ((100, 30), (120, 40), (160, 50))), (220, 60)],
)
@pytest.mark.parametrize("panel", ["overview", "zoom"])
def test_the_map_fills_its_panel(size, panel):
    """No third of the lines or of the cells is left empty."""
    given_scene = scene(host(3, 200, odd="nvme1n1", ios=40), Selection(panel=panel))
    screen = text(given_scene, size).splitlines()
    map_lines = [line for line in screen if re.match(r"[ 0-9a-z]{5}[│┤]", line)]
    empty_lines = [line for line in map_lines if not set(line) & set("▀▄█")]
    assert len(screen) == size[1]
    assert not any(not line.strip() for line in screen[:-3])
    first = next(i for i, line in enumerate(map_lines) if line not in empty_lines)
    assert first <= len(map_lines) // 3
    cells = given_scene.view.latency_map.drawn.timeline.slots
    assert cells * (map_cells(size[0]) // cells) >= map_cells(size[0]) * 0.9


def test_the_shorter_legend_still_names_the_colours_outside_the_ramp():
    style = replace(STYLE, threshold_us=500_000, tail=tail_bucket(500_000))
    assert [plain(legend) for legend in legends(style, ages={80}, shared=True)] == [
        "▫ in flight  ■ above 500ms  I/Os 1 █████████ 4.1k+ ",
        "▫ in flight  ■ above 500ms  █████████ 4.1k+ ",
        "▫ in flight  ■ above 500ms  ",
        "■ above 500ms  ",
        "",
    ]
    assert [plain(legend) for legend in legends(STYLE, ages=())] == ["I/Os 1 █████████ 4.1k+ ", "█████████ 4.1k+ ", ""]
    assert plain(legends(STYLE, ages=(), shared=True)[0]).startswith("no threshold  ")


def roles_on(made, size):
    return {role for line in screen_lines(made, (), *size) for span in line for role in span.role.split("/")}


@pytest.mark.parametrize("panel", ["overview", "zoom", "maps"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)])
def test_only_ios_above_the_threshold_have_the_alarm_colour(panel, size):
    frames = host(8, 70, odd="nvme5n1", ios=40)
    odd = Series("nvme5n1", "write", "total")
    without = scene(frames, Selection(panel=panel))
    alarms = {span.text.strip() for line in screen_lines(without, (), *size) for span in line if TAIL in span.role}
    assert not any(set(words) & set("█▀▄■▫") for words in alarms), "no quantile has it"
    assert all(words.endswith(("x", "s")) for words in alarms), "the maximum and the ratio of one unlike its peers"
    assert alarms or panel == "maps"
    assert "no threshold" in text(without, size)
    slow_us = 9_000_000
    assert TAIL not in roles_on(scene(frames, Selection(panel=panel, threshold_us=slow_us)), size) - (
        {TAIL} if panel == "maps" else set()  # the legend of small maps
    )
    for at in (40, 50):
        frames[at] = replace(frames[at], histograms=frames[at].histograms | {odd: Histogram.record([slow_us + 1])})
    given_scene = scene(frames, Selection(panel=panel, threshold_us=5_000_000))
    assert TAIL in roles_on(given_scene, size), "also in a row whose lower part is below the threshold"
    if panel != "maps":
        lines = screen_lines(given_scene, (), *size)
        assert [span.text for line in lines for span in line if span.role == TAIL and "2 above" in span.text]


def test_ios_in_flight_have_the_alarm_colour_from_the_threshold_on():
    style = MapStyle(LatencyScale(0, 8, 40), 100, threshold_us=1_000_000)
    roles = [style.waiting_role(bucket_index(us)) for us in (600_000, 1_000_000, 90_000_000)]
    assert roles == ["wait", TAIL, TAIL]
    assert replace(style, threshold_us=None).waiting_role(bucket_index(90_000_000)) == "wait"
    given_scene = scene(stuck_host(), Selection(threshold_us=3_600_000_000))
    ages = [span for line in screen_lines(given_scene, (), 120, 40) for span in line if re.search(r">\d+s", span.text)]
    assert ages
    assert not any(TAIL in span.role for span in ages), "younger than the threshold"
    given_scene = scene(stuck_host(), Selection(threshold_us=1_000_000))
    ages = [span for line in screen_lines(given_scene, (), 120, 40) for span in line if re.search(r">\d+s", span.text)]
    assert all(TAIL in span.role for span in ages)
    given_scene.choose(Selection(screen="stages", threshold_us=1_000_000))
    health = next(line for line in screen_lines(given_scene, (), 120, 40) if "in flight >" in plain(line))
    assert next(span.role for span in health if "in flight >" in span.text) == TAIL


def test_a_row_with_the_threshold_in_it_is_of_the_tail_where_an_io_is_above_that():
    style = MapStyle(LatencyScale(0, 64, 4), 100, ink=Ink(halves=False), tail=100)
    timeline = Timeline(
        SECOND, 10, OPS, [frame(1, {READ: Histogram.of({70: 5})}), frame(2, {READ: Histogram.of({110: 1})})]
    )
    below, above = list(timeline.columns)[-2:]
    assert style.steps_of(below, "nvme0n1")[1] <= style.ink.levels
    assert style.steps_of(above, "nvme0n1")[1] > style.ink.levels


@pytest.mark.parametrize("ink", [RAMP, Ink(glyphs="▒▒▒▒▓█", halves=False)])
def test_with_few_colours_the_tail_has_the_glyph_of_its_legend(ink):
    """The glyph of the level would be that of a step of the ramp, in another grey than the legend's."""
    style = replace(STYLE, ink=ink, threshold_us=500_000, tail=90)
    (glyph, _, _) = plain(next(iter(legends(style, ages=(), shared=True)))).partition(" ")
    assert glyph not in ink.glyphs
    assert {style.drawn(ink.levels + step, ink.levels + step)[0] for step in range(1, ink.levels + 1)} == {glyph}


def marked(marks, width=80, scale=LatencyScale(16, 16, 6)):  # noqa: B008  frozen
    """The text beside each row of a map, by the row's lower edge; rows without any are left out."""
    timeline = Timeline(SECOND, map_cells(width), OPS, [frame(1, {READ: Histogram.record([100] * 5)})])
    style = replace(STYLE, scale=scale)
    lines = [plain(line) for line in labelled(timeline, "nvme0n1", style, width, marks)]
    cells = width - (11 if width < 100 else 17)
    edges = (scale.edge_us(row) for row in reversed(range(scale.rows)))
    texts = {edge: line[cells:].rstrip() for edge, line in zip(edges, lines, strict=True) if line[cells:].strip()}
    if width >= 100:
        return texts
    assert {len(text) for text in texts.values()} == {11}, "labels end at the right edge, apart from the bars"
    return {edge: text.lstrip() for edge, text in texts.items()}


EQUAL = [SideMark(4000, "max 4ms", "strong"), SideMark(3999, "p99.9 4ms"), SideMark(3998, "p99 4ms")]
NEAR = [SideMark(3980, "max 3.98ms", "strong"), SideMark(3899, "p99.9 3.9ms"), SideMark(1399, "p99 1.4ms")]
ABOVE = SideMark(2000, "11 above", "limit", is_limit=True)


def test_each_label_is_in_its_own_row():
    marks = [SideMark(70_000, "max 70ms"), SideMark(5_000, "p99 5ms"), SideMark(100, "p50 100us"), ABOVE]
    assert marked(marks) == {16384: "max 70ms", 4096: "p99 5ms", 1024: "11 above", 64: "p50 100us"}


def test_quantiles_of_one_row_are_one_label_where_it_fits():
    assert marked([*EQUAL[2:], SideMark(2999, "p50 4ms")]) == {1024: "p50 p99 4ms"}
    assert marked(EQUAL[1:]) == {1024: "p99.9 4ms", 256: "└p99 4ms"}, "11 cells"
    assert marked(EQUAL, 120) == {1024: " ◂ p99-max 4ms"}


def test_a_label_that_moves_is_connected_with_its_row():
    """In `latmon demo e810` five marks of one row were in five rows, and that of the threshold in the last of them."""
    assert marked(NEAR) == {1024: "max 3.98ms", 256: "└p99 p99.9"}
    assert marked([*NEAR, ABOVE]) == {1024: "11 above", 256: "├max 3.98ms", 64: "└p99 p99.9"}
    assert marked(NEAR, 120) == {1024: " ◂ max 3.98ms", 256: " ├ p99.9 3.9ms", 64: " └ p99 1.4ms"}
    low = [mark._replace(us=20) for mark in NEAR]
    assert marked(low, 120) == {256: " ┌ max 3.98ms", 64: " ├ p99.9 3.9ms", 16: " ◂ p99 1.4ms"}


def test_a_label_moves_into_no_row_of_another_one():
    marks = [SideMark(20_000, "max 20ms"), *NEAR[1:], SideMark(300, "p50 300us")]
    up = {16384: " ◂ max 20ms", 4096: " ┌ p99.9 3.9ms", 1024: " ◂ p99 1.4ms", 256: " ◂ p50 300us"}
    assert marked(marks, 120) == up
    marks[0] = SideMark(5_000, "max 5ms")
    assert marked(marks) == {4096: "max 5ms", 1024: "p99 p99.9", 256: "p50 300us"}, "the row still is right"


def serial(values_us, seconds=70):
    """A scene of one device whose I/Os take these times each second."""
    return scene([frame(i, {READ: Histogram.record(values_us)}, devices=disks(1)) for i in range(1, seconds)])


@pytest.mark.parametrize("size", [(80, 24), pytest.param((120, 40), marks=pytest.mark.slow), (160, 50)])
@pytest.mark.parametrize("values", [(70, 700), (900, 3_000), (60, 60_000), (48_000, 52_000), (200, 2_900_000)])
def test_the_range_ends_a_row_above_the_maximum(size, values):
    low, high = values
    given_scene = serial([*(round(low * (high / low) ** (i / 99)) for i in range(100))])
    lines = [line for line in text(given_scene, size).splitlines() if re.match(r"[ 0-9a-z]{5}[│┤]", line)]
    filled = [y for y, line in enumerate(lines) if set(line[6 : map_cells(size[0])]) & set("▀▄█")]
    is_narrow = values == (48_000, 52_000)  # two buckets of several lines each
    assert not set(lines[0][6 : map_cells(size[0])]) & set("▀█"), "half a row is empty"
    assert filled[0] <= (5 if is_narrow else 2)
    assert len(filled) > len(lines) * 0.6 or is_narrow


def test_the_range_shrinks_a_sixth_of_a_window_after_an_outlier_is_gone():
    given_scene = serial([100, 300])
    reached = {}
    for second in range(70, 150):
        given_scene.append(frame(second, {READ: Histogram.record([3_000] if second == 70 else [100, 300])}))
        if second in (70, 138, 149):
            text(given_scene)
            reached[second] = given_scene.view.latency_map.drawn.scale.reaches(1_000)
    assert reached == {70: True, 138: True, 149: False}


@pytest.mark.slow
@pytest.mark.parametrize(("panel", "size"), [("overview", (80, 24)), ("maps", (120, 40)), ("zoom", (160, 50))])
def test_a_map_is_the_same_whichever_pictures_were_drawn_before(panel, size):
    """A busy host skips pictures; the range and the colours depend on the frames."""
    frames = host(3, 100, odd="nvme1n1", ios=8)
    chosen = Selection(panel=panel, sort="name", window_us=30 * SECOND)
    given_scene, some = scene([], chosen), scene([], chosen)
    differ = []
    for current_frame in frames:
        given_scene.append(current_frame)
        some.append(current_frame)
        drawn = text(given_scene, size)
        text(given_scene, (100, 30))
        if current_frame.seq % 17 == 0 and text(some, size) != drawn:
            differ.append(current_frame.seq)
    assert differ == []


def test_labels_end_at_the_axis_and_nothing_covers_them():
    for seconds in (1, 20, 40):
        given_scene = scene(host(1, seconds, ios=5))
        for size in ((80, 24), (160, 50)):
            style = given_scene.view.latency_map
            lines = text(given_scene, size).splitlines()
            rows = style.drawn.scale.rows
            bottom = next(y for y, line in enumerate(lines) if line.startswith("     └"))
            axis = [line[:6] for line in lines[bottom - rows : bottom]]
            wanted = [label(replace(STYLE, scale=style.drawn.scale), row).text for row in reversed(range(rows))]
            assert axis == wanted
            assert all(re.fullmatch(r" {5}│| *[0-9]+(us|ms|s|min)┤", one) for one in axis)


def test_a_threshold_far_from_the_range_takes_no_rows():
    near, far = (scene(host(1, 70, ios=40), Selection(threshold_us=us)) for us in (1_000, 100_000))
    assert "┤┄" in text(near)
    assert "┤┄" not in text(far)
    assert "0 above" in text(far)
    assert not far.view.latency_map.drawn.scale.reaches(10_000)


def test_the_line_of_the_threshold_has_its_count_where_the_probe_counts_by_another_one():
    """The count is that of the buckets above the first bound from 100 ms on."""
    given_scene = scene(host(2, 70, odd="nvme1n1", ios=40), Selection(threshold_us=100_000, selected="nvme1n1"))
    line = next(line for line in text(given_scene, (120, 40)).splitlines() if line.startswith("100ms┤"))
    assert re.search(r" ◂ \d+ >106ms$", line.rstrip())
    head = next(line for line in text(given_scene, (120, 40)).splitlines() if "above 106ms" in line)
    assert re.search(r"(\d+) above 106ms", head)[1] == re.search(r"(\d+) >106ms", line)[1]


# ---- small maps beside each other


def stuck_host(age_s=400):
    """Like drives, one with a write in flight for so long, and a volume on two of them."""
    frames = host(4, 70, odd="nvme2n1", ios=40)
    last = frames[-1]
    waiting = InFlightList((InFlight("nvme1n1", "write", last.mono_us - age_s * SECOND),), at_us=last.mono_us)
    volume = Device("dm-0", 253, 0, "dm", timed=False, members=("nvme0n1", "nvme1n1"))
    return [replace(frames[0], devices=(*frames[0].devices, volume)), *frames[1:-1], replace(last, in_flight=waiting)]


def test_an_io_that_is_stuck_for_minutes_leaves_small_maps_their_shape():
    made = scene(stuck_host(), Selection(panel="maps"))
    screen = text(made, (120, 40))
    assert not re.search(r"(\d\ds|min)┤", screen)
    assert "^ in flight, above " in screen
    assert "▫" not in screen
    marks = [line for line in screen.splitlines() if "^" in line and "above" not in line]
    (top,) = marks
    assert top.index("^") > next(line for line in screen.splitlines() if "maps" in line).index("maps")
    made.choose(Selection(panel="zoom", selected="nvme1n1"))
    assert re.search(r"\d\ds┤", text(made, (120, 40))), "alone it is at its age"


def test_the_colour_of_the_tail_begins_at_the_same_latency_on_all_small_maps():
    """Only the sick drive has cells in it."""
    frames = stuck_host()
    sick = Series("nvme2n1", "write", "total")
    for at in range(20, 60, 8):
        frames[at] = replace(frames[at], histograms=frames[at].histograms | {sick: Histogram.record([5_000_000])})
    made = scene(frames, Selection(panel="maps", threshold_us=1_000_000))
    lines = screen_lines(made, (), 160, 50)
    assert re.search(r"■ above 1s ", text(made, (160, 50)))
    cells = {}
    for line in lines:
        x = 0
        for span in line:
            if TAIL in span.role.split("/") and set(span.text) <= set("█▀▄■"):
                cells[x] = cells.get(x, 0) + len(span.text)
            x += len(span.text)
    title = next(plain(line) for line in lines if "nvme2n1" in plain(line))
    begin = title.index("nvme2n1")
    own = sum(n for x, n in cells.items() if begin - 2 <= x < begin + 70)
    assert own == sum(cells.values()) - 1 >= 5, "and the legend"


def test_devices_without_a_map_are_the_last_of_the_small_ones():
    screen = text(scene(stuck_host(), Selection(panel="maps")), (160, 50))
    names = re.findall(r"(?<!, )(nvme\dn1|dm-0)  +", screen.partition("oldest")[0])
    assert names == ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1", "dm-0"]


def burst(quiet_s, burst_s, after_s=0):
    """Return windows with cells of 2 to 20 I/Os, a burst of 1,000 to 4,000 in a cell, and windows as before."""
    frames = []
    for second in range(quiet_s + burst_s + after_s):
        is_burst = quiet_s <= second < quiet_s + burst_s
        us = (100, 150, 200, 300) if is_burst else (100, 200, 400, 800, 1_600)
        ios = (4_000, 3_000, 2_000, 1_000) if is_burst else (20, 15, 10, 5, 2 + second % 3)
        counts = {bucket_index(latency): n for latency, n in zip(us, ios, strict=True)}
        frames.append(frame(second, {READ: Histogram.of(counts)}))
    return frames


def top_of(frames, slots=60):
    timeline = Timeline(SECOND, slots, OPS, frames)
    return HeatmapState().style(timeline, {"nvme0n1": {}}, (slots, 10), Ink(), None).top


def test_the_scale_ends_at_p99_of_the_cells_a_round_number():
    """Of 300 cells the fourth fullest is p99, here of 20 I/Os; of 60 cells the second one, of 14."""
    assert top_of(burst(60, 0)) == 20
    assert top_of([frame(i, {READ: Histogram.record([100] * 7 * (1 + (i > 30)))}) for i in range(60)]) == 10


def test_one_column_of_a_burst_does_not_change_the_scale():
    """Two cells of 297 are below 1 %: they have the last step, and all else keeps its colour."""
    cells = {bucket_index(100): 4_000, bucket_index(200): 3_000}
    frames = [*burst(59, 0), frame(59, {READ: Histogram.of(cells)})]
    assert top_of(frames) == 20


def test_a_burst_flattens_nothing_and_is_not_flat():
    """Its 20 cells are 7 % of all: the scale ends at 2,000. Quiet cells have three steps, those of the burst two."""
    frames = burst(55, 5)
    assert top_of(frames) == 2_000
    quiet = {level(n, 2_000, 9) for n in (20, 15, 10, 5, 4, 3, 2)}
    assert quiet == {2, 3, 4}
    assert {level(n, 2_000, 9) for n in (4_000, 3_000, 2_000, 1_000)} == {8, 9}


def test_a_scale_changes_by_a_step_only_when_it_lasts():
    assert steady([4, 4, 4, 4, 4], 3) == 4
    assert steady([5, 4, 4, 4, 4], 3) == 4, "one second"
    assert steady([5, 5, 4, 4, 4], 3) == 4
    assert steady([5, 5, 5, 4, 4], 3) == 5
    assert steady([4, 5, 5, 5, 4], 3) == 5, "it stays"
    assert steady([4, 4, 4, 4, 4], 3) == 4, "until it is over for long"
    assert steady([7, 4, 4, 4, 4], 3) == 7, "more than a step"
    assert steady([2, 4, 4, 4, 4], 3) == 2
    assert steady([5], 3) == 5


def test_a_scale_between_two_steps_does_not_flap():
    """A full cell each 16 s: p99 of 300 cells is the fourth, of which a minute has three for 4 s and four for 12 s."""
    frames = []
    for second in range(120):
        ios = (60 if second % 16 == 0 else 20, 15, 10, 5, 2)
        counts = {bucket_index(us): n for us, n in zip((100, 200, 400, 800, 1_600), ios, strict=True)}
        frames.append(frame(second, {READ: Histogram.of(counts)}))
    assert {top_of(frames[:length]) for length in range(90, 120)} == {50}


def test_after_a_burst_the_scale_comes_back():
    assert top_of(burst(10, 5, 61)) == 20


def test_half_a_row_is_enough_above_the_slowest_io():
    """Else this range, 31 to 146 in nine rows, would have rows of three octaves, and a third of them empty."""
    assert latency_scale(Extent(31, 146), 9, cells=2).step == 16
    assert latency_scale(Extent(31, 146), 9, cells=1).step == 24


def test_without_distributions_small_maps_are_bars_of_means():
    done = {Flow("nvme0n1", "read"): Completed(50, 50 * 4096, 50 * 2_000)}
    frames = [replace(frame, histograms={}, seen={}, kernel=done) for frame in host(2, 20)]
    given_scene = scene(frames, Selection(panel="maps"), PROCFS)
    screen = text(given_scene)
    assert re.search(r"nvme0n1 .* mean 2ms ", screen)
    assert "2ms┤" in screen
    assert "    0┤" in screen
    assert "bars: mean latency from 0" in screen
    assert not re.search("nvme0n1 .* p99 ", screen.partition("nvme1n1")[0])
    assert "no I/O in this time" in screen, "the drive without I/O has a reason"
    assert re.search(r"nvme1n1 +0/s", screen)


def test_an_axis_has_at_least_three_labels_where_its_rows_have_edges():
    """An octave has parts; rows of several octaves have their powers of two."""
    narrow = latency_scale(Extent(bucket_index(100_000), bucket_index(200_000)), 14, cells=2)
    labels = edge_labels(narrow)
    assert set(labels.values()) >= {"96ms", "128ms", "192ms"}
    for row, text in labels.items():
        assert nominal(narrow.edge_us(row)) == text
        assert len(text) <= 5
    for high_us in (150, 300, 1_000, 30_000, 1_000_000, 60_000_000):
        span = Extent(bucket_index(100), bucket_index(high_us))
        assert len(edge_labels(latency_scale(span, 13, cells=2))) >= 3


def test_the_axis_marks_where_the_window_of_the_table_begins():
    frames = host(1, 100, ios=20)
    drawn = text(scene(frames, Selection(window_us=60 * SECOND)), (120, 30))
    axis_line = next(line for line in drawn.splitlines() if line.startswith("     └"))
    first = axis_line.index("├last 60 s")
    right = next(line for line in drawn.splitlines() if "┤" in line[:6]).index("│", 6)
    assert right - first == 60, "columns of a second each"
    assert "├" not in next(
        line for line in text(scene(frames, Selection()), (80, 24)).splitlines() if line.startswith("     └")
    ), "there the map is as long as the window"


def test_without_a_threshold_nothing_on_the_map_has_the_alarm_colour():
    given_scene = scene(stuck_host(), Selection(selected="nvme1n1", panel="zoom"))
    lines = screen_lines(given_scene, (), 120, 40)
    begin = next(row for row, line in enumerate(lines) if "no threshold" in plain(line))
    assert any("▫" in plain(line) for line in lines[begin:])
    assert not any(TAIL in span.role.split("/") for line in lines[begin:-2] for span in line)


@pytest.mark.parametrize("theme", OUR_THEMES)
def test_in_few_colours_the_alarm_is_red_and_ios_in_flight_are_not(theme):
    """ANSI 1 or 9; 8 colours have no bright ones."""
    for depth in ("16", "8"):
        styles = face(load_theme(theme), depth).styles
        if load_theme(theme).colours:
            assert styles[TAIL].color.number in (1, 9), depth
            assert styles["wait"].color.number not in (1, 9), depth


def test_the_scale_follows_a_frame_that_is_added_to_the_newest_column():
    """How full the cells of a column are is kept until the column gets another frame, and per set of devices."""
    counts = {bucket_index(us): 5 for us in (100, 200, 400, 800)}
    quiet = Series("nvme1n1", "read", "total")
    frames = [frame(i, {READ: Histogram.of(counts), quiet: Histogram.of(counts)}) for i in range(20)]
    timeline, state = Timeline(20 * SECOND, 5, OPS), HeatmapState()
    for at, current_frame in enumerate(frames, 1):
        timeline.advance(current_frame)
        together = state.style(timeline, {"nvme0n1": {}, "nvme1n1": {}}, (5, 10), Ink(), None)
        fresh = Timeline(20 * SECOND, 5, OPS, frames[:at])
        assert together.top == HeatmapState().style(fresh, {"nvme0n1": {}, "nvme1n1": {}}, (5, 10), Ink(), None).top
    (column,) = timeline.columns
    scale = together.cells
    both = column.fullness(("nvme0n1", "nvme1n1"), scale)
    assert both.total() == 2 * column.fullness(("nvme0n1",), scale).total() > 0
    assert column.fullness(("nvme0n1",), scale) is column.fullness(("nvme0n1",), scale), "kept"


def test_small_maps_have_the_scale_of_their_page():
    """A device of another page changes neither their range nor their colours."""
    frames = host(24, 61, ios=20)
    slow = {Series("nvme9n1", "read", "total"): Histogram.record([30 * SECOND] * 5_000)}
    busy = [replace(frame, histograms=frame.histograms | slow) for frame in frames]
    alike = Selection(panel="maps", sort="name", selected="nvme0n1")
    made, without = scene(busy, alike), scene(frames, alike)
    screen = text(made)
    assert "maps 1-4 of 24, one scale a page" in screen
    assert not re.search(r"\ds┤", screen)
    assert screen == text(without)
    made.choose(Selection(panel="maps", sort="name", selected="nvme9n1"))
    assert re.search(r"\ds┤", text(made))
