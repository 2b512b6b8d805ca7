"""One reading of a recording for its report: the totals of its items, and the rules evaluated on them.

Rules are evaluated on windows, of long recordings on roll-ups.
"""

from __future__ import annotations

from collections.abc import Callable

from latmon.aggregate.accumulator import Minute
from latmon.findings.engine import RuleEngine, by_kind, summarise_episodes
from latmon.findings.facts import Block
from latmon.findings.rule import DEFAULT, Settings
from latmon.findings.rules import RULES
from latmon.model.frame import Frame, Mark
from latmon.recording.codec import End, Gap
from latmon.recording.parts import Parts
from latmon.recording.reader import Recording
from latmon.report.findings import lasting_finding
from latmon.report.model.finding import Evaluation, Findings
from latmon.report.model.report import Report
from latmon.report.summary import report_of
from latmon.report.totals import Totals

SHORT_US = 4 * 60 * 1_000_000
"""Longest recording that is read window by window, as live; 24 devices take 2 s."""
Item = Frame | Gap | Mark | End


def summarise(recording: Recording | Parts, settings: Settings = DEFAULT, slo_us: int | None = None) -> Report:
    """Return the report of a recording; `settings` are the rules'."""
    evaluated = Evaluated(recording, settings)
    totals = added_up(recording, evaluated=evaluated, whole=evaluated.by_windows, slo_us=slo_us)
    return report_of(recording, totals, evaluated.findings())


def added_up(
    recording: Recording | Parts,
    add: Callable[[Item | Minute], None] | None = None,
    *,
    evaluated: Evaluated | None = None,
    whole: bool = False,
    slo_us: int | None = None,
) -> Totals:
    """Return totals after one pass, which also feeds `add` and evaluates rules; `whole`: windows only, no roll-ups."""
    devices = {device.name: device for device in recording.devices}
    totals = Totals(recording.origin.interval_us, devices=devices, slo_us=slo_us)
    if evaluated is not None:
        totals.by_blocks, evaluated.on_block = True, totals.take
    for item in recording if whole else recording.summed():
        totals.add(item)
        if evaluated is not None:
            evaluated.add(item)
        if add is not None:
            add(item)
    if evaluated is not None:
        evaluated.finish()
    return totals


class Evaluated:
    """Rule evaluation over a recording's items; `findings` returns the result."""

    def __init__(self, recording: Recording | Parts, settings: Settings = DEFAULT) -> None:
        begin_us, end_us = recording.span()
        self.by_windows = end_us - begin_us <= SHORT_US
        """Whether it needs windows, not roll-ups: all forms of the report must have the same findings."""
        self._of_minutes = False
        self._off = settings.off
        self.on_block: Callable[[Block], None] | None = None
        """Called with the sums of each block."""
        self._watch = RuleEngine(recording.origin, tuple(recording.devices), settings, on_block=self._pass)

    def _pass(self, block: Block) -> None:
        if self.on_block is not None:
            self.on_block(block)

    def add(self, item: Frame | Gap | Mark | End | Minute) -> None:
        """Evaluate the rules on the next item. Gaps are skipped: a hole between frames ends an episode."""
        self._of_minutes = self._of_minutes or isinstance(item, Minute)
        if isinstance(item, Frame | Minute):
            self._watch.take(item)

    def finish(self) -> None:
        """Evaluate what is not in a block yet: no more items come."""
        self._watch.finish()

    def findings(self) -> Findings | None:
        """Return the findings, maybe none, of the rules that were evaluated; None if none was."""
        self.finish()
        watch = self._watch
        if not watch.evaluated:
            return None
        return Findings(tuple(map(lasting_finding, summarise_episodes(watch.episodes))), self._by(watch))

    def _by(self, watch: RuleEngine) -> Evaluation:
        """Return how many rules there were and how many had their inputs."""
        rules, silent = len(RULES) - len(self._off), watch.silent - self._off
        return Evaluation(
            rules=rules,
            judged=rules - len(silent | watch.failed.keys()),
            judged_by="minutes" if self._of_minutes else "windows",
            not_judged=by_kind(silent),
            partly_evaluated=watch.partly,
            rules_off=tuple(sorted(self._off)),
            failed=watch.failed,
            episodes_left_out=watch.left_out,
        )
