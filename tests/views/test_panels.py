"""The panels as text, without an app: heat map, tiles, table, peers, status and the reasons for emptiness."""

import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from frames import ORIGIN, PROCFS, SECOND, START_MONO, disks, frame, host
from hypothesis import example, given
from hypothesis import strategies as st
from panels import inside, scene

from latmon.aggregate.history import Store, Window
from latmon.analysis.peers import chance, natural, unlike
from latmon.model.frame import (
    FILES,
    OPS,
    TRACER_STARTING,
    Completed,
    Device,
    Flow,
    Frame,
    Health,
    Missing,
    Origin,
    Series,
    Traced,
)
from latmon.model.histogram import MAX_US, TOP, Histogram, bucket_bounds, bucket_index
from latmon.model.measurements import ABOVE, ERRORS
from latmon.model.measurements.errors import FailedIO
from latmon.support.units import clock, duration_us, significant
from latmon.tui.commands import STEPS, turn
from latmon.views import device_table
from latmon.views.axes import (
    Extent,
    LatencyScale,
    Timeline,
    begins,
    extent,
    last_step,
    latency_scale,
    level,
    round_number,
    tail_bucket,
)
from latmon.views.context import no_softirqs, not_traced, unknown_quantiles, why_no_rows
from latmon.views.device_table import COLUMNS, Subject, are_hosts, fitting, host_columns, mix, name_cells, sparkline
from latmon.views.heatmap import (
    LABEL,
    RAMP,
    Ink,
    MapStyle,
    SideMark,
    axis,
    body,
    label,
    labelled,
    nominal,
)
from latmon.views.help import pages
from latmon.views.lines import ODD, Span, fit, plain, runs, width, wrap
from latmon.views.panels.overview import grid
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection, ViewSettings, matches, shown, window_beside
from latmon_backends.demo import host_window
from latmon_backends.demo import host_window as demo_host
from latmon_backends.demo.backend import DemoBackend

READ = Series("nvme0n1", "read", "total")


def text(made, size=(80, 24)):
    return "\n".join(plain(line) for line in screen_lines(made, (Span("keys"),), *size))


def flat(screen):
    return " ".join(screen.split())


# ---- the heat map


def quick(values_per_second, ops=OPS, slots=10, column_s=1, **how):
    frames = [frame(i, {READ: Histogram.record(v)} if v else {}) for i, v in enumerate(values_per_second)]
    return Timeline(column_s * SECOND, slots, ops, frames, **how)


STYLE = MapStyle(LatencyScale(0, 16, 10), 4096)


@pytest.mark.parametrize(("seconds", "row"), [(3, "       ▄▄▄"), (10, "▄" * 10), (13, "▄" * 10)])
def test_the_newest_column_is_at_the_right_edge(seconds, row):
    timeline = quick([[100]] * seconds)
    assert plain(body(timeline, "nvme0n1", STYLE)[-1 - STYLE.scale.row_of(100)]) == row
    assert plain(axis(timeline, STYLE)).endswith(f"─{clock(frame(seconds - 1).wall)}")


def slow_cell(line):
    """The cell of the only I/O in the rows from 128 ms up; -1 in other rows."""
    label, _, cells = line.partition("┤" if "┤" in line else "│")
    is_slow = label.strip() in ("128ms", "256ms")
    return max(cells.find("▀"), cells.find("▄"), cells.find("█")) if is_slow else -1


@pytest.mark.parametrize("panel", ["overview", "maps", "zoom"])
@pytest.mark.parametrize("window_s", [15, 60])
def test_time_goes_from_left_to_right_on_every_map(panel, window_s):
    """A slow I/O moves to the left with every second, live and paused, and the right edge is the newest window."""
    given_scene = scene(host(1, 20, ios=5), Selection(panel=panel, window_us=window_s * SECOND))
    given_scene.append(frame(21, {READ: Histogram.record([300_000])}))
    places = []
    for second in range(22, 34):
        screen = text(given_scene)
        places.append(next(at for line in screen.splitlines() if (at := slow_cell(line)) > 0))
        given_scene.append(frame(second, {READ: Histogram.record([100])}))
    assert places == sorted(places, reverse=True)
    assert len(set(places)) >= 12 * 60 // max(window_s, 60) // 2
    given_scene.pause()
    assert clock(frame(33).wall) in next(
        line for line in text(given_scene).splitlines() if "└─" in line or "──" in line
    )


@pytest.mark.parametrize("seconds", [1, 5, 40])
def test_the_part_without_data_says_since_when_there_is_any(seconds):
    given_scene = scene(host(8, seconds, ios=5))
    assert " no data before " in text(given_scene)
    assert clock(frame(0).wall) in text(given_scene)
    assert "(started)" not in text(given_scene)
    assert text(scene(host(8, seconds, ios=5), Selection(panel="maps"))).count("no data") == 4
    given_scene = scene(
        host(8, seconds, ios=5), Selection(panel="zoom"), origin=replace(ORIGIN, start_mono_us=START_MONO)
    )
    assert f"{clock(frame(0).wall)} (started)" in text(given_scene)
    assert "no data" not in text(scene(host(1, 61, ios=5)))


@pytest.mark.parametrize(
    "seconds", [pytest.param(one, marks=[pytest.mark.slow] * (one % 4 > 0)) for one in range(40, 60)]
)
def test_no_word_of_a_narrow_empty_part_is_cut(seconds):
    assert "…" not in text(scene(host(1, seconds, ios=5)))


def test_a_sweep_writes_a_column_over_the_oldest():
    timeline = quick([[100]] * 13, sweep=True)
    assert [c.number for c in timeline.columns] == list(range(4, 13))
    row = plain(body(timeline, "nvme0n1", STYLE)[-1 - STYLE.scale.row_of(100)])
    assert row == "▄▄▄│▄▄▄▄▄▄"
    assert plain(axis(timeline, STYLE))[6:].index("▲") == 3
    swept = text(scene(host(1, 70, ios=5), Selection(sweep=True)))
    assert "▲now" in swept or "now▲" in swept


def test_one_second_of_a_sweep_changes_two_columns_at_most():
    before, after = quick([[100, 9000]] * 25, sweep=True), quick([[100, 9000]] * 26, sweep=True)
    changed = {
        x
        for old, new in zip(body(before, "nvme0n1", STYLE), body(after, "nvme0n1", STYLE), strict=True)
        for x, (a, b) in enumerate(zip(plain(old), plain(new), strict=True))
        if a != b
    }
    assert len(changed) <= 2


@pytest.mark.parametrize("ink", [Ink(), RAMP])
def test_one_outlier_in_a_million_is_seen(ink):
    """The same colour, which is none of the ramp's, whether the cells around it hold ten or a million."""
    busy = Histogram.of({50: 999_999}, None, None)
    slow = Histogram.of({50: 999_999, 120: 1}, None, None)
    timeline = Timeline(SECOND, 10, OPS, [frame(1, {READ: busy}), frame(2, {READ: slow})])
    style = replace(STYLE, ink=ink, top=4**10, tail=tail_bucket(1_000))
    lines = labelled(timeline, "nvme0n1", style, 80, [SideMark(9_000_000, "max 9s", "strong")])
    row = lines[-1 - style.scale.row(120)]
    role = ink.tail()[1]
    assert [span.text.strip() for span in row if span.role == role] == ["▀" if ink.halves else "■"]
    assert role not in {ink.cell(i)[1] for i in range(1, ink.levels + 1)}
    assert any(span.role == "area" and span.text.strip() for span in row), "the side histogram has it, too"


@pytest.mark.parametrize("threshold_us", [1, 500, 1_000, 1_024, 500_000])
def test_the_tail_is_what_is_above_the_threshold(threshold_us):
    first = tail_bucket(threshold_us)
    assert bucket_bounds(first)[0] >= threshold_us
    assert bucket_bounds(first - 1)[0] < threshold_us
    assert tail_bucket(None) is None


def test_missing_time_is_a_hole():
    frames = [frame(1, {READ: Histogram.record([100])}), frame(5, {READ: Histogram.record([100])})]
    row = plain(body(Timeline(SECOND, 10, OPS, frames), "nvme0n1", STYLE)[0])
    assert row == "      ╎╎╎ "


def test_a_gap_inside_a_frame_is_marked_where_nothing_was():
    timeline = Timeline(SECOND, 10, OPS, [frame(1, {READ: Histogram.record([100])}, gap="reader-late")])
    column = [plain(line)[-1] for line in body(timeline, "nvme0n1", STYLE)]
    assert column.count("▄") == 1
    assert set(column) == {"▄", "╎"}


def test_jitter_makes_no_hole_and_no_double_column():
    rng = Random(3)
    frames = [frame(i, {READ: Histogram.record([100])}, late_us=rng.randrange(200_000)) for i in range(40)]
    timeline = Timeline(SECOND, 50, OPS, frames)
    assert len(timeline.columns) == 40
    assert not any(c.gap for c in timeline.columns)


def test_the_threshold_is_a_line_where_nothing_is():
    style = replace(STYLE, threshold_us=100_000)
    lines = labelled(quick([[100]] * 3), "nvme0n1", style, 80)
    row = lines[-1 - style.scale.row_of(100_000)]
    # the line has its own label in place of that of the row's lower edge
    assert plain(row).startswith("100ms┤┄┄┄┄┄┄┄┄┄┄")
    assert sum("┄" in plain(line) for line in lines) == 1


def test_other_resolutions_land_in_the_same_rows():
    fine = Histogram.record([100, 5000])
    coarse = Timeline(SECOND, 4, OPS, [frame(1, {READ: fine.coarsen(0)})])
    rows = {STYLE.scale.row(i) for i in coarse.columns[0].counts("nvme0n1")}
    assert rows == {STYLE.scale.row_of(64), STYLE.scale.row_of(4096)}


@given(st.integers(0, MAX_US), st.integers(0, MAX_US), st.integers(0, MAX_US), st.integers(2, 60))
def test_a_scale_holds_its_extent_and_the_oldest_io_in_flight(low, high, age, rows):
    low, high = sorted((low, high))
    span = extent({bucket_index(low): 1, bucket_index(high): 1}, bucket_index(age))
    scale = latency_scale(span, rows)
    assert scale.rows == rows
    assert scale.low <= span.low
    assert scale.edge_us(1) > 0
    highest = max(bucket_index(high), bucket_index(age))
    assert scale.low + scale.step * scale.rows > highest or scale.step == 256
    assert scale.row(highest) < rows - 1 or rows < 6 or scale.step == 256, "a row is left above it"
    whole_rows = {scale.row(bucket_index(us)) for us in (low, high)}
    assert {
        row // 2 for row in {scale.halves.row(bucket_index(us)) for us in (low, high)}
    } == whole_rows or scale.step % 2


def test_the_range_begins_where_a_thousandth_of_the_ios_are_faster():
    """One I/O of 4 us from the cache among 10,000 of 5 ms is in the lowest row and leaves the others their rows."""
    span = extent({bucket_index(4): 9, bucket_index(5000): 9991})
    assert span.low >= bucket_index(2048)
    assert latency_scale(span, 10).row(bucket_index(4)) == 0
    assert extent({bucket_index(4): 11, bucket_index(5000): 9989}).low == 4
    assert extent({}) is None


@pytest.mark.parametrize(
    ("rows", "step", "labels"),
    [
        (37, 4, "16us 64us 256us 1ms 4ms 16ms 64ms 256ms 1s"),
        (20, 8, "16us 64us 256us 1ms 4ms 16ms 64ms 256ms 1s 4.2s"),
        (16, 12, "8us 64us 512us 4ms 32ms 256ms 2.1s 17s"),
        (13, 12, "8us 64us 512us 4ms 32ms 256ms 2.1s"),
        (11, 16, "16us 64us 256us 1ms 4ms 16ms 64ms 256ms 1s 4.2s"),
    ],
)
def test_labels_are_nominal_and_equally_far_apart(rows, step, labels):
    """8 us to 4 s are 18 octaves."""
    scale = latency_scale(Extent(8, 151), rows)
    texts = [label(replace(STYLE, scale=scale), row).text.strip("│┤ ") for row in range(rows)]
    at = [row for row, text in enumerate(texts) if text]
    assert scale.step == step
    assert len({b - a for a, b in pairwise(at)}) == 1
    assert [text for text in texts if text] == labels.split()


@pytest.mark.parametrize(("power", "text"), [(0, "1us"), (9, "512us"), (10, "1ms"), (19, "512ms"), (20, "1s")])
def test_a_power_of_two_is_named_as_people_name_it(power, text):
    assert nominal(1 << power) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0us"),
        (3 << 8, "768us"),
        (3 << 19, "1.6s"),
        (1 << 25, "34s"),
        (1 << 26, "67s"),
        (3 << 25, "100s"),
        (1 << 30, "18min"),
    ],
)
def test_a_name_of_a_latency_is_near_it(us, text):
    """Names in powers of 2 would be 5 % off in seconds, and 12 % in minutes: 1.5min for 100.7 s."""
    assert nominal(us) == text


def test_each_label_from_a_second_on_is_its_latency_in_two_digits():
    for index in range(bucket_index(1 << 20), TOP + 1):
        us = bucket_bounds(index)[0]
        name = nominal(us)
        assert len(name) < LABEL
        assert duration_us(name) == pytest.approx(us, rel=0.05), name


def test_the_lowest_row_is_never_called_zero():
    assert [label(STYLE, row).text for row in (0, 1)] == ["     │", " 16us┤"]
    assert label(replace(STYLE, scale=LatencyScale(0, 64, 2)), 0).text == "     │"


def test_the_last_step_is_round():
    numbers = (1, 4, 5, 9, 13, 49, 129, 200, 4_999)
    assert [last_step(round_number(n)) for n in numbers] == [5, 5, 5, 5, 10, 20, 100, 200, 2_000]


@pytest.mark.parametrize("full", [1, 4, 16, 129, 4096, 10**6])
def test_each_step_begins_at_its_count(full):
    found = begins(full, 9)
    assert all(level(n, full, 9) == step for step, n in found.items())
    assert all(level(n - 1, full, 9) < step for step, n in found.items())
    assert {level(n, full, 9) for n in range(1, min(full, 10_000) + 1)} <= set(found)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_levels_follow_the_count(a, b):
    low, high = sorted((a, b))
    assert level(low, 4096, 9) <= level(high, 4096, 9) <= 9
    assert (level(low, 4096, 9) == 0) == (low == 0)


# ---- unlike its peers


def compare(frames, n, window_s=60):
    return unlike(frames[-window_s:], window_s * SECOND, {d.name: d for d in disks(n)}, OPS)


def test_the_one_with_a_tail_is_found_among_24():
    """The odd drive's mean differs by a few microseconds from the others'; its tail is what it is found by."""
    found = compare(host(24, 61, odd="nvme7n1", ios=60), 24)
    assert set(found) == {"nvme7n1"}
    assert found["nvme7n1"] > 100


@pytest.mark.slow
def test_equal_drives_with_extreme_noise_are_left_alone():
    rng = Random(7)
    intervals = []
    for second in range(1000):
        tails = {
            Series(d.name, "read", "total"): Histogram.record(
                [100] * 30 + [int(100 * rng.paretovariate(1.2)) for _ in range(5)]
            )
            for d in disks(24)
        }
        intervals.append(frame(second, tails))
    for end in range(60, 1000, 30):
        assert compare(intervals[:end], 24) == {}


def test_one_odd_drive_among_24_with_extreme_noise_is_found():
    rng = Random(8)
    intervals = []
    for second in range(61):
        tails = {
            d.name: [100 + i % 6] * 30 + [int(100 * rng.paretovariate(1.2)) for _ in range(5)]
            for i, d in enumerate(disks(24))
        }
        tails["nvme4n1"].append(rng.randrange(400_000, 900_000))
        intervals.append(
            frame(second, {Series(n, "read", "total"): Histogram.record(values) for n, values in tails.items()})
        )
    assert set(compare(intervals, 24)) == {"nvme4n1"}


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "seconds"), [(1, 180), (2, 300)])
def test_the_demos_sick_disk_is_on_top_from_30_s_on(seed, seconds):
    """Whatever its bursts do to the scatter, and though a part of a window may have few of its slow I/Os."""
    frames, given_scene, found = host_window.frames(Random(seed), Random()), scene([], origin=DemoBackend().origin), []
    for second in range(seconds):  # its load repeats itself after 90
        given_scene.append(next(frames))
        if second >= 30:
            found += [tuple(s.device.name for s in given_scene.view.subjects() if s.times_peers)]
            assert given_scene.view.subjects()[0].device.name == demo_host.UNLIKE, second
    assert set(found) == {(demo_host.UNLIKE,)}


def test_chance_is_exact_for_all_and_never_overflows():
    assert chance(6, 6, 0.2) == pytest.approx(0.2**6)
    assert chance(1, 10, 0.2) == chance(0, 0, 0.2) == 1.0
    assert chance(10**6, 10**7, 0.05) < 1e-9


def test_a_single_bad_interval_is_not_enough():
    frames = host(6, 61, ios=40)
    bad = host(6, 61, odd="nvme2n1", ios=40)
    assert compare(frames[:20] + bad[20:28] + frames[28:], 6) == {}


def test_without_peers_there_is_no_unlikeness():
    assert compare(host(3, 61, odd="nvme0n1", ios=40), 3) == {}


def test_the_odd_one_is_on_top_and_selected():
    shown_ = text(scene(host(8, 70, odd="nvme5n1", ios=40)))
    first = next(line for line in shown_.splitlines() if line.startswith("▸"))
    assert first.startswith("▸nvme5n1")
    assert re.search(r" [0-9.k]+x ", first)
    assert re.search(r"^─ nvme5n1 .*  [\d,]+ I/Os, no threshold  ", shown_, re.MULTILINE)
    assert "peers'" not in shown_, "the ratio has a column"


# ---- table


def test_a_mix_names_every_op_that_happened():
    assert mix({"read": 10**6, "flush": 1}) == ">99% read, <1% flush"
    assert mix({"read": 3, "write": 2, "flush": 1}) == "50% read, 33% write, 17% flush"
    assert mix({}) == ""


def test_the_shares_of_ops_are_columns_of_a_wide_table():
    done = {Flow("nvme0n1", op): Completed(n, 0, None) for op, n in (("read", 3), ("write", 2), ("flush", 1))}
    window = Window(60 * SECOND, [replace(frame, kernel=done, seen={}) for frame in host(1, 2)])
    subject, (columns, _) = Subject(disks(1)[0], window, Selection()), fitting(200, distribution=True)
    cells = {f.title: f.make(subject, f.width) for f, _ in columns if f.title in ("reads", "writes", "others")}
    assert cells == {"reads": "50%", "writes": "33%", "others": "17%"}
    assert "mix" not in {f.title for f, _ in columns}, "only where it is asked for"


def test_the_table_has_a_column_of_failed_ios_as_soon_as_one_failed():
    frames = host(2, 3)
    failed = {FailedIO("nvme1n1", "write", "I/O error"): 4, FailedIO("nvme1n1", "read", "time-out"): 1}
    assert "failed" not in text(scene(frames))
    screen = text(scene([*frames[:-1], replace(frames[-1], tables={ERRORS: failed})])).splitlines()
    head = next(line for line in screen if "IOPS" in line)
    end = head.index("failed") + len("failed")
    rows = {line[1:8]: line[:end].split()[-1] for line in screen if line[1:5] == "nvme"}
    assert rows == {"nvme0n1": "0", "nvme1n1": "5"}


def test_a_device_whose_ios_all_fail_says_why_it_has_no_map():
    done = {Flow("nvme0n1", "read"): Completed(5, 0)}
    failed = {FailedIO("nvme0n1", "read", "offline"): 5}
    frames = [replace(frame, histograms={}, kernel=done, seen=done, tables={ERRORS: failed}) for frame in host(1, 2)]
    assert "10 I/Os completed, but the probe timed none of them; 10 failed" in text(scene(frames))


@pytest.mark.parametrize("driver", ["nvme", "virtio_blk", "megaraid_sas"])
def test_a_driver_is_whole_at_120_columns_where_latencies_have_no_distribution(driver):
    subject = Subject(replace(disks(1)[0], driver=driver), Window(60 * SECOND, host(1, 2)), Selection())
    columns, trend = fitting(120, distribution=False, driver=len(driver))
    assert driver in "".join(text for text, *_ in device_table.row(subject, columns, 0))
    assert (trend >= 12, trend == fitting(120, distribution=False)[1]) == (True, driver == "nvme")


@given(st.integers(40, 300), st.booleans(), st.integers(0, 40))
def test_columns_fit_every_width(cells, distribution, driver):
    columns, trend = fitting(cells, distribution=distribution, driver=driver)
    assert 1 + sum(width + 1 for _, width in columns) + trend <= cells


def test_80_columns_hold_what_was_promised():
    columns, trend = fitting(80, distribution=True)
    titles = [c.title for c, _ in columns]
    assert titles == ["device", "IOPS", "MB/s", "p50", "p99", "p99.9", "max", "depth", "peers"]
    assert trend >= 10


@pytest.mark.parametrize(("width", "cells"), [(80, 17), (160, 18)])
def test_rows_that_are_hosts_have_long_names_and_no_model(width, cells):
    titles = ("model", "IOPS", "mean", "p50", "p99", "p99.9", "max", "depth", "queue", "peers")
    hosts = [Device(name, 0, at, kind="host") for at, name in enumerate(("db-storage-07:9750", "a"))]
    assert are_hosts(hosts)
    assert not are_hosts(disks(1))
    wanted, name = host_columns(titles, width), name_cells(hosts, Selection())
    columns, _ = fitting(width, distribution=True, titles=wanted, name=name)
    assert columns[0][1] == cells
    assert "model" not in {field.title for field, _ in columns}


def test_without_sums_the_mean_is_the_kernel_s_and_called_so():
    def row(us=None, **origin):
        of_kernel = {Flow("nvme0n1", "read"): Completed(10, 4096, 25_000)}
        given_frame = replace(frame(1, {READ: Histogram.of({80: 10}, us, 1100)}, devices=disks(1)), kernel=of_kernel)
        lines = text(scene([given_frame], origin=replace(ORIGIN, **origin)), (160, 40)).splitlines()
        at = next(n for n, line in enumerate(lines) if " IOPS " in line)
        return lines[at], lines[at + 1]

    titles, cells = row(tier="C", latency_from="issue")
    assert " kmean " in titles
    assert cells[: titles.index("kmean") + 5].endswith("2.50ms")
    # FreeBSD's devstat has sums of what begins at the issue, and many imported tables have them.
    titles, cells = row(10_500, latency_from="issue")
    assert " mean " in titles
    assert "1.05ms" in cells
    # Elsewhere a mean is the probe's or not known.
    titles, cells = row()
    assert " mean " in titles
    assert "kmean" not in titles
    assert "2.50ms" not in cells


def test_the_title_of_the_table_has_order_filter_and_op():
    given_scene = scene(host(8, 5))
    title = text(given_scene, (120, 40)).splitlines()[2]
    assert re.fullmatch("╭─ devices 1-7 of 8 ─+ sort s worst first   filter / none   ops o all ─╮", title)
    assert "filter" not in text(given_scene)
    given_scene.choose(replace(given_scene.selection, pattern="nvme1*", sort="p99", op="read"))
    for size, gap in (((80, 24), " "), ((120, 40), "─")):
        title = text(given_scene, size).splitlines()[2]
        assert re.fullmatch(f".?─ devices 1 {gap}+ sort s p99   filter / nvme1\\*   ops o read .*", title)


def test_no_cell_is_ever_wider_than_its_column():
    given_scene = scene(host(8, 30, odd="nvme1n1"))
    for subject in given_scene.view.subjects():
        for column in COLUMNS:
            made_of = column.make(subject, column.width)
            cells = made_of if isinstance(made_of, str) else plain(made_of)
            assert len(cells) <= column.width or column.title in ("driver", "model", "label", "device")


def test_rows_do_not_dance():
    """Equal devices stay by name while their numbers change."""
    frames = host(12, 40)
    given_scene = scene(frames[:20])
    names = [s.device.name for s in given_scene.view.subjects()]
    for current_frame in frames[20:]:
        given_scene.append(current_frame)
        assert [s.device.name for s in given_scene.view.subjects()] == names
    assert names == sorted(names, key=natural)


@pytest.mark.parametrize("sort", ["p99", "max", "IOPS", "MB/s", "out", "name"])
def test_every_order_is_one(sort):
    given_scene = scene(host(5, 20, odd="nvme3n1"), Selection(sort=sort))
    assert len(given_scene.view.subjects()) == 5
    if sort in ("p99", "max"):
        assert given_scene.view.subjects()[0].device.name == "nvme3n1"


def test_a_device_that_is_gone_keeps_its_row_while_the_window_remembers_it():
    frames = host(3, 10)
    given_scene = scene([*frames, frame(11, removed=("nvme1n1",))], Selection(window_us=15 * SECOND))
    assert re.search(r"nvme1n1.*gone", text(given_scene))
    for second in range(12, 40):
        given_scene.append(frame(second))
    assert "nvme1n1" not in text(given_scene)


def of_loops(second, *, removed=()):
    """A host with idle loop devices before a busy disk by name."""
    names = ("loop0", "loop1", "loop2", "vda")
    values = {name: [90] * (1900 if name == "vda" else 2) for name in names if name not in removed}
    records = {Series(name, "read", "total"): Histogram.record(some) for name, some in values.items()}
    devices = tuple(Device(name, 7, n) for n, name in enumerate(names)) if second == 1 else ()
    return frame(second, records, devices=devices, removed=removed)


@pytest.mark.parametrize("screen_name", ["overview", "stages", "outstanding"])
def test_a_screen_opens_on_the_busy_disk_not_on_an_idle_loop_device(screen_name):
    given_scene = scene([of_loops(second) for second in range(1, 12)], Selection(screen=screen_name))
    subjects = given_scene.view.subjects()
    assert [s.device.name for s in subjects] == ["vda", "loop0", "loop1", "loop2"]
    assert subjects[0].selection.selected == "vda"


def test_a_removed_device_gives_the_selection_back():
    given_scene = scene([of_loops(second) for second in range(1, 5)], Selection(selected="loop1"))
    assert given_scene.view.subjects()[0].selection.selected == "loop1"
    given_scene.append(of_loops(5, removed=("loop0",)))
    assert given_scene.view.subjects()[0].selection.selected == "loop1"
    given_scene.append(of_loops(6, removed=("loop1",)))
    assert given_scene.view.subjects()[0].selection.selected == "vda"
    given_scene.choose(replace(given_scene.selection, selected="loop2"))
    given_scene.pause()
    given_scene.append(of_loops(7, removed=("loop2",)))
    assert given_scene.view.subjects()[0].selection.selected == "loop2", "what is frozen stays"
    given_scene.resume()
    assert given_scene.view.subjects()[0].selection.selected == "vda"


def test_a_trend_has_one_scale():
    assert sparkline([1000.0, None, 1.0], 3, (1, 1000)) == "█ ▁"
    assert sparkline([], 5, (1, 1)) == ""


# ---- filter and selection


@pytest.mark.parametrize(
    ("pattern", "hit"),
    [
        ("", True),
        ("nvme1", True),
        ("NVME", True),
        ("nvme?n1", True),
        ("*ssd*", True),
        ("sda", False),
        ("[z]*", False),
        ("[", False),
    ],
)
def test_filters(pattern, hit):
    assert matches(disks(2)[1], pattern) is hit


def test_the_command_lines_globs_hold_beside_the_filter():
    selection = Selection(globs=("nvme1*",), pattern="nvme")
    assert [d.name for d in shown(disks(3), selection)] == ["nvme1n1"]


def test_window_lengths_stop_at_their_ends():
    assert window_beside(60 * SECOND, 1) == 120 * SECOND
    assert window_beside(600 * SECOND, 1) == 600 * SECOND
    assert window_beside(15 * SECOND, -1) == 15 * SECOND


# ---- why there is nothing


def test_every_emptiness_has_its_reason():
    starting = Scene(Selection())
    assert "starting: opening the backend" in text(starting)
    starting.store.origin = ORIGIN
    assert "the first interval (1 s) isn't over yet" in text(starting)
    starting.append(frame(1))
    assert "bpftrace sees no block device here" in text(starting)
    filtered = text(scene(host(3, 5), Selection(pattern="zzz")))
    assert "filter 'zzz' matches none of 3 devices; Esc clears the filter" in filtered
    zoomed = scene(host(3, 5), Selection(pattern="zzz", panel="zoom"))
    zoomed.choose(STEPS["leave"](zoomed.view, 0))
    assert (zoomed.selection.pattern, zoomed.selection.panel) == ("", "zoom"), "the first Esc does what the screen says"
    assert "--device zz* matches none of 3" in text(scene(host(3, 5), Selection(globs=("zz*",))))
    assert "no discard I/O completed on nvme0n1 in the last 5 s; " in text(scene(host(3, 5), Selection(op="discard")))


def test_a_device_that_is_not_timed_says_where_it_is():
    dm = Device("dm-0", 253, 0, kind="dm", members=("sda", "sdb"), timed=False)
    assert "dm-0 (dm) isn't timed itself: its I/O is timed at sda, sdb" in text(scene([frame(1, devices=(dm,))]))


def test_ios_that_took_less_than_a_microsecond_are_drawn():
    screen = text(scene([frame(1, {READ: Histogram.record([0] * 2000)}, devices=disks(1))]))
    assert re.search(r"p50.* 0us", screen)


def test_quantiles_that_are_the_maximum_are_one_label():
    screen = text(scene([frame(1, {READ: Histogram.record([3968] * 2000)}, devices=disks(1))]), (160, 50))
    assert "p50-max 3.97ms" in screen


def test_ios_that_no_probe_timed_are_not_no_ios():
    done = {Flow("nvme0n1", "flush"): Completed(7, 0)}
    given_frame = Frame(1, 0.0, 1, SECOND, kernel=done, devices=disks(1))
    assert "7 I/Os completed, but the probe timed none of them" in text(scene([given_frame]))


def test_without_distributions_the_mean_is_shown_and_why():
    done = {Flow("nvme0n1", "read"): Completed(100, 819_200, 120_000), Flow("nvme0n1", "write"): Completed(0, 0, 0)}
    given_frame = Frame(1, 0.0, SECOND, SECOND, kernel=done, devices=disks(1))
    screen = text(scene([given_frame], origin=PROCFS))
    assert "procfs counts I/Os and does not time each of them, so the bars are means: bpftrace isn't" in flat(screen)
    assert re.search(r"(?m)^ read .*│ mean 1\.20?ms", screen)
    assert "p99" not in screen
    assert re.search(r"nvme0n1.* 1\.20ms ", screen)
    assert "bpftrace isn't installed" in screen
    assert "procfs, no probe" in screen


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_reads_and_writes_apart_explain_once_that_there_are_means_alone(size):
    done = {Flow("nvme0n1", op): Completed(100, 819_200, 120_000) for op in ("read", "write")}
    given_frame = Frame(1, 0.0, SECOND, SECOND, kernel=done, devices=disks(1))
    given_scene = scene([given_frame], Selection(apart=True), PROCFS)
    lines = inside(screen_lines(given_scene, (), *size))
    assert " ".join("\n".join(lines).split()).count("so the bars are means") == 1
    titles = [line.split("│")[0].split()[0] for line in lines if re.match(r" *(read|write|IOPS|MB/s) .*│", line)]
    assert titles == ["read", "IOPS", "MB/s", "write", "IOPS", "MB/s"]


def test_a_quantile_that_is_not_known_says_what_it_needs():
    few = scene([frame(1, {READ: Histogram.record([100] * 50)}, devices=disks(1))])
    assert "p99 needs 100 I/Os" in text(few)
    assert unknown_quantiles(Histogram.record([100] * 5000)) == ""


# ---- the lines that never leave


def test_health_is_on_the_screen_and_what_is_wrong_comes_first():
    state = Health(probes_attached=2, probes_wanted=3, lost_events=12, dropped_frames=4, self_cpu_percent=1.84)
    given_scene = scene([frame(1, {READ: Histogram.record([5])}, devices=disks(1), health=state)])
    line = text(given_scene).splitlines()[-2]
    assert line.startswith(" probes 2/3  lost 12  dropped frames 4  ")
    assert "cpu" not in line


def test_a_healthy_line_is_empty_and_the_page_of_details_has_the_rest():
    flow = Flow("nvme0n1", "read")
    state = Health(probes_attached=3, probes_wanted=3, self_cpu_percent=1.84)
    given_frame = frame(1, {READ: Histogram.record([5])}, devices=disks(1), health=state)
    given_scene = scene([replace(given_frame, seen={flow: Completed(9997, 0)}, kernel={flow: Completed(10_000, 0)})])
    assert text(given_scene).splitlines()[-2].split() == ["not", "recording"]
    given_scene.choose(STEPS["details"](given_scene.view, 0))
    page = text(given_scene, (120, 50))
    for part in ("coverage 99.97%", "probes 3/3", "lost 0", "unmatched 0", "skipped -", "cpu 1.8%", "not recording"):
        assert part in page
    assert "events that the probe tool could not deliver" in page
    assert "This source" in page
    assert given_scene.selection.context == "details"
    given_scene.choose(STEPS["leave"](given_scene.view, 0))
    assert "This source" not in text(given_scene, (120, 50))


def test_what_was_skipped_is_shown_when_it_was():
    for skipped, output in ((1200, "skipped 1,200"), (0, "skipped 0"), (None, "skipped -")):
        given_scene = scene([frame(1, devices=disks(1), health=Health(skipped=skipped))])
        assert "skipped" not in text(given_scene)
        given_scene.choose(STEPS["details"](given_scene.view, 0))
        assert output in text(given_scene, (80, 50))


@pytest.mark.parametrize(("lost", "why"), [(0, ""), (10**6, ""), (10**6, "recording to host.gz stopped: no space")])
def test_that_nothing_is_recorded_is_whole_or_left_out(lost, why):
    state = Health(1, 2, lost_events=lost, map_full=lost, stale=lost, undecoded_lines=lost, recording_trouble=why)
    given_frame = frame(1, {READ: Histogram.record([5])}, devices=disks(1), health=state)
    line = text(scene([given_frame])).splitlines()[-2]
    assert line.endswith(" not recording ") == (not lost or bool(why))
    assert ("rec" in line) == ("not recording" in line)


@pytest.mark.parametrize(
    ("seen", "seconds", "output"),
    [
        (1004, 1, ""),
        (1129, 1, ""),
        (1300, 1, "coverage 130.00%: counted twice"),
        (1050, 20, ""),
        (1060, 20, "coverage 106.00%: counted twice"),
    ],
)
def test_more_seen_than_there_was_is_counted_twice(seen, seconds, output):
    """Seen on a busy host: 112.93 % in 1 s, because the two counters are read up to some 0.2 s apart."""
    flow = Flow("nvme0n1", "read")
    given_frame = replace(
        frame(1, devices=disks(1)), seen={flow: Completed(seen, 0)}, kernel={flow: Completed(1000, 0)}
    )
    line = text(scene([replace(given_frame, dt_us=seconds * SECOND)])).splitlines()[-2]
    assert line.split("not recording")[0].strip() == output


def test_a_short_first_window_has_no_coverage():
    """Seen: 111.43 % in 0.2 s, because the kernel's counter was read before the probe's."""
    flow = Flow("nvme0n1", "read")
    given_frame = replace(frame(1, devices=disks(1)), seen={flow: Completed(590, 0)}, kernel={flow: Completed(350, 0)})
    short, whole = (scene([replace(given_frame, dt_us=dt_us)]) for dt_us in (499_999, 500_000))
    assert "coverage" not in text(short)
    assert "counted twice" in text(whole).splitlines()[-2]
    short.choose(STEPS["details"](short.view, 0))
    assert "coverage -" in text(short)


def test_a_notice_and_a_recording_are_shown():
    state = Health(notice="the disk is full: recording waits", recording="db-07.latmon.jsonl.gz")
    screen = text(scene([frame(1, devices=disks(1), health=state)]))
    assert "the disk is full: recording waits" in screen
    assert "● db-07.latmon" in screen


def test_a_capture_that_ended_records_no_more():
    given_scene = scene([frame(1, devices=disks(1), health=Health(recording="db-07.latmon.jsonl.gz"))])
    given_scene.ended = "the collector was killed by SIGKILL"
    assert text(given_scene).splitlines()[-2].endswith("not recording ")


@pytest.mark.parametrize(
    ("captured", "fixed", "output"),
    [
        (2_000, 2_000, "5 above 2ms"),
        (2_000, 1_500, "5 above 1.54ms (┄1.5ms)"),
        (2_000, 2_020, "4 above 2.05ms (┄2.02ms)"),
        pytest.param(None, 2_000, "4 above 2.05ms (┄2ms)", id="automatic: it may have been another one before"),
    ],
)
def test_what_is_above_the_threshold_is_counted_not_summed_from_buckets(captured, fixed, output):
    slow = Histogram.record([100] * 95 + [2_010, 2_900, 3_000, 4_000, 5_000])
    given_frame = replace(
        frame(1, {READ: slow}, devices=disks(1)),
        tables={ABOVE: {Flow("nvme0n1", "read"): 5}},
        thresholds_us={"nvme0n1": 2_000},
    )
    given_scene = scene(
        [given_frame], Selection(threshold_us=fixed), origin=replace(ORIGIN, extra={"threshold_us": captured})
    )
    assert output in text(given_scene)


def test_small_maps_say_what_their_line_is():
    made = scene(host(4, 5), Selection(panel="maps", threshold_us=1_000))
    assert "  1ms┤┄" in text(made)


def test_of_the_health_line_caveats_are_there_and_settings_are_not():
    busy = Health(3, 3, suppressed=775, unmatched=12, skipped=507, self_cpu_percent=1.8, probe_cpu_percent=0.8)
    given_scene = scene([frame(1, {READ: Histogram.record([100])}, devices=disks(1), health=busy)])
    for size in ((160, 50), (80, 24)):
        line = text(given_scene, size).splitlines()[-2].removeprefix("╰─")
        assert re.match(" 775 slow I/Os not listed +[─n]", line)
        assert "cpu" not in line
        assert "…" not in line


def test_records_without_room_are_on_the_health_line():
    given_scene = scene(
        [frame(1, {READ: Histogram.record([100])}, devices=disks(1), health=Health(3, 3, dropped_records=9))]
    )
    assert "records dropped 9" in text(given_scene)


def test_the_title_says_where_when_and_how():
    zone = time.strftime("%Z", time.localtime(frame(3).wall))
    for cells, more in ((80, ()), (120, ("kernel 6.12.107, 1 device",))):
        title = text(scene(host(1, 3)), (cells, 24)).splitlines()[0]
        for part in ("latmon overview", "db-07", f"03:00:03 {zone}  last 60 s  ● LIVE", *more):
            assert part in title


def test_a_long_name_of_a_host_leaves_place_for_the_time():
    """Clouds give names of 47 characters."""
    name = "ip-10-123-123-123.eu-central-1.compute.internal"
    given_scene = scene(host(1, 3), origin=replace(ORIGIN, host=name))
    for cells in (80, 100, 160):
        title = text(given_scene, (cells, 24)).splitlines()[0]
        assert all(part in title for part in ("ip-10-123-123-123.eu-cent", "03:00:03", "last 60 s  ● LIVE")), title
    assert name in title


def test_paused_is_frozen_while_frames_arrive():
    frames = host(4, 40)
    given_scene = scene(frames[:20])
    given_scene.pause()
    before = text(given_scene)
    for current_frame in frames[20:33]:
        given_scene.append(current_frame)
    frozen = text(given_scene)
    assert "PAUSED 03:00:20, 13 s behind" in frozen
    assert frozen.splitlines()[1:] == before.splitlines()[1:]
    given_scene.choose(replace(given_scene.selection, window_us=30 * SECOND))
    assert "03:00:20" in text(given_scene).splitlines()[0]
    given_scene.resume()
    assert "03:00:33" in text(given_scene).splitlines()[0]
    assert "LIVE" in text(given_scene).splitlines()[0]


def test_ended_says_so():
    given_scene = scene(host(1, 3), mode="REPLAY")
    assert text(given_scene).splitlines()[0].rstrip().endswith("REPLAY")
    given_scene.ended = ""
    assert text(given_scene).splitlines()[0].rstrip().endswith("ENDED")


# ---- sizes


@given(
    st.integers(1, 200), st.integers(1, 60), st.sampled_from(["overview", "maps", "zoom"]), st.sampled_from([0, 1, 30])
)
@example(40, 10, "maps", 30)
def test_every_size_is_filled_exactly_and_nothing_breaks(cells, rows, panel, n):
    given_scene = scene(host(n, 2, ios=5), Selection(panel=panel, threshold_us=50))
    lines = screen_lines(given_scene, (Span("keys"),), cells, rows)
    assert len(lines) <= rows
    if cells >= 40 and rows >= 10:
        assert len(lines) == rows
    else:
        assert plain(lines[0]) == "terminal too small"


def test_small_maps_have_seven_rows_at_least_and_the_others_are_on_further_pages():
    made = scene(host(8, 20, odd="nvme5n1", ios=40), Selection(panel="maps"))
    screen = text(made)
    seen = re.findall(r"(nvme\dn1) +p99", screen)
    assert seen[0] == "nvme5n1", "the worst is first"
    assert len(seen) == 4
    assert "maps 1-4 of 8" in screen
    assert all(text(made, size).count("│") + text(made, size).count("┤") >= 14 for size in ((80, 24), (80, 23)))
    made.choose(turn(made.view, 1))
    text(made)
    rest = re.findall(r"(nvme\dn1) +p99", text(made))
    assert len({*seen, *rest}) == 8
    assert "maps 5-8 of 8" in text(made)
    made.choose(turn(made.view, -1))
    assert re.findall(r"(nvme\dn1) +p99", text(made)) == seen
    wide = text(scene(host(24, 5, ios=20), Selection(panel="maps")), (160, 50))
    assert all(f"nvme{i}n1" in wide for i in range(24))


def test_small_maps_that_all_fit_keep_their_places_and_the_odd_one_is_named_with_its_ratio():
    made = scene(host(12, 61, odd="nvme5n1", ios=20), Selection(panel="maps"))
    screen = text(made, (160, 50))
    names = re.findall(r"(nvme\d+n1) +p99", screen)
    assert names == sorted((d.name for d in disks(12)), key=natural)
    assert re.search("─ maps 12, one scale for all ─+ sort s by name ", screen)
    assert "▸nvme5n1" in screen, "the worst one is selected all the same"
    odd = [span.text for line in screen_lines(made, (), 160, 50) for span in line if span.role == ODD]
    assert len(odd) == 1
    times = made.view.history.times_peers["nvme5n1"]
    assert re.fullmatch(rf"▸nvme5n1 +p99 \S+ (max \S+ )?{significant(times, 2)}x *", odd[0])
    made.choose(STEPS["move"](made.view, 1))
    assert "▸nvme6n1" in text(made, (160, 50)), "keys move through the places"
    made.choose(STEPS["move"](made.view, -1))
    assert re.findall(r"(nvme\d+n1) +p99", text(made))[0] == "nvme5n1", "paged, the worst one is first"
    made.choose(replace(made.selection, sort="p99"))
    assert re.findall(r"(nvme\d+n1) +p99", text(made, (160, 50)))[0] == "nvme5n1", "the chosen order"


@pytest.mark.parametrize(
    ("size", "n", "axes"), [((80, 25), 8, 2), ((80, 24), 4, 1), ((160, 51), 24, 1), ((40, 11), 1, 1)]
)
def test_small_maps_have_a_time_axis(size, n, axes):
    screen = text(scene(host(n, 60, ios=20), Selection(panel="maps")), size)
    lines = [line for line in screen.splitlines() if f"───{clock(frame(60).wall)}" in line]
    assert len(lines) == axes


def test_the_marker_of_a_sweep_never_leaves_the_axis_and_covers_no_stamp():
    for seconds in range(1, 60):
        timeline = quick([[100]] * seconds, slots=30, sweep=True)
        line = plain(axis(timeline, STYLE))
        assert len(line) == 36
        assert line.index("▲") - 6 == (timeline.newest() + 1) % 30
        assert re.fullmatch(r" +└(─|\d\d:\d\d:\d\d)*(▲now|now▲)(─|\d\d:\d\d:\d\d)*", line)


def test_stamps_never_leave_the_axis_and_cover_no_other():
    for seconds in range(1, 60):
        timeline = quick([[100]] * seconds, slots=30)
        line = plain(axis(timeline, STYLE))
        assert len(line) == 36
        assert re.fullmatch(rf" +└(─|\d\d:\d\d:\d\d(?=─))*─{clock(frame(seconds - 1).wall)}", line)


def failing(seconds, failed_in, op="read", ops=OPS):
    """A timeline of which one device's I/Os fail in some seconds."""
    failed = {ERRORS: {FailedIO("nvme0n1", op, "time-out"): 3}}
    frames = [frame(second, {READ: Histogram.record([100])}) for second in range(seconds)]
    return Timeline(SECOND, 30, ops, [frame.with_tables(failed if frame.seq in failed_in else {}) for frame in frames])


def test_the_first_column_of_failed_ios_has_a_letter_and_the_next_ones_a_line():
    timeline = failing(30, {4, 5, 6, 9})
    line = plain(axis(timeline, STYLE, "nvme0n1"))[6:]
    assert (line[4], line[9]) == ("E", "E")
    assert line[5:7] == "━━"
    assert "E" not in plain(axis(timeline, STYLE, "nvme1n1"))
    assert "E" not in plain(axis(timeline, STYLE))
    assert "E" not in plain(axis(failing(30, ()), STYLE, "nvme0n1"))
    text_of = [event.text for event in timeline.columns[4].events("nvme0n1")]
    assert text_of == ["failed I/Os of nvme0n1: 3 read (time-out)"]


def test_failed_ios_in_every_column_leave_the_times_on_the_axis():
    assert len(re.findall(r"\d\d:\d\d:\d\d", plain(axis(failing(30, range(30)), STYLE, "nvme0n1")))) == 2


def test_failed_ios_of_another_op_are_not_on_the_map_of_reads():
    assert "E" not in plain(axis(failing(9, {4}, "write", ("read",)), STYLE, "nvme0n1"))
    assert "E" in plain(axis(failing(9, {4}, "write", ("write",)), STYLE, "nvme0n1"))


def test_a_stamp_that_is_no_time_of_day_is_reported_as_none():
    wild = replace(frame(1, {READ: Histogram.record([5])}, devices=disks(1)), wall=1e300)
    assert "--:--:--" in text(scene([wild])).splitlines()[0]
    assert clock(float("nan")) == clock(-1e19) == "--:--:--"


@pytest.mark.parametrize("lines", [16, 17, 18, 20])
def test_four_small_maps_fit_below_a_long_finding(lines):
    actual_grid = grid(80, lines, 9, lambda cells: cells)
    assert actual_grid.tiles == 4
    assert actual_grid.tile_height >= 8
    assert bool(actual_grid.times) == (lines > 16), "the time axis goes first"


def test_tiles_that_do_not_fit_are_paged_by_the_selection():
    made = scene(host(40, 3, ios=5), Selection(panel="maps", selected="nvme39n1"))
    assert "▸nvme39n1" in text(made)
    assert grid(80, 20, 40, lambda c: c).tiles < 40


def test_zoom_shows_one_device():
    screen = text(scene(host(8, 5), Selection(panel="zoom", selected="nvme3n1")))
    assert "nvme3n1" in screen
    assert "nvme4n1" not in screen


# ---- lines


@given(st.lists(st.text("ab▪漢", max_size=6), max_size=4), st.integers(0, 12))
def test_fit_is_exact(parts, cells):
    line = fit(tuple(Span(p) for p in parts), cells)
    assert width(line) == cells


def test_runs_join_equal_roles():
    assert runs([("a", "x"), ("b", "x"), ("c", "y")]) == (Span("ab", "x"), Span("c", "y"))
    assert wrap("one two three", 7) == ["one two", "three"]


def test_the_help_says_what_is_measured_and_what_not():
    origin = Origin(
        **{f: getattr(ORIGIN, f) for f in ORIGIN.__slots__} | {"probes_missing": (Missing("blk_mq", "no BTF"),)}
    )
    help_ = "\n".join(plain(line) for line in pages([("Keys", [("q", "quit")])], origin, 80))
    for part in (
        "quit",
        "queued in the block layer",
        "includes irq, softirq, completion",
        "--stages all",
        "no BTF",
        "12.5 %",
        "the newest at the right edge",
    ):
        assert part in flat(help_)


def test_the_help_says_what_io_d_cannot_see():
    def shown(extra):
        origin = Origin(**{f: getattr(ORIGIN, f) for f in ORIGIN.__slots__} | {"extra": extra})
        return flat("\n".join(plain(line) for line in pages([], origin, 80)))

    assert "first bio only" in shown({"probe": "io_d"})
    assert "first bio" not in shown({"probe": "requests_d"})
    assert "don't add up their rows" in shown({})


def test_uncounted_ios_have_no_rate():
    on_demand, volume = Device("emlxs0", 0, 1, timed=False), Device("dm-0", 253, 0, timed=False)
    flow = Flow("dm-0", "read")
    window = Window(
        60 * SECOND, [replace(frame, kernel={flow: Completed(0, 0, None)}, seen={}) for frame in host(1, 2)]
    )
    titles = ("IOPS", "MB/s")
    made = {
        device.name: [c.make(Subject(device, window, Selection()), c.width) for c in COLUMNS if c.title in titles]
        for device in (on_demand, volume)
    }
    assert made == {"emlxs0": ["-", "-"], "dm-0": ["0", "0"]}
    idle = Subject(replace(on_demand, timed=True), window, Selection())
    assert [c.make(idle, c.width) for c in COLUMNS if c.title in titles] == ["0", "0"]


def test_a_window_is_shared_by_its_subjects():
    frames = host(1, 2)
    subject = Subject(disks(1)[0], Window(60 * SECOND, frames), Selection())
    assert subject.ios == 400
    assert subject.mean_us is not None
    assert Store().devices == {}


def off(seq, why, one_in=0):
    return replace(frame(seq), traced=Traced(one_in=one_in, absent=(Missing("hba", why),)))


def notice(made):
    return " ".join(plain(line) for line in made.draw(100, 20).notice)


def test_the_newest_notice_stands_for_eight_seconds():
    given_scene = scene(
        [replace(frame(0), health=Health(notice="one")), replace(frame(1), health=Health(notice="two"))]
    )
    assert notice(given_scene).strip() == "two"
    for seq in range(2, 9):
        given_scene.append(frame(seq))
    assert notice(given_scene).strip() == "two"
    given_scene.append(frame(9))
    assert notice(given_scene).strip() == ""


@pytest.mark.parametrize(
    ("many", "shown", "lines"),
    [
        ((5, 20), f"{'a ' * 5}; {'b ' * 20}", 1),
        ((30, 30, 30), f"{'a ' * 30}; {'b ' * 30} (+1 more)", 2),
        ((70, 30, 30), f"{'a ' * 70} (+2 more)", 2),
        ((110, 5), "a " * 110, 3),
        ((200, 5), "a " * 155 + "a…", 4),
    ],
)
def test_sentences_of_a_notice_are_shown_whole(many, shown, lines):
    text = "; ".join(" ".join(letter * n) for letter, n in zip("abc", many, strict=False))
    given_scene = scene([replace(frame(0), health=Health(notice=text))])
    seen = [plain(line).strip() for line in given_scene.draw(80, 24).notice]
    assert " ".join(seen) == " ".join(shown.replace(" ;", ";").split())
    assert len(seen) == lines


def test_a_recordings_whole_name_is_reported_when_it_begins_and_ends():
    name = "a-host-with-a-long-name-" + "20261122-114000.latmon.jsonl.gz"

    def at(seq, recording, trouble=""):
        return replace(frame(seq), health=Health(recording=recording, recording_trouble=trouble))

    given_scene = scene([at(0, name)])
    assert f"recording to {name}" in notice(given_scene).replace(" ", "").replace("recordingto", "recording to ")
    assert notice(scene([at(7, name)])).strip() == ""
    given_scene = scene([at(0, ""), at(9, name)])
    assert "recording to" in notice(given_scene)
    given_scene.append(at(10, ""))
    assert "recording ended: a-host" in notice(given_scene)
    given_scene.append(at(11, "", f"recording to {name} stopped: the disk is full"))
    assert "stopped: the disk is full" in notice(given_scene)
    assert given_scene.draw(80, 24).health[-1] == Span("not recording ", "bad")
    given_scene.append(at(12, "", "not recording: can't record: /proc/1 is not writable"))
    assert notice(given_scene).strip() == "not recording: can't record: /proc/1 is not writable"
    assert given_scene.draw(80, 24).health[-1] == Span("not recording ", "bad")


@pytest.mark.parametrize("name", ["a.gz", "a: b.gz", "a stopped: b.gz", "not recording: b.gz"])
def test_a_recordings_directory_is_reported_where_it_is_known(name):
    def at(seq, recording, trouble=""):
        return replace(frame(seq), health=Health(recording=recording, recording_trouble=trouble))

    given_scene = scene([at(0, "")])
    given_scene.expect_recording(Path("/var/tmp/a place"))
    given_scene.append(at(1, name))
    assert notice(given_scene).strip() == f"recording to {name} in /var/tmp/a place"
    given_scene.append(at(2, name, "the disk is slow"))
    assert f"recording to {name}: the disk is slow" in notice(given_scene)
    assert given_scene.recorded == f"{name} in /var/tmp/a place"
    given_scene.expect_recording(Path("/elsewhere"))
    given_scene.append(at(3, name))
    given_scene.append(at(4, ""))
    assert notice(given_scene).strip() == f"recording ended: {name} in /var/tmp/a place"
    assert given_scene.recorded == ""


def test_a_notice_and_the_answer_to_a_key_are_both_shown():
    given_scene = scene([frame(0)])
    given_scene.message = "saved the picture a.svg in /tmp"
    given_scene.append(replace(frame(1), health=Health(recording="b.gz")))
    lines = [plain(line).strip() for line in given_scene.draw(80, 24).notice]
    assert lines == ["» saved the picture a.svg in /tmp", "recording to b.gz"], "a sign is before the answer"
    given_scene.message = "every device is traced, always, " * 4
    answer, more, notice = map(plain, given_scene.draw(80, 24).notice)
    assert answer.startswith(" » every")
    assert more.startswith("   ")
    assert notice == " recording to b.gz"
    assert len(screen_lines(given_scene, (), 80, 24)) == 24


def test_what_the_tracer_does_is_reported_as_long_as_it_holds():
    given_scene = scene([off(0, "they took 9 % of a CPU")])
    assert text(given_scene).count("stages: off: they took 9 % of a CPU") == 1
    assert not_traced("stages", ORIGIN, state=given_scene.view.tracing) == "stages: off: they took 9 % of a CPU"
    given_scene.append(off(1, "the tracer is starting"))
    assert "stages: off" not in text(given_scene)
    assert not_traced("stages", ORIGIN, state=given_scene.view.tracing).startswith(
        "stages: the tracer is starting; its probes are compiled and attached"
    )
    given_scene.append(off(2, "", one_in=1))
    assert "press S" not in not_traced("stages", ORIGIN, state=given_scene.view.tracing)
    given_scene.append(frame(3))
    assert "press S" in not_traced("stages", ORIGIN, state=given_scene.view.tracing)


def test_the_help_does_not_call_unmeasured_what_is_traced():
    given_scene = scene([frame(0)])
    assert [one.name for one in given_scene.known.absent] == ["irq"]
    traced = Traced({Series("nvme0n1", "read", "irq"): Histogram(((5, 1),))}, one_in=1)
    given_scene.append(replace(frame(1), traced=traced))
    assert given_scene.known.absent == ()


def test_a_demo_says_what_it_does_before_its_first_window():
    asked = {"frames": 0, "devices": 0, "pattern": "", "globs": ()}
    assert "the demo makes its first windows" in why_no_rows(None, backend="demo", **asked)
    assert "the demo makes its first windows" in why_no_rows(replace(ORIGIN, backend="demo"), **asked)
    assert "the first interval" in why_no_rows(ORIGIN, **asked)


def test_softirqs_are_not_on_every_system():
    assert no_softirqs(ORIGIN) == ""
    assert no_softirqs(replace(ORIGIN, kernel="SunOS 5.11")).startswith("not on this system")


@pytest.mark.parametrize(
    ("screen", "mode", "absent", "sentence"),
    [
        ("outliers", "auto", "they took 9 % of a CPU", "stages are not traced since {}: they took 9 % of a CPU; S S"),
        ("outliers", "basic", "", "stages are not traced since {}; S traces again"),
        ("files", "all", "the tracer failed", "operations on files are not traced since {}: the tracer failed; S"),
        ("interrupts", "auto", "they took 9 % of a CPU", "stages are not traced since {}: they took"),
        ("outliers", "auto", TRACER_STARTING, ""),
        ("findings", "auto", "they took 9 % of a CPU", ""),
    ],
)
def test_a_tracer_that_stopped_is_reported_with_its_time_reason_and_key(screen, mode, absent, sentence):
    given_scene = scene([off(0, "", one_in=1), *(off(second, absent) for second in range(1, 6))])
    given_scene.choose(replace(ViewSettings(screen=screen).over(given_scene.selection), stages=mode))
    stopped_at = clock(off(0, "", one_in=1).wall)
    output = " ".join(text(given_scene, (160, 50)).split())
    assert ("not traced since" in output) is bool(sentence)
    assert sentence.format(stopped_at) in output


def test_files_that_the_budget_left_out_are_reported_while_stages_are_traced():
    lean = replace(off(0, "", one_in=1).traced, absent=(Missing(FILES, "the budget has no room for them"),))
    frames = [off(0, "", one_in=1), *(replace(off(second, ""), traced=lean) for second in range(1, 6))]
    given_scene = scene(frames)
    given_scene.choose(ViewSettings(screen="files").over(given_scene.selection))
    output = " ".join(text(given_scene, (160, 50)).split())
    assert "operations on files are not traced since" in output
    assert "the budget has no room for them; S S traces again" in output
    given_scene.choose(ViewSettings(screen="outliers").over(given_scene.selection))
    assert "not traced since" not in text(given_scene, (160, 50))
