"""`latmon report`: the command that prints a recording's summary as JSON, text or HTML, and its text for a ticket.

The text has 80 columns, no colour, and definitions of its numbers. It is made of the summary alone, so that scripts
have all of its numbers too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from latmon.findings.rule import DEFAULT, NOT_RUN, Settings
from latmon.recording.parts import Parts, open_parts
from latmon.recording.reader import UNCLOSED, Recording
from latmon.report import outliers, outstanding, sections
from latmon.report.devices import LATENCY, NOT_PASSED, latency_rows, stages_without, volume
from latmon.report.formatting import heads, line, text_table, wrapped
from latmon.report.html_charts import MapColumns
from latmon.report.interrupts import cgroup_table, host_tables, process_table
from latmon.report.summary import Evaluated, added_up, summarise, summary_of
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, RecordingError
from latmon.support.streams import named
from latmon.support.text import encodable
from latmon.support.units import UNKNOWN

if TYPE_CHECKING:
    from latmon.report.html_elements import Look

_WHOLE_BYTES = 4 * 1024 * 1024


def report_command(
    paths: Sequence[Path],
    *,
    as_json: bool = False,
    html: Path | None = None,
    settings: Settings = DEFAULT,
    ramp: str = "auto",
    slo_us: int | None = None,
) -> int:
    """Print the report, which lists damage of the file. RecordingError if no window can be read.

    `html`: a new file for it, or `-`; `settings` are the rules'; `ramp`: the colours of counts in HTML; `slo_us`: I/Os
    at or above it are counted by hour and day.
    """
    recording = open_parts(paths)
    with streams.Progress(f"reading {named(recording.path)}", quiet=html == streams.STANDARD) as progress:
        _follow(recording, progress)
        if html is not None:
            return _to_html(recording, html, _PageOptions(settings, ramp, slo_us))
        summary = summarise(recording, settings, slo_us)
    _need_windows(recording, summary["intervals"])
    text = json.dumps(summary, indent=1, allow_nan=False) + "\n" if as_json else render_text(summary)
    sys.stdout.write(text if as_json else encodable(text, sys.stdout.encoding or "utf-8"))
    return EXIT_DONE


def _follow(recording: Recording | Parts, progress: streams.Progress) -> None:
    """Report how much of a recording is read, by the parts' sizes."""
    files = recording.parts if isinstance(recording, Parts) else (recording,)
    sizes = [one.path.stat().st_size for one in files]
    for at, one in enumerate(files):
        one.progress = partial(_read, progress, sum(sizes[:at]), sum(sizes))


def _read(progress: streams.Progress, before: int, total: int, end: int, _size: int) -> None:
    progress(before + end, total)


class _PageOptions(NamedTuple):
    settings: Settings
    ramp: str
    slo_us: int | None


def _to_html(recording: Recording | Parts, path: Path, options: _PageOptions) -> int:
    from latmon.report.html_elements import look  # noqa: PLC0415  text and JSON need none of it

    shown = look(options.ramp)
    begin_us, end_us = recording.span()
    columns = MapColumns(recording.origin.interval_us, end_us - begin_us)
    parts = len(recording.parts) if isinstance(recording, Parts) else 1
    if path == streams.STANDARD:
        sys.stdout.buffer.write(_page(recording, columns, parts, options, shown))
        return EXIT_DONE
    # open the file first: reading a capture of days is in vain if the name is taken
    with streams.whole(path) as file:
        file.write(_page(recording, columns, parts, options, shown))
    return EXIT_DONE


def _page(recording: Recording | Parts, columns: MapColumns, parts: int, options: _PageOptions, shown: Look) -> bytes:
    from latmon.report.html import render_html  # noqa: PLC0415

    files = recording.parts if isinstance(recording, Parts) else (recording,)
    # a small recording is read by windows, which have more detail than roll-ups and take a few seconds
    whole = sum(one.path.stat().st_size for one in files) <= _WHOLE_BYTES
    evaluated, slo_us = Evaluated(recording, options.settings), options.slo_us
    if whole and not evaluated.by_windows:  # the findings of all forms of the report must be the same
        for item in recording.summed():
            evaluated.add(item)
        totals = added_up(recording, columns.add, whole=True, slo_us=slo_us)
    else:
        totals = added_up(recording, columns.add, evaluated=evaluated, whole=evaluated.by_windows, slo_us=slo_us)
    _need_windows(recording, totals.windows)
    summary = summary_of(recording, totals) | evaluated.summary()
    return render_html(summary, totals, columns, parts, shown).encode("utf-8", "replace")


def _need_windows(recording: Recording | Parts, windows: int) -> None:
    """Raise RecordingError if damage left no window; a capture killed before its first one has a report."""
    damage = [one for one in recording.damage if not one.endswith(UNCLOSED)]
    if not windows and damage:
        path = named(recording.path)
        raise RecordingError(f"no window of {path} can be read ({damage[0]}); `latmon check {path}` lists the damage")


MAX_LISTED = 20
MAX_MARKS = 20
MAX_SECTIONS = 40
MAX_NAMES = 12
"""Settings of a section."""
_MAIN = ("kernel", "tool", "clock", "module ", "device ", "network ")
"""Prefixes of the sections in the text report, in this order; probes and their hashes are in the JSON."""
MAX_FINDINGS = 20
_Json = Mapping[str, Any]


def render_text(summary: _Json) -> str:
    """Return the whole report, with a newline at its end."""
    blocks = [_head(summary), findings(summary), _slow(summary), _trust(summary), marks(summary)]
    begins = summary.get("latency_from", "")
    blocks += [list(_device(name, one, summary["measured_s"], begins)) for name, one in _busy(summary)]
    blocks += [text_table(one(summary))[:-1] for one in (cgroup_table, process_table)]
    blocks += [text_table(outliers.file_table(summary))[:-1], outliers.files_text(summary)]
    blocks += [outliers.text(summary), interrupts(summary)[:-1], outstanding.remarks(summary)]
    blocks.append(settings(summary))
    blocks += [_idle(summary), [line for sentence in sections.meaning(summary) for line in wrapped(sentence)]]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


_HOURS = 12
"""Hours that are listed, those with the most slow I/Os."""


def _slow(summary: _Json) -> list[str]:
    """Return the worst minute, and where there are several the hours and days, with their I/Os above a threshold."""
    lines: list[str] = []
    for slow, sentence in sections.slow_times(summary):
        lines += [*wrapped(sentence), *(_hours_and_days(slow) if slow["worst_minute"] else [])]
    return lines


def _hours_and_days(slow: _Json) -> list[str]:
    lines: list[str] = []
    for name, length in (("hours", 13), ("days", 10)):
        rows = slow[name]
        if len(rows) > 1:
            some = [one for one in rows if one["count"]] if len(rows) > _HOURS else rows
            most = sorted(sorted(some, key=lambda one: -one["count"])[:_HOURS], key=lambda one: one["start"])
            each = ", ".join(f"{one['start'][:length].replace('T', ' ')} {one['count']:,}" for one in most)
            lines += wrapped(f"  by {name[:-1]} (UTC){'' if len(rows) <= _HOURS else ', the worst'}: {each}")
    return lines


def _head(summary: _Json) -> list[str]:
    host = summary["host"]
    tier = f", tier {summary['health']['tier']}" if summary["health"]["tier"] else ""
    return [
        *wrapped(f"latmon report: {host['name']}, kernel {host['kernel']}"),
        *wrapped(
            f"from {summary['start'] or UNKNOWN} to {sections.end(summary)}, {summary['duration_s']:,.1f} s, "
            f"{sections.windows(summary)}, by latmon {host['latmon']}"
        ),
        *wrapped(f"backend {host['tool'] or summary['backend']}{tier}"),
        *(wrapped(f"why this backend: {summary['reason']}") if "reason" in summary else []),
    ]


def _trust(summary: _Json) -> list[str]:
    """Return the lines on completeness: trust, gaps, notices, damage, verdict."""
    lines = [line for sentence in sections.trust(summary) for line in wrapped(sentence)]
    lines += wrapped(f"gaps: {sections.gaps(summary)}")
    lines += _listed(
        [f"{one['start'] or UNKNOWN}  {one['duration_s']:g} s  {one['reason']}" for one in summary["gaps"]]
    )
    lines += wrapped("notices:") if "notices" in summary else []
    lines += _listed([f"{one['time'] or UNKNOWN}  {one['text']}" for one in summary.get("notices", [])])
    lines += wrapped("damage: some of the file can't be read") if "damage" in summary else []
    lines += _listed(summary.get("damage", []))
    return [*lines, *wrapped(sections.verdict(summary))]


def _busy(summary: _Json) -> list[tuple[str, _Json]]:
    """Return the devices with a block of their own."""
    return [(name, one) for name, one in summary["devices"].items() if outstanding.is_busy(one)]


def _idle(summary: _Json) -> list[str]:
    busy = {name for name, _ in _busy(summary)}
    idle = [name for name in summary["devices"] if name not in busy]
    if not idle:
        return wrapped("no device was seen") if not summary["devices"] else []
    if len(idle) == len(summary["devices"]):
        return wrapped(f"no I/O completed on any device in this time: {', '.join(idle)}")
    return wrapped(f"no I/O: {', '.join(idle)}")


def _device(name: str, device: _Json, seconds: float | None, begins: str) -> Iterator[str]:
    parts = [device.get(key, "") for key in ("label", "model", "driver", "controller")]
    on = f"on {', '.join(device['members'])}" if device.get("members") else ""
    yield from wrapped("  ".join(part for part in (name, *parts, on) if part))
    if not device.get("timed", True):
        yield from wrapped(f"not timed here: {sections.why_untimed(device)}", "  ")
    if not device["ops"]:
        yield "  no I/O completed"
    elif any("latency_us" in one or one["stages"] for one in device["ops"].values()):  # else no row has a number
        shown = LATENCY if any(one["stages"] for one in device["ops"].values()) else LATENCY[:-1]
        yield f"{'':<15}{heads(shown)}"
    for op, one in device["ops"].items():
        yield from wrapped(f"{op}: {volume(one, seconds)}", "  ")
        yield from (f"    {row['name']:<11}{line(LATENCY, row)}" for row in latency_rows(one, begins))
    for why, stages in stages_without(device["ops"]).items():
        if why.startswith(NOT_PASSED):
            yield from wrapped(f"n/a: {', '.join(stages)} ({why.removeprefix(NOT_PASSED)})", "  ")
    tail, admission = sections.tail_sentence(name, device), sections.admission_sentence(name, device)
    more = (*sections.stack_sentences(name, device), *sections.size_sentences(device))
    for sentence in (tail, admission, *more, sections.reports_sentence(device)):
        if sentence:
            yield from wrapped(sentence, "  ")
    yield from outstanding.lines(device)


def _listed(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return [part for line in (*lines[:MAX_LISTED], *more) for part in wrapped(line, "  ")]


def findings(summary: _Json) -> list[str]:
    """Return the findings, the most urgent first; `findings: none` with the rules; empty if none was evaluated."""
    if "findings" not in summary:
        return []
    found = summary["findings"]
    if not found:
        return wrapped(f"findings: none ({sections.evaluated(summary)})")
    lines = wrapped(f"findings ({sections.evaluated(summary)}):")
    for one in found[:MAX_FINDINGS]:
        lines += _finding(one)
    return [*lines, *([f"  and {len(found) - MAX_FINDINGS:,} more"] if len(found) > MAX_FINDINGS else [])]


def _finding(one: _Json) -> Iterator[str]:
    yield from wrapped(f"{one['severity'].upper()}  {sections.named(one)} ({one['id']})  {sections.when(one)}", "  ")
    yield from wrapped(f"{one['summary']}.", "    ")
    for fact in one["evidence"].values():
        yield from wrapped(f"- {sections.fact_text(fact)}", "    ")
    yield from wrapped(f"shown on: {sections.shown_on(one)}", "    ")
    for step in one["next_steps"]:
        yield from wrapped(f"next: {step.get('what', step['text'])} (risk: {step['risk']})", "    ")
        for command in step.get("commands", ()):  # on a line of its own, so that it can be pasted
            yield f"        {command['line']}{'' if command['ran'] else NOT_RUN}"
    yield from wrapped(f"refuted by: {one['refuted_by']}", "    ")


def marks(summary: _Json) -> list[str]:
    """Return a line per mark, and the settings that differ from the start."""
    found = summary.get("marks", [])
    if not found:
        return []
    lines = ["marks:"]
    for one in found[:MAX_MARKS]:
        lines += wrapped(f"{one['time'] or UNKNOWN}  {one['text'] or '(no note)'}", "  ")
        lines += [line for sentence in sections.changes(one["changed"]) for line in wrapped(sentence, "    ")]
    return [*lines, *_rest(len(found) - MAX_MARKS, "marks")]


def settings(summary: _Json) -> list[str]:
    """Return a paragraph per section; equal sections of several devices are one."""
    found = summary.get("settings", {})
    reported = sorted((one for one in found if _rank(one) < len(_MAIN)), key=lambda one: (_rank(one), one))
    lines = ["settings at the start:"] if reported else []
    same: dict[str, list[str]] = {}
    for section in reported:
        same.setdefault("; ".join(_named(found[section])), []).append(section)
    for sentence, equal in list(same.items())[:MAX_SECTIONS]:
        kind = equal[0].partition(" ")[0]
        names = ", ".join(one.partition(" ")[2] for one in equal)
        lines += wrapped(f"{kind} {names}".strip() + f": {sentence}", "  ")
    lines += _rest(len(same) - MAX_SECTIONS, "sections")
    others = len(found) - len(reported)
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


def interrupts(summary: _Json) -> list[str]:
    """Return the tables of softirqs, handlers, wake-ups and task queues, as far as they were measured."""
    return [line for table in host_tables(summary) for line in text_table(table)]
