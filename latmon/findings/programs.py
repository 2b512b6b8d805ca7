"""Programs, which are the processes of one name, of rows whose keys have a process as NAME/PID."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

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
