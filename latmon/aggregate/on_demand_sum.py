"""Sums of on-demand values: traced stages, handlers, softirqs and wake-ups, with exact subtraction.

Facts that can't be added (thread, handlers that share a vector, sampling rate) are those of the latest frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from latmon.aggregate.histogram_sum import HistogramSum, TableSum
from latmon.model.frame import (
    UNKNOWN_IRQ,
    Behind,
    FileSeries,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    IssuedIO,
    Issuer,
    Pattern,
    Series,
    SizeClass,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Traced,
    Wakeups,
)
from latmon.model.histogram import EMPTY, Histogram
from latmon.model.packed import GROUPS, Flat, Key, KeyedCounts, OnDemandFacts, flatten, group_of

_SOURCE = {"total": "traced", "stage": "traced"}
"""Name of a sum -> name of the frame's table that it adds up, where they differ."""


Read = Callable[[str], "OnDemandSums"]
"""Group of tables -> its sums, which may be computed by the call."""


def traced_of(read: Read) -> Traced:
    """Return the sum of traced requests, whose tables are computed when they are read."""
    return replace(read("totals").followed, histograms=_Traced(read), by_total=_Buckets(read))


class _Traced(Mapping[Series, Histogram]):
    """Histograms of totals and stages; each table is read separately, because a screen mostly needs the totals alone.

    Times are those of the `by_total` tables where there are any. A tracer may print a map of sums after completions
    that the map of counts lacks. A frame without counts has no histogram for that time, so the sums of histograms lack
    it when I/O stops; `by_total` has all of it.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._made: dict[Series, Histogram] = {}

    def __getitem__(self, series: Series) -> Histogram:
        made = self._made.get(series)
        if made is None:
            made = self._made[series] = self._summed(series, self._table(_table_of(series))[series])
        return made

    def __contains__(self, series: object) -> bool:
        return isinstance(series, Series) and series in self._table(_table_of(series))

    def _summed(self, series: Series, one: Histogram) -> Histogram:
        reported = self._read("tails").tables["by_total"].sums.get(series)
        if reported is None:
            return one
        us = sum(reported.counts.values())
        possible = one.within(us)
        # A frame whose map of sums was not printed has no sum; a later frame may contain all of it.
        return one if one.sum is None and us != possible else replace(one, sum=possible)

    def __iter__(self) -> Iterator[Series]:
        return chain(self._table("total"), self._table("stage"))

    def __len__(self) -> int:
        return len(self._table("total")) + len(self._table("stage"))

    def _table(self, name: str) -> TableSum[Series]:
        return self._read(f"{name}s").tables[name]


class _Buckets(Mapping[Series, Mapping[int, int]]):
    """Sums in us per bucket of the `by_total` table."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def __getitem__(self, series: Series) -> Mapping[int, int]:
        return self._sums[series].counts

    def __iter__(self) -> Iterator[Series]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    @property
    def _sums(self) -> dict[Series, HistogramSum]:
        return self._read("tails").tables["by_total"].sums


class OnDemandSums:
    """Running sums of on-demand values, of some groups or all; its properties have the types of a frame's."""

    def __init__(self, frames: Iterable[Frame] = (), groups: Sequence[str] = tuple(GROUPS)) -> None:
        self._groups = groups
        self.tables = {name: _sum_of(name) for group in groups for name in GROUPS[group]}
        self._counts: dict[Key, int] = {}
        self._threads: dict[int, Thread] = {}
        self._handlers: dict[Handler, tuple[str, tuple[str, ...], int]] = {}
        self._facts = OnDemandFacts()
        for frame in frames:
            self.add(flatten(frame))

    def copy(self) -> OnDemandSums:
        other = OnDemandSums(groups=self._groups)
        other.tables = {name: table.copy() for name, table in self.tables.items()}
        other._counts, other._facts = self._counts.copy(), self._facts
        other._threads, other._handlers = self._threads.copy(), self._handlers.copy()
        return other

    def add(self, flat: Flat, stamp: int = 0) -> None:
        """Add a frame's values; `stamp` grows from one to the next."""
        for name, table in self.tables.items():
            if (one := flat.tables.get(_SOURCE.get(name, name))) is not None:
                table.add(one, stamp)
        self._count(flat, 1)
        if "wakeup" in self.tables:
            self._threads.update(flat.facts.threads)
        if "handler" in self.tables:
            self._handlers.update(flat.facts.handlers)
        self._facts = flat.facts

    def remove(self, flat: Flat, stamp: int = 0) -> None:
        """Subtract values that were added with `stamp`, in the order in which they were added."""
        for name, table in self.tables.items():
            if (one := flat.tables.get(_SOURCE.get(name, name))) is not None:
                for key in table.remove(one, stamp):
                    self._forget(name, key)
        self._count(flat, -1)

    @property
    def flat(self) -> Flat:
        """The sum in the packed form of one frame."""
        grouped: dict[str, dict[Key, int]] = {}
        for key, n in self._counts.items():
            grouped.setdefault(group_of(key), {})[key] = n
        tables = {name: table.packed for name, table in self.tables.items() if name not in _SOURCE and table}
        if traced := self.tables["total"].packed.joined(self.tables["stage"].packed):
            tables["traced"] = traced
        return Flat(
            tables,
            {group: KeyedCounts.of(counts.items()) for group, counts in grouped.items()},
            replace(self._facts, threads=dict(self._threads), handlers=dict(self._handlers)),
        )

    @property
    def raw(self) -> dict[Series, Histogram]:
        """Histograms of traced totals and stages with the frames' own sums, to be added up again."""
        return {**self.tables["total"], **self.tables["stage"]}

    @property
    def above(self) -> dict[Flow, int]:
        return {key.about: n for key, n in self._counts.items() if isinstance(key.about, Flow) and key.kind == "above"}

    @property
    def suppressed(self) -> int:
        return self._counts.get(Key("suppressed", ""), 0)

    @property
    def thresholds_us(self) -> dict[str, int]:
        return dict(self._facts.thresholds_us)

    @property
    def traced(self) -> Traced:
        """Sum of traced requests; the tracer's state is that of the last frame, `rates` are those of all frames."""
        return traced_of(lambda _: self)

    @property
    def followed(self) -> Traced:
        """`traced` without its histograms."""
        rates = [key.about for key in self._counts if key.kind == "one_in" and isinstance(key.about, int)]
        return replace(
            self._facts.traced,
            rates=(min(rates), max(rates)) if rates else (0, 0),
            unfollowed=self._by_device("unfollowed"),
            paths=self._by_device("path"),
            off=self._counts.get(Key("off", ""), 0),
            admission_causes=self._by_device("cause"),
            completers=self._by_device("completer"),
            raisers=self._by_device("raiser"),
        )

    @property
    def basic(self) -> Mapping[Series, Histogram]:
        return self.tables["basic"]

    @property
    def handlers(self) -> dict[Handler, HandlerRuns]:
        returned = self._grouped("returned")
        return {
            handler: HandlerRuns(
                run,
                returned.get(handler, {}),
                self._counts.get(Key("before", handler), 0),
                *self._handlers.get(handler, ("", (), UNKNOWN_IRQ)),
            )
            for handler, run in self.tables["handler"].items()
        }

    @property
    def softirqs(self) -> dict[SoftirqCpu, SoftirqRuns]:
        delays, runs = self.tables["delay"], self.tables["softirq"]
        ran, raised = self._grouped("ran_in"), self._grouped("raised_in")
        return {
            where: SoftirqRuns(
                delays.get(where, EMPTY), runs.get(where, EMPTY), ran.get(where, {}), raised.get(where, {})
            )
            for where in dict.fromkeys((*delays, *runs))
        }

    @property
    def wakeups(self) -> tuple[Wakeups, ...]:
        instead, ran_us = self._grouped("instead"), self._grouped("ran_us")
        return tuple(
            Wakeups(self._threads[pid], delay, instead.get(pid, {}), ran_us.get(pid, {}))
            for pid, delay in self.tables["wakeup"].items()
        )

    @property
    def issuers(self) -> dict[Issuer, IssuedIO]:
        counts, latencies = self._counts, self.tables["issuer"]
        known = dict.fromkeys(key.about for key in counts if isinstance(key.about, Issuer))
        return {
            one: IssuedIO(counts.get(Key("ios", one), 0), counts.get(Key("bytes", one), 0), latencies.get(one, EMPTY))
            for one in known
        }

    @property
    def behind(self) -> dict[Behind, int]:
        return {key.about: us for key, us in self._counts.items() if isinstance(key.about, Behind)}

    @property
    def sizes(self) -> dict[SizeClass, IssuedIO]:
        counts, latencies = self._counts, self.tables["size"]
        known = dict.fromkeys(key.about for key in counts if isinstance(key.about, SizeClass))
        return {
            one: IssuedIO(
                counts.get(Key("size_ios", one), 0), counts.get(Key("size_bytes", one), 0), latencies.get(one, EMPTY)
            )
            for one in known
        }

    @property
    def patterns(self) -> dict[Flow, Pattern]:
        found = self._grouped("pattern")
        return {flow: Pattern(**named) for flow, named in found.items() if isinstance(flow, Flow)}

    @property
    def files(self) -> dict[FileSeries, Histogram]:
        return dict(self.tables["file"])

    @property
    def files_left_out(self) -> int:
        return self._counts.get(Key("files_left_out", ""), 0)

    def _grouped(self, kind: str) -> dict[object, dict[str, int]]:
        found: dict[object, dict[str, int]] = {}
        for key, n in self._counts.items():
            if key.kind == kind:
                found.setdefault(key.about, {})[key.name] = n
        return found

    def _by_device(self, kind: str) -> dict[str, dict[str, int]]:
        return {str(device): named for device, named in self._grouped(kind).items()}

    def _count(self, flat: Flat, sign: int) -> None:
        for some in (flat.counted[group] for group in self._groups if group in flat.counted):
            for key, n in zip(some.keys, some.counts, strict=True):
                left = self._counts.get(key, 0) + sign * n
                if left:
                    self._counts[key] = left
                else:
                    self._counts.pop(key, None)

    def _forget(self, table: str, key: Any) -> None:
        """Drop the names that belong to a row that was removed."""
        if table == "wakeup":
            self._threads.pop(key, None)
        elif table == "handler":
            self._handlers.pop(key, None)


def _sum_of(table: str) -> TableSum[Any]:
    if table in ("total", "stage"):
        return TableSum(_is_total if table == "total" else lambda series: not _is_total(series))
    return TableSum(peaks=table != "by_total")


def _table_of(series: Series) -> str:
    return "total" if _is_total(series) else "stage"


def _is_total(series: Series) -> bool:
    return series.stage == "total"
