"""iostat -o JSON of sysstat, with -x or without: the same reports as its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latmon.errors import RecordingError
from latmon.imports import iostat, times
from latmon.imports.found import Asked, Found, Passed, Where
from latmon.imports.json_text import document
from latmon.text import clean

_RENAMED = {"util": "%util", "rrqm": "%rrqm", "wrqm": "%wrqm", "drqm": "%drqm"}


def sniff(head: str) -> bool:
    """The nesting that sysstat has."""
    return head.lstrip().startswith("{") and '"sysstat"' in head


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """A `statistics` entry with disks is a window."""
    first, value = document(lines)
    where = Where(first, len(lines))
    yield Passed(where)
    reports = []
    try:
        hosts = value["sysstat"]["hosts"]
        if len(hosts) > 1:
            raise RecordingError(f"it is of {len(hosts):,} hosts; import each by itself")
        for host in hosts:
            for one in host["statistics"]:
                rows = {clean(str(disk["disk_device"])): _values(disk) for disk in one.get("disk", ())}
                stamp = one.get("timestamp")
                wall = times.moment(stamp) if isinstance(stamp, str) else None
                columns = sorted({name for values in rows.values() for name in values})
                reports.append(iostat.Report(first, len(lines), wall, columns, rows))
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise RecordingError("it is no JSON of iostat: a key of sysstat is missing or of another kind") from None
    yield from iostat.found([one for one in reports if one.rows], asked)


def _values(disk: Mapping[str, Any]) -> dict[str, float]:
    return {
        _RENAMED.get(name, name): float(value)
        for name, value in disk.items()
        if type(value) in (int, float) and 0 <= value <= 1e12  # noqa: PLR2004
    }
