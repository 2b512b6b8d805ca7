"""Missed findings, false alarms and cost of the rules, on synthetic hosts, so that results are repeatable."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from figures import Figure, Section

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from finding_effects import EFFECTS
from like_drives import NOISES, Host

from latmon.findings.engine import RuleEngine
from latmon_backends.demo.backend import INCIDENTS
from latmon_backends.demo.scenario import Mode, Shape

HOUR = 3600
MIXES = {
    "idle but for 5 I/Os a second": lambda: Host(NOISES["lognormal"], 6, ios=5),
    "6 SSDs, random reads, slow seconds and hiccups": lambda: Host(NOISES["all of it"], 6),
    "4 disks, writes of a log": lambda: Host(_DISKS, 4, ios=80, op="write"),
    "12 SSDs of unequal loads": lambda: Host(
        NOISES["slow seconds"], 12, busier={f"nvme{i}n1": 1 + i / 6 for i in range(12)}
    ),
}
_DISKS = type(NOISES["narrow"])(Shape((Mode(0.6, 300, 0.4), Mode(0.4, 8000, 0.5))), hiccups=0.05)


def measure(_scratch: Path, rounds: int) -> Iterator[Section]:
    yield Section(
        "Findings: the smallest effect that is found in 60 s",
        "A load of 1,000 I/Os a second, and the effect in a size that bisection finds. A run is another seed.",
        [_smallest(effect, rounds) for effect in EFFECTS],
        ["queue-depth-misconfigured reads settings: there is no size of them."],
    )
    yield Section(
        "Findings: false alarms in an hour of an ordinary load",
        "Episodes of any severity, of all rules; each run is another hour.",
        [
            Figure(name, tuple(_alarms(made(), seed) for seed in range(rounds)), "findings", 1)
            for name, made in MIXES.items()
        ],
    )
    yield Section(
        "Findings: what a frame costs",
        "24 devices, all stages traced: the case qumulo, 60 frames behind another 60. CPU time, of one CPU at 1 s.",
        [Figure("RuleEngine.take", tuple(_cost(seed) for seed in range(rounds)), "ms per frame", 10, 1)],
    )


def _smallest(effect: object, rounds: int) -> Figure:
    found = [effect.smallest(seed) for seed in range(rounds)]
    note = (
        "" if all(one is not None for one in found) else f"up to {effect.most:g} {effect.unit} in some runs: not found"
    )
    values = tuple(one for one in found if one is not None)
    return Figure(f"{effect.rule}: {effect.name}", values, effect.unit, digits=effect.digits, note=note)


def _alarms(host: Host, seed: int) -> float:
    watch = RuleEngine(next(iter(INCIDENTS.values())).origin)
    for episode in host.seconds(Random(seed), HOUR):
        watch.take(episode)
    for episode in watch.episodes:
        print(f"bench: an ordinary hour: {episode.worst.severity} {episode.worst.summary}", file=sys.stderr)
    return float(len(watch.episodes))


def _cost(seed: int) -> float:
    case = INCIDENTS["qumulo"]
    watch, frames = RuleEngine(case.origin), list(islice(case.frames(Random(seed)), 120))
    for frame in frames[:60]:
        watch.take(frame)
    begun = time.process_time()
    for frame in frames[60:]:
        watch.take(frame)
    return (time.process_time() - begun) / 60 * 1000
