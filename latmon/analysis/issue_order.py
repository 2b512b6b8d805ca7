"""Order of consecutive issues: by arrival or sorted by LBA, and which I/Os were overtaken.

`lba_order` counts one burst, `merge_orders` adds several of one device, `summary` describes them. Only issued requests
are compared: one that still waits while others overtake it is in no burst yet. The order of requests that arrive at the
same time, as in a batch, is not known, so they don't overtake each other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latmon.model.inflight import Issue
from latmon.support.units import part, spelled, whole

TOO_FEW = 32
"""Least number of comparisons: of 31 pairs in random order 3 in 4 ascend once in 500 times."""
_SAME_US = 2
"""Least difference of two arrivals, which are differences of rounded time stamps."""
_SORTED = 0.75
_BY_THAT_MUCH = 0.2
"""Least difference of the shares of ascending pairs, issues minus arrivals, of a sorted order."""
_HARDLY = 0.05


@dataclass(frozen=True, slots=True)
class LbaOrder:
    """Sums over bursts of issues. A pair is two consecutive requests of one op."""

    count: int = 0
    pairs: int = 0
    ascending: int = 0
    """Pairs in order of issue whose second has the higher sector."""
    arrival_pairs: int = 0
    arrival_ascending: int = 0
    """Such pairs in order of arrival."""
    reordered: int = 0
    """Requests that were overtaken by at least one later arrival."""
    most_overtaken: int = 0
    longest_wait_us: int | None = None
    longest_overtaken: int = 0
    """Requests that overtook the one that waited longest."""
    longest_is_older: bool = False
    """Whether it arrived before its burst began, so that more may have overtaken it."""

    @property
    def ascending_share(self) -> float | None:
        """Share of ascending pairs in order of issue; None with too few pairs."""
        return _share(self.ascending, self.pairs)

    @property
    def arrival_share(self) -> float | None:
        return _share(self.arrival_ascending, self.arrival_pairs)

    @property
    def is_sorted(self) -> bool:
        """Whether more pairs ascend than in order of arrival, and requests were overtaken for it."""
        issued, came = self.ascending_share, self.arrival_share
        reported = issued is not None and came is not None
        return reported and issued >= _SORTED and issued - came >= _BY_THAT_MUCH and self.reordered > 0  # type: ignore[operator]


def arrived_us(issue: Issue) -> int:
    """Return when it arrived in the block layer, on CLOCK_MONOTONIC."""
    return issue.mono_us - issue.queued_us


def overtaken(issues: Sequence[Issue]) -> tuple[int, ...]:
    """Return for each issue the number of later arrivals that were issued before it."""
    before: list[int] = []
    overtaken_counts = []
    for issue in issues:
        came = arrived_us(issue)
        overtaken_counts.append(len(before) - bisect_left(before, came + _SAME_US))
        insort(before, came)
    return tuple(overtaken_counts)


def lba_order(issues: Sequence[Issue]) -> LbaOrder:
    """Count one burst in order of issue."""
    if not issues:
        return LbaOrder()
    overtakers = overtaken(issues)
    pairs, ascending = _compared(_by_op(issues))
    came_pairs, came_ascending = _compared(_as_they_came(op_issues) for op_issues in _by_op(issues))
    longest = max(range(len(issues)), key=lambda at: (issues[at].queued_us, overtakers[at]))
    return LbaOrder(
        count=len(issues),
        pairs=pairs,
        ascending=ascending,
        arrival_pairs=came_pairs,
        arrival_ascending=came_ascending,
        reordered=sum(n > 0 for n in overtakers),
        most_overtaken=max(overtakers),
        longest_wait_us=issues[longest].queued_us,
        longest_overtaken=overtakers[longest],
        longest_is_older=arrived_us(issues[longest]) < issues[0].mono_us,
    )


def merge_orders(parts: Iterable[LbaOrder]) -> LbaOrder:
    """Add several bursts of one device."""
    each = [lba_order for lba_order in parts if lba_order.count]
    if not each:
        return LbaOrder()
    longest = max(each, key=lambda lba_order: (lba_order.longest_wait_us or 0, lba_order.longest_overtaken))
    return LbaOrder(
        count=sum(lba_order.count for lba_order in each),
        pairs=sum(lba_order.pairs for lba_order in each),
        ascending=sum(lba_order.ascending for lba_order in each),
        arrival_pairs=sum(lba_order.arrival_pairs for lba_order in each),
        arrival_ascending=sum(lba_order.arrival_ascending for lba_order in each),
        reordered=sum(lba_order.reordered for lba_order in each),
        most_overtaken=max(lba_order.most_overtaken for lba_order in each),
        longest_wait_us=longest.longest_wait_us,
        longest_overtaken=longest.longest_overtaken,
        longest_is_older=longest.longest_is_older,
    )


def summary(order: LbaOrder, scheduler: str | None = None, *, known_us: int = 0) -> str:
    """Return a sentence without its full stop; it makes no statement about too few requests.

    `scheduler`: the device's scheduler, or "none"; without one a task's plug may still reorder. `known_us`: the longest
    I/O with a complete count of the requests that overtook it. A burst contains only some of these, so a shorter one is
    not mentioned.
    """
    text = _order(order, "" if (order.longest_wait_us or 0) <= known_us else _longest(order))
    if scheduler is None or order.ascending_share is None:
        return text
    return f"no scheduler: {text}" if scheduler == "none" else f"{scheduler}: {text}"


def _order(order: LbaOrder, longest: str) -> str:
    issued, came = order.ascending_share, order.arrival_share
    if issued is None:
        few = f"too few for an order: {_requests(order.count)}"
        return f"{few}{longest}" if order.reordered else few
    if order.is_sorted:
        return f"sorted by LBA: {part(issued)} ascend, arrival order would be {part(came)}{longest}"
    sequential = issued >= _SORTED and came is not None and came >= _SORTED
    ascends = f"; {part(issued)} ascend as they came: a sequential load" if sequential else ""
    if not order.reordered:
        return f"in order of arrival{ascends}"
    overtaken_text = f"{whole(order.reordered)} of {whole(order.count)} were overtaken by later ones"
    if order.reordered <= _HARDLY * order.count:
        return f"nearly in order of arrival: {overtaken_text}{ascends}{longest}"
    if sequential:
        return f"not in order of arrival: {overtaken_text}{ascends}{longest}"
    unknown = "; they arrived at too few times to know why" if came is None else ""
    return f"not in order of arrival: {overtaken_text}, {part(issued)} ascend in LBA{unknown}{longest}"


def _longest(order: LbaOrder) -> str:
    """Return the request that waited longest; an empty text where none overtook it."""
    if not order.longest_overtaken or order.longest_wait_us is None:
        return ""
    more = " or more" if order.longest_is_older else ""
    ones = "one" if order.longest_overtaken == 1 and not more else "ones"
    by = f"{whole(order.longest_overtaken)}{more} later {ones}"
    return f"; the request that waited longest, {spelled(order.longest_wait_us)}, was overtaken by {by}"


def _by_op(issues: Sequence[Issue]) -> list[list[Issue]]:
    """Group issues by op, because schedulers sort reads and writes separately."""
    issues_by_op: dict[str, list[Issue]] = {}
    for issue in issues:
        issues_by_op.setdefault(issue.op, []).append(issue)
    return list(issues_by_op.values())


def _as_they_came(issues: Iterable[Issue]) -> list[Issue]:
    """Return one request per time of arrival: the middle one of a batch, which is neutral if the batch is sorted."""
    return [moment[len(moment) // 2] for moment in _moments(sorted(issues, key=arrived_us))]


def _moments(issues: Sequence[Issue]) -> Iterator[list[Issue]]:
    came: list[Issue] = []
    for issue in issues:
        if came and arrived_us(issue) - arrived_us(came[0]) >= _SAME_US:
            yield came
            came = []
        came.append(issue)
    if came:
        yield came


def _compared(sequences: Iterable[Sequence[Issue]]) -> tuple[int, int]:
    """Return (pairs, ascending pairs), without pairs at the same sector."""
    gaps = [b.sector - a.sector for issues in sequences for a, b in pairwise(issues) if a.sector != b.sector]
    return len(gaps), sum(gap > 0 for gap in gaps)


def _share(part: int, pairs: int) -> float | None:
    return part / pairs if pairs >= TOO_FEW else None


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{whole(count)} requests"
