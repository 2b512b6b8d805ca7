"""`demo --tour --cast`: all stops with the keys that lead to them, in truecolour, as a player shows them."""

import json

import pyte
import pytest

from latmon.cli.main import run
from latmon.tui.tour import EVERY, load_tour


@pytest.fixture(scope="module")
def cast(tmp_path_factory):
    path = tmp_path_factory.mktemp("cast") / "bubbles.cast"
    assert run(["demo", "bubbles", "--tour", "--cast", str(path)]) == 0
    return path.read_text()


def shown_at(cast, seconds):
    """Return the lines that a player of 80x24 shows then."""
    screen = pyte.Screen(80, 24)
    stream = pyte.Stream(screen)
    for at_s, _, text in map(json.loads, cast.splitlines()[1:]):
        if at_s <= seconds:
            stream.feed(text)
    return screen.display


def test_each_stop_has_its_time_and_its_keys(cast):
    header = json.loads(cast.splitlines()[0])
    assert (header["version"], header["width"], header["height"]) == (2, 80, 24)
    assert header["title"] == "latmon demo bubbles --tour"
    for number, stop in enumerate(load_tour("bubbles").stops):
        lines = shown_at(cast, number * EVERY + 5)
        banner = next(line for line in lines if f" {number + 1}/5 " in line)
        assert banner.rstrip().endswith("next in 10 s")
        pressed = f"  keys: {stop.keys}" if stop.keys else ""
        assert lines[-1].rstrip() == f" latmon demo bubbles --tour{pressed}"
    assert any(line.startswith("─ end ") for line in shown_at(cast, 5 * EVERY + 5))


def test_it_lasts_a_stop_longer_than_the_stops(cast):
    assert json.loads(cast.splitlines()[-1])[0] == 6 * EVERY + 1


def test_its_colours_are_of_24_bits(cast):
    assert "38;2;" in cast
    assert "38;5;" not in cast


def test_a_faster_cast_counts_no_seconds(tmp_path):
    path = tmp_path / "fast.cast"
    assert run(["demo", "bubbles", "--tour", "--cast", str(path), "--speed", "5", "--theme", "mono"]) == 0
    text = path.read_text()
    assert "next in" not in "".join(shown_at(text, 1))
    assert json.loads(text.splitlines()[-1])[0] == 6 * EVERY / 5 + 1
    assert "38;" not in text
    assert "\x1b[2m" in text or ";2m" in text, "faint without colours"
