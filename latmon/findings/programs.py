"""Programs, which are the processes of one name, of rows whose keys have a process as NAME/PID."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from latmon.findings.facts import Facts
from latmon.findings.rule import FLEET
from latmon.model.measurements import DIRTIERS, ISSUERS, WRITTEN

V = TypeVar("V")
_KERNEL_WRITERS = re.compile(r"kworker\b|jbd2/|xfsaild/|btrfs-|f2fs_|kswapd\d")
_MOST_OF_HOST = 0.8
"""Least share of a device in the bytes that its host writes, from which on a program's are taken to be its."""
_HALF_OF_DEVICE = 0.5
"""Least part of what the device writes that a program wrote, which is then named."""


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
    return {Program(name, tuple(dict.fromkeys(pids[name]))): values[name] for name in values}


def program_of(process: str) -> Program:
    """Return the program of a single process."""
    name, _, pid = process.rpartition("/")
    return Program(name, (pid,))


def most_used_device(facts: Facts, process: str, cgroup: str) -> str:
    """Return the device with most I/Os of a process (NAME/PID), else of its cgroup; empty where none is known."""
    name, _, pid = process.rpartition("/")
    by_process, by_cgroup = Counter[str](), Counter[str]()
    for row, done in facts[ISSUERS].items():
        if row.is_process and (str(row.pid) == pid or (not row.pid and row.comm == name)):
            by_process[row.device] += done.count
        elif row.cgroup == cgroup and row.cgroup != "/":
            by_cgroup[row.device] += done.count
    counts = by_process or by_cgroup
    return max(counts, key=lambda device: (counts[device], device), default="")


def writes_for_programs(comm: str) -> bool:
    """Return whether a process is a thread of the kernel that writes what programs have written."""
    return _KERNEL_WRITERS.match(comm) is not None


def most_written(facts: Facts, device: str) -> tuple[Program, int] | None:
    """Return the program that wrote most to a device, with its bytes, direct and buffered; None: not known."""
    written = _direct_bytes(facts, device)
    for process, size in _dirtied_bytes(facts, device).items():
        written[process] = written.get(process, 0) + size
    for process, size in _written_bytes(facts, device).items():
        written[process] = max(written.get(process, 0), size)
    return _most(written)


def most_buffered(facts: Facts, device: str) -> tuple[Program, int] | None:
    """Return the program whose pages the kernel's threads write to a device, with its bytes; None: not known."""
    dirtied = _dirtied_bytes(facts, device)
    if dirtied:
        return _most(dirtied)
    direct = _direct_bytes(facts, device)
    written = _written_bytes(facts, device)
    return _most({process: size for process, size in written.items() if size >= 2 * direct.get(process, 0)})


def _most(written: Mapping[str, int]) -> tuple[Program, int] | None:
    programs = by_program(written.items())
    if not programs:
        return None
    most = max(programs, key=lambda program: sum(programs[program]))
    return most, sum(programs[most])


def _direct_bytes(facts: Facts, device: str) -> dict[str, int]:
    """Return the bytes of write I/Os to a device that processes issued themselves."""
    written: dict[str, int] = {}
    for issuer, done in facts[ISSUERS].items():
        is_write = issuer.device == device and issuer.op == "write" and issuer.is_process
        if is_write and done.bytes and not writes_for_programs(issuer.comm):
            process = f"{issuer.comm}/{issuer.pid}"
            written[process] = written.get(process, 0) + done.bytes
    return written


def _dirtied_bytes(facts: Facts, device: str) -> dict[str, int]:
    """Return the bytes that processes made dirty on a device, which the kernel tells while it pauses writers."""
    rows = facts[DIRTIERS].items()
    return {row.process: done.dirtied_bytes for row, done in rows if row.device == device and done.dirtied_bytes}


def _written_bytes(facts: Facts, device: str) -> dict[str, int]:
    """Return the bytes of processes by /proc/PID/io, which are of all disks, where nearly all go to this device.

    A volume and its disk count the same bytes twice, which makes a share smaller only. Empty in a fleet, whose rows of
    processes don't say their host.
    """
    bytes_written = _bytes_written_to(facts, device)
    everywhere = sum(_bytes_written_to(facts, name) for name in facts.devices)
    if facts.origin.backend == FLEET or not bytes_written or bytes_written < _MOST_OF_HOST * everywhere:
        return {}
    return {row.process: size for row, size in facts[WRITTEN].items() if size >= _HALF_OF_DEVICE * bytes_written}


def _bytes_written_to(facts: Facts, device: str) -> int:
    done = facts.completed(device, "write")
    return done.bytes if done is not None else 0
