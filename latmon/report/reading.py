"""One reading of a recording for its report: the totals of its items, and the rules evaluated on them.

Rules are evaluated on windows, of long recordings on roll-ups.
"""

from __future__ import annotations

from collections.abc import Callable

from latmon.aggregate.accumulator import Minute
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import DEFAULT, Settings
from latmon.model.frame import Frame, Mark
from latmon.recording.codec import End, Gap
from latmon.recording.parts import Parts
from latmon.recording.reader import Recording
from latmon.recording.unreported_gaps import UnreportedGaps
from latmon.report.findings import findings_of
from latmon.report.model.report import Report
from latmon.report.summary import report_of
from latmon.report.totals import Totals

SHORT_US = 4 * 60 * 1_000_000
"""Longest recording that is read window by window, as live; 24 devices take 2 s."""
Item = Frame | Gap | Mark | End


def summarise(recording: Recording | Parts, settings: Settings = DEFAULT, slo_us: int | None = None) -> Report:
    """Return the report of a recording; `settings` are the rules'."""
    engine = rule_engine(recording, settings)
    totals = added_up(recording, engine=engine, whole=needs_windows(recording), slo_us=slo_us)
    return report_of(recording, totals, findings_of(engine))


def added_up(
    recording: Recording | Parts,
    add: Callable[[Item | Minute], None] | None = None,
    *,
    engine: RuleEngine | None = None,
    whole: bool = False,
    slo_us: int | None = None,
) -> Totals:
    """Return totals after one pass, which also feeds `add` and evaluates rules; `whole`: windows only, no roll-ups.

    Gaps are no items of the rules: a hole between frames ends an episode.
    """
    devices = {device.name: device for device in recording.devices}
    totals = Totals(recording.origin.interval_us, devices=devices, slo_us=slo_us)
    if engine is not None:
        totals.by_blocks = True
        engine.on_block = totals.add_block
    unreported = UnreportedGaps(recording.origin.interval_us)
    for item in recording if whole else recording.summed():
        for gap in unreported.before(item):
            totals.add(gap)
        totals.add(item)
        if engine is not None and isinstance(item, Frame | Minute):
            engine.take(item)
        elif engine is not None and isinstance(item, Mark):
            engine.note(item)
        if add is not None:
            add(item)
    if engine is not None:
        engine.finish()
    return totals


def rule_engine(recording: Recording | Parts, settings: Settings = DEFAULT) -> RuleEngine:
    """Return an engine for the rules on a recording, before its first item."""
    return RuleEngine(recording.origin, tuple(recording.devices), settings)


def needs_windows(recording: Recording | Parts) -> bool:
    """Return whether rules need windows, not roll-ups: all forms of the report must have the same findings."""
    begin_us, end_us = recording.span()
    return end_us - begin_us <= SHORT_US
