"""The strip of each incident 2 s and 60 s after its begin has what is wrong, where and why, as far as that is known."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from latmon.findings.rule import DEFAULT
from latmon.model.frame import Frame
from latmon.recording.reader import open_recording
from latmon.views.lines import BLANK, plain
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection

RECORDINGS = Path(__file__).resolve().parents[2] / "docs/incidents/recordings"
SIZE = (80, 24)


@cache
def scene(name: str, windows: int) -> Scene:
    source = open_recording(RECORDINGS / f"{name}.latmon.jsonl.gz")
    scene = Scene(Selection(), findings=DEFAULT)
    scene.opened(source.origin)
    frames = (item for item in source if isinstance(item, Frame))
    for frame in islice(frames, windows):
        scene.append(frame)
    return scene


def shown(scene: Scene, screen: str = "overview", size: tuple[int, int] = SIZE) -> list[str]:
    scene.choose(Selection(screen=screen))
    return [plain(line) for line in screen_lines(scene, BLANK, *size)]


@pytest.mark.parametrize(
    ("name", "windows", "says"),
    [
        ("bubbles", 2, r" ○ sd1: un_throttle is full \(32 I/Os\), 121 wait above, disksort sorts by LBA "),
        ("bubbles", 60, r"!! sd1: at least [0-9]+ I/Os stuck for 30 s or longer, disksort sorts by LBA "),
        ("serialised", 2, r" ○ sd1: un_throttle is full \(3 I/Os\), 47 wait above "),
        ("serialised", 60, r"!! sd1: 3 I/Os in flight at most, 45 wait above; un_throttle is full "),
        ("emulex", 2, r"!! sd0: up to 1.24 s late: emlxs0_channel3 was not run, zpool-data had its CPU"),
        ("emulex", 60, r"!! sd0: up to 1.24 s late: emlxs0_channel3 was not run, zpool-data had its CPU"),
        ("e810", 2, r"!! nvme0n1: 97% of I/Os take one tick \(3.96 ms\): IRQ_POLL waits for it"),
        ("e810", 60, r"!! nvme0n1: 98% of I/Os take one tick \(3.96 ms\): IRQ_POLL waits for it"),
        ("qumulo", 2, r"!! nvme13n1: 93% of slow I/Os' time waits for a handler: switchtec0 on irq 53"),
        ("qumulo", 60, r"!! nvme13n1: 92% of slow I/Os' time waits for a handler: switchtec0 on irq 53"),
    ],
)
def test_the_strip_says_what_where_and_why(name, windows, says):
    assert re.match(says, f"{shown(scene(name, windows))[1]} ")


def test_a_device_that_is_full_without_a_sorted_order_is_named_all_the_time():
    """At each of these moments, also where 31 are in the driver just then."""
    for windows in (50, 60, 61, 62):
        assert re.match(
            r" ○ sd1: un_throttle is full \(32 I/Os\), [0-9]+ wait above$", shown(scene("bubbles-healthy", windows))[1]
        )


@pytest.mark.parametrize("screen", ["outliers", "who"])
@pytest.mark.parametrize("size", [SIZE, (120, 40)])
def test_screens_without_a_row_have_the_finding_and_its_steps(screen, size):
    lines = [line.strip("│ ") for line in shown(scene("bubbles", 60), screen, size)]
    assert any(line.startswith("!! sd1 starved I/O: at least ") for line in lines)
    assert any(line.startswith("1 turn disksort off for this product") for line in lines)
    assert not any("turn disksort off" in line for line in shown(scene("bubbles", 2), screen, size))


@pytest.mark.parametrize(("name", "words"), [("bubbles", "stuck for 30 s"), ("serialised", "3 I/Os in flight at most")])
def test_the_list_of_ios_in_flight_begins_with_the_finding_on_them(name, words):
    lines = shown(scene(name, 60), "outstanding")
    assert lines[1].startswith("!! sd1: ")
    assert words in lines[1]
    assert lines[2].startswith("─ in flight ")
    framed = shown(scene(name, 60), "outstanding", (120, 40))
    assert framed[1].startswith("╭─ finding ")
    assert words in framed[2]
    assert framed[3].startswith("├─ in flight ")
    assert shown(scene("emulex", 60), "outstanding")[1].startswith("─ in flight ")


def test_slow_ios_are_listed_the_worst_first():
    times = [
        float(total) for total in re.findall(r" ([0-9.]+)ms q", "\n".join(shown(scene("serialised", 60), "outliers")))
    ]
    assert len(times) > 9
    assert times == sorted(times, reverse=True)


def test_a_finding_on_one_wait_has_its_time_and_the_other_devices():
    """The wait began in the first second; the rules are evaluated at other times."""
    for windows in (2, 60):
        strip = " ".join(line.strip() for line in shown(scene("emulex", windows))[1:3])
        assert "zpool-data had its CPU, at 12:13:03, also sd1, sd3, sd4 " in strip
    assert "at 12:13:03" in shown(scene("emulex", 60), size=(120, 40))[1]
    assert "un_throttle 3 is misconfigured on 3 devices; 1 more  " in shown(scene("serialised", 2), size=(120, 40))[3]
