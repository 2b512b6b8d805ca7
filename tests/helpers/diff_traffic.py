"""Another drawn load for tests of comparisons, which shares nothing with diff_loads.py: latencies are continuous.

Body: two lognormal modes (cache hits and misses) whose mix wanders with an Ornstein-Uhlenbeck state; tail: Pareto. A
device is quiet, busy or stalled in turn (a Markov chain): busy ones slow everything down, stalls feed the tail. A part
of all that is common to all devices of the host, as it is on real ones.
"""

import math
from itertools import pairwise
from random import Random

from latmon.diff.blocks import CaptureSpan, Unit
from latmon.model.frame import Flow, Origin, Series
from latmon.model.histogram import BITS, bucket_bounds

ORIGIN = Origin("test", "box", "6.1.0", "0.1.0")
EDGES = tuple(bucket_bounds(index)[0] for index in range(8, 180))
MOVES = {"quiet": (0.04, "busy"), "busy": (0.15, "quiet")}
"""The chance of a second that a mood ends, and the next one."""
STALL = 0.01


def below(us: float, middle: float, spread: float) -> float:
    """The share of a lognormal that is below."""
    return 0.5 * math.erfc(-math.log(us / middle) / (spread * math.sqrt(2)))


def some(rng: Random, expected: float) -> int:
    """Poisson: by waiting times where few, by the normal with a cube-root step (Wilson and Hilferty) where many."""
    if expected < 12:
        count, left = -1, expected
        while left >= 0:
            left += math.log(1.0 - rng.random())
            count += 1
        return count
    z = rng.gauss(0, 1)
    return max(0, int(expected * (1 + z / (3 * math.sqrt(expected)) - 1 / (9 * expected)) ** 3 + 0.5))


def traffic(
    rng: Random,
    *,
    devices: int = 24,
    windows: int = 60,
    rate: float = 500.0,
    tail: float = 0.004,
    memory_s: float = 4.0,
    slower: float = 1.0,
    tail_slower: float = 1.0,
    calm: bool = False,
    name: str = "A",
) -> CaptureSpan:
    """`slower`: factor on all latencies; `tail_slower`: on the Pareto part alone; `calm`: nothing but Poisson."""
    capture_span = CaptureSpan(name, ORIGIN, {})
    capture_span.units = [Unit(1_000_000, 1) for _ in range(windows)]
    keep = math.exp(-1 / memory_s)
    host = [rng.gauss(0, 1)]
    for _ in range(windows):
        host.append(keep * host[-1] + math.sqrt(1 - keep * keep) * rng.gauss(0, 1))
    shapes: dict[tuple[int, int, int], list[float]] = {}
    for number in range(devices):
        series = Series(f"nvme{number}", "write", "total")
        capture_span.bits[series] = BITS
        own, mood = rng.gauss(0, 1), "busy" if rng.random() < 0.2 else "quiet"
        for at, unit in enumerate(capture_span.units):
            own = keep * own + math.sqrt(1 - keep * keep) * rng.gauss(0, 1)
            chance, other = MOVES[mood]
            mood = other if rng.random() < chance else mood
            state = 0.0 if calm else 0.6 * host[at] + 0.8 * own
            busy = not calm and mood == "busy"
            stalled = not calm and rng.random() < STALL * (5 if busy else 1)
            key = round(4 * state), busy, stalled
            if key not in shapes:
                shapes[key] = shape(*key, tail, (slower, tail_slower))
            n = rate * math.exp(0.25 * state) * (1.6 if busy else 1.0) * (0.4 if stalled else 1.0)
            counts = {
                index: k
                for index, share in enumerate(shapes[key], 8)
                if share * n > 1e-7 and (k := some(rng, n * share))
            }
            unit.counts[series] = counts
            unit.done[Flow(series.device, "write")] = sum(counts.values()), 8192 * sum(counts.values())
        capture_span._known[series] = 3_000_000
    return capture_span


def shape(quarters: int, busy: bool, stalled: bool, tail: float, factors: tuple[float, float]) -> list[float]:
    """The share of I/Os in each bucket from the eighth on, in a state of so many quarters."""
    state, (slower, tail_slower) = quarters / 4, factors
    slow = slower * math.exp(0.04 * state) * (1.1 if busy else 1.0)
    misses = min(max(0.35 + 0.06 * state, 0.02), 0.9)
    far = tail * (12 if stalled else 2 if busy else 1)
    start = 900.0 * slower * tail_slower

    def under(us: float) -> float:
        body = (1 - misses) * below(us, 60 * slow, 0.25) + misses * below(us, 190 * slow, 0.35)
        return (1 - far) * body + far * (1 - (start / us) ** 1.3 if us > start else 0.0)

    at = [under(us) for us in EDGES]
    at[0], at[-1] = 0.0, 1.0
    return [b - a for a, b in pairwise(at)]
