"""The tick protocol of a process whose program is several deep scripts: events in, one DeepWindow out when asked.

    ticks = DeepTicks(manifests, device_name, threads, around)
    ticks.take(event)         # each event of the process, in their order
    window = ticks.taken()    # e.g. at each tick of the always-on probe: all that was completed since the last call

Every script has ticks of its own: `tick NAME N NS`, its maps, `done NAME`. What a script printed counts once its `done`
came; the first `done` of each is where its counting begins. Record lines come at any time. Sans I/O; asks no clock but
the given distance between two. Must not know how the process was started or what joins records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from latmon.deep_depths import Flags
from latmon.deep_framing import DeepFramer, DeepInterval, joined
from latmon.differences import Counts
from latmon.manifest import Manifest
from latmon.model import Thread
from latmon.outstanding import Issue
from latmon.records import Record, record, shifted
from latmon_backends.issue_windows import IssueWindows
from latmon_backends.probe_events import Counted, Event, HandlerNamed, MapPrinted, Printed
from latmon_backends.threads import Threads
from latmon_backends.tick_lines import MAX_RECORDS, SLOTS, Losses, stamped

_BIOS = "bios"


@dataclass(frozen=True, slots=True)
class DeepWindow:
    """What the deep scripts said between two calls; `interval.traced` has neither `one_in` nor `devices`."""

    interval: DeepInterval = field(default_factory=DeepInterval)
    records: tuple[Record, ...] = ()
    """slow, resumed and late, their stamps on CLOCK_MONOTONIC: for outliers.Outliers."""
    losses: Losses = field(default_factory=Losses)
    ticks: int = 0
    """Of the script that completed most: 0 is nothing new, a process that hangs or is slow."""
    begun_us: int = 0
    """The tick from which the earliest of its scripts counts; 0 where it has no ticks."""
    issues: Mapping[str, tuple[Issue, ...]] = field(default_factory=dict)
    """Consecutive issues of a device, in their order."""


@dataclass(frozen=True, slots=True)
class DeepSurroundings:
    """What the protocol needs to know of the outside."""

    map_keys: int
    ahead_us: Callable[[], int] = lambda: 0
    """How far the scripts' clock is ahead of CLOCK_MONOTONIC, where it is another."""
    timed: Callable[[str], bool] = lambda _: False
    """Whether the always-on probe times a device: then its bios are told of nowhere, they are its requests."""
    flags: Flags = lambda _: ()


class _Script:
    """One script's place in the protocol."""

    def __init__(self, manifest: Manifest, device_name: Callable[[int], str | None], around: DeepSurroundings) -> None:
        alone = lambda name: not around.timed(name)  # noqa: E731
        self.manifest, self.framer = manifest, DeepFramer(manifest, device_name, around.flags, alone)
        self.device_name = device_name
        self.waiting: list[Record] = []
        """Slow bios: they are told with the tick whose map counts them, and so is what was left out."""
        self.held: list[Record] = []
        """What had not completed at the tick that is open."""
        self.arriving: dict[str, Counts] = {}
        self.open: tuple[int, int] | None = None
        self.begun = False
        self.numbers: list[int] = []
        """Ticks completed since the last window."""
        self.mono_ns = self.since_ns = 0
        """Of the newest tick, and of the newest that an earlier window has."""
        self.last = False
        """It said its last: a tick that is open then has no end line."""

    def complete(self) -> bool:
        """The end of a tick's maps; False where its beginning was lost, and its maps count with the next."""
        if self.open is None:
            return False
        for name, values in self.arriving.items():
            self.framer.printed(name, values)
        self.arriving.clear()
        number, self.mono_ns = self.open
        self.numbers.append(number)
        self.open = None
        if not self.last:
            self.framer.waiting(self.held, self.mono_ns)
        self.held = []
        return True

    def begin(self, thread: Callable[[int], Thread]) -> None:
        """Its counting begins now: what came before is nobody's."""
        self.begun = True
        self.framer.interval(None, thread)
        self.taken()
        self.waiting.clear()

    def taken(self) -> None:
        """The next window begins."""
        self.numbers.clear()
        self.since_ns = self.mono_ns

    def slot(self) -> int | None:
        """Of the maxima: only where the window is one tick."""
        return self.numbers[0] % SLOTS if len(self.numbers) == 1 else None


class DeepTicks:
    """Takes one process's events in."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        device_name: Callable[[int], str | None],
        threads: Threads,
        around: DeepSurroundings,
    ) -> None:

        def untimed_name(number: int) -> str | None:
            name = device_name(number)
            return None if name is None or around.timed(name) else name

        names = {True: untimed_name, False: device_name}
        self._scripts = {one.name: _Script(one, names[one.group == _BIOS], around) for one in manifests}
        self._of_map = {spec.name: self._scripts[one.name] for one in manifests for spec in one.maps}
        self._threads, self._around = threads, around
        self._losses = Losses()
        self._records: deque[Record] = deque()
        self._issues = IssueWindows(device_name)
        self._ended = False

    def take(self, event: Event) -> None:
        """One event. Nothing comes of it until `taken`."""
        match event:
            case MapPrinted() | Counted():
                self._map(event)
            case Printed(text=text):
                self._line(text)
            case HandlerNamed(probe=probe, number=number, name=name):
                if probe in self._scripts:
                    self._scripts[probe].framer.handler(Record("handler", probe, {"handler": number}, "", name))
            case _:
                self._losses.note(event)

    def end(self) -> None:
        """Nothing more comes: the maps after a `last` line are complete. A tick that broke off is not."""
        self._ended = True

    def whole(self) -> bool:
        """Each script that ticks at all completed one since the last `taken`."""
        begun = [one.numbers for one in self._scripts.values() if one.begun]
        return bool(begun) and all(begun)

    def taken(self) -> DeepWindow:
        """What was completed since the last call; nothing of the tick that is being printed."""
        scripts = list(self._scripts.values())
        for script in scripts if self._ended else ():
            if script.last:
                self._complete(script)
        interval = joined(
            [one.framer.interval(one.slot(), self._threads.of) for one in scripts if one.begun],
            [one.manifest for one in scripts],
        )
        window = DeepWindow(
            interval,
            tuple(self._records),
            self._losses,
            max((len(one.numbers) for one in scripts), default=0),
            min((one.since_ns // 1000 - self._ahead_us(one.manifest) for one in scripts if one.numbers), default=0),
            self._issues.taken(),
        )
        self._losses, self._records = Losses(), deque()
        for one in scripts:
            one.taken()
        return window

    def _map(self, event: MapPrinted | Counted) -> None:
        script = self._of_map.get(event.name)
        values = event.integers()
        self._losses.map_full += len(values) >= self._around.map_keys
        if script is not None:
            script.arriving[event.name] = values
        elif not any(one.last for one in self._scripts.values()):
            # What scripts keep for themselves comes out too when they end.
            self._losses.undecoded += 1

    def _line(self, text: str) -> None:
        kind, _, rest = text.partition(" ")
        script = self._scripts.get(rest.partition(" ")[0])
        if script is None:
            return
        if kind in ("tick", "last"):
            found = stamped(text.split())
            script.open = None if found is not None and found[1] < script.mono_ns else found
            script.last = kind == "last"
            script.held = []
            self._losses.undecoded += script.open is None
        elif kind == "done":
            self._complete(script)
        elif kind in script.manifest.records:
            self._record(text, script)

    def _complete(self, script: _Script) -> None:
        """A tick's maps are there, and with them the records that they count."""
        if not script.complete():
            return
        if not script.begun:
            script.begin(self._threads.of)
        self._records.extend(script.waiting)
        script.waiting.clear()

    def _record(self, text: str, script: _Script) -> None:
        found = record(text, script.manifest.records[text.partition(" ")[0]])
        if found is None:
            self._losses.undecoded += 1
        elif found.kind == "handler":
            script.framer.handler(found)
        elif found.kind == "thread":
            self._threads.learn(found)
        elif found.kind == "issue":
            self._losses.unkept += not self._issues.take(shifted(found, self._ahead_us(script.manifest) * 1000))
        elif found.kind == "waiting":
            self._losses.unkept += not self._keep(script.held, found, script.manifest)
        elif found.kind == "slow" and script.manifest.group == _BIOS:
            if script.device_name(found.get("dev") or 0) is not None:
                self._losses.dropped += not self._keep(script.waiting, found, script.manifest)
        else:
            self._losses.unkept += not self._keep(self._records, found, script.manifest)

    def _keep(self, records: deque[Record] | list[Record], found: Record, manifest: Manifest) -> bool:
        """False where there is no room."""
        if len(records) >= MAX_RECORDS:
            return False
        records.append(shifted(found, self._ahead_us(manifest) * 1000))
        return True

    def _ahead_us(self, manifest: Manifest) -> int:
        return self._around.ahead_us() if manifest.clock != "monotonic" else 0
