"""Findings of a recording for its summary: the keys `findings` and `findings_by`.

The rules are evaluated on windows, of long recordings on roll-ups.
"""

from __future__ import annotations

from typing import Any

from latmon.aggregate.accumulator import Minute
from latmon.findings.engine import FindingSummary, RuleEngine, by_kind, summarise_episodes
from latmon.findings.finding import Fact, Finding, Step, ran
from latmon.findings.rule import DEFAULT, Settings
from latmon.findings.rules import RULES
from latmon.model.frame import Frame, Mark
from latmon.recording.encode import End, Gap
from latmon.recording.parts import Parts
from latmon.recording.reader import Recording
from latmon.report.formatting import rounded
from latmon.support.units import rfc3339

SHORT_US = 4 * 60 * 1_000_000
"""Longest recording that is read window by window, as live; 24 devices take 2 s."""


class Evaluated:
    """Rule evaluation over a recording's items; `summary` returns the findings."""

    def __init__(self, recording: Recording | Parts, settings: Settings = DEFAULT) -> None:
        begin_us, end_us = recording.span()
        self.by_windows = end_us - begin_us <= SHORT_US
        """Whether it needs windows, not roll-ups: all forms of the report must have the same findings."""
        self._of_minutes = False
        self._off = settings.off
        self._watch = RuleEngine(recording.origin, tuple(recording.devices), settings)

    def add(self, item: Frame | Gap | Mark | End | Minute) -> None:
        """Evaluate the rules on the next item. Gaps are skipped: a hole between frames ends an episode."""
        self._of_minutes = self._of_minutes or isinstance(item, Minute)
        if isinstance(item, Frame | Minute):
            self._watch.take(item)

    def summary(self) -> dict[str, Any]:
        """Return the key `findings`, empty if rules were evaluated and found nothing; no key if none was evaluated."""
        watch = self._watch
        watch.finish()
        if not watch.evaluated:
            return {}
        return {
            "findings": [_finding(one) for one in summarise_episodes(watch.episodes)],
            "findings_by": self._by(watch),
        }

    def _by(self, watch: RuleEngine) -> dict[str, Any]:
        """Return how many rules there were and how many had their inputs; `not_judged` is never left out."""
        rules, silent = len(RULES) - len(self._off), watch.silent - self._off
        reported_of = {"rules_off": sorted(self._off), "failed": watch.failed, "episodes_left_out": watch.left_out}
        return {
            "rules": rules,
            "judged": rules - len(silent | watch.failed.keys()),
            "judged_by": "minutes" if self._of_minutes else "windows",
            "not_judged": {kind: list(some) for kind, some in by_kind(silent).items()},
            **{name: value for name, value in reported_of.items() if value},
        }


def _finding(one: FindingSummary) -> dict[str, Any]:
    finding = one.finding
    return {
        "id": finding.id,
        "severity": finding.severity,
        "device": finding.device,
        "summary": finding.summary,
        "begin": rfc3339(one.begin_wall),
        "end": rfc3339(one.end_wall),
        "episodes": one.episodes,
        "share": rounded(finding.share, 4),
        "evidence": {fact.name: _fact(fact) for fact in finding.facts},
        "view": _where(finding),
        "next_steps": [_step(step) for step in finding.steps],
        "refuted_by": finding.refuted_by,
    }


def _fact(fact: Fact) -> dict[str, Any]:
    value = fact.value if isinstance(fact.value, str) else rounded(fact.value, 6)
    unit = {"unit": fact.unit} if fact.unit else {}
    return {"value": value, **unit, **({} if fact.of is None else {"samples": fact.of}), "text": fact.said}


def _where(finding: Finding) -> dict[str, Any]:
    """Return the known keys of the view, by their names in Where."""
    return {name: value for name, value in finding.where._asdict().items() if value not in ("", None)}


def _step(step: Step) -> dict[str, Any]:
    """Return the step: `text` has the commands, `what` is without them, and each says whether it was run here."""
    commands = [{"line": line, "ran": ran(line)} for line in step.commands]
    apart = {"what": step.what, "commands": commands} if commands else {}
    return {"text": step.text, "risk": step.risk} | apart
