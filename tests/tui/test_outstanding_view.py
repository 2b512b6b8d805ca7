"""The outstanding view: gauge, bars under their limit, map, what is still in flight, audit; and its keys."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from frames import ORIGIN, PROCFS, SECOND, Lazy, Source, frame, host
from panels import scene
from report_json import summarised
from test_app import make, pressed, settled, whole
from test_screens import press, text

from latmon.aggregate.depth_sum import DepthSum
from latmon.aggregate.history import MAX_BURST, DepthLog, Window
from latmon.model.frame import Device, Limit, Outstanding, Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.inflight import PROBE, SYSFS, Aged, Ages, Depths, InFlight, InFlightList, Issue, Took
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.views import heatmap
from latmon.views.axes import Timeline
from latmon.views.device_table import Subject, of_limit, order
from latmon.views.heatmap import RAMP, DepthBand, Ink, depth_frames, ops
from latmon.views.history import DepthWindow
from latmon.views.lines import BLANK, plain, width
from latmon.views.panels.inflight import counted, in_words
from latmon.views.panels.outstanding import DepthView, depth_bars, depth_columns, outstanding
from latmon.views.screen import screen_lines
from latmon.views.selection import Selection

CROWDED, FREE = "nvme0n1", "nvme1n1"
LIMITS = (
    Limit("queue_depth", 3, "device/queue_depth"),
    Limit("scheduler", "mq-deadline", "queue/scheduler"),
    Limit("nr_requests", 64, "queue/nr_requests"),
    Limit("wbt_lat_usec", 75_000, "queue/wbt_lat_usec"),
)
FULL = Depths(
    in_driver={0: 100, 1: 50, 2: 50, 3: 800},
    queued={0: 300, 1: 100, 12: 500, 40: 100},
    at_issue={1: 5, 2: 15, 3: 180},
    latency={1: Took(10, 1000), 15: Took(150, 300_000), 43: Took(40, 240_000)},
    source=PROBE,
)
SAMPLED = Depths(in_driver={0: 900, 1: 90, 2: 10}, source=SYSFS)
HELD = InFlight(FREE, "write", 0, ("sync", "fua"), 81_920_448, 4096, 4211, "ora_lgwr", issued=True)


def waiting_host(seconds=40, *, reported=True):
    """Three disks; the first may have only 3 and many wait above it, a request of the second never completes."""
    frames = []
    for number, current_frame in enumerate(host(3, seconds, ios=20)):
        held = HELD._replace(began_us=frames[0].mono_us) if frames else None
        old_s = number if held else 0
        still = InFlightList((held,) if held else (), {s: int(old_s > s) for s in (1, 10, 60)}, 0)
        frames.append(
            replace(
                current_frame,
                devices=tuple(replace(d, limits=LIMITS if d.name == CROWDED else ()) for d in current_frame.devices),
                depths={CROWDED: FULL, FREE: SAMPLED},
                in_flight=still if reported else None,
                issues={CROWDED: tuple(Issue(i, 8 * i, 4096, "read", 5) for i in range(20))},
                outstanding={
                    CROWDED: Outstanding(3, 12),
                    FREE: Outstanding(1, None),
                    "nvme2n1": Outstanding(0, 0),
                },
            )
        )
    return frames


FRAMES = Lazy(waiting_host)
OPEN = Selection(screen="outstanding", selected=CROWDED)


def shown(*steps, size=(80, 24), frames=FRAMES, selection=OPEN, **options):
    return press(scene(frames, selection, **options), *steps, size=size)


def words(output):
    return " ".join(output.split())


# ---- one device


def test_the_gauge_is_against_the_limit_and_says_whose_it_is():
    output = shown(size=(160, 50))
    assert "nvme0n1 outstanding now  3 of 3 in the driver, 12 queued or finishing" in output
    assert "in the driver, last 40 s " in output
    assert "mean latency by outstanding   queued or finishing" in output
    assert "limit: queue_depth (device/queue_depth)" in output
    assert (
        "in driver: mode 3 (80% of the time), max 3, mean 2.55, idle 10%  "
        "last 40 s: measured by a probe, weighted by time" in output
    )
    assert "┄ limit 3 ┄" in output


def test_sampled_depths_are_marked_and_have_no_unmeasured_columns():
    output = shown(selection=replace(OPEN, selected=FREE))
    assert "nvme1n1 outstanding now  1 in flight  no limit is known" in output
    assert re.search(r"in driver: mode \d+ \(\d+%\), max .* mean .* sampled, no at-issue", output)
    for absent in ("at issue ", "latency", "queued"):
        assert absent not in output.splitlines()[3]


def test_uncounted_ios_are_never_shown_as_none_waiting():
    output = " ".join(shown("move:1", "move:1").split())
    assert "how many I/Os nvme2n1 had outstanding is not measured here" in output
    assert "is not in this recording" in " ".join(shown("move:1", "move:1", mode="REPLAY").split())
    procfs = " ".join(shown(frames=host(2, 5), size=(160, 50)).split())
    assert "no probe follows requests here. Of a device that" in procfs


def test_busy_time_is_without_what_was_idle():
    assert "mode 3 (89% of busy time)" in shown("busy")
    busy = depth_columns(FULL, busy=True)
    assert (busy.in_driver.share(3), busy.queued.counts[0], busy.idle) == (800 / 900, 200, 0.1)
    lines = [plain(line) for line in depth_bars(busy, 3, 100, 60, RAMP)]
    assert not any("100%" in line for line in lines)


def test_shares_of_time_add_up_in_whatever_bands():
    for rows in (1, 2, 3, 5, 9, 30, 100):
        cut = heatmap.exact(43, rows, (2, 3))
        assert len(cut) <= rows
        assert [b for a, b in pairwise(cut) if b.low != a.high + 1] == []
        assert (cut[0].low, cut[-1].high) == (0, 43)
        for counts in (FULL.in_driver, FULL.queued):
            assert sum(heatmap.of(counts, cut)) == sum(counts.values())
    assert DepthBand(3, 3) in heatmap.bands(98, 4, (2, 3))
    assert heatmap.band_label(DepthBand(1025, 2048)) == "1.0k+"


def test_a_long_queue_leaves_the_rows_to_the_driver():
    queued = Depths({0: 100, 3: 900}, {0: 500, 90: 500}, {3: 50}, source="probe")
    lines = [plain(line) for line in depth_bars(depth_columns(queued), None, 100, 16, RAMP, most=3)]
    assert [line.split()[0] for line in lines[1:]] == ["49-90", "25-48", "13-24", "7-12", "4-6", "3", "2", "1", "0"]
    assert len(depth_bars(depth_columns(queued), None, 100, 6, RAMP, most=3)) <= 6


def test_lines_that_the_bars_do_not_need_are_the_map_s():
    depths, drawn = Depths({0: 100, 3: 900}, {0: 500, 90: 500}, {3: 50}, source="probe"), []
    view = DepthView("sda", Outstanding(2, 0), None, depths, 60 * SECOND)
    lines = outstanding(
        view, 120, 36, RAMP, over_time=lambda _, n: drawn.append(n) or [], ages=lambda _, n: [()] * n, age_lines=(3, 3)
    )
    assert len(lines) + drawn[0] == 36


@pytest.mark.parametrize("cells", [20, 47, 60, 80, 160])
@pytest.mark.parametrize("ink", [Ink(), RAMP])
def test_bars_fit_and_the_ceiling_is_above_the_limit(cells, ink):
    for height in range(1, 30):
        lines = [plain(line) for line in depth_bars(depth_columns(FULL), 3, cells, height, ink, most=3)]
        assert len(lines) <= height
        assert all(len(line) <= cells for line in lines)
        if height >= 6:
            at = next(i for i, line in enumerate(lines) if "limit 3" in line)
            assert lines[at + 1].split()[0].rsplit("-", maxsplit=1)[-1] == "3"
            assert lines[at - 1].split()[0].split("-")[0] == "4"


# ---- what is still in flight


def test_the_oldest_is_reported_grows_and_is_named_everywhere():
    given_scene = scene(FRAMES[:30], OPEN)
    assert "29.0s nvme1n1 WSF 4K the driver" in words(text(given_scene))
    given_scene.append(FRAMES[30])
    assert "30.0s nvme1n1 WSF" in words(text(given_scene))
    assert "30 s on nvme1n1" in text(given_scene).splitlines()[-2]
    assert press(given_scene, "screen:0").count(" is in flight") == 1, "one line is enough"
    assert "an I/O on nvme1n1 is in flight for 30 s" in press(given_scene, size=(160, 50))


def test_a_pause_stops_the_clock_of_what_waits():
    given_scene = scene(FRAMES[:30], OPEN)
    given_scene.pause()
    for current_frame in FRAMES[30:]:
        given_scene.append(current_frame)
    assert "29.0s nvme1n1" in text(given_scene)
    given_scene.resume()
    assert "39.0s nvme1n1" in text(given_scene)


def test_without_a_probe_it_is_at_least_so_long():
    known = [
        replace(
            frame, kernel={flow: replace(c, count=c.count * (flow.device != FREE)) for flow, c in frame.kernel.items()}
        )
        for frame in waiting_host(20, reported=False)
    ]
    output = shown(frames=known)
    assert "≥19.0s nvme1n1" in words(output)
    assert "1 I/O, at least; no probe follows requests here" in shown(frames=known)
    assert "1 I/O, at least; no probe followed it" in shown(frames=known, mode="REPLAY")
    late = [replace(one, in_flight=InFlightList(since_us=one.mono_us)) for one in known]
    assert "1 I/O, at least; began before a probe followed it" in shown(frames=late)
    assert "is in flight for at least 19 s" in shown("screen:0", frames=known)


def test_counts_and_words():
    ages = Ages((Aged("sda", 1_300_000, request=HELD),), {1: 3, 10: 0, 60: 0})
    assert counted(ages) == "> 1 s: 3"
    assert in_words(ages) == (
        "in flight > 1 s: 3, oldest 1.3 s on sda",
        "oldest in flight 1.3 s, > 1 s: 3",
        "oldest in flight 1.3 s on sda",
        "in flight 1.3 s",
    )
    assert counted(replace(ages, older={1: 3, 10: 2, 60: 2})) == "> 1 s: 3, > 1 min: 2", (
        "two of the three are the oldest"
    )
    more = replace(ages, older={1: 3, 10: 2, 60: 1}, at_least=True)
    assert in_words(more)[1] == "oldest in flight 1.3 s, > 1 s: 3, > 10 s: 2, > 1 min: 1 or more"
    assert in_words(Ages()) == ()


@pytest.mark.parametrize("notice", [0, 1234])
def test_all_three_counts_are_on_the_health_line_of_80_columns(notice):
    """Also beside something else that is wrong."""
    frames = waiting_host(75)
    last = frames[-1]
    still = replace(last.in_flight, older={1: 12, 10: 2, 60: 1})
    frames[-1] = replace(last, in_flight=still, health=replace(last.health, lost_events=notice))
    line = shown(frames=frames).splitlines()[-2]
    assert "> 1 s: 12, > 10 s: 2, > 1 min: 1" in line
    assert "74 s" in line
    assert ("lost 1,234" in line) == bool(notice)


def test_what_latmon_itself_waits_for_says_so():
    own = HELD._replace(own=True, comm="bpftrace")
    last = FRAMES[-1]
    output = words(shown(frames=[*FRAMES[:-1], replace(last, in_flight=InFlightList((own, HELD)))]))
    assert "own: bpftrace" in output
    assert "own: ora_lgwr" not in output


WIDE = 116, 24
"""The least width with sectors."""


def test_many_alike_are_one_line_until_the_list_is_scrolled():
    held = tuple(HELD._replace(began_us=i, sector=1000 * i) for i in range(12))
    frames = [replace(frame, in_flight=InFlightList(held, {1: 12, 10: 12, 60: 0})) for frame in FRAMES]
    assert "12x the driver - several ora_lgwr/4211" in words(shown(frames=frames, size=WIDE))
    given_scene = scene(frames, OPEN)
    pages = [press(given_scene, "through:1", size=WIDE) for _ in range(16)]
    assert "more lines: PgDn" in pages[0]
    assert all(any(f" {1000 * i:,} ora_lgwr" in page for page in pages) for i in range(12))
    assert "PgUp: back" in pages[-1]
    for _ in range(11):
        output = press(given_scene, "through:-1", size=WIDE)
    assert "12x the driver" in output
    others = tuple(in_flight._replace(pid=i) for i, in_flight in enumerate(held))
    many = [replace(frame, in_flight=replace(frame.in_flight, oldest=others)) for frame in frames]
    assert "12x the driver - several ora_lgwr" in words(shown(frames=many, size=WIDE))
    others = tuple(in_flight._replace(comm=f"dd{i}") for i, in_flight in enumerate(held))
    unlike = scene([replace(frame, in_flight=replace(frame.in_flight, oldest=others)) for frame in frames], OPEN)
    assert press(unlike, "through:1") != press(unlike, "through:-1")
    mixed = [replace(frame, in_flight=replace(frame.in_flight, oldest=(*held[:3], HELD))) for frame in frames]
    assert "81,920,448" in shown(frames=mixed, size=WIDE)


def test_bars_of_age_end_now_and_are_in_the_alarm_colour_from_the_threshold_on():
    """On an axis of eight octaves from 0.25 s: 39 s are 7.3 of them, and 4 s as well as the threshold 4."""
    alarm = {}
    for threshold_us in (4_000_000, 100_000, None, 60_000_000):
        given_scene = scene(FRAMES, replace(OPEN, threshold_us=threshold_us))
        lines = screen_lines(given_scene, BLANK, 120, 24)
        line = next(line for line in lines if "39.0s" in plain(line))
        bar = [(role, len(text)) for text, role, _ in line if text.startswith("▆")]
        assert sum(cells for _, cells in bar) == 22
        age = next(span for span in line if "39.0s" in span.text)
        alarm[threshold_us] = age.role, dict(bar)
    assert alarm[4_000_000] == ("tail", {"tail": 10, "area": 12})
    assert alarm[100_000] == ("tail", {"tail": 22})
    assert alarm[None] == ("strong", {"area": 22}), "without a threshold nothing is an alarm"
    assert alarm[60_000_000] == ("strong", {"area": 22})
    heads = next(plain(line) for line in lines if "waits in" in plain(line)).split()
    assert heads[heads.index("process") + 1 :] == ["64s", "16s", "4s", "1s", "now"]


def test_the_oldest_comes_before_depths_and_no_io_is_dark():
    lines = screen_lines(scene(FRAMES, OPEN), BLANK, 120, 40)
    texts = [plain(line) for line in lines]
    at = [next(i for i, text in enumerate(texts) if words in text) for words in ("39.0s", "outstanding now", "mode 3")]
    assert at == sorted(at)
    assert sum("limit 3" in text for text in texts) == 1
    over_time = next(i for i, text in enumerate(texts) if "in the driver over time" in text)
    idle = [line for line in lines[over_time:] if plain(line).lstrip("│ ").startswith("0│")]
    assert idle
    assert not any(role.startswith("heat") for line in idle for _, role, _ in line)
    bar = next(line for line in lines if plain(line).lstrip("│ ").startswith("0  10%"))
    assert next(role for text, role, _ in bar if text.startswith("▆")) == "frame"


def test_what_overtook_it_has_a_column():
    frames = [
        replace(frame, in_flight=replace(still, oldest=tuple(w._replace(overtaken_by=412) for w in still.oldest)))
        for frame in FRAMES
        if (still := frame.in_flight)
    ]
    assert "the driver 412" in words(shown(frames=frames))
    assert "the driver -" in words(shown())


def busy_elsewhere(**changed):
    """Six in flight and many completions on the first disk, nothing on the others."""
    now = {CROWDED: Outstanding(6, 0), FREE: Outstanding(0, 0), "nvme2n1": Outstanding(0, 0)}
    return [replace(frame, outstanding=now, in_flight=changed.get("still")) for frame in waiting_host(9)]


def test_an_unknown_age_is_never_reported_as_young():
    output = words(shown(frames=busy_elsewhere()))
    assert "the ages of" not in output  # the title: the reason below it has the number
    assert f"6 in flight, 6 of unknown age on {CROWDED}: no probe follows requests here. Of a device that" in output
    traced = [replace(one, traced=replace(one.traced, one_in=1)) for one in busy_elsewhere()]
    assert f"on {CROWDED}: this source's tracer measures no ages. Of a device that" in words(shown(frames=traced))
    unfollowed = words(shown(frames=busy_elsewhere(still=InFlightList(devices=(FREE,)))))
    assert f"6 in flight, 6 of unknown age on {CROWDED}: no probe follows it." in unfollowed
    since = busy_elsewhere()[0].mono_us
    late = words(shown(frames=busy_elsewhere(still=InFlightList(since_us=since))))
    assert "up to 6 of them may have begun before the probe" in late
    for reported in (output, unfollowed, late):
        assert "nothing above 1 s" not in reported
        assert "none of them older than 0.5 s" not in reported
    known = words(shown(frames=busy_elsewhere(still=InFlightList())))
    assert "in flight 6 in flight, none of them older than 0.5 s" in known


def test_a_volume_s_ios_are_not_counted_beside_its_disks():
    volume = Device("dm-0", 253, 0, kind="dm", members=(CROWDED,))
    frames = busy_elsewhere(still=InFlightList(devices=(CROWDED, FREE)))
    frames = [replace(frame, outstanding={**frame.outstanding, "dm-0": Outstanding(9, 0)}) for frame in frames]
    frames[0] = replace(frames[0], devices=(*frames[0].devices, volume))
    assert "in flight 6 in flight, none of them older than 0.5 s" in words(shown(frames=frames))
    alone = words(shown(frames=frames, selection=replace(OPEN, pattern="dm-0")))
    assert "9 in flight, 9 of unknown age on dm-0: no probe follows it." in alone


def test_a_row_that_the_filter_hides_is_not_denied():
    """The second disk has one of 0.7 s; the filter shows the first, with 3 and 12 younger ones."""
    last = FRAMES[-1]
    held = HELD._replace(began_us=last.mono_us - 700_000)
    frames = [*FRAMES[:-1], replace(last, in_flight=InFlightList((held,), {1: 0, 10: 0, 60: 0}))]
    output = words(shown(frames=frames, selection=replace(OPEN, pattern=CROWDED)))
    assert "15 in flight, none of them older than 0.5 s; others than the filter's devices have older ones" in output
    idle = words(shown(frames=frames, selection=replace(OPEN, pattern="nvme2n1")))
    assert "nothing is in flight on any of the filter's devices; others" in idle
    assert "idle now: nvme2n1" in words(shown(frames=frames, selection=replace(OPEN, pattern="nvme2n1"), size=WIDE))


@pytest.mark.parametrize(
    ("still", "kind", "named"), [(None, "dm", True), (InFlightList(), "dm", False), (None, "zram", False)]
)
def test_an_empty_list_names_volumes_without_a_probe(still, kind, named):
    """The kernel counts no bio that a suspended volume defers."""
    volume = Device("dm-9", 253, 9, kind=kind, timed=False)
    idle = {name: Outstanding(0, 0) for name in (CROWDED, FREE, "nvme2n1", "dm-9")}
    first, *others = waiting_host(9)
    frames = [
        replace(one, outstanding=idle, in_flight=still)
        for one in (replace(first, devices=(*first.devices, volume)), *others)
    ]
    output = words(shown(frames=frames))
    assert "nothing is in flight on any device" in output
    assert ("no probe follows dm-9, and I/Os that a suspended volume defers are not counted" in output) is named


def test_the_charts_are_of_the_device_that_the_overview_marks():
    """Others may have older I/Os: the list above the charts has them, and marks those of the device."""
    made = scene(FRAMES, Selection(sort="name"))
    assert f"▸{CROWDED} " in press(made)
    output = press(made, "screen:2")
    assert (made.selection.selected, made.selection.is_selected) == (CROWDED, False)
    assert f"─ {CROWDED} " in output
    assert re.search(f"^  .*s {FREE} ", output, re.MULTILINE), "the list has the I/O of another device"
    assert re.search(f"^▸ .*s {FREE} ", shown(selection=replace(OPEN, selected=FREE)), re.MULTILINE)


@pytest.mark.parametrize("step", ["screen:1", "screen:2", "zoom"])
def test_a_shown_device_stays_when_rows_change_places(step):
    given_scene = scene(FRAMES, Selection(sort="name"))
    press(given_scene, step)
    given_scene.choose(replace(given_scene.selection, sort="unlike"))
    press(given_scene)
    assert given_scene.view.subjects()[0].device.name == FREE
    assert given_scene.selection.selected == CROWDED


def test_the_map_of_a_held_device_says_that_nothing_completed():
    held = [
        replace(
            frame, kernel={}, seen={}, histograms={}, outstanding={**frame.outstanding, FREE: Outstanding(30, None)}
        )
        for frame in FRAMES
    ]
    output = words(shown("screen:2", "screen:0", frames=held, selection=Selection(), size=(160, 50)))
    assert re.search(r"no I/O completed on nvme1n1 in the last \d+ s; 30 in flight", output)
    assert "no I/O on nvme2n1" in words(shown("move:1", "move:1", frames=held, selection=Selection(), size=(160, 50)))


def test_stages_that_were_asked_for_are_starting_not_off():
    asked = Selection(screen="stages", stages="all")
    assert "stages starting" in shown(frames=host(2, 3), selection=asked, mode="LIVE")
    assert "stages off" in shown(frames=host(2, 3), selection=asked, mode="REPLAY")
    assert "stages starting" not in shown(frames=host(2, 3), selection=asked, mode="LIVE", origin=PROCFS)


# ---- aside: limits and order


def test_the_audit_counts_waiting_ios_by_their_traced_times_where_the_kernel_does_not():
    """20 I/Os a second that wait 1 s each are 20 above the driver."""
    times = {"queue": 1_000_000, "hba": 10_000, "total": 1_010_000}
    timed = {Series(CROWDED, "read", stage): Histogram.record([us] * 20) for stage, us in times.items()}
    changed = {"depths": {CROWDED: replace(FULL, queued={}, source=SYSFS)}, "traced": Traced(timed, one_in=1)}
    frames = [replace(frame, **changed, outstanding={CROWDED: Outstanding(3, None)}) for frame in FRAMES]
    output = shown("aside:0", frames=frames, size=(120, 40))
    assert "! at its limit of 3 (device/queue_depth) while more I/Os waited" in output


def test_the_audit_says_what_is_off_and_the_keys_go_back():
    given_scene = scene(FRAMES, OPEN)
    output = press(given_scene, "aside:0", size=(120, 40))
    assert given_scene.selection.context == "audit"
    assert "▸nvme0n1 3 queue_depth 3 3 40 3" in words(output)
    assert "! limit reached" in output
    assert "! at its limit of 3 (device/queue_depth) while more I/Os waited" in output
    settings = [line.split()[0] for line in output.partition(" settings")[2].splitlines() if line.strip()]
    assert settings.index("nr_requests") < settings.index("wbt_lat_usec")
    press(given_scene, "audit_row:1", "leave")
    assert given_scene.selection.context == "outstanding"
    none = shown("aside:0", frames=host(2, 3))
    assert "this source reports no limits" in none


def test_issue_order_of_the_last_burst_or_why_there_is_none():
    assert "nvme0n1 issue order, the last burst" in shown("aside:1")
    assert "issues of nvme2n1 are not traced: press S" in " ".join(shown("move:1", "move:1", "aside:1").split())


# ---- the overview


def test_out_is_of_its_limit_where_one_is_known():
    lines = shown("screen:0").splitlines()
    title = next(row for row, line in enumerate(lines) if "IOPS" in line)
    assert "depth" in lines[title]
    assert "    3/3 " in next(line for line in lines[title:] if CROWDED in line)
    assert [of_limit(*pair) for pair in ((3, 3), (14, 64), (31, 1023), (412, 1023), (1023, 8184), (0, 8184))] == [
        "3/3", "14/64", "31/1023", "412/1k", "1023/8k", "0/8184",
    ]  # fmt: skip
    assert (of_limit(7, None), of_limit(None, 3)) == ("7", "-")
    assert all(len(of_limit(n, m)) <= 7 for n in (0, 9, 99, 999, 1023, 9999) for m in (1, 64, 1023, 8184, 65_535))


# ---- what is remembered


def logged(seconds, depths=FULL):
    log = DepthLog()
    for number in range(1, seconds + 1):
        log.append(
            replace(frame(number), depths={CROWDED: depths}, issues={CROWDED: (Issue(number, 0, 0, "read", 0),)})
        )
    return log


def summed(entries, device):
    sums = DepthSum()
    reported = [one for one in entries if device in one.reported]
    for one in reported:
        sums.add(one.reported[device], one.mono_us)
    return sums.depths if reported else None


def test_the_log_forgets_and_loses_no_moment():
    log = logged(199)
    last = frame(199).mono_us
    depths = summed(log.between(0, last), CROWDED)
    assert depths.in_driver == {depth: n * 199 for depth, n in FULL.in_driver.items()}
    assert depths.latency[15] == Took(150 * 199, 300_000 * 199)
    assert len(log.between(0, last)) < 100
    log.forget(last - 100 * SECOND)
    assert sum(summed(log.between(0, last), CROWDED).in_driver.values()) <= 105 * 1000
    assert log.burst(CROWDED, last - SECOND)[0].mono_us == 198
    assert (log.burst(FREE, last), summed(log.between(0, last), FREE)) == ((), None)


def test_of_a_huge_burst_the_last_issues_are_kept():
    log = DepthLog()
    huge = tuple(Issue(number, 0, 0, "read", 0) for number in range(10 * MAX_BURST))
    for number in range(1, 20):
        log.append(replace(frame(number), issues={CROWDED: huge}))
    assert log.burst(CROWDED, frame(19).mono_us) == huge[-MAX_BURST:]


@pytest.mark.parametrize("length_s", [15, 60, 120, 300])
def test_running_sums_are_those_of_the_entries(length_s):
    """With depths that change, a hole, and a device that is not read for a while."""
    log = DepthLog()
    window = DepthWindow(length_s * SECOND, log)
    for number in (n for n in range(1, 500) if not 200 < n < 210):
        depths = Depths({number % 7: 1000}, {number % 3: 1000}, {1: number}, {2: Took(1, number)}, 10 + number % 5)
        log.append(replace(frame(number), depths={CROWDED: replace(depths, source=PROBE if number % 4 else SYSFS)}))
        window.advance(frame(number).mono_us)
        if number % 50 < 20:
            assert window.read(CROWDED, brief=True).depths.in_driver == summed(window.entries, CROWDED).in_driver
            reported = window.read(CROWDED)
            assert reported.depths == summed(window.entries, CROWDED)
            assert reported.span_us == sum(reported.depths.in_driver.values()) * 1000
            assert number < 300 or length_s - 15 <= reported.span_us / SECOND <= length_s + 5


def test_what_a_recording_says_beyond_all_numbers_is_kept():
    log = logged(200, Depths({1: 2**63 - 1}, latency={1: Took(2**63 - 1, 2**63 - 1)}))
    window = DepthWindow(100 * SECOND, log, frame(200).mono_us)
    assert window.read(CROWDED).depths.in_driver[1] > 2**63


@pytest.mark.parametrize(("seconds", "column_s"), [(300, 5), (300, 6), (120, 2), (60, 1)])
def test_a_column_of_the_map_is_as_long_as_it_says(seconds, column_s):
    log, last = logged(seconds + 7), frame(seconds + 7)
    entries = log.between(last.mono_us - seconds * SECOND, last.mono_us)
    frames = list(depth_frames(entries, CROWDED, last, SECOND))
    drawn = Timeline(column_s * SECOND, 100, ops(CROWDED), frames)
    assert {column.filled_us for column in list(drawn.columns)[:-1]} == {column_s * SECOND}
    assert len(drawn.columns) * column_s * SECOND == pytest.approx(entries[-1].mono_us - entries[0].begin_us, abs=6e6)
    assert [column.gap for column in drawn.columns if column.gap] == []
    reported = sum(n for column in drawn.columns for n in column.counts(CROWDED).values())
    assert reported == sum(summed(entries, CROWDED).in_driver.values())


def test_a_hole_in_time_stays_one_in_the_map():
    log = DepthLog()
    for number in (*range(1, 100), *range(130, 240)):
        log.append(replace(frame(number), depths={CROWDED: FULL}))
    frames = depth_frames(log.between(0, frame(239).mono_us), CROWDED, frame(239), SECOND)
    drawn = Timeline(5 * SECOND, 100, ops(CROWDED), frames)
    assert sum(column.gap == "missing" for column in drawn.columns) == 6


def test_the_fullest_come_first():
    def subject(name, in_driver, limit):
        limits = (Limit("queue_depth", limit, "device/queue_depth"),) if limit else ()
        reported = Window(SECOND, [frame(1, outstanding={name: Outstanding(in_driver, 0)})])
        return Subject(Device(name, 8, 0, limits=limits), reported, Selection())

    subjects = [subject("sda", 200, 1023), subject("sdb", 3, 3), subject("sdc", 40, None), subject("sdd", 90, None)]
    assert [subject.device.name for subject in order(subjects, "out")] == ["sdb", "sda", "sdd", "sdc"]


def test_the_screen_and_the_report_give_one_law(tmp_path):
    """With flushes, whose requests no gauge counts, and 20 s of idle time."""
    times = {
        Series(CROWDED, "read", "total"): Histogram.record([16_000] * 900),
        Series(CROWDED, "flush", "total"): Histogram.record([900_000] * 50),
    }
    busy, idle = Depths({0: 100, 3: 900}, {0: 100, 13: 900}, source=PROBE), Depths({0: 1000}, {0: 1000}, source=PROBE)
    frames = [
        replace(
            frame(number, times if number < 20 else {}, outstanding={CROWDED: Outstanding(3, 13)}),
            devices=(Device(CROWDED, 8, 0, limits=LIMITS),) if not number else (),
            depths={CROWDED: busy if number < 20 else idle},
        )
        for number in range(40)
    ]
    path = tmp_path / "recording"
    writer = Writer.create(path, ORIGIN)
    for current_frame in frames:
        writer.append(current_frame)
    writer.close()
    reported = summarised(open_recording(path))["devices"][CROWDED]["outstanding"]["littles_law"]
    assert (reported["of"], reported["agrees"], reported["lift"]["depth"]) == ("all", True, 16)
    assert words(reported["sentence"]) in words(press(scene(frames, OPEN), size=(200, 50)))


# ---- every size, every key


@pytest.mark.parametrize("size", [(40, 10), (60, 14), (80, 24), (300, 100)])
@pytest.mark.parametrize("frames", [FRAMES[:9], waiting_host(3, reported=False), host(2, 3), [frame(1)], []])
@pytest.mark.parametrize("origin", [ORIGIN, pytest.param(PROCFS, marks=pytest.mark.slow)])
def test_every_size_is_full_and_fits(size, frames, origin):
    for steps in ((), ("busy",), ("aside:0",), ("aside:1",), ("move:1",)):
        given_scene = scene(frames, OPEN, origin)
        lines = press(given_scene, *steps, size=size).splitlines()
        assert len(lines) == size[1]
        assert all(len(line) <= size[0] for line in lines)
        assert any(line.strip() for line in lines[1:-3])


async def test_its_keys_without_a_mouse():
    app = make(Source(FRAMES))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for key, context in (
            ("3", "outstanding"),
            ("a", "audit"),
            ("i", "order"),
            ("i", "outstanding"),
            ("d", "outstanding"),
        ):
            await pilot.press(key)
            assert app.scene.selection.context == context
        assert app.scene.selection.busy
        await pilot.press("j", "escape")
        assert (app.scene.selection.selected, app.scene.selection.context) == (CROWDED, "overview")


PICTURES = {"depths": ("3", "home"), "audit": ("3", "home", "a"), "order": ("3", "home", "i")}


@pytest.mark.parametrize(
    ("name", "size", "depth"),
    [
        ("depths", (80, 24), "256"),
        pytest.param("depths", (160, 50), "16", marks=pytest.mark.slow),
        ("audit", (80, 24), "none"),
        pytest.param("audit", (160, 50), "truecolor", marks=pytest.mark.slow),
        ("order", (80, 24), "256"),
        pytest.param("order", (160, 50), "truecolor", marks=pytest.mark.slow),
    ],
)
def test_outstanding_pictures(snap_compare, name, size, depth):
    app = make(Source(FRAMES), depth=depth)
    assert snap_compare(whole(app), terminal_size=size, run_before=lambda pilot: pressed(pilot, PICTURES[name]))


def test_lines_are_exactly_as_wide_as_the_screen():
    given_scene = scene(FRAMES, OPEN)
    panels = given_scene.draw(80, 24)
    assert all(width(line) <= 80 for line in panels.body)
