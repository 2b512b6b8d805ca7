"""Programs, which are the processes of one name, of rows whose keys have a process as NAME/PID."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from latmon.findings.facts import Facts
from latmon.findings.rule import FLEET
from latmon.model.measurements import WRITTEN

V = TypeVar("V")


class Program(NamedTuple):
    """Processes of a name."""

    name: str
    """Empty where it is hidden."""
    pids: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the name, with the pid of a single process."""
        if not self.name:
            return "a program"
        return f"{self.name} (pid {self.pids[0]})" if len(self.pids) == 1 else self.name


def by_program(rows: Iterable[tuple[str, V]]) -> dict[Program, list[V]]:
    """Return the values of each program: a shell's loop starts a process of the same name again and again."""
    pids: dict[str, list[str]] = {}
    values: dict[str, list[V]] = {}
    for process, value in rows:
        name, _, pid = process.rpartition("/")
        name = name or process
        pids.setdefault(name, []).append(pid)
        values.setdefault(name, []).append(value)
    return {Program(name, tuple(pids[name])): values[name] for name in values}


def program_of(process: str) -> Program:
    """Return the program of a single process."""
    name, _, pid = process.rpartition("/")
    return Program(name, (pid,))


def most_written(facts: Facts) -> tuple[Program, int] | None:
    """Return the program that wrote most to all disks of the host together, with its bytes; None: not known.

    It is not known in a fleet, whose rows of processes don't say their host.
    """
    if facts.origin.backend == FLEET or not facts[WRITTEN]:
        return None
    written = by_program((row.process, size) for row, size in facts[WRITTEN].items())
    most = max(written, key=lambda program: sum(written[program]))
    return most, sum(written[most])
