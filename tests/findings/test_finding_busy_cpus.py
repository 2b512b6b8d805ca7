"""busy-cpus: no idle CPU, and programs that wait for one; and what is no such host."""

from dataclasses import replace

import pytest
from finding_cases import facts_of, found, lasting

from latmon.findings.engine import not_evaluated, unexplained
from latmon.findings.rule import CPU_LOAD
from latmon.findings.rules import RULES
from latmon.findings.rules.busy_cpus import ID
from latmon.model.host_context import interval_value


def load(busy=0.99, waited=0.97, host="", **others):
    """Return the host's values of a block: 2 CPUs have 1,000 ticks in 5 s."""
    shares = {f"{host}cpu_busy": busy, f"{host}psi_cpu_some": waited, **others}
    return {name: interval_value(round(share * 1000), 1000) for name, share in shares.items()}


def frames(blocks=12, **case):
    return [replace(frame, host_context=load(**case)) for frame in lasting(blocks)]


def test_six_programs_that_compute_on_two_cpus():
    (finding,) = found(ID, frames())
    assert (finding.severity, finding.device) == ("notice", "")
    assert finding.short == "all CPUs are busy: programs wait for one 97% of the time"
    assert finding.summary == "all CPUs are busy, and programs wait for one 97% of the time"
    assert [fact.text for fact in finding.facts] == [
        "the CPUs were busy 99% of their time (/proc/stat)",
        "a program waited for a CPU 97% of the time (PSI)",
    ]
    assert "no faster disk helps" in finding.steps[0].what
    assert finding.share == pytest.approx(0.97)


def test_the_share_of_other_guests_is_named():
    (finding,) = found(ID, frames(steal=0.4))
    assert finding.facts[-1].text == "of the CPU time the hypervisor gave 40% to other guests (CPU steal)"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"waited": 0.1}, id="as many threads as CPUs: none waits"),
        pytest.param({"busy": 0.02}, id="two programs that may use one of 128 CPUs"),
        pytest.param({"blocks": 1}, id="the first block"),
    ],
)
def test_others_are_not_found(case):
    assert found(ID, frames(**case)) == []


@pytest.mark.parametrize(("busy_blocks", "findings"), [(1, 0), (2, 0), (3, 1)])
def test_a_burst_is_none(busy_blocks, findings):
    idle = frames(busy=0.3, waited=0.1)
    first = len(idle) - busy_blocks
    assert len(found(ID, [*idle[:first], *frames()[first:]])) == findings


def test_a_host_of_a_fleet_is_named():
    fleet = [replace(frame, host_context={**load(host="db1:"), **load(0.2, 0.1, "db2:")}) for frame in lasting(12)]
    (finding,) = found(ID, fleet)
    assert finding.short == "db1: all CPUs are busy: programs wait for one 97% of the time"


def test_a_finding_that_names_a_program_explains_it():
    (finding,) = found(ID, frames())
    for rule in ("cpu-starved", "cpu-throttled"):
        named = replace(finding, id=rule)
        assert unexplained((finding, named)) == (named,)
    assert {"cpu-starved", "cpu-throttled"} <= {rule.id for rule in RULES}


def test_without_the_load_of_the_cpus_the_rule_is_not_evaluated():
    assert ID in not_evaluated(facts_of(lasting(12)))[CPU_LOAD]
    assert CPU_LOAD not in not_evaluated(facts_of(frames()))
