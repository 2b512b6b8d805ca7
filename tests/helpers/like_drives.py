"""Many equal drives, second by second, with the noise of drives: heavy tails, slow moments of all, hiccups of one.

Bucket counts are drawn, not single I/Os: a thousand intervals of 24 drives take seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from latmon.findings.engine import NEEDS, RuleEngine
from latmon.findings.rule import Settings
from latmon.model.frame import Completed, Device, Flow, Frame, Origin, Series
from latmon_backends.demo.scenario import EqualIos, Mode, Shape, binomial, histogram

S = 1_000_000
READS = "read"
ORIGIN = Origin(backend="test", host="here", kernel="6.1.0", latmon="0", interval_us=S)


@dataclass(frozen=True)
class Pareto(Shape):
    """A tail that thins out by a power: nothing of it is an outlier."""

    modes: tuple[Mode, ...] = ()
    least_us: float = 80
    alpha: float = 2.0

    def _below(self, us):
        return 0.0 if us <= self.least_us else 1 - (self.least_us / us) ** self.alpha


@dataclass(frozen=True)
class Noise:
    """Load of equal drives. Shares are per second."""

    shape: Shape
    slow_seconds: float = 0.0
    """Of all drives together, `SLOWER` times as slow."""
    hiccups: float = 0.0
    """One drive pauses for 100 ms, with all of its I/Os in flight."""


@dataclass(frozen=True)
class Sick:
    """A share of one drive's I/Os takes so many times as long."""

    share: float = 0.01
    times: float = 20.0


SLOWER = 10
IN_FLIGHT = 16
NOISES = {
    "narrow": Noise(Shape((Mode(1, 90, 0.25),))),
    "lognormal": Noise(Shape((Mode(1, 90, 0.5),))),
    "wide lognormal": Noise(Shape((Mode(1, 90, 1.0),))),
    "Pareto 2": Noise(Pareto()),
    "Pareto 1.2": Noise(Pareto(alpha=1.2)),
    "slow seconds": Noise(Shape((Mode(1, 90, 0.5),)), slow_seconds=0.03),
    "hiccups": Noise(Shape((Mode(1, 90, 0.5),)), hiccups=0.2),
    "all of it": Noise(Pareto(), slow_seconds=0.03, hiccups=0.2),
}


def drives(n, **changed):
    return tuple(
        replace(Device(f"nvme{i}n1", 259, i, driver="nvme", model="SSD 1920G", serial=f"S{i}"), **changed)
        for i in range(n)
    )


@dataclass(frozen=True)
class Host:
    """Its drives, how much each does, and who is sick; `later` are us that each one's I/Os take more than drive 0's."""

    noise: Noise
    n: int = 24
    ios: int = 1000
    odd: str = ""
    sick: Sick = Sick()
    later: dict[str, int] = field(default_factory=dict)
    busier: dict[str, float] = field(default_factory=dict)
    op: str = READS

    def second(self, rng, number):
        slower = SLOWER if rng.random() < self.noise.slow_seconds else 1
        halted = int(rng.random() * self.n) if rng.random() < self.noise.hiccups else -1
        reported = {}
        for i, drive in enumerate(drives(self.n)):
            groups = self._drawn(rng, drive.name, slower)
            if i == halted:
                groups.append(EqualIos(IN_FLIGHT, 100_000))
            reported[Series(drive.name, self.op, "total")] = histogram(groups)
        seen = {Flow(s.device, s.op): Completed(h.count, h.count * 4096, h.sum) for s, h in reported.items()}
        devices = drives(self.n) if number == 0 else ()
        return Frame(number, 1e9 + number, (number + 1) * S, S, histograms=reported, seen=seen, devices=devices)

    def seconds(self, rng, n):
        return (self.second(rng, number) for number in range(n))

    def _drawn(self, rng, name, slower):
        ios = round(self.ios * self.busier.get(name, 1))
        slow = binomial(rng, ios, self.sick.share) if name == self.odd else 0
        later = self.later.get(name, 0)
        usual = [EqualIos(size, us * slower + later) for size, us in self.noise.shape.draw(rng, ios - slow)]
        times = self.sick.times * slower
        return usual + [EqualIos(size, math.ceil(us * times) + later) for size, us in self.noise.shape.draw(rng, slow)]


def only(*rules):
    """Settings by which no other rule is asked."""
    return Settings(off=frozenset(NEEDS) - set(rules))


def watched(frames, *rules):
    """(second of the first finding of each episode, its id and device), and the watch."""
    watch = RuleEngine(ORIGIN, settings=only(*rules) if rules else Settings())
    for frame in frames:
        watch.take(frame)
    return [(episode.begin_us // S, episode.worst.id, episode.worst.device) for episode in watch.episodes], watch
