"""A and B side by side: what the key does, and what is drawn, without an app."""

import re
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from frames import ORIGIN, PROCFS, Source, disks, frame, host

from latmon.diff import output
from latmon.diff.blocks import period_of
from latmon.diff.comparison import COLUMNS, compare
from latmon.diff.report import pair_report
from latmon.findings.episodes import Episode
from latmon.findings.rule import Finding, Where
from latmon.model.frame import Flow, Mark, Series
from latmon.model.histogram import Histogram
from latmon.model.measurements import ABOVE
from latmon.support.theme import load_theme
from latmon.tui.app import LatmonApp
from latmon.tui.time_travel import Comparing
from latmon.views.findings_state import NOTHING
from latmon.views.heatmap import RAMP
from latmon.views.lines import plain, width
from latmon.views.panels.compare import panel
from latmon.views.screen import Scene
from latmon.views.selection import ScreenOptions, Selection

SECONDS = 36


MARK = Mark("B", 1, 1.0, {"device nvme1n1": {"scheduler": "mq-deadline"}})


@pytest.fixture(scope="module")
def both():
    """A scene with A and B on it, the key, and what it put into the capture; disk 1 is sick in B."""
    put = []
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(replace(ORIGIN, settings={"device nvme1n1": {"scheduler": "none"}}))
    comparing = Comparing(scene, [].append, lambda name, _: put.append(name))
    for current_frame in host(2, SECONDS, ios=40):
        scene.append(current_frame)
    comparing.step()
    *frames, last = host(2, 2 * SECONDS + 1, odd="nvme1n1", ios=40)[SECONDS:]
    for number, current_frame in enumerate(frames):
        scene.append(replace(current_frame, marks=(Mark("A", changed={}),) if number == 1 else ()))
        comparing.arrived()
    comparing.step()
    scene.append(replace(last, marks=(MARK,)))
    comparing.arrived()
    return scene, comparing, put


def test_side_by_side_fits_and_names_what_changed(both):
    scene, _, put = both
    assert put == ["A", "B"]
    for cells, rows in ((80, 24), (160, 50), (40, 10)):
        lines = scene.draw(cells, rows).body
        assert all(width(line) <= cells for line in lines)
        assert len(lines) <= rows
    strips = set()
    for rows in range(12, 40):  # no A is without its B
        drawn = "\n".join(map(plain, scene.draw(80, rows).body))
        a, b = (len(re.findall(rf"^ {name} +[\d,]+ ", drawn, re.MULTILINE)) for name in "AB")
        assert a == b
        strips.add(a)
    assert {0, 1, 2} <= strips
    text = "\n".join(map(plain, scene.draw(80, 40).body))
    assert "nvme1n1 write: the tail grew" in text
    assert text.index(" nvme1n1 write  ") < text.index(" nvme0n1 read  ")


def test_slow_ios_of_both_sides_are_counted():
    """The window that is shown has no table of I/Os above the threshold, and A is what is shown."""
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(ORIGIN)
    comparing = Comparing(scene, [].append)
    slow = {ABOVE: {Flow("nvme0n1", "read"): 3}}
    thresholds = {"nvme0n1": 500_000, "nvme1n1": 500_000}
    frames = [replace(frame, thresholds_us=thresholds).with_tables(slow) for frame in host(2, 2 * SECONDS, ios=40)]
    for current_frame in frames[:SECONDS]:
        scene.append(current_frame)
    comparing.step()
    for current_frame in frames[SECONDS:]:
        scene.append(current_frame)
        comparing.arrived()
    comparing.step()
    drawn = "\n".join(plain(line) for line in scene.draw(120, 40).body)
    assert f"I/Os of 500 ms or more per second: 3.00 -> 3.00 (counted: {3 * SECONDS}, {3 * SECONDS})" in drawn


def test_labels_above_the_strips_are_equally_far_apart(both):
    for cells in (80, 120, 160):
        titles = next(plain(line) for line in both[0].draw(cells, 40).body if " p99.9 " in plain(line))
        at = [label.start() for label in re.finditer(r"\d+[um]?s", titles)]
        assert len(at) >= 3
        assert len({round((b - a) / 3) for a, b in pairwise(at)}) == 1


def test_a_setting_from_a_mark_is_named(both):
    text = "\n".join(map(plain, both[0].draw(80, 24).body))
    assert "device nvme1n1 scheduler: none -> mq-deadline" in text


def test_the_sentences_are_those_of_the_text_in_its_order(both):
    """What changed for the users comes first, then settings, then verdicts: in one order with `latmon diff`."""
    lines = list(map(plain, both[0].draw(160, 50).body))
    assert lines[1].startswith(" ! B is slower: nvme1n1 write p99 360 us -> 393 ms")
    assert lines[2].startswith(" I/Os of 131 ms or more per second: 0 -> ")
    text = "\n".join(lines)
    sentences = [one.strip()[:40] for _, some in output.paragraphs(both[0].comparison) for one in some]
    at = [text.index(sentence) for sentence in sentences if sentence in text]
    assert len(at) >= 5
    assert at == sorted(at)
    assert text.index("device nvme1n1 scheduler:") < text.index("nvme1n1 write: the tail grew")


def test_the_verdict_is_tinted_where_b_is_worse(both):
    lines = both[0].draw(120, 40).body
    assert plain(lines[1]).startswith(" ! B is slower: ")
    assert {span.role.partition("/")[2] for span in lines[1]} == {"warning"}
    assert {span.role.partition("/")[2] for span in lines[2]} == {""}
    report = both[0].comparison
    assert output.is_worse(report) is True
    back = pair_report(compare(*reversed(sides_of(both[0].edge.frames()))))
    assert output.is_worse(back) is False
    head = panel(back, Selection(), RAMP, 120, 40)[1]
    assert plain(head).startswith(" ● B is faster: ")
    assert {span.role.partition("/")[2] for span in head} == {""}


def sides_of(frames):
    """Return the two halves of a capture as periods."""
    return [period_of(name, ORIGIN, (), some) for name, some in (("A", frames[:SECONDS]), ("B", frames[SECONDS:]))]


def test_what_did_not_change_is_dim_and_in_the_order_of_the_device_table(both):
    report = both[0].comparison
    for device in ("nvme0n1", "nvme1n1"):
        lines = panel(report, Selection(selected=device), RAMP, 120, 40, devices=("nvme1n1", "nvme0n1"))
        drawn = [plain(line) for line in lines]
        heads = [at for at, line in enumerate(drawn) if re.match(r" nvme\dn1 (read|write)  ", line)]
        assert drawn[heads[0]].startswith(f" {device} "), "the selected one is first"
        for at in heads:
            numbers = lines[at + 1][1]
            is_dim = "no difference" in drawn[at] and device not in drawn[at]
            assert (numbers.role == "dim") is is_dim, drawn[at]
    unchanged = pair_report(compare(*sides_of(list(host(3, 2 * SECONDS, ios=40)))))
    lines = panel(unchanged, Selection(), RAMP, 120, 40, devices=("nvme2n1", "nvme0n1", "nvme1n1"))
    names = [match[1] for line in lines if (match := re.match(r" (nvme\dn1) \w+  no difference", plain(line)))]
    assert list(dict.fromkeys(names)) == ["nvme2n1", "nvme0n1", "nvme1n1"]
    assert output.is_worse(unchanged) is None
    assert plain(lines[1]).startswith(" ○ no difference found")


def test_the_panel_names_few_of_those_without_a_difference():
    alike = pair_report(compare(*sides_of(list(host(6, 2 * SECONDS, ios=40)))))
    drawn = " ".join(" ".join(map(plain, panel(alike, Selection(), RAMP, 120, 40))).split())
    assert re.search(r"no difference found: nvme0n1 read, nvme0n1 write, nvme1n1 read and \d+ more", drawn)
    in_full = dict(output.paragraphs(alike))[output.SAME]
    assert "nvme5n1 write" in in_full[0]


def test_a_finding_of_one_span_is_gone_or_new():
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(ORIGIN)
    comparing = Comparing(scene, [].append)
    finding = Finding(
        "io-throttled", "critical", "nvme1n1", "writes of nvme1n1 are throttled", (), Where("overview"), (), ""
    )
    for number, current_frame in enumerate(host(2, 60, ios=20)):
        scene.append(current_frame)
        if number in (29, 59):
            episode = Episode(
                worst=finding,
                last=finding,
                begin_us=0,
                end_us=0,
                begin_wall=current_frame.wall,
                end_wall=current_frame.wall,
            )
            lasting = (episode,) if number == 59 else ()
            current = replace(NOTHING, lasting=lasting, evaluated=True)
            scene.findings_state = SimpleNamespace(current=current, begins=(), take=lambda *_: None)
            comparing.step()
    assert "finding new: writes of nvme1n1 are throttled (io-throttled)" in plain_body(scene)


def plain_body(scene, cells=160, rows=50):
    return "\n".join(map(plain, scene.draw(cells, rows).body))


DEPTHS = ("64", "128", "256")


@pytest.fixture(scope="module")
def swept():
    """A scene with a sweep of three spans, each with a greater nr_requests; its key and its messages."""
    put, sentences = [], []
    scene = Scene(Selection(selected="nvme1n1"), ink=RAMP)
    scene.opened(replace(ORIGIN, settings={"device nvme1n1": {"nr_requests": DEPTHS[0]}}))
    comparing = Comparing(scene, sentences.append, lambda name, _: put.append(name))
    pending = ""
    for number, current_frame in enumerate(host(2, 3 * SECONDS + 1, ios=40)):
        side = number // SECONDS
        changed = {"device nvme1n1": {"nr_requests": DEPTHS[max(side - 1, 0)]}}
        marks = (Mark(pending, current_frame.mono_us - 1, current_frame.wall, changed),) if pending else ()
        pending = ""
        scene.append(replace(current_frame, marks=marks))
        comparing.arrived()
        if number % SECONDS == SECONDS - 1:
            (comparing.step if side < 2 else comparing.further)()
            pending = put[-1]
    return scene, comparing, sentences


def test_a_third_span_makes_a_sweep_in_the_order_of_the_setting(swept):
    scene, _, _ = swept
    for cells, rows in ((80, 24), (100, 30), (160, 50)):
        lines = scene.draw(cells, rows).body
        assert all(width(line) <= cells for line in lines)
        assert len(lines) <= rows
    text = plain_body(scene)
    assert "sweep of device nvme1n1 nr_requests" in text
    assert text.index(" nvme1n1 by ") < text.index(" all devices by ")
    rows = [line for line in text.split("nvme1n1 by ")[1].splitlines() if re.match(r" \d+ \([ABC]\)", line)][:3]
    assert [row.split()[0] for row in rows] == list(DEPTHS)


def test_the_numbers_of_a_sweep_are_those_of_the_text_and_its_marks_are_at_their_times(swept):
    scene, _, _ = swept
    table = next(
        shown_table for shown_table in output.shown_tables(scene.comparison) if shown_table.device == "nvme1n1"
    )
    text = plain_body(scene).split("nvme1n1 by ")[1].splitlines()
    for row, line in zip(table.rows, text[2:5], strict=True):
        values = [output.sweep_cell(column, row.values[column]) for column in COLUMNS]
        assert line.split()[2 : 2 + len(COLUMNS)] == values
    labels = {match[0]: match.start() for match in re.finditer(r"\d+[um]s", text[1])}
    marks = text[2]
    assert table.rows[0].values["p50"] == 120
    assert labels["64us"] < marks.rindex(" 5") < labels["128us"]


def test_the_plot_of_a_sweep_is_below_its_table_where_it_does_not_fit_beside_it(swept):
    lines = list(map(plain, swept[0].draw(80, 24).body))
    title = next(at for at, line in enumerate(lines) if " nvme1n1 by " in line)
    assert "p50" in lines[title + 1]
    assert "64us" not in lines[title + 1]
    assert lines[title + 5].split()[0] == "IOPS"
    assert "▆" in lines[title + 6]
    assert "5" in lines[title + 6]


def test_a_narrow_sweep_has_whole_columns_and_scrolls(swept):
    scene, _, _ = swept
    seen = ""
    for top in range(0, 40, 5):
        scene.selection = replace(scene.selection, top=top)
        seen += plain_body(scene, 40, 10) + "\n"
    scene.selection = replace(scene.selection, top=0)
    titles = next(line for line in seen.splitlines() if " p99 " in f"{line} ")
    assert titles.split() == ["IOPS", "p50", "p99"]
    assert "PgDn: " in seen
    assert "on the axis" in seen


def test_spans_without_a_setting_that_differs_in_each_are_rows_in_their_order(swept):
    scene, comparing, sentences = swept
    comparing.further()
    assert sentences[-1] == "only 0 windows since C, and a comparison needs 6: wait, then press N again"
    for current_frame in host(2, 4 * SECONDS + 1, ios=40)[3 * SECONDS + 1 :]:
        scene.append(current_frame)
    comparing.further()
    text = plain_body(scene)
    assert "sweep: no setting differs in each span" in text
    comparing.leave()
    assert scene.comparison is None


def test_the_third_press_leaves(both):
    scene, comparing, _ = both
    beside = scene.comparison
    comparing.step()
    assert scene.comparison is None
    assert "the tail grew" not in "\n".join(map(plain, scene.draw(80, 24).body))
    scene.comparison = beside


def test_a_comparison_with_too_few_windows_is_refused():
    sentences = []
    scene = Scene(Selection(), ink=RAMP)
    comparing = Comparing(scene, sentences.append)
    comparing.step()
    assert sentences == ["there is nothing to compare yet"]
    scene.opened(ORIGIN)
    frames = host(1, 12, ios=20)
    for current_frame in frames[:10]:
        scene.append(current_frame)
    comparing.step()
    scene.append(frames[10])
    comparing.step()
    assert sentences[-1] == "only 1 window since A, and a comparison needs 6: wait, then press D again"
    assert scene.comparison is None


@pytest.mark.parametrize(("last", "windows"), [(19, 0), (13, 4), (14, 10)])
def test_a_span_of_an_earlier_time_has_no_window_of_another_span(last, windows):
    """A is windows 10 to 19 (4 to 19); then the screen shows the windows up to `last`."""
    sentences = []
    frames = host(1, 20, ios=20)
    shown = [Scene(Selection(), ink=RAMP) for _ in "AB"]
    begins = (4 if windows == 4 else 10, 10 if windows == 0 else 0)
    for scene, begin, end in zip(shown, begins, (20, last), strict=True):
        scene.opened(ORIGIN)
        for current_frame in frames[begin:end]:
            scene.append(current_frame)
    comparing = Comparing(shown[0], sentences.append)
    comparing.step()
    comparing._scene = shown[1]
    comparing.step()
    if windows < 6:
        assert sentences[-1].startswith(f"only {windows} windows ")
        assert shown[1].comparison is None
    else:
        assert shown[1].comparison.captures[1].windows == windows


def test_the_kernels_counters_are_not_compared_with_the_probes_windows():
    sentences = []
    scene = Scene(Selection(), ink=RAMP)
    comparing = Comparing(scene, sentences.append)
    for current_frame in host(1, 8, ios=20):
        scene.preview(PROCFS, current_frame)
    comparing.step()
    assert sentences == ["nothing to compare yet: the probes are starting, and their windows are what is compared"]
    scene.opened(ORIGIN)
    for current_frame in host(1, 8, ios=20):
        scene.append(current_frame)
    comparing.step()
    assert sentences[-1].startswith("A is ")


CHANGED = {"device nvme1n1": {"scheduler": "kyber"}}


def test_the_mark_of_a_span_has_its_begin_and_end_and_settings_are_read_every_5_s_after_a():
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(ORIGIN)
    spans, reads = {}, []
    comparing = Comparing(scene, [].append, spans.__setitem__, lambda: reads.append(scene.edge.until_us))
    frames = host(1, 40, ios=10)
    for number, current_frame in enumerate(frames):
        scene.append(current_frame)
        comparing.arrived()
        if number in (20, 30):
            comparing.step()
    assert spans == {
        "A": (frames[0].mono_us - frames[0].dt_us, frames[20].mono_us),
        "B": (frames[20].mono_us, frames[30].mono_us),
    }
    assert [at > frames[20].mono_us for at in reads] == [True] * 4


def pressed(reported, *, at="edge", noted=()):
    """The settings that differ after two presses; `told`: the changes in the marks of A and B, each a frame late."""
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(replace(ORIGIN, settings={"device nvme1n1": {"scheduler": "none"}}))
    put = []
    comparing = Comparing(scene, [].append, (lambda name, _: put.append(name)) if at != "replay" else None)
    waiting = None
    for number, current_frame in enumerate(host(1, 40, ios=10)):
        marks = [
            Mark(text, current_frame.mono_us - 1, current_frame.wall, changed)
            for when, text, changed in noted
            if when == number
        ]
        if waiting:
            marks.append(Mark(waiting, current_frame.mono_us - 1, current_frame.wall, reported[waiting]))
        waiting = None
        scene.append(replace(current_frame, marks=tuple(marks)))
        comparing.arrived()
        if number in (15, 30):
            known = len(put)
            comparing.step()
            waiting = put[-1] if len(put) > known and put[-1] in reported else None
    assert scene.comparison is not None
    return [(setting.name, setting.a, setting.b) for setting in scene.comparison.settings]


def test_what_was_set_before_a_is_no_difference_between_a_and_b():
    assert pressed({"A": CHANGED, "B": CHANGED}) == []


def test_what_was_set_back_between_a_and_b_is_one():
    assert pressed({"A": CHANGED, "B": {}}) == [("scheduler", "kyber", "none")]


@pytest.mark.parametrize(
    "reported", [{"A": None, "B": CHANGED}, {"A": CHANGED, "B": None}, {"B": CHANGED}, {"A": CHANGED}]
)
def test_settings_that_were_read_on_one_side_alone_are_no_difference(reported):
    assert pressed(reported) == []


def test_a_replay_goes_by_the_marks_that_were_put():
    assert pressed({}, at="replay", noted=[(2, "on", CHANGED), (20, "off", {})]) == [("scheduler", "kyber", "none")]


def test_marks_that_are_not_on_the_screen_any_more_count_too():
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(replace(ORIGIN, settings={"device nvme1n1": {"scheduler": "none"}}))
    frames = host(1, 60, ios=10)
    for number, current_frame in enumerate(frames):
        marks = (Mark("on", current_frame.mono_us - 1, current_frame.wall, CHANGED),) if number == 2 else ()
        scene.append(replace(current_frame, marks=marks))
    scene.edge.store.frames.clear()
    comparing = Comparing(scene, [].append)
    comparing.step()
    for current_frame in host(1, 75, ios=10)[60:]:
        scene.append(current_frame)
    comparing.step()
    assert [side.period.settings for side in comparing._sides] == [CHANGED, CHANGED]
    assert scene.comparison.settings == ()


async def test_the_key_that_adds_a_span_names_the_key_before_it(both, monkeypatch):
    app = LatmonApp(Source(host(2, 3)), ScreenOptions(theme=load_theme("dark")), depth="256")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("N")
        assert app.scene.message.endswith("press D for A, which is this window, and D again for B")
        await pilot.press("D", "N")
        assert app.scene.message == "N adds a span to A and B: press D for B first"
        await pilot.press("d")
        assert app.scene.message == "d is no key of this screen; D: compare; ? lists its keys"
        added = []
        monkeypatch.setattr(app._comparing, "_add", lambda: added.append(1))
        app.scene.comparison = both[0].comparison
        await pilot.press("N")
        assert added == [1]
        assert "N adds a span  D leaves" in plain(app._main.lines[1])


@pytest.mark.parametrize(("is_live", "words"), [(True, "change a setting"), (False, "go to another time")])
def test_a_comparison_in_a_replay_asks_for_no_change_of_a_setting(is_live, words):
    scene, sentences = Scene(Selection(), ink=RAMP), []
    scene.opened(ORIGIN)
    for window in host(1, 10, ios=10):
        scene.append(window)
    Comparing(scene, sentences.append, is_live=is_live).step()
    assert words in sentences[-1]


def test_the_message_that_names_the_key_ends_with_the_key():
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(ORIGIN)
    comparing = Comparing(scene, lambda text: setattr(scene, "message", text))
    for number, current_frame in enumerate(host(1, 40, ios=10)):
        scene.append(current_frame)
        if number in (20, 30):
            comparing.step()
            assert ("then press D again for B" in scene.message) == (number == 20)
    lines = list(map(plain, scene.draw(80, 40).body))
    assert any(line.startswith(" I/Os in a cell of a strip: 1 ") and line.rstrip().endswith(" all") for line in lines)


async def test_a_comparison_scrolls_and_says_which_keys_have_no_effect(both, monkeypatch):
    app = LatmonApp(Source(host(2, 3)), ScreenOptions(theme=load_theme("dark")), depth="256")
    sentences = [f"sentence {number}" for number in range(40)]
    monkeypatch.setattr(output, "paragraphs", lambda *_, **__: [("", sentences)])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.scene.comparison = both[0].comparison
        await pilot.press("s")
        assert app.scene.message == "s has no effect on a comparison; Esc or D leaves it"
        seen = ""
        for _ in range(5):
            seen += "\n".join(map(plain, app._main.lines))
            await pilot.press("pagedown")
        assert {int(number) for number in re.findall(r"sentence (\d+)", seen)} == set(range(40))
        assert "… PgDn: 31 more lines" in seen


@pytest.mark.parametrize(("before", "after"), [("sda", "sdb"), ("sda", "sda")])
def test_ios_of_0_us_and_sides_without_a_common_device_are_drawn(before, after):
    sides = []
    for device in (before, after):
        quick = {Series(device, "read", "total"): Histogram.record([0] * 100)}
        sides.append(period_of("x", ORIGIN, (), (frame(number, quick) for number in range(36))))
    text = "\n".join(map(plain, panel(pair_report(compare(*sides)), Selection(), RAMP, 120, 40)))
    assert ("0us" in text) is ("sda read" in text) is (before == after)


def test_a_small_comparison_says_that_a_larger_terminal_shows_more(both):
    scene, _, _ = both
    for cells, rows in ((40, 10), (80, 12)):
        assert "a larger terminal shows the latencies" in plain_body(scene, cells, rows)
    assert "a larger terminal" not in plain_body(scene, 80, 24)
    assert re.match(r".?A from 03:00:00  B from 03:00:3\d ", plain_body(scene, 40, 10))


async def test_esc_and_another_screen_leave_the_comparison_and_no_key_changes_what_it_hides(both):
    app = LatmonApp(Source(host(2, 3)), ScreenOptions(theme=load_theme("dark")), depth="256")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for key, screen in (("escape", "overview"), ("2", "stages"), ("D", "stages")):
            app.scene.comparison, before = both[0].comparison, app.scene.selection
            await pilot.press("tab", "r", "s", "slash", "V")
            assert app.scene.selection == before
            await pilot.press("x")  # a key that draws again
            shown = plain(app._main.lines[-1])
            assert "Esc back" in shown
            assert "zoom" not in shown
            await pilot.press(key)
            assert app.scene.comparison is None
            assert app.scene.selection.screen == screen


def test_an_op_whose_long_ios_alone_differ_has_no_other_difference():
    """The sentence on long I/Os came first, and `no difference found` below it."""
    read, write = (Series("nvme0n1", op, "total") for op in ("read", "write"))
    quick = {series: Histogram.record([100, 120, 140] * 400) for series in (read, write)}
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(ORIGIN)
    comparing = Comparing(scene, [].append)
    for number in range(80):
        slow = {read: Histogram.record([*[100, 120, 140] * 400, 900_000])} if number in range(4, 12) else {}
        scene.append(frame(number, {**quick, **slow}, devices=disks(1) if number == 0 else ()))
        if number in (35, 79):
            comparing.step()
    text = "\n".join(map(plain, scene.draw(120, 40).body))
    assert "nvme0n1 read  the long I/Os alone differ" in text
    assert "nvme0n1 write  no difference found" in text
    assert "no other difference found: " in text
