"""`latmon check`: prints the contents and damages of a recording; --repair writes a clean copy.

`survey` reads the recording once; `Survey` has what it contains and every damage, and both are printed in words.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from latmon.capture import target
from latmon.model.frame import Frame, Mark, Origin
from latmon.recording.codec import FORMAT, Gap
from latmon.recording.members import is_written
from latmon.recording.reader import Recording, open_recording, opened
from latmon.recording.rollup import KIND
from latmon.recording.scan import CleanCopy, Damage, Passages, ScannedLine
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, EXIT_UNREADABLE, RecordingError
from latmon.support.streams import STANDARD, copy_out, named
from latmon.support.text import clean
from latmon.support.units import show_size


def check_command(path: Path, copy_to: Path | None = None) -> int:
    """Print what FILE is and its damages; return the exit code. Raises RecordingError when there is nothing to read."""
    recording = open_recording(path)
    if copy_to == STANDARD:
        return _repair_to_stdout(recording)
    found, passages = survey(recording) if copy_to is None else repair(recording, copy_to)
    lines = reported(path, found, passages)
    if copy_to is None:
        lines.append(verdict(path, found, passages))
    else:
        lines.append(f"copied   {found.windows} windows to {named(copy_to)}: the copy is clean")
    _print(lines)
    return EXIT_DONE if found.clean or copy_to is not None else EXIT_UNREADABLE


def survey(recording: Recording, write: Callable[[bytes], object] | None = None) -> tuple[Survey, Passages]:
    """Read a whole recording; pass a clean copy of it to `write`."""
    found = Survey(recording.origin)
    with opened(recording.path) as file:
        passages = Passages(file, recording.origin, live=is_written(file), headless=recording.headless)
        clean = None if write is None else CleanCopy(write, recording.origin, headless=recording.headless)
        with streams.Progress(f"checking {named(recording.path)}") as progress:
            for passage in passages:
                progress(passages.place, passages.size)
                found.add(passage)
                if clean is not None:
                    clean.add(passage)
        if clean is not None:
            clean.finish()
    return found, passages


def repair(recording: Recording, copy_to: Path) -> tuple[Survey, Passages]:
    """Write a clean copy to a new file and check it. Raises UnavailableError without leaving a file behind."""
    with streams.whole(copy_to) as file:
        found, passages = survey(recording, file.write)
        file.flush()
        copied, _ = survey(open_recording(copy_to))
        if not copied.clean or copied.windows != found.windows:
            why = copied.damages[0].what if copied.damages else f"{copied.windows} of {found.windows} windows"
            raise RecordingError(f"the copy of {named(recording.path)} was not clean and was removed: {why}")
    return found, passages


def _repair_to_stdout(recording: Recording) -> int:
    """Write a clean copy to stdout after checking it, and the survey to stderr; return the exit code."""
    target.refuse(STANDARD)
    with tempfile.TemporaryDirectory(prefix="latmon-") as directory:
        copy = Path(directory) / "copy"
        found, passages = repair(recording, copy)
        print("\n".join(reported(recording.path, found, passages)), file=sys.stderr)
        copy_out(copy)
    return EXIT_DONE


def _print(lines: list[str]) -> None:
    """Print lines, with escapes for characters that the terminal can't encode."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace").decode(encoding))


MAX_DAMAGES = 1000
_MAX_KINDS = 20
_KNOWN = frozenset({"header", KIND})


@dataclass(slots=True)
class Survey:
    """Counters of a recording, fed with all passages of its file in their order."""

    origin: Origin
    windows: int = 0
    marks: int = 0
    gaps: int = 0
    gap_seconds: float = 0.0
    late: int = 0
    """Wide windows that were read late."""
    first_wall: float | None = None
    last_wall: float = 0.0
    covered_us: int = 0
    later: Counter[str] = field(default_factory=Counter)
    """Lines of a later version, by their type."""
    damages: list[Damage] = field(default_factory=list)
    damaged: int = 0
    lost_us: int = 0
    unknown_loss: bool = False
    all_mild: bool = True

    @property
    def clean(self) -> bool:
        return not self.damaged

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

    def _gap(self, seconds: float) -> None:
        self.gaps += 1
        self.gap_seconds += seconds

    def _damage(self, damage: Damage) -> None:
        self.damaged += 1
        self.all_mild = self.all_mild and damage.mild
        self.lost_us += damage.lost_us or 0
        self.unknown_loss = self.unknown_loss or damage.lost_us is None
        if len(self.damages) < MAX_DAMAGES or damage.mild:
            self.damages.append(damage)


_SENTENCE = 300


def reported(path: Path, found: Survey, passages: Passages) -> list[str]:
    """Return what the file is, then its damages in the order of their places."""
    origin = found.origin
    by = ", ".join(word for word in (origin.backend, origin.tool, origin.tier and f"tier {origin.tier}") if word)
    rows = (
        ("file", f"{named(path)}, a recording of latmon {origin.latmon}, format {FORMAT[0]}.x"),
        ("host", f"{origin.host}, kernel {origin.kernel}"),
        ("backend", by),
        ("from", stamp(found.first_wall) if found.first_wall is not None else "no window"),
        ("to", stamp(found.last_wall) if found.windows else ""),
        ("windows", ", ".join(_windows(found))),
        ("size", f"{passages.size} bytes ({show_size(passages.size)}) in {_many(passages.members, 'member')}"),
        ("closed", _closed(passages)),
    )
    head = [f"{name:<8} {clean(text, _SENTENCE)}" for name, text in rows if text]
    damages = sorted(found.damages, key=lambda one: (one.at, one.line))
    left_out = found.damaged - len(damages)
    more = [f"damage   and {left_out} more damaged places"] if left_out else []
    return [*head, *(f"damage   {clean(_damage(one), _SENTENCE)}" for one in damages), *more]


def verdict(path: Path, found: Survey, passages: Passages) -> str:
    """Return the last line: clean or not, and what to do."""
    if found.clean:
        still = " so far: a live latmon is writing it" if passages.live else ""
        return f"clean    everything in it can be read{still}"
    if all(one.mild for one in found.damages):
        lost = "every complete window can be read"
    elif found.lost_us or not found.unknown_loss:
        lost = f"{_seconds(found.lost_us)} lost{' and more of unknown length' if found.unknown_loss else ''}"
    else:
        lost = "how much is lost is unknown"
    remedy = f"`latmon check {named(path)} --repair -o OUT` writes a clean copy"
    return f"damaged  {_many(found.damaged, 'place')}, {lost}; {remedy}"


def stamp(wall: float) -> str:
    """Return UTC to the millisecond."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _damage(one: Damage) -> str:
    when = f" ({stamp(one.wall)})" if one.wall else ""
    lost = "; the loss is unknown" if one.lost_us is None else ""
    lost = f"; {_seconds(one.lost_us)} lost" if one.lost_us else lost
    place = f"byte {one.at}, line {one.line} of the member there" if one.line else f"byte {one.at}"
    return f"{place}{when}: {one.what}{lost}"


def _windows(found: Survey) -> Iterator[str]:
    yield f"{found.windows}, {found.covered_us / 1e6:g} s in all"
    if found.gaps:
        yield f"{_many(found.gaps, 'gap')} of {found.gap_seconds:g} s in all"
    if found.late:
        yield f"{found.late} read late"
    if found.marks:
        yield _many(found.marks, "mark")
    if found.later:
        kinds = ", ".join(kind or "no type" for kind in found.later)
        yield f"{_many(found.later.total(), 'line')} that a later version added ({kinds})"


def _closed(passages: Passages) -> str:
    if passages.ended is not None:
        return f"yes ({passages.ended.reason})" if passages.ended.reason else "yes"
    return "not yet: a live latmon is writing it" if passages.live else "no"


def _seconds(us: int) -> str:
    return f"{us / 1e6:.3f}".rstrip("0").rstrip(".") + " s"


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"
