"""bottleneck-between: two tools measured the same I/Os, and the one nearer to the disk has far shorter times.

The time passes in the layer between them. Only an imported text has several tools. Which disk of one tool is which of
the other is not in the text: a device is compared with the slowest one below it, so that any of them would contradict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.facts import Facts
from latmon.findings.rule import (
    LATENCIES,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    short_text,
)
from latmon.model.frame import SOURCE
from latmon.support.units import part, spelled

ID = "bottleneck-between"
_LAYERS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("fio", "events application"), ("an application", 0)),
        **dict.fromkeys(("events file", "bcc file"), ("the file system", 0)),
        **dict.fromkeys(("iostat", "iostat-json", "kstat", "prometheus", "blkparse", "btt"), ("the block layer", 1)),
        **dict.fromkeys(("events disk", "bcc disk"), ("the block layer", 1)),
        **dict.fromkeys(("scsi.d", "emlxsoverhead"), ("the HBA's driver", 2)),
        **dict.fromkeys(("esxtop", "vscsistats"), ("the hypervisor", 3)),
        "latency-monitor": ("the drive", 4),
    }
)
"""Format of an import, and layer of its tool where that has several -> where it measures, and its place from the
application down. Tools whose layer is not known, such as funclatency, are not compared."""
_TOOLS: Mapping[str, str] = MappingProxyType(
    {
        "events application": "a log of the application",
        "events file": "a table of operations on files",
        "events disk": "a table of I/Os",
        "bcc file": "bcc's table of a file system",
        "bcc disk": "bcc's table of disks",
    }
)
"""Source -> the words for its tool; a format that is missing has one tool of the same name."""
_BETWEEN: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (0, 1): "the file system, the page cache or a throttle above the block layer",
        (1, 3): "the guest's queue and driver, or the virtual adapter",
        (2, 3): "the guest's driver, or the virtual adapter",
        (3, 4): "the adapter, the fabric or the array",
        (1, 4): "the driver, the adapter or the fabric",
    }
)


class _Measured(NamedTuple):
    """The mean time of a device's I/Os by one tool."""

    device: str
    source: str
    layer: int
    mean_us: float
    ios: int

    @property
    def tool(self) -> str:
        return _TOOLS.get(self.source, self.source)

    @property
    def text(self) -> str:
        return f"{self.device} by {self.tool}"


def layers_of(facts: Facts) -> int:
    """Return the number of layers at which the tools of an imported text measured; 0 for any other recording."""
    return len({_LAYERS[source][1] for name in facts.devices if (source := _source(facts, name)) in _LAYERS})


def _source(facts: Facts, device: str) -> str:
    source = facts.device(device).reported_value(SOURCE)
    return "" if source is None else str(source)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding for the device whose time is the most above that of all devices of a lower layer."""
    known = [
        layer_time
        for name in facts.devices
        if (layer_time := _measured(facts, name)) is not None and layer_time.ios >= limits["ios"]
    ]
    pairs = []
    for layer in {layer_time.layer for layer_time in known}:
        slowest = max(
            (layer_time for layer_time in known if layer_time.layer == layer), key=lambda layer_time: layer_time.mean_us
        )
        above = [
            layer_time
            for layer_time in known
            if layer_time.layer < layer and layer_time.mean_us >= limits["times"] * slowest.mean_us
        ]
        pairs += [
            (layer_time, slowest) for layer_time in above if layer_time.mean_us - slowest.mean_us >= limits["apart_us"]
        ]
    if pairs:
        # of several layers the two that are next to each other name the place best
        yield _finding(*min(pairs, key=lambda two: (two[1].layer - two[0].layer, two[1].mean_us - two[0].mean_us)))


def _measured(facts: Facts, device: str) -> _Measured | None:
    source = _source(facts, device)
    if source not in _LAYERS:
        return None
    layer, done, timed = _LAYERS[source][1], facts.completed(device), facts.latency(device)
    if timed.mean is not None:
        return _Measured(device, source, layer, timed.mean, timed.count)
    if done is None or not done.count or done.time_us is None:
        return None
    return _Measured(device, source, layer, done.time_us / done.count, done.count)


def _finding(above: _Measured, below: _Measured) -> Finding:
    places = f"{_LAYERS[above.source][0]} and {_LAYERS[below.source][0]}"
    between = _BETWEEN.get((above.layer, below.layer), "")
    share = 1 - below.mean_us / above.mean_us
    return Finding(
        id=ID,
        severity=WARNING,
        device=above.device,
        summary=f"{above.device}: {above.tool} has {spelled(above.mean_us)} for an I/O on average, {below.tool} "
        f"{spelled(below.mean_us)} at most ({below.device}): {part(share)} of it passes between {places}"
        f"{between and f', in {between}'}",
        facts=tuple(_facts(above, below)),
        where=Where("overview", above.device),
        steps=tuple(_steps(above, below)),
        refuted_by=f"{below.text} is not below {above.device}, or they were measured at other times",
        share=share,
        short=short_text(
            above.device,
            f"{part(share)} of an I/O's time passes between two tools",
            f": in {between}" if between else f", between {places}",
        ),
    )


def _facts(above: _Measured, below: _Measured) -> Iterator[Fact]:
    yield from duration_facts(
        ("above", above.mean_us, f"{above.text} takes {{}} on average", above.ios),
        ("below", below.mean_us, f"{below.text}, the slowest there, takes {{}} on average", below.ios),
    )
    text = f"{above.tool} measures in {_LAYERS[above.source][0]}, {below.tool} in {_LAYERS[below.source][0]}"
    yield Fact("layers", f"{above.source}, {below.source}", text)


def _steps(above: _Measured, below: _Measured) -> Iterator[Step]:
    yield Step(f"make sure that {above.device} is on {below.device}, or on another device that {below.tool} lists")
    if below.source in ("esxtop", "vscsistats"):
        yield Step(
            "see how many I/Os the guest has outstanding at its virtual disk: one at a time means that it serialises",
            commands=("vscsiStats -p outstandingIOs -c",),
        )
        yield Step("read the limits of the guest's driver: its queue depth, sd's un_throttle, tagged queueing")
    else:
        yield Step("measure the layer between them: latmon with stages on the host, or its queue's depth")


RULE = Rule(
    ID,
    "of two tools in an imported text the one nearer to the disk has far shorter times",
    evaluate,
    needs=LATENCIES,
    thresholds={
        "times": Threshold(5, "times", "the mean of the slowest device below, at least"),
        "apart_us": Threshold(5_000, "us", "between the two means, at least"),
        "ios": Threshold(100, "ios", "of each of the two, at least"),
    },
)
