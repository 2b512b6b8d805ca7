"""What coincides with a finding: named with figures inside and outside of its time, and only where they differ."""

from __future__ import annotations

import pytest
from finding_cases import BEGIN_S, disk, frame

from latmon.findings import engine
from latmon.findings.engine import HIGH, KEPT_US, RuleEngine
from latmon.findings.rule import WARNING, Finding, Where
from latmon.model.frame import Origin
from latmon.model.host_context import CONTEXT, SHARE, interval_value

S = 1_000_000


def named(rule="starved-io", device="sda"):
    return Finding(rule, WARNING, device, "s", (), Where("overview"), (), "r")


def share(value):
    return interval_value(int(value * 5 * S), 5 * S)


def evidence(monkeypatch, blocks, finding=None, *, backend="demo", devices=()):
    """Return the text of the fact after `blocks`, pairs of (context, whether the finding is there); None without."""
    rule_engine = RuleEngine(Origin(backend, "host", "6.1", "0", interval_us=5 * S, start_mono_us=BEGIN_S * S), devices)
    finding = finding or named()
    for at, (context, is_there) in enumerate(blocks, 1):
        some = (finding,) if is_there else ()
        monkeypatch.setattr(engine, "evaluate_rules", lambda *_, some=some: iter([some]))
        rule_engine.take(frame(BEGIN_S + 5 * at, host_context=context))
    facts = [fact for fact in rule_engine.current[0].facts if fact.name == "at_the_same_time"]
    return facts[0].text if facts else None


def before_and_during(context, usual, minutes=2):
    """A finding that is there once its window has nothing else."""
    return [*[(usual, False)] * 12 * minutes, *[(context, False)] * 11, *[(context, True)] * 12]


def test_steal_beside_a_finding_has_figures_of_both_times(monkeypatch):
    blocks = before_and_during({"steal": share(0.4)}, {"steal": share(0.02)})
    assert evidence(monkeypatch, blocks) == "at the same time: CPU steal 40% (else 2%)"


def test_what_was_in_the_window_when_it_was_found_is_not_the_time_without_it(monkeypatch):
    usual, stolen = {"steal": share(0)}, {"steal": share(0.4)}
    blocks = [*[(usual, False)] * 24, *[(stolen, False)] * 3, *[(stolen, True)] * 12]
    assert evidence(monkeypatch, blocks) == "at the same time: CPU steal 40% (else 0%)"


def test_several_values_are_one_sentence(monkeypatch):
    context = {"psi_cpu_some": share(0.5), "steal": share(0.2), "dirty": interval_value(3_000_000_000, 1)}
    usual = {"psi_cpu_some": share(0.1), "steal": share(0), "dirty": interval_value(1_000_000, 1)}
    assert evidence(monkeypatch, before_and_during(context, usual)) == (
        "at the same time: CPU steal 20% (else 0%), PSI cpu some 50% (else 10%), dirty pages 2.8 GiB (else 977 KiB)"
    )


def test_without_other_time_it_says_so(monkeypatch):
    assert evidence(monkeypatch, [({"steal": share(0.4)}, True)] * 3) == (
        "at the same time: CPU steal 40%; there is no time without it to compare with"
    )


@pytest.mark.parametrize(
    ("context", "usual"),
    [
        ({"steal": share(0.09)}, {"steal": share(0)}),  # too little
        ({"steal": share(0.4)}, {"steal": share(0.3)}),  # as ever
        ({"psi_cpu_some": share(0.2)}, {"psi_cpu_some": share(0.01)}),
        ({"psi_io_full": share(0.9)}, {"psi_io_full": share(0)}),  # a part of `some`
        ({"arc": interval_value(10**12, 1)}, {"arc": interval_value(1, 1)}),
        ({}, {}),
        ({"from a later version": share(1)}, {}),
    ],
)
def test_nothing_coincides(monkeypatch, context, usual):
    assert evidence(monkeypatch, before_and_during(context, usual)) is None


def test_a_setting_coincides_with_nothing(monkeypatch):
    blocks = before_and_during({"steal": share(0.4)}, {"steal": share(0)})
    assert evidence(monkeypatch, blocks, named("queue-depth-misconfigured")) is None


@pytest.mark.parametrize(
    ("driver", "name", "is_named"), [("nvme-tcp", "nvme1n1", 1), ("", "nbd0", 1), ("sd", "sda", 0)]
)
def test_retransmits_are_beside_devices_behind_tcp_only(monkeypatch, driver, name, is_named):
    blocks = before_and_during({"tcp_retransmits": interval_value(500, 5 * S)}, {})
    actual_evidence = evidence(monkeypatch, blocks, named(device=name), devices=(disk(name, driver=driver),))
    assert bool(actual_evidence) == is_named


def test_of_a_fleet_the_host_of_the_device_counts(monkeypatch):
    blocks = before_and_during({"a:steal": share(0.4), "b:steal": share(0)}, {"a:steal": share(0), "b:steal": share(0)})
    assert evidence(monkeypatch, blocks, named(device="a:sda"), backend="fleet")
    assert evidence(monkeypatch, blocks, named(device="b:sda"), backend="fleet") is None


def test_every_value_that_is_named_is_one_of_the_table():
    assert HIGH.keys() <= CONTEXT.keys()
    assert all(0 < HIGH[name] < 1 for name in HIGH if CONTEXT[name].unit == SHARE)


def test_an_hour_is_kept_in_few_spans(monkeypatch):
    monkeypatch.setattr(engine, "evaluate_rules", lambda *_: iter([]))
    rule_engine = RuleEngine(Origin("demo", "host", "6.1", "0", interval_us=5 * S, start_mono_us=BEGIN_S * S))
    for at in range(1, 900):
        rule_engine.take(frame(BEGIN_S + 5 * at, host_context={"a:steal": share(0.1), "a:arc": interval_value(1, 1)}))
    spans = rule_engine._coincidences._spans
    assert len(spans) <= KEPT_US // (30 * S) + 1
    assert {name for span in spans for name in span.context} == {"a:steal"}
    assert KEPT_US <= sum(span.context["a:steal"].weight for span in spans) <= KEPT_US + 30 * S
