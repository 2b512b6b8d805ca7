"""Findings of a report: the values of a rule's finding, and its sentences and lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from latmon.findings import rule
from latmon.findings.engine import RuleEngine, by_kind, evaluated_by
from latmon.findings.episodes import FindingSummary, summarise_episodes
from latmon.findings.rule import NOT_RUN, ran, screen_title, sized
from latmon.findings.rules import RULES, title_of
from latmon.report.formatting import rounded
from latmon.report.model.finding import Command, Evaluation, Fact, Finding, Findings, Lasted, NextStep, View
from latmon.support.text import wrapped
from latmon.support.units import UNKNOWN, counted, rfc3339, spelled

MAX_FINDINGS = 20


def findings_of(engine: RuleEngine) -> Findings | None:
    """Return the findings, maybe none, of the rules that an engine evaluated to the end; None if it evaluated none."""
    if not engine.evaluated:
        return None
    off = engine.settings.off
    rules, silent = len(RULES) - len(off), engine.silent - off
    return Findings(
        tuple(map(_lasting, summarise_episodes(engine.episodes))),
        Evaluation(
            rules=rules,
            judged=rules - len(silent | engine.failed.keys()),
            judged_by="minutes" if engine.by_minutes else "windows",
            not_judged=by_kind(silent),
            partly_evaluated=engine.partly,
            rules_off=tuple(sorted(off)),
            failed=engine.failed,
            episodes_left_out=engine.left_out,
        ),
    )


def _lasting(summary: FindingSummary) -> Finding:
    """Return a finding with its time and number of episodes."""
    begin, end = rfc3339(summary.begin_wall), rfc3339(summary.end_wall)
    lasted = Lasted(begin, end, summary.episodes, round(summary.found_us / 1e6, 1), round(summary.of_s, 1))
    return replace(reported_finding(summary.finding), lasted=lasted)


def reported_finding(result: rule.Finding) -> Finding:
    """Return a finding as a report has it, without its time."""
    where = result.where
    return Finding(
        id=result.id,
        severity=result.severity,
        device=result.device,
        summary=result.summary,
        share=round(result.share, 4),
        evidence={fact.name: _fact(fact) for fact in result.facts},
        view=View(where.screen, where.device, where.op, where.low_us, where.high_us),
        next_steps=tuple(map(_step, result.steps)),
        refuted_by=result.refuted_by,
    )


def _fact(fact: rule.Fact) -> Fact:
    value = fact.value if isinstance(fact.value, str) else rounded(fact.value, 6)
    return Fact(value=value, unit=fact.unit, samples=fact.of, text=fact.text)


def _step(step: rule.Step) -> NextStep:
    """Return the step: `text` has the commands, `what` is without them; each command has whether it was run here."""
    commands = tuple(Command(line, ran(line)) for line in step.commands)
    return NextStep(step.text, step.risk, step.what if commands else None, commands)


def lines(findings: Findings | None) -> list[str]:
    """Return the findings, the most urgent first; `findings: none` with the rules; empty if none was evaluated."""
    if findings is None:
        return []
    rows, (by, _) = findings.findings, _how_evaluated(findings.findings_by)
    if not rows:
        return wrapped(f"findings: none ({by})")
    shown = wrapped(f"findings ({by}):")
    for finding in rows[:MAX_FINDINGS]:
        shown += _finding(finding)
    return [*shown, *([f"  and {len(rows) - MAX_FINDINGS:,} more"] if len(rows) > MAX_FINDINGS else [])]


def verdict(findings: Findings | None) -> list[str]:
    """Return the most urgent finding and the number of the others in one sentence; empty if no rule was evaluated.

    Without a finding by how many rules: one that lacked inputs for some of the time is no clean bill.
    """
    if findings is None:
        return []
    if not findings.findings:
        return wrapped(f"verdict: no finding by {_judging(findings.findings_by)}")
    first, *others = findings.findings
    more = f"; {counted(len(others), 'more finding')}" if others else ""
    return wrapped(f"verdict: {first.severity.upper()}  {first.summary}{more}")


def _judging(by: Evaluation) -> str:
    """Return how many rules were evaluated: `33 rules` only where all of them were, for all of the time."""
    if by.judged < by.rules:
        return f"{by.judged} of {by.rules} rules"
    some_of_the_time = f", {len(by.partly_evaluated)} of them only for some of the time" if by.partly_evaluated else ""
    return f"{by.rules} rules{some_of_the_time}"


def not_evaluated(findings: Findings | None) -> list[str]:
    """Return which rules were not evaluated, or are off, and why; empty where there are none."""
    why = "" if findings is None else _how_evaluated(findings.findings_by)[1]
    return wrapped(f"findings: {why}") if why else []


def _finding(finding: Finding) -> Iterator[str]:
    about = f"{finding.severity.upper()}  {named(finding)} ({finding.id})  {when(finding)}"
    yield from wrapped(about, "  ")
    yield from wrapped(f"{finding.summary}.", "    ")
    for fact in finding.evidence.values():
        yield from wrapped(f"- {fact_text(fact)}", "    ")
    yield from wrapped(f"shown on: {shown_on(finding.view)}", "    ")
    for step in finding.next_steps:
        yield from wrapped(f"next: {step.text if step.what is None else step.what} (risk: {step.risk})", "    ")
        for command in step.commands:  # on a line of its own, so that it can be pasted
            yield f"        {command.line}{'' if command.ran else NOT_RUN}"
    yield from wrapped(f"refuted by: {finding.refuted_by}", "    ")


def evaluated(by: Evaluation) -> str:
    """Return how rules were evaluated: `13 rules, minute by minute`, and which of them lacked inputs."""
    return "; ".join(filter(None, _how_evaluated(by)))


def _how_evaluated(by: Evaluation) -> tuple[str, str]:
    """Return how many rules were evaluated, and how; and which of them lacked inputs or are off."""
    who, why = evaluated_by(by.rules, by.not_judged, by.failed, by.partly_evaluated)
    how = "every 5 s over the last minute" if by.judged_by == "windows" else "minute by minute"
    off = f"off by the config: {', '.join(by.rules_off)}" if by.rules_off else ""
    left = f"{counted(by.episodes_left_out, 'episode')} left out" if by.episodes_left_out else ""
    return f"{who}, {how}", "; ".join(filter(None, (why, off, left)))


def named(finding: Finding) -> str:
    """Return the device and the title of a finding: `sde starved I/O`."""
    return f"{finding.device} {title_of(finding.id)}".strip()


def when(finding: Finding) -> str:
    """Return the time from the first block to the last, and the number of episodes; empty where it is not known."""
    lasted = finding.lasted
    if lasted is None:
        return ""
    begin, end = lasted.begin or UNKNOWN, lasted.end or UNKNOWN
    span = f"at {begin}" if begin == end else f"{begin} to {end}"
    many = f"{lasted.episodes:,} times, {lasted.found_s:.0f} of {lasted.of_s:.0f} s"
    return span if lasted.episodes == 1 else f"{span}, {many}"


def fact_text(fact: Fact) -> str:
    """Return the fact with its number of samples, if its text doesn't contain it."""
    return sized(fact.text, fact.samples)


def shown_on(view: View) -> str:
    """Return the view with the evidence: `screen stages, sdc, 100 ms and more`."""
    low, high = ("" if us is None else spelled(us) for us in (view.low_us, view.high_us))
    region = f"{low} to {high}" if low and high else f"{low} and more" if low else f"up to {high}" if high else ""
    return ", ".join(part for part in (f"screen {screen_title(view.screen)}", view.device, view.op, region) if part)
