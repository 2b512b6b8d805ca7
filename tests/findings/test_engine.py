"""The rule engine over time: minutes, gaps, another boot, jitter, many episodes; and a rule that fails."""

import re
from dataclasses import replace

import pytest
from finding_cases import BEGIN_S, facts_of, frame, lasting, timed, traced

from latmon.aggregate.accumulator import Minute
from latmon.findings import engine, episodes
from latmon.findings.engine import NEEDS, RuleEngine, evaluate_rules, evaluated_by, unexplained
from latmon.findings.facts import Facts
from latmon.findings.rule import CRITICAL, DEFAULT, MISSING, NOTICE, TRACED, WARNING, Finding, Where
from latmon.findings.rules import RULES
from latmon.model.frame import Origin, Series, Traced
from latmon.model.host_context import interval_value

S = 1_000_000
ORIGIN = Origin("demo", "host", "6.1", "0", interval_us=S, start_mono_us=BEGIN_S * S)


def named(rule="starved-io", device="sda", severity=WARNING, **changed):
    return Finding(rule, severity, device, "s", (), Where("overview"), (), "r", **changed)


@pytest.fixture
def reported(monkeypatch):
    """Findings of the next block, without an evaluation."""
    findings = [named()]
    monkeypatch.setattr(engine, "evaluate_rules", lambda _facts, _settings, _failed: iter([tuple(findings)]))
    return findings


def seconds(first, last):
    """Frames of 1 s that end at these seconds."""
    return [frame(n, dt_us=S) for n in range(first + 1, last + 1)]


def fed(items, origin=ORIGIN):
    rule_engine = RuleEngine(origin)
    for item in items:
        rule_engine.take(item)
    return rule_engine


def spans(one):
    return [(block.begin_us // S, block.end_us // S) for block in one._blocks]


@pytest.mark.usefixtures("reported")
def test_behind_a_hole_of_one_frame_everything_begins_again():
    rule_engine = fed([*seconds(100, 110), *seconds(111, 113)])
    assert (rule_engine.current, rule_engine.lasting) == ((), ())
    assert [(each.begin_us // S, each.end_us // S, each.found_us // S) for each in rule_engine.episodes] == [
        (102, 110, 10)
    ]
    for each in seconds(113, 115):
        rule_engine.take(each)
    assert spans(rule_engine) == [(111, 115)]
    assert len(rule_engine.lasting) == 1
    assert len(rule_engine.episodes) == 2


@pytest.mark.usefixtures("reported")
def test_another_boot_ends_what_lasts():
    rule_engine = fed([*seconds(1000, 1010), *seconds(20, 30)])
    assert all(each.begin_us <= each.end_us for each in rule_engine.episodes)
    assert sorted((each.begin_us // S, each.end_us // S) for each in rule_engine.episodes) == [(25, 30), (1005, 1010)]


@pytest.mark.usefixtures("reported")
def test_frames_behind_a_minute_are_blocks_as_ever():
    minute = Minute(frame=frame(160, dt_us=60 * S), windows=60, longest_us=S, first_dt_us=S)
    rule_engine = fed([*seconds(98, 100), minute, *seconds(160, 170)])
    assert spans(rule_engine) == [(98, 100), (100, 160), (160, 165), (165, 170)]
    assert rule_engine.facts.span_us == 70 * S, (
        "a roll-up can't be cut: it stays until there is most of a minute behind it"
    )
    for each in seconds(170, 205):
        rule_engine.take(each)
    assert rule_engine.facts.span_us == 45 * S
    late = Minute(frame=frame(300, dt_us=60 * S), windows=60, longest_us=S, first_dt_us=S)
    rule_engine.take(late)
    assert spans(rule_engine) == [(240, 300)]


def test_stamps_that_wobble_leave_a_whole_minute():
    def wobbling(n):
        return frame(n + (0.0003, -0.0003, 0.0001)[n % 3], dt_us=S + (-600, 400, 200)[(n + 1) % 3])

    rule_engine, seen = RuleEngine(ORIGIN), set()
    for n in range(101, 400):
        if rule_engine.take(wobbling(n)) and n > 170:
            seen.add(len(rule_engine.facts.window))
    assert seen == {12}


def test_the_oldest_of_the_least_urgent_is_forgotten(reported, monkeypatch):
    monkeypatch.setattr(episodes, "MAX_EPISODES", 3)
    rule_engine = RuleEngine(replace(ORIGIN, measured={"total": ()}))
    cases = [("a", CRITICAL), ("b", NOTICE), ("c", NOTICE), ("d", WARNING), ("e", WARNING)]
    for n, (device, severity) in enumerate(cases):
        reported[:] = [named("peer-outlier", device, severity)]
        for each in seconds(100 + 5 * n, 105 + 5 * n):
            rule_engine.take(each)
    reported[:] = []
    for each in seconds(125, 130):
        rule_engine.take(each)
    assert [each.worst.device for each in rule_engine.episodes] == ["a", "d", "e"]
    assert rule_engine.left_out == 2


def test_running_sums_are_those_of_the_window():
    loads = [((n % 7, {"hba": 90 + n, "softirq": 5}),) for n in range(131)]
    rule_engine = fed([frame(100 + n, dt_us=S, traced=traced("sda", loads[n])) for n in range(1, 131)])
    sums, again = rule_engine.facts.traced, Facts(rule_engine.facts.blocks, ORIGIN, {}).traced
    assert dict(sums.histograms) == dict(again.histograms)
    assert sums.histograms[Series("sda", "read", "total")].count == sum(n % 7 for n in range(71, 131))
    series = Series("sda", "read", "hba")
    assert dict(sums.by_total[series]) == dict(again.by_total[series])
    assert (sums.paths, sums.one_in) == (again.paths, 1)
    assert "starved-io" not in rule_engine.silent
    assert "outstanding-ceiling" in rule_engine.silent


def test_a_rule_that_fails_is_noted_and_the_others_go_on(monkeypatch):
    def fails(_facts, _limits):
        yield named()
        raise ZeroDivisionError("by\nnothing" + "x" * 900)

    rules = tuple(
        engine.Rule(rule.id, "f", fails if i == 0 else lambda _f, _l: [named("peer-outlier")] if _f else [], rule.needs)
        for i, rule in enumerate(RULES[:2])
    )
    monkeypatch.setattr(engine, "RULES", rules)
    failed = {}
    actual_rules = list(evaluate_rules(facts_of(lasting(1)), DEFAULT, failed))
    assert [len(rule) for rule in actual_rules] == [0, 1]
    assert failed[RULES[0].id].startswith("ZeroDivisionError: by nothing")
    assert len(failed[RULES[0].id]) == 200


def test_a_cause_explains_what_is_no_more_urgent_on_all_that_it_is_about():
    cause = named("completion-wakeup", "sda", also=("sdb",))
    tails = [named("peer-outlier", device) for device in ("sda", "sdb", "sdc")]
    assert {finding.key for finding in unexplained([cause, *tails])} == {cause.key, ("peer-outlier", "sdc")}
    notice = named("completion-wakeup", "sda", NOTICE, also=("sdb",))
    assert len(unexplained([notice, *tails])) == 4


def test_of_one_key_the_most_urgent_is_reported():
    assert unexplained([named(share=0.3), named(share=0.9), named(severity=NOTICE, share=1.0)]) == (named(share=0.9),)


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("busy-cpus", {"cpu_busy": 0.99, "psi_cpu_some": 0.97}),
        ("swap-thrash", {"swap_ins": 3e-4}),
        ("dirty-throttled", {"dirty": 7e5, "writeback": 1e5, "dirty_background": 5e5, "dirty_limit": 1e6}),
    ],
)
def test_two_hosts_of_a_fleet_with_the_same_finding_have_one_each(rule, values):
    """Both were about no device, so that one of them was left out."""
    context = {
        f"{host}{name}": interval_value(round(value * S), S)
        for host in ("db1:", "db2:")
        for name, value in values.items()
    }
    facts = facts_of(lasting(12, host_context=context), backend="fleet")
    reports = [finding for findings in evaluate_rules(facts, DEFAULT, {}) for finding in findings]
    shown = [finding for finding in unexplained(reports) if finding.id == rule]
    assert [(finding.device, finding.short.partition(":")[0]) for finding in shown] == [
        ("db1:", "db1"),
        ("db2:", "db2"),
    ]


def test_parts_of_what_only_on_demand_probes_time_are_theirs():
    on_demand = [frame(BEGIN_S + 5 * n, traced=traced("sda", ((3, {"hba": 90}),))) for n in range(3)]
    assert [part.count for part in facts_of(on_demand).parts("sda", "read")] == [3, 3, 3]
    both = lasting(2, histograms=timed("sda", ((5, {"hba": 90}),)), traced=traced("sda", ((3, {"hba": 90}),)))
    assert [part.count for part in facts_of(both).parts("sda", "read")] == [5, 5]


def test_rules_that_had_their_input_in_less_than_half_of_the_evaluations_are_named():
    watch = fed(
        [frame(n, dt_us=S, traced=traced("sda", ((9, {"hba": 60}),)) if n <= 5 else Traced()) for n in range(1, 41)]
    )
    assert watch.lacked[TRACED] == watch.evaluated - 1
    partly = watch.partly
    assert set(partly) == {rule for rule, need in NEEDS.items() if need == TRACED}
    who, why = evaluated_by(len(RULES), {}, {}, partly)
    assert who == f"{len(RULES)} rules"
    assert re.fullmatch(r"only in 1[0-9]% of the evaluations: \S.*, \S.* \(in the others stages were not traced\)", why)
    watch.lacked[TRACED] = watch.evaluated // 2
    assert watch.partly == {}


def test_each_input_of_a_rule_has_a_reason_for_its_absence():
    assert {rule.needs for rule in RULES} <= MISSING.keys()
