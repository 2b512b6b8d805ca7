"""Values that importers produce, before they become frames: tables, slow I/Os, times, units, names.

Every value has its lines, so that lines that no format read can be listed. A time without a zone is taken as UTC; only
differences matter. In a table's key, which a script's author chose, known words are op and stage, and the rest names
the device. A table doesn't print its unit: `quantize((timestamp - start)/1000000)` is in milliseconds by the script.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from types import MappingProxyType

from latmon.decode.dtrace_aggregation import Row
from latmon.model.frame import STAGES, Completed, Flow, Frame, Limit, Origin, Outlier, Outstanding, Series, Taskq
from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths
from latmon.model.measurements.errors import FailedIO
from latmon.support.errors import UsageError
from latmon.support.text import clean

UNKNOWN_OP = "other"
WHOLE = "total"
"""The stage of a latency if the text names none."""
NO_WALL = -1.0
"""The time of an I/O whose line has none: it then began when its window did. 0 is a time: traces begin there."""
POWERS = {unit: int(1024**n) for n, unit in enumerate(("", "K", "M", "G", "T", "P", "E"))}
"""Letter of a unit that counts by 1,024 -> its factor."""
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds."""
LONGEST_LINE = 1000
"""Characters of a line that may have a date, a time or a prompt before what a tool printed."""
IMPOSSIBLE_NS = 10 * 365 * 86_400 * 10**9
"""Ten years: no I/O takes as long. It is a difference of two times, the later one subtracted from the earlier one."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """First and last line, from 1, and the time, if the text has it."""

    first: int
    last: int
    wall: float | None = None
    dt_us: int | None = None


DISK, FILE, APPLICATION = "disk", "file", "application"
LAYERS = (DISK, FILE, APPLICATION)
"""Where a tool measures whose format has tools of several layers: I/Os of disks, operations on files, a program's."""


@dataclass(frozen=True, slots=True)
class ImportedTable:
    """Distribution in the buckets of another tool."""

    where: TextSpan
    title: str
    """Title in the text; clean."""
    kind: str
    """hist, lhist, quantize, ..."""
    rows: tuple[Row, ...]
    unit: str = ""
    """One of UNITS; empty if the text names none."""
    unit_from: str = ""
    series: Series | None = None
    """Empty: by the title."""
    sum_us: int | None = None
    max_us: int | None = None
    layer: str = ""
    """One of LAYERS, where its format doesn't decide that."""
    at_issue: bool = False
    """Its values are depths, not times: I/Os outstanding when one was issued."""

    printed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Exact values that the tool printed beside the rows: min, max, mean, count."""

    @property
    def count(self) -> int:
        return sum(row.count for row in self.rows if row.count > 0)


def half_open(printed: Sequence[Row]) -> tuple[Row, ...]:
    """Return rows whose upper edge is the first value above them, from rows with the edges that are printed.

    Most tools print a row's last value (`2 -> 3`, `4 -> 7`), some the next row's begin (`2 -> 4`, `4 -> 8`).
    """
    neighbours = list(pairwise(printed))
    if neighbours and all(row.high == following.low for row, following in neighbours):
        return tuple(printed)
    return tuple(row if row.high is None else row._replace(high=row.high + 1) for row in printed)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of single I/Os or steps, or histograms whose buckets are finer than latmon's."""

    where: TextSpan
    histograms: Mapping[Series, Histogram]
    outliers: tuple[Outlier, ...] = ()
    """`mono_us` is 0: a text has no such clock. `wall` is NO_WALL where the text has no time."""
    seen: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))
    layer: str = ""
    """As in ImportedTable."""
    failed: Mapping[FailedIO, int] = field(default_factory=lambda: MappingProxyType({}))
    """I/Os that failed, which are in `seen` and in no histogram."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Values of the kernel's own counters in an interval."""

    where: TextSpan
    kernel: Mapping[Flow, Completed]
    outstanding: Mapping[str, Outstanding]
    depths: Mapping[str, Depths] = field(default_factory=lambda: MappingProxyType({}))
    members: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> devices whose I/Os it counts again."""


@dataclass(frozen=True, slots=True)
class Queues:
    """Task queues at one moment."""

    where: TextSpan
    taskqs: tuple[Taskq, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """Frame as latmon itself wrote it."""

    where: TextSpan
    frame: Frame
    measured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stage of the always-on probe -> the stages that it includes, where the text has them."""


@dataclass(frozen=True, slots=True)
class ImportedHeader:
    """Header of a recording of latmon's own."""

    where: TextSpan
    origin: Origin


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Line with the time of the next values, or the begin of another run."""

    where: TextSpan
    run: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """Sentence of a log at a time, without an I/O: it becomes a mark."""

    where: TextSpan
    text: str
    priority: int | None = None
    """The priority of a thread, if the sentence is about one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of a device's driver; `title` names the device, as a table's does."""

    where: TextSpan
    title: str
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """Assumption, omission, or line without a value, as a sentence. `count`: values left out."""

    where: TextSpan
    text: str
    count: int = 0
    lost: int = 0
    """Events that the tool itself lost: counts are too low."""
    is_incomplete: bool = False
    """A distribution, or a part of one, that is not in the recording."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Lines of a format that have no value: heads, blanks, other columns."""

    where: TextSpan


Found = ImportedTable | Times | Counts | Queues | Whole | ImportedHeader | Limits | Message | TimeLine | Remark | Passed


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import; an empty one is found in the text."""

    unit: str = ""
    device: str = ""
    op: str = ""
    stage: str = ""
    events: tuple[str, str] | None = None
    key: str = ""
    threshold_us: int = 100_000
    interval_us: int = 1_000_000
    has_interval: bool = False
    """Whether --interval gives it, so that it is not assumed."""
    start: float | None = None
    host: str = ""
    hz: int | None = None
    """CONFIG_HZ of the host."""
    first_report: str = ""
    """First report of iostat: `keep` or `drop`; empty: by what the text shows."""
    name: str = ""
    """Name of the file, which tells logs of fio apart."""

    def flow(self, device: str, op: str) -> Flow:
        """Return the flow of a text's device and op: --device replaces the device, --op an op that no word names."""
        return Flow(self.device or device, (self.op or op) if op == UNKNOWN_OP else op)

    def stage_of(self, stage: str = WHOLE) -> str:
        """Return the stage that a text names; --stage if it names none."""
        return (self.stage or stage) if stage == WHOLE else stage

    def series(self, device: str, op: str, stage: str = WHOLE) -> Series:
        """Return the series of a text's device, op and stage by the same rules."""
        return Series(*self.flow(device, op), self.stage_of(stage))


TRIVIAL = re.compile(r"[\s#=\-_*.]*\Z|[\s]*(?:[\[(]?\.\.\.[\w. ]*[\])]?|\^C)[\s]*\Z")
"""Lines that separate, and marks of what was cut out."""
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: n for n, name in enumerate(_NAMES, 1)}
_CLOCK = r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?"
_D = re.compile(rf"\s*(\d{{4}})\s+([A-Z][a-z]{{2}})\s+(\d{{1,2}})\s+{_CLOCK}")
_HALF = r"(?:\s+([AaPp][Mm]))?"
_DATE = re.compile(
    rf"\s*[A-Z][a-z]{{2}},?\s+([A-Z][a-z]{{2}})\s+(\d{{1,2}})\s+{_CLOCK}{_HALF}(?:\s+[A-Z]{{2,5}})?\s+(\d{{4}})"
)
_DAY_FIRST = re.compile(
    rf"\s*[A-Z][a-z]{{2}},?\s+(\d{{1,2}})\s+([A-Z][a-z]{{2}})\s+(\d{{4}})\s+{_CLOCK}{_HALF}"
    r"(?:\s+(?:[A-Z]{2,5}|([+-]\d{4})))?"
)
_ISO = re.compile(rf"\s*(\d{{4}})-(\d{{2}})-(\d{{2}})[T ]{_CLOCK}(Z|[+-]\d{{2}}:?\d{{2}})?")
_US = re.compile(rf"\s*(\d{{2}})/(\d{{2}})/(\d{{2,4}})\s+{_CLOCK}{_HALF}(?:\s+[A-Z]{{2,5}}(?=\s*\Z))?")
_EPOCH = re.compile(r"\s*(\d{9,10})(?:\.(\d{1,9}))?")
_TIME = re.compile(rf"\s*{_CLOCK}{_HALF}")
_WATCHER = re.compile(r"zzz \*{3}\s*")
"""Begin of a time line of OSWatcher."""
_CENTURY = 100
_NOON = 12


def moment(text: str) -> float | None:
    """Return the time if the whole line is one."""
    begin = begins(text)
    return begin[0] if begin and not text[begin[1] :].strip() else None


def begins(text: str) -> tuple[float, int] | None:
    """Return the time that a line begins with, and where it ends."""
    watcher = _WATCHER.match(text)
    begin = watcher.end() if watcher else 0
    for pattern, read in _READERS:
        match = pattern.match(text, begin)
        wall = read(match) if match else None
        if match and wall is not None:
            return wall, match.end()
    return None


def of_day(text: str) -> float | None:
    """Return seconds since midnight of a line that is a time alone, as bpftrace's time() prints it."""
    match = _TIME.fullmatch(text.rstrip())
    return None if match is None else _seconds(match.groups()[:4]) + _afternoon(int(match[1]), match[5])


_PERIOD = re.compile(r".*?\s(\d{1,6}(?:\.\d{1,3})?)(?:\s+\d{1,9})?\s*")


def period_us(command: str) -> int | None:
    """Return the interval at the end of a command line, with or without the number of reports: `zpool iostat 2 3`."""
    match = _PERIOD.fullmatch(command)
    return (round(float(match[1]) * 1e6) or None) if match else None


def by_command(us: int) -> str:
    """Return the remark on reports without times, whose interval is that of a command line."""
    return f"each report is taken as {us / 1e6:g} s long, by the command line in the text"


def interval_us(walls: Iterable[float | None]) -> int | None:
    """Return the median time between neighbours; None without two times, one after the other."""
    passed = [b - a for a, b in pairwise(walls) if a is not None and b is not None and b > a]
    return round(median(passed) * 1e6) if passed else None


RELATIVE_BELOW = 1e8
"""A time before 1973 is one since a boot or a trace's begin."""
_DAY = 86_400.0


@dataclass(slots=True)
class Clock:
    """Times of day go on: one that is less than the one before is of the next day.

    A date sets the day; from then on a time that is less by half a day at most begins another tool's output.
    """

    start: float | None
    day: float = 0.0
    before: float = -1.0
    first: float | None = None
    """The first time of day without a date."""

    def wall(self, text: str) -> float | None:
        """Return the time of a line that is one, with or without its date."""
        wall = moment(text)
        if wall is not None:
            self.before = wall % _DAY
            self.day = wall - self.before
            return wall
        seconds = of_day(text)
        if seconds is None:
            return None
        fallen = self.before - seconds
        self.day += _DAY if fallen > (_DAY / 2 if self.day >= RELATIVE_BELOW else 0.0) else 0.0
        self.before = seconds
        if self.start is None or self.day >= RELATIVE_BELOW:
            return self.day + seconds
        self.first = seconds if self.first is None else self.first
        # a start after the first time is another clock's: the first time is then the start
        return self.day + seconds - min(self.start % _DAY, self.first)


def _afternoon(hour: int, half: str | None) -> float:
    """Return the seconds that AM or PM adds to a time of day."""
    name = (half or "").upper()
    hours = (_NOON if name == "PM" and hour < _NOON else 0) - (_NOON if name == "AM" and hour == _NOON else 0)
    return 3600.0 * hours


def _seconds(clock: tuple[str | None, ...]) -> float:
    hour, minute, second, part = (clock_part or "0" for clock_part in clock)
    return int(hour) * 3600 + int(minute) * 60 + int(second) + float(f"0.{part}")


def _wall(
    year: int, month: int | None, day: int, clock: tuple[str | None, ...], zone: str | None = None
) -> float | None:
    try:
        date = datetime(year, month or 0, day, tzinfo=UTC)
    except ValueError:
        return None
    wall = date.timestamp() + _seconds(clock)
    if zone and zone != "Z":
        away = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        wall -= away if zone[0] == "+" else -away
    return wall if wall >= 0 else None


def _of_d(m: re.Match[str]) -> float | None:
    return _wall(int(m[1]), _MONTHS.get(m[2]), int(m[3]), m.groups()[3:7])


def _of_date(m: re.Match[str]) -> float | None:
    wall = _wall(int(m[8]), _MONTHS.get(m[1]), int(m[2]), m.groups()[2:6])
    return None if wall is None else wall + _afternoon(int(m[3]), m[7])


def _of_day_first(m: re.Match[str]) -> float | None:
    wall = _wall(int(m[3]), _MONTHS.get(m[2]), int(m[1]), m.groups()[3:7], m[9])
    return None if wall is None else wall + _afternoon(int(m[4]), m[8])


def _of_iso(m: re.Match[str]) -> float | None:
    return _wall(int(m[1]), int(m[2]), int(m[3]), m.groups()[3:7], m[8])


def _of_us(m: re.Match[str]) -> float | None:
    year = int(m[3]) + (2000 if int(m[3]) < _CENTURY else 0)
    wall = _wall(year, int(m[1]), int(m[2]), m.groups()[3:7])
    if wall is None or not m[8]:
        return wall
    return wall + _afternoon(int(m[4]), m[8])


def _of_epoch(m: re.Match[str]) -> float | None:
    return int(m[1]) + float(f"0.{m[2] or 0}")


_READERS = (
    *((_D, _of_d), (_DATE, _of_date), (_DAY_FIRST, _of_day_first)),
    *((_ISO, _of_iso), (_US, _of_us), (_EPOCH, _of_epoch)),
)


_OPS = {
    **dict.fromkeys(("r", "rd", "read", "reads", "b_read", "rs", "ra", "ram", "rm"), "read"),
    **dict.fromkeys(("w", "wr", "write", "writes", "b_write", "ws", "wm", "wsm", "fws", "wfs"), "write"),
    **dict.fromkeys(("f", "ff", "flush", "sync", "fsync"), "flush"),
    **dict.fromkeys(("d", "ds", "discard", "trim", "unmap"), "discard"),
}
_STAGES = {
    **{name: name for name in STAGES},
    **dict.fromkeys(("waitq", "wait", "qtime", "q2d"), "queue"),
    **dict.fromkeys(("d2c", "device", "service", "san"), "hba"),
    **dict.fromkeys(("intr", "hardirq"), "irq"),
    "swtch": "resume",
}
_PARTS = re.compile(r"[\s,\[\]()@:]+")
_UNITS = re.compile(r"\(?\b(us|ms|ns|s|usecs?|msecs?|nsecs?)\b\)?", re.IGNORECASE)
_POINTER = re.compile(r"(?:0x[0-9a-f]{8,16}|[0-9]{12,20}|[0-9a-f]*[a-f][0-9a-f]*(?<=[0-9a-f]{11}))\Z", re.IGNORECASE)
_DEV_T = re.compile(r"[0-9]{7,10}\Z")
_MINOR_BITS = 20
_LONGEST = 64
_MAX_NAMED = 6
_ROOM = 7
"""Characters of the number of a name that is cut off like another one."""


def bytes_of(unit: str) -> int:
    """Return the bytes of a unit that counts by 1,024, in any of its spellings: `B`, `bytes`, `K`, `KB`, `KiB`."""
    return POWERS.get(unit[:1], 1)


def one_device(options: ImportOptions, names: Sequence[str]) -> None:
    """Raise UsageError where --device would merge several devices whose values don't add up."""
    if options.device and len(names) > 1:
        names_text = ", ".join(names[:_MAX_NAMED]) + (
            f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
        )
        raise UsageError(
            f"--device {clean(options.device, _LONGEST)}: the text has {len(names):,} devices ({names_text}), "
            "which can't be one; leave the option out, or give the lines of one device alone"
        )


def add(flows: dict[Flow, Completed], flow: Flow, done: Completed) -> None:
    """Add I/Os to those of a flow: a text may have several rows of it."""
    flows[flow] = flows[flow] + done if flow in flows else done


class ShortNames:
    """Names of a limited length; a number distinguishes those whose short forms are the same."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._used: set[str] = set()
        self._same: dict[str, int] = {}

    def short(self, name: str, shown: str = "", longest: int = _LONGEST) -> str:
        """Return the same short form for each use of a name. `shown`: what of the name is shown; empty: all of it."""
        short = self._names.get(name)
        if short is not None:
            return short
        text = shown or name
        short = clean(text, longest)
        begin = clean(text, longest - _ROOM)
        while short in self._used:
            self._same[begin] = self._same.get(begin, 1) + 1
            short = f"{begin} ({self._same[begin]})"
        self._used.add(short)
        self._names[name] = short
        return short


class SeriesNames:
    """Series by key; an address in a kernel gets a short name."""

    def __init__(self, options: ImportOptions) -> None:
        self._asked = options
        self._addresses: dict[str, str] = {}
        self._names = ShortNames()
        self.assumed: dict[str, str] = {}
        """Key -> its meaning."""

    def series(self, title: str) -> Series:
        parts = [part for part in _PARTS.split(_UNITS.sub(" ", title)) if part]
        op = next((_OPS[part.lower()] for part in parts if part.lower() in _OPS), UNKNOWN_OP)
        stage = next((_STAGES[part.lower()] for part in parts if part.lower() in _STAGES), WHOLE)
        return self._asked.series(self._asked.device or self._device(title, parts), op, stage)

    def _device(self, title: str, parts: list[str]) -> str:
        """Return the title without its op; all of it if nothing else is left."""
        if (address := next((part for part in parts if _POINTER.fullmatch(part)), "")) != "":
            named = self._addresses.setdefault(address, f"device{len(self._addresses) + 1}")
            self.assumed[address] = f"{address} is an address in a kernel and is called {named}"
            return named
        if (number := next((part for part in parts if _DEV_T.fullmatch(part)), "")) != "":
            major, minor = int(number) >> _MINOR_BITS, int(number) & ((1 << _MINOR_BITS) - 1)
            self.assumed[number] = f"{number} is taken for the device number {major}:{minor}"
            return f"{major}:{minor}"
        left = [word for word in title.strip().strip("@").split() if word.strip("[](),").lower() not in _OPS]
        return self._names.short(" ".join(left) or title.strip() or "table")


def op_named(word: str) -> str:
    """Return the op that a tool calls so; UNKNOWN_OP for any other word."""
    return _OPS.get(word.lower(), UNKNOWN_OP)


_LETTERS = {"R": "read", "W": "write", "D": "discard", "F": "flush"}
_FLUSH_FIRST = ("FW", "FD", "FR")
_ZONE_APPEND = "ZA"


def op_of(rwbs: str) -> str:
    """Return the op of the kernel's letters (blk_fill_rwbs in kernel/trace/blktrace.c).

    The first letter is the operation. A flush may precede a write (`FW`), and alone it is `F` or
    `FF`. Zone appends (`ZA`) are writes; other operations on zones and private commands have no op.
    """
    letters = rwbs[1:] if rwbs[:2] in _FLUSH_FIRST else rwbs
    if letters[:2] == _ZONE_APPEND:
        return "write"
    return _LETTERS.get(letters[:1], UNKNOWN_OP)


NEAR = 60
"""Lines above a table in which prose may name its unit."""
_MAX = 2000
_LATEST = 100
_TITLE = re.compile(
    r"\((us|\u00b5s|\u03bcs|usecs?|ms|msecs?|ns|nsecs?|s|secs?|seconds|microseconds|milliseconds|nanoseconds)\)"
    r"|(?<![a-z])(usecs?|msecs?|nsecs?|microseconds?|milliseconds?|nanoseconds?)(?![a-z])|[_@](us|ms|ns)(?![a-z])"
    r"|\bin (us|ms|ns)(?![\w/])",
    re.IGNORECASE,
)
_UNIT_LINE = re.compile(
    r"\s*[(\[]?\s*(?:(?:all |the )?(?:times?|values?|units?|latenc(?:y|ies))\b\s*(?:are|is)?\s*[:=]?\s*)?"
    r"(?:in\s+)?[(\[]?"
    r"(us|\u00b5s|\u03bcs|usecs?|ms|msecs?|ns|nsecs?|s|secs?|seconds|microseconds|milliseconds|nanoseconds)"
    r"\s*[)\]]?\s*[:.]?\s*",
    re.IGNORECASE,
)
"""Line that has only the unit of a table: `(ms)`, `[us]`, `latency (ns)`, `times are in microseconds`."""
_PROSE = re.compile(
    r"(?:times?|values?|latenc(?:y|ies)|units?)\b.{0,40}?\b(?:are|is|in)\b.{0,10}?\b"
    r"(milliseconds?|microseconds?|nanoseconds?|msecs?|usecs?|nsecs?|ms|us|ns)\b",
    re.IGNORECASE,
)
_SCRIPT = re.compile(
    r"\b(l?quantize|llquantize|l?hist)\s*\(\s*\(*\s*\$?(?:timestamp|vtimestamp|walltimestamp|nsecs)\s*-.{1,300}?"
    r"\)\s*(?:/\s*([0-9_]{1,12})\s*)?[,)]",
    re.DOTALL,
)
_PLAIN = re.compile(r"\b(l?quantize|llquantize|l?hist)\s*\(\s*(?:timestamp|nsecs)\s*-[^()/]{1,200}[,)]")
_DIVISORS = {"": "ns", "1000": "us", "1000000": "ms", "1000000000": "s"}
_WORDS = {"n": "ns", "u": "us", "\u00b5": "us", "\u03bc": "us", "s": "s"}


def of_title(title: str) -> str:
    """Return the unit in `resume(ms)`, `@usecs`, `latency_us`; empty if there is none."""
    match = _TITLE.search(title[:_MAX])
    return _short(next(filter(None, match.groups()))) if match else ""


def of_line(line: str) -> str:
    """Return the unit if a line has nothing else; empty for any other line."""
    match = _UNIT_LINE.fullmatch(line[:_MAX])
    return _short(match[1]) if match else ""


def is_separator(line: str) -> bool:
    """Return whether a line between two tables has no value of its own: a rule, dots, a blank or a unit."""
    return TRIVIAL.match(line) is not None or of_line(line) != ""


class Context:
    """Units in the prose and scripts of a text, searched once because there may be many tables."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._prose = [(at, _short(m[1])) for at, line in enumerate(lines, 1) if (m := _PROSE.search(line[:_MAX]))]
        self._scripts = _scripts(lines)

    def unit(self, line: int, last: int, kind: str) -> tuple[str, str]:
        """Return the unit of the table from `line` to `last` and its source; both empty if there is none."""
        for at in (last + 1, last + 2, line - 1):
            if (unit := self._unit_of_table(at, last)) != "":
                return unit, f"line {at}"
        near = self._prose[: bisect_left(self._prose, (line, ""))][-1:]
        if near and near[0][0] >= line - NEAR:
            return near[0][1], f"line {near[0][0]}"
        for at, action, unit in reversed(self._scripts[: bisect_left(self._scripts, (line, "", ""))][-_LATEST:]):
            if _fits(action, kind):
                return unit, f"the script in line {at}" if unit else ""
        return "", ""

    def _unit_of_table(self, at: int, last: int) -> str:
        """Return the unit in line `at`, below a table that ends in line `last` or just above it; empty without one."""
        text = self._line(at)
        if at == last + 1 and text.strip().startswith("("):
            return of_title(text)
        is_of_the_next = at == last + 2 and (self._line(last + 1).strip() or self._line(at + 1).strip())
        return "" if is_of_the_next else of_line(text)

    def _line(self, at: int) -> str:
        return self._lines[at - 1] if 0 < at <= len(self._lines) else ""


def _scripts(lines: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return line, action and unit of the actions that fill tables in the scripts of a text."""
    if not any("quantize" in line or "hist" in line for line in lines):
        return []
    text = "\n".join(line[:_MAX] for line in lines)
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    script_ends = []
    for pattern in (_SCRIPT, _PLAIN):
        for m in pattern.finditer(text):
            divisor = (m[2] or "").replace("_", "") if pattern is _SCRIPT else ""
            script_ends.append((bisect_right(starts, m.start()), m[1], _DIVISORS.get(divisor, "")))
    return sorted(script_ends)


def _fits(action: str, kind: str) -> bool:
    return not kind or action == kind or {action, kind} <= {"lquantize", "llquantize"}


def _short(word: str) -> str:
    word = word.lower()
    if word.startswith(("ms", "milli")):
        return "ms"
    if word.startswith("micro"):
        return "us"
    return _WORDS[word[0]]


SECOND = 10**9
"""Nanoseconds."""
IN_FLIGHT = 65_536
"""Begins that wait for their end."""


@dataclass(slots=True)
class _Second:
    """I/Os of a trace that ended in one second, in lines `first` to `last`."""

    number: int | None
    first: int
    last: int
    values: dict[Series, list[int]] = field(default_factory=lambda: defaultdict(list))
    outliers: list[Outlier] = field(default_factory=list)
    bytes: dict[Flow, int] = field(default_factory=lambda: defaultdict(int))
    failed: Counter[FailedIO] = field(default_factory=Counter)


class Seconds:
    """Windows of one second each, filled with the I/Os of a trace in the order in which they ended.

    `stage` is the stage of an I/O's whole time; I/Os from `threshold_us` on are listed. `layer` is one of LAYERS.
    """

    def __init__(self, threshold_us: int, stage: str = WHOLE, layer: str = "") -> None:
        self._threshold_us, self._stage, self.layer = threshold_us, stage, layer
        self._second: _Second | None = None

    def add(self, number: int | None, first: int, last: int, outlier: Outlier) -> Iterator[Times | Remark]:
        """Add an I/O that ended in second `number`, by lines `first` to `last`; yield the second that is over.

        Without a number all are one window, whose time is not known. Instead of an impossible I/O a remark is yielded.
        """
        if outlier.total_us * UNITS["us"] >= IMPOSSIBLE_NS:
            text = (
                f"{outlier.total_us:,} us is impossible, the later time subtracted from the earlier one: it is left out"
            )
            yield Remark(TextSpan(first, last), text, 1, is_incomplete=True)
            return
        if self._second is None or self._second.number != number:
            yield from self.end()
            self._second = _Second(number, first, last)
        flow, second = Flow(outlier.device, outlier.op), self._second
        second.last = last
        if outlier.status:
            second.failed[FailedIO(*flow, outlier.status)] += 1
        else:
            for stage, us in {**outlier.stages_us, self._stage: outlier.total_us}.items():
                second.values[Series(*flow, stage)].append(us)
        second.bytes[flow] += outlier.bytes or 0
        if outlier.total_us >= self._threshold_us:
            second.outliers.append(outlier)

    def end(self) -> Iterator[Times]:
        """Yield the last second, if there is one."""
        second, self._second = self._second, None
        if second is None:
            return
        totals = {Flow(s.device, s.op): times_us for s, times_us in second.values.items() if s.stage == self._stage}
        failed: Counter[Flow] = Counter()
        for row, ios in second.failed.items():
            failed[Flow(row.device, row.op)] += ios
        seen = {
            flow: Completed(len(totals.get(flow, ())) + failed[flow], second.bytes[flow], sum(totals.get(flow, ())))
            for flow in {**totals, **failed}
        }
        where = TextSpan(second.first, second.last)
        if second.number is not None:
            where = replace(where, wall=float(second.number + 1), dt_us=1_000_000)
        yield Times(
            where,
            {series: Histogram.record(times_us) for series, times_us in second.values.items()},
            tuple(second.outliers),
            seen,
            self.layer,
            dict(second.failed),
        )
