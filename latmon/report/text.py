"""The text report for a ticket: 80 columns in a file, and definitions of its numbers.

It is made of the report alone, so that scripts have all of its numbers, too. A part that was not measured has no line.
"""

from __future__ import annotations

from collections.abc import Collection

from latmon.report import (
    captured,
    completeness,
    definitions,
    device_text,
    findings,
    limit_remarks,
    outliers,
    slow_times,
)
from latmon.report.columns import text_table
from latmon.report.files import file_table, files_text
from latmon.report.interrupts import host_tables
from latmon.report.issuers import cgroup_table, process_table
from latmon.report.model.report import Report
from latmon.report.nfs import nfs_table
from latmon.support.text import wrapped


def render_text(report: Report) -> str:
    """Return the whole report, with a newline at its end."""
    parts = [
        findings.verdict(report.evaluated),
        captured.head(report),
        findings.lines(report.evaluated),
        slow_times.lines(report),
        completeness.lines(report),
        captured.marks(report.marks),
    ]
    busy = {name: device for name, device in report.devices.items() if device_text.is_busy(device)}
    parts += [
        *(list(device_text.lines(name, device, report)) for name, device in busy.items()),
        text_table(cgroup_table(report)),
        text_table(process_table(report)),
        text_table(file_table(report)),
        files_text(report),
        text_table(nfs_table(report)),
        outliers.text(report),
        *map(text_table, host_tables(report)),
        limit_remarks.lines(report),
        limit_remarks.compared(report),
        captured.settings(report.settings),
        _idle(report.devices.keys(), busy.keys()),
        findings.not_evaluated(report.evaluated),
        [line for sentence in definitions.meaning(report) for line in wrapped(sentence)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _idle(names: Collection[str], busy: Collection[str]) -> list[str]:
    """Return the devices that have no lines of their own; `names`: of all devices, in their order."""
    idle = [name for name in names if name not in busy]
    if not idle:
        return wrapped("no device was seen") if not names else []
    if len(idle) == len(names):
        return wrapped(f"no I/O completed on any device in this time: {', '.join(idle)}")
    return wrapped(f"no I/O: {', '.join(idle)}")
