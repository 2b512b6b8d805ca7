"""`latmon report`: the command that prints a recording's summary as JSON, text or HTML, and its text for a ticket.

The text has 80 columns, no colour, and definitions of its numbers. It is made of the report alone, so that scripts
have all of its numbers too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from latmon.findings.rule import DEFAULT, NOT_RUN, Settings
from latmon.recording.parts import Parts, open_parts
from latmon.recording.reader import UNCLOSED, Recording
from latmon.report import outliers, outstanding, sections
from latmon.report.files import file_table, files_text
from latmon.report.formatting import heads, line, text_table, wrapped
from latmon.report.html_charts import MapColumns
from latmon.report.interrupts import host_tables
from latmon.report.issuers import cgroup_table, process_table
from latmon.report.latency_table import LATENCY, latency_rows, stages_without, volume
from latmon.report.model.device import NOT_PASSED, Device
from latmon.report.model.finding import Finding, Findings
from latmon.report.model.report import CountedSpan, Report
from latmon.report.summary import Evaluated, added_up, report_of, summarise
from latmon.support import streams
from latmon.support.errors import EXIT_DONE, RecordingError
from latmon.support.streams import named
from latmon.support.text import encodable
from latmon.support.typed_json import to_json
from latmon.support.units import UNKNOWN

if TYPE_CHECKING:
    from latmon.report.html_elements import Look

MAX_LISTED = 20
MAX_MARKS = 20
MAX_SECTIONS = 40
MAX_NAMES = 12
"""Settings of a section."""
_MAIN = ("kernel", "tool", "clock", "module ", "device ", "network ")
"""Prefixes of the sections in the text report, in this order; probes and their hashes are in the JSON."""
MAX_FINDINGS = 20
_HOURS = 12
"""Hours that are listed, those with the most slow I/Os."""
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
        report = summarise(recording, settings, slo_us)
    _need_windows(recording, report.intervals)
    text = json.dumps(to_json(report), indent=1, allow_nan=False) + "\n" if as_json else render_text(report)
    sys.stdout.write(text if as_json else encodable(text, sys.stdout.encoding or "utf-8"))
    return EXIT_DONE


def _follow(recording: Recording | Parts, progress: streams.Progress) -> None:
    """Report how much of a recording is read, by the parts' sizes."""
    files = recording.parts if isinstance(recording, Parts) else (recording,)
    sizes = [file.path.stat().st_size for file in files]
    for at, file in enumerate(files):
        file.progress = partial(_read, progress, sum(sizes[:at]), sum(sizes))


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
    whole = sum(file.path.stat().st_size for file in files) <= _WHOLE_BYTES
    evaluated, slo_us = Evaluated(recording, options.settings), options.slo_us
    if whole and not evaluated.by_windows:  # the findings of all forms of the report must be the same
        for item in recording.summed():
            evaluated.add(item)
        totals = added_up(recording, columns.add, whole=True, slo_us=slo_us)
    else:
        totals = added_up(recording, columns.add, evaluated=evaluated, whole=evaluated.by_windows, slo_us=slo_us)
    _need_windows(recording, totals.windows)
    report = report_of(recording, totals, evaluated.findings())
    return render_html(report, totals, columns, parts, shown).encode("utf-8", "replace")


def _need_windows(recording: Recording | Parts, windows: int) -> None:
    """Raise RecordingError if damage left no window; a capture killed before its first one has a report."""
    damage = [sentence for sentence in recording.damage if not sentence.endswith(UNCLOSED)]
    if not windows and damage:
        path = named(recording.path)
        raise RecordingError(f"no window of {path} can be read ({damage[0]}); `latmon check {path}` lists the damage")


def render_text(report: Report) -> str:
    """Return the whole report, with a newline at its end."""
    blocks = [_head(report), findings(report.evaluated), slow(report), _trust(report), marks(report)]
    blocks += [list(_device(name, device, report)) for name, device in _busy(report)]
    blocks += [text_table(cgroup_table(report))[:-1], text_table(process_table(report))[:-1]]
    blocks += [text_table(file_table(report))[:-1], files_text(report)]
    blocks += [outliers.text(report), interrupts(report)[:-1], outstanding.remarks(report)]
    blocks.append(settings(report))
    blocks += [_idle(report), [line for sentence in sections.meaning(report) for line in wrapped(sentence)]]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def slow(report: Report) -> list[str]:
    """Return the worst minute, and where there are several the hours and days, with their I/Os above a threshold."""
    lines: list[str] = []
    for times, sentence in sections.slow_times(report):
        lines += wrapped(sentence)
        if times.worst_minute:
            lines += [*_spans("hour", 13, times.hours), *_spans("day", 10, times.days)]
    return lines


def _spans(name: str, length: int, spans: Sequence[CountedSpan]) -> list[str]:
    """Return the hours or days with the most I/Os; `length`: characters of their beginnings."""
    if len(spans) <= 1:
        return []
    counted = [span for span in spans if span.count] if len(spans) > _HOURS else spans
    most = sorted(sorted(counted, key=lambda span: -span.count)[:_HOURS], key=_start)
    texts = ", ".join(f"{_start(span)[:length].replace('T', ' ')} {span.count:,}" for span in most)
    return wrapped(f"  by {name} (UTC){'' if len(spans) <= _HOURS else ', the worst'}: {texts}")


def _start(span: CountedSpan) -> str:
    return span.start or UNKNOWN


def _head(report: Report) -> list[str]:
    host = report.host
    tier = f", tier {report.health.tier}" if report.health.tier else ""
    return [
        *wrapped(f"latmon report: {host.name}, kernel {host.kernel}"),
        *wrapped(
            f"from {report.start or UNKNOWN} to {sections.end(report)}, {report.duration_s:,.1f} s, "
            f"{sections.windows(report)}, by latmon {host.latmon}"
        ),
        *wrapped(f"backend {host.tool or report.backend}{tier}"),
        *(wrapped(f"why this backend: {report.reason}") if report.reason else []),
    ]


def _trust(report: Report) -> list[str]:
    """Return the lines on completeness: trust, gaps, notices, damage, verdict."""
    lines = [line for sentence in sections.trust(report) for line in wrapped(sentence)]
    lines += wrapped(f"gaps: {sections.gaps(report)}")
    lines += _listed([f"{gap.start or UNKNOWN}  {gap.duration_s:g} s  {gap.reason}" for gap in report.gaps])
    lines += wrapped("notices:") if report.notices else []
    lines += _listed([f"{notice.time or UNKNOWN}  {notice.text}" for notice in report.notices])
    lines += wrapped("damage: some of the file can't be read") if report.damage else []
    lines += _listed(list(report.damage))
    return [*lines, *wrapped(sections.verdict(report))]


def _busy(report: Report) -> list[tuple[str, Device]]:
    """Return the devices with a block of their own."""
    return [(name, device) for name, device in report.devices.items() if outstanding.is_busy(device)]


def _idle(report: Report) -> list[str]:
    busy = {name for name, _ in _busy(report)}
    idle = [name for name in report.devices if name not in busy]
    if not idle:
        return wrapped("no device was seen") if not report.devices else []
    if len(idle) == len(report.devices):
        return wrapped(f"no I/O completed on any device in this time: {', '.join(idle)}")
    return wrapped(f"no I/O: {', '.join(idle)}")


def _device(name: str, device: Device, report: Report) -> Iterator[str]:
    on = f"on {', '.join(device.members)}" if device.members else ""
    parts = (name, device.label, device.model, device.driver, device.controller, on)
    yield from wrapped("  ".join(part for part in parts if part))
    if device.timed is False:
        yield from wrapped(f"not timed here: {sections.why_untimed(device)}", "  ")
    yield from _ops(device, report)
    tail, admission = sections.tail_sentence(name, device), sections.admission_sentence(name, device)
    more = (*sections.stack_sentences(name, device), *sections.size_sentences(device))
    for sentence in (tail, admission, *more, sections.reports_sentence(device)):
        if sentence:
            yield from wrapped(sentence, "  ")
    yield from outstanding.lines(device)


def _ops(device: Device, report: Report) -> Iterator[str]:
    """Yield a device's I/Os with their latencies, and the stages that no I/O passed."""
    ops = device.ops.values()
    if not ops:
        yield "  no I/O completed"
    elif any(op.latency_us or op.stages for op in ops):  # else no row has a number
        shown = LATENCY if any(op.stages for op in ops) else LATENCY[:-1]
        yield f"{'':<15}{heads(shown)}"
    for name, op in device.ops.items():
        yield from wrapped(f"{name}: {volume(op, report.measured_s)}", "  ")
        yield from (f"    {row.name:<11}{line(LATENCY, row)}" for row in latency_rows(op, report.latency_from))
    for why, stages in stages_without(device.ops).items():
        if why.startswith(NOT_PASSED):
            yield from wrapped(f"n/a: {', '.join(stages)} ({why.removeprefix(NOT_PASSED)})", "  ")


def _listed(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return [part for line in (*lines[:MAX_LISTED], *more) for part in wrapped(line, "  ")]


def findings(evaluated: Findings | None) -> list[str]:
    """Return the findings, the most urgent first; `findings: none` with the rules; empty if none was evaluated."""
    if evaluated is None:
        return []
    rows, by = evaluated.findings, sections.evaluated(evaluated.findings_by)
    if not rows:
        return wrapped(f"findings: none ({by})")
    lines = wrapped(f"findings ({by}):")
    for finding in rows[:MAX_FINDINGS]:
        lines += _finding(finding)
    return [*lines, *([f"  and {len(rows) - MAX_FINDINGS:,} more"] if len(rows) > MAX_FINDINGS else [])]


def _finding(finding: Finding) -> Iterator[str]:
    about = f"{finding.severity.upper()}  {sections.named(finding)} ({finding.id})  {sections.when(finding)}"
    yield from wrapped(about, "  ")
    yield from wrapped(f"{finding.summary}.", "    ")
    for fact in finding.evidence.values():
        yield from wrapped(f"- {sections.fact_text(fact)}", "    ")
    yield from wrapped(f"shown on: {sections.shown_on(finding.view)}", "    ")
    for step in finding.next_steps:
        yield from wrapped(f"next: {step.text if step.what is None else step.what} (risk: {step.risk})", "    ")
        for command in step.commands:  # on a line of its own, so that it can be pasted
            yield f"        {command.line}{'' if command.ran else NOT_RUN}"
    yield from wrapped(f"refuted by: {finding.refuted_by}", "    ")


def marks(report: Report) -> list[str]:
    """Return a line per mark, and the settings that differ from the start."""
    if not report.marks:
        return []
    lines = ["marks:"]
    for mark in report.marks[:MAX_MARKS]:
        lines += wrapped(f"{mark.time or UNKNOWN}  {mark.text or '(no note)'}", "  ")
        lines += [line for sentence in sections.changes(mark.changed) for line in wrapped(sentence, "    ")]
    return [*lines, *_rest(len(report.marks) - MAX_MARKS, "marks")]


def settings(report: Report) -> list[str]:
    """Return a paragraph per section; equal sections of several devices are one."""
    by_section = report.settings
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


def interrupts(report: Report) -> list[str]:
    """Return the tables of softirqs, handlers, wake-ups and task queues, as far as they were measured."""
    return [line for table in host_tables(report) for line in text_table(table)]
