"""One fact has one number: I/Os above the threshold on each screen, and the begin of latencies in the titles."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

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
def captured(name: str) -> tuple[Origin, tuple[Frame, ...]]:
    if name == "host":
        return host_window.host().origin, tuple(islice(host_window.frames(Random(1), Random(1)), 25))
    source = open_recording(RECORDINGS / f"{name}.latmon.jsonl.gz")
    return source.origin, tuple(islice((item for item in source if isinstance(item, Frame)), 25))


def scene(name: str, selection: Selection | None = None) -> Scene:
    origin, frames = captured(name)
    made = Scene(selection or Selection())
    made.opened(origin)
    for frame in frames:
        made.append(frame)
    return made


def text(made: Scene, size: tuple[int, int] = (120, 40)) -> str:
    return "\n".join(map(plain, screen_lines(made, BLANK, *size)))


def test_ios_above_the_threshold_are_as_many_on_each_screen() -> None:
    """The probe counts each one by 300 us; the nearest edge of a bucket above it is 320 us."""
    made = scene("qumulo", Selection(selected="nvme13n1"))
    assert made.view.origin is not None
    on_map = re.search(r"([\d,]+) above (\S+us)", text(made))
    assert on_map is not None
    number, bound = on_map.groups()
    assert bound == f"{made.view.origin.threshold_us}us"
    by_device = {one.device.name: made.view.above(one) for one in made.view.subjects()}
    total = sum(above.ios for above in by_device.values() if above is not None)
    assert f"{by_device['nvme13n1'].ios:,}" == number
    (said,) = _slow(made.view)
    assert said.startswith(f"{total:,} above {made.view.origin.threshold_us} us ")
    made.choose(Selection(screen="outliers"))
    assert f" of {total:,} above the threshold" in text(made)


def test_an_automatic_threshold_is_named_where_none_is_set() -> None:
    made = scene("host", Selection(selected="sdd"))
    assert " I/Os, no threshold (log from 40 ms) " in text(made), "the map's title"
    automatic = made.view.history.on_demand.thresholds_us
    said = no_threshold(automatic.values())
    assert re.fullmatch(r"no threshold \(log from [\d.]+ ms to [\d.]+ m?s\)", said)
    assert _nothing(made.view) == f"{said}, A sets one", "the verdict"
    assert no_threshold([40_000, 40_000]) == "no threshold (log from 40 ms)"
    assert no_threshold(()) == "no threshold"
    made.choose(Selection(screen="outliers"))
    assert "above the automatic threshold" in text(made)
    assert "above the threshold" not in text(made)


def test_a_log_by_another_threshold_than_the_map_s_names_its_own() -> None:
    made = scene("e810", Selection(screen="outliers", threshold_us=10_000))
    assert " above 2ms" in text(made)


def test_latencies_with_and_without_the_queue_have_their_own_titles() -> None:
    """Tier C: the always-on probe begins at the issue, the tracer at the request's begin."""
    made = scene("e810")
    assert " driver p50 " in text(made)
    made.choose(Selection(screen="stages"))
    assert " total p50 " in text(made)
    assert " total p99 " in text(made)
    made = scene("host")
    assert "driver p50" not in text(made)
    made.choose(Selection(screen="stages"))
    assert "total p50" not in text(made)
