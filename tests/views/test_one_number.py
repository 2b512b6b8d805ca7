"""One fact has one number: I/Os above the threshold on each screen, and the begin of latencies in the titles."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from latmon.findings.rule import DEFAULT, Settings
from latmon.model.frame import Frame, Origin
from latmon.recording.reader import open_recording
from latmon.views.context import no_threshold
from latmon.views.lines import BLANK, plain
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection
from latmon.views.verdict import _nothing, _slow
from latmon_backends.demo import host_window

RECORDINGS = Path(__file__).resolve().parents[2] / "docs/incidents/recordings"


@cache
def captured(name: str, windows: int = 25) -> tuple[Origin, tuple[Frame, ...]]:
    if name == "host":
        return host_window.host().origin, tuple(islice(host_window.frames(Random(1), Random(1)), windows))
    source = open_recording(RECORDINGS / f"{name}.latmon.jsonl.gz")
    return source.origin, tuple(islice((item for item in source if isinstance(item, Frame)), windows))


def scene(
    name: str, selection: Selection | None = None, findings: Settings | None = None, *, windows: int = 25
) -> Scene:
    origin, frames = captured(name, windows)
    scene = Scene(selection or Selection(), findings=findings)
    scene.opened(origin)
    for frame in frames:
        scene.append(frame)
    return scene


def text(scene: Scene, size: tuple[int, int] = (120, 40)) -> str:
    return "\n".join(map(plain, screen_lines(scene, BLANK, *size)))


def test_ios_above_the_threshold_are_as_many_on_each_screen() -> None:
    """The probe counts each one by 300 us; the nearest edge of a bucket above it is 320 us."""
    given_scene = scene("qumulo", Selection(selected="nvme13n1"))
    assert given_scene.view.origin is not None
    on_map = re.search(r"([\d,]+) above (\S+us)", text(given_scene))
    assert on_map is not None
    number, bound = on_map.groups()
    assert bound == f"{given_scene.view.origin.threshold_us}us"
    by_device = {subject.device.name: given_scene.view.above(subject) for subject in given_scene.view.subjects()}
    total = sum(above.ios for above in by_device.values() if above is not None)
    assert f"{by_device['nvme13n1'].ios:,}" == number
    (said,) = _slow(given_scene.view)
    assert said.startswith(f"{total:,} above {given_scene.view.origin.threshold_us} us ")
    given_scene.choose(Selection(screen="outliers"))
    assert f" of {total:,} above the threshold" in text(given_scene)


def test_an_automatic_threshold_is_named_where_none_is_set() -> None:
    given_scene = scene("host", Selection(selected="sdd"))
    assert " I/Os, no threshold (log from 40 ms) " in text(given_scene), "the map's title"
    automatic = given_scene.view.history.on_demand.thresholds_us
    said = no_threshold(automatic.values())
    assert re.fullmatch(r"no threshold \(log from [\d.]+ ms to [\d.]+ m?s\)", said)
    assert _nothing(given_scene.view) == f"{said}, A sets one", "the verdict"
    assert no_threshold([40_000, 40_000]) == "no threshold (log from 40 ms)"
    assert no_threshold(()) == "no threshold"
    given_scene.choose(Selection(screen="outliers"))
    assert "above the automatic threshold" in text(given_scene)
    assert "above the threshold" not in text(given_scene)


def test_a_log_by_another_threshold_than_the_map_s_names_its_own() -> None:
    given_scene = scene("e810", Selection(screen="outliers", threshold_us=10_000))
    assert " above 2ms" in text(given_scene)


def test_latencies_with_and_without_the_queue_have_their_own_titles() -> None:
    """Tier C: the always-on probe begins at the issue, the tracer at the request's begin."""
    given_scene = scene("e810")
    assert " driver p50 " in text(given_scene)
    given_scene.choose(Selection(screen="stages"))
    assert " total p50 " in text(given_scene)
    assert " total p99 " in text(given_scene)
    given_scene = scene("host")
    assert "driver p50" not in text(given_scene)
    given_scene.choose(Selection(screen="stages"))
    assert "total p50" not in text(given_scene)


def test_the_longest_wait_has_its_exact_time_on_each_screen() -> None:
    """Four I/Os of sd0 are in the highest bucket, which ends at 1.31 s, and all four are recorded."""
    given_scene = scene("emulex", findings=DEFAULT)
    for screen, words in (
        ("overview", "sd0: up to 1.24 s late"),
        ("stages", r"c completion +\S+ +\S+ +1\.24s"),
        ("interrupts", r"had the CPU of emlxs0_channel3: .*up to 1\.24s"),
        ("interrupts", r"emlxs0_channel3 .* 1\.24s zpool-data"),
        ("findings", "its latest wake-up took 1.24 s"),
        ("findings", "the longest wait was 1.24 s"),
    ):
        given_scene.choose(Selection(screen=screen, selected="sd0"))
        shown = text(given_scene, (120, 50))
        assert re.search(words, shown), (screen, words)
        assert "1.31" not in shown, screen
        assert "≤1.3s" not in shown, screen


@pytest.mark.parametrize(("name", "device", "set_to"), [("qumulo", "nvme13n1", "600"), ("emulex", "sd0", "500")])
def test_the_threshold_is_shown_as_it_is_set_and_its_number_is_that_of_the_map(name, device, set_to) -> None:
    """Those of the threshold's own bucket are recorded one by one: 640 us and 524 ms are the next bounds."""
    given_scene = scene(name, findings=DEFAULT)
    (above,) = [
        given_scene.view.above(subject) for subject in given_scene.view.subjects() if subject.device.name == device
    ]
    given_scene.choose(Selection(screen="stages", selected=device))
    shown = text(given_scene, (160, 50))
    assert re.search(rf"I/Os above {set_to} [mu]s", shown)
    assert re.search(rf"{device} .* {above.ios:,} +[>0-9]+%", shown), "the row's I/Os"
    given_scene.choose(Selection(screen="findings"))
    assert re.search(rf"I/Os above {set_to} [mu]s", text(given_scene, (160, 50)))


def test_a_threshold_in_a_bucket_of_which_not_all_are_recorded_is_that_of_the_next_one() -> None:
    origin, frames = captured("qumulo")
    scene = Scene(Selection(screen="stages", selected="nvme13n1"))
    scene.opened(origin)
    for frame in frames:
        scene.append(replace(frame, outliers=frame.outliers[:1]))
    assert re.search(r"all I/Os +>640 us", text(scene, (160, 50)))


@pytest.mark.parametrize(
    ("name", "device", "part"),
    [
        ("bubbles", "sd1", r"queue +7[34]%"),
        ("serialised", "sd1", r"queue +9[0-9]%"),
        ("emulex", "sd0", r"completion +>99%"),
    ],
)
def test_the_slow_part_is_known_wherever_the_evidence_is(name, device, part) -> None:
    """Of traced I/Os, else of the recorded ones; where the device is full and none is slow, of all I/Os."""
    rows = [line for line in text(scene(name)).splitlines() if re.match(rf"..{device} ", line)]
    assert re.search(part, rows[0])


def minute_of_the_host() -> Scene:
    return scene("host", Selection(selected="sde"), DEFAULT, windows=60)


def test_ios_in_flight_are_a_part_of_the_slow_ones() -> None:
    """Two I/Os of sde wait, the older one in the driver: longer than all completed ones together took."""
    shown = text(minute_of_the_host())
    assert "sde: 2 I/Os stuck for up to 55 s, the oldest in the driver" in shown
    assert re.search(r"sde .* hba +[5-9][0-9]%", shown)


def test_the_slow_part_is_as_large_on_the_screen_of_stages() -> None:
    """The ages of two I/Os in flight on sde count on both: without them its queue would have 89 %."""
    scene = minute_of_the_host()
    on_overview = re.search(r"sde .* (hba) +(\d+%)", text(scene))
    assert on_overview is not None
    stage, share = on_overview.groups()
    scene.choose(Selection(screen="stages", selected="sde"))
    shown = text(scene, (160, 50))
    assert re.search(rf"sde .* {share} {stage} ", shown), "the row of the device"
    assert re.search(rf"h {stage} .* {share} ", shown), "the row of the stage"
    assert " with 2 in flight" in shown


def test_what_is_stuck_is_in_the_table_and_beside_the_map_too() -> None:
    """No probe of Solaris follows I/Os: Little's law has a least number of those that are stuck, and a least age."""
    shown = text(scene("bubbles", findings=DEFAULT, windows=60))
    stuck = re.search(r"sd1: at least (\d+) I/Os stuck for 30 s or longer", shown)
    assert stuck is not None
    assert re.search(r"▸sd1 .* >30s ", shown)
    assert f"0 done, at least {stuck[1]} in flight above 1s" in shown
    assert "0 done above" in shown, "the mark at the threshold"
    assert " 0 above" not in shown
    assert "max 2" not in shown, "no maximum of those that completed is called the maximum"


def test_the_column_of_peers_has_the_number_of_the_finding() -> None:
    shown = text(scene("qumulo", findings=DEFAULT, windows=60))
    said = re.search(r"nvme13n1: its slowest \w+ take .* or longer, (\d+) times its peers'", shown)
    assert said is not None
    assert re.search(rf"nvme13n1 .* {said[1]}x ", shown)


def test_the_column_of_peers_is_there_where_a_device_is_unlike_them() -> None:
    tables = [text(made, (160, 50)).splitlines() for made in (scene("emulex"), minute_of_the_host())]
    without, with_peers = (next(line for line in lines if " IOPS " in line).split() for lines in tables)
    assert "peers" not in without
    assert [title for title in with_peers if title != "peers"] == without, "no other column in its place"
