"""`latmon check`: prints the contents and damages of recordings; --repair writes a clean copy.

`survey` reads the recording once; its `CheckReport` has what the file contains and every damage, of which the text is
made. `PartsReport` is about several files together.

The scan follows the reader step by step, so that a file without damage here is read whole there: every line with its
place, every damage, roll-ups against their windows. A damage is yielded right before the next window, when it is known
how much time is missing. A roll-up whose minute is damaged is no damage of its own: readers notice that it doesn't fit.
`CleanCopy` is the repair.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from latmon.capture import target
from latmon.model.frame import Flow, Frame, Mark, Origin
from latmon.model.measurements import DEVICE_COUNTERS, ERRORS, FAILED_BY, LATENCIES, TABLES
from latmon.model.measurements.errors import FailedIO
from latmon.model.packed import Packed
from latmon.model.packed_frame import pack
from latmon.recording import codec, members
from latmon.recording.codec import FORMAT, End, Gap
from latmon.recording.items import MAX_LINES, Item, item_behind, lines_of
from latmon.recording.json_line import parse
from latmon.recording.members import GIVEN_UP, MemberPart, Members, head_of, is_written, unpack
from latmon.recording.parts import Parts, is_empty, open_parts
from latmon.recording.read_position import ReadPosition, admit
from latmon.recording.reader import UNCLOSED, Recording, open_recording, opened
from latmon.recording.rollup import KIND, MAX_MARKS, decode_minute, lacks_threshold_ranges
from latmon.recording.writer import Rolling, kernel_marks
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, EXIT_UNREADABLE, RecordingError
from latmon.support.streams import STANDARD, copy_out, named
from latmon.support.text import clean
from latmon.support.units import show_size

MAX_DAMAGES = 1000
"""Damages that are listed; further ones are counted."""
_MAX_KINDS = 20
_KNOWN = frozenset({"header", KIND})
_SENTENCE = 300
"""Characters of a line."""
WRONG = "the roll-up of a minute is not the sum of its windows: reports that use it would be wrong"
_PATIENCE = 128 * 1024 * 1024
_LOOKS = 2
"""Most readings of all of a damaged file, beside `_PATIENCE` bytes: each head with a wrong length costs a search."""
_MEMBER_BYTES = 4 * 1024 * 1024
"""The longest member of a writer: a longer text has no roll-up."""
_HOUR_US = 3_600_000_000
"""A damaged head's stamps are not covered by any sum: a longer loss is ignored."""
_JITTER_US = 1000
_TO = ", to byte "
HEADLESS = "its header can't be read: host and stages are unknown"
_COARSE = tuple(table for table in TABLES if table.histogram_places and table is not LATENCIES)
"""Tables with histograms whose buckets may be octaves."""
DAMAGED = "damaged"
REPAIRED = "repaired"


class RollUpCheck:
    """Check of roll-ups, fed with every readable part in their order; returns the byte of one that is wrong."""

    def __init__(self) -> None:
        self._rolling = Rolling()
        self._roll_up: MemberPart | None = None

    def hold(self, roll_up: MemberPart) -> None:
        """Keep a roll-up until the next windows show whether its minute is over."""
        self._roll_up = roll_up

    def took(
        self, part: MemberPart, windows: Sequence[Frame], marks: Sequence[Mark] = (), *, plain: bool
    ) -> int | None:
        """Return the place of a wrong roll-up before this part; None if there is none."""
        roll_up, self._roll_up = self._roll_up, None
        due = self._rolling.due(windows, part.begin if roll_up is None else roll_up.begin)
        self._rolling.took(windows, part.begin, marks, plain=plain)
        return roll_up.begin if roll_up is not None and due and not _same(roll_up, due) else None

    def missed(self) -> None:
        """Note that something can't be read here."""
        self._roll_up = None
        self._rolling.missed()


def _same(written: MemberPart, written_again: bytes) -> bool:
    text = unpack(written_again)
    has_head = head_of(written_again[:64]) == _with_length(written, len(written_again))
    if has_head and text == written.text:
        return True
    try:
        line = parse(written.text)
        if lacks_threshold_ranges(line):
            return True
        reported = decode_minute(line)
    except RecordingError:
        return False
    return has_head and reported == decode_minute(parse(text))


def _with_length(written: MemberPart, length: int) -> object:
    """Return its head with the length of the one made now: a later version's line may have more keys."""
    return None if written.head is None else written.head._replace(length=length)


@dataclass(frozen=True, slots=True)
class ScannedLine:
    """Line that can be read. Without an `item`, `kind` is the type: a header or what a later version added."""

    part: MemberPart
    raw: bytes
    item: Item | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Damage:
    """Place, description and lost time after `mono_us`; None where that is unknown."""

    at: int
    what: str
    lost_us: int | None = 0
    mono_us: int = 0
    wall: float = 0.0
    mild: bool = False
    """Whether the damage lost no readable line."""
    line: int = 0
    """Number of the line in the member at that place; 0: the whole member."""


class Passages:
    """Lines and damages of a file, iterated once. `members` counts whole ones; `ended` is a closing line at the end."""

    def __init__(self, file: BinaryIO, origin: Origin, *, live: bool, headless: bool) -> None:
        self.size = os.fstat(file.fileno()).st_size
        self.members = self.place = 0
        self.ended: End | None = None
        self._file, self.live, self._headless = file, live, headless
        self._position = ReadPosition()
        self._mono_us, self._wall = origin.start_mono_us, origin.start_wall
        self._reported_us = 0
        self._open: Damage | None = None
        self._until = 0
        self._claimed_us = 0
        self._windows = 0
        self._roll_ups = RollUpCheck()
        self._imported = origin.is_imported

    def __iter__(self) -> Iterator[ScannedLine | Damage]:
        if self._headless:
            yield Damage(0, HEADLESS)
        for part in Members(self._file, _ignored, _PATIENCE + _LOOKS * self.size).parts():
            if part.begin >= self.size or (self.live and part.damage and part.end >= self.size):
                break  # a live latmon is about to write it
            self.place = part.end
            if part.damage:
                yield from self._damaged(part)
            else:
                self.members += 1
                yield from self._lines(part)
        if self._open is not None:
            yield self._close_damage(self._tail_stamp())
        if self.ended is None and not self.live:
            yield Damage(self.size, UNCLOSED, 0, self._mono_us, self._wall, mild=True)

    def _damaged(self, part: MemberPart) -> Iterator[Damage]:
        """Merge adjacent damages into one; the first one before a window counts the time that all of them lost."""
        self._roll_ups.missed()
        if part.head is not None:
            self._claimed_us = max(self._claimed_us, part.head.last_us)
        if part.damage.startswith(GIVEN_UP):
            yield Damage(part.begin, part.damage, None, self._mono_us, self._wall)
        elif self._open is not None and self._until == part.begin:
            self._open = replace(self._open, what=f"{self._open.what.partition(_TO)[0]}{_TO}{part.end - 1}")
            self._until = part.end
        else:
            if self._open is None:
                self._until = part.end
            yield from self._note(part.begin, f"{part.damage}{_TO}{part.end - 1}")

    def _note(self, at: int, what: str, line: int = 0) -> Iterator[Damage]:
        damage = Damage(at, what, 0, self._mono_us, self._wall, line=line)
        if self._open is None:
            self._open = damage
        else:
            yield damage

    def _lines(self, part: MemberPart) -> Iterator[ScannedLine | Damage]:
        surplus: list[str] = []
        windows: list[Frame] = []
        marks: list[Mark] = []
        others = 0
        for number, raw in enumerate(lines_of(part.text, surplus.append), 1):
            try:
                line = self._line(part, raw)
            except RecordingError as refusal:
                self._roll_ups.missed()
                yield from self._note(part.begin, str(refusal), number)
                continue
            if self._position.is_foreign:
                continue
            if isinstance(line.item, Frame):
                if self._open is not None:
                    yield self._close_damage(line.item.mono_us - line.item.dt_us)
                if len(part.text) > _MEMBER_BYTES:
                    del windows[1:]  # no roll-up can need those between
                windows.append(line.item)
                self._mono_us, self._wall, self._reported_us = line.item.mono_us, line.item.wall, 0
            kept = kernel_marks((line.item,)) if len(marks) <= MAX_MARKS else []
            marks += kept
            others += not kept and not isinstance(line.item, Frame)
            yield line
            if isinstance(line.item, End):
                yield from self._counted(part, line.item)
        if surplus:
            yield from self._note(part.begin, f"more than {MAX_LINES} lines in one member: the rest is not read")
        yield from self._check_sums(part, windows, marks, others)

    def _check_sums(
        self, part: MemberPart, windows: Sequence[Frame], marks: Sequence[Mark], others: int
    ) -> Iterator[Damage]:
        """Check stamps against windows, and a roll-up against its windows."""
        if self._position.is_foreign:
            self._roll_ups.missed()
            return
        if windows and part.head is not None:
            if (part.head.first_us, part.head.last_us) != (windows[0].mono_us, windows[-1].mono_us):
                what = "its stamps are not those of its windows: a seek may miss them"
                yield Damage(part.begin, what, 0, self._mono_us, self._wall)
        elif part.head is not None and part.head.stands_for:
            self._roll_ups.hold(part)
            return
        plain = not others and len(part.text) <= _MEMBER_BYTES
        if (wrong := self._roll_ups.took(part, windows, marks, plain=plain)) is not None:
            yield Damage(wrong, WRONG, 0, self._mono_us, self._wall, mild=True)

    def _line(self, part: MemberPart, raw: bytes) -> ScannedLine:
        """Return a line's value; RecordingError for one that readers refuse."""
        item, kind = line_of(raw, self._position, imported=self._imported)
        if self._position.is_foreign:
            return ScannedLine(part, raw, item, kind)
        self._windows += isinstance(item, Frame)
        if isinstance(item, Gap):
            self._reported_us += round(item.seconds * 1e6)
        if item is not None or kind == "header":
            self.ended = item if isinstance(item, End) else None
        return ScannedLine(part, raw, item, kind)

    def _counted(self, part: MemberPart, end: End) -> Iterator[Damage]:
        """Compare a closing line's count with the windows since the one before it."""
        windows, self._windows = self._windows, 0
        if end.windows != windows:
            what = f"the closing line counts {end.windows} windows, and {windows} can be read"
            yield Damage(part.begin, what, 0, self._mono_us, self._wall, mild=True)

    def _close_damage(self, begins_us: int | None) -> Damage:
        """Close the open damage with the time from the last window to the begin of the next one."""
        damage = self._open or Damage(0, "")
        self._open, self._until, self._claimed_us = None, 0, 0
        if begins_us is None:
            return replace(damage, lost_us=None)
        # a file without header and without a window before has no time to begin at
        has_begin = damage.mono_us > 0 or not self._headless
        lost_us = begins_us - damage.mono_us - self._reported_us if has_begin else 0
        return replace(damage, lost_us=lost_us if lost_us >= _JITTER_US else 0)

    def _tail_stamp(self) -> int | None:
        """Return the last stamp in the head of a damaged tail, if it is credible."""
        return self._claimed_us if 0 < self._claimed_us - self._mono_us <= _HOUR_US else None


def line_of(raw: bytes, position: ReadPosition, *, imported: bool) -> tuple[Item | None, str]:
    """Return a line's value, and its type where readers pass over it; RecordingError for a line that can't be true.

    `imported`: sums and maxima are another tool's, whose buckets were moved to ours: they are not compared.
    """
    item = item_behind(raw, position)
    _require_keys_once(raw)
    if isinstance(item, Frame) and not position.is_foreign:
        admit(item, position)
        if not imported:
            _compare(item)
    return item, "" if item is not None else _kind(raw)


def _require_keys_once(raw: bytes) -> None:
    """Raise RecordingError where an object has a key twice, of which readers take the last value.

    Readers don't look: that would double the time for a line.
    """
    json.loads(raw, object_pairs_hook=_once_each)


def _once_each(pairs: list[tuple[str, object]]) -> None:
    keys = {key for key, _ in pairs}
    if len(keys) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise RecordingError(f"a line has the key {clean(twice, 40)!r} twice")


def _compare(frame: Frame) -> None:
    """Raise RecordingError where a sum or a maximum contradicts the buckets beside it."""
    if contradiction := Packed.of(frame.histograms).contradiction():
        raise RecordingError(f"{' '.join(contradiction[0])} has {contradiction[1]}")
    for table, rows in pack(frame, _COARSE).tables.items():
        for histograms in rows.histograms.values():
            if contradiction := histograms.contradiction(coarse=True):
                raise RecordingError(f"{table.row_title} has {contradiction[1]}")
    _compare_counts(frame)


_TIMES, _IOS, _US = 2, 100, 1_000_000
"""Counters of one interval are read at different times: only what is far more than the others is wrong."""


def _compare_counts(frame: Frame) -> None:
    """Raise RecordingError where more I/Os failed than were seen, or a device was active for longer than the time.

    The failed I/Os by cgroup are of the same reading as those in all, and can't be more.
    """
    failed: Counter[Flow] = Counter()
    by_cgroup: Counter[FailedIO] = Counter()
    for of_cgroup, ios in frame[FAILED_BY].items():
        by_cgroup[FailedIO(of_cgroup.device, of_cgroup.op, of_cgroup.status)] += ios
    for of_device, ios in by_cgroup.items():
        if ios > frame[ERRORS].get(of_device, 0):
            raise RecordingError(f"{of_device.device} {of_device.op} has more failed I/Os of cgroups than failed ones")
    for row, ios in frame[ERRORS].items():
        failed[Flow(row.device, row.op)] += ios
    for flow, ios in failed.items():
        done = frame.seen.get(flow)
        if ios > _TIMES * (done.count if done else 0) + _IOS:
            raise RecordingError(f"{flow.device} {flow.op} has more failed I/Os than completed ones")
    for device, counters in frame[DEVICE_COUNTERS].items():
        if (counters.active_us or 0) > _TIMES * frame.dt_us + _US:
            raise RecordingError(f"{device} has I/O for longer than its window")


def _kind(raw: bytes) -> str:
    """Return the type of a line without a decoder; RecordingError for a header that can't be used."""
    value = parse(raw)
    kind = value.get("type")
    if kind == "header":
        codec.decode_origin(value)
        codec.decode_devices(value)
    if kind == KIND:
        decode_minute(value)
    return clean(kind) if isinstance(kind, str) else ""


def _ignored(_: str) -> None:
    """Ignore damage that Members also yields in its place."""


class CleanCopy:
    """Writer of whole members from all passages of a file in their order; `write` gets the bytes."""

    def __init__(self, write: Callable[[bytes], object], origin: Origin, *, headless: bool) -> None:
        self._write = write
        self._pending: list[bytes] = []
        self._bytes = 0
        self._begin = 0
        self._frames: list[Frame] = []
        self._marks: list[Mark] = []
        self._end = 0
        self._rolling = Rolling()
        self._mono_us = origin.start_mono_us
        self._closing: tuple[ScannedLine, bool] | None = None
        self._since_end = 0
        self._damaged = headless
        self.windows = self.gaps = 0
        if headless:
            self._put(codec.to_bytes(codec.encode_origin(origin)), None)
            self._flush()

    def add(self, passage: ScannedLine | Damage) -> None:
        if isinstance(passage, Damage):
            self._damaged = True
            if passage.lost_us:
                self.gaps += 1
                gap = Gap(DAMAGED, passage.lost_us / 1e6, passage.mono_us, passage.wall)
                self._keep_closing()
                self._put(codec.to_bytes(codec.encode_note(gap)), None)
            return
        self._keep_closing()
        if passage.kind == KIND:
            return  # it is made again from the windows that are left
        if passage.part.begin != self._begin:
            self._flush()
            self._begin = passage.part.begin
        if isinstance(passage.item, End):
            self._closing = passage, passage.item.windows == self._since_end
            return
        raw = passage.raw if passage.raw.endswith(b"\n") else passage.raw + b"\n"
        self._put(raw, passage.item if isinstance(passage.item, Frame) else None)
        self._marks += kernel_marks((passage.item,))

    def finish(self) -> None:
        """Close it; its own closing line is kept if nothing was damaged."""
        if self._closing is not None and self._closing[1] and not self._damaged:
            self._keep_closing()
        else:
            self._flush()
            self._put(codec.to_bytes(codec.encode_note(End(REPAIRED, self._since_end))), None)
        self._flush()

    def _keep_closing(self) -> None:
        """Keep a closing line that isn't the last if its count is right: two recordings in one file."""
        closing, self._closing = self._closing, None
        if closing is not None and closing[1]:
            self._put(closing[0].raw.rstrip(b"\n") + b"\n", None)
            self._since_end = 0

    def _put(self, raw: bytes, frame: Frame | None) -> None:
        if self._bytes + len(raw) > _MEMBER_BYTES or len(self._pending) >= MAX_LINES:
            self._flush()
        self._pending.append(raw)
        self._bytes += len(raw)
        if frame is not None:
            self.windows += 1
            self._since_end += 1
            self._mono_us = frame.mono_us
            self._frames.append(frame)

    def _flush(self) -> None:
        if not self._pending:
            return
        first_us = self._frames[0].mono_us if self._frames else self._mono_us
        roll_up = self._rolling.due(self._frames, self._end)
        member = members.pack(b"".join(self._pending), first_us, self._mono_us)
        self._write(roll_up + member)
        plain = len(self._frames) + len(self._marks) == len(self._pending)
        self._rolling.took(self._frames, self._end + len(roll_up), self._marks, plain=plain)
        self._end += len(roll_up) + len(member)
        self._pending, self._bytes, self._frames, self._marks = [], 0, [], []


def check_command(paths: Sequence[Path], copy_to: Path | None = None) -> int:
    """Print what each FILE is and its damages, and of several whether they are one capture; return the exit code.

    Raises RecordingError when there is nothing to read in the only one.
    """
    if len(paths) == 1:
        return _check_file(paths[0], copy_to)
    are_clean = True
    for path in paths:
        part = _check_part(path)
        _print([*text_of(part), ""])
        are_clean = are_clean and part.clean
    parts = _parts(paths)
    _print([_parts_line(parts)])
    return EXIT_DONE if are_clean and not parts.missing else EXIT_UNREADABLE


def _check_file(path: Path, copy_to: Path | None) -> int:
    """Print what the only file is and its damages, or write a clean copy of it; return the exit code."""
    recording = open_recording(path)
    if copy_to == STANDARD:
        return _repair_to_stdout(recording)
    if copy_to is None:
        report = survey(recording)
        _print(text_of(report))
        return EXIT_DONE if report.clean else EXIT_UNREADABLE
    report = repair(recording, copy_to)
    _print([*contents(report), f"copied   {report.windows} windows to {named(copy_to)}: the copy is clean"])
    return EXIT_DONE


def _check_part(path: Path) -> CheckReport | UnreadPart:
    """Return the report of one of several files."""
    if is_empty(path):
        return UnreadPart(path)
    try:
        return survey(open_recording(path))
    except RecordingError as refusal:
        return UnreadPart(path, str(refusal))


def _parts(paths: Sequence[Path]) -> PartsReport:
    """Return the report of several files together.

    Files that are not parts of one capture are no damage: `check` reads each by itself.
    """
    try:
        joined = open_parts(paths)
    except RecordingError as refusal:
        return PartsReport(refusal=str(refusal))
    return PartsReport(len(joined.parts), tuple(joined.missing)) if isinstance(joined, Parts) else PartsReport()


def survey(recording: Recording, write: Callable[[bytes], object] | None = None) -> CheckReport:
    """Read a whole recording; pass a clean copy of it to `write`."""
    counters = _Survey()
    with opened(recording.path) as file:
        passages = Passages(file, recording.origin, live=is_written(file), headless=recording.headless)
        clean = None if write is None else CleanCopy(write, recording.origin, headless=recording.headless)
        with streams.Progress(f"checking {named(recording.path)}") as progress:
            for passage in passages:
                progress(passages.place, passages.size)
                counters.add(passage)
                if clean is not None:
                    clean.add(passage)
        if clean is not None:
            clean.finish()
    return counters.report(recording, passages)


def repair(recording: Recording, copy_to: Path) -> CheckReport:
    """Write a clean copy to a new file and check it. Raises UnavailableError without leaving a file behind."""
    with streams.whole(copy_to) as file:
        report = survey(recording, file.write)
        file.flush()
        copied = survey(open_recording(copy_to))
        if not copied.clean or copied.windows != report.windows:
            why = copied.damages[0].what if copied.damages else f"{copied.windows} of {report.windows} windows"
            raise RecordingError(f"the copy of {named(recording.path)} was not clean and was removed: {why}")
    return report


def _repair_to_stdout(recording: Recording) -> int:
    """Write a clean copy to stdout after checking it, and the survey to stderr; return the exit code."""
    target.refuse(STANDARD)
    with tempfile.TemporaryDirectory(prefix="latmon-") as directory:
        copy = Path(directory) / "copy"
        report = repair(recording, copy)
        with contextlib.suppress(OSError):  # where stderr is full, the copy is not lost
            print("\n".join(contents(report)), file=sys.stderr, flush=True)
        copy_out(copy)
    return EXIT_DONE


def _print(lines: list[str]) -> None:
    """Print lines, with escapes for characters that the terminal can't encode."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace").decode(encoding))


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Contents of a recording, and its damages."""

    path: Path
    origin: Origin
    size: int
    """Bytes of the file."""
    members: int
    """Whole gzip members."""
    ended: End | None
    """Closing line at the end."""
    live: bool
    """Whether a live latmon is writing it."""
    windows: int
    covered_us: int
    """Length of all windows."""
    first_wall: float | None
    """Unix time in s of the beginning of the first window; None without windows."""
    last_wall: float
    """Unix time in s of the end of the last window."""
    gaps: int
    gap_seconds: float
    late: int
    """Wide windows that were read late."""
    marks: int
    later: Mapping[str, int]
    """Lines of a later version, by their type; those without a known type under an empty name."""
    damages: tuple[Damage, ...]
    """In the order of their places; at most MAX_DAMAGES of those that lost something."""
    damaged: int
    """All damages."""
    lost_us: int
    """Known time that was lost."""
    unknown_loss: bool
    """Whether more is lost, of unknown length."""

    @property
    def clean(self) -> bool:
        return not self.damaged


@dataclass(frozen=True)
class UnreadPart:
    """One of several files that is empty, or in which nothing can be read."""

    path: Path
    refusal: str = ""
    """Why nothing can be read; empty: the file is empty, which is no damage."""

    @property
    def clean(self) -> bool:
        return not self.refusal


@dataclass(frozen=True)
class PartsReport:
    """Whether several files are the parts of one capture."""

    parts: int = 0
    """Number of the parts of the capture; 0: all files but one are empty."""
    missing: tuple[str, ...] = ()
    """A clause for each place where parts are missing between two of them."""
    refusal: str = ""
    """Why they are not of one capture."""


@dataclass(slots=True)
class _Survey:
    """Counters of a recording, fed with all passages of its file in their order."""

    windows: int = 0
    marks: int = 0
    gaps: int = 0
    gap_seconds: float = 0.0
    late: int = 0
    first_wall: float | None = None
    last_wall: float = 0.0
    covered_us: int = 0
    later: Counter[str] = field(default_factory=Counter)
    damages: list[Damage] = field(default_factory=list)
    damaged: int = 0
    lost_us: int = 0
    unknown_loss: bool = False

    def add(self, passage: ScannedLine | Damage) -> None:
        if isinstance(passage, Damage):
            self._damage(passage)
            return
        item = passage.item
        if isinstance(item, Frame):
            self.windows += 1
            self.covered_us += item.dt_us
            if self.first_wall is None:
                self.first_wall = max(0.0, item.wall - item.dt_us / 1e6)
            self.last_wall = item.wall
            if item.gap:
                self._gap(item.dt_us / 1e6)
            self.late += item.late
        elif isinstance(item, Gap):
            self._gap(item.seconds)
        elif isinstance(item, Mark):
            self.marks += 1
        elif item is None and passage.kind not in _KNOWN:
            known = passage.kind in self.later or len(self.later) < _MAX_KINDS
            self.later[passage.kind if known else ""] += 1

    def report(self, recording: Recording, passages: Passages) -> CheckReport:
        """Return what was counted, after all passages."""
        return CheckReport(
            path=recording.path,
            origin=recording.origin,
            size=passages.size,
            members=passages.members,
            ended=passages.ended,
            live=passages.live,
            windows=self.windows,
            covered_us=self.covered_us,
            first_wall=self.first_wall,
            last_wall=self.last_wall,
            gaps=self.gaps,
            gap_seconds=self.gap_seconds,
            late=self.late,
            marks=self.marks,
            later=dict(self.later),
            damages=tuple(sorted(self.damages, key=lambda damage: (damage.at, damage.line))),
            damaged=self.damaged,
            lost_us=self.lost_us,
            unknown_loss=self.unknown_loss,
        )

    def _gap(self, seconds: float) -> None:
        self.gaps += 1
        self.gap_seconds += seconds

    def _damage(self, damage: Damage) -> None:
        self.damaged += 1
        self.lost_us += damage.lost_us or 0
        self.unknown_loss = self.unknown_loss or damage.lost_us is None
        if len(self.damages) < MAX_DAMAGES or damage.mild:
            self.damages.append(damage)


def text_of(report: CheckReport | UnreadPart) -> list[str]:
    """Return the lines on a file: what it is, its damages, and whether it is clean."""
    if isinstance(report, CheckReport):
        return [*contents(report), _verdict(report)]
    empty = "clean    empty: latmon ended as it began this part, and nothing is lost"
    return [
        f"file     {named(report.path)}",
        f"damaged  {clean(report.refusal, _SENTENCE)}" if report.refusal else empty,
    ]


def contents(report: CheckReport) -> list[str]:
    """Return what the file is, then its damages in the order of their places."""
    origin = report.origin
    by = ", ".join(word for word in (origin.backend, origin.tool, origin.tier and f"tier {origin.tier}") if word)
    rows = (
        ("file", f"{named(report.path)}, a recording of latmon {origin.latmon}, format {FORMAT[0]}.x"),
        ("host", f"{origin.host}, kernel {origin.kernel}"),
        ("backend", by),
        ("from", stamp(report.first_wall) if report.first_wall is not None else "no window"),
        ("to", stamp(report.last_wall) if report.windows else ""),
        ("windows", ", ".join(_windows(report))),
        ("size", f"{report.size} bytes ({show_size(report.size)}) in {_many(report.members, 'member')}"),
        ("closed", _closed(report)),
    )
    head = [f"{name:<8} {clean(text, _SENTENCE)}" for name, text in rows if text]
    left_out = report.damaged - len(report.damages)
    more = [f"damage   and {left_out} more damaged places"] if left_out else []
    return [*head, *(f"damage   {clean(_damage(damage), _SENTENCE)}" for damage in report.damages), *more]


def _verdict(report: CheckReport) -> str:
    """Return the last line: clean or not, and what to do."""
    if report.clean:
        still = " so far: a live latmon is writing it" if report.live else ""
        return f"clean    everything in it can be read{still}"
    if all(damage.mild for damage in report.damages):
        lost = "every complete window can be read"
    elif report.lost_us or not report.unknown_loss:
        lost = f"{_seconds(report.lost_us)} lost{' and more of unknown length' if report.unknown_loss else ''}"
    else:
        lost = "how much is lost is unknown"
    remedy = f"`latmon check {named(report.path)} --repair -o OUT` writes a clean copy"
    return f"damaged  {_many(report.damaged, 'place')}, {lost}; {remedy}"


def _parts_line(report: PartsReport) -> str:
    """Return the line on several files together."""
    if report.refusal:
        return f"parts    not one capture: {clean(report.refusal, _SENTENCE)}"
    if not report.parts:
        return "parts    1, and empty ones"
    about = clean("; ".join(report.missing), _SENTENCE) if report.missing else "none is missing between them"
    return f"parts    {report.parts} of one capture; {about}"


def stamp(wall: float) -> str:
    """Return UTC to the millisecond."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _damage(damage: Damage) -> str:
    when = f" ({stamp(damage.wall)})" if damage.wall else ""
    lost = "; the loss is unknown" if damage.lost_us is None else ""
    lost = f"; {_seconds(damage.lost_us)} lost" if damage.lost_us else lost
    place = f"byte {damage.at}, line {damage.line} of the member there" if damage.line else f"byte {damage.at}"
    return f"{place}{when}: {damage.what}{lost}"


def _windows(report: CheckReport) -> Iterator[str]:
    yield f"{report.windows}, {report.covered_us / 1e6:g} s in all"
    if report.gaps:
        yield f"{_many(report.gaps, 'gap')} of {report.gap_seconds:g} s in all"
    if report.late:
        yield f"{report.late} read late"
    if report.marks:
        yield _many(report.marks, "mark")
    if report.later:
        kinds = ", ".join(kind or "no type" for kind in report.later)
        yield f"{_many(sum(report.later.values()), 'line')} that a later version added ({kinds})"


def _closed(report: CheckReport) -> str:
    if report.ended is not None:
        return f"yes ({report.ended.reason})" if report.ended.reason else "yes"
    return "not yet: a live latmon is writing it" if report.live else "no"


def _seconds(us: int) -> str:
    return f"{us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"
