"""What the deep probes told of several frames, added up: one flat table of histograms and one of counts.

Merging is addition, and a frame that was added can be taken away again, exactly. Facts that don't add up (who a thread
is, who shares a vector, how many requests are traced) are the latest ones. Knows neither time nor file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from latmon.histogram import EMPTY, Histogram, merge
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
from latmon.tally import Peak, Tally


class Key(NamedTuple):
    """What a sum is about: a kind of our own, the thing, and for a count the name of what was counted."""

    kind: str
    about: Series | Flow | Handler | SoftirqCpu | int | str
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
class Flat:
    """One frame's deep values as two tables and the facts beside them."""

    histograms: Mapping[Key, Histogram]
    counts: Mapping[Key, int]
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
    return Flat(dict(_histograms(frame)), {key: n for key, n in _counts(frame) if n}, facts)


def together(parts: Sequence[Flat]) -> Flat:
    """Several frames' tables as one; of the facts the latest."""
    grouped: dict[Key, list[Histogram]] = {}
    counts: dict[Key, int] = {}
    for part in parts:
        for key, one in part.histograms.items():
            grouped.setdefault(key, []).append(one)
        for key, n in part.counts.items():
            counts[key] = counts.get(key, 0) + n
    facts = replace(
        parts[-1].facts,
        threads={pid: thread for part in parts for pid, thread in part.facts.threads.items()},
        handlers={handler: told for part in parts for handler, told in part.facts.handlers.items()},
    )
    return Flat({key: merge(some) for key, some in grouped.items()}, counts, facts)


def _histograms(frame: Frame) -> Iterator[tuple[Key, Histogram]]:
    for series, one in frame.traced.histograms.items():
        yield Key("traced", series), one
    for series, one in frame.histograms.items():
        if series.stage != "total":
            yield Key("basic", series), one
    for series, sums in frame.traced.by_total.items():
        # a sum per bucket is a histogram whose counts are microseconds
        yield Key("by_total", series), Histogram.of(sums)
    for handler, runs in frame.handlers.items():
        yield Key("handler", handler), runs.run
    for where, ran in frame.softirqs.items():
        yield Key("delay", where), ran.delay
        yield Key("softirq", where), ran.run
    for woken in frame.wakeups:
        yield Key("wakeup", woken.thread.pid), woken.delay


def _counts(frame: Frame) -> Iterator[tuple[Key, int]]:
    yield Key("off", ""), frame.traced.off
    yield Key("suppressed", ""), frame.health.suppressed
    for flow, n in frame.above.items():
        yield Key("above", flow), n
    for kind, devices in (("unfollowed", frame.traced.unfollowed), ("path", frame.traced.paths)):
        for device, named in devices.items():
            yield from _named(kind, device, named)
    for handler, runs in frame.handlers.items():
        yield Key("before", handler), runs.before_us
        yield from _named("returned", handler, runs.returned)
    for where, ran in frame.softirqs.items():
        yield from _named("ran_in", where, ran.ran_in)
        yield from _named("raised_in", where, ran.raised_in)
    for woken in frame.wakeups:
        yield from _named("instead", woken.thread.pid, woken.instead)


def _named(
    kind: str, about: Flow | Handler | SoftirqCpu | int | str, named: Mapping[str, int]
) -> Iterator[tuple[Key, int]]:
    return ((Key(kind, about, name), n) for name, n in named.items())


class DeepSums:
    """Filled by `add`; the properties make values of the same types as a frame's."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self._tallies: dict[Key, Tally] = {}
        self._peaks: dict[Key, Peak] = {}
        self._counts: dict[Key, int] = {}
        self._threads: dict[int, Thread] = {}
        self._handlers: dict[Handler, tuple[str, tuple[str, ...]]] = {}
        self._facts = Facts()
        for frame in frames:
            self.add(flatten(frame))

    def add(self, flat: Flat, stamp: int = 0) -> None:
        for key, one in flat.histograms.items():
            if one:
                self._tally(key, one, 1)
                self._peaks.setdefault(key, Peak()).add(stamp, one)
        self._count(flat, 1)
        self._threads.update(flat.facts.threads)
        self._handlers.update(flat.facts.handlers)
        self._facts = flat.facts

    def remove(self, flat: Flat, stamp: int = 0) -> None:
        """Take away what was added with `stamp`; frames leave in the order in which they came."""
        for key, one in flat.histograms.items():
            if not one:
                continue
            self._tally(key, one, -1)
            if key in self._tallies:
                self._peaks[key].forget(stamp)
            else:
                del self._peaks[key]
                self._forget(key)
        self._count(flat, -1)

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
        """`one_in`, `devices`, `includes` and `absent` are those of the last frame."""
        return replace(
            self._facts.traced,
            histograms={key.about: one for key, one in self._of("traced") if isinstance(key.about, Series)},
            by_total={
                key.about: dict(one.buckets) for key, one in self._of("by_total") if isinstance(key.about, Series)
            },
            unfollowed=self._by_device("unfollowed"),
            paths=self._by_device("path"),
            off=self._counts.get(Key("off", ""), 0),
        )

    @property
    def basic(self) -> dict[Series, Histogram]:
        return {key.about: one for key, one in self._of("basic") if isinstance(key.about, Series)}

    @property
    def handlers(self) -> dict[Handler, HandlerRuns]:
        returned = self._grouped("returned")
        found = {}
        for key, one in self._of("handler"):
            if isinstance(key.about, Handler):
                device, shared = self._handlers.get(key.about, ("", ()))
                before = self._counts.get(Key("before", key.about), 0)
                found[key.about] = HandlerRuns(one, returned.get(key.about, {}), before, device, shared)
        return found

    @property
    def softirqs(self) -> dict[SoftirqCpu, SoftirqRuns]:
        delays, runs = dict(self._of("delay")), dict(self._of("softirq"))
        ran, raised = self._grouped("ran_in"), self._grouped("raised_in")
        every = {key.about: None for key in (*delays, *runs) if isinstance(key.about, SoftirqCpu)}
        return {
            where: SoftirqRuns(
                delays.get(Key("delay", where), EMPTY),
                runs.get(Key("softirq", where), EMPTY),
                ran.get(where, {}),
                raised.get(where, {}),
            )
            for where in every
        }

    @property
    def wakeups(self) -> tuple[Wakeups, ...]:
        instead = self._grouped("instead")
        return tuple(
            Wakeups(self._threads[key.about], one, instead.get(key.about, {}))
            for key, one in self._of("wakeup")
            if isinstance(key.about, int)
        )

    def _of(self, kind: str) -> Iterator[tuple[Key, Histogram]]:
        return (
            (key, tally.histogram(self._peaks[key].maximum()))
            for key, tally in self._tallies.items()
            if key.kind == kind
        )

    def _grouped(self, kind: str) -> dict[object, dict[str, int]]:
        found: dict[object, dict[str, int]] = {}
        for key, n in self._counts.items():
            if key.kind == kind:
                found.setdefault(key.about, {})[key.name] = n
        return found

    def _by_device(self, kind: str) -> dict[str, dict[str, int]]:
        return {str(device): named for device, named in self._grouped(kind).items()}

    def _tally(self, key: Key, one: Histogram, sign: int) -> None:
        tally = self._tallies.setdefault(key, Tally())
        tally.add(one, sign)
        if not tally.counts:
            del self._tallies[key]

    def _count(self, flat: Flat, sign: int) -> None:
        for key, n in flat.counts.items():
            left = self._counts.get(key, 0) + sign * n
            if left:
                self._counts[key] = left
            else:
                self._counts.pop(key, None)

    def _forget(self, key: Key) -> None:
        """Whom nothing is told of any more is not remembered."""
        if key.kind == "wakeup" and isinstance(key.about, int):
            self._threads.pop(key.about, None)
        if isinstance(key.about, Handler):
            self._handlers.pop(key.about, None)
