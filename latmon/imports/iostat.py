"""iostat -x, of Linux (sysstat) and of Solaris and illumos (-x, -xn): rates and means, never a distribution.

Columns go by their names, so versions don't matter; bytes are in kB, MB or sectors of 512 bytes, as the head says.
Counts are rates times the interval, rounded; the first report of several is of the time since the boot and is left
out. Solaris tells no times of reads and writes apart, and its svc_t is the whole response; wait and actv are means over
the interval, as aqu-sz is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from latmon.imports import times
from latmon.imports.found import Asked, Counts, Found, Passed, Remark, Where
from latmon.imports.naming import one_device
from latmon.model import Completed, Flow, Outstanding
from latmon.text import clean

_NUMBER = re.compile(r"-?\d{1,15}(?:[.,]\d{1,6})?\Z")
_NOISE = re.compile(r"avg-cpu:|Linux \d|\s*extended device statistics|\s*(?:tty|cpu)\b|\s*us sy (?:wt|st) id")
_CPU = re.compile(r"\s+\d+[.,]\d\d(?:\s+\d+[.,]\d\d){5}\s*\Z")
_LINUX = {"read": ("r", "r_await"), "write": ("w", "w_await"), "discard": ("d", "d_await"), "flush": ("f", "f_await")}
_SOLARIS = {"read": "r", "write": "w"}
_KB, _MB, _SECTOR = 1024, 1024 * 1024, 512
_BYTES = (("{}kB/s", _KB), ("{}MB/s", _MB), ("{}sec/s", _SECTOR), ("k{}/s", _KB), ("M{}/s", _MB))
"""A rate of bytes: of Linux with -k, with -m, of sysstat before 2010; of Solaris and illumos, and with -M."""
_QUEUE = ("aqu-sz", "avgqu-sz")
_LEAST = 5
_MAX_RATE = 1e12


@dataclass(slots=True)
class Report:
    """One block of rows below a head."""

    first: int
    last: int
    wall: float | None
    columns: list[str]
    rows: dict[str, dict[str, float]] = field(default_factory=dict)


def sniff(head: str) -> bool:
    """A head with r/s and w/s in it, and one of the times."""
    return any(_columns(line) for line in head.split("\n"))


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """A report is a window."""
    reports: list[Report] = []
    wall: float | None = None
    now: Report | None = None
    for at, line in enumerate(lines, 1):
        columns = _columns(line)
        if columns:
            now = Report(at, at, wall, columns)
            reports.append(now)
            wall = None
        elif now is not None and (row := _row(line, now.columns)):
            now.rows[row[0]], now.last = row[1], at
        elif not line.strip():
            continue
        else:
            now = None
            stamp = times.moment(line)
            if _NOISE.match(line) or _CPU.match(line):
                yield Passed(Where(at, at))
            elif stamp is not None:
                wall = stamp
                yield Passed(Where(at, at))
    yield from found(reports, asked)


def found(reports: list[Report], asked: Asked) -> Iterator[Found]:
    """Windows of reports; also those of iostat_json."""
    if not reports:
        return
    if len(reports) > 1:
        yield Remark(_where(reports[0]), "the first report is of the time since the boot and left out")
    yield Remark(_where(reports[0]), "counts are rates x the interval, rounded; outstanding I/Os are means, rounded")
    if any("r_await" not in one.columns for one in reports):
        yield Remark(_where(reports[0]), "no times of reads and writes apart: the mean of both stands for each")
    if any(_bytes(dict.fromkeys(one.columns, 0.0), "r") is None for one in reports):
        told = " ".join(reports[0].columns)
        yield Remark(_where(reports[0]), clean(f"no column of bytes is known, they stand at 0; columns: {told}", 300))
    disks = list(dict.fromkeys(name for one in reports for name in one.rows))
    one_device(asked, disks)
    before: float | None = None
    for number, one in enumerate(reports):
        passed = None if before is None or one.wall is None else round((one.wall - before) * 1e6)
        before = one.wall
        if number == 0 and len(reports) > 1:
            yield Passed(_where(one))
            continue
        dt = passed if passed and 0 < passed <= 86_400_000_000 else asked.interval_us  # noqa: PLR2004 - a day
        kernel: dict[Flow, Completed] = {}
        outstanding: dict[str, Outstanding] = {}
        for name, values in one.rows.items():
            device = asked.device or name
            kernel.update({Flow(device, op): done for op, done in _completed(values, dt).items() if done.count})
            outstanding[device] = _outstanding(values)
        if not one.rows and number < len(reports) - 1:  # with -z what is idle has no row: a window all the same
            outstanding = {asked.device or name: _outstanding(dict.fromkeys(one.columns, 0.0)) for name in disks}
        yield Counts(Where(one.first, one.last, one.wall, dt), kernel, outstanding)


def _where(one: Report) -> Where:
    return Where(one.first, one.last)


def _columns(line: str) -> list[str]:
    """The head's columns; empty where it is none."""
    words = line.split()
    names = {one.lower() for one in words}
    known = {"r/s", "w/s"} <= names and names & {"await", "r_await", "svc_t", "asvc_t"}
    return [one.rstrip(":") for one in words] if known and len(words) >= _LEAST else []


def _row(line: str, columns: list[str]) -> tuple[str, dict[str, float]] | None:
    """Device and values: the name is first, or last as -n has it."""
    words = line.split()
    if len(words) < len(columns):
        return None
    if columns[-1].lower() == "device":
        count = len(columns) - 1
        name, numbers, names = " ".join(words[count:]), words[:count], columns[:-1]
    else:
        if len(words) != len(columns):
            return None
        name, numbers, names = words[0], words[1:], columns[1:]
    if not all(_NUMBER.match(one) for one in numbers):
        return None
    values = dict(zip(names, (float(one.replace(",", ".")) for one in numbers), strict=True))
    return (clean(name), values) if all(0 <= one <= _MAX_RATE for one in values.values()) else None


def _completed(values: Mapping[str, float], dt: int) -> dict[str, Completed]:
    seconds = dt / 1e6
    if not values.keys().isdisjoint(("svc_t", "asvc_t")):
        mean_ms = values.get("wsvc_t", 0.0) + values.get("asvc_t", values.get("svc_t", 0.0))
        waits: Mapping[str, tuple[str, float | None]] = {op: (name, mean_ms) for op, name in _SOLARIS.items()}
    else:
        either = values.get("await")
        waits = {op: (name, values.get(wait, either)) for op, (name, wait) in _LINUX.items()}
    return {
        op: _done(values[f"{name}/s"], _bytes(values, name) or 0.0, mean, seconds)
        for op, (name, mean) in waits.items()
        if f"{name}/s" in values
    }


def _bytes(values: Mapping[str, float], name: str) -> float | None:
    """A second; None where no column tells them."""
    return next((values[of.format(name)] * unit for of, unit in _BYTES if of.format(name) in values), None)


def _done(rate: float, size: float, mean_ms: float | None, seconds: float) -> Completed:
    count = round(rate * seconds)
    time = None if mean_ms is None else round(mean_ms * 1000 * count)
    return Completed(count, round(size * seconds), time)


def _outstanding(values: Mapping[str, float]) -> Outstanding:
    if "actv" in values:
        return Outstanding(round(values["actv"]), round(values.get("wait", 0.0)))
    return Outstanding(round(next((values[one] for one in _QUEUE if one in values), 0.0)), None)
