"""One fault at a time, of any size, on hosts without other faults: input of the sensitivity benchmark.

An effect gives a minute of frames for a size, and is found or not. Knows no figure and no page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from random import Random

from finding_cases import depths, disk, done, found, lasting, timed, traced
from like_drives import NOISES, Host, Sick

from latmon.findings.engine import NEEDS, RuleEngine
from latmon.findings.rule import Settings
from latmon.model.frame import Device, Frame
from latmon_backends.demo.backend import INCIDENTS
from latmon_backends.demo.scenario import Mode, Shape

IOPS = 1000
BLOCK = 5 * IOPS
LIMITS = {"queue_depth": 32, "scheduler": "bfq"}
USUAL = Shape((Mode(1, 90, 0.5),))


@dataclass(frozen=True)
class Effect:
    """`seen` is asked for a size between `least` and `most`; that it grows with the size is taken for granted."""

    rule: str
    name: str
    unit: str
    least: float
    most: float
    seen: Callable[[float, int], bool]
    """Size and seed."""
    digits: int = 2

    def smallest(self, seed: int, steps: int = 9) -> float | None:
        """By bisection of its logarithm; None where the greatest isn't found either."""
        low, high = self.least, self.most
        if not self.seen(high, seed):
            return None
        if self.seen(low, seed):
            return low
        for _ in range(steps):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if self.seen(middle, seed) else (middle, high)
        return high


def _asked(rule: str, frames: Sequence[Frame], devices: Sequence[Device] = ()) -> bool:
    return bool(found(rule, frames, devices, hz=250))


def _usual(seed: int, ios: int, **stages: int) -> list[tuple[int, dict[str, int]]]:
    return [(n, {"queue": 2, "hba": us, **stages}) for n, us in USUAL.draw(Random(seed), ios)]


def _peers(*, share: float = 0.0, times: float = 0.0) -> Callable[[float, int], bool]:
    def seen(size: float, seed: int) -> bool:
        host = Host(NOISES["lognormal"], 8, odd="nvme3n1", sick=Sick(share or size / 100, times or size))
        watch = RuleEngine(_ORIGIN, settings=Settings(off=frozenset(NEEDS) - {"peer-outlier"}))
        return any(watch.take(one) and bool(watch.current) for one in host.seconds(Random(seed), 60))

    return seen


def _far(size: float, seed: int) -> bool:
    load = _usual(seed, BLOCK)
    frames = [
        frame
        for n in range(12)
        for frame in lasting(12, histograms=timed("sda", [*load, (_nth(size, n), {"hba": 500_000})]))[n : n + 1]
    ]
    return _asked("bimodal-tail", frames)


def _ceiling(size: float, _seed: int) -> bool:
    waits = {int(size): round(5000 * (1 - size % 1)), int(size) + 1: round(5000 * (size % 1))}
    load = [(BLOCK, {"queue": round(size * 1000), "hba": 3000})]
    held = depths({0: 20, 3: 4980}, {n: ms for n, ms in waits.items() if ms})
    frames = lasting(depths={"sda": held}, kernel=done("sda", BLOCK), histograms=timed("sda", load))
    return _asked("outstanding-ceiling", frames, [disk(limits=LIMITS)])


def _above(size: float, _seed: int) -> bool:
    waits = round(size)
    load = [(BLOCK, {"queue": 1000 * waits, "hba": 1000})]
    held = depths({1: 5000}, {waits: 5000})
    frames = lasting(depths={"sda": held}, kernel=done("sda", BLOCK), histograms=timed("sda", load))
    return _asked("bottleneck-above-device", frames, [disk(limits=LIMITS)])


def _requeued(size: float, seed: int) -> bool:
    load = [*_usual(seed, BLOCK), (round(BLOCK * size / 100), {"hba": 90, "requeue": 3000})]
    return _asked("requeue-storm", lasting(traced=traced("sda", load), histograms=timed("sda", load)))


def _softirq(size: float, seed: int) -> bool:
    load = [*_usual(seed, BLOCK), (50, {"hba": 90, "softirq": round(size * 1000)})]
    reported = traced("sda", load, path="softirq")
    return _asked("softirq-delay", lasting(traced=reported, histograms=timed("sda", load)))


def _mixed(rule: str, name: str) -> Callable[[float, int], bool]:
    """So many of a minute's seconds are the case's, spread evenly; the others are its healthy counterpart's."""

    def seen(size: float, seed: int) -> bool:
        sick = INCIDENTS[name]
        pairs = zip(_minute(name, seed), _minute(sick.healthy, seed), strict=True)
        watch = RuleEngine(sick.origin, settings=Settings(off=frozenset(NEEDS) - {rule}))
        return any(watch.take(pair[not _nth(size / 100, n)]) and bool(watch.current) for n, pair in enumerate(pairs))

    return seen


@lru_cache(maxsize=4)
def _minute(name: str, seed: int) -> tuple[Frame, ...]:
    return tuple(islice(INCIDENTS[name].frames(Random(seed)), 60))


def _nth(each: float, n: int) -> int:
    """What the n-th of them has where it is so many each on average."""
    return int(each * (n + 1)) - int(each * n)


def _soon(rule: str, name: str, seconds: float, seed: int) -> bool:
    case = INCIDENTS[name]
    watch = RuleEngine(case.origin, settings=Settings(off=frozenset(NEEDS) - {rule}))
    return any(watch.take(frame) and bool(watch.current) for frame in _minute(name, seed)[: round(seconds)])


_ORIGIN = next(iter(INCIDENTS.values())).origin
EFFECTS = (
    Effect("outstanding-ceiling", "I/Os that wait above a driver that is held at 3", "ios", 0.2, 40, _ceiling),
    Effect("bottleneck-above-device", "I/Os that wait above a driver that uses 1 of 32", "ios", 1, 64, _above, 0),
    Effect("peer-outlier", "one of 8 drives: share of its I/Os at 20 x", "%", 0.01, 20, _peers(times=20)),
    Effect(
        "peer-outlier", "one of 8 drives: 1 % of its I/Os, so many times as long", "x", 1.5, 200, _peers(share=0.01), 1
    ),
    Effect(
        "peer-outlier", "one of 8 drives: all of its I/Os, so many times as long", "x", 1.1, 50, _peers(share=1.0), 1
    ),
    Effect("bimodal-tail", "I/Os of 500 ms in 5 s, of 5,000", "ios", 0.1, 40, _far),
    Effect("requeue-storm", "share of I/Os that are sent again after 3 ms", "%", 0.1, 100, _requeued, 1),
    Effect("softirq-delay", "wait for the softirq of 1 % of the I/Os", "ms", 0.1, 1000, _softirq, 1),
    Effect(
        "completion-wakeup",
        "seconds as in the case emulex, of a minute",
        "%",
        1,
        100,
        _mixed("completion-wakeup", "emulex"),
        0,
    ),
    Effect("tick-quantum", "seconds as in the case e810, of a minute", "%", 1, 100, _mixed("tick-quantum", "e810"), 0),
    Effect(
        "slow-shared-handler",
        "seconds as in the case qumulo, of a minute",
        "%",
        1,
        100,
        _mixed("slow-shared-handler", "qumulo"),
        0,
    ),
    Effect(
        "starved-io",
        "seconds after which the case bubbles is found",
        "s",
        1,
        60,
        lambda size, seed: _soon("starved-io", "bubbles", size, seed),
        0,
    ),
)
