"""Running dtrace processes, and the decoder of their text output (`@@` lines) to the events of the tick protocol.

The decoder is sans-IO. A line that can't be decoded is an event too: counted, never raised. Keys and texts are as
printed, not yet clean. DTrace prints one line or table per key and no end of a map: a map is complete when the next
line of ours comes. Names (devices, handlers, threads) get numbers here, for the length of a capture. Manifests describe
the maps and records.

A device's name in the kernel's counters is that device, a partition's name means its disk, a number is the kernel's
dev_t. Any other name (a ZFS pool, an HBA's port, a disk without counters) is a device that only the probes know.

`DtraceProbe` is one running process with one program: lines and tables on its output, drops and faults on its stderr.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from latmon.decode.dtrace_aggregation import HEADER, INTEGER, MAX_ROWS, PrintedRow, Row, Scalar, bounded
from latmon.manifest import NAMED, Manifest, MapSpec, RecordSpec
from latmon.model.frame import NAMED_FROM, Device
from latmon.model.histogram import TOP, bucket_index
from latmon.support.text import clean
from latmon_backends.dtrace import program
from latmon_backends.dtrace.program import MAP_KEYS, DtraceProgram
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel.counters import KernelSampler, Sample
from latmon_backends.kernel.system import Sampler
from latmon_backends.probe.events import (
    CountedMap,
    Event,
    HandlerNamed,
    Lost,
    NoRoom,
    Printed,
    UndecodedLine,
    WholeLines,
)
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.process import Child, RunningProbe, started

MAX_LINE = 1 << 20
"""Bytes. DTrace cuts a string at 256 by default: our lines are much shorter."""
MAX_KNOWN = 1 << 12
"""Rows with count 0 that are recognised by their bytes: most rows are such, and the same ones in every tick."""
SHOWN = 200
SCALE = 3
"""Bits. The scripts count eighths of a microsecond: llquantize(us * 8, 2, 3, 34, 16) has exactly our buckets, where
llquantize(us, ...) would put all below 16 us into one."""
MAX_NAMES = 1 << 16
_MAX_NAME = 120
_DIGITS = 20
_THREADS = ("thread", "other", "instead")
_NOT_KNOWN = ("-1", str(2**64 - 1))
"""Unknown values in a record; other numbers (a dev_t) are names, as in a map's column."""
MAX_DEVICES = 4096
_DRIVER = re.compile(r"[A-Za-z_]+")
_WORD = re.compile(r"[\w.!-]+")


@dataclass(frozen=True, slots=True)
class OutputLine:
    """The text of one printf of ours, without `@@ ` and newline."""

    text: str


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """One key of a quantize, lquantize or llquantize; `whole` is False when its end is missing."""

    name: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    whole: bool


TextEvent = OutputLine | Scalar | PrintedTable | UndecodedLine


@dataclass(slots=True)
class _OpenTable:
    """A table whose end has not come yet."""

    name: str
    keys: tuple[str, ...]
    headed: bool = False
    printed: PrintedRow = field(default_factory=PrintedRow)


class DtraceDecoder:
    """Decoder of bytes in any portions; whole lines become events, a table when its end has come."""

    def __init__(self) -> None:
        self._whole_lines = WholeLines(MAX_LINE)
        self._open: _OpenTable | None = None
        self._empty: dict[bytes, int] = {}  # rows with count 0, to their labels

    def feed(self, data: bytes) -> list[TextEvent]:
        """Return the events of the lines that `data` completes."""
        events: list[TextEvent] = []
        self._lines(self._whole_lines.feed(data), events)
        return events

    def close(self) -> list[TextEvent]:
        """Return the events of a cut line or table at the end. A line without its newline may lack digits."""
        events: list[TextEvent] = []
        remainder = self._whole_lines.close()
        if remainder is None or remainder == b"@@E":
            self._lines([remainder], events)
        elif remainder.strip():
            self._odd(remainder.decode("utf-8", "replace"), events)
        self._end(events, whole=False)
        return events

    def _lines(self, lines: Iterable[bytes | None], events: list[TextEvent]) -> None:
        for raw in lines:
            table = self._open
            if raw is None:
                self._odd(f"a line longer than {MAX_LINE >> 20} MiB", events)
            elif table is not None and table.headed and raw in self._empty and len(table.printed.counts) < MAX_ROWS:
                table.printed.labels.append(self._empty[raw])
                table.printed.counts.append(0)
            elif table is None or not self._is_of_table(table, raw, events):
                self._line(raw.decode("utf-8", "replace"), events)

    def _is_of_table(self, table: _OpenTable, raw: bytes, events: list[TextEvent]) -> bool:
        text = raw.decode("utf-8", "replace")
        if not table.headed:
            table.headed = HEADER.fullmatch(text) is not None
            return table.headed
        printed = table.printed
        if printed.take(text):
            if not printed.counts[-1] and len(printed.counts) - 1 not in printed.signs:
                self._remember(raw, printed.labels[-1])
            return True
        if text == "@@E":
            self._end(events, whole=True)
            return True
        return False

    def _remember(self, raw: bytes, label: int) -> None:
        if len(self._empty) < MAX_KNOWN and len(raw) < SHOWN:
            self._empty[raw] = label

    def _line(self, text: str, events: list[TextEvent]) -> None:
        if text.startswith("@@ "):
            self._end(events, whole=False)
            events.append(OutputLine(text[3:]))
        elif text.startswith("@@S "):
            self._end(events, whole=False)
            events.append(_scalar(text))
        elif text.startswith("@@Q "):
            self._end(events, whole=False)
            self._begin(text, events)
        elif text and not text.isspace():
            self._odd(text, events)

    def _begin(self, text: str, events: list[TextEvent]) -> None:
        """Begin a table at `@@Q name TAB key TAB ... TAB`: the table follows the last TAB."""
        name, *keys = text[4:].removesuffix("\t").split("\t")
        if name.isidentifier():
            self._open = _OpenTable(name, tuple(keys))
        else:
            self._odd(text, events)

    def _end(self, events: list[TextEvent], *, whole: bool) -> None:
        table, self._open = self._open, None
        if table is None:
            return
        rows = bounded(table.printed)
        if rows is None:
            events.append(_undecoded(f"{' '.join((table.name, *table.keys))}: labels that don't go together"))
        else:
            events.append(PrintedTable(table.name, table.keys, rows, whole and bool(rows)))

    def _odd(self, text: str, events: list[TextEvent]) -> None:
        self._end(events, whole=False)
        events.append(_undecoded(text))


def _scalar(text: str) -> TextEvent:
    name, *keys = text[4:].split("\t")
    if not keys or not name.isidentifier() or not INTEGER.fullmatch(keys[-1]):
        return _undecoded(text)
    return Scalar(name, tuple(keys[:-1]), int(keys[-1]))


def _undecoded(text: str) -> UndecodedLine:
    return UndecodedLine(clean(text[:SHOWN], SHOWN))


class NumberedNames:
    """Numbers for names, from 1; 0 is the name for which there was no room."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = [""]

    def number(self, name: str) -> int:
        """Return the number of a name: always the same one."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        if len(self._names) >= MAX_NAMES:
            return 0
        self._names.append(clean(name, _MAX_NAME))
        self._numbers[name] = len(self._names) - 1
        return self._numbers[name]

    def name(self, number: int) -> str | None:
        """Return the clean name; None for a number that no name has."""
        return self._names[number] or None if 0 <= number < len(self._names) else None


class NoCounters:
    """Empty counters for a kernel whose counters can't be read: the probes' counts are the only ones."""

    devices: tuple[Device, ...] = ()

    def sample(self) -> Sample:
        return Sample(kernel_counters.CLOCK.mono_us(), kernel_counters.CLOCK.wall())

    def require_selected(self) -> None:
        """Accept any selection: devices are known only by the probes' names."""

    def start(self) -> None:
        """Do nothing: there is nothing to sample."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class NamedDevices:
    """The counters of a `Sampler`, and the devices of the probes' names; `DeviceCounters` of frames."""

    def __init__(self, counters: Sampler, names: NumberedNames, globs: tuple[str, ...], sys: Path) -> None:
        self._counters, self._names, self._globs, self._sys = counters, names, globs, sys
        self._known: dict[str, Device] = {}
        self._seen: dict[str, Device] = {}
        self._fresh: dict[str, None] = {}
        self._disks: dict[int, str] = {}

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that the user selects, at the last sample."""
        return tuple(device for device in self.known.values() if self.selects(device))

    @property
    def known(self) -> Mapping[str, Device]:
        return {**self._seen, **self._known}

    def start(self) -> None:
        self._counters.start()

    def close(self) -> None:
        self._counters.close()

    def sample(self) -> Sample:
        found_sample = self._counters.sample()
        self._known = {device.name: device for device in self._counters.devices}
        return found_sample

    def put_fresh(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return a frame's devices and those that the probes named for it, after all its maps and records were read."""
        reported, fresh = {device.name for device in devices}, self._fresh
        self._fresh = {}
        new = (self._seen[name] for name in fresh if name not in reported and name not in self._known)
        return (*devices, *(device for device in new if self.selects(device)))

    def times(self, name: str) -> None:
        """Note that the always-on probe times a device; one that only the tracer names is not timed."""
        device = self._seen.get(name)
        if device is not None and not device.timed:
            self._seen[name] = replace(device, timed=True)
            self._fresh[name] = None

    def selects(self, device: Device) -> bool:
        """Return whether the globs match a device's name or label."""
        names = tuple(name for name in (device.name, device.label) if name)
        return not self._globs or any(fnmatchcase(name, glob) for glob in self._globs for name in names)

    def numbered(self, number: int) -> Device | None:
        """Return the device of a name's number; None where there is no room for one more."""
        name = self._disks.get(number)
        if name is None:
            named = self._names.name(number)
            if named is None:
                return None
            if named.isdecimal():
                return self._counters.numbered(int(named)) if isinstance(self._counters, KernelSampler) else None
            name = self._disks[number] = self._disk(named)
        return self._known.get(name) or self._seen.get(name) or self._new(name)

    def is_counted(self, name: str) -> bool:
        """Return whether the kernel's counters have it."""
        return name in self._known

    def require_selected(self) -> None:
        """Raise UnavailableError where the globs match none of the devices.

        Elsewhere than on Linux a name may be one that only probes know, from its first I/O on.
        """
        if isinstance(self._counters, KernelSampler) and self._globs:
            self._counters.require_selected()

    def _disk(self, name: str) -> str:
        """Return the disk of a partition, whose directory is in the disk's; else the name."""
        if name in self._known or not _WORD.fullmatch(name):
            return name
        directory = self._sys / "class/block" / name
        return directory.resolve().parent.name if (directory / "partition").exists() else name

    def _new(self, name: str) -> Device | None:
        if len(self._seen) >= MAX_DEVICES:
            return None
        driver = _DRIVER.match(name)
        # No dev_t is known: devices are numbered in the order of their appearance, which nothing shows.
        kind = "other" if ":" in name else "disk"
        device = Device(name, 0, len(self._seen), kind=kind, driver=driver[0] if driver else "", timed=False)
        self._seen[name] = device
        self._fresh[name] = None
        return device


class Maps:
    """Maps of one program: `take` its text events in their order, `close` at its end."""

    def __init__(self, manifests: Iterable[Manifest], names: NumberedNames) -> None:
        known = tuple(manifests)
        self._specs: dict[str, MapSpec] = {spec.name: spec for manifest in known for spec in manifest.maps}
        self._probes = {spec.name: manifest.name for manifest in known for spec in manifest.maps}
        self._records: dict[tuple[str, str], RecordSpec] = {
            (kind, manifest.name): spec for manifest in known for kind, spec in manifest.records.items()
        }
        self._names = names
        self._open: dict[str, dict[int, int]] = {}
        self._reported: set[tuple[str, int]] = set()

    def take(self, event: TextEvent) -> Iterator[Event]:
        """Yield the events that a text event completes."""
        match event:
            case OutputLine(text=text):
                yield from self.close()
                yield Printed(self._with_numbers(text))
            case Scalar() | PrintedTable():
                yield from self._map(event)
            case UndecodedLine():
                yield event

    def close(self) -> Iterator[Event]:
        for name, values in self._open.items():
            yield CountedMap(name, values)
        self._open = {}

    def _map(self, event: Scalar | PrintedTable) -> Iterator[Event]:
        spec = self._specs.get(event.name)
        is_table = isinstance(event, PrintedTable)
        if spec is None or is_table != any(part.name == "bucket" for part in spec.key):
            yield UndecodedLine(clean(event.name, _MAX_NAME))
            return
        key = self._key(spec, event.keys)
        if key is None or (isinstance(event, PrintedTable) and not event.whole):
            yield UndecodedLine(clean(" ".join((event.name, *event.keys)), _MAX_NAME))
            return
        yield from self._handlers(spec, key)
        values = self._open.setdefault(event.name, {})
        if len(values) >= MAP_KEYS and key not in values:
            yield UndecodedLine(f"{event.name}: more than {MAP_KEYS} keys")
            return
        if isinstance(event, Scalar):
            values[key] = event.value
        else:
            yield from self._buckets(event.rows, key, values)

    def _buckets(self, rows: Iterable[Row], key: int, values: dict[int, int]) -> Iterator[Event]:
        """Add rows to a map. The bucket is the lowest part of a key; a value below 0 can't be a time."""
        for row in rows:
            if not row.count:
                continue
            if row.high is not None and row.high <= 0:
                yield UndecodedLine(f"{row.count} times below 0")
                continue
            low = max(0, row.low or 0) >> SCALE
            index = TOP if row.high is None else bucket_index(low)
            values[key | index] = values.get(key | index, 0) + row.count

    def _key(self, spec: MapSpec, words: tuple[str, ...]) -> int | None:
        columns = spec.columns
        if len(columns) != len(words):
            return None
        key = 0
        for part, word in zip(columns, words, strict=True):
            number = self._number(part.name, word)
            placed = None if number is None else part.put(number)
            if placed is None:
                return None
            key |= placed
        return key

    def _number(self, part: str, word: str) -> int | None:
        if part in NAMED:
            return self._names.number(word) + _first(part)
        return int(word) if len(word) < _DIGITS and word.isascii() and word.isdecimal() else None

    def _handlers(self, spec: MapSpec, key: int) -> Iterator[Event]:
        """Yield the name of a handler once, before the map that counts it."""
        for part in spec.columns:
            number = part.read(key)
            reported = self._probes[spec.name], number
            if part.name == "handler" and reported not in self._reported:
                self._reported.add(reported)
                yield HandlerNamed(*reported, self._names.name(number) or "")

    def _with_numbers(self, text: str) -> str:
        """Return a record's line with numbers for its names; names may have blanks where TABs separate fields."""
        kind, _, remainder = text.partition(" ")
        probe, _, remainder = remainder.partition(" ")
        spec = self._records.get((kind, probe))
        if spec is None:
            return text
        words = remainder.split("\t" if "\t" in remainder else " ", len(spec.fields))
        for at, name in enumerate(spec.fields[: len(words)]):
            if name in NAMED and words[at] not in _NOT_KNOWN:
                words[at] = str(self._names.number(words[at]) + _first(name))
        return " ".join((kind, probe, *words))


def _first(part: str) -> int:
    """Return the first number of a kind of names: threads have numbers that aren't pids."""
    return NAMED_FROM if part in _THREADS else 0


class DtraceProbe(RunningProbe):
    """A started D program."""

    tool_name = "dtrace"
    _reason = staticmethod(program.reason)

    def __init__(self, child: Child, program: DtraceProgram, names: NumberedNames) -> None:
        super().__init__(child, len(program.hooks))
        self._decoder, self._maps = DtraceDecoder(), Maps(program.manifests, names)

    @classmethod
    async def start(cls, launcher: Launcher, program: DtraceProgram, names: NumberedNames) -> DtraceProbe:
        """Start a program. RefusedError when it doesn't run here, UnavailableError when none would."""
        return await started(launcher.launch(program), lambda child: cls(child, program, names))

    def _decoded(self, portion: bytes) -> Iterator[Event]:
        for text in self._decoder.feed(portion) if portion else self._decoder.close():
            yield from self._maps.take(text)
        if not portion:
            yield from self._maps.close()
        for line in self._child.take_complaints():
            yield from _from_stderr(line)


def _from_stderr(line: str) -> Iterator[Event]:
    """Yield drops and faults; what else dtrace prints on stderr means nothing while it runs."""
    match program.message(line):
        case program.Drops(kind="dynamic", count=count):
            yield NoRoom(count)
        case program.Drops(count=count):
            yield Lost(count)
        case program.Fault():
            yield UndecodedLine(line)
        case _:
            pass
