"""The doctor's report on DTrace: from an origin, the manifests, and a stand-in that can't run."""

import pytest

from latmon.model.frame import STAGES, Missing, Origin
from latmon_backends.dtrace import program
from latmon_backends.dtrace.backend import TRACED, explain, report


def reported(system, always, **missing):
    found = program.manifests(system)
    (probe,) = (one for one in found if one.name == always)
    origin = Origin(
        "dtrace",
        "h",
        "k",
        "0",
        tool="dtrace 2.0.7",
        tier=probe.tier,
        measured={stage: probe.includes.get(stage, ()) for stage in probe.stages},
        absent=tuple(Missing(stage, why) for stage, why in probe.absent.items()),
        probes_missing=tuple(Missing(name, why) for name, why in missing.items()),
        extra={"probe": always},
    )
    return report(origin, found, system)


def stages(made):
    return {one.stage: one for one in made.stages}


def test_the_script_that_runs_is_named():
    made = reported("linux", "requests_d")
    assert (made.tier, made.why) == ("A", "requests_d of dtrace 2.0.7")
    assert tuple(stages(made)) == STAGES


def test_on_linux_the_io_provider_reports_a_total_and_the_on_demand_scripts_the_resume():
    found = stages(reported("linux", "io_d"))
    assert found["total"].always == "yes"
    assert found["queue"].always.startswith("no: the io provider has no event")
    assert found["resume"].traced == {TRACED: "resume_d"}
    assert found["irq"].traced[TRACED] == "no: this system has no D script for that"


def test_a_script_without_its_hook_is_the_reason():
    why = "there is no probe fbt:emlxs:emlxs_fca_transport:entry here"
    made = reported("illumos", "sd", emlxs_sli3=why, emlxs_sli4=why)
    assert f"emlxs_sli3: {why}" in stages(made)["irq"].traced[TRACED]
    assert "emlxs_sli3" not in made.hooks
    assert "scsi_pkt" in stages(made)["hba"].traced[TRACED]


@pytest.mark.parametrize(
    ("missing", "traces"), [({}, "cam,"), ({"cam": "no cam"}, "cam_fbt,"), ({"cam": "-", "cam_fbt": "-"}, "geom,")]
)
def test_of_scripts_that_do_the_same_the_best_is_reported(missing, traces):
    made = stages(reported("freebsd", "devstat", **missing))
    assert f"{made['hba'].traced[TRACED]},".startswith(traces)


@pytest.mark.parametrize("system", ["illumos", "freebsd"])
def test_how_drivers_complete_is_reported(system):
    made = reported(system, {"illumos": "sd", "freebsd": "devstat"}[system])
    assert made.drivers
    assert made.ages == {TRACED: "no: no D script follows each I/O"}


def test_without_a_tool_there_is_a_reason():
    made = explain({"LATMON_DTRACE": "/no/such/dtrace"})
    assert made.tier == ""
    assert "/no/such/dtrace" in made.why
