"""A and B side by side: what the key does, and what is drawn, without an app."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from frames import ORIGIN, PROCFS, Source, disks, frame, host

from latmon.diff.conditions import differing
from latmon.model.frame import Mark, Series
from latmon.model.histogram import Histogram
from latmon.support.theme import load_theme
from latmon.tui.app import LatmonApp
from latmon.tui.time_travel import Comparing
from latmon.views.heatmap import RAMP
from latmon.views.lines import plain, width
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
    comparing = Comparing(scene, [].append, put.append)
    for one in host(2, SECONDS, ios=40):
        scene.append(one)
    comparing.step()
    *frames, last = host(2, 2 * SECONDS + 1, odd="nvme1n1", ios=40)[SECONDS:]
    for number, one in enumerate(frames):
        scene.append(replace(one, marks=(Mark("A", changed={}),) if number == 1 else ()))
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
    text = "\n".join(map(plain, scene.draw(80, 40).body))
    assert "nvme1n1 write: the tail grew" in text
    assert text.index(" nvme1n1 write  ") < text.index(" nvme0n1 read  ")


def test_labels_above_the_strips_are_equally_far_apart(both):
    for cells in (80, 120, 160):
        titles = next(plain(line) for line in both[0].draw(cells, 40).body if " p99.9 " in plain(line))
        at = [label.start() for label in re.finditer(r"\d+[um]?s", titles)]
        assert len(at) >= 3
        assert len({round((b - a) / 3) for a, b in pairwise(at)}) == 1


def test_a_setting_from_a_mark_is_named(both):
    text = "\n".join(map(plain, both[0].draw(80, 24).body))
    assert "set: device nvme1n1 scheduler: none -> mq-deadline" in text


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
    for one in frames[:10]:
        scene.append(one)
    comparing.step()
    scene.append(frames[10])
    comparing.step()
    assert sentences[-1] == "only 1 window since A, and a comparison needs 6: wait, then press D again"
    assert scene.comparison is None


def test_the_kernels_counters_are_not_compared_with_the_probes_windows():
    sentences = []
    scene = Scene(Selection(), ink=RAMP)
    comparing = Comparing(scene, sentences.append)
    for one in host(1, 8, ios=20):
        scene.preview(PROCFS, one)
    comparing.step()
    assert sentences == ["nothing to compare yet: the probes are starting, and their windows are what is compared"]
    scene.opened(ORIGIN)
    for one in host(1, 8, ios=20):
        scene.append(one)
    comparing.step()
    assert sentences[-1].startswith("A is ")


CHANGED = {"device nvme1n1": {"scheduler": "kyber"}}


def pressed(reported, *, at="edge", noted=()):
    """The settings that differ after two presses; `told`: the changes in the marks of A and B, each a frame late."""
    scene = Scene(Selection(), ink=RAMP)
    scene.opened(replace(ORIGIN, settings={"device nvme1n1": {"scheduler": "none"}}))
    put = []
    comparing = Comparing(scene, [].append, put.append if at != "replay" else None)
    waiting = None
    for number, one in enumerate(host(1, 40, ios=10)):
        marks = [Mark(text, one.mono_us - 1, one.wall, changed) for when, text, changed in noted if when == number]
        if waiting:
            marks.append(Mark(waiting, one.mono_us - 1, one.wall, reported[waiting]))
        waiting = None
        scene.append(replace(one, marks=tuple(marks)))
        comparing.arrived()
        if number in (15, 30):
            known = len(put)
            comparing.step()
            waiting = put[-1] if len(put) > known and put[-1] in reported else None
    assert scene.comparison is not None
    return [(one.name, one.a, one.b) for one in differing(scene.comparison.a, scene.comparison.b)]


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
    for number, one in enumerate(frames):
        marks = (Mark("on", one.mono_us - 1, one.wall, CHANGED),) if number == 2 else ()
        scene.append(replace(one, marks=marks))
    scene.edge.store.frames.clear()
    comparing = Comparing(scene, [].append)
    comparing.step()
    for one in host(1, 75, ios=10)[60:]:
        scene.append(one)
    comparing.step()
    assert scene.comparison.a.settings == CHANGED
    assert scene.comparison.b.settings == CHANGED


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
    quick = {one: Histogram.record([100, 120, 140] * 400) for one in (read, write)}
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
