"""The doctor's report on DTrace: from an origin, the manifests, and a stand-in that can't run."""

import pytest

from latmon.model.frame import STAGES, Missing, Origin
from latmon_backends.dtrace import program
from latmon_backends.dtrace.backend import TRACED, explain, report


def reported(system, always, **missing):
    manifests = program.manifests(system)
    (probe,) = (manifest for manifest in manifests if manifest.name == always)
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
    return report(origin, manifests, system)


def stages(made):
    return {stage.stage: stage for stage in made.stages}


def test_the_script_that_runs_is_named():
    probe_report = reported("linux", "requests_d")
    assert (probe_report.tier, probe_report.why) == ("A", "requests_d of dtrace 2.0.7")
    assert tuple(stages(probe_report)) == STAGES


def test_on_linux_the_io_provider_reports_a_total_and_the_on_demand_scripts_the_resume():
    actual_stages = stages(reported("linux", "io_d"))
    assert actual_stages["total"].always == "yes"
    assert actual_stages["queue"].always.startswith("no: the io provider has no event")
    assert actual_stages["resume"].traced == {TRACED: "resume_d"}
    assert actual_stages["irq"].traced[TRACED] == "no: this system has no D script for that"


def test_a_script_without_its_hook_is_the_reason():
    why = "there is no probe fbt:emlxs:emlxs_fca_transport:entry here"
    probe_report = reported("illumos", "sd", emlxs_sli3=why, emlxs_sli4=why)
    assert f"emlxs_sli3: {why}" in stages(probe_report)["irq"].traced[TRACED]
    assert "emlxs_sli3" not in probe_report.hooks
    assert "scsi_pkt" in stages(probe_report)["hba"].traced[TRACED]


@pytest.mark.parametrize(
    ("missing", "traces"), [({}, "cam,"), ({"cam": "no cam"}, "cam_fbt,"), ({"cam": "-", "cam_fbt": "-"}, "geom,")]
)
def test_of_scripts_that_do_the_same_the_best_is_reported(missing, traces):
    given_stages = stages(reported("freebsd", "devstat", **missing))
    assert f"{given_stages['hba'].traced[TRACED]},".startswith(traces)


@pytest.mark.parametrize("system", ["illumos", "freebsd"])
def test_how_drivers_complete_is_reported(system):
    probe_report = reported(system, {"illumos": "sd", "freebsd": "devstat"}[system])
    assert probe_report.drivers
    assert probe_report.ages == {TRACED: "no: no D script follows each I/O"}


def test_without_a_tool_there_is_a_reason():
    probe_report = explain({"LATMON_DTRACE": "/no/such/dtrace"})
    assert probe_report.tier == ""
    assert "/no/such/dtrace" in probe_report.why
