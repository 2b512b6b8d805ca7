"""Removal of what came between a tool and the file: times before lines, prompts, and the order of numbers in dates.

Formats read a text as its tool prints it. Three steps bring it there, each of which leaves a text alone that has
nothing of its kind:

1. Numeric dates are written month first, as formats read them. Which number is the day is decided once for the text:
   by a number above 12, else by what else the text shows of its locale.
2. A time before each line (ts, `kubectl logs --timestamps`, journald, strftime of awk) is taken off where a known tool
   prints what is left, and no known tool prints the line as it is. Lines that came together get one line with their
   time above them, which every format reads.
3. A command line of a known tool behind any prompt becomes `$ COMMAND`, without sudo before it and pipes behind it.

Lines that are inserted have no number in the file. `numbers` leads from each line to its number, so that all that an
import prints about lines is in the file's own numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median_high
from typing import NamedTuple

from latmon.importers import dates, prompts, values
from latmon.importers.values import Found, ImportedTable, Remark, TextSpan, TimeLine

STAMP = re.compile(r"[\[(<{]?(?:[A-Z][a-z]{2},? +[A-Z\d]|\d{4}[- ]|\d{1,2}[:/]\d|\d{9,10}(?:\D|\Z))")
"""Begin of any time, a cheap check."""
CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: [AaPp][Mm])?"
TIME_OF_DAY = re.compile(CLOCK)
NO_YEAR = re.compile(rf"([A-Z][a-z]{{2}}) +(\d{{1,2}}) +({CLOCK})")
"""The time of syslog and of ts."""
WEEKDAY = re.compile(r"[A-Z][a-z]{2} (?=\d{4}-\d{2}-\d{2} )")
ZONE = re.compile(
    r" (?:UTC|GMT|[CEM]ES?T|WES?T|[BIJKMS]ST|MSK|[ECMP][SD]T|A[CEW][SD]T|NZ[SD]T|HKT|SGT|BRT|[+-]\d{4})(?=[ \])]|\Z)"
)
"""A zone by its name: any capitals would take the first word of a head."""
STREAM = re.compile(r" std(?:out|err) [FP](?= |\Z)")
"""Stream and fullness of a line in a container's log (CRI)."""
SOURCE = re.compile(r" [\w.-]{1,64} [^\s:\[\]]{1,64}(?:\[\d{1,10}\])?:(?= |\Z)")
"""Host and program of syslog and journald."""
MOST_LINES = 0.9
"""Share of adjacent lines that have a host and a program where these are such: a tool's own line may look so."""
TABLE = re.compile(r"\s*(?:->|[|,](?![A-Za-z]|\Z))")
"""Behind a number without colons it makes a bucket or a cell, no time."""
SEPARATOR = re.compile(r"(?!->)(?:[:,;|>=/_-](?=\D|\Z)|#(?=[^\s\d])|\s[,;|-](?=\s|\Z))")
"""Sign between a time and the line, as a format of strftime may have it; one behind a blank is no prompt's.

A `#` before a blank begins a tool's own line.
"""
SIGNS = ",;|>=#/_-"
"""Signs that no tool prints behind the time at the begin of its own lines."""
BRACKETS = {"[": "]", "(": ")", "<": ">", "{": "}"}
LEAST = 2
"""Lines with a time of one form, below which they are no output of a tool that stamps lines."""
TOGETHER_S = 1.0
"""Lines of one report that are printed at the end of a second may have two times."""
BURST_S = 0.2
"""Time between lines of one report, where times have fractions."""
JITTER_S = 0.5
"""By which a stamp with a fraction may be late: ts starts after the program whose lines it stamps."""
PARAGRAPH = 40
"""Lines above stamped ones in which the head of their table may be."""


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Text as its tool printed it."""

    lines: Sequence[str]
    numbers: Sequence[int] = ()
    """Line of the file of each line; empty: the same."""
    remarks: tuple[Remark, ...] = ()
    """Sentences on what was taken off, in lines of the file."""
    inserted: frozenset[int] = frozenset()
    """Lines, from 1, that the file doesn't have."""

    def number(self, line: int) -> int:
        """Return the file's line of a line."""
        return self.numbers[min(line, len(self.numbers)) - 1] if self.numbers else line

    def numbered(self, thing: Found) -> Found:
        """Return a value with its lines in the file, in its words, too."""
        if not self.numbers:
            return thing
        where = thing.where
        span = replace(where, first=self.number(where.first), last=self._last(where.last))
        if isinstance(thing, Remark):
            return replace(thing, where=span, text=self.worded(thing.text))
        if isinstance(thing, TimeLine):
            return replace(thing, where=span, run=self.worded(thing.run))
        if isinstance(thing, ImportedTable):
            return replace(thing, where=span, unit_from=self.worded(thing.unit_from))
        return replace(thing, where=span)

    def worded(self, text: str) -> str:
        """Return a sentence with its numbers of lines in the file."""
        if not self.numbers:
            return text
        return NUMBERED.sub(lambda match: str(self.number(int(match[0]))), text)

    def left(self, lines: Sequence[int]) -> list[int]:
        """Return lines of the file, each once, without those that were inserted."""
        if not self.numbers:
            return list(lines)
        return sorted({self.number(line) for line in lines if line not in self.inserted})

    def spans(self, spans: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """Return spans in lines of the file."""
        return [(self.number(first), self._last(last), name) for first, last, name in spans]

    def _last(self, line: int) -> int:
        """Return the last line of the file that a line has: a mail may have broken it into several."""
        if not self.numbers or line >= len(self.numbers):
            return self.number(line)
        return max(self.number(line), self.numbers[line] - 1)


NUMBERED = re.compile(r"(?<=\bline )\d{1,7}\b|(?<=\blines )\d{1,7}\b|(?<=\d to )\d{1,7}\b(?=:)")
"""Numbers of lines in a sentence: `line 3`, `lines 3 to 5:`."""


class Tools(NamedTuple):
    """Facts of formats about lines."""

    is_text: Callable[[str], bool]
    """Whether a format recognises a text."""
    has_time: Callable[[str], bool]
    """Whether a tool prints the time in a line itself."""
    command: re.Pattern[str]
    """Names of tools, as they are called."""


def unwrapped(lines: Sequence[str], numbers: Sequence[int], tools: Tools, start: float | None) -> Unwrapped:
    """Return a text as its tool printed it. `numbers`: the file's line of each; empty: the same."""
    dated, remarks = dates.with_months_first(lines, start, line_begin)
    stamped = without_times(dated, tools, start)
    texts: list[str] = []
    at: list[int] = []
    inserted: list[int] = []
    for number, text, is_time in stamped.rows if stamped is not None else plain(dated):
        for part in prompts.command_lines(text, tools.command):
            texts.append(part)
            at.append(number)
            inserted += [len(texts)] if is_time else []
    remarks += stamped.remarks if stamped is not None else []
    is_same = len(texts) == len(lines) and not numbers and not inserted
    if numbers:
        remarks = [numbered_remark(remark, numbers) for remark in remarks]
        at = [numbers[number - 1] for number in at]
    return Unwrapped(texts, () if is_same else at, tuple(remarks), frozenset(inserted))


def lines_of_file(lines: Sequence[str], numbers: Sequence[int]) -> Sequence[str]:
    """Return the lines by their numbers in the file; those that a mail continued are empty."""
    if not numbers:
        return lines
    texts = [""] * max(numbers)
    for line, number in zip(lines, numbers, strict=True):
        texts[number - 1] = texts[number - 1] or line
    return texts


def plain(lines: Sequence[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield lines with their numbers."""
    for number, line in enumerate(lines, 1):
        yield number, line, False


def numbered_remark(remark: Remark, numbers: Sequence[int]) -> Remark:
    """Return a remark on lines with their numbers in the file."""
    first, last = numbers[remark.where.first - 1], numbers[remark.where.last - 1]
    return replace(remark, where=TextSpan(first, last))


class Stamp(NamedTuple):
    """Time before a line: its form, its value, and where the line of the tool begins."""

    form: str
    wall: float
    """Seconds since 1970 or, without a year, of that year; since midnight without a date."""
    end: int
    has_date: bool
    has_year: bool
    has_fraction: bool
    is_certain: bool
    """No known tool prints such a time at the begin of its own lines."""
    is_cell: bool
    """A comma is behind it, as behind the first cell of a CSV."""


def stamp_of(line: str) -> Stamp | None:
    """Return the time that a line begins with, if the rest of it may be a tool's line."""
    if STAMP.match(line) is None:
        return None
    closing = BRACKETS.get(line[0], "")
    begin = 1 if closing else 0
    if not line[begin : begin + 1].isalnum():
        return None
    read = time_at(line, begin)
    if read is None:
        return None
    form, wall, end = read
    has_fraction = "." in line[begin:end] or "," in line[begin:end]
    place = end_of_stamp(line, begin, end, closing)
    if place is None:
        return None
    has_sign = place > end and line[place - 1] in SIGNS
    is_certain = bool(closing) or has_sign or form in ("no year", "ISO")
    return Stamp(
        form=f"{closing}{form}",
        wall=wall,
        end=place,
        has_date=form != "clock",
        has_year=form not in ("clock", "no year"),
        has_fraction=has_fraction,
        is_certain=is_certain,
        is_cell="," in line[end:place],
    )


def end_of_stamp(line: str, begin: int, end: int, closing: str) -> int | None:
    """Return where all that belongs to a time ends: its zone, bracket, stream and sign; None if more follows at once.

    `begin` and `end`: of the time; `closing`: its bracket.
    """
    is_number = ":" not in line[begin:end] and "." not in line[begin:end]
    if (zone := ZONE.match(line, end)) is not None:
        end = zone.end()
    if closing:
        if line[end : end + 1] != closing:
            return None
        end += 1
    elif (stream := STREAM.match(line, end)) is not None:
        end = stream.end()
    if is_number and TABLE.match(line, end):
        return None
    if (separator := SEPARATOR.match(line, end)) is not None:
        return separator.end()
    is_apart = bool(closing) or end >= len(line) or line[end] in " \t"
    return end if is_apart else None


def time_at(line: str, begin: int) -> tuple[str, float, int] | None:
    """Return form, value and end of the time at a place of a line."""
    if (no_year := NO_YEAR.match(line, begin)) is not None:
        # a leap year has all days
        wall = values.moment(f"{no_year[1]} {no_year[1]} {no_year[2]} {no_year[3].partition(' ')[0]} 1972")
        return None if wall is None else ("no year", wall, no_year.end())
    weekday = WEEKDAY.match(line, begin)
    at = begin if weekday is None else weekday.end()
    dated = values.begins(line[at : at + 80])
    if dated is not None:
        is_iso = line[at + 4 : at + 5] == "-"
        return "ISO" if is_iso else "date", dated[0], at + dated[1]
    clock = TIME_OF_DAY.match(line, begin)
    seconds = None if clock is None else values.of_day(clock[0].upper())
    return None if clock is None or seconds is None else ("clock", seconds, clock.end())


@dataclass(slots=True)
class Stamped:
    """Lines without their times, and the times above them."""

    rows: list[tuple[int, str, bool]] = field(default_factory=list)
    """Number of a line, its text, and whether it is a time that was inserted."""
    remarks: list[Remark] = field(default_factory=list)


def without_times(lines: Sequence[str], tools: Tools, start: float | None) -> Stamped | None:
    """Return the lines without the times before them; None if the text has none."""
    blocks = [block for block in stamped_blocks(lines) if is_output(block, lines, tools)]
    if sum(len(block) for block in blocks) < LEAST:
        return None
    clock = StampClock(start, dates.sysstat_day(lines))
    stamped = Stamped()
    parts: list[list[StampedLine]] = []
    kinds: list[tuple[bool, bool]] = []
    for block in blocks:
        together = list(bursts(block))
        parts += together
        has_own = any(tools.has_time(row.text) for row in block)
        has_head = tools.is_text("\n".join(row.text for row in block))
        kinds += [(has_own, has_head)] * len(together)
    has_fractions = all(block[0].stamp.has_fraction for block in blocks)
    walls = regular([clock.wall(part[0].stamp) for part in parts], JITTER_S if has_fractions else TOGETHER_S)
    done = 0
    head = ""
    for part, wall, (has_own, has_head) in zip(parts, walls, kinds, strict=True):
        needs_head = not has_own and not has_head
        above = range(done + 1, part[0].line)
        if needs_head and above:
            # the head is the line above the block; a format expects it below the time of each report
            head = lines[above[-1] - 1]
            above = above[:-1]
        stamped.rows += ((at, lines[at - 1], False) for at in above)
        if not has_own:
            stamped.rows.append((part[0].line, written(wall), True))
        if needs_head:
            stamped.rows.append((part[0].line, head, True))
        stamped.rows += ((row.line, row.text, False) for row in part)
        done = part[-1].line
    stamped.rows += ((at, lines[at - 1], False) for at in range(done + 1, len(lines) + 1))
    where = TextSpan(parts[0][0].line, parts[-1][-1].line)
    text = f"a time before each of {sum(map(len, parts)):,} lines was taken off, and is the time of what they report"
    stamped.remarks.append(Remark(where, text))
    return stamped


def regular(walls: list[float], jitter_s: float) -> list[float]:
    """Return the times of reports, evenly spaced where they are so but for the jitter of when a line was stamped.

    Rates times a length that is wrong by a second would give counts that are wrong by as much. The last time is
    kept: the program that stamps lines may have started after the first report.
    """
    steps = [later - wall for wall, later in pairwise(walls)]
    if len(steps) < LEAST:
        return walls
    usual = round(median_high(steps), 1)
    near_usual = sum(abs(step - usual) <= jitter_s for step in steps)
    if usual <= 0 or near_usual * 4 < len(steps) * 3:
        return walls
    even = [walls[-1]]
    for wall in reversed(walls[:-1]):
        nominal = even[-1] - usual
        even.append(nominal if abs(nominal - wall) <= jitter_s else wall)
    return even[::-1]


class StampedLine(NamedTuple):
    """Line with a time before it."""

    line: int
    stamp: Stamp
    text: str
    source: str = ""
    """Host and program (syslog, journald)."""


def stamped_blocks(lines: Sequence[str]) -> list[list[StampedLine]]:
    """Return adjacent lines with times of one form, of one program each."""
    blocks: list[list[StampedLine]] = []
    for run in stamped_runs(lines):
        sources = [source_of(lines[number - 1], stamp) for number, stamp in run]
        has_sources = sum(source is not None for source in sources) >= MOST_LINES * len(run)
        for at, ((number, stamp), source) in enumerate(zip(run, sources, strict=True)):
            line = lines[number - 1]
            begin = stamp.end if source is None or not has_sources else source.end()
            begin += line[begin : begin + 1].isspace()
            name = source[0] if source is not None and has_sources else ""
            row = StampedLine(number, stamp, line[begin:], name)
            if at and blocks[-1][-1].source == name:
                blocks[-1].append(row)
            else:
                blocks.append([row])
    return blocks


def stamped_runs(lines: Sequence[str]) -> list[list[tuple[int, Stamp]]]:
    """Return adjacent lines, by their numbers, that have times of one form."""
    runs: list[list[tuple[int, Stamp]]] = []
    for number, line in enumerate(lines, 1):
        stamp = stamp_of(line)
        if stamp is None:
            continue
        last_number, last_stamp = runs[-1][-1] if runs else (0, stamp)
        if last_number == number - 1 and last_stamp.form == stamp.form and runs:
            runs[-1].append((number, stamp))
        else:
            runs.append([(number, stamp)])
    return runs


def source_of(line: str, stamp: Stamp) -> re.Match[str] | None:
    """Return host and program (syslog, journald) behind a time; None without them."""
    return None if line.startswith("[") else SOURCE.match(line, stamp.end)


def line_begin(line: str) -> int:
    """Return where a tool's line begins, behind the time before it; 0 without one."""
    stamp = stamp_of(line)
    if stamp is None:
        return 0
    source = source_of(line, stamp)
    begin = stamp.end if source is None else source.end()
    return begin + line[begin : begin + 1].isspace()


def is_output(block: Sequence[StampedLine], lines: Sequence[str], tools: Tools) -> bool:
    """Return whether a tool printed these lines without the times."""
    if not any(row.text.strip() for row in block):
        return False  # times of the tool's own, each in its line
    if any(tools.has_time(lines[row.line - 1]) for row in block):
        return False
    text = "\n".join(row.text for row in block)
    if tools.is_text(text):
        return True
    # the head may have no time, where a pattern of awk chose the rows
    first = block[0].line - 1
    above = first
    while above > max(0, first - PARAGRAPH) and lines[above - 1].strip():
        above -= 1
    if not block[0].stamp.is_certain or above == first:
        return False
    if block[0].stamp.is_cell and any("," in line for line in lines[above:first]):
        return False  # a CSV
    return tools.is_text("\n".join((*lines[above:first], text)))


def bursts(block: Sequence[StampedLine]) -> Iterator[list[StampedLine]]:
    """Yield the lines that came together.

    Without fractions the lines of a report may have two times, one second apart: a later line belongs to the report
    unless its first word came before in it, as those of heads and of devices do.
    """
    burst: list[StampedLine] = []
    words = set[str]()
    latest = 0.0  # the time of the latest line with text
    is_json = next((row.text for row in block if row.text.strip()), "").startswith("{")
    depth = 0
    for row in block:
        word = row.text.split(maxsplit=1)[0] if row.text.strip() else ""
        passed = row.stamp.wall - latest
        may_begin = bool(words) and bool(word) and depth <= 0 and passed != 0
        if may_begin and is_apart(row, burst, passed, is_known=word in words):
            yield burst
            burst, words = [], set()
        burst.append(row)
        if word:
            words.add(word)
            latest = row.stamp.wall
        if is_json:  # a line between those of a document would damage it
            depth += sum(row.text.count(letter) for letter in "{[") - sum(row.text.count(letter) for letter in "}]")
    yield burst


def is_apart(row: StampedLine, burst: Sequence[StampedLine], passed: float, *, is_known: bool) -> bool:
    """Return whether a line came later than those before it."""
    if row.stamp.has_fraction:
        return not 0 <= passed <= BURST_S
    if not 0 <= passed <= TOGETHER_S:
        return True
    return is_known or not burst[-1].text.strip()


@dataclass(slots=True)
class StampClock:
    """Times of lines as seconds since 1970, or since the first day where the date is not known."""

    start: float | None
    day: float | None
    """Midnight of the day in the text's header."""
    first: float | None = None
    clock: values.Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = values.Clock(None if self.day is not None else self.start)
        if self.day is not None:
            self.clock.day = self.day
            self.clock.before = 0.0

    def wall(self, stamp: Stamp) -> float:
        """Return the time of a line."""
        if stamp.has_year:
            return stamp.wall
        if not stamp.has_date:
            text = time_of_day(stamp.wall)
            return self.clock.wall(text) or 0.0
        known = self.day if self.day is not None else self.start
        if known is not None:
            return near(stamp.wall, known)
        seconds = stamp.wall
        self.first = seconds - seconds % dates.DAY_S if self.first is None else self.first
        return seconds - self.first if seconds >= self.first else seconds - self.first + 366 * dates.DAY_S


def near(wall: float, known: float) -> float:
    """Return a time of 1972 in the year in which it is nearest to a known one."""
    date = datetime.fromtimestamp(wall, UTC)
    year = datetime.fromtimestamp(known, UTC).year
    times = []
    for number in (year - 1, year, year + 1):
        try:
            times.append(date.replace(year=number).timestamp())
        except ValueError:
            continue  # February 29
    return min(times, key=lambda time: abs(time - known))


def time_of_day(seconds: float) -> str:
    """Return seconds since midnight as a time of day."""
    minutes, second = divmod(seconds, 60)
    return f"{int(minutes) // 60:02}:{int(minutes) % 60:02}:{second:09.6f}"


def written(wall: float) -> str:
    """Return a time as a line that every format reads."""
    return f"{datetime.fromtimestamp(round(wall, 6), UTC):%Y-%m-%d %H:%M:%S.%f}"
