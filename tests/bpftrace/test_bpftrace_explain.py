"""The doctor names what measures each stage, from an origin and the choice of on-demand scripts."""

import pytest

from latmon.model.frame import STAGES, Missing, Origin
from latmon_backends.bpftrace.backend import ages, stages
from latmon_backends.bpftrace.tracer import choose, on_demand_manifests
from latmon_backends.tracer.programs import ChosenScripts

FOUND = on_demand_manifests()
ORIGIN = Origin(
    backend="bpftrace",
    host="box",
    kernel="6.1",
    latmon="0",
    tier="C",
    measured={"hba": ("irq", "softirq"), "total": ()},
    absent=(Missing("queue", "needs stamps"),),
)


def reported(origin, **refused):
    choice = choose(FOUND, "C", lambda _: True, {"timer_context": (1,)}, refused)
    return {stage.stage: stage for stage in stages(origin, {"C": choice})}


def test_every_stage_is_in_it():
    found = reported(ORIGIN)
    assert tuple(found) == ("admission", *STAGES)
    assert found["admission"].traced["C"].startswith("no: ")
    assert found["hba"].always == "yes as hba+ (hba with its interrupt), with irq, softirq in it"
    assert found["total"].always == "yes"
    assert found["queue"].always == "no: needs stamps"
    assert found["irq"].always == "no: its time is in hba"
    assert found["completion"].always == "no: not measured by this probe"
    assert found["softirq"].traced["C"].startswith("stages_c")
    assert found["resume"].traced["C"] == "wakeups_c"


def test_without_an_always_on_probe_the_on_demand_ones_are_reported_all_the_same():
    found = reported(None)
    assert found["hba"].always == "no: no always-on probe runs here"
    assert found["hba"].traced["C"].startswith("stages_c")


@pytest.mark.parametrize("stage", ["hba", "softirq"])
def test_a_script_that_cannot_run_is_the_reason(stage):
    assert "stages: no such field" in reported(ORIGIN, stages_c="no such field")[stage].traced["C"]


def test_a_stage_that_a_script_says_it_lacks_has_that_reason():
    found = reported(ORIGIN, wakeups_c="too slow")["resume"].traced["C"]
    assert found.startswith("no: ")
    assert len(found) > 10


def test_where_nothing_runs_it_says_so():
    (total,) = (stage for stage in stages(ORIGIN, {"A": ChosenScripts()}) if stage.stage == "total")
    assert total.traced["A"] == "no: no probe measures it"


def test_who_waits_is_reported_by_a_probe_of_tier_a_or_not_at_all():
    choices = {tier: choose(FOUND, tier, lambda _: True, {"timer_context": (1,)}, cpus=2) for tier in ("A", "C")}
    actual_ages = ages(choices)
    assert actual_ages["A"].startswith("inflight_a")
    assert actual_ages["C"].startswith("no: needs tier A")
