"""One frame's deep values as tables of numbers, a group for each of the questions that screens ask.

A group is summed only while somebody asks its question; the facts beside them don't add up. Knows no window.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon.model import Flow, Frame, Handler, SoftirqCpu, Thread, Traced
from latmon.packed import Packed, Sums, numbers

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "always": (),
        "totals": ("total",),
        "tails": ("by_total",),
        "stages": ("stage",),
        "basic": ("basic",),
        "interrupts": ("handler", "delay", "softirq"),
        "wakeups": ("wakeup",),
    }
)
"""Group -> its sums of tables; `total` and `stage` are both of the table `traced`."""
_GROUP_OF = {
    **dict.fromkeys(("above", "suppressed"), "always"),
    **dict.fromkeys(("unfollowed", "path", "off", "one_in"), "totals"),
    **dict.fromkeys(("before", "returned", "ran_in", "raised_in"), "interrupts"),
    "instead": "wakeups",
}


class Key(NamedTuple):
    """What a count is about: a kind of our own, the thing, and the name of what was counted."""

    kind: str
    about: Flow | Handler | SoftirqCpu | int | str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true now and doesn't add up."""

    traced: Traced = field(default_factory=Traced)
    """Without its sums."""
    threads: Mapping[int, Thread] = field(default_factory=dict)
    handlers: Mapping[Handler, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Device and shared_with."""
    thresholds_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts in two rows: frames have the same keys time and again, and share them."""

    keys: tuple[Key, ...] = ()
    counts: array[int] = field(default_factory=lambda: array("i"))

    @classmethod
    def of(cls, pairs: Iterable[tuple[Key, int]]) -> Counted:
        """Those that aren't 0."""
        told = {key: n for key, n in pairs if n}
        return cls(tuple(told), numbers(told.values()))


@dataclass(frozen=True, slots=True)
class Flat:
    """One frame's deep values, or the sum of some."""

    tables: Mapping[str, Packed[Any]]
    counted: Mapping[str, Counted]
    """By group."""
    facts: Facts = Facts()


def flatten(frame: Frame) -> Flat:
    """All of a frame's deep values but its outliers."""
    facts = Facts(
        Traced(
            one_in=frame.traced.one_in,
            devices=frame.traced.devices,
            includes=frame.traced.includes,
            bio_includes=frame.traced.bio_includes,
            absent=frame.traced.absent,
        ),
        {one.thread.pid: one.thread for one in frame.wakeups},
        {handler: (runs.device, runs.shared_with) for handler, runs in frame.handlers.items()},
        frame.thresholds_us,
    )
    tables: dict[str, Packed[Any]] = {
        "traced": Packed.of(frame.traced.histograms),
        "by_total": Sums.of(frame.traced.by_total).packed,
        "basic": Packed.of({series: one for series, one in frame.histograms.items() if series.stage != "total"}),
        "handler": Packed.of({handler: runs.run for handler, runs in frame.handlers.items()}),
        "delay": Packed.of({where: runs.delay for where, runs in frame.softirqs.items()}),
        "softirq": Packed.of({where: runs.run for where, runs in frame.softirqs.items()}),
        "wakeup": Packed.of({one.thread.pid: one.delay for one in frame.wakeups}),
    }
    counted = {
        "always": _above(frame),
        "totals": _paths(frame.traced),
        "interrupts": _interrupts(frame),
        "wakeups": (pair for one in frame.wakeups for pair in _named("instead", one.thread.pid, one.instead)),
    }
    return Flat(
        {name: table for name, table in tables.items() if table},
        {group: some for group, pairs in counted.items() if (some := Counted.of(pairs)).keys},
        facts,
    )


def group_of(key: Key) -> str:
    """The group whose questions a count is about."""
    return _GROUP_OF[key.kind]


def names(frame: Frame) -> set[tuple[Any, ...]]:
    """Everything that has a deep value of its own in it, but threads: they come and go as long as a recording lasts."""
    traced = frame.traced
    tables: list[Mapping[Any, Any]] = [traced.histograms, traced.by_total, frame.handlers, frame.softirqs]
    found: set[tuple[Any, ...]] = {(number, key) for number, table in enumerate(tables) for key in table}
    found.update(key for key, n in _above(frame) if n)
    found.update(key for key, n in _paths(traced) if n)
    found.update(key for key, n in _interrupts(frame) if n)
    return found


def _above(frame: Frame) -> Iterator[tuple[Key, int]]:
    yield Key("suppressed", ""), frame.health.suppressed
    for flow, n in frame.above.items():
        yield Key("above", flow), n


def _paths(traced: Traced) -> Iterator[tuple[Key, int]]:
    yield Key("off", ""), traced.off
    if traced.one_in:
        yield Key("one_in", traced.one_in), 1
    for kind, devices in (("unfollowed", traced.unfollowed), ("path", traced.paths)):
        for device, named in devices.items():
            yield from _named(kind, device, named)


def _interrupts(frame: Frame) -> Iterator[tuple[Key, int]]:
    for handler, runs in frame.handlers.items():
        yield Key("before", handler), runs.before_us
        yield from _named("returned", handler, runs.returned)
    for where, ran in frame.softirqs.items():
        yield from _named("ran_in", where, ran.ran_in)
        yield from _named("raised_in", where, ran.raised_in)


def _named(
    kind: str, about: Flow | Handler | SoftirqCpu | int | str, named: Mapping[str, int]
) -> Iterator[tuple[Key, int]]:
    return ((Key(kind, about, name), n) for name, n in named.items())


class Pressed:
    """A Flat in a few kB, for what is asked again late or never."""

    def __init__(self, flat: Flat) -> None:
        tables = flat.tables.values()
        arrays = [
            one
            for table in tables
            for one in (table.ends, array("B", table.indices), table.counts, table.sums, table.maxima)
        ]
        arrays += [some.counts for some in flat.counted.values()]
        self._rows = {name: table.rows for name, table in flat.tables.items()}
        self._keys = {group: some.keys for group, some in flat.counted.items()}
        self._shapes = [(one.typecode, len(one) * one.itemsize) for one in arrays]
        self.facts = flat.facts
        # level 1: half the time of the default for 10 % more bytes
        self.numbers = zlib.compress(b"".join(one.tobytes() for one in arrays), 1)

    @property
    def keys(self) -> tuple[tuple[Any, ...], ...]:
        """What its tables and counts are about."""
        return (*self._rows.values(), *self._keys.values())

    @property
    def flat(self) -> Flat:
        """What was pressed."""
        arrays = self._arrays()
        tables: dict[str, Packed[Any]] = {}
        for name, rows in self._rows.items():
            ends, indices, counts, sums, maxima = islice(arrays, 5)
            tables[name] = Packed(rows, ends, indices.tobytes(), counts, sums=sums, maxima=maxima)
        counted = {group: Counted(keys, next(arrays)) for group, keys in self._keys.items()}
        return Flat(tables, counted, self.facts)

    def _arrays(self) -> Iterator[array[int]]:
        whole, at = zlib.decompress(self.numbers), 0
        for code, size in self._shapes:
            one = array(code)
            one.frombytes(whole[at : at + size])
            at += size
            yield one
