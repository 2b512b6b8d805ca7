"""What was captured, in words: host and time, the settings, and the marks with the settings that changed until then."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from latmon.report.model.report import MarkedTime, Report
from latmon.support.text import wrapped
from latmon.support.units import UNKNOWN, counted

MAX_MARKS = 20
MAX_SECTIONS = 40
MAX_NAMES = 12
"""Settings of a section."""
_MAIN = ("kernel", "tool", "clock", "module ", "device ", "network ")
"""Prefixes of the sections in the text report, in this order; probes and their hashes are in the JSON."""
_SHOWN_RUNS = 4
"""Runs that a sentence names."""
_LONG = 1.5
"""Factor on the interval: a longer window contains missed ticks."""


def head(report: Report) -> list[str]:
    """Return the lines on host, time and backend."""
    host = report.host
    tier = f", tier {report.health.tier}" if report.health.tier else ""
    return [
        *wrapped(f"latmon report: {host.name}, kernel {host.kernel}"),
        *wrapped(
            f"from {report.start or UNKNOWN} to {end(report)}, {report.duration_s:,.1f} s, "
            f"{windows(report)}, by latmon {host.latmon}"
        ),
        *wrapped(f"backend {host.tool or report.backend}{tier}"),
        *(wrapped(f"why this backend: {report.reason}") if report.reason else []),
        *wrapped(runs(report.runs)),
    ]


def end(report: Report) -> str:
    """Return the time at which the last window ended."""
    try:
        ended = datetime.fromisoformat(report.start or "") + timedelta(seconds=report.duration_s)
    except (ValueError, OverflowError):
        return UNKNOWN
    return ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def runs(parts: Sequence[str]) -> str:
    """Return that several runs are added up, and how to compare them; empty for one run."""
    if not parts:
        return ""
    each = " ".join(f"FILE@{shlex.quote(part)}" for part in parts[:_SHOWN_RUNS])
    more = " ..." if len(parts) > _SHOWN_RUNS else ""
    return (
        f"{len(parts)} runs are in this text, and the numbers of devices below are of all of them together; "
        f"latmon report --runs FILE compares them, and so does latmon diff {each}{more}"
    )


def windows(report: Report) -> str:
    """Return the number and length of the windows, and the longest if ticks came late."""
    text = f"{counted(report.intervals, 'window')} of {report.interval_s:g} s"
    is_late = report.longest_s > _LONG * report.interval_s
    return f"{text}, the longest {report.longest_s:,.1f} s (ticks came late)" if is_late else text


def marks(marked: Sequence[MarkedTime]) -> list[str]:
    """Return a line per mark, and the settings that differ from the start."""
    if not marked:
        return []
    lines = ["marks:"]
    for mark in marked[:MAX_MARKS]:
        lines += wrapped(f"{mark.time or UNKNOWN}  {mark.text or '(no note)'}", "  ")
        for sentence in changes(mark.changed):
            lines += wrapped(sentence, "    ")
    return [*lines, *_rest(len(marked) - MAX_MARKS, "marks")]


def changes(changed: Mapping[str, Mapping[str, str]] | None) -> list[str]:
    """Return a sentence per section: `device sda: scheduler is now none`; none if settings were not read."""
    return [
        f"{section}: " + ", ".join(f"{name} is {f'now {value}' if value else 'gone'}" for name, value in values.items())
        for section, values in (changed or {}).items()
    ]


def settings(by_section: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a paragraph per section; equal sections of several devices are one."""
    reported = sorted(
        (section for section in by_section if _rank(section) < len(_MAIN)),
        key=lambda section: (_rank(section), section),
    )
    lines = ["settings at the start:"] if reported else []
    same: dict[str, list[str]] = {}
    for section in reported:
        same.setdefault("; ".join(_named(by_section[section])), []).append(section)
    for sentence, equal in list(same.items())[:MAX_SECTIONS]:
        kind = equal[0].partition(" ")[0]
        names = ", ".join(section.partition(" ")[2] for section in equal)
        lines += wrapped(f"{kind} {names}".strip() + f": {sentence}", "  ")
    lines += _rest(len(same) - MAX_SECTIONS, "sections")
    others = len(by_section) - len(reported)
    return lines + ([f"  and {others:,} sections that --json has"] if others and reported else [])


def _named(values: Mapping[str, str]) -> Iterator[str]:
    for name, value in list(values.items())[:MAX_NAMES]:
        yield f"{name} {value}"
    if len(values) > MAX_NAMES:
        yield f"and {len(values) - MAX_NAMES:,} more"


def _rank(section: str) -> int:
    return next((at for at, begin in enumerate(_MAIN) if section.startswith(begin)), len(_MAIN))


def _rest(more: int, what: str) -> list[str]:
    return [f"  and {more:,} more {what} (--json has them)"] if more > 0 else []
