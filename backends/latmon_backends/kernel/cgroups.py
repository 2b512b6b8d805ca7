"""Limits of cgroups on the I/O of block devices (blk-throttle), and the I/Os that count towards them.

Reads io.max and io.stat of cgroup version 2 and blkio.throttle.* of version 1, in the hierarchies that are mounted;
any user may read these files. A thread walks all cgroups every 30 s; those with a limit are read with each sample. A
cgroup that vanishes while it is read has no limit.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import MAX_LIMITS, CgroupLimit
from latmon.support.paths import content, text
from latmon.support.process import SideThread
from latmon.support.text import clean

WALK_US = 30_000_000
"""Time between two walks."""
MAX_CGROUPS = 20_000
"""Cgroups that a walk visits; 1,000 of version 1 take 80 ms of CPU."""
MAX_LIMITED = 500
"""Cgroups with a limit that a sample reads."""
_MAX_NAME = 256
_LOOK_US = 5_000_000
"""Time between two looks at the processes of a cgroup with I/O."""
_MAX_PROCESSES = 200
_MAX_BELOW = 100
"""Cgroups below a limited one whose processes are looked at."""
_NAMES = 3
_OPS = ("read", "write")
_COUNTED = {"read": ("Read",), "write": ("Write", "Discard")}
"""Op -> rows of version 1's counters."""
_OCTAL = re.compile(r"\\([0-7]{3})")
_Values = dict[str, dict[str, int]]
"""MAJOR:MINOR -> name -> number."""


class LimitedCgroup(NamedTuple):
    """A directory of a cgroup with a limit, below the mount point of its hierarchy."""

    root: Path
    path: Path
    version: int

    @property
    def name(self) -> str:
        """Return the cgroup's path below the mount point, with the end of one that is too long."""
        below = f"/{self.path.relative_to(self.root)}" if self.path != self.root else "/"
        shown = clean(os.fsencode(below), 4 * _MAX_NAME)
        return shown if len(shown) <= _MAX_NAME else "…" + shown[1 - _MAX_NAME :]


@dataclass
class _Processes:
    """Processes of a cgroup and of those below it, as of the last look."""

    ios: int = 0
    looked_us: int = 0
    count: int = 0
    names: tuple[str, ...] = ()


Walked = tuple[LimitedCgroup, ...] | None
"""Cgroups with a limit; None where they are not known."""


def _aside(call: Callable[[], Walked]) -> Future[Walked]:
    """Run on a thread that ends with the call."""
    thread = SideThread("cgroups")
    walking = thread.submit(call)
    thread.shutdown()
    return walking


class CgroupReader:
    """Reader of all limits on the I/O of cgroups."""

    def __init__(self, proc: Path, run: Callable[[Callable[[], Walked]], Future[Walked]] = _aside) -> None:
        """`run` starts a walk."""
        self._proc, self._run = proc, run
        self._walking: Future[Walked] | None = None
        self._due_us = 0
        self._limited: Walked = None
        self._processes: dict[Path, _Processes] = {}

    def sample(self, mono_us: int, devices: Mapping[str, str]) -> tuple[CgroupLimit, ...] | None:
        """Return the limits on these devices (MAJOR:MINOR -> name) with absolute counters.

        None before the first walk has ended, where no hierarchy is mounted, or where there are too many cgroups.
        """
        if self._walking is None and mono_us >= self._due_us:
            self._due_us = mono_us + WALK_US
            self._walking = self._run(lambda: walk(self._proc))
        if self._walking is not None and self._walking.done():
            self._limited, self._walking = self._walking.result(), None
            known = {one.path for one in self._limited or ()}
            self._processes = {path: one for path, one in self._processes.items() if path in known}
        if self._limited is None:
            return None
        rows = tuple(row for one in self._limited for row in self._read(one, mono_us, devices))
        return rows if len(rows) <= MAX_LIMITS else None

    def _read(self, one: LimitedCgroup, mono_us: int, devices: Mapping[str, str]) -> Iterator[CgroupLimit]:
        limits, counted = _version_2(one.path) if one.version == 2 else _version_1(one.path)  # noqa: PLR2004
        found = [(number, op) for number in limits if number in devices for op in _OPS]
        found = [(number, op) for number, op in found if {f"{op} ios", f"{op} bytes"} & limits[number].keys()]
        stalled_us = _stalled_us(one.path)
        ios = sum(counted.get(number, {}).get(f"{op} ios", 0) for number, op in found)
        processes = self._look(one.path, ios, mono_us)
        for number, op in found:
            done = counted.get(number, {})
            yield CgroupLimit(
                one.name,
                devices[number],
                op,
                limits[number].get(f"{op} ios"),
                limits[number].get(f"{op} bytes"),
                done.get(f"{op} ios", 0),
                done.get(f"{op} bytes", 0),
                processes.count,
                processes.names,
                stalled_us,
                clean(os.fsencode(one.root), _MAX_NAME),
                one.version,
            )

    def _look(self, path: Path, ios: int, mono_us: int) -> _Processes:
        """Return the cgroup's processes. They are looked for again after 5 s, where there was I/O meanwhile."""
        had = self._processes.get(path)
        if had is None or (had.ios != ios and mono_us >= had.looked_us + _LOOK_US):
            pids = _pids(path)
            comms = Counter(name for pid in pids if (name := _comm(self._proc, pid)))
            had = _Processes(ios, mono_us, len(pids), tuple(name for name, _ in comms.most_common(_NAMES)))
            self._processes[path] = had
        return had


def difference(
    before: tuple[CgroupLimit, ...] | None, after: tuple[CgroupLimit, ...] | None
) -> tuple[CgroupLimit, ...] | None:
    """Return the limits under which there was I/O, with the counts of the interval; None where one end wasn't read."""
    if before is None or after is None:
        return None
    known = {one.key: one for one in before}
    found = (known[one.key].until(one) for one in after if one.key in known)
    return tuple(one for one in found if one.ios >= 0 and one.bytes >= 0 and (one.ios or one.bytes))


def walk(proc: Path) -> Walked:
    """Return the cgroups with a limit; None where no hierarchy has a controller of I/O, or where there are too many."""
    found: list[LimitedCgroup] = []
    roots = tuple(_hierarchies(os.fsdecode(content(proc / "self/mountinfo"))))
    visited = 0
    for root, version in roots:
        for path in _below(root, "io.max" if version == 2 else ""):  # noqa: PLR2004
            visited += 1
            if _is_limited(path, version):
                found.append(LimitedCgroup(root, path, version))
            if visited > MAX_CGROUPS or len(found) > MAX_LIMITED:
                return None
    return tuple(found) if roots else None


def _hierarchies(mountinfo: str) -> Iterator[tuple[Path, int]]:
    """Yield the mount point and the version of the hierarchies that may limit I/O, each version once."""
    known = set[int]()
    for line in mountinfo.splitlines():
        mount, _, kind = line.partition(" - ")
        fields, (system, _, options) = mount.split(" "), (*kind.split(" ", 2), "", "", "")[:3]
        version = 2 if system == "cgroup2" else 1 if system == "cgroup" and "blkio" in options.split(",") else 0
        if version and version not in known and len(fields) > 4:  # noqa: PLR2004 - the fifth is the mount point
            known.add(version)
            yield Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])), version


def _below(root: Path, file: str = "") -> Iterator[Path]:
    """Yield a cgroup and those below it, the upper ones first. `file`: leave out those without it, and their own.

    A cgroup without a controller has no descendant with it.
    """
    waiting = deque([root])
    while waiting:
        path = waiting.popleft()
        yield path
        waiting += (child for child in _children(path) if not file or (child / file).exists())


def _children(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_limited(path: Path, version: int) -> bool:
    if version == 1:
        return any(text(path / name).strip() for name in _V1_LIMITS.values())
    return bool(text(path / "io.max").strip())


_V1_LIMITS = {
    f"{op} {what}": f"blkio.throttle.{op}_{short}_device"
    for op in _OPS
    for what, short in (("ios", "iops"), ("bytes", "bps"))
}
_V2_LIMITS = {"riops": "read ios", "wiops": "write ios", "rbps": "read bytes", "wbps": "write bytes"}
_V2_COUNTS = {
    "rios": "read ios",
    "wios": "write ios",
    "dios": "write ios",
    "rbytes": "read bytes",
    "wbytes": "write bytes",
}


def _version_2(path: Path) -> tuple[_Values, _Values]:
    """Return limits and counters of a cgroup of version 2."""
    return _pairs(text(path / "io.max"), _V2_LIMITS), _pairs(text(path / "io.stat"), _V2_COUNTS)


def _pairs(lines: str, names: Mapping[str, str]) -> _Values:
    """Return the numbers of lines such as `8:0 riops=100 wiops=max`, those with the same name added up."""
    found: _Values = {}
    for line in lines.splitlines():
        number, *pairs = line.split()
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name in names and value.isdecimal():
                values = found.setdefault(number, {})
                values[names[name]] = values.get(names[name], 0) + int(value)
    return found


def _version_1(path: Path) -> tuple[_Values, _Values]:
    """Return limits and counters of a cgroup of version 1, whose limits ignore what is above and below it."""
    limits: _Values = {}
    for name, file in _V1_LIMITS.items():
        for number, value in _columns(text(path / file), 2):
            limits.setdefault(number, {})[name] = int(value)
    counted: _Values = {}
    for what, file in (("ios", "blkio.throttle.io_serviced"), ("bytes", "blkio.throttle.io_service_bytes")):
        for number, row, value in _columns(text(path / file), 3):
            for op in (op for op, rows in _COUNTED.items() if row in rows):
                values = counted.setdefault(number, {})
                values[f"{op} {what}"] = values.get(f"{op} {what}", 0) + int(value)
    return limits, counted


def _columns(lines: str, cells: int) -> Iterator[list[str]]:
    rows = (line.split() for line in lines.splitlines())
    return (row for row in rows if len(row) == cells and row[-1].isdecimal())


def _stalled_us(path: Path) -> int | None:
    """Return the time in which at least one task of the cgroup waited for I/O, since it was created."""
    some = next((line.split() for line in text(path / "io.pressure").splitlines() if line.startswith("some ")), [])
    total = next((one.removeprefix("total=") for one in some if one.startswith("total=")), "")
    return int(total) if total.isdecimal() else None


def _pids(path: Path) -> list[str]:
    """Return the first processes of the cgroup and of those below it."""
    found: list[str] = []
    for below, _ in zip(_below(path), range(_MAX_BELOW), strict=False):
        found += _first_pids(below, _MAX_PROCESSES - len(found))
        if len(found) >= _MAX_PROCESSES:
            break
    return found


def _first_pids(path: Path, most: int) -> Iterable[str]:
    try:
        with (path / "cgroup.procs").open(encoding="ascii", errors="replace") as file:
            return [line.strip() for line, _ in zip(file, range(most), strict=False)]
    except OSError:
        return ()


def _comm(proc: Path, pid: str) -> str:
    """Return a process's name; empty where it has ended, or is of another pid namespace (0)."""
    return clean(content(proc / pid / "comm").rstrip(b"\n")) if pid.isdecimal() and pid != "0" else ""
