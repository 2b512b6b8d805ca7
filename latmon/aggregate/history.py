"""The history that views read: recent frames, then 1 s and 10 s sums of older ones, in bounded memory.

Owns what is remembered and for how long. Knows nothing of drawing, and nothing of where frames come from.
A frame is kept without the stages no view asks for (24 devices x 3 stages x 1 h would be 300 MB) and without traced
values and depth histograms: DeepLog and DepthLog keep those.

A frame's deep values are hundreds of histograms (24 devices x 2 ops x 7 stages): as objects, eleven minutes of them
would be 200 MB. They are arrays of numbers, and behind the last minute ten seconds are one entry, and compressed: sums
lose nothing by that, only where a long window begins is told to a sixtieth of it. Outliers are kept as they are, the
newest 10,000.

Behind the last minute five seconds are one entry, to which the frames are added one by one as they grow old. Of the
issues only the last bursts of a device are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from latmon.aggregate.accumulator import DeepSums, DepthSum, PackedDepths, packed
from latmon.aggregate.histogram_sum import Tally
from latmon.model.devices import NONE, Coverage, by_device, total
from latmon.model.frame import Completed, Device, Flow, Frame, Health, Origin, Outlier, Series, Traced
from latmon.model.histogram import EMPTY, Histogram, merge, merged_max
from latmon.model.inflight import Depths, Issue
from latmon.model.packed import Counted, Flat, Pressed, flatten

MAX_OUTLIERS = 10_000
"""About 9 MB; a flood at the probes' own rate limit fills them in 100 s."""
TRACED_FINE_US = 60_000_000
"""So far back every frame is an entry of its own."""
TRACED_COARSE_US = 10_000_000
_TIDY = 256
"""Frames between two looks at which shared keys are still used."""


@dataclass(frozen=True, slots=True)
class TracedEntry:
    """One frame's deep values, or those of a stretch that ends at `mono_us`."""

    mono_us: int
    told: Flat | Pressed | Frame
    """A frame where it is soon forgotten again: nobody may ever ask for its tables."""

    @property
    def flat(self) -> Flat:
        if isinstance(self.told, Frame):
            return flatten(self.told)
        return self.told if isinstance(self.told, Flat) else self.told.flat


def combined(parts: Sequence[TracedEntry]) -> TracedEntry:
    """Entries that follow each other as one."""
    if len(parts) == 1:
        return parts[0]
    sums = DeepSums()
    for one in parts:
        sums.add(one.flat, one.mono_us)
    return TracedEntry(parts[-1].mono_us, Pressed(sums.flat))


class DeepLog:
    """What the store keeps of deep values; `forget` follows the store's own frames."""

    def __init__(self, max_outliers: int = MAX_OUTLIERS, *, brief: bool = False) -> None:
        self._brief = brief
        self.entries: deque[TracedEntry] = deque()
        self.keys: dict[Any, Any] = {}
        """Rows of tables, and what is in them: one object for all frames that have the same."""
        self._appended = 0
        self._ageing: list[TracedEntry] = []
        self._old: deque[TracedEntry] = deque()
        self._outliers: deque[tuple[int, Outlier]] = deque(maxlen=max_outliers)

    def append(self, frame: Frame) -> None:
        self.entries.append(TracedEntry(frame.mono_us, frame if self._brief else self._shared(flatten(frame))))
        self._outliers.extend((frame.mono_us, one) for one in frame.outliers)
        while self.entries[0].mono_us <= frame.mono_us - TRACED_FINE_US:
            self._age(self.entries.popleft())
        self._appended += 1
        if self._appended % _TIDY == 0 and not self._brief:
            self.keys = {part: part for one in self.every() for rows in _rows(one.told) for part in (rows, *rows)}

    def copy(self) -> DeepLog:
        """Return another one with the same entries, which goes on by itself."""
        other = DeepLog(brief=self._brief)
        other.entries, other._old, other._outliers = self.entries.copy(), self._old.copy(), self._outliers.copy()
        other._ageing, other.keys, other._appended = self._ageing.copy(), self.keys.copy(), self._appended
        return other

    def forget(self, before_us: int) -> None:
        """Drop what ends before `before_us`."""
        while self._old and self._old[0].mono_us < before_us:
            self._old.popleft()
        while self._outliers and self._outliers[0][0] < before_us:
            self._outliers.popleft()

    def _shared(self, flat: Flat) -> Flat:
        """The same with keys and facts that earlier frames have too."""
        before = self.entries[-1].flat.facts if self.entries else None
        for table in flat.tables.values():
            table.rows = self._known(table.rows)
        counted = {group: Counted(self._known(some.keys), some.counts) for group, some in flat.counted.items()}
        return Flat(flat.tables, counted, flat.facts if before is None or before != flat.facts else before)

    def _known(self, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        found: tuple[Any, ...] | None = self.keys.get(rows)
        if found is None:
            found = tuple(self.keys.setdefault(one, one) for one in rows)
            self.keys[found] = found
        return found

    def every(self) -> list[TracedEntry]:
        """All that is kept, oldest first."""
        return [*self._old, *self._ageing, *self.entries]

    def _age(self, one: TracedEntry) -> None:
        if self._ageing and one.mono_us // TRACED_COARSE_US != self._ageing[-1].mono_us // TRACED_COARSE_US:
            self._old.append(combined(self._ageing))
            self._ageing = []
        self._ageing.append(one)

    def clear(self) -> None:
        for one in (self.entries, self._ageing, self._old, self._outliers, self.keys):
            one.clear()

    def outliers(self, after_us: int, until_us: int) -> tuple[Outlier, ...]:
        """Those of the frames that end behind `after_us` and not behind `until_us`, oldest first."""
        return tuple(one for stamp, one in self._outliers if after_us < stamp <= until_us)

    def between(self, after_us: int, until_us: int) -> list[TracedEntry]:
        """Entries that end behind `after_us` and not behind `until_us`."""
        every = self.entries if self.entries and after_us >= self.entries[0].mono_us else self.every()
        return [one for one in every if after_us < one.mono_us <= until_us]


def _rows(told: Flat | Pressed | Frame) -> Iterator[tuple[Any, ...]]:
    if isinstance(told, Pressed):
        yield from told.keys
        return
    if isinstance(told, Frame):
        return
    yield from (table.rows for table in told.tables.values())
    yield from (some.keys for some in told.counted.values())


DEPTH_FINE_US = 65_000_000
"""So far back every frame is an entry of its own: a window of a minute never needs a part of a stretch."""
DEPTH_COARSE_US = 5_000_000
BURSTS = 8
"""Of each device: what is shown may be paused while others come."""
MAX_BURST = 512
"""Issues that are kept of a burst; a probe tells fewer, a recording may say what it likes."""
_DEVICES = 64


@dataclass(frozen=True, slots=True)
class DepthEntry:
    """The depths of a frame, or those of a stretch of them without a hole: from `begin_us` to `mono_us`."""

    begin_us: int
    mono_us: int
    told: Mapping[str, PackedDepths]


class DepthLog:
    """What the store keeps of depths and issues; `forget` follows the store's own frames."""

    def __init__(self) -> None:
        self._entries: deque[DepthEntry] = deque()
        self._old: deque[DepthEntry] = deque()
        self._open: dict[str, DepthSum] = {}
        """The stretch that is being filled."""
        self._begin_us = self._end_us = 0
        self._bursts: dict[str, deque[tuple[int, tuple[Issue, ...]]]] = {}

    def append(self, frame: Frame) -> None:
        """The next frame."""
        if frame.depths:
            told = {name: packed(one, frame.dt_us) for name, one in frame.depths.items()}
            self._entries.append(DepthEntry(frame.mono_us - frame.dt_us, frame.mono_us, told))
        while self._entries and self._entries[0].mono_us <= frame.mono_us - DEPTH_FINE_US:
            self._age(self._entries.popleft())
        for name, burst in frame.issues.items():
            if burst and (name in self._bursts or len(self._bursts) < _DEVICES):
                kept = self._bursts.setdefault(name, deque(maxlen=BURSTS))
                kept.append((frame.mono_us, burst[-MAX_BURST:]))

    def copy(self) -> DepthLog:
        """Return another one with the same entries, which goes on by itself."""
        other = DepthLog()
        other._entries, other._old = self._entries.copy(), self._old.copy()
        if self._open:
            other._old.append(self._closed())
        other._bursts = {name: some.copy() for name, some in self._bursts.items()}
        return other

    def forget(self, before_us: int) -> None:
        """Drop what ends before `before_us`."""
        while self._old and self._old[0].mono_us < before_us:
            self._old.popleft()
        self._bursts = {name: some for name, some in self._bursts.items() if some[-1][0] >= before_us}

    def clear(self) -> None:
        for one in (self._entries, self._open, self._old, self._bursts):
            one.clear()

    @property
    def fine_from_us(self) -> int | None:
        """Where the frames begin that are still entries of their own; None where there are none."""
        return self._entries[0].begin_us if self._entries else None

    def between(self, after_us: int, until_us: int) -> list[DepthEntry]:
        """Entries that end behind `after_us` and not behind `until_us`, oldest first: the first may begin earlier."""
        filling = (self._closed(),) if self._open else ()
        return [one for one in (*self._old, *filling, *self._entries) if after_us < one.mono_us <= until_us]

    def final(self, after_us: int, until_us: int) -> list[DepthEntry]:
        """The same without the stretch that is still being filled."""
        return [one for one in (*self._old, *self._entries) if after_us < one.mono_us <= until_us]

    def burst(self, device: str, until_us: int) -> tuple[Issue, ...]:
        """The last issues of a device that were told until then."""
        return next((some for us, some in reversed(self._bursts.get(device, ())) if us <= until_us), ())

    def bursts(self, device: str, after_us: int, until_us: int) -> list[tuple[Issue, ...]]:
        """Those of its issues that were told behind `after_us` and not behind `until_us`, as far as they are kept."""
        return [some for us, some in self._bursts.get(device, ()) if after_us < us <= until_us]

    def _age(self, one: DepthEntry) -> None:
        """Into the stretch of its time; where frames are missing another one begins."""
        hole = one.begin_us - self._end_us > (one.mono_us - one.begin_us) / 2
        if self._open and (hole or one.mono_us // DEPTH_COARSE_US != self._end_us // DEPTH_COARSE_US):
            self._old.append(self._closed())
            self._open = {}
        if not self._open:
            self._begin_us = one.begin_us
        self._end_us = one.mono_us
        for name, told in one.told.items():
            self._open.setdefault(name, DepthSum()).add(told, one.mono_us)

    def _closed(self) -> DepthEntry:
        return DepthEntry(self._begin_us, self._end_us, {name: one.packed for name, one in self._open.items()})


def summed(entries: list[DepthEntry], device: str) -> Depths | None:
    """A device's depths over some entries; None where none tells of it."""
    sums = DepthSum()
    told = [one for one in entries if device in one.told]
    for one in told:
        sums.add(one.told[device], one.mono_us)
    return sums.depths if told else None


KEEP_US = 11 * 60 * 1_000_000
"""A little more than the longest window; 24 devices take about 25 MB."""
MAX_FRAMES = 5_000
_MAX_PAIRS = 1 << 16
_WITHOUT_DEEP: dict[str, Any] = {
    "outliers": (),
    "traced": Traced(),
    "handlers": {},
    "softirqs": {},
    "wakeups": (),
    "depths": {},
    "issues": {},
    "in_flight": None,
}


class Store:
    """What arrived so far: the origin, the devices as they are now, and the last frames."""

    def __init__(self, limit: int = MAX_FRAMES, stages: tuple[str, ...] = ("total",), *, brief: bool = False) -> None:
        """`brief`: it is soon forgotten as a whole, and needn't save memory."""
        self._brief = brief
        self.origin: Origin | None = None
        self.frames: deque[Frame] = deque(maxlen=limit)
        self.deep = DeepLog(brief=brief)
        """What the deep probes told, which the kept frames have no longer, and the outliers."""
        self.depths = DepthLog()
        self.devices: dict[str, Device] = {}
        self.arrived = 0
        self._stages = frozenset(stages)
        self._removed_us: dict[str, int] = {}
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}

    @property
    def removed(self) -> KeysView[str]:
        """The devices that are gone, as long as a kept frame may speak of them."""
        return self._removed_us.keys()

    def append(self, frame: Frame) -> Frame:
        """Keep one frame; returns it as it is kept. Time that went backwards (another boot) starts a new history."""
        if self.frames and frame.mono_us < self.frames[-1].mono_us:
            self.frames.clear()
            self.deep.clear()
            self.depths.clear()
            self._forget(self._removed_us.copy())
        self._note_devices(frame)
        self.deep.append(frame)
        self.depths.append(frame)
        kept = replace(frame, histograms=self._wanted(frame), **_WITHOUT_DEEP)
        self.frames.append(kept)
        while self.frames[0].mono_us < frame.mono_us - KEEP_US:
            self.frames.popleft()
        self.deep.forget(self.frames[0].mono_us)
        self.depths.forget(self.frames[0].mono_us)
        self._forget(name for name, us in self._removed_us.copy().items() if us < self.frames[0].mono_us)
        self.arrived += 1
        return kept

    def copy(self) -> Store:
        """Return another one with the same frames and devices, which goes on by itself."""
        other = Store(self.frames.maxlen or MAX_FRAMES, tuple(self._stages), brief=self._brief)
        other.origin, other.arrived, other.frames = self.origin, self.arrived, self.frames.copy()
        other.deep, other.depths = self.deep.copy(), self.depths.copy()
        other.devices, other._removed_us = self.devices.copy(), self._removed_us.copy()
        return other

    def until(self, after_us: int, until_us: int, known: Iterable[Device]) -> Store:
        """Return one with the frames that end in (after_us, until_us]; `known`: the devices before them.

        It has neither deep values nor depths: those of an earlier moment are not kept as they were then.
        """
        other = Store(brief=True)
        other.origin = self.origin
        other.devices = {one.name: one for one in known}
        for frame in self.frames:
            if after_us < frame.mono_us <= until_us:
                other._note_devices(frame)
                other.frames.append(frame)
        return other

    def _note_devices(self, frame: Frame) -> None:
        for device in frame.devices:
            self.devices[device.name] = device
            self._removed_us.pop(device.name, None)
        self._removed_us.update(dict.fromkeys(frame.removed, frame.mono_us))

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            del self._removed_us[name]
            self.devices.pop(name, None)

    def _wanted(self, frame: Frame) -> dict[Series, Histogram]:
        found = frame.histograms  # one that nobody wants isn't even made of its packed form
        return {s: self._share(found[s]) for s in found if s.stage in self._stages}

    def _share(self, histogram: Histogram) -> Histogram:
        """The same histogram with (index, count) pairs that other frames hold too: a third of the memory."""
        if self._brief:
            return histogram
        if len(self._pairs) > _MAX_PAIRS:
            self._pairs.clear()
        pairs = self._pairs
        return replace(histogram, buckets=tuple(pairs.setdefault(p, p) for p in histogram.buckets))


class Window:
    """Sums over the last `length_us` of the frames it was given, up to the last of them."""

    def __init__(self, length_us: int, frames: Iterable[Frame] = ()) -> None:
        self.length_us = length_us
        self.frames: deque[Frame] = deque()
        self._tallies: dict[Flow, Tally] = {}
        self._kernel: dict[Flow, _Sum] = {}
        self._seen: dict[Flow, _Sum] = {}
        self._coverage: dict[str, Coverage] = {}
        self._cache: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        for frame in frames:
            self.advance(frame)

    def copy(self) -> Window:
        """Return another one with the same sums, which goes on by itself."""
        other = Window(self.length_us)
        other.frames, other._coverage, other._cache = self.frames.copy(), self._coverage.copy(), self._cache.copy()
        other._tallies = {flow: replace(one, counts=one.counts.copy()) for flow, one in self._tallies.items()}
        other._kernel = {flow: replace(one) for flow, one in self._kernel.items()}
        other._seen = {flow: replace(one) for flow, one in self._seen.items()}
        return other

    @property
    def last(self) -> Frame | None:
        return self.frames[-1] if self.frames else None

    @property
    def covered_us(self) -> int:
        """How much time the frames really cover: less than the window at the start and with gaps."""
        return sum(f.dt_us for f in self.frames)

    def advance(self, frame: Frame) -> None:
        """One frame further; frames that end before the window begins leave it."""
        if self.frames and frame.mono_us < self.frames[-1].mono_us:
            while self.frames:
                self._account(self.frames.popleft(), -1)
        self.frames.append(frame)
        self._account(frame, 1)
        begin = frame.mono_us - self.length_us
        while self.frames[0].mono_us <= begin:
            self._account(self.frames.popleft(), -1)
        self._cache.clear()

    def move(self, frames: Iterable[Frame]) -> None:
        """Over the last of these, oldest first, forward or back: only what comes or leaves is counted."""
        every = list(frames)
        begin = every[-1].mono_us - self.length_us if every else 0
        wanted = {one.mono_us: one for one in every if one.mono_us > begin}
        here = {one.mono_us: one for one in self.frames}
        for us, one in here.items():
            if us not in wanted:
                self._account(one, -1)
        for us, one in wanted.items():
            if us not in here:
                self._account(one, 1)
        self.frames = deque(wanted.values())
        self._cache.clear()

    def latency(self, device: str, ops: tuple[str, ...]) -> Histogram:
        """The merged latency of a device's ops over the window, with the exact maximum where every frame had one."""
        key = (device, ops)
        if key not in self._cache:
            self._cache[key] = self._merged(device, ops)
        return self._cache[key]

    def completed(self, device: str, op: str) -> Completed | None:
        """I/Os completed: by the kernel's own count, else as the probe saw them; None when nobody counted."""
        flow = Flow(device, op)
        kernel, seen = _completed(self._kernel.get(flow)), _completed(self._seen.get(flow))
        if kernel and kernel.count:
            return kernel
        return seen or kernel

    def seen(self, device: str, op: str) -> Completed | None:
        return _completed(self._seen.get(Flow(device, op)))

    def busy_us(self, device: str, ops: tuple[str, ...]) -> int:
        """Return the summed time of a device's I/Os in us, as far as their times are known."""
        found = 0
        for op in ops:
            tally = self._tallies.get(Flow(device, op))
            done = None if tally and tally.sum else self.completed(device, op)
            found += (done.time_us or 0) if done else tally.sum if tally else 0
        return found

    def coverage(self, devices: Mapping[str, Device]) -> float | None:
        """Completions that the probe saw for each that the kernel counted, more than 1 if so; None if unknown."""
        if not self._seen:
            return None
        return total(self._coverage, devices).ratio

    def health(self) -> Health:
        """The last frame's health with the counters of the whole window."""
        if not self.frames:
            return Health()
        every = [f.health for f in self.frames]
        skipped = [h.skipped for h in every if h.skipped is not None]
        return replace(
            every[-1],
            lost_events=sum(h.lost_events for h in every),
            map_full=sum(h.map_full for h in every),
            unmatched=sum(h.unmatched for h in every),
            stale=sum(h.stale for h in every),
            undecoded_lines=sum(h.undecoded_lines for h in every),
            dropped_frames=sum(h.dropped_frames for h in every),
            suppressed=sum(h.suppressed for h in every),
            dropped_records=sum(h.dropped_records for h in every),
            skipped=sum(skipped) if skipped else None,
        )

    def _merged(self, device: str, ops: tuple[str, ...]) -> Histogram:
        parts = [
            tally.histogram(self._max(flow))
            for flow in (Flow(device, op) for op in ops)
            if (tally := self._tallies.get(flow)) and tally.counts
        ]
        return parts[0] if len(parts) == 1 else merge(parts) if parts else EMPTY

    def _max(self, flow: Flow) -> int | None:
        series = Series(*flow, "total")
        return merged_max(one for frame in self.frames if (one := frame.histograms.get(series)))

    def _account(self, frame: Frame, sign: int) -> None:
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and histogram:
                flow = Flow(series.device, series.op)
                tally = self._tallies.setdefault(flow, Tally())
                tally.add(histogram, sign)
                if not tally.counts:
                    del self._tallies[flow]
        _add(self._kernel, frame.kernel, sign)
        for name, one in by_device(frame).items():
            old = self._coverage.get(name, NONE)
            self._coverage[name] = old + one if sign > 0 else old - one
            if sign < 0 and self._coverage[name] == NONE:
                del self._coverage[name]
        _add(self._seen, frame.seen, sign)


@dataclass(slots=True)
class _Sum:
    """Of a flow's counts."""

    frames: int = 0
    count: int = 0
    bytes: int = 0
    time_us: int = 0
    untold: int = 0
    """Of them the frames that don't say how long the I/Os took."""
    queue_us: int = 0
    unsplit: int = 0
    """Frames that don't report which part of the time was queueing."""


def _completed(one: _Sum | None) -> Completed | None:
    if one is None:
        return None
    time_us, queue_us = None if one.untold else one.time_us, None if one.unsplit else one.queue_us
    return Completed(one.count, one.bytes, time_us, queue_us)


def _add(sums: dict[Flow, _Sum], more: Mapping[Flow, Completed], sign: int) -> None:
    for flow, done in more.items():
        one = sums.get(flow)
        if one is None:
            one = sums[flow] = _Sum()
        one.frames += sign
        one.count += sign * done.count
        one.bytes += sign * done.bytes
        if done.time_us is None:
            one.untold += sign
        else:
            one.time_us += sign * done.time_us
        if done.queue_us is None:
            one.unsplit += sign
        else:
            one.queue_us += sign * done.queue_us
        if not one.frames:
            del sums[flow]
