"""Programs that sleep in operations on files for a lock or a journal, by looks at the functions in which they sleep.

A call with a path has no file system of its own. It is taken to be on the one where the same program's other calls
sleep, else on the only one of its type where any program's do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from latmon.analysis.attribution import whole_path
from latmon.findings.evidence import host_before
from latmon.findings.facts import Block, Facts
from latmon.findings.hangs import file_system_of, is_known_mount
from latmon.findings.programs import Program, by_program
from latmon.model import measurements
from latmon.model.frame import FileSystem
from latmon.model.measurements.file_sleeps import FileSleep
from latmon.model.measurements.server_waits import WaitedTime
from latmon.support.units import part

_Words = tuple[str, ...]
_TRACED = MappingProxyType({"create": "open"})
_MOST = 0.5
"""Share of the time of its sleeps from which on an operation or a file is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeper:
    """A program that sleeps in operations on the files of a file system for one cause."""

    file_system: FileSystem
    program: Program
    lasted_us: int
    """Time of the blocks in which it slept as much as was asked for."""
    span_us: int
    """Time of the window."""
    waited_us: int
    """Of all its threads together, of the window."""
    sleeps: int
    op_us: Counter[str] = field(default_factory=Counter)
    """Operation -> their time; without those that aren't known."""
    cause_us: Counter[str] = field(default_factory=Counter)
    file_us: Counter[str] = field(default_factory=Counter)
    """Path from the root -> their time; without calls that have a path."""
    is_placed: bool = False
    """Whether the file system is that of other calls, because its calls have paths."""

    @property
    def waiting(self) -> float:
        """Return how many of its threads sleep at a time, on average over the window."""
        return self.waited_us / max(self.span_us, 1)

    @property
    def mean_us(self) -> float:
        """Return the least that a sleep takes on average: some of the times that it left its CPU are others."""
        return self.waited_us / max(self.sleeps, 1)

    @property
    def op(self) -> str:
        """Return the operation with most of the time; empty where none has."""
        return _most_of(self.op_us, self.waited_us)

    @property
    def file(self) -> str:
        """Return the path of the file with most of the time; empty where none has."""
        return _most_of(self.file_us, self.waited_us)

    @property
    def share_text(self) -> str:
        """Return its share of the time, or how many threads sleep at a time."""
        return f"{part(self.waiting)} of the time" if self.waiting <= 1 else f"in {self.waiting:.1f} threads at a time"


def traced_op(op: str) -> str:
    """Return what the tracer calls an operation, which knows one that opens a file only as an open."""
    return _TRACED.get(op, op)


def _most_of(times: Counter[str], whole_us: int) -> str:
    name, us = max(times.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return name if us >= _MOST * whole_us else ""


def sleepers(
    facts: Facts, causes: tuple[str, ...], waiting: float, left_out: frozenset[str] = frozenset()
) -> list[Sleeper]:
    """Return the programs that sleep for one of the causes, those with most time first.

    `waiting`: threads of a program that sleep at a time in the blocks that count as lasting. `left_out`: operations.
    """
    key = "file sleepers", causes, waiting, left_out
    return facts.once(key, lambda: _sleepers(facts, causes, waiting, left_out))


def _sleepers(facts: Facts, causes: tuple[str, ...], waiting: float, left_out: frozenset[str]) -> list[Sleeper]:
    table = facts[measurements.FILE_SLEEPS]
    rows = [row for row in table if row.cause in causes and row.op not in left_out]
    places = facts.once("places of file sleeps", lambda: _places(facts, table))
    groups: dict[FileSystem, list[FileSleep]] = {}
    for row in rows:
        groups.setdefault(places[row], []).append(row)
    sleepers = [
        _sleeper(facts, file_system, program, values, waiting)
        for file_system, group in groups.items()
        for program, values in by_program((row.process, row) for row in group).items()
    ]
    return sorted(sleepers, key=lambda sleeper: (-sleeper.waited_us, sleeper.program))


def _places(facts: Facts, rows: Iterable[FileSleep]) -> dict[FileSleep, FileSystem]:
    """Return the file system of each row: of a call that waits for a directory's lock not even the type is known."""
    known = _known_places(facts, rows)
    places = {row: _place(facts, row, known) for row in rows}
    of_programs: dict[_Words, set[FileSystem]] = {}
    for row, place in places.items():
        if is_known_mount(place.mount):
            of_programs.setdefault((host_before(facts, row.mount), _name(row)), set()).add(place)
    for row in rows:
        others = of_programs.get((host_before(facts, row.mount), _name(row)), set())
        if not row.kind and not is_known_mount(places[row].mount) and len(others) == 1:
            places[row] = next(iter(others))
    return places


def _name(row: FileSleep) -> str:
    return row.process.rpartition("/")[0]


def _known_places(facts: Facts, rows: Iterable[FileSleep]) -> dict[_Words, set[FileSystem]]:
    """Return the file systems where calls sleep that have a file, by host and type, and by these and the program."""
    known: dict[_Words, set[FileSystem]] = {}
    for row in rows:
        if is_known_mount(row.mount):
            of_type = host_before(facts, row.mount), row.kind
            for words in (of_type, (*of_type, _name(row))):
                known.setdefault(words, set()).add(file_system_of(facts, row))
    return known


def _place(facts: Facts, row: FileSleep, known: Mapping[_Words, set[FileSystem]]) -> FileSystem:
    """Return the file system of a row, or of a call with a path that of other calls on the same type."""
    own = file_system_of(facts, row)
    if is_known_mount(row.mount) or not row.kind:
        return own
    of_type = host_before(facts, row.mount), row.kind
    places = known.get((*of_type, _name(row))) or known.get(of_type, set())
    return next(iter(places)) if len(places) == 1 else own


def _sleeper(
    facts: Facts, file_system: FileSystem, program: Program, rows: Sequence[FileSleep], waiting: float
) -> Sleeper:
    waited_us = sleeps = 0
    op_us, cause_us, file_us = Counter[str](), Counter[str](), Counter[str]()
    table: Mapping[FileSleep, WaitedTime] = facts[measurements.FILE_SLEEPS]
    for row in rows:
        time = table[row]
        waited_us += time.waited_us
        sleeps += time.sleeps
        cause_us[row.cause] += time.waited_us
        if row.op:
            op_us[row.op] += time.waited_us
        if row.file:
            file_us[whole_path(row.mount, row.file)] += time.waited_us
    lasted_us = facts.lasted_us(lambda block: _waiting(block, rows) >= waiting)
    return Sleeper(
        file_system=file_system,
        program=program,
        lasted_us=lasted_us,
        span_us=facts.span_us,
        waited_us=waited_us,
        sleeps=sleeps,
        op_us=op_us,
        cause_us=cause_us,
        file_us=file_us,
        is_placed=all(not is_known_mount(row.mount) for row in rows) and is_known_mount(file_system.mount),
    )


def _waiting(block: Block, rows: Iterable[FileSleep]) -> float:
    times = block[measurements.FILE_SLEEPS]
    us = sum(times[row].waited_us for row in rows if row in times)
    return us / max(block.span_us, 1)
