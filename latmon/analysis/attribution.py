"""Attribution of slow I/Os to stages, from traced requests.

Pure: values of the model in, values out. Neither the window nor the screen is known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.frame import OPS, STAGES, UNACCOUNTED, Outlier, Series, SoftirqCpu, SoftirqRuns, Traced
from latmon.model.histogram import EMPTY, Histogram, bucket_bounds, bucket_index, merge

PARTS = (*STAGES[:-1], UNACCOUNTED)
"""What a request's time is made of, in the order in which it passes."""
MIN_FOR_CUT = 100
"""Fewer traced requests have no p99."""
_OPEN_GROUPS = 16
"""Rows that a new one is held against: without a bound a flood would take the square of its length."""
_SAME_US = 1
_FEW_US = 16
"""Ten stages that differ by 1 us each make totals differ by less."""
_SAME_TOTAL = 8
"""Rows that wait for one thread are the same when their totals differ by less than an eighth: one bucket."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The traced I/Os of `cut_us` and more: how many, and which part of their time each stage has (0..1)."""

    cut_us: int
    count: int
    share: Mapping[str, float]


class Folded(NamedTuple):
    """One row for identical neighbours: the longest of them, and how many they are."""

    outlier: Outlier
    repeats: int


def total_of(traced: Traced, device: str, ops: Iterable[str] = OPS) -> Histogram:
    """The traced requests' latency, to completion."""
    return _merged(traced, device, tuple(ops), "total")


def stages_of(traced: Traced, device: str, ops: Iterable[str] = OPS) -> dict[str, Histogram]:
    """Stage (and `unaccounted`) -> histogram, in the order in which a request passes; only what was passed."""
    if not traced.histograms:  # asked by every rule for each of some thousand devices
        return {}
    wanted = tuple(ops)
    found = {part: _merged(traced, device, wanted, part) for part in PARTS}
    return {part: one for part, one in found.items() if one}


def tail_cut(traced: Traced, device: str, ops: Iterable[str] = OPS, threshold_us: int | None = None) -> int | None:
    """Where the slow I/Os begin: a bucket's bound at or above the threshold, else behind the p99's bucket.

    Where nothing lies behind that bucket, it is where the bucket begins. None: too few to tell.
    """
    total = total_of(traced, device, ops)
    if threshold_us is not None:
        low, high = bucket_bounds(bucket_index(threshold_us, total.bits), total.bits)
        return low if low == threshold_us else high
    if total.count < MIN_FOR_CUT:
        return None
    index, last = _bucket_of(total, 0.99), total.buckets[-1][0]
    low, high = bucket_bounds(index, total.bits)
    return high if last > index else low


def tail(traced: Traced, device: str, ops: Iterable[str] = OPS, cut_us: int = 0) -> Tail:
    """Shares of the time of the traced I/Os of `cut_us` (a bucket's bound) and more."""
    wanted = tuple(ops)
    total = total_of(traced, device, wanted)
    first = bucket_index(cut_us, total.bits)
    count = sum(n for index, n in total.buckets if index >= first)
    sums = {part: _above(traced, device, wanted, part, first) for part in PARTS}
    whole = sum(sums.values())
    return Tail(cut_us, count, {part: us / whole for part, us in sums.items() if us} if whole else {})


def untraced_share(traced: Traced, device: str = "") -> float | None:
    """Of the requests whose end was traced the share whose path could not be followed, over all ops.

    None where no request was: bios have no path.
    """
    devices = (device,) if device else {*traced.paths, *traced.unfollowed}
    followed = sum(n for name in devices for n in traced.paths.get(name, {}).values())
    lost = sum(n for name in devices for n in traced.unfollowed.get(name, {}).values())
    return lost / (followed + lost) if followed + lost else None


def by_vector(softirqs: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, SoftirqRuns]:
    """Softirqs of all CPUs together."""
    grouped: dict[str, list[SoftirqRuns]] = {}
    for where, runs in softirqs.items():
        grouped.setdefault(where.vector, []).append(runs)
    return {
        vector: SoftirqRuns(
            merge(one.delay for one in parts),
            merge(one.run for one in parts),
            added(one.ran_in for one in parts),
            added(one.raised_in for one in parts),
        )
        for vector, parts in grouped.items()
    }


def added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name, summed."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, n in part.items():
            sums[name] = sums.get(name, 0) + n
    return sums


def fold(outliers: Sequence[Outlier]) -> list[Folded]:
    """Identical neighbours as one row, in the order in which their first ones began.

    Identical: same device, op and path, of latmon both or neither, overlapping in time, and either waiting for the same
    thread since the same moment or with the same stages within 1 us each.
    """
    groups: list[list[Outlier]] = []
    still_open: dict[tuple[str, str, str, bool], deque[list[Outlier]]] = {}
    for one in sorted(outliers, key=lambda o: o.mono_us):
        near = still_open.setdefault((one.device, one.op, one.path, one.own), deque(maxlen=_OPEN_GROUPS))
        while near and near[0][-1].mono_us + near[0][-1].total_us < one.mono_us:
            near.popleft()
        group = next((group for group in near if _same(group[-1], one)), None)
        if group is None:
            group = []
            groups.append(group)
            near.append(group)
        group.append(one)
    return [Folded(max(group, key=lambda o: o.total_us), len(group)) for group in groups]


def _same(earlier: Outlier, later: Outlier) -> bool:
    apart = abs(earlier.total_us - later.total_us)
    # neither rule lets totals differ by more; what differs mostly does so here
    if later.mono_us > earlier.mono_us + earlier.total_us or apart > max(_FEW_US, later.total_us // _SAME_TOTAL):
        return False
    if later.waits and earlier.waits and _woken(earlier) & _woken(later):
        return True
    one, other = earlier.stages_us, later.stages_us
    return (
        bool(one)
        and apart <= _FEW_US
        and one.keys() == other.keys()
        and all(abs(us - other[name]) <= _SAME_US for name, us in one.items())
        and abs(earlier.unaccounted_us - later.unaccounted_us) <= _SAME_US
    )


def _woken(one: Outlier) -> set[tuple[int, int]]:
    return {(wait.pid, wait.woken_us) for wait in one.waits if wait.stage != "resume"}


def _merged(traced: Traced, device: str, ops: tuple[str, ...], stage: str) -> Histogram:
    table = traced.histograms
    parts = [table[one] for op in ops if (one := Series(device, op, stage)) in table]
    return parts[0] if len(parts) == 1 else merge(parts) if parts else EMPTY


def _above(traced: Traced, device: str, ops: tuple[str, ...], stage: str, first: int) -> int:
    found = (traced.by_total.get(Series(device, op, stage), {}) for op in ops)
    return sum(us for sums in found for index, us in sums.items() if index >= first)


def _bucket_of(one: Histogram, q: float) -> int:
    rank, seen = q * one.count, 0
    for index, n in one.buckets:
        seen += n
        if seen >= rank:
            return index
    raise AssertionError("unreachable: ranks end at count")
