"""Findings of a recording for its summary, from windows; in long recordings from roll-ups.

Owns the keys `findings` and `findings_by`; what is found is latmon.findings' business.
"""

from __future__ import annotations

from typing import Any

from latmon.aggregate.rollup import Minute
from latmon.findings.engine import RULES, Told, Watch, by_kind, told
from latmon.findings.finding import Fact, Finding, Step, ran
from latmon.findings.rule import DEFAULT, Settings
from latmon.model.frame import Frame, Mark
from latmon.recording.encode import End, Gap
from latmon.recording.parts import Parts
from latmon.recording.reader import Recording
from latmon.report.formatting import rfc3339, rounded

SHORT_US = 4 * 60 * 1_000_000
"""A recording that is no longer is read window by window: rules see what they see live. One of 24 devices takes 2 s."""


class Judged:
    """Fed by `add` with a recording's items; `summary` is what came of it."""

    def __init__(self, recording: Recording | Parts, settings: Settings = DEFAULT) -> None:
        begin_us, end_us = recording.span()
        self.by_windows = end_us - begin_us <= SHORT_US
        """Whether it wants windows alone, in each form of the report: what is found must be the same."""
        self._of_minutes = False
        self._off = settings.off
        self._watch = Watch(recording.origin, tuple(recording.devices), settings)

    def add(self, item: Frame | Gap | Mark | End | Minute) -> None:
        """Gaps need no word: a hole in the frames ends what lasts."""
        self._of_minutes = self._of_minutes or isinstance(item, Minute)
        if isinstance(item, Frame | Minute):
            self._watch.take(item)

    def summary(self) -> dict[str, Any]:
        """`findings`, empty where rules were asked and found nothing; no key where there was nothing to ask about."""
        watch = self._watch
        watch.finish()
        if not watch.judged:
            return {}
        return {"findings": [_finding(one) for one in told(watch.episodes)], "findings_by": self._by(watch)}

    def _by(self, watch: Watch) -> dict[str, Any]:
        """How many rules were asked and could judge, in all of it; what is empty is left out, but not `not_judged`."""
        rules, silent = len(RULES) - len(self._off), watch.silent - self._off
        told_of = {"rules_off": sorted(self._off), "failed": watch.failed, "episodes_left_out": watch.left_out}
        return {
            "rules": rules,
            "judged": rules - len(silent | watch.failed.keys()),
            "judged_by": "minutes" if self._of_minutes else "windows",
            "not_judged": {kind: list(some) for kind, some in by_kind(silent).items()},
            **{name: value for name, value in told_of.items() if value},
        }


def _finding(one: Told) -> dict[str, Any]:
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
    """What is known of the view, by the names of Where."""
    return {name: value for name, value in finding.where._asdict().items() if value not in ("", None)}


def _step(step: Step) -> dict[str, Any]:
    """Return the step: `text` has the commands, `what` is without them, and each says whether it was run here."""
    commands = [{"line": line, "ran": ran(line)} for line in step.commands]
    apart = {"what": step.what, "commands": commands} if commands else {}
    return {"text": step.text, "risk": step.risk} | apart
