"""A and B side by side: what the key does, and what is drawn, without an app."""

from dataclasses import replace

import pytest
from frames import ORIGIN, host

from latmon.mark import Mark
from latmon.tui.comparing import Comparing
from latmon.views.choice import Choice
from latmon.views.heatmap import RAMP
from latmon.views.lines import plain, width
from latmon.views.scene import Scene

SECONDS = 16


MARK = Mark("B", 1, 1.0, {"device nvme1n1": {"scheduler": "mq-deadline"}})


@pytest.fixture(scope="module")
def both():
    """A scene with A and B on it, the key, and what it put into the capture; disk 1 is sick in B."""
    put = []
    scene = Scene(Choice(), ink=RAMP)
    scene.opened(replace(ORIGIN, settings={"device nvme1n1": {"scheduler": "none"}}))
    comparing = Comparing(scene, [].append, put.append)
    for one in host(2, SECONDS, ios=40):
        scene.append(one)
    comparing.step()
    for number, one in enumerate(host(2, 2 * SECONDS, odd="nvme1n1", ios=40)[SECONDS:]):
        scene.append(replace(one, marks=(MARK,) if number == 2 else ()))
    comparing.step()
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


def test_a_setting_that_a_mark_told_of_is_named(both):
    text = "\n".join(map(plain, both[0].draw(80, 24).body))
    assert "set: device nvme1n1 scheduler: none -> mq-deadline" in text


def test_the_third_press_leaves(both):
    scene, comparing, _ = both
    beside = scene.beside
    comparing.step()
    assert scene.beside is None
    assert "the tail grew" not in "\n".join(map(plain, scene.draw(80, 24).body))
    scene.beside = beside


def test_too_soon_is_said():
    said = []
    scene = Scene(Choice(), ink=RAMP)
    comparing = Comparing(scene, said.append)
    comparing.step()
    assert said == ["there is nothing to compare yet"]
    scene.opened(ORIGIN)
    frames = host(1, 12, ios=20)
    for one in frames[:10]:
        scene.append(one)
    comparing.step()
    scene.append(frames[10])
    comparing.step()
    assert said[-1] == "only 1 frames since A, a comparison takes 6: wait, then D again"
    assert scene.beside is None
