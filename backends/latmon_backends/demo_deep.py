"""What deep probes would tell of the demo's host: the stages of its own I/Os, added up, and all that goes with them.

Draws from a generator of its own and changes nothing of what the host did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

from latmon.histogram import Histogram
from latmon.model import Frame, Missing, Series, Traced
from latmon_backends import demo_interrupts, demo_outliers
from latmon_backends.demo_host import Drawn
from latmon_backends.demo_splits import FIRST, PASSED, Load, Split, load
from latmon_backends.synthetic import bucket, histogram

_LOST_WHY = "a user's thread, or an interrupt without a handler"
_ABSENT = (Missing("requeue", "the demo's drivers refuse no request"),)


def deepened(rng: Random, frame: Frame, drawn: Iterable[Drawn]) -> Frame:
    """The window with all that deep probes tell of it; windows must be taken in order."""
    loads = [load(rng, one) for one in drawn]
    told = demo_outliers.told(rng, frame, loads)
    return replace(
        frame,
        traced=_traced(loads),
        above=told.above,
        outliers=told.outliers,
        thresholds_us=demo_outliers.THRESHOLDS_US,
        handlers=demo_interrupts.handlers(loads),
        softirqs=demo_interrupts.softirqs(loads),
        wakeups=demo_interrupts.wakeups(loads),
        health=replace(frame.health, suppressed=told.suppressed, probe_cpu_percent=round(rng.gauss(1.4, 0.1), 2)),
    )


def _traced(loads: Iterable[Load]) -> Traced:
    histograms: dict[Series, Histogram] = {}
    by_total: dict[Series, dict[int, int]] = {}
    paths: dict[str, dict[str, int]] = {}
    unfollowed: dict[str, dict[str, int]] = {}
    for one in loads:
        device, op = one.drawn.flow
        if not one.drawn.total:
            continue
        for stage, found, sums in _stages(one.splits):
            histograms[Series(device, op, stage)] = found
            by_total[Series(device, op, stage)] = sums
        histograms[Series(device, op, "total")] = one.drawn.total
        if one.resume:
            histograms[Series(device, op, "resume")] = one.resume
        for path, size in _paths(one.splits):
            named = (paths if path else unfollowed).setdefault(device, {})
            named[path or _LOST_WHY] = named.get(path or _LOST_WHY, 0) + size
    return Traced(histograms, by_total, unfollowed, paths, one_in=1, absent=_ABSENT)


def _stages(splits: Sequence[Split]) -> Iterator[tuple[str, Histogram, dict[int, int]]]:
    """Every stage's histogram, and its time by the bucket of the total."""
    columns = tuple(zip(*splits, strict=True))
    sizes, totals = columns[0], [bucket(us) for us in columns[1]]
    for stage, times in zip(PASSED, columns[FIRST:], strict=False):
        ios: dict[int, int] = {}
        sums: dict[int, int] = {}
        for size, us, total in zip(sizes, times, totals, strict=True):
            if us is not None:
                ios[us] = ios.get(us, 0) + size
                sums[total] = sums.get(total, 0) + size * us
        if ios:
            yield stage, histogram((size, us) for us, size in ios.items()), sums


def _paths(splits: Iterable[Split]) -> Iterator[tuple[str, int]]:
    return ((split.path, split.size) for split in splits)
