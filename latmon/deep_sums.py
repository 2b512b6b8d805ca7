"""What the deep probes told of several frames, added up.

Merging is addition, and a frame that was added can be taken away again, exactly. Facts that don't add up (who a thread
is, who shares a vector, how many requests are traced) are the latest ones. Knows neither time nor file.

The values that a sum gives are made of it when they are read: they are its own until the next frame is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from latmon.deep_flat import GROUPS, Counted, Facts, Flat, Key, flatten, group_of
from latmon.histogram import EMPTY, Histogram, within
from latmon.model import (
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Traced,
    Wakeups,
)
from latmon.packed import Packed
from latmon.table_sum import TableSum
from latmon.tally import Running

_SOURCE = {"total": "traced", "stage": "traced"}
"""Sum -> the table of a frame that it adds up, where its name is another."""


Read = Callable[[str], "DeepSums"]
"""Group -> its sums, which are begun when they are first read."""


def traced_of(read: Read) -> Traced:
    """What was traced; of its tables those are read that somebody asks for."""
    return replace(read("totals").followed, histograms=_Traced(read), by_total=_Buckets(read))


class _Traced(Mapping[Series, Histogram]):
    """Totals and stages, each asked for by itself: a screen mostly wants the totals alone.

    Their sums are those of the `by_total` tables where there are any. A map of sums may be printed after some I/Os that
    the map of counts lacks. A frame without counts has no histogram to put that time into, so the frames' own sums lack
    it for good where I/O stops; `by_total` has all of it.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._made: dict[Series, Histogram] = {}

    def __getitem__(self, series: Series) -> Histogram:
        made = self._made.get(series)
        if made is None:
            made = self._made[series] = self._summed(series, self._table(_table_of(series))[series])
        return made

    def _summed(self, series: Series, one: Histogram) -> Histogram:
        told = self._read("tails").tables["by_total"].tallies.get(series)
        if told is None:
            return one
        us = sum(told.counts.values())
        possible = within(dict(one.buckets), us)
        # A frame whose map of sums was not printed has no sum; a later one may have told all of it.
        return one if one.sum is None and us != possible else replace(one, sum=possible)

    def __iter__(self) -> Iterator[Series]:
        return chain(self._table("total"), self._table("stage"))

    def __len__(self) -> int:
        return len(self._table("total")) + len(self._table("stage"))

    def _table(self, name: str) -> TableSum[Series]:
        return self._read(f"{name}s").tables[name]


class _Buckets(Mapping[Series, Mapping[int, int]]):
    """A table's sums per bucket, with nothing made of them."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def __getitem__(self, series: Series) -> Mapping[int, int]:
        return self._tallies[series].counts

    def __iter__(self) -> Iterator[Series]:
        return iter(self._tallies)

    def __len__(self) -> int:
        return len(self._tallies)

    @property
    def _tallies(self) -> dict[Series, Running]:
        return self._read("tails").tables["by_total"].tallies


class DeepSums:
    """Filled by `add`, of some groups or all; the properties make values of the same types as a frame's."""

    def __init__(self, frames: Iterable[Frame] = (), groups: Sequence[str] = tuple(GROUPS)) -> None:
        self._groups = groups
        self.tables = {name: _sum_of(name) for group in groups for name in GROUPS[group]}
        self._counts: dict[Key, int] = {}
        self._threads: dict[int, Thread] = {}
        self._handlers: dict[Handler, tuple[str, tuple[str, ...]]] = {}
        self._facts = Facts()
        for frame in frames:
            self.add(flatten(frame))

    def copy(self) -> DeepSums:
        """Return another one with the same sums, which goes on by itself."""
        other = DeepSums(groups=self._groups)
        other.tables = {name: table.copy() for name, table in self.tables.items()}
        other._counts, other._facts = self._counts.copy(), self._facts
        other._threads, other._handlers = self._threads.copy(), self._handlers.copy()
        return other

    def add(self, flat: Flat, stamp: int = 0) -> None:
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
        """Take away what was added with `stamp`; frames leave in the order in which they came."""
        for name, table in self.tables.items():
            if (one := flat.tables.get(_SOURCE.get(name, name))) is not None:
                for key in table.remove(one, stamp):
                    self._forget(name, key)
        self._count(flat, -1)

    @property
    def flat(self) -> Flat:
        """The sum as if it were one frame's."""
        grouped: dict[str, dict[Key, int]] = {}
        for key, n in self._counts.items():
            grouped.setdefault(group_of(key), {})[key] = n
        tables = {name: table for name, table in self.tables.items() if name not in _SOURCE} | {"traced": self.raw}
        return Flat(
            {name: Packed.of(table) for name, table in tables.items() if table},
            {group: Counted.of(counts.items()) for group, counts in grouped.items()},
            replace(self._facts, threads=dict(self._threads), handlers=dict(self._handlers)),
        )

    @property
    def raw(self) -> dict[Series, Histogram]:
        """Traced totals and stages with the frames' own sums: for a value that is added up again."""
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
        """`one_in`, `devices`, `includes` and `absent` are those of the last frame, `rates` of all."""
        return traced_of(lambda _: self)

    @property
    def followed(self) -> Traced:
        """As `traced`, without its histograms."""
        rates = [key.about for key in self._counts if key.kind == "one_in" and isinstance(key.about, int)]
        return replace(
            self._facts.traced,
            rates=(min(rates), max(rates)) if rates else (0, 0),
            unfollowed=self._by_device("unfollowed"),
            paths=self._by_device("path"),
            off=self._counts.get(Key("off", ""), 0),
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
                *self._handlers.get(handler, ("", ())),
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
        instead = self._grouped("instead")
        return tuple(
            Wakeups(self._threads[pid], delay, instead.get(pid, {})) for pid, delay in self.tables["wakeup"].items()
        )

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
        """Whom nothing is told of any more is not remembered."""
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
