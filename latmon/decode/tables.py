"""Decoder of a probe's record lines and cumulative maps: handlers, softirqs, wake-ups, depths and I/Os in flight.

A record line is `KIND PROBE F1 F2 ... TEXT`, by the fields in its manifest: -1 means not known and is left out; any
other impossible value makes the line undecoded. `Differences` owns the cumulative state of one script's maps, and the
limits of keys and values. The tables are pure functions of (map, its gains) pairs; functions in their arguments name
threads, handlers and devices; `NewestAges` keeps the newest list of I/Os in flight until it is taken.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby, islice
from typing import Any, Generic, NamedTuple, TypeVar

from latmon.manifest import KeyPart, MapSpec, RecordSpec, op_name
from latmon.model.frame import (
    ASLEEP,
    FILE_OPS,
    FILE_PARTS,
    FILE_WAITS,
    FOR_CPU,
    IDLE,
    NOT_KNOWN,
    OWN_IO,
    FileSystem,
    Flow,
    Thread,
)
from latmon.model.histogram import BITS, MAX_COUNT, TOP, Histogram
from latmon.model.inflight import AGES_S, EXACT, PROBE, Depths, InFlight, InFlightList, Took, coarse_end
from latmon.model.measurements import PATTERNS
from latmon.model.measurements.errors import ERRNO_CODE
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.model.measurements.patterns import PATTERN, Pattern
from latmon.model.measurements.wakeups import ThreadNumber, Wakeups, by_thread
from latmon.model.table import Meaning, Row, Table, Unit
from latmon.support.text import MAX_CELLS, clean

Counts = dict[int, int]
V = TypeVar("V")
_NUMBER_DIGITS = 14
"""Fewer than a number before a stack has: a dev_t, and 8 bits."""
_FUNCTION = re.compile(r"(\w+)[\w.]*\+")
_UNKNOWN_CONTEXT = 255
_TRACING = re.compile(r"bpf_prog_|bpf_trace_|__traceiter_|__bpf_trace_|perf_trace_|trace_call_bpf")
"""Functions of the tracing itself, which a stack of a raw tracepoint begins with."""
_HANDLER = frozenset(("handle_irq_event", "__handle_irq_event_percpu", "__common_interrupt", "common_interrupt"))
"""Functions of an interrupt: a raise below them is not outside of one; the kernel skipped the program that sees it."""
_CALLERS = 3
"""Functions in the name of a stack."""
_MAX_FUNCTION = 80
"""Characters of each: a mangled name of Rust may have hundreds, a name in a recording 256."""
FUNCTIONS_BETWEEN = ";"
"""Separator of the functions of a stack in a record's text."""
_SCHEDULING = frozenset(
    (
        *("__schedule", "schedule", "schedule_timeout", "schedule_preempt_disabled", "schedule_rtlock"),
        *("io_schedule", "io_schedule_timeout"),
    )
)
NOT_RESOLVED = "[unknown]"
"""Functions of a user stack of which the addresses alone are known."""
_ADDRESS = re.compile(r"(0x)?[0-9a-f]+\b(?!\+)")
_MAX_LINE = 1000
Maps = Iterable[tuple[MapSpec, Counts]]
Gains = Maps
"""Maps with their differences over an interval, in place of their values."""
RETURNED = ("none", "handled", "wake", "wake")
"""IRQ_NONE, IRQ_HANDLED, IRQ_WAKE_THREAD; the last is both of them."""
_FILE_TIMES = {"file_own_io": OWN_IO, "file_cpu": FOR_CPU, "file_asleep": ""}
"""Role of a map -> the part whose time it has; empty: its contexts name them."""
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_RWBS = re.compile(r"[A-Z]{1,10}", re.ASCII)
_ALL_BITS = 2**64 - 1
_MOST = 2**63 - 1
_MOST_OF = {
    **dict.fromkeys(("request", "handler", "flags"), _ALL_BITS),
    **dict.fromkeys(("pid", "thread", "instead", "holder", "outstanding", "overtaken"), 2**32 - 1),
    **dict.fromkeys(("bytes", "dev", "irq", "disk"), 2**32 - 1),
    **dict.fromkeys(("cpu_issue", "cpu_complete"), 0xFFFF),
    **dict.fromkeys(("op", "path"), 0xFF),
    # Linux' p->prio: 0 to 139, a deadline thread's -1 is left out as if it were not known; Solaris' t_pri: 0 to 169;
    # FreeBSD's td_priority: 0 to 255.
    **dict.fromkeys(("priority", "instead_priority"), 255),
    "policy": 0xFF,
    "issued": 1,
    "status": 2 * ERRNO_CODE - 1,
}
_UNKNOWN = (-1, _ALL_BITS)
"""-1, and how an unsigned conversion prints it."""
_MOST_US = 2**40
"""12 days. A longer time of a request is a wrong stamp."""
_STAMPS = ("begun_ns", "done_ns", "woken_ns", "issued_ns")
_MOST_FUNCTIONS = 16
"""Functions of a stack that are kept."""
PATH_END = clean("\0")
"""The text of a `path` record ends so where the program's path does."""
_MAX_TEXT = {"path": 64 * len(PATH_END), "split": _MOST_FUNCTIONS * (_MAX_FUNCTION + 1)}
"""Kind of record -> characters of its text, where they may be more than those of a name."""
ROLES_OF_AGES = ("depth_older", "depth_since")
"""Roles of the maps that NewestAges takes."""
AS_IS = (*ROLES_OF_AGES, "depth_most", "file_max")
"""Roles of maps whose values are of the tick that printed them, not cumulative."""
SLOTS = 4
"""A largest depth is kept for each of so many ticks."""
MOST_REPORTED = 64
_OCTAVE = 8
Name = Callable[[int], str | None]
Flags = Callable[[int], tuple[str, ...]]
"""Converter of a request's cmd_flags to names."""


class Differences:
    """Differences of the maps of one script."""

    def __init__(self, specs: Iterable[MapSpec]) -> None:
        self._buckets: dict[str, KeyPart | None] = {
            spec.name: next((part for part in spec.key if part.name == "bucket"), None) for spec in specs
        }
        self._before: dict[str, Counts] = {}
        self._printed: dict[str, Counts] = {}
        self._cleared: dict[str, Counts] = {}
        """Gain of this interval before a map was cleared."""
        self._undecoded = 0

    def printed(self, name: str, values: Counts) -> None:
        """Take one map as the tool printed it; count maps that are not the script's, and impossible values."""
        if name not in self._buckets:
            self._undecoded += 1
            return
        sane = self._sane(name, values)
        self._undecoded += len(values) - len(sane)
        self._printed[name] = sane

    def gained(self, name: str) -> Counts:
        """Return the gain per key; a map that was not printed (empty, or its line was lost) has gained nothing yet.

        A value that went down was cleared and counted again from 0: all of it is gain.
        """
        gain = self._gain(name)
        for key, value in self._cleared.pop(name, {}).items():
            gain[key] = gain.get(key, 0) + value
        return gain

    def cleared(self, name: str) -> None:
        """Note that the map was cleared after it was last printed: it counts from 0 again."""
        self._cleared[name] = self.gained(name)
        self._before.pop(name, None)
        self._printed.pop(name, None)

    def _gain(self, name: str) -> Counts:
        if name not in self._printed:
            return {}
        now, before = self._printed[name], self._before.get(name, {})
        self._before[name] = now
        changed = {key: value for key, value in now.items() if before.get(key, 0) != value}
        return {key: value if (gain := value - before.get(key, 0)) < 0 else gain for key, value in changed.items()}

    def latest(self, name: str) -> Counts:
        """Return the map itself if it was printed since the last `close`; else an empty one."""
        return self._printed.get(name, {})

    def close(self) -> int:
        """End an interval; return the number of its maps and values that were not decoded."""
        self._printed.clear()
        undecoded, self._undecoded = self._undecoded, 0
        return undecoded

    def _sane(self, name: str, values: Counts) -> Counts:
        """Return the values that are possible; of keys that were there before only the values are checked."""
        bucket = self._buckets[name]
        if values and min(values.values()) >= 0 and max(values.values()) <= MAX_COUNT:
            new = values.keys() - self._before.get(name, {}).keys()
            if all(_is_sane(bucket, key, values[key]) for key in new):
                return values
        return {key: value for key, value in values.items() if _is_sane(bucket, key, value)}


def _is_sane(bucket: KeyPart | None, key: int, value: int) -> bool:
    """Return whether a kernel can count this value; others would falsify every later sum."""
    return 0 <= value <= MAX_COUNT and 0 <= key <= MAX_COUNT and (bucket is None or bucket.read(key) <= TOP)


def by_stack(spec: MapSpec, values: Mapping[str, object], chains: list[str]) -> Counts:
    """Return a map whose keys are `NUMBER,STACK`, with a code in place of each stack.

    It is that of the first of the map's functions that the stack has, where the map has such; else the place of the
    stack's innermost functions in `chains`, which gets the new ones.
    """
    codes = {name: code for code, name in enumerate(spec.contexts)}
    number_at = min(part.shift for part in spec.key if part.name != "context")
    counts: Counter[int] = Counter()
    for key, n in values.items():
        number, _, stack = key.partition(",")
        if isinstance(n, int) and number.isdecimal() and len(number) < _NUMBER_DIGITS:
            functions = _FUNCTION.findall(stack)
            if spec.role == "raiser" and not _HANDLER.isdisjoint(functions):
                continue
            named = codes.get(wait_name(functions, spec.functions), _UNKNOWN_CONTEXT)
            code = named if spec.functions else _place(_chain(functions, spec.skips), chains)
            counts[int(number) << number_at | code] += n
    return dict(counts)


def wait_name(stack: Iterable[str], names: Mapping[str, str]) -> str:
    """Return the name of a wait by the functions of its kernel stack: of the first of `names` in it; empty: of none.

    A function that only sleeps for others, such as io_schedule, is the last of them.
    """
    functions = frozenset(stack)
    return next((name for function, name in names.items() if function in functions), "")


def sleep_chain(functions: Sequence[str]) -> str:
    """Return the innermost functions of a thread that sleeps, without those of the scheduler."""
    return _chain(functions, _SCHEDULING)


def _chain(functions: Sequence[str], skips: Collection[str]) -> str:
    """Return `function < caller < its caller`; empty where no function has a name."""
    own = [function for function in functions if not _TRACING.match(function)]
    first = next((at for at, function in enumerate(own) if function not in skips), 0)
    return " < ".join(function[:_MAX_FUNCTION] for function in own[first : first + _CALLERS])


def folded(values: Mapping[str, object]) -> dict[str, int]:
    """Return a map whose keys are kernel stacks as `outermost;...;innermost` -> count."""
    counts: Counter[str] = Counter()
    for stack, n in values.items():
        own = [function for function in _FUNCTION.findall(stack) if not _TRACING.match(function)]
        if isinstance(n, int):
            counts[";".join(function[:_MAX_FUNCTION] for function in reversed(own)) or "unknown"] += n
    return dict(counts)


def folded_with_user(values: Mapping[str, object]) -> dict[tuple[int, str], int]:
    """Return a map whose keys are `PID,KERNEL STACK,USER STACK` as (pid, folded stack) -> count, the user's outermost.

    A name of the user's may be any text, because its program chooses it.
    """
    counts: Counter[tuple[int, str]] = Counter()
    for key, n in values.items():
        pid, _, stacks = key.partition(",")
        kernel, _, user = stacks.partition(",\n")
        if isinstance(n, int) and pid.isdecimal() and len(pid) < _NUMBER_DIGITS:
            ((folded_kernel, _),) = folded({kernel: n}).items()
            names = filter(None, map(_user_function, reversed(user.split("\n"))))
            frames = [name for name, _ in groupby(names)]
            counts[int(pid), ";".join([*frames, folded_kernel])] += n
    return dict(counts)


def _user_function(line: str) -> str:
    """Return the function of a line of a user stack; NOT_RESOLVED for an address, empty for a blank line."""
    text = clean(line, _MAX_LINE).strip()
    name, _, offset = text.partition(" (")[0].rpartition("+")
    if not text or _ADDRESS.match(text):
        return NOT_RESOLVED if text else ""
    return (name if offset.isdecimal() else text).replace(";", ":")[:_MAX_FUNCTION]


def _place(chain: str, chains: list[str]) -> int:
    """Return the chain's place in the list, which it is added to; _UNKNOWN_CONTEXT without a chain, or without room."""
    if chain in chains:
        return chains.index(chain)
    if not chain or len(chains) >= _UNKNOWN_CONTEXT:
        return _UNKNOWN_CONTEXT
    chains.append(chain)
    return len(chains) - 1


def by_bucket(spec: MapSpec, gained: Counts) -> dict[int, Counts]:
    """Return the gains by bucket of each key, whose own bucket is 0: what a key means is looked up once for all."""
    bucket = spec.part("bucket")
    shift, mask = bucket.shift, (1 << bucket.bits) - 1
    others = ~(mask << shift)
    by_buckets: defaultdict[int, Counts] = defaultdict(dict)
    for key, n in gained.items():
        by_buckets[key & others][key >> shift & mask] = n
    return by_buckets


def handlers(
    gains: Gains, named: Callable[[int], Handler], callers: Mapping[Handler, int], bits: int = BITS
) -> dict[Handler, HandlerRuns]:
    """Return the runs by handler, for all return values, at the scale of `bits`.

    `callers`: handler -> irq whose handler calls it.
    """
    runs: defaultdict[Handler, Counter[int]] = defaultdict(Counter)
    returned: defaultdict[Handler, Counter[str]] = defaultdict(Counter)
    sums: Counter[Handler] = Counter()
    before: Counter[Handler] = Counter()
    for spec, key, counts in by_key(gains, "handler"):
        handler, n = named(spec.part("handler").read(key)), sum(counts.values())
        if spec.role == "handler_before":
            before[handler] += n
        elif spec.role == "handler_sum":
            sums[handler] += n
        else:
            code = spec.part("returned").read(key)
            runs[handler].update(counts)
            returned[handler][RETURNED[code] if code < len(RETURNED) else "none"] += n
    return {
        handler: HandlerRuns(
            _histogram(counts, sums[handler], bits),
            returned=dict(returned[handler]),
            before_us=before[handler],
            caller=callers.get(handler, UNKNOWN_IRQ),
        )
        for handler, counts in runs.items()
    }


class DeclaredRows(NamedTuple, Generic[Row, V]):
    """Rows of a declared table."""

    rows: dict[Row, V]
    undecoded: int
    """Entries of maps whose keys stand for no row."""


@dataclass(slots=True)
class _CellCounts:
    """Counts of one cell of a row."""

    counts: Counter[Any] = field(default_factory=Counter)
    """By bucket of a histogram, by name, or a single one by None."""
    us: int = 0
    """Sum of a histogram."""


def declared_rows(
    table: Table[Row, V],
    gains: Sequence[tuple[MapSpec, Counts]],
    names: Mapping[Meaning, Callable[[int], Any]],
    bits: int = BITS,
) -> DeclaredRows[Row, V]:
    """Return the rows of a declared table, of the devices that have a name.

    `gains`: of the maps that a script prints of the table. `names`: what stands for the codes of devices, and of other
    parts whose meaning a probe doesn't know. `bits`: scale of the script's histograms, which may be
    coarser than the table's.
    """
    cells: defaultdict[Row, defaultdict[str, _CellCounts]] = defaultdict(lambda: defaultdict(_CellCounts))
    device_places = table.of_meaning(Meaning.DEVICE)
    undecoded = 0
    for spec, gained in gains:
        role = table.roles[spec.role]
        readers = _part_readers(table, spec, names)
        for _, key, counts in by_key([(spec, gained)]):
            parts = [stands_for(read(key)) for read, stands_for in readers]
            if None in parts:
                undecoded += all(parts[place] is not None for place in device_places)
                continue
            cell = cells[table.key_of(parts)][role.cell.name]
            if role.is_sum:
                cell.us += sum(counts.values())
            elif role.cell.is_histogram:
                cell.counts.update(counts)
            else:
                name = context_name(spec, key) if role.cell.unit is Unit.NAMED else None
                cell.counts[name] += sum(counts.values())
    printed = {spec.role for spec, _ in gains}
    rows = {
        row: _declared_value(table, row_cells, printed, bits)
        for row, row_cells in cells.items()
        if any(cell.counts for cell in row_cells.values())  # a sum alone is ahead of its buckets
    }
    return DeclaredRows(rows, undecoded)


def _part_readers(
    table: Table[Row, V], spec: MapSpec, names: Mapping[Meaning, Callable[[int], Any]]
) -> list[tuple[Callable[[int], int], Callable[[int], Any]]]:
    """Return for each part of a row's key how its code is read from a map's key, and what stands for the code."""
    by_meaning = {Meaning.OP: op_name, **names}
    return [(spec.part(part.in_probes).read, by_meaning.get(part.meaning, part.of_code)) for part in table.parts]


def _declared_value(
    table: Table[Row, V], row_cells: Mapping[str, _CellCounts], printed: Collection[str], bits: int
) -> V:
    """Return a row's value; I/Os that no map counts are those in the buckets. `printed`: roles of the script's maps."""
    contents: list[Any] = []
    for cell in table.value.cells:
        cell_counts = row_cells.get(cell.name)
        if cell.unit is Unit.IOS and f"{table.export_name}_{cell.name}" not in printed:
            contents.append(_timed(table, row_cells))
        elif cell_counts is None or not cell_counts.counts:
            contents.append(cell.empty)
        elif cell.is_histogram:
            contents.append(_histogram(cell_counts.counts, cell_counts.us, min(cell.bits, bits)))
        else:
            contents.append(dict(cell_counts.counts) if cell.unit is Unit.NAMED else cell_counts.counts[None])
    return table.value.make(*contents)


def _timed(table: Table[Row, V], row_cells: Mapping[str, _CellCounts]) -> int:
    """Return the number of the row's latencies."""
    names = [cell.name for cell in table.value.cells if cell.is_histogram]
    return sum(row_cells[name].counts.total() for name in names if name in row_cells)


def patterns(gains: Gains, device_name: Callable[[int], str | None]) -> dict[Flow, Pattern]:
    """Return where the issued I/Os lay and how they were flagged; a code has a bit for each field after the first."""
    found_patterns: dict[Flow, Pattern] = {}
    for spec, key, gained in by_key(gains, "pattern"):
        device, code, n = device_name(spec.part("dev").read(key)), spec.part("pattern").read(key), sum(gained.values())
        if device is not None:
            flow = Flow(device, op_name(spec.part("op").read(key)))
            flagged = Pattern(n, *(n * (code >> bit & 1) for bit in range(len(PATTERN) - 1)))
            found_patterns[flow] = PATTERNS.value.add(found_patterns.get(flow, Pattern()), flagged)
    return found_patterns


def wakeups(gains: Gains, thread: Callable[[int], Thread], bits: int = BITS) -> dict[ThreadNumber, Wakeups]:
    """Return the wake-ups by thread, in the order of their pids, at the scale of `bits`."""
    delays: defaultdict[int, Counter[int]] = defaultdict(Counter)
    sums: Counter[int] = Counter()
    others: dict[str, defaultdict[int, Counter[str]]] = {
        role: defaultdict(Counter) for role in ("wakeup_instead", "wakeup_ran")
    }
    labels: dict[int, str] = {}
    for spec, key, counts in by_key(gains, "wakeup"):
        pid = spec.part("thread").read(key)
        if spec.role == "wakeup_sum":
            sums[pid] += sum(counts.values())
        elif spec.role in others:
            other = spec.part("other").read(key)
            if other not in labels:
                labels[other] = thread_label(thread, other)
            none = IDLE if spec.role == "wakeup_instead" else NOT_KNOWN
            others[spec.role][pid][labels[other] or none] += sum(counts.values())
        else:
            delays[pid].update(counts)
    return by_thread(
        Wakeups(
            thread(pid),
            _histogram(counts, sums[pid], bits),
            *(dict(all_counts.get(pid, {})) for all_counts in others.values()),
        )
        for pid, counts in sorted(delays.items())
    )


def thread_label(thread: Callable[[int], Thread], pid: int, priority: int | None = None) -> str:
    """Return `comm (prio N)`; empty for the idle task, the pid where no name is known."""
    if pid == 0:
        return ""
    found_thread = thread(pid)
    prio = found_thread.priority if priority is None else priority
    return f"{found_thread.comm or f'pid {pid}'} (prio {prio})" if prio >= 0 else found_thread.comm or f"pid {pid}"


def by_key(gains: Gains, role: str = "") -> Iterator[tuple[MapSpec, int, Counts]]:
    """Yield the gains of each key of the maps whose roles begin so, by bucket; by 0 where the key has no bucket."""
    for spec, gained in gains:
        if not spec.role.startswith(role):
            continue
        if any(part.name == "bucket" for part in spec.key):
            yield from ((spec, key, counts) for key, counts in by_bucket(spec, gained).items())
        else:
            yield from ((spec, key, {0: n}) for key, n in gained.items())


def files(
    gains: Gains, maxima: Maps, file_system: Callable[[int], FileSystem], bits: int = BITS
) -> dict[FileSeries, Histogram]:
    """Return the operations on files, at the scale of `bits`. `maxima`: the interval's, as (map, key -> us) pairs."""
    counted: defaultdict[FileSeries, Counter[int]] = defaultdict(Counter)
    sums: Counter[FileSeries] = Counter()
    highest: defaultdict[FileSeries, list[int]] = defaultdict(list)
    for spec, key, counts in by_key(gains, "file"):
        series = _file_series(spec, key, file_system)
        if series is not None and spec.role == "file":
            counted[series].update(counts)
        elif series is not None:
            sums[series] += counts[0]
    for spec, values in maxima:
        for key, us in values.items():
            if (series := _file_series(spec, key, file_system)) is not None:
                highest[series].append(us)
    histograms = {file_series: _histogram(counts, sums[file_series], bits) for file_series, counts in counted.items()}
    return {
        file_series: replace(latency, max=latency.within_top(highest[file_series]))
        for file_series, latency in histograms.items()
        if latency
    }


def _file_series(spec: MapSpec, key: int, file_system: Callable[[int], FileSystem]) -> FileSeries | None:
    """Return the series of a key; None where it names an unknown operation, and of maps without one."""
    if spec.role not in ("file", "file_sum", "file_max"):
        return None
    call, wait = spec.part("call").read(key), spec.part("wait").read(key)
    if call >= len(FILE_OPS) or wait >= len(FILE_WAITS):
        return None
    its = file_system(spec.part("dev").read(key))
    return FileSeries(its.device, FILE_OPS[call], its.mount, its.kind, FILE_WAITS[wait])


def file_times(gains: Gains, file_system: Callable[[int], FileSystem]) -> dict[FilePart, int]:
    """Return the parts of the time of operations on files."""
    counter: Counter[FilePart] = Counter()
    for spec, key, counts in by_key(gains, "file_"):
        if spec.role not in _FILE_TIMES:
            continue
        part = _FILE_TIMES[spec.role] or context_name(spec, key)
        call, us = spec.part("call").read(key), counts[0]
        if call < len(FILE_OPS) and us:
            its = file_system(spec.part("dev").read(key))
            name = part if part in FILE_PARTS else ASLEEP
            counter[FilePart(its.device, FILE_OPS[call], its.mount, its.kind, name)] += us
    return dict(counter)


def _histogram(counts: Counts, us: int, bits: int = BITS) -> Histogram:
    """Return a histogram with its sum; a map of sums is printed after that of its runs and may be ahead of them."""
    histogram = Histogram.of(counts).coarsen(bits)
    return replace(histogram, sum=histogram.within(us))


def context_name(spec: MapSpec, key: int, chains: Sequence[str] = ()) -> str:
    """Return the name of a key's context, of `chains` where there are any; `other` for a code without one."""
    code, names = spec.part("context").read(key), chains or spec.contexts
    return names[code] if code < len(names) else "other"


@dataclass(frozen=True, slots=True)
class Record:
    """A record line. `fields` has the known numbers; `rwbs` is the only field of letters; `text` is clean."""

    kind: str
    probe: str
    fields: Mapping[str, int] = field(default_factory=dict)
    rwbs: str = ""
    text: str = ""

    def get(self, name: str) -> int | None:
        return self.fields.get(name)


def record(line: str, spec: RecordSpec) -> Record | None:
    """Return the line's record; None if it is torn or has an impossible value."""
    words = line.split(" ", 2 + len(spec.fields))
    if len(words) == 2 + len(spec.fields):
        words.append("")
    if len(words) != 3 + len(spec.fields) or (words[-1] and not spec.text) or words[0] != spec.kind:
        return None
    fields: dict[str, int] = {}
    rwbs = ""
    for name, word in zip(spec.fields, words[2:-1], strict=True):
        if name == "rwbs" and _RWBS.fullmatch(word):
            rwbs = word
        elif name == "rwbs" or not _INTEGER.fullmatch(word):
            return None
        elif (value := int(word)) not in _UNKNOWN:
            most = _most_of(name)
            if most == _ALL_BITS and -_MOST <= value < 0:  # a pointer may be signed
                value &= _ALL_BITS
            if not 0 <= value <= most:
                return None
            fields[name] = value
    text = _TEXT_OF[spec.kind](words[-1]) if spec.kind in _TEXT_OF else words[-1]
    return Record(spec.kind, clean(words[1]), fields, rwbs, clean(text, _MAX_TEXT.get(spec.kind, MAX_CELLS)))


def _escaped(text: str) -> bytes:
    r"""Return the bytes that bpftrace printed as `\xNN`, to the NUL that ends a program's path; a name has none."""
    printed = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "backslashreplace"))
    path, end, _ = printed.partition(b"\0")
    return path + end


def _functions(stack: str) -> str:
    """Return the functions of a kernel stack in one line, the innermost one first."""
    own = (function[:_MAX_FUNCTION] for function in _FUNCTION.findall(stack) if not _TRACING.match(function))
    return FUNCTIONS_BETWEEN.join(islice(own, _MOST_FUNCTIONS))


_TEXT_OF: Mapping[str, Callable[[str], str | bytes]] = {"path": _escaped, "split": _functions}
"""Kind of record -> how its text is read."""


def shifted(record: Record, ahead_ns: int) -> Record:
    """Return the record with the stamps of a clock that is ahead moved back."""
    if not ahead_ns:
        return record
    moved = {name: record.fields[name] - ahead_ns for name in _STAMPS if name in record.fields}
    return replace(record, fields={**record.fields, **moved})


@cache
def _most_of(name: str) -> int:
    """Return the greatest possible value of a manifest's field."""
    return _MOST_US if name.endswith("_us") else _MOST_OF.get(name, _MOST)


def depth_of(index: int) -> int:
    """Return the depth of an index: exact to EXACT, above it the end of a bucket, 8 per octave."""
    if index <= EXACT:
        return index
    octave, step = divmod(index - EXACT - 1, _OCTAVE)
    return (_OCTAVE + step + 1) << (octave + 5)


@dataclass(slots=True)
class _DepthCounts:
    """Differences of one device's maps over an interval."""

    counts: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    corrected: int = 0

    def depths(self, most: int | None) -> Depths:
        return Depths(
            dict(self.counts["depth_driver"]),
            dict(self.counts["depth_queued"]),
            dict(self.counts["depth_issue"]),
            _latency(self.counts["depth_ios"], self.counts["depth_time"]),
            most,
            self.corrected,
            PROBE,
        )


def depths(gains: Maps, most: Mapping[int, int], device_name: Name) -> dict[str, Depths]:
    """Return the depths of each device that had I/O. `most`: dev_t -> the largest depth, where it was above EXACT."""
    all_counts: defaultdict[int, _DepthCounts] = defaultdict(_DepthCounts)
    for spec, counts in gains:
        if not spec.role.startswith("depth_"):
            continue
        dev, depth = spec.part("dev"), None if spec.role == "depth_corrected" else spec.part("depth")
        for key, n in counts.items():
            depth_counts = all_counts[dev.read(key)]
            if depth is None:
                depth_counts.corrected += n
            else:
                depth_counts.counts[spec.role][depth_of(depth.read(key))] += n
    named = {number: name for number in all_counts if (name := device_name(number)) is not None}
    return {name: all_counts[number].depths(most.get(number)) for number, name in named.items()}


def _latency(ios: Mapping[int, int], times: Mapping[int, int]) -> dict[int, Took]:
    times_taken: dict[int, Took] = {}
    for depth, n in ios.items():
        end = coarse_end(depth)
        took = times_taken.get(end, Took(0, 0))
        times_taken[end] = Took(took.ios + n, took.time_us + times.get(depth, 0))
    return times_taken


def most_of(maps: Maps, tick: int | None) -> dict[int, int]:
    """Return dev_t -> the largest depth of a tick, from the slot with its number modulo SLOTS; empty without a tick."""
    return {
        spec.part("dev").read(key): n
        for spec, values in maps
        for key, n in values.items()
        if tick is not None and spec.part("slot").read(key) == tick % SLOTS and n
    }


class NewestAges:
    """Requests in flight that one script reported at its newest tick."""

    def __init__(self, device_name: Name, flags: Flags) -> None:
        self._device_name, self._flags = device_name, flags
        self._newest: InFlightList | None = None

    def reported(self, records: Iterable[Record], maps: Maps, at_ns: int, ahead_ns: int) -> None:
        """Take the records of a tick; ignore a tick before the script followed requests.

        The records are on CLOCK_MONOTONIC already. The script's clock is `ahead_ns` ahead of it: the tick's stamp
        `at_ns` and those in its maps.
        """
        each = list(maps)
        since_ns = max((n for spec, values in each if spec.role == "depth_since" for n in values.values()), default=0)
        if since_ns:
            waiting = [in_flight for record in records if (in_flight := self._in_flight(record)) is not None]
            older = self._older((spec, values) for spec, values in each if spec.role == "depth_older")
            counted = dict.fromkeys(AGES_S, 0) | older
            since_us, at_us = ((stamp_ns - ahead_ns) // 1000 for stamp_ns in (since_ns, at_ns))
            self._newest = InFlightList(_oldest(waiting), counted, since_us, at_us)

    def taken(self) -> InFlightList | None:
        """Return the newest list once; None if no tick came since the last call."""
        newest, self._newest = self._newest, None
        return newest

    def _older(self, maps: Maps) -> dict[int, int]:
        counts: Counter[int] = Counter()
        for spec, values in maps:
            for key, n in values.items():
                age = spec.part("age").read(key)
                if age < len(AGES_S) and self._device_name(spec.part("dev").read(key)) is not None:
                    counts[AGES_S[age]] += n
        return dict(counts)

    def _in_flight(self, record: Record) -> InFlight | None:
        number, begun = record.get("dev"), record.get("begun_ns")
        device = None if number is None else self._device_name(number)
        if device is None or begun is None:
            return None
        op, issued = record.get("op"), record.get("issued")
        return InFlight(
            device=device,
            op=op_name(255 if op is None else op),
            began_us=begun // 1000,
            flags=self._flags(record.get("flags") or 0),
            sector=record.get("sector"),
            bytes=record.get("bytes"),
            pid=record.get("pid"),
            comm=record.text,
            issued=None if issued is None else bool(issued),
            overtaken_by=record.get("overtaken"),
        )


def all_waiting(parts: Iterable[InFlightList | None]) -> InFlightList | None:
    """Merge the lists of scripts that follow different devices; all are known since the latest of their begins."""
    reported = [part for part in parts if part is not None]
    if not reported:
        return None
    older: Counter[int] = Counter()
    for in_flight_list in reported:
        older.update(in_flight_list.older)
    waiting = [each for in_flight_list in reported for each in in_flight_list.oldest]
    since_us, at_us = (
        max(in_flight_list.since_us for in_flight_list in reported),
        min(in_flight_list.at_us for in_flight_list in reported),
    )
    return InFlightList(_oldest(waiting), dict(older), since_us, at_us, _all_devices(reported))


def followed(in_flight: InFlightList, groups: Collection[str], timed: Mapping[str, bool]) -> InFlightList | None:
    """Return the list with the devices that scripts of these groups follow; None where they follow none of them.

    `inflight` follows devices with requests (`timed`), `bios` the others. A list that names devices keeps only those.
    """
    its = [name for name, by_request in timed.items() if ("inflight" if by_request else "bios") in groups]
    if not in_flight.devices and len(its) == len(timed):
        return in_flight
    names = tuple(name for name in its if in_flight.follows(name))
    return replace(in_flight, devices=names) if names else None


def _all_devices(reported: list[InFlightList]) -> tuple[str, ...]:
    """Return the devices that the scripts follow together; empty, for all, if one of them follows all devices."""
    each = [in_flight_list.devices for in_flight_list in reported]
    return tuple(dict.fromkeys(name for device_names in each for name in device_names)) if all(each) else ()


def _oldest(waiting: list[InFlight]) -> tuple[InFlight, ...]:
    return tuple(sorted(waiting, key=lambda in_flight: in_flight.began_us)[:MOST_REPORTED])
