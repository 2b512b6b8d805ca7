"""Loads for tests of comparisons: rates that wander, bursts, heavy tails; as counts in buckets, not as single I/Os."""

import math
from random import Random

from latmon.diff.blocks import CaptureSpan, Unit
from latmon.model.frame import Flow, Origin, Series
from latmon.model.histogram import bucket_index

ORIGIN = Origin("test", "box", "6.1.0", "0.1.0")
BODY_US = (70, 80, 90, 100, 115, 130, 150, 180, 220, 300)
SHARES = (0.03, 0.09, 0.16, 0.2, 0.19, 0.14, 0.1, 0.06, 0.025, 0.005)
TAIL_US = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)


def draw(rng: Random, expected: float) -> int:
    """Near enough to Poisson, and quick."""
    if expected > 10:
        return max(0, round(rng.gauss(expected, math.sqrt(expected))))
    count, product, floor = 0, rng.random(), math.exp(-expected)
    while product > floor:
        count += 1
        product *= rng.random()
    return count


def load(
    rng: Random,
    *,
    devices: int = 1,
    windows: int = 96,
    ios: float = 400.0,
    phi: float = 0.8,
    tail: float = 0.01,
    tail_factor: float = 1.0,
    tail_cut_us: int = 0,
    factor: float = 1.0,
    body_factor: float = 1.0,
    bursts: bool = True,
    name: str = "A",
) -> CaptureSpan:
    """`phi`: how much a window resembles the one before it. Factors: on the tail (above a cut), on all, on the body."""
    capture_span = CaptureSpan(name, ORIGIN, {})
    capture_span.units = [Unit(1_000_000, 1) for _ in range(windows)]
    for number in range(devices):
        series = Series(f"sd{number}", "read", "total")
        capture_span.bits[series] = 3
        body = [bucket_index(round(us * factor * body_factor)) for us in BODY_US]
        slow = [bucket_index(round(us * factor * (tail_factor if us >= tail_cut_us else 1.0))) for us in TAIL_US]
        state, burst = rng.gauss(0, 1), False
        for unit in capture_span.units:
            state = phi * state + math.sqrt(1 - phi * phi) * rng.gauss(0, 1)
            burst = bursts and rng.random() < (0.8 if burst else 0.05)
            n = ios * math.exp(0.3 * state)
            lean = 0.15 * state  # busier is slower
            counts: dict[int, int] = {}
            for place, (index, share) in enumerate(zip(body, SHARES, strict=True)):
                k = draw(rng, n * share * math.exp(lean * (place - 3.5) / 4))
                if k:
                    counts[index] = counts.get(index, 0) + k
            expected = n * tail * (4.0 if burst else 0.4 if bursts else 1.0)
            for index in slow:
                expected /= 2.2
                k = draw(rng, expected)
                if k:
                    counts[index] = counts.get(index, 0) + k
            unit.counts[series] = counts
            unit.done[Flow(series.device, "read")] = sum(counts.values()), 4096 * sum(counts.values())
            capture_span._known[series] = 40_000
    return capture_span
