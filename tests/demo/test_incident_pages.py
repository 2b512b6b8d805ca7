"""docs/incidents: every page has its pictures, recordings, cast and short quotes.

Slow tests: the demos make the recordings again, the commands print the quotes, and a tour's stops show their texts.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from latmon.cli.headless import record_demo
from latmon.cli.main import run as main
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import DEFAULT
from latmon.model.frame import Frame
from latmon.recording.reader import open_recording
from latmon.tui.commands import show_at
from latmon.tui.tour import EVERY, HISTORY, Touring, load_tour, tours, without_keys
from latmon.views.lines import plain
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection
from latmon_backends.demo.backend import BACKFILL, INCIDENTS

PAGES = Path(__file__).parents[2] / "docs" / "incidents"
RECORDINGS = PAGES / "recordings"
INCIDENT_TOURS = tuple(name for name in tours() if name in INCIDENTS)
NAMES = tuple(name for incident in INCIDENT_TOURS for name in (incident, f"{incident}-healthy"))
LIVE = sorted((RECORDINGS / "live").glob("*.gz"))
"""Recordings of real probes with the test driver of tests/lab, named by their first finding."""
LARGEST_LIVE = 100_000
LARGEST = 8_000_000
"""Bytes of all recordings: everybody who clones it fetches them."""
LARGEST_CAST, LONGEST_CAST_S = 300_000, 24
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
        ("1s┤", "836ms"),
        ("x2", "x4", "compl"),
        ("hba ", "completion ", ">524 ms", ">99%"),
        ("emlxs0_channel3", " 97 ", "prio 99"),
        ("completion-wakeup",),
    ),
    "e810": (
        ("nvme0n1", "3.97ms"),
        ("nvme0n1 region", "3.97ms"),
        ("s softirq", " 98%"),
        ("IRQ_POLL", "98%", "tick"),
        ("tick-quantum", "1/250 s"),
    ),
    "serialised": (
        ("▸sd1", "50ms", "3/3"),
        ("q queue", "94%", "3.1ms"),
        ("3 of 3 in the driver", "un_throttle", "mode 3"),
        ("outstanding-ceiling",),
        ("▸sd1",),
    ),
    "qumulo": (
        ("2 of 24", "▸nvme13n1", "irq"),
        ("▸nvme13n1",),
        ("i irq", ">640 us", "92%"),
        ("switchtec0", "none"),
        ("slow-shared-handler", "switchtec0"),
    ),
    "bubbles": (
        ("128ms┤", "starved I/O"),
        ("by Little's law", "queued"),
        ("sorted by LBA",),
        ("starved-io",),
        ("▸sd1",),
    ),
}
"""What each stop's text speaks of, on a screen of 80x24."""
VERDICT = {
    "emulex": " late: emlxs0_channel3 was not run, zpool-data had its CPU",
    "e810": " of I/Os take one tick (3.96 ms): IRQ_POLL waits for it",
    "serialised": "3 I/Os in flight at most, ",
    "qumulo": " of slow I/Os' time waits for a handler: switchtec0 on irq 53",
    "bubbles": " stuck for ",
}
"""The text that names the cause of each incident on the first screen."""


def frames(path: Path) -> Iterator[Frame]:
    return (item for item in open_recording(path) if isinstance(item, Frame))


@pytest.mark.parametrize("incident", INCIDENT_TOURS)
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


@pytest.mark.parametrize("incident", INCIDENT_TOURS)
def test_a_page_has_a_short_and_small_cast_of_its_tour(incident):
    path = PAGES / "casts" / f"{incident}.cast"
    assert f"(casts/{incident}.cast)" in (PAGES / f"{incident}.md").read_text()
    assert path.stat().st_size < LARGEST_CAST
    header, *events = map(json.loads, path.read_text().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 100, 30)
    assert events[-1][0] <= LONGEST_CAST_S
    drawn = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", "".join(text for _, _, text in events))
    assert load_tour(incident).title in drawn


def test_the_recordings_are_small_and_say_that_they_are_synthetic():
    paths = sorted(RECORDINGS.glob("*.gz"))
    assert {path.name.partition(".")[0] for path in paths} == set(NAMES)
    assert sum(path.stat().st_size for path in paths) < LARGEST
    assert all(open_recording(path).origin.reason.startswith("synthetic") for path in paths)


@pytest.mark.parametrize("path", LIVE, ids=lambda path: path.name.partition(".")[0])
def test_the_first_finding_of_a_live_recording_is_the_one_that_names_it(path):
    source = open_recording(path)
    assert (source.origin.backend, source.origin.host) == ("bpftrace", "latmon-vm")
    assert path.stat().st_size < LARGEST_LIVE
    watch, seen = RuleEngine(source.origin), []
    for frame in frames(path):
        watch.take(frame)
        seen += watch.current[:1]
    watch.finish()
    first = (seen or watch.current)[0]
    assert path.name.startswith(f"{first.id}-")
    assert first.device.startswith("sick")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_what_the_demo_makes(name, tmp_path):
    kept = RECORDINGS / f"{name}.latmon.jsonl.gz"
    whole = not name.endswith("-healthy") or name == "bubbles-healthy"
    record_demo(name, 1, tmp_path / "made", None if whole else SHORT)
    recording = open_recording(tmp_path / "made")
    assert replace(open_recording(kept).origin, latmon="") == replace(recording.origin, latmon="")
    assert list(open_recording(kept)) == list(recording)


@pytest.mark.slow
@pytest.mark.parametrize("incident", INCIDENT_TOURS)
def test_a_quote_is_what_its_command_prints(incident, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(PAGES)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for command, quoted in QUOTE.findall((PAGES / f"{incident}.md").read_text()):
        assert main(command.split()) == 0
        printed = capsys.readouterr().out.splitlines()
        lines = [line for line in quoted.splitlines()[1:] if line and not line.startswith("  …")]
        assert [line for line in lines if line not in printed] == []


@pytest.mark.slow
@pytest.mark.parametrize("incident", INCIDENT_TOURS)
def test_the_first_finding_is_the_right_one_and_health_has_none(incident):
    for name, expected in ((incident, FIRST[incident]), (f"{incident}-healthy", None)):
        path = RECORDINGS / f"{name}.latmon.jsonl.gz"
        watch = RuleEngine(open_recording(path).origin)
        for frame in islice(frames(path), 60):
            watch.take(frame)
        watch.finish()
        assert (watch.current[0].id if watch.current else None) == expected


@pytest.mark.parametrize(
    "incident", [pytest.param(one, marks=[pytest.mark.slow] * (one in ("qumulo", "e810"))) for one in INCIDENT_TOURS]
)
def test_the_first_screen_names_the_cause_whole_within_ten_seconds(incident):
    """`latmon demo` begins with its first windows at once; ten more are ten seconds."""
    path = RECORDINGS / f"{incident}.latmon.jsonl.gz"
    scene = Scene(Selection(), mode="DEMO", findings=DEFAULT)
    scene.opened(open_recording(path).origin)
    for frame in islice(frames(path), BACKFILL + 10):
        scene.append(frame)
    lines = [plain(line) for line in screen_lines(scene, (), 80, 24)]
    first = next(at for at, line in enumerate(lines) if line.startswith(("!! ", " ! ")))
    shown = " ".join(" ".join(lines[first:-2]).split())
    assert first == 1, "below the title"
    assert scene.view.found.urgent[0].short in shown
    assert VERDICT[incident] in shown
    assert "…" not in shown.partition(" IOPS ")[0]


@pytest.mark.slow
@pytest.mark.parametrize("incident", INCIDENT_TOURS)
def test_a_stop_shows_what_its_text_says(incident):
    path = RECORDINGS / f"{incident}.latmon.jsonl.gz"
    tour = load_tour(incident)
    scene, touring = Scene(Selection(), mode="DEMO", findings=DEFAULT), Touring(tour, without_keys)
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
