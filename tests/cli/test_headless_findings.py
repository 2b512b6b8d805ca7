"""Findings of a capture without a screen."""

from dataclasses import replace

import pytest

from latmon.cli import headless
from latmon.cli.headless import FindingReporter
from latmon.findings import engine
from latmon.findings.engine import NEEDS
from latmon.findings.rule import CRITICAL, LATENCIES, NOTICE, WARNING, Finding, Rule, Settings, Where
from latmon.findings.rules import RULES
from latmon.model.frame import Frame, Origin

ORIGIN = Origin("bpftrace", "box", "6.1", "0.1")
SICK = Finding("starved-io", WARNING, "sda", "sda: one waits", (), Where("outstanding"), (), "nothing")

OTHERS = "`latmon report` names the others and why"
NOT_ALL = f"0 of {len(RULES)} rules evaluated, {OTHERS}"


def frames(n, begin=0):
    return [Frame(i, 1e9 + i, (i + 1) * 1_000_000, 1_000_000) for i in range(begin, begin + n)]


@pytest.fixture
def evaluated(monkeypatch):
    """Rules with the test's findings, block by block."""
    reported = []

    def rules(facts, _settings):
        return (
            tuple(reported[len(reported) - 1 if len(facts.blocks) > len(reported) else len(facts.blocks) - 1])
            if reported
            else ()
        )

    monkeypatch.setattr(engine, "evaluate_rules", lambda facts, settings, _failed: iter([rules(facts, settings)]))
    return reported


def lines(found, n, origin=ORIGIN):
    found.begin(origin)
    return [line for frame in frames(n) for _, line in found.take(frame)]


def sentences(found):
    return [line for _, line in found.all_reported()]


def test_a_new_one_is_reported_once(evaluated):
    evaluated += [(), (SICK,), (SICK,)]
    finding_reporter = FindingReporter(Settings())
    assert lines(finding_reporter, 10) == ["finding after 5s: warning, starved-io: sda: one waits"]
    assert sentences(finding_reporter) == ["finding, for 5s: warning, starved-io: sda: one waits", NOT_ALL]


def test_a_notice_waits_for_the_end_and_the_worst_comes_first(evaluated):
    evaluated += [(replace(SICK, severity=NOTICE), replace(SICK, id="requeue-storm", severity=CRITICAL))]
    finding_reporter = FindingReporter(Settings())
    assert lines(finding_reporter, 5) == ["finding after 2s: critical, requeue-storm: sda: one waits"]
    assert sentences(finding_reporter) == [
        "finding, for 3s: critical, requeue-storm: sda: one waits",
        "finding, for 3s: notice, starved-io: sda: one waits",
        NOT_ALL,
    ]


@pytest.mark.usefixtures("evaluated")
def test_none_is_reported_of_what_was_long_enough():
    finding_reporter = FindingReporter(Settings())
    assert lines(finding_reporter, 1) == []
    assert sentences(finding_reporter) == []
    assert lines(finding_reporter, 5) == []
    assert sentences(finding_reporter) == [f"no finding; 0 of {len(RULES)} rules evaluated, {OTHERS}"]


@pytest.mark.usefixtures("evaluated")
def test_rules_that_are_off_do_not_count():
    finding_reporter = FindingReporter(Settings(off=frozenset(NEEDS) - {"starved-io"}))
    lines(finding_reporter, 5)
    assert sentences(finding_reporter) == [f"no finding; 0 of 1 rules evaluated, {OTHERS}"]


def test_a_rule_that_failed_is_reported_once(monkeypatch):
    def fails(_facts, _limits):
        return 1 // 0

    monkeypatch.setattr(engine, "RULES", (Rule("tick-quantum", "f", fails, LATENCIES),))
    finding_reporter = FindingReporter(Settings(off=frozenset(NEEDS) - {"tick-quantum"}))
    words = "ZeroDivisionError: integer division or modulo by zero"
    assert lines(finding_reporter, 15) == [f"rule tick-quantum failed: {words}; the other rules are still evaluated"]
    assert not any("; the other rules are still evaluated" in line for line in sentences(finding_reporter))


def test_a_finding_whose_inputs_are_measured_comes_and_goes_in_one_line(evaluated):
    slow = replace(SICK, id="tick-quantum")
    evaluated += [(slow,), (), (slow,), ()]
    reporter = FindingReporter(Settings())
    assert len(lines(reporter, 20, replace(ORIGIN, measured={"total": ""}))) == 1
    assert sentences(reporter)[0] == "finding, 2 times, 7 of 10 s: warning, tick-quantum: sda: one waits"


def test_a_finding_that_nothing_refutes_goes_on(evaluated):
    """The stages that starved-io needs are not traced here."""
    evaluated += [(SICK,), (), (SICK,), ()]
    reporter = FindingReporter(Settings())
    assert len(lines(reporter, 20)) == 1
    assert sentences(reporter) == ["finding, for 8s: warning, starved-io: sda: one waits", NOT_ALL]


def test_a_flood_is_bounded(evaluated, monkeypatch):
    monkeypatch.setattr(headless, "MAX_FINDINGS", 2)
    evaluated += [tuple(replace(SICK, device=f"sd{i}") for i in range(5))]
    finding_reporter = FindingReporter(Settings())
    assert len(lines(finding_reporter, 5)) == 2
    assert sentences(finding_reporter)[-2] == "and 3 more findings, which `latmon report` lists"
