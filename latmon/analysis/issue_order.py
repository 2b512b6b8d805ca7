"""Order of consecutive issues: by arrival or sorted by LBA, and which I/Os were overtaken. Pure.

`lba_order` sums one window up, `together` adds several of one device, `summary` says it in words. Only requests that
were issued are compared: one that still waits while others pass it is not in a window yet. Where requests came at the
same moment, as a batch does, which of them was first is not known, and they pass nobody among themselves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latmon.model.inflight import Issue
from latmon.support.units import part, spelled, whole

TOO_FEW = 32
"""Fewer comparisons say nothing of an order: of 31 pairs in no order 3 in 4 ascend once in 500 times."""
_SAME_US = 2
"""Arrivals are differences of two rounded stamps: only what lies so far apart is later."""
_SORTED = 0.75
_BY_THAT_MUCH = 0.2
"""More of the issues ascend than of the arrivals."""
_HARDLY = 0.05


@dataclass(frozen=True, slots=True)
class LbaOrder:
    """Sums over windows. A pair is two requests of one op, next to each other in their order."""

    count: int = 0
    pairs: int = 0
    ascending: int = 0
    """Pairs as issued, whose second lies at the higher sector."""
    arrival_pairs: int = 0
    arrival_ascending: int = 0
    """The same, had they been issued as they came."""
    reordered: int = 0
    """Requests that at least one later arrival passed."""
    most_overtaken: int = 0
    longest_wait_us: int | None = None
    longest_overtaken: int = 0
    """How many passed the one that waited longest."""
    longest_is_older: bool = False
    """It came before its window began: more may have passed it."""

    @property
    def ascending_share(self) -> float | None:
        """None: too few to tell."""
        return _share(self.ascending, self.pairs)

    @property
    def arrival_share(self) -> float | None:
        return _share(self.arrival_ascending, self.arrival_pairs)

    @property
    def is_sorted(self) -> bool:
        """More ascend than would have by themselves, and others were passed for it."""
        issued, came = self.ascending_share, self.arrival_share
        told = issued is not None and came is not None
        return told and issued >= _SORTED and issued - came >= _BY_THAT_MUCH and self.reordered > 0  # type: ignore[operator]


def arrived_us(issue: Issue) -> int:
    """CLOCK_MONOTONIC: when it came into the block layer."""
    return issue.mono_us - issue.queued_us


def overtaken(issues: Sequence[Issue]) -> tuple[int, ...]:
    """Of each of the issues, in their order: how many that came later were issued before it."""
    before: list[int] = []
    found = []
    for one in issues:
        came = arrived_us(one)
        found.append(len(before) - bisect_left(before, came + _SAME_US))
        insort(before, came)
    return tuple(found)


def lba_order(issues: Sequence[Issue]) -> LbaOrder:
    """One window, in order of issue."""
    if not issues:
        return LbaOrder()
    passed = overtaken(issues)
    pairs, ascending = _compared(_by_op(issues))
    came_pairs, came_ascending = _compared(_as_they_came(some) for some in _by_op(issues))
    longest = max(range(len(issues)), key=lambda at: (issues[at].queued_us, passed[at]))
    return LbaOrder(
        len(issues),
        pairs,
        ascending,
        came_pairs,
        came_ascending,
        sum(n > 0 for n in passed),
        max(passed),
        issues[longest].queued_us,
        passed[longest],
        arrived_us(issues[longest]) < issues[0].mono_us,
    )


def together(parts: Iterable[LbaOrder]) -> LbaOrder:
    """Several windows of one device."""
    each = [one for one in parts if one.count]
    if not each:
        return LbaOrder()
    longest = max(each, key=lambda one: (one.longest_wait_us or 0, one.longest_overtaken))
    return LbaOrder(
        sum(one.count for one in each),
        sum(one.pairs for one in each),
        sum(one.ascending for one in each),
        sum(one.arrival_pairs for one in each),
        sum(one.arrival_ascending for one in each),
        sum(one.reordered for one in each),
        max(one.most_overtaken for one in each),
        longest.longest_wait_us,
        longest.longest_overtaken,
        longest.longest_is_older,
    )


def summary(order: LbaOrder, scheduler: str | None = None, *, known_us: int = 0) -> str:
    """One sentence without its full stop; it claims nothing of too few.

    `scheduler`: the device's own, "none" or where known its name. Without one a task's plug may still reorder.
    `known_us`: the longest I/O of which all that overtook it are counted. A window has only some of those, so it
    doesn't speak of a shorter one.
    """
    said = _said(order, "" if (order.longest_wait_us or 0) <= known_us else _passed(order))
    if scheduler is None or order.ascending_share is None:
        return said
    return f"no scheduler: {said}" if scheduler == "none" else f"{scheduler}: {said}"


def _said(order: LbaOrder, passed: str) -> str:
    issued, came = order.ascending_share, order.arrival_share
    if issued is None:
        few = f"too few to tell an order: {_requests(order.count)}"
        return f"{few}{passed}" if order.reordered else few
    if order.is_sorted:
        return f"sorted by LBA: {part(issued)} ascend, arrival order would be {part(came)}{passed}"
    sequential = issued >= _SORTED and came is not None and came >= _SORTED
    ascends = f"; {part(issued)} ascend as they came: a sequential load" if sequential else ""
    if not order.reordered:
        return f"in order of arrival{ascends}"
    some = f"{whole(order.reordered)} of {whole(order.count)} were passed by later ones"
    if order.reordered <= _HARDLY * order.count:
        return f"nearly in order of arrival: {some}{ascends}{passed}"
    if sequential:
        return f"not in order of arrival: {some}{ascends}{passed}"
    unknown = "; they came in too few moments to tell why" if came is None else ""
    return f"not in order of arrival: {some}, {part(issued)} ascend in LBA{unknown}{passed}"


def _passed(order: LbaOrder) -> str:
    """The victim, or nothing where the one that waited longest had nobody pass it."""
    if not order.longest_overtaken or order.longest_wait_us is None:
        return ""
    more = " or more" if order.longest_is_older else ""
    ones = "one" if order.longest_overtaken == 1 and not more else "ones"
    by = f"{whole(order.longest_overtaken)}{more} later {ones}"
    return f"; the request that waited longest, {spelled(order.longest_wait_us)}, was passed by {by}"


def _by_op(issues: Sequence[Issue]) -> list[list[Issue]]:
    """Schedulers sort reads and writes apart."""
    found: dict[str, list[Issue]] = {}
    for one in issues:
        found.setdefault(one.op, []).append(one)
    return list(found.values())


def _as_they_came(issues: Iterable[Issue]) -> list[Issue]:
    """One for each moment at which some came: of a sorted batch the middle one leans neither way."""
    return [some[len(some) // 2] for some in _moments(sorted(issues, key=arrived_us))]


def _moments(issues: Sequence[Issue]) -> Iterator[list[Issue]]:
    some: list[Issue] = []
    for one in issues:
        if some and arrived_us(one) - arrived_us(some[0]) >= _SAME_US:
            yield some
            some = []
        some.append(one)
    if some:
        yield some


def _compared(sequences: Iterable[Sequence[Issue]]) -> tuple[int, int]:
    """(pairs, those that ascend); what lies at the same sector doesn't count."""
    gaps = [b.sector - a.sector for some in sequences for a, b in pairwise(some) if a.sector != b.sector]
    return len(gaps), sum(gap > 0 for gap in gaps)


def _share(part: int, pairs: int) -> float | None:
    return part / pairs if pairs >= TOO_FEW else None


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{whole(count)} requests"
