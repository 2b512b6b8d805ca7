"""The sub-second offset map: a tick is a band, chance is none, and its sources are named."""

import re
from dataclasses import replace
from random import Random

import pytest
from frames import ORIGIN, SECOND, START_MONO, disks, frame

from latmon.model.frame import Outlier, Series
from latmon.model.histogram import Histogram
from latmon.model.inflight import Issue
from latmon.tui.commands import fold
from latmon.views.heatmap import RAMP, Ink
from latmon.views.lines import plain, width
from latmon.views.panels.overview import FOLDS, OffsetEvents, draw, moments, offset_map, why_none
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection

TICK = 4_000
READ = ("read",)


def on_ticks(n, jitter, seed=1):
    """Completions that softirqs of the tick make: within `jitter` of a multiple of 4 ms."""
    random = Random(seed)
    return tuple(START_MONO + random.randrange(60 * 250) * TICK + random.randrange(jitter) for _ in range(n))


def at_random(n, seed=1):
    random = Random(seed)
    return tuple(START_MONO + random.randrange(60 * SECOND) for _ in range(n))


def folded(outliers, fold_us=TICK, rows=11):
    return offset_map(OffsetEvents(outliers=outliers), START_MONO + 60 * SECOND, 60 * SECOND, 60, rows, fold_us=fold_us)


@pytest.mark.parametrize("n", [31, 200, 5000])
def test_a_tick_of_4_ms_is_a_band(n):
    actual_offset_map = folded(on_ticks(n, 400))
    assert actual_offset_map.is_banded
    assert sum(actual_offset_map.per_row) == n
    assert max(actual_offset_map.per_row) >= 0.85 * n


def test_even_noise_is_none():
    banded = [folded(at_random(n, seed), rows=rows).is_banded
              for seed in range(30) for n in (8, 31, 300) for rows in (8, 11, 30)]  # fmt: skip
    assert not any(banded)


def test_a_burst_in_one_second_is_no_band():
    burst = tuple(START_MONO + 7 * SECOND + us for us in range(0, 300, 3))
    assert not folded(burst, fold_us=SECOND).is_banded
    assert not folded(burst).is_banded


def test_the_fold_takes_the_clock_and_not_the_second():
    assert folded(on_ticks(300, 300), fold_us=TICK).is_banded
    assert not folded(on_ticks(300, 300), fold_us=SECOND).is_banded
    once_a_second = tuple(START_MONO + s * SECOND + 250_000 for s in range(60))
    assert folded(once_a_second, fold_us=SECOND).is_banded


def test_a_completion_is_before_its_waiter_ran_and_an_issue_when_it_went():
    slow = Outlier(0, 1_000_000, "sda", "read", 700, {"hba": 400, "resume": 300})
    other = Outlier(0, 1_000_000, "sdb", "read", 700)
    burst = (Issue(2_000_000, 8, 512, "read", 5), Issue(2_000_001, 8, 512, "write", 5))
    offset_events = moments("sda", (slow, other), (burst,), (), READ)
    assert offset_events.outliers == (1_000_400,)
    assert offset_events.issues == (2_000_000,)
    assert offset_events.words == "1 outlier by completion, 1 request by issue"


def test_short_windows_are_counted_only_where_nothing_is_finer():
    disk = Series("nvme0n1", "read", "total")
    frames = tuple(frame(i, {disk: Histogram.record([100] * 3)}) for i in range(3))
    assert not moments("nvme0n1", (), (), frames, READ).windows
    short = tuple(type(f)(f.seq, f.wall, f.mono_us, 100_000, f.histograms) for f in frames)
    offset_events = moments("nvme0n1", (), (), short, READ)
    assert sum(offset_events.counts().values()) == 9
    assert offset_events.words == "I/Os of windows of 100 ms"
    both = moments("nvme0n1", (Outlier(0, 5, "nvme0n1", "read", 7),), (), short, READ)
    assert sum(both.counts().values()) == 1


def test_nothing_fine_says_why():
    assert "--interval 100ms" in why_none(OffsetEvents(), recorded=False)
    assert "recording made with" in why_none(OffsetEvents(), recorded=True)
    assert not why_none(OffsetEvents(outliers=(1,)), recorded=False)


def test_a_device_that_no_request_passes_names_its_members():
    text = why_none(OffsetEvents(), recorded=False, members=("nvme0n1", "nvme1n1"))
    assert "timed at its members" in text
    assert text.endswith(": nvme0n1, nvme1n1")
    assert "100ms" not in text


@pytest.mark.parametrize("ink", [Ink(), RAMP])
@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 10)])
def test_the_screen_shows_it_and_why_there_is_none(size, ink):
    scene = Scene(Selection(fold="tick"), ink=ink)
    scene.store.origin = ORIGIN
    disk = Series("nvme0n1", "read", "total")
    slow = tuple(Outlier(0, us - 900, "nvme0n1", "read", 900) for us in sorted(on_ticks(60, 100)))
    for i in range(60):
        outliers = tuple(o for o in slow if START_MONO + i * SECOND <= o.mono_us + 900 < START_MONO + (i + 1) * SECOND)
        given_frame = frame(i + 1, {disk: Histogram.record([900])}, devices=disks(2) if not i else ())
        scene.append(
            type(given_frame)(**{**{k: getattr(given_frame, k) for k in given_frame.__slots__}, "outliers": outliers})
        )
    lines = screen_lines(scene, (), *size)
    text = "\n".join(map(plain, lines))
    assert all(width(line) <= size[0] for line in lines if "│" in plain(line) or "└" in plain(line))
    if size[1] > 10:
        assert "offset in the tick of 4 ms: 60 outliers by completion banded" in text
    scene.choose(Selection(fold="tick", selected="nvme1n1"))
    assert "finer than its window" in " ".join("\n".join(map(plain, screen_lines(scene, (), 160, 50))).split())


@pytest.mark.parametrize(
    ("of", "output"), [("second", "I/Os of windows of 100 ms"), ("tick", "100 ms are too long to see a tick")]
)
def test_short_windows_have_as_many_rows_as_there_are_of_them(of, output):
    scene = Scene(Selection(fold=of))
    scene.store.origin = replace(ORIGIN, interval_us=100_000)
    disk = Series("nvme0n1", "read", "total")
    for i in range(1, 200):
        given_frame = frame(
            i, {disk: Histogram.record([900] * (1 + 9 * (i % 10 == 3)))}, devices=disks(1) if i == 1 else ()
        )
        scene.append(replace(given_frame, mono_us=START_MONO + i * 100_000, dt_us=100_000))
    text = "\n".join(map(plain, screen_lines(scene, (), 80, 40)))
    assert output in " ".join(text.split())
    if of == "second":
        assert "banded" not in text
        assert len(re.findall(r"[│┤].*█", text)) == 10


def test_a_key_goes_round():
    scene = Scene(Selection())
    seen = []
    for _ in FOLDS:
        scene.choose(fold(scene.view, 0))
        seen.append(scene.selection.fold)
    assert seen == ["second", "tick", ""]


def test_a_map_has_one_kind_of_events_and_the_key_goes_on_to_the_other():
    disk = Series("nvme0n1", "read", "total")
    scene = Scene(Selection())
    scene.opened(ORIGIN)
    for n in range(1, 11):
        end = START_MONO + n * SECOND
        given_frame = frame(n, {disk: Histogram.record([100])}, devices=disks(1) if n == 1 else ())
        slow = (Outlier(0, end - 500_000, "nvme0n1", "read", 100),)
        burst = {"nvme0n1": tuple(Issue(end - us, us, 4096, "read", 0) for us in (700_000, 600_000))}
        scene.append(replace(given_frame, outliers=slow, issues=burst))
    seen = []
    for _ in range(5):
        scene.choose(fold(scene.view, 0))
        text = " ".join("\n".join(map(plain, screen_lines(scene, (), 120, 40))).split())
        seen.append((scene.selection.fold, re.findall(r"offset in the .*?: \d+ (\w+) by", text)))
    assert seen == [
        ("second", ["outliers"]),
        ("tick", ["outliers"]),
        ("second issues", ["requests"]),
        ("tick issues", ["requests"]),
        ("", []),
    ]


def test_an_empty_map_draws():
    actual_offset_map = offset_map(OffsetEvents(outliers=(5,)), 0, 60 * SECOND, 0, 1)
    assert draw(actual_offset_map, OffsetEvents(outliers=(5,)), 40, Ink())


def test_the_offsets_have_the_newest_second_at_the_right_edge_and_say_since_when_there_are_any():
    disk = Series("nvme0n1", "read", "total")
    outlier = Outlier(0, 0, "nvme0n1", "read", 100)
    scene = Scene(Selection(fold="second"))
    scene.opened(replace(ORIGIN, start_mono_us=START_MONO))
    for n in range(1, 21):
        slow = replace(outlier, mono_us=START_MONO + n * SECOND - 500_000)
        devices = disks(1) if n == 1 else ()
        scene.append(replace(frame(n, {disk: Histogram.record([100])}, devices=devices), outliers=(slow,)))
    lines = [plain(line) for line in screen_lines(scene, (), 80, 24)]
    assert any(" no data before 03:00:00 (started)" in line for line in lines)
    axis = next(line for line in lines if "└" in line)
    assert axis.rstrip().endswith("─03:00:20 per row")
    row = next(line for line in lines if re.search("[│┤].*█", line))
    assert row.rfind("█") == axis.index(" per row") - 1


@pytest.mark.parametrize(
    ("size", "fold_", "labels"),
    [
        ((80, 24), "second", "200ms 400ms 600ms 800ms"),
        ((80, 25), "tick", "1ms 2ms 3ms"),
        ((120, 40), "second", "200ms 400ms 600ms 800ms"),
        ((160, 50), "tick", "800us 1.6ms 2.4ms 3.2ms"),
    ],
)
def test_rows_are_labelled_evenly_and_bars_show_the_events_of_each(size, fold_, labels):
    made = Scene(Selection(fold=fold_))
    made.store.origin = ORIGIN
    disk = Series("nvme0n1", "read", "total")
    outlier = Outlier(0, 0, "nvme0n1", "read", 100)
    for n in range(1, 61):
        slow = replace(outlier, mono_us=START_MONO + n * SECOND - 700_000 + n * 100)
        devices = disks(1) if n == 1 else ()
        made.append(replace(frame(n, {disk: Histogram.record([100])}, devices=devices), outliers=(slow,)))
    lines = [plain(line).strip("│") for line in screen_lines(made, (), *size)]
    found = [match[1] for line in lines if (match := re.match(r" *([0-9.]+[um]s)┤", line))]
    assert found[::-1] == labels.split()
    rows = [line for line in lines if re.search(r"│▆+ +\d+ *$", line)]
    assert sum(int(re.search(r"(\d+) *$", line)[1]) for line in rows) == 60
    assert all(len(line) <= size[0] for line in rows)
