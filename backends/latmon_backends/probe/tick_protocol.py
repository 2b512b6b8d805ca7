"""The tick protocol of the scripts (CONTRIBUTING.md): events in, one window per interval out. Sans I/O.

Maps count once their `done` came; the first `done` of a script is where its counting begins. Ticks decodes the
always-on probe: each of its ticks makes a window. OnDemandTicks decodes the tracer: each of its scripts has ticks of
its own, and `taken`, called at each tick of the always-on probe, returns all that was completed since the last call.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from latmon.decode.framer import Framer, ProbeInterval, TracerFramer, TracerInterval, joined, unnamed_cgroup
from latmon.decode.tables import (
    FUNCTIONS_BETWEEN,
    PATH_END,
    Counts,
    Flags,
    Record,
    record,
    shifted,
    sleep_chain,
    wait_name,
)
from latmon.manifest import STACKS, Manifest, op_name
from latmon.model.frame import (
    ASLEEP,
    FILE_OPS,
    FILE_WAITS,
    LOST_PATH,
    FileOperation,
    FileSplit,
    FileSystem,
    Thread,
    Wait,
)
from latmon.model.histogram import MAX_COUNT
from latmon.model.inflight import Issue
from latmon_backends.kernel.counters import Sample
from latmon_backends.probe.events import (
    CountedMap,
    Event,
    HandlerNamed,
    HelperFailed,
    Lost,
    MapPrinted,
    NoRoom,
    Printed,
    UndecodedLine,
)
from latmon_backends.probe.outliers import Threads, late_wait

MAX_RECORDS = 10_000
"""Kept for one interval."""
_MAP_FULL = -7
ANY_TABLE = "a table"
"""In place of a name: the error of a failed update has none."""
_TICK_WORDS = 4
_DIGITS = 19
"""Fewer than a number that the kernel's clock could not reach."""
_ON_TIME_US = 500_000
_AHEAD_US = 1_000_000
"""A stamp is taken before its line is read: one in the future, or before the last, is wrong."""
WINDOW = 128
"""Issues in a window; probes/linux/order_a.bt and order_c.bt have the same value."""
MAX_ISSUES = 4096
"""Kept for one interval, of all devices."""
_Windows = dict[int, list[Issue]]
_CLOCKS_US = 1_000
"""Two scripts have stamps of two clocks, whose distance is measured from outside."""
_BIOS = "bios"


@dataclass(slots=True)
class Losses:
    """Counts of data that an interval lost."""

    lost: int = 0
    map_full: int = 0
    undecoded: int = 0
    dropped: int = 0
    """Records of I/Os beyond those that are kept for one interval."""
    unkept: int = 0
    """Records with details of an I/O, beyond those."""
    full: frozenset[str] = frozenset()
    """Tables that had no room; ANY_TABLE where it is not known which."""

    def note(self, event: Event) -> None:
        """Count an event that is neither a map nor a line."""
        match event:
            case Lost(events=events) if 0 <= events <= MAX_COUNT:
                self.lost += events
            case HelperFailed(code=code):
                self.map_full += code == _MAP_FULL
                self.full |= {ANY_TABLE} if code == _MAP_FULL else frozenset()
            case NoRoom(entries=entries) if 0 <= entries <= MAX_COUNT:
                self.map_full += entries
                self.full |= {ANY_TABLE} if entries else frozenset()
            case Lost() | NoRoom() | UndecodedLine():
                self.undecoded += 1
            case _:
                pass

    def __add__(self, other: Losses) -> Losses:
        return Losses(
            self.lost + other.lost,
            self.map_full + other.map_full,
            self.undecoded + other.undecoded,
            self.dropped + other.dropped,
            self.unkept + other.unkept,
            self.full | other.full,
        )


def stamped(words: list[str]) -> tuple[int, int] | None:
    """Return number and stamp (ns) of a `tick` or `last` line; None where it is torn."""
    if len(words) != _TICK_WORDS or not all(word.isdecimal() and len(word) < _DIGITS for word in words[2:]):
        return None
    return int(words[2]), int(words[3])


_WIDE, _WIDE_US = 3, 3_000_000
"""After so many intervals, and so long, a tick is missing: a paused machine, or a tool that lost its ticks."""


@dataclass(frozen=True, slots=True)
class Tick:
    """When a tick was printed (CLOCK_MONOTONIC), its number, and the kernel's counters as its line was read."""

    number: int
    mono_us: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class ProbeWindow:
    """One interval, from tick to tick."""

    begin: Tick
    end: Tick
    interval: ProbeInterval
    losses: Losses = field(default_factory=Losses)
    late: bool = False
    """It is several intervals: their ticks were read too late to separate them, or didn't come."""
    records: tuple[Record, ...] = ()
    """`slow` records printed before the tick's last line; their stamps on CLOCK_MONOTONIC."""

    @property
    def lag_us(self) -> int:
        """How long after the tick the kernel's counters were read; below 0: before it, on a thread of their own."""
        return self.end.sample.mono_us - self.end.mono_us


@dataclass(frozen=True, slots=True)
class LastWindow(ProbeWindow):
    """The unfinished interval at the end: the probe saw nothing after `end`."""

    detaching_us: int = 0
    """Time before `end` in which the probe may have seen nothing more: bpftrace 0.17 detaches before its last line."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Inputs of the protocol: clocks in us, counters, the most keys of a map."""

    now_us: Callable[[], int]
    ahead_us: Callable[[str], int]
    """How far a script's clock, by its name in the manifest, is ahead of the process's CLOCK_MONOTONIC."""
    sample: Callable[[], Sample]
    map_keys: int
    interval_us: int
    learn: Callable[[Record], None] = lambda _: None
    """Takes the `thread` records."""


class _Lines:
    """Reader of the maps and record lines of one process, with its losses."""

    def __init__(self, map_keys: int, ahead_us: Callable[[str], int]) -> None:
        self._map_keys, self._clock_ahead_us = map_keys, ahead_us
        self._losses = Losses()

    def _values(self, event: MapPrinted | CountedMap) -> Counts:
        values = event.integers()
        if len(values) >= self._map_keys:
            self._losses.map_full += 1
            self._losses.full |= {event.name}
        return values

    def _read(self, text: str, kind: str, manifest: Manifest) -> Record | None:
        """Return the record of a line, with stamps on CLOCK_MONOTONIC; None where it can't be decoded."""
        found_record = record(text, manifest.records[kind])
        self._losses.undecoded += found_record is None
        return None if found_record is None else shifted(found_record, self._ahead_us(manifest) * 1000)

    def _ahead_us(self, manifest: Manifest) -> int:
        return self._clock_ahead_us(manifest.clock)


class Ticks(_Lines):
    """Decoder of the always-on probe's events, from its ready line to its last map."""

    def __init__(self, manifest: Manifest, framer: Framer, around: Surroundings) -> None:
        super().__init__(around.map_keys, around.ahead_us)
        self._manifest, self._framer, self._around = manifest, framer, around
        self._maps = {spec.name for spec in manifest.maps}
        self._records: list[Record] = []
        self._open: Tick | None = None
        self._begin: Tick | None = None
        self._late_until_us = 0
        """When a tick was last read late in this interval; 0: none was."""
        self._newest_us = 0
        self._ending = False
        self._asked_us = 0
        """When the probe was asked to end; 0: it was not."""
        self.saw_last_line = False
        """Its last line came: the maps after it are the probe's last ones."""
        self.before = ProbeInterval()
        """Counts from before the first window, which belong to no frame."""

    def take(self, event: Event) -> ProbeWindow | None:
        """Return a window when the event completes an interval."""
        match event:
            case MapPrinted() | CountedMap():
                self._map(event)
            case Printed(text=text):
                return self._line(text)
            case _:
                self._losses.note(event)
        return None

    def end(self) -> None:
        """Note that the probe is ending: ticks after that are part of the last interval."""
        self._ending = True

    def ask(self) -> None:
        """Note that the probe is asked to end now."""
        self.end()
        self._asked_us = self._asked_us or self._around.now_us()

    def last(self) -> LastWindow | None:
        """Return the unfinished interval at the end of the output; None when no `last` line came."""
        if self._open is None or self._begin is None:
            return None
        probe_window = self._close(self._begin, self._open)
        detaching_us = max(0, probe_window.end.mono_us - self._asked_us) if self._asked_us else 0
        parts = (
            probe_window.begin,
            probe_window.end,
            probe_window.interval,
            probe_window.losses,
            probe_window.late,
            probe_window.records,
        )
        return LastWindow(*parts, detaching_us)

    def _map(self, event: MapPrinted | CountedMap) -> None:
        values = self._values(event)
        # A script's own maps are printed too when it ends: its tick number and starts are not results.
        if not self._ending or event.name in self._maps:
            self._framer.printed(event.name, values)

    def _line(self, text: str) -> ProbeWindow | None:
        words = text.split()
        if words[:1] in (["tick"], ["last"]):
            self.saw_last_line = words[0] == "last"
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
        found_record = self._read(text, kind, self._manifest)
        if found_record is not None and kind == "thread":
            self._around.learn(found_record)
        elif found_record is not None:
            self._losses.dropped += not _keep(self._records, found_record)

    def _tick(self, words: list[str]) -> Tick | None:
        stamp = stamped(words)
        if stamp is None:
            self._losses.undecoded += 1
            return None
        mono_us = stamp[1] // 1000 - self._ahead_us(self._manifest)
        if mono_us < self._newest_us or mono_us > self._around.now_us() + _AHEAD_US:
            self._losses.undecoded += 1
            return None
        self._newest_us = mono_us
        return Tick(stamp[0], mono_us, self._around.sample())

    def _done(self, tick: Tick) -> ProbeWindow | None:
        """Return the window that a tick's `done` ends, if it ends one.

        Counting begins at the first, here and in the kernel's counters: the time of attaching is not known.
        After the reader was stopped, the maps of a queued tick may be newer than its stamp, and the kernel's counters
        can only be read now. So all queued ticks are one wide interval. It ends at the first tick printed after the
        reader continued, so that the probe and the kernel count the same time.
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

    def _close(self, begin: Tick, tick: Tick) -> ProbeWindow:
        late = self._late_until_us > 0
        in_order = tick.number == begin.number + 1 and not late
        records, self._records = tuple(self._records), []
        window = ProbeWindow(
            begin, tick, self._framer.interval(tick.number if in_order else None), self._losses, late, records
        )
        self._begin, self._losses, self._late_until_us = tick, Losses(), 0
        return window


def _keep(records: deque[Record] | list[Record], found_record: Record) -> bool:
    """Keep a record; return False where there is no room."""
    if len(records) >= MAX_RECORDS:
        return False
    records.append(found_record)
    return True


class IssueWindows:
    """Consecutive issues of each device, from records in any order.

    A probe prints at most WINDOW issues of a device before it begins the next window. A window that was not filled
    continues in the next: nothing is missing between them.
    """

    def __init__(self, device_name: Callable[[int], str | None]) -> None:
        self._device_name = device_name
        self._windows: defaultdict[str, _Windows] = defaultdict(dict)
        self._kept = 0

    def take(self, record: Record) -> bool:
        """Keep a record; return False where that is impossible."""
        issued = _issue(record)
        window, number = record.get("window_ns"), record.get("dev")
        if issued is None or window is None or number is None or self._kept >= MAX_ISSUES:
            return False
        device = self._device_name(number)
        if device is not None:
            self._windows[device].setdefault(window, []).append(issued)
            self._kept += 1
        return True

    def taken(self) -> Mapping[str, tuple[Issue, ...]]:
        """Return each device's longest run of consecutive issues since the last call, the newer of equals."""
        runs = {device: max(reversed(list(_runs(windows))), key=len) for device, windows in self._windows.items()}
        self._windows.clear()
        self._kept = 0
        return runs


def _runs(windows: _Windows) -> Iterator[tuple[Issue, ...]]:
    run: list[Issue] = []
    for _, issues in sorted(windows.items()):
        run += issues
        if len(issues) >= WINDOW:
            yield tuple(sorted(run))
            run = []
    if run:
        yield tuple(sorted(run))


def _issue(record: Record) -> Issue | None:
    issued, sector, size = record.get("issued_ns"), record.get("sector"), record.get("bytes")
    op, queued = record.get("op"), record.get("queued_us")
    if issued is None or sector is None or size is None or op is None or queued is None:
        return None
    return Issue(issued // 1000, sector, size, op_name(op), queued)


_MOST_OPERATIONS, _MOST_NAMES, _NAME_BYTES = 1024, 6, 64
"""Slow operations kept for one interval; names of a path, and bytes of a name, that the script prints at most."""
_MOST_LATE, _MOST_WAITS = 1024, 8
"""Late wake-ups that are kept for the operations that end after them, 100 a second at most; those of one operation."""
_LATE_US, _EXPLAINS = 1_000, 0.05
"""Delay, and share of an operation's time, from which on a late wake-up explains some of it."""


class FileOperations:
    """Slow operations on files, from records: the names of a thread's file, from it upwards, then the operation."""

    def __init__(
        self,
        device_name: Callable[[int], str | None],
        file_system: Callable[[int], FileSystem],
        threads: Threads,
        waits_by_function: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`waits_by_function`: kernel function -> the part of FILE_PARTS that a sleep in it is of."""
        self._device_name, self._file_system, self._threads = device_name, file_system, threads
        self._waits_by_function = waits_by_function
        self._names: defaultdict[int, list[str]] = defaultdict(list)
        self._given: dict[int, str] = {}
        """Thread -> the path that its program gave to the kernel, as far as it is printed: no length is with it."""
        self._kept: list[tuple[int, FileOperation]] = []
        """Operations with the number of their thread."""
        self._late: deque[Record] = deque(maxlen=_MOST_LATE)
        self._is_torn = False

    def note_lost(self) -> None:
        """Leave out the paths until `taken`: a name may be among the events that were lost."""
        self._names.clear()
        self._given.clear()
        self._is_torn = True

    def take(self, record: Record) -> bool:
        """Keep a record; return False where that is impossible."""
        thread = record.get("thread")
        if thread is None:
            return False
        if record.kind == "path":
            return self._is_torn or self._add_name(thread, record)
        if record.kind == "split":
            self._add_split(thread, record)
            return True
        names, given = self._names.pop(thread, []), self._given.pop(thread, "")
        file_operation = self._operation(record, names, given)
        if file_operation is None or len(self._kept) >= _MOST_OPERATIONS:
            return False
        self._kept.append((thread, file_operation))
        return True

    def _add_name(self, thread: int, record: Record) -> bool:
        """Keep a name of a thread's file, or a part of the path that its program gave, which is without a length."""
        size = record.get("bytes") or 0
        if not size:
            before = self._given.get(thread, "")
            if not before.endswith(PATH_END):  # what follows it is not of the path
                self._given[thread] = before + record.text
            return len(self._given) <= _MOST_OPERATIONS
        cut = "…" if size > _NAME_BYTES and not record.text.endswith("…") else ""
        names = self._names[thread]
        names.append(record.text + cut)
        return len(names) <= _MOST_NAMES + 1 and len(self._names) <= _MOST_OPERATIONS

    def _add_split(self, thread: int, record: Record) -> None:
        """Add a split to the operation of its thread that the last record of the thread had, where that was kept."""
        places = range(len(self._kept) - 1, -1, -1)
        place = next((place for place in places if self._kept[place][0] == thread), None)
        if place is not None and self._kept[place][1].mono_us == (record.get("begun_ns") or 0) // 1000:
            operation = replace(self._kept[place][1], split=self._split(record))
            self._kept[place] = thread, operation

    def _split(self, record: Record) -> FileSplit:
        functions = record.text.split(FUNCTIONS_BETWEEN) if record.text else []
        holder = record.get("holder") or 0
        return FileSplit(
            own_io_us=record.get("own_io_us") or 0,
            cpu_us=record.get("cpu_us") or 0,
            asleep_us=record.get("asleep_us") or 0,
            longest_us=record.get("longest_us") or 0,
            wait=(wait_name(functions, self._waits_by_function) or ASLEEP) if functions else "",
            functions=sleep_chain(functions),
            holder=self._threads.of(holder).comm if holder else "",
            holder_thread=holder,
        )

    def note_late(self, record: Record) -> None:
        """Remember a late wake-up for the operations of its thread, which end after it."""
        self._late.append(record)

    def taken(self) -> tuple[FileOperation, ...]:
        """Return the operations since the last call, by their begin; their `wall` is that of the frame's end, unset."""
        each = (
            replace(file_operation, waits=self._waits(thread, file_operation)) for thread, file_operation in self._kept
        )
        operations = tuple(sorted(each, key=lambda operation: operation.mono_us))
        self._kept = []
        if len(self._names) > _MOST_OPERATIONS:  # names whose operation was lost
            self._names.clear()
        if len(self._given) > _MOST_OPERATIONS:
            self._given.clear()
        self._is_torn = False
        return operations

    def _waits(self, thread: int, file_operation: FileOperation) -> tuple[Wait, ...]:
        """Return the late wake-ups of the operation's thread while it lasted that are a part of its time."""
        waits = []
        for late in self._late if file_operation.disk else ():
            woken_ns, delay = late.get("woken_ns"), late.get("delay_us")
            if late.get("thread") != thread or woken_ns is None or delay is None:
                continue
            woken, is_part = woken_ns // 1000, delay >= max(_LATE_US, file_operation.total_us * _EXPLAINS)
            if (
                is_part
                and file_operation.mono_us - _CLOCKS_US <= woken
                and woken + delay <= file_operation.until_us + _CLOCKS_US
            ):
                waits.append(late_wait("resume", late, (thread, woken, delay), self._threads))
        longest = sorted(waits, key=lambda wait: wait.delay_us)[-_MOST_WAITS:]
        return tuple(sorted(longest, key=lambda wait: wait.woken_us))

    def _operation(self, record: Record, names: Sequence[str], given: str) -> FileOperation | None:
        call, wait, dev = record.get("call"), record.get("wait"), record.get("dev")
        begun, total, disk = record.get("begun_ns"), record.get("total_us"), record.get("disk")
        if call is None or wait is None or dev is None or begun is None or total is None:
            return None
        if call >= len(FILE_OPS) or wait >= len(FILE_WAITS):
            return None
        first, end = record.get("sector"), record.get("sector_end")
        file_system = self._file_system(dev)
        more = ["…"] if len(names) > _MOST_NAMES else []
        path = "/".join([*more, *reversed(names[:_MOST_NAMES])])
        if given not in ("", PATH_END):
            path = _below(file_system.mount, given)
        return FileOperation(
            wall=0.0,
            mono_us=begun // 1000,
            op=FILE_OPS[call],
            total_us=total,
            wait=FILE_WAITS[wait],
            file_system=file_system,
            path=LOST_PATH if self._is_torn else path,
            pid=record.get("pid"),
            comm=record.text,
            bytes=record.get("bytes"),
            offset=record.get("offset"),
            disk=(self._device_name(disk) or "") if disk else "",
            sectors=(first, end) if disk and first is not None and end is not None and first <= end else None,
        )


def _below(mount: str, path: str) -> str:
    """Return the path that a program gave to the kernel as one below the mount point, `…/path` where it is none.

    Such are paths from the working directory, through a symbolic link, and of a container.
    """
    above = f"{mount.rstrip('/')}/"
    shown = path.removesuffix(PATH_END) if path.endswith(PATH_END) else f"{path}…"
    return shown.removeprefix(above) if shown.startswith(above) else f"…/{shown.lstrip('/')}"


@dataclass(frozen=True, slots=True)
class TracerWindow:
    """Data of the tracer's scripts between two calls; `interval.traced` has neither `one_in` nor `devices`."""

    interval: TracerInterval = field(default_factory=TracerInterval)
    records: tuple[Record, ...] = ()
    """slow, resumed and late records for Outliers, their stamps on CLOCK_MONOTONIC."""
    losses: Losses = field(default_factory=Losses)
    ticks: int = 0
    """Ticks of the script that completed most; 0: the process is slow or hangs."""
    begun_us: int = 0
    """The tick from which the earliest of its scripts counts; 0 where it has no ticks."""
    issues: Mapping[str, tuple[Issue, ...]] = field(default_factory=dict)
    """Consecutive issues of a device, in their order."""
    file_operations: tuple[FileOperation, ...] = ()
    """Slow ones by their begin, without `wall`."""
    until_us: int = 0
    """Its newest tick; both are on CLOCK_MONOTONIC."""

    def operations_until(self, wall: float, mono_us: int) -> tuple[FileOperation, ...]:
        """Return the slow operations with their `wall`; both arguments are the end of their frame."""
        return tuple(
            replace(operation, wall=wall - (mono_us - operation.mono_us) / 1e6) for operation in self.file_operations
        )


@dataclass(frozen=True, slots=True)
class OnDemandSurroundings:
    """Inputs of the protocol."""

    map_keys: int
    ahead_us: Callable[[str], int] = lambda _: 0
    """How far a script's clock, by its name in the manifest, is ahead of the process's CLOCK_MONOTONIC."""
    timed: Callable[[str], bool] = lambda _: False
    """Whether the always-on probe times a device. Its bios are left out then: they are its requests."""
    flags: Flags = lambda _: ()
    cgroup: Callable[[int], tuple[str, str]] = unnamed_cgroup
    """Path and container of a cgroup's number in the kernel."""
    file_system: Callable[[int], FileSystem] = lambda number: FileSystem(str(number))
    """The mounted file system with a device number."""


def _worker(comm: str) -> str:
    """Return a process's name; that of a kworker without what it works on now, or each work would have a row."""
    return comm.partition("-")[0] if comm.startswith("kworker/") else comm


class _Script:
    """Decoding state of one script."""

    def __init__(
        self,
        manifest: Manifest,
        device_name: Callable[[int], str | None],
        threads: Threads,
        around: OnDemandSurroundings,
    ) -> None:
        alone = lambda name: not around.timed(name)  # noqa: E731
        comm = lambda pid: _worker(threads.of(pid).comm)  # noqa: E731
        self.manifest = manifest
        self.framer = TracerFramer(
            manifest,
            device_name,
            around.flags,
            alone,
            cgroup=around.cgroup,
            comm=comm,
            file_system=around.file_system,
        )
        self.device_name = device_name
        self.waiting: list[Record] = []
        """Records of slow bios: they belong to the tick whose map counts them, as the number of those left out does."""
        self.in_flight: list[Record] = []
        """I/Os that had not completed at the open tick."""
        self.arriving: dict[str, Counts] = {}
        self.open: tuple[int, int] | None = None
        self.begun = False
        self.numbers: list[int] = []
        """Ticks completed since the last window."""
        self.mono_ns = self.since_ns = self.first_ns = 0
        """Stamps of the newest tick, of the newest tick in an earlier window, and of the tick from which it counts."""
        self.last = False
        """Its last line came: a tick that is open then has no end line."""

    def complete(self, ahead_us: int) -> bool:
        """End a tick; return False where its first line was lost: its maps count with the next.

        `ahead_us`: how far the script's clock is ahead of the process's CLOCK_MONOTONIC.
        """
        if self.open is None:
            return False
        for name, values in self.arriving.items():
            self.framer.printed(name, values)
        self.arriving.clear()
        number, self.mono_ns = self.open
        self.numbers.append(number)
        self.open = None
        if not self.last:
            self.framer.waiting(self.in_flight, self.mono_ns, ahead_us * 1000)
        self.in_flight = []
        return True

    def begin(self, thread: Callable[[int], Thread]) -> None:
        """Begin its counting: earlier counts are dropped."""
        self.begun = True
        self.first_ns = self.mono_ns
        self.drop_counts(thread)

    def drop_counts(self, thread: Callable[[int], Thread]) -> None:
        """Drop the counts up to its newest tick."""
        self.framer.interval(None, thread)
        self.taken()
        self.waiting.clear()

    def taken(self) -> None:
        """Begin the next window."""
        self.numbers.clear()
        self.since_ns = self.mono_ns

    def tick(self) -> int | None:
        """Return the number of the window's tick; None unless it is one tick."""
        return self.numbers[0] if len(self.numbers) == 1 else None


class OnDemandTicks(_Lines):
    """Decoder of the events of the tracer's process."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        device_name: Callable[[int], str | None],
        threads: Threads,
        around: OnDemandSurroundings,
    ) -> None:
        super().__init__(around.map_keys, around.ahead_us)

        def untimed_name(number: int) -> str | None:
            name = device_name(number)
            return None if name is None or around.timed(name) else name

        names = {True: untimed_name, False: device_name}
        self._scripts = {
            manifest.name: _Script(manifest, names[manifest.group == _BIOS], threads, around) for manifest in manifests
        }
        self._of_map = {spec.name: self._scripts[manifest.name] for manifest in manifests for spec in manifest.maps}
        self._by_stack = {spec.name: spec for manifest in manifests for spec in manifest.maps if spec.role in STACKS}
        self._threads = threads
        self._records: deque[Record] = deque()
        self._issues = IssueWindows(device_name)
        sleeps = (spec for manifest in manifests for spec in manifest.maps if spec.role == "file_asleep")
        by_function = next((spec.functions for spec in sleeps), {})
        self._files = FileOperations(device_name, around.file_system, threads, by_function)
        self._ended = False
        self._count_from_us: int | None = None
        """Each script counts from its first tick at or after this time on."""

    def take(self, event: Event) -> None:
        match event:
            case MapPrinted() | CountedMap():
                self._map(event)
            case Printed(text=text):
                self._line(text)
            case HandlerNamed(probe=probe, number=number, name=name):
                if probe in self._scripts:
                    self._scripts[probe].framer.handler(Record("handler", probe, {"handler": number}, "", name))
            case _:
                if isinstance(event, Lost):
                    self._files.note_lost()
                self._losses.note(event)

    def end(self) -> None:
        """Note the end of the output: the maps after a `last` line are complete, those of a torn tick are not."""
        self._ended = True

    @property
    def counting(self) -> tuple[int, ...]:
        """Return the newest tick of each script that counts, on CLOCK_MONOTONIC. Some scripts have no ticks."""
        return tuple(self._newest_us(script) for script in self._scripts.values() if script.begun)

    @property
    def counts_since(self) -> tuple[int, ...]:
        """Return the tick from which each script that counts does so, on CLOCK_MONOTONIC."""
        begun = (script for script in self._scripts.values() if script.begun)
        return tuple(script.first_ns // 1000 - self._ahead_us(script.manifest) for script in begun)

    def _newest_us(self, script: _Script) -> int:
        return script.mono_ns // 1000 - self._ahead_us(script.manifest)

    def count_from(self, mono_us: int) -> None:
        """Drop all counts before the first tick of each script at or after this time."""
        self._count_from_us = mono_us
        self.taken()
        for script in self._scripts.values():
            script.begun = False

    def whole(self) -> bool:
        """Return whether each script that has begun completed a tick since the last `taken`."""
        begun = [script.numbers for script in self._scripts.values() if script.begun]
        return bool(begun) and all(begun)

    def taken(self) -> TracerWindow:
        """Return the ticks completed since the last call, without the tick that is being printed."""
        scripts = list(self._scripts.values())
        for script in scripts if self._ended else ():
            if script.last:
                self._complete(script)
        interval = joined(
            [script.framer.interval(script.tick(), self._threads.of) for script in scripts if script.begun],
            [script.manifest for script in scripts],
        )
        window = TracerWindow(
            interval=interval,
            records=tuple(self._records),
            losses=self._losses,
            ticks=max((len(script.numbers) for script in scripts), default=0),
            begun_us=min(
                (script.since_ns // 1000 - self._ahead_us(script.manifest) for script in scripts if script.numbers),
                default=0,
            ),
            issues=self._issues.taken(),
            file_operations=self._files.taken(),
            until_us=max(
                (script.mono_ns // 1000 - self._ahead_us(script.manifest) for script in scripts if script.numbers),
                default=0,
            ),
        )
        self._losses, self._records = Losses(), deque()
        for open_script in scripts:
            open_script.taken()
        return window

    def _map(self, event: MapPrinted | CountedMap) -> None:
        script, spec = self._of_map.get(event.name), self._by_stack.get(event.name)
        if script is not None:
            script.arriving[event.name] = (
                script.framer.by_stack(spec, event.values)
                if spec is not None and isinstance(event, MapPrinted)
                else self._values(event)
            )
        elif not any(script.last for script in self._scripts.values()):
            # Maps for a script's own use are printed too when it ends.
            self._losses.undecoded += 1

    def _line(self, text: str) -> None:
        kind, _, remainder = text.partition(" ")
        script = self._scripts.get(remainder.partition(" ")[0])
        if script is None:
            return
        if kind in ("tick", "last"):
            stamp = stamped(text.split())
            script.open = None if stamp is not None and stamp[1] < script.mono_ns else stamp
            script.last = kind == "last"
            script.in_flight = []
            self._losses.undecoded += script.open is None
        elif kind == "done":
            self._complete(script)
        elif kind == "cleared":
            script.framer.cleared()
        elif kind in script.manifest.records:
            self._record(text, kind, script)

    def _complete(self, script: _Script) -> None:
        """End a tick: its maps are complete, and its records are those that they count."""
        if not script.complete(self._ahead_us(script.manifest)):
            return
        counts_later = self._count_from_us is not None and self._newest_us(script) < self._count_from_us
        if not script.begun and counts_later:
            script.drop_counts(self._threads.of)
        elif not script.begun:
            script.begin(self._threads.of)
        self._records.extend(script.waiting)
        script.waiting.clear()

    def _record(self, text: str, kind: str, script: _Script) -> None:
        found_record = self._read(text, kind, script.manifest)
        if found_record is None:
            return
        if found_record.kind == "handler":
            script.framer.handler(found_record)
        elif found_record.kind == "thread":
            self._threads.learn(found_record)
        elif found_record.kind == "issue":
            self._losses.unkept += not self._issues.take(found_record)
        elif found_record.kind in ("path", "file", "split"):
            self._losses.unkept += not self._files.take(found_record)
        elif found_record.kind == "waiting":
            self._losses.unkept += not _keep(script.in_flight, found_record)
        elif found_record.kind == "slow" and script.manifest.group == _BIOS:
            if script.device_name(found_record.get("dev") or 0) is not None:
                self._losses.dropped += not _keep(script.waiting, found_record)
        else:
            if found_record.kind == "late":
                self._files.note_late(found_record)
            self._losses.unkept += not _keep(self._records, found_record)
