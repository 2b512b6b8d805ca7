"""The tick protocol of our scripts, whichever tool runs them: events in, one Window per interval out.

A script prints `ready PROBE NS`, each tick `tick PROBE NUMBER NS`, its maps, `done PROBE`, on its way out `last PROBE
NUMBER NS` and all maps once more; a `slow` line for an I/O above the threshold at any time. Owns the order of ticks,
late ticks and what was lost on the way. Sans I/O: the clock and the reading of the kernel's counters are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from latmon.framing import Framer, Interval
from latmon.manifest import Manifest
from latmon.records import Record, record, shifted
from latmon_backends.probe_events import Counted, Event, MapPrinted, Printed
from latmon_backends.sampler import Sample
from latmon_backends.tick_lines import MAX_RECORDS, SLOTS, Losses, stamped

_ON_TIME_US = 500_000
_WIDE, _WIDE_US = 3, 3_000_000
"""After so many intervals, and so long, a tick was due in vain: a paused machine, or a tool that lost its ticks."""
_AHEAD_US = 1_000_000
"""A stamp is taken before its line is read; what is told of the future, or goes back, is no stamp."""


@dataclass(frozen=True, slots=True)
class Tick:
    """When a tick was printed (CLOCK_MONOTONIC), its number, and the kernel's counters as its line was read."""

    number: int
    mono_us: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class Window:
    """One interval, from tick to tick."""

    begin: Tick
    end: Tick
    interval: Interval
    losses: Losses = field(default_factory=Losses)
    late: bool = False
    """It is several intervals together: their ticks were read too late to tell them apart, or didn't come."""
    records: tuple[Record, ...] = ()
    """slow, as they were printed before the tick's last line; their stamps on CLOCK_MONOTONIC."""

    @property
    def lag_us(self) -> int:
        """How long after the tick the kernel's counters were read; below 0: before it, on a thread of their own."""
        return self.end.sample.mono_us - self.end.mono_us


@dataclass(frozen=True, slots=True)
class LastWindow(Window):
    """The unfinished interval at the end: the probe saw nothing after `end`, however long detaching took."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the protocol needs to know of the outside: clocks in us, counters, how many keys a map can hold."""

    now_us: Callable[[], int]
    ahead_us: Callable[[], int]
    """How far the script's clock is ahead of CLOCK_MONOTONIC, where it is another."""
    sample: Callable[[], Sample]
    map_keys: int
    interval_us: int


class Ticks:
    """Takes one probe's events in, from its ready line to its last map."""

    def __init__(self, manifest: Manifest, framer: Framer, around: Surroundings) -> None:
        self._manifest, self._framer, self._around = manifest, framer, around
        self._maps = {spec.name for spec in manifest.maps}
        self._losses = Losses()
        self._records: list[Record] = []
        self._open: Tick | None = None
        self._begin: Tick | None = None
        self._late_until_us = 0
        """When a tick was last read late in this interval; 0: none was."""
        self._newest_us = 0
        self._ending = False
        self.said_last = False
        """Its last line came: the maps after it are the probe's last ones."""
        self.before = Interval()
        """What was counted before the first window; of no frame."""

    def take(self, event: Event) -> Window | None:
        """A Window when the event completes an interval."""
        match event:
            case MapPrinted() | Counted():
                self._map(event)
            case Printed(text=text):
                return self._line(text)
            case _:
                self._losses.note(event)
        return None

    def end(self) -> None:
        """The probe was asked to end: ticks on the way out are part of the last interval."""
        self._ending = True

    def last(self) -> LastWindow | None:
        """The unfinished interval at the end of the output; None when no `last` line came."""
        if self._open is None or self._begin is None:
            return None
        whole = self._close(self._begin, self._open)
        return LastWindow(whole.begin, whole.end, whole.interval, whole.losses, whole.late, whole.records)

    def _map(self, event: MapPrinted | Counted) -> None:
        values = event.integers()
        self._losses.map_full += len(values) >= self._around.map_keys
        # What a script keeps for itself comes out too when it ends: its tick number and starts are not results.
        if not self._ending or event.name in self._maps:
            self._framer.printed(event.name, values)

    def _line(self, text: str) -> Window | None:
        words = text.split()
        if words[:1] in (["tick"], ["last"]):
            self.said_last = words[0] == "last"
            self._open = self._tick(words)
            if self._ending and self._open is not None:
                self._note_late(self._open)
        elif words[:1] == ["done"] and self._open is not None and not self._ending:
            tick, self._open = self._open, None
            return self._done(tick)
        elif words and words[0] in self._manifest.records:
            self._record(text, words[0])
        return None

    def _record(self, text: str, kind: str) -> None:
        found = record(text, self._manifest.records[kind])
        if found is None:
            self._losses.undecoded += 1
        elif len(self._records) < MAX_RECORDS:
            self._records.append(shifted(found, self._ahead_us() * 1000))
        else:
            self._losses.dropped += 1

    def _tick(self, words: list[str]) -> Tick | None:
        found = stamped(words)
        if found is None:
            self._losses.undecoded += 1
            return None
        mono_us = found[1] // 1000 - self._ahead_us()
        if mono_us < self._newest_us or mono_us > self._around.now_us() + _AHEAD_US:
            self._losses.undecoded += 1
            return None
        self._newest_us = mono_us
        return Tick(found[0], mono_us, self._around.sample())

    def _ahead_us(self) -> int:
        return self._around.ahead_us() if self._manifest.clock != "monotonic" else 0

    def _done(self, tick: Tick) -> Window | None:
        """The end of a tick's maps.

        The first is where counting begins, here and in the kernel's counters: when the probe was attached is not known.
        After the reader was stopped, a queued tick may carry maps that are newer than its stamp, and the kernel's
        counters can only be read now. So all queued ticks are one wide interval. It ends at the first tick that the
        probe printed after the reader was back, so that the probe and the kernel count the same time.
        """
        if self._begin is None:
            self.before = self._framer.interval(None)
            self._records.clear()
            self._begin = tick
            return None
        self._note_late(tick)
        if tick.mono_us < self._late_until_us:
            return None
        window = self._close(self._begin, tick)
        paused = window.end.mono_us - window.begin.mono_us >= max(_WIDE * self._around.interval_us, _WIDE_US)
        return replace(window, late=window.late or paused)

    def _note_late(self, tick: Tick) -> None:
        now_us = self._around.now_us()
        if now_us - tick.mono_us > max(self._around.interval_us, _ON_TIME_US):
            self._late_until_us = now_us

    def _close(self, begin: Tick, tick: Tick) -> Window:
        late = self._late_until_us > 0
        in_order = tick.number == begin.number + 1 and not late
        slot = tick.number % SLOTS if in_order else None
        records, self._records = tuple(self._records), []
        window = Window(begin, tick, self._framer.interval(slot), self._losses, late, records)
        self._begin, self._losses, self._late_until_us = tick, Losses(), 0
        return window
