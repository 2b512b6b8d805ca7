"""docs/incidents: every page has its pictures, recordings and short quotes.

Slow tests: the demos make the recordings again, the commands print the quotes, and a tour's stops show their texts.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from latmon.cli import main
from latmon.cli.demo import record
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import DEFAULT
from latmon.findings.tour import load_tour, tours
from latmon.model.frame import Frame
from latmon.recording.reader import open_recording
from latmon.tui.commands import show_at
from latmon.tui.tour import EVERY, HISTORY, Touring
from latmon.views.lines import plain
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection

PAGES = Path(__file__).parents[2] / "docs" / "incidents"
RECORDINGS = PAGES / "recordings"
NAMES = tuple(name for incident in tours() for name in (incident, f"{incident}-healthy"))
LARGEST = 8_000_000
"""Bytes of all recordings: everybody who clones it fetches them."""
SHORT = 60_000_000
QUOTE = re.compile(r"<!-- latmon ([^>]*) -->\n\n```text\n(.*?)```", re.DOTALL)
"""Command and quoted output."""
LONGEST = 24
"""Lines of a quote: the reader prints the rest with its command."""
FIRST = {
    "emulex": "completion-wakeup",
    "e810": "tick-quantum",
    "serialised": "outstanding-ceiling",
    "qumulo": "slow-shared-handler",
    "bubbles": "starved-io",
}
SEEN = {
    "emulex": (
        ("1.05s│", "1.24s"),
        ("x2", "x4", "compl"),
        ("hba ", "completion ", ">99%", "sd0 above 524 ms: >99 % completion"),
        ("emlxs_thread", " 97 ", "prio 99"),
        ("completion-wakeup",),
    ),
    "e810": (
        ("nvme0n1", "3.97m"),
        ("nvme0n1 region", "3.97m"),
        ("98 % softirq",),
        ("IRQ_POLL", "98%", "tick"),
        ("tick-quantum", "1/250 s"),
    ),
    "serialised": (
        ("▸sd1", "50m", "queue"),
        ("% queue", "3.1m"),
        ("3 of 3 in the driver", "un_throttle", "mode 3"),
        ("outstanding-ceiling",),
        ("▸sd1",),
    ),
    "qumulo": (
        ("4 of 24", "▸nvme13n1", "6x"),
        ("▸nvme13n1",),
        ("% irq",),
        ("switchtec0", "none"),
        ("slow-shared-handler", "switchtec0"),
    ),
    "bubbles": (
        ("65.5m│", "131m│"),
        ("> 10 s: 300", "queue"),
        ("sorted by LBA",),
        ("starved-io",),
        ("▸sd1",),
    ),
}
"""What each stop's text speaks of, on a screen of 80x24."""


def frames(path: Path) -> Iterator[Frame]:
    return (item for item in open_recording(path) if isinstance(item, Frame))


@pytest.mark.parametrize("incident", tours())
def test_a_page_has_its_pictures_and_quotes(incident):
    text = (PAGES / f"{incident}.md").read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (PAGES / link).exists(), link
    assert "```text\n```" not in text, "make incidents fills it"
    sick, healthy = (f"recordings/{name}.latmon.jsonl.gz" for name in (incident, f"{incident}-healthy"))
    assert all((PAGES / name).exists() for name in (sick, healthy))
    quotes = dict(QUOTE.findall(text))
    assert list(quotes) == [f"report {sick}", f"diff {sick} {healthy}"]
    assert FIRST[incident] in quotes[f"report {sick}"]
    for command, quoted in quotes.items():
        assert quoted.splitlines()[0] == f"$ latmon {command}"
        assert len(quoted.splitlines()) <= LONGEST
    assert f"({incident}.md)" in (PAGES / "README.md").read_text()


def test_the_recordings_are_small_and_say_that_they_are_synthetic():
    made = sorted(RECORDINGS.iterdir())
    assert {path.name.partition(".")[0] for path in made} == set(NAMES)
    assert sum(path.stat().st_size for path in made) < LARGEST
    assert all(open_recording(path).origin.reason.startswith("synthetic") for path in made)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_what_the_demo_makes(name, tmp_path):
    kept = RECORDINGS / f"{name}.latmon.jsonl.gz"
    whole = not name.endswith("-healthy") or name == "bubbles-healthy"
    record(name, 1, tmp_path / "made", None if whole else SHORT)
    made = open_recording(tmp_path / "made")
    assert replace(open_recording(kept).origin, latmon="") == replace(made.origin, latmon="")
    assert list(open_recording(kept)) == list(made)


@pytest.mark.slow
@pytest.mark.parametrize("incident", tours())
def test_a_quote_is_what_its_command_prints(incident, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(PAGES)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for command, quoted in QUOTE.findall((PAGES / f"{incident}.md").read_text()):
        assert main.main(command.split()) == 0
        printed = capsys.readouterr().out.splitlines()
        lines = [line for line in quoted.splitlines()[1:] if line and not line.startswith("  …")]
        assert [line for line in lines if line not in printed] == []


@pytest.mark.slow
@pytest.mark.parametrize("incident", tours())
def test_the_first_finding_is_the_right_one_and_health_has_none(incident):
    for name, expected in ((incident, FIRST[incident]), (f"{incident}-healthy", None)):
        path = RECORDINGS / f"{name}.latmon.jsonl.gz"
        watch = RuleEngine(open_recording(path).origin)
        for frame in islice(frames(path), 60):
            watch.take(frame)
        watch.finish()
        assert (watch.current[0].id if watch.current else None) == expected


@pytest.mark.slow
@pytest.mark.parametrize("incident", tours())
def test_a_stop_shows_what_its_text_says(incident):
    path = RECORDINGS / f"{incident}.latmon.jsonl.gz"
    tour = load_tour(incident)
    scene, touring = Scene(Selection(), mode="DEMO", findings=DEFAULT), Touring(tour)
    scene.opened(open_recording(path).origin)
    left = frames(path)
    for number, words in enumerate(SEEN[incident], 1):
        for frame in islice(left, HISTORY + EVERY // 2 if number == 1 else EVERY):
            scene.append(frame)
            touring.arrived(frame.seq)
        assert touring.stop is tour.stops[number - 1]
        scene.choose(show_at(scene.view, touring.stop.where))
        scene.banner = touring.banner
        screen_lines(scene, (), 80, 24)
        shown = "\n".join(plain(line) for line in screen_lines(scene, (), 80, 24))
        assert f" {number}/5 " in shown
        for word in words:
            assert word in shown, shown
