"""A window line's keys about outstanding I/O, back into values; all of them untrusted.

Every number and length is bounded, every string clean, every depth said once; RecordingError on nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from latmon.errors import RecordingError
from latmon.outstanding import SYSFS, Depths, InFlight, Issue, StillInFlight, Took
from latmon.recording import checks
from latmon.recording.checks import Json
from latmon.recording.pieces import flow, once

MAX_DEPTH = 1 << 24
"""The most that a device may be said to have in flight: a hundred times what nr_tags can be."""
MAX_DEPTHS = 4096
"""Different depths of one device in one window: a probe tells fewer than 400, a sampler one per look."""
MAX_IN_FLIGHT = 1024
"""Requests with a row of their own, in one window."""
MAX_AGES = 64
MAX_FOLLOWED = 16_384
"""Devices that a probe follows."""
MAX_ISSUES = 16_384
"""Of one device in one window."""
MAX_OPS = 64
_PAIR, _TRIPLE = 2, 3
_ISSUE = len(Issue._fields)


def depths(line: Json) -> Mapping[str, Depths]:
    """`depths`: device -> how many I/Os it had outstanding."""
    told = checks.mapping(line, "depths")
    return once([(checks.label(device, "depths"), _depths(_object(one, "depths"))) for device, one in told.items()])


def in_flight(line: Json) -> StillInFlight | None:
    """`in_flight`; None where no probe told."""
    if line.get("in_flight") is None:
        return None
    told = checks.mapping(line, "in_flight")
    found = checks.objects(told, "oldest")
    if len(found) > MAX_IN_FLIGHT:
        raise RecordingError(f"'oldest' has {len(found)} entries, and {MAX_IN_FLIGHT} are the most")
    return StillInFlight(
        oldest=tuple(request(one) for one in found),
        older=_pairs(told, "older", MAX_AGES, checks.MAX_COUNT),
        since_us=checks.integer(told, "since"),
        at_us=checks.integer(told, "at") if "at" in told else 0,
        devices=_few(checks.labels(told, "devices"), "devices", MAX_FOLLOWED),
    )


def issues(line: Json) -> Mapping[str, tuple[Issue, ...]]:
    """`issues`: device -> a burst of requests as they went to the driver."""
    told = checks.mapping(line, "issues")
    return once([(checks.label(device, "issues"), _issues(_object(one, "issues"))) for device, one in told.items()])


def _depths(line: Json) -> Depths:
    latency = {depth: Took(ios, time_us) for depth, ios, time_us in _by_depth(line, "l", _TRIPLE)}
    return Depths(
        in_driver=_pairs(line, "d"),
        queued=_pairs(line, "q"),
        at_issue=_pairs(line, "i"),
        latency=MappingProxyType(latency),
        most=checks.whole(line["most"], "most", high=MAX_DEPTH) if line.get("most") is not None else None,
        corrected=checks.integer(line, "corrected"),
        source=checks.label(line.get("by", SYSFS), "by"),
    )


def _pairs(line: Json, key: str, most: int = MAX_DEPTHS, high: int = MAX_DEPTH) -> Mapping[int, int]:
    return MappingProxyType({row[0]: row[1] for row in _by_depth(line, key, _PAIR, most, high)})


def _by_depth(line: Json, key: str, cells: int, most: int = MAX_DEPTHS, high: int = MAX_DEPTH) -> list[tuple[int, ...]]:
    """Rows that begin with a number of 0 to `high`, in its order, each once."""
    rows = number_rows(line, key, cells, most)
    firsts = [row[0] for row in rows]
    if firsts and (firsts != sorted(set(firsts)) or firsts[-1] > high):
        raise RecordingError(f"{key!r} has depths out of order or out of range")
    return rows


def number_rows(line: Json, key: str, cells: int, most: int) -> list[tuple[int, ...]]:
    """`key`: a flat list of numbers of 0 or more as rows of `cells`."""
    found = line.get(key, [])
    if not isinstance(found, list) or len(found) % cells or len(found) > cells * most:
        raise RecordingError(f"{key!r} is no list of {cells} numbers each, or too long")
    if not {*map(type, found)} <= {int} or (found and not (min(found) >= 0 and max(found) <= checks.MAX_COUNT)):
        raise RecordingError(f"{key!r} has what is no whole number of 0 or more")
    return list(zip(*(found[at::cells] for at in range(cells)), strict=True))


def request(line: Json) -> InFlight:
    """One of `oldest`."""
    device, op = flow(line)
    issued = line.get("issued")
    if issued is not None and not isinstance(issued, bool):
        raise RecordingError("'issued' is neither true nor false")
    return InFlight(
        device=device,
        op=op,
        began_us=checks.integer(line, "began"),
        flags=_few(checks.labels(line, "flags"), "flags"),
        sector=checks.optional_integer(line, "sector"),
        bytes=checks.optional_integer(line, "bytes"),
        pid=checks.optional_integer(line, "pid"),
        comm=checks.label(line.get("comm", ""), "comm"),
        issued=issued,
        overtaken_by=checks.optional_integer(line, "overtaken_by"),
        own=checks.flag(line, "own"),
    )


def _issues(line: Json) -> tuple[Issue, ...]:
    ops = _few(checks.labels(line, "ops"), "ops")
    rows = number_rows(line, "n", _ISSUE, MAX_ISSUES)
    if any(row[3] >= len(ops) for row in rows):
        raise RecordingError("'issues' has an op without a name")
    return tuple(Issue(at, sector, bytes_, ops[op], queued) for at, sector, bytes_, op, queued in rows)


def _few(found: Sequence[str], key: str, most: int = MAX_OPS) -> tuple[str, ...]:
    if len(found) > most:
        raise RecordingError(f"{key!r} has {len(found)} entries, and {most} are the most")
    return tuple(found)


def _object(value: Any, key: str) -> Json:
    if not isinstance(value, dict):
        raise RecordingError(f"{key!r} has an entry that is no object")
    return value
